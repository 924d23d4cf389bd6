//! Runs of LangChain as LangSmith keeps them: its own message objects, not what went over the wire.
//!
//! Roles, ids, names and arguments are all in them, so a list can be put together as the wire would have it.
//! Two ways to write a message are known: `{"lc":1,"id":[…,"AIMessage"],"kwargs":{…}}` and
//! `{"type":"ai","data":{…}}` (or the members beside `type`).

use super::look::{Node, Record};
use super::part::{Part, Pieces};
use super::records::{AnswerForm, Body, Exchange};
use crate::wire::json::Field;
use serde_json::Value;

/// The exchange that a run keeps; `None` when it is none of LangChain's.
pub(super) fn exchange<'a>(record: &Record<'a>) -> Option<Exchange<'a>> {
    let messages = messages(record.path("inputs.messages")?)?;
    let mut pieces = Pieces::default();
    pieces.add(r#"{"messages":["#);
    for (number, message) in messages.iter().enumerate() {
        pieces.add(if number > 0 { "," } else { "" });
        message.write(&mut pieces);
    }
    pieces.add("]");
    for (name, path) in [
        ("tools", "extra.invocation_params.tools"),
        ("tool_choice", "extra.invocation_params.tool_choice"),
        ("parallel_tool_calls", "extra.invocation_params.parallel_tool_calls"),
    ] {
        if let Some(value) = record.path(path) {
            pieces.add(&format!(",\"{name}\":")).take(value.at, value.raw);
        }
    }
    pieces.add("}");
    let request = Body { path: "inputs".to_owned(), part: pieces.whole() };
    let answer =
        answer(record).map(|part| (Body { path: "outputs".to_owned(), part }, AnswerForm::Whole));
    Some(Exchange { request: Some(request), answer })
}

/// The messages of a list, or of its only entry: prompts come in batches.
fn messages(list: Node<'_>) -> Option<Vec<Message<'_>>> {
    let items = list.items();
    let items = match items.as_slice() {
        [only] if only.is_list() => only.items(),
        _ => items,
    };
    if items.is_empty() {
        return None;
    }
    items.into_iter().map(Message::of).collect()
}

/// The first generation, as a completion.
fn answer<'a>(record: &Record<'a>) -> Option<Part<'a>> {
    let first = *record.path("outputs.generations")?.items().first()?;
    let generation = if first.is_list() { *first.items().first()? } else { first };
    let message = Message::of(generation.member("message")?)?;
    let mut pieces = Pieces::default();
    pieces.add(r#"{"choices":[{"index":0,"message":"#);
    message.write(&mut pieces);
    let reason = generation
        .path("generation_info.finish_reason")
        .or_else(|| message.members.path("response_metadata.finish_reason"));
    if let Some(reason) = reason {
        pieces.add(r#","finish_reason":"#).take(reason.at, reason.raw);
    }
    pieces.add("}]}");
    Some(pieces.whole())
}

/// One message.
struct Message<'a> {
    at: usize,
    role: &'static str,
    members: Node<'a>,
}

impl<'a> Message<'a> {
    fn of(node: Node<'a>) -> Option<Self> {
        let (kind, members) = match node.member("kwargs") {
            Some(members) => (*node.member("id")?.items().last()?, members),
            None => (node.member("type")?, node.member("data").unwrap_or(node)),
        };
        let Field::Text(kind) = kind.field() else { return None };
        let role = match &*kind.decode() {
            "HumanMessage" | "HumanMessageChunk" | "human" => "user",
            "AIMessage" | "AIMessageChunk" | "ai" | "AIMessageV1" => "assistant",
            "ToolMessage" | "ToolMessageChunk" | "tool" => "tool",
            "SystemMessage" | "SystemMessageChunk" | "system" => "system",
            "FunctionMessage" | "function" => "function",
            "ChatMessage" | "chat" => "other",
            _ => return None,
        };
        Some(Message { at: node.at, role, members })
    }

    fn write(&self, pieces: &mut Pieces) {
        // Where nothing of the message is copied, its place is its own beginning.
        pieces.take(self.at, "{").add(&format!(r#""role":"{}""#, self.role));
        if self.role == "assistant" {
            self.write_calls(pieces);
        }
        if self.role == "tool"
            && let Some(id) = self.members.member("tool_call_id")
        {
            pieces.add(r#","tool_call_id":"#).take(id.at, id.raw);
        }
        pieces.add("}");
    }

    fn write_calls(&self, pieces: &mut Pieces) {
        let list = |path: &str| self.members.path(path).map(Node::items).unwrap_or_default();
        let own: Vec<_> =
            list("tool_calls").into_iter().chain(list("invalid_tool_calls")).collect();
        if own.is_empty() {
            if let Some(calls) = self.members.path("additional_kwargs.tool_calls") {
                pieces.add(r#","tool_calls":"#).take(calls.at, calls.raw);
            }
            return;
        }
        pieces.add(r#","tool_calls":["#);
        for (number, call) in own.into_iter().enumerate() {
            pieces.add(if number > 0 { "," } else { "" }).take(call.at, "{");
            if let Some(id) = call.member("id") {
                pieces.add(r#""id":"#).take(id.at, id.raw).add(",");
            }
            pieces.add(r#""function":{"#);
            if let Some(name) = call.member("name") {
                pieces.add(r#""name":"#).take(name.at, name.raw).add(",");
            }
            pieces.add(r#""arguments":"#);
            match call.member("args") {
                // Kept as an object; over the wire it is that object's text.
                Some(arguments) if arguments.is_object() => {
                    pieces.take(arguments.at, "").add(&Value::from(arguments.raw).to_string());
                }
                Some(arguments) => drop(pieces.take(arguments.at, arguments.raw)),
                None => drop(pieces.add("null")),
            }
            pieces.add("}}");
        }
        pieces.add("]");
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const RUN: &str = r#"{"run_type":"llm","inputs":{"messages":[[
        {"lc":1,"type":"constructor","id":["langchain","schema","messages","HumanMessage"],"kwargs":{"content":"?"}},
        {"lc":1,"type":"constructor","id":["langchain","schema","messages","AIMessage"],"kwargs":{"content":"","tool_calls":[{"name":"get","args":{"a":"b"},"id":"c1","type":"tool_call"}]}},
        {"type":"tool","data":{"content":"{}","tool_call_id":"c1"}}]]},
        "outputs":{"generations":[[{"text":"","generation_info":{"finish_reason":"tool_calls"},"message":{"lc":1,"id":["x","AIMessage"],"kwargs":{"additional_kwargs":{"tool_calls":[{"id":"c2","function":{"name":"get","arguments":"{}"}}]}}}}]]},
        "extra":{"invocation_params":{"tools":[{"type":"function","function":{"name":"get"}}]}}}"#;

    fn record(text: &str) -> Record<'_> {
        Record::of(Node::parse(text).unwrap()).unwrap()
    }

    fn text(part: &Part<'_>) -> String {
        String::from_utf8(part.bytes.to_vec()).unwrap()
    }

    #[test]
    fn a_run_is_put_together_as_the_wire_had_it() {
        let exchange = exchange(&record(RUN)).unwrap();
        let request = exchange.request.unwrap().part;
        assert_eq!(
            text(&request),
            r#"{"messages":[{"role":"user"},{"role":"assistant","tool_calls":[{"id":"c1","function":{"name":"get","arguments":"{\"a\":\"b\"}"}}]},{"role":"tool","tool_call_id":"c1"}],"tools":[{"type":"function","function":{"name":"get"}}]}"#
        );
        let answer = exchange.answer.unwrap().0.part;
        assert_eq!(
            text(&answer),
            r#"{"choices":[{"index":0,"message":{"role":"assistant","tool_calls":[{"id":"c2","function":{"name":"get","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#
        );
        let at = text(&request).rfind("\"c1\"").unwrap();
        assert!(RUN[request.offset(at)..].starts_with(r#""c1"}}]]"#));
    }

    #[test]
    fn what_is_not_langchains_is_left_to_others() {
        for text in [
            "{}",
            r#"{"inputs":{"messages":[]}}"#,
            r#"{"inputs":{"messages":[{"role":"user"}]}}"#,
            r#"{"inputs":{"messages":[[{"type":"strange"}]]}}"#,
        ] {
            assert!(exchange(&record(text)).is_none(), "{text}");
        }
    }
}
