//! A request's body: read, judged, digested, and its tools compiled. What is read is what another parser reads.

use super::bounds;
use serde_json::Value;
use std::sync::Arc;
use tigertally::guard::offer::{Offer, ToolRules};
use tigertally::guard::pairing::{self, Pairing};
use tigertally::guard::schema::SchemaCache;
use tigertally::ledger::digest::DigestKey;
use tigertally::wire::canonical;
use tigertally::wire::json::Field;
use tigertally::wire::request::{ChatRequest, Message, Role};

/// Deepest nesting. Less than what `serde_json` goes down to.
const DEPTH: usize = 64;

/// Takes bytes as a body.
pub fn run(data: &[u8]) {
    bounds::hold(data.len(), || read(data));
    let Ok(request) = ChatRequest::parse(data, DEPTH) else { return };
    check_pairing(&request, &pairing::judge(&request));
    for message in &request.messages {
        let (mut members, mut raw) = (Vec::<u8>::new(), Vec::<u8>::new());
        canonical::feed_object(request.members_of(message), &mut |bytes| members.extend(bytes));
        assert!(canonical::feed_valid(message.raw, &mut |bytes| raw.extend(bytes)));
        assert_eq!(members, raw, "two forms of one message");
    }
    let raw: Result<&serde_json::value::RawValue, _> = serde_json::from_slice(data);
    assert!(raw.is_ok(), "what is no JSON to others was read");
    // Not where half of a surrogate pair stands, or a number beyond a double.
    if let Ok(value) = serde_json::from_slice::<Value>(data) {
        compare(&request, &value);
    }
}

/// All that a body goes through before it is forwarded.
pub fn read(data: &[u8]) {
    let Ok(request) = ChatRequest::parse(data, DEPTH) else { return };
    drop(pairing::judge(&request));
    let key = DigestKey::new([7; 32]);
    let mut list = key.begin("list");
    for message in &request.messages {
        list.object(request.members_of(message));
        for call in &message.tool_calls {
            if let Field::Text(text) = call.arguments {
                let _ = key.arguments(&text.decode());
            }
        }
    }
    let _ = list.digest();
    let cache = SchemaCache::new(4, 1 << 20);
    let offer = Offer::of(&request, Arc::new(ToolRules::default()), &cache);
    drop(offer);
}

fn check_pairing(request: &ChatRequest<'_>, pairing: &Pairing) {
    let messages = &request.messages;
    for run in &pairing.runs {
        let calls = &messages[run.assistant].tool_calls;
        for (call, result) in &run.pairs {
            let (id, answers) = (calls[*call].id, messages[*result].tool_call_id);
            let (Field::Text(id), Field::Text(answers)) = (id, answers) else {
                panic!("a pair without ids")
            };
            assert_eq!(id.decode(), answers.decode());
            assert!(!id.is_empty() && *result > run.assistant);
            assert_eq!(messages[*result].role, Role::Tool);
        }
        if pairing.faults.is_empty() {
            assert_eq!(run.pairs.len(), calls.len(), "a call without a result, and no fault");
        }
    }
    let live = pairing.runs.iter().filter(|run| run.live).count();
    assert!(live <= 1, "two runs at the end");
    for fault in &pairing.faults {
        assert!(fault.message.len() < 16 << 10, "a fault of {} bytes", fault.message.len());
    }
}

/// What the view says, against a tree that was read by another parser.
fn compare(request: &ChatRequest<'_>, value: &Value) {
    let messages = value["messages"].as_array().expect("a list");
    assert_eq!(messages.len(), request.messages.len());
    for (message, value) in request.messages.iter().zip(messages) {
        compare_message(message, value);
    }
    assert_eq!(text(request.model), value["model"].as_str().map(str::to_owned));
    if let Some(stream) = value["stream"].as_bool() {
        assert_eq!(request.stream, stream);
    }
    if let Some(n) = value["n"].as_u64() {
        assert_eq!(request.n, n);
    }
}

fn compare_message(message: &Message<'_>, value: &Value) {
    let role = value["role"].as_str().unwrap_or_default().to_ascii_lowercase();
    assert_eq!(message.role == Role::Tool, role == "tool");
    assert_eq!(message.role == Role::Assistant, role == "assistant");
    assert_eq!(text(message.tool_call_id), value["tool_call_id"].as_str().map(str::to_owned));
    assert_eq!(text(message.name), value["name"].as_str().map(str::to_owned));
    let calls = value["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
    assert_eq!(message.tool_calls.len(), calls.len());
    for (call, value) in message.tool_calls.iter().zip(calls) {
        let (body, arguments) =
            if call.custom { ("custom", "input") } else { ("function", "arguments") };
        assert_eq!(text(call.id), value["id"].as_str().map(str::to_owned));
        assert_eq!(text(call.name), value[body]["name"].as_str().map(str::to_owned));
        assert_eq!(text(call.arguments), value[body][arguments].as_str().map(str::to_owned));
    }
}

/// The text of a field, decoded.
pub(crate) fn text(field: Field<'_>) -> Option<String> {
    field.text().map(|text| text.decode().into_owned())
}
