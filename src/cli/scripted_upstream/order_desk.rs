//! The default script: a model at an order desk, with one tool.
//!
//! It knows no order by itself. Asked about one, it proposes a look-up; given the look-up's result, it
//! says what the result says, so whatever text a guard lets through shows in the answer.

use super::reading::{Asked, Message};
use super::script::{Entry, ScriptedCall};
use serde_json::{Value, json};

/// The tool that it calls.
const TOOL: &str = "get_order_status";

/// What it says next.
pub(super) fn reply(asked: &Asked<'_>) -> Entry {
    let answer = answer(&asked.messages);
    if let Some(text) = answer {
        return say(text);
    }
    match order_in(&asked.last_user_text()) {
        Some(order) if asked.may_call(TOOL) => Entry {
            calls: vec![ScriptedCall {
                name: TOOL.to_owned(),
                arguments: json!({ "order_id": order }),
                fragments: None,
                id: None,
            }],
            ..Entry::default()
        },
        Some(order) => say(format!("I have no tool to look up {order} with.")),
        None => say("Hello. Which order may I look up?".to_owned()),
    }
}

fn say(text: String) -> Entry {
    Entry { text: Some(text), ..Entry::default() }
}

/// The answer to results at the end of the list; `None` when there are none.
fn answer(messages: &[Message<'_>]) -> Option<String> {
    let spoken = |message: &&Message<'_>| !message.is("system") && !message.is("developer");
    let mut results: Vec<&Message<'_>> =
        messages.iter().rev().filter(spoken).take_while(|message| message.is("tool")).collect();
    results.reverse();
    let calls = messages.iter().rfind(|message| message.is("assistant"));
    let calls = calls.map(Message::tool_calls).unwrap_or_default();
    let sentences: Vec<String> = results.iter().map(|result| sentence(result, &calls)).collect();
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// One result in words.
fn sentence(result: &Message<'_>, calls: &[Value]) -> String {
    let content: Value = serde_json::from_str(&result.text()).unwrap_or(Value::Null);
    let id = result.tool_call_id();
    let asked = calls.iter().find(|call| call.get("id").and_then(Value::as_str) == id.as_deref());
    let order = content.get("order_id").and_then(Value::as_str).map(str::to_owned);
    let order = order.or_else(|| order_of_call(asked?)).unwrap_or_else(|| "The order".to_owned());
    let failed = content.get("ok") == Some(&Value::Bool(false)) || content.get("error").is_some();
    match content.get("status").and_then(Value::as_str) {
        Some(status) if !failed => format!("{order} is {}.", status.replace('_', " ")),
        _ => format!("{order} could not be looked up."),
    }
}

fn order_of_call(call: &Value) -> Option<String> {
    let arguments = call.pointer("/function/arguments")?.as_str()?;
    let arguments: Value = serde_json::from_str(arguments).ok()?;
    Some(arguments.get("order_id")?.as_str()?.to_owned())
}

/// The last order that a text names: a correction comes after what it corrects.
fn order_in(text: &str) -> Option<&str> {
    let from = &text[text.rfind("ORDER-")?..];
    let tail = &from["ORDER-".len()..];
    let end = tail.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(tail.len());
    (end > 0).then(|| &from[.."ORDER-".len() + end])
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::{Asked, order_in, reply};

    #[test]
    fn finds_the_last_order_named() {
        for (text, order) in [
            ("Where is ORDER-A?", Some("ORDER-A")),
            ("我的 ORDER-A 到哪里了？", Some("ORDER-A")),
            ("Not ORDER-A, I mean ORDER-B2.", Some("ORDER-B2")),
            ("Where is my ORDER-?", None),
            ("Hello", None),
        ] {
            assert_eq!(order_in(text), order, "{text}");
        }
    }

    #[test]
    fn says_what_the_result_says() {
        for (content, said) in [
            (
                r#"{\"ok\":true,\"order_id\":\"ORDER-A\",\"status\":\"in_transit\"}"#,
                "ORDER-A is in transit.",
            ),
            (r#"{\"ok\":true,\"status\":\"运输中\"}"#, "ORDER-A is 运输中."),
            (
                r#"{\"ok\":false,\"error\":{\"code\":\"timeout\"}}"#,
                "ORDER-A could not be looked up.",
            ),
            ("", "ORDER-A could not be looked up."),
        ] {
            let body = format!(
                r#"{{"messages":[{{"role":"user","content":"ORDER-A?"}},
                {{"role":"assistant","content":null,"tool_calls":[{{"id":"c","type":"function","function":
                {{"name":"get_order_status","arguments":"{{\"order_id\":\"ORDER-A\"}}"}}}}]}},
                {{"role":"tool","tool_call_id":"c","content":"{content}"}},
                {{"role":"system","content":"Be brief."}}]}}"#
            );
            let asked: Asked<'_> = serde_json::from_str(&body).unwrap();
            assert_eq!(reply(&asked).text.as_deref(), Some(said), "{content}");
        }
    }

    #[test]
    fn calls_only_what_is_offered() {
        let tool = r#"[{"type":"function","function":{"name":"get_order_status"}}]"#;
        for (more, called) in [
            (format!(r#","tools":{tool}"#), true),
            (format!(r#","tools":{tool},"tool_choice":"none""#), false),
            (String::new(), false),
        ] {
            let body = format!(r#"{{"messages":[{{"role":"user","content":"ORDER-A?"}}]{more}}}"#);
            let asked: Asked<'_> = serde_json::from_str(&body).unwrap();
            assert_eq!(!reply(&asked).calls.is_empty(), called, "{more}");
        }
    }
}
