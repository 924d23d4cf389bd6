//! The lines of record files, each held to the schema, and the requests that make them.

use crate::gateway::Reply;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tigertally::telemetry::record::rotated;

const SCHEMA: &str = include_str!("../../docs/task-record.schema.json");
const PATIENCE: Duration = Duration::from_secs(20);

/// All lines of these files and of those rotated from them.
pub(crate) fn read(files: &[&Path]) -> Vec<Value> {
    let schema = serde_json::from_str(SCHEMA).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let mut lines = Vec::new();
    for file in files {
        let mut parts: Vec<PathBuf> = rotated(file).unwrap_or_default();
        parts.push(file.to_path_buf());
        for part in parts {
            let text = std::fs::read_to_string(part).unwrap_or_default();
            for line in text.split_inclusive('\n') {
                // The last may be on its way.
                let Some(line) = line.strip_suffix('\n') else { continue };
                let line: Value = serde_json::from_str(line).unwrap();
                let wrong: Vec<_> = schema.iter_errors(&line).map(|it| it.to_string()).collect();
                assert!(wrong.is_empty(), "{wrong:?}\n{line}");
                lines.push(line);
            }
        }
    }
    lines
}

/// The lines, as soon as they are `enough`.
pub(crate) async fn until(files: &[&Path], enough: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let end = Instant::now() + PATIENCE;
    loop {
        let lines = read(files);
        if enough(&lines) {
            return lines;
        }
        assert!(Instant::now() < end, "{lines:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn of_kind<'l>(lines: &'l [Value], kind: &str) -> Vec<&'l Value> {
    lines.iter().filter(|line| line["kind"] == kind).collect()
}

/// Whether the task of that generation has ended.
pub(crate) fn has_task(lines: &[Value], generation: u64) -> bool {
    lines.iter().any(|line| line["kind"] == "task" && line["generation"] == generation)
}

fn list(messages: &Value) -> Value {
    let tool = json!({
        "type": "function",
        "function": {
            "name": "get_order_status",
            "parameters": {
                "type": "object",
                "properties": { "order_id": { "type": "string" } },
                "required": ["order_id"],
            },
        },
    });
    json!({ "model": "m", "messages": messages, "tools": [tool] })
}

/// The user asks for an order.
pub(crate) fn question(order: &str) -> Vec<u8> {
    list(&json!([{ "role": "user", "content": format!("Where is {order}?") }])).to_string().into()
}

/// The question, the model's own message, and the result.
pub(crate) fn answered(order: &str, id: &str, content: &str) -> Vec<u8> {
    let list = list(&json!([
        { "role": "user", "content": format!("Where is {order}?") },
        { "role": "assistant", "content": null, "tool_calls": [call(order, id)] },
        { "role": "tool", "tool_call_id": id, "content": content },
    ]));
    list.to_string().into()
}

fn call(order: &str, id: &str) -> Value {
    let arguments = json!({ "order_id": order }).to_string();
    let function = json!({ "name": "get_order_status", "arguments": arguments });
    json!({ "id": id, "type": "function", "function": function })
}

/// The model asks for the order's state.
pub(crate) fn proposal(order: &str, id: &str) -> Reply {
    let message = json!({ "role": "assistant", "content": null, "tool_calls": [call(order, id)] });
    let choice = json!({ "index": 0, "message": message, "finish_reason": "tool_calls" });
    Reply::json(200, &json!({ "id": "x", "choices": [choice] }).to_string())
}

/// The model's answer.
pub(crate) fn text() -> Reply {
    Reply::plain(b"{}")
}
