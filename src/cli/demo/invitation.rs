//! What `--keep` prints: lines to paste, with the real ports in them.

use super::stage::Stage;

/// The text.
pub(super) fn text(stage: &Stage) -> String {
    let Stage { guard, admin, upstream, .. } = stage;
    let tools = super::agent::tools();
    format!(
        r#"Still up; Ctrl-C ends it. Paste into a shell:

curl -si {guard}/v1/chat/completions -H 'content-type: application/json' -H "x-conversation-id: shell-$$" -H "x-generation: $(date +%s)" -d '{{"model":"scripted","messages":[{{"role":"user","content":"Where is ORDER-A?"}}],"tools":{tools}}}'

curl -s {admin}/metrics | grep -E '^tigertally_.*_total' | grep -v ' 0$'   # what the guard counted
curl -s {upstream}/_seen   # what reached the model

Or into Python (pip install openai):

import json, uuid, openai
client = openai.OpenAI(base_url="{guard}/v1", api_key="none", default_headers={{"x-conversation-id": str(uuid.uuid4())}})
tools = json.loads('{tools}')
messages = [{{"role": "user", "content": "Where is ORDER-A?"}}]
first = client.chat.completions.create(model="scripted", messages=messages, tools=tools).choices[0].message
result = json.dumps({{"ok": True, "order_id": "ORDER-A", "status": "in transit"}})
messages += [first, {{"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": result}}]
print(client.chat.completions.create(model="scripted", messages=messages, tools=tools).choices[0].message.content)
"#
    )
}
