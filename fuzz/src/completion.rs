//! A whole completion: read and judged, and read as another parser reads it.

use super::request::text;
use super::stream::OFFER;
use super::{bounds, readers};
use serde_json::Value;
use tigertally::guard::proposal::{self, Proposal};
use tigertally::wire::completion::Completion;

const DEPTH: usize = 64;

/// Takes bytes as a completion.
pub fn run(data: &[u8]) {
    bounds::hold(data.len(), || read(data));
    let Ok(completion) = Completion::parse(data, DEPTH) else { return };
    let body = std::str::from_utf8(data).expect("it was read");
    assert!(serde_json::from_str::<&serde_json::value::RawValue>(body).is_ok());
    let proposal = Proposal::of(&completion);
    if !proposal.has_calls() {
        assert!(!readers::holds_a_call(body), "a call that nobody judged");
    }
    let Ok(value) = serde_json::from_str::<Value>(body) else { return };
    let choices = value["choices"].as_array().map_or(&[][..], Vec::as_slice);
    assert_eq!(completion.choices.len(), choices.len());
    for (choice, value) in completion.choices.iter().zip(choices) {
        let of = |place: &str| value[place]["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
        let calls = if of("message").is_empty() { of("delta") } else { of("message") };
        assert_eq!(choice.tool_calls.len(), calls.len());
        for (call, value) in choice.tool_calls.iter().zip(calls) {
            let body = if call.custom { "custom" } else { "function" };
            assert_eq!(text(call.id), value["id"].as_str().map(str::to_owned));
            assert_eq!(text(call.name), value[body]["name"].as_str().map(str::to_owned));
        }
    }
}

/// Reads and judges a completion.
pub fn read(data: &[u8]) {
    let Ok(completion) = Completion::parse(data, DEPTH) else { return };
    drop(proposal::judge(&Proposal::of(&completion), &OFFER, true));
}
