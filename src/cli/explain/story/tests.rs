//! For each code the text that an operator reads, word by word, in `golden.txt`. With
//! `TIGERTALLY_TEST_GOLDEN=write` it is written anew; then look at what changed.

#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use serde_json::json;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/cli/explain/story/golden.txt");

fn held() -> Value {
    json!({
        "tool_call_id": "call_a", "tool": "get_order", "choice": 0, "verdict": "superseded",
        "generation": 41, "current": false, "registered_at": "2025-11-30T18:12:00.250Z",
        "deadline_at": "2025-11-30T18:12:30.250Z", "decided_at": "2025-11-30T18:12:01.000Z",
        "waited_ms": 750, "write_outcome": null,
    })
}

/// The line of an exchange that was refused for `code`.
fn refused(code: Code) -> Value {
    json!({
        "v": 1, "kind": "exchange", "at": "2025-11-30T18:12:02.000Z", "request_id": "req-7",
        "exchange": "00000000000000000000000000000007", "rid": null, "principal": "11",
        "conversation": "22", "generation": 42, "attempt": 0, "route": "chat", "stream": false,
        "outcome": "refused", "status": 422, "took_ms": 3, "notes": [], "would_refuse": [],
        "held": [held()],
        "faults": [{
            "code": code.as_str(), "param": "messages[2]", "tool_call_id": "call_a",
            "message": "What the client was told.", "recovery": "The way out that it was told.",
        }],
    })
}

#[test]
fn each_code_has_its_text() {
    let texts = Code::ALL.into_iter().map(|code| of("req-7", &[refused(code)]).unwrap());
    let text = texts.collect::<Vec<_>>().join("\n");
    if std::env::var("TIGERTALLY_TEST_GOLDEN").is_ok_and(|what| what == "write") {
        std::fs::write(GOLDEN, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(GOLDEN).unwrap());
}

#[test]
fn each_code_has_a_rule_of_its_own() {
    let mut rules: Vec<&str> = Code::ALL.into_iter().map(rules::of).collect();
    rules.sort_unstable();
    rules.dedup();
    assert_eq!(rules.len(), Code::ALL.len());
}

#[test]
fn an_exchange_is_found_by_each_of_its_ids_and_no_other() {
    let mut line = refused(Code::Stale);
    line["rid"] = "rid-7".into();
    for (id, found) in [
        ("req-7", true),
        ("00000000000000000000000000000007", true),
        ("rid-7", true),
        ("22", false),
        ("call_a", false),
    ] {
        assert_eq!(of(id, std::slice::from_ref(&line)).is_some(), found, "{id}");
    }
}

#[test]
fn what_clients_wrote_cannot_steer_a_terminal() {
    let mut line = refused(Code::Stale);
    line["faults"][0]["tool_call_id"] = "\u{1b}[2Jcall".into();
    line["held"][0]["tool_call_id"] = "\u{1b}[2Jcall".into();
    line["faults"][0]["message"] = "\u{1b}[31m".into();
    let text = of("req-7", &[line]).unwrap();
    assert!(text.contains("\\u{1b}[2Jcall") && !text.contains('\u{1b}'), "{text}");
}
