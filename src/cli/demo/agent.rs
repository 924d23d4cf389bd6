//! The application's side: a plain HTTP client that knows chat completions and nothing of the guard.
//!
//! It reads answers with its own few lines rather than with the project's parsers, so that it is a
//! witness and not a mirror.

use serde_json::{Value, json};
use std::time::Duration;

/// What the model is told before anything else.
const SYSTEM: &str = "Answer from the order tool's result. If the look-up failed, say so.";
/// No step may take longer.
const PATIENCE: Duration = Duration::from_secs(4);

/// The one tool, as the application offers it.
pub(super) fn tools() -> Value {
    json!([{
        "type": "function",
        "function": {
            "name": "get_order_status",
            "description": "Status of an order that the signed-in user may see",
            "parameters": {
                "type": "object",
                "properties": {"order_id": {"type": "string"}},
                "required": ["order_id"],
            },
        },
    }])
}

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// Where to.
    pub(super) base: String,
    /// The conversation header.
    pub(super) conversation: String,
    /// The generation header.
    pub(super) generation: Option<u64>,
    /// `stream`
    pub(super) stream: bool,
    /// The message list.
    pub(super) messages: Vec<Value>,
}

/// What came back.
#[derive(Clone, Debug, Default)]
pub(super) struct Reply {
    /// The HTTP status.
    pub(super) status: u16,
    /// `error.code`, in the body or in an event of the stream.
    pub(super) code: Option<String>,
    /// The text.
    pub(super) text: String,
    /// The tool calls, whole.
    pub(super) calls: Vec<Value>,
}

/// A task: the list begins with one question.
pub(super) fn question(text: &str) -> Vec<Value> {
    vec![json!({"role": "system", "content": SYSTEM}), json!({"role": "user", "content": text})]
}

/// The list, and after it the calls with a result for each.
pub(super) fn with_result(list: &[Value], calls: &[Value], content: &str) -> Vec<Value> {
    let mut list = list.to_vec();
    list.push(json!({"role": "assistant", "content": null, "tool_calls": calls}));
    list.extend(calls.iter().map(|call| {
        json!({"role": "tool", "tool_call_id": call["id"], "name": call["function"]["name"],
            "content": content})
    }));
    list
}

/// A call, as a model proposes it.
pub(super) fn call(id: &str, order: &str) -> Value {
    let arguments = json!({ "order_id": order }).to_string();
    json!({"id": id, "type": "function",
        "function": {"name": "get_order_status", "arguments": arguments}})
}

/// The order that a call asks for.
pub(super) fn order_of(call: &Value) -> String {
    let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
    let arguments: Value = serde_json::from_str(arguments).unwrap_or(Value::Null);
    arguments["order_id"].as_str().unwrap_or("?").to_owned()
}

/// What the order service says.
pub(super) fn found(order: &str, status: &str) -> String {
    json!({"ok": true, "order_id": order, "status": status}).to_string()
}

/// Sends a request and reads the whole answer.
pub(super) async fn send(http: &reqwest::Client, request: &Request) -> reqwest::Result<Reply> {
    let mut body = json!({"model": "scripted", "messages": request.messages, "tools": tools()});
    if request.stream {
        body["stream"] = true.into();
    }
    let mut post = http
        .post(format!("{}/v1/chat/completions", request.base))
        .header("x-conversation-id", &request.conversation)
        .timeout(PATIENCE)
        .json(&body);
    if let Some(generation) = request.generation {
        post = post.header("x-generation", generation);
    }
    let response = post.send().await?;
    let status = response.status().as_u16();
    let text = response.text().await?;
    let mut reply = if text.starts_with("data:") || text.starts_with(':') {
        read_stream(&text)
    } else {
        read_whole(&serde_json::from_str(&text).unwrap_or(Value::Null))
    };
    reply.status = status;
    Ok(reply)
}

fn read_whole(body: &Value) -> Reply {
    let message = &body["choices"][0]["message"];
    Reply {
        code: code(body),
        text: message["content"].as_str().unwrap_or_default().to_owned(),
        calls: message["tool_calls"].as_array().cloned().unwrap_or_default(),
        ..Reply::default()
    }
}

fn read_stream(text: &str) -> Reply {
    let mut reply = Reply::default();
    for data in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
        let chunk: Value = serde_json::from_str(data).unwrap_or(Value::Null);
        reply.code = reply.code.or_else(|| code(&chunk));
        let delta = &chunk["choices"][0]["delta"];
        reply.text.push_str(delta["content"].as_str().unwrap_or_default());
        for part in delta["tool_calls"].as_array().into_iter().flatten() {
            join(&mut reply.calls, part);
        }
    }
    reply
}

/// Adds a fragment to the call at its index.
fn join(calls: &mut Vec<Value>, part: &Value) {
    let index = part["index"].as_u64().and_then(|at| usize::try_from(at).ok()).unwrap_or(0);
    if index == calls.len() {
        calls.push(json!({"id": part["id"], "type": "function",
            "function": {"name": part["function"]["name"], "arguments": ""}}));
    }
    let Some(call) = calls.get_mut(index) else { return };
    let so_far = call["function"]["arguments"].as_str().unwrap_or_default();
    let more = part["function"]["arguments"].as_str().unwrap_or_default();
    call["function"]["arguments"] = format!("{so_far}{more}").into();
}

fn code(body: &Value) -> Option<String> {
    match &body["error"]["code"] {
        Value::String(code) => Some(code.clone()),
        Value::Number(code) => Some(code.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{read_stream, read_whole};
    use serde_json::json;

    #[test]
    fn reads_an_error_in_a_body_and_in_a_stream() {
        let body = json!({"error": {"message": "no", "code": "stale"}});
        assert_eq!(read_whole(&body).code.as_deref(), Some("stale"));
        let reply = read_stream(&format!(
            "data: {}\n\ndata: {body}\n\n",
            json!({"choices": [{"delta": {"content": "ORD"}}]})
        ));
        assert_eq!((reply.code.as_deref(), reply.text.as_str()), (Some("stale"), "ORD"));
    }

    #[test]
    fn joins_the_fragments_of_two_calls() {
        let part = |index: u64, id: Option<&str>, text: &str| {
            let function = json!({"name": id.map(|_| "t"), "arguments": text});
            let call = json!({"index": index, "id": id, "function": function});
            format!("data: {}\n\n", json!({"choices": [{"delta": {"tool_calls": [call]}}]}))
        };
        let text = part(0, Some("a"), "{")
            + &part(1, Some("b"), "[")
            + &part(0, None, "}")
            + &part(1, None, "]");
        let calls = read_stream(&text).calls;
        assert_eq!((&calls[0]["id"], &calls[1]["id"]), (&json!("a"), &json!("b")));
        assert_eq!(calls[0]["function"]["arguments"], "{}");
        assert_eq!(calls[1]["function"]["arguments"], "[]");
    }
}
