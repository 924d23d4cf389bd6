//! `tigertally explain` on what a real run recorded.

use crate::lines::{of_kind, question, text, until};
use crate::story::World;
use std::path::Path;
use std::process::Command;

/// Its exit code and what it says.
fn explain(id: &str, file: &Path) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tigertally"));
    let output = command.args(["explain", id, "--record"]).arg(file).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}

#[tokio::test]
async fn the_refused_result_of_a_is_explained() {
    let world = World::start().await;
    world.play().await;
    let (code, text) = explain("late-a", &world.file);
    assert_eq!(code, 0, "{text}");
    for words in [
        "x-request-id: late-a",
        "generation 42 was current",
        "refused with status 422",
        "1. stale_generation at x-generation",
        "Rule: A request belongs to the current generation",
        "What passes: Drop this work",
        "It brought the result of call_a",
        "background work, no answer",
    ] {
        assert!(text.contains(words), "{words}:\n{text}");
    }
    let (code, text) = explain("answer-b", &world.file);
    assert_eq!(code, 0, "{text}");
    for words in [
        "It fed results back to the model in generation 42",
        "Its answer was delivered while its generation was current",
        "Its task ended completed",
    ] {
        assert!(text.contains(words), "{words}:\n{text}");
    }
}

/// What the ledger held when the application told the result of A.
#[tokio::test]
async fn what_the_ledger_held_is_told() {
    let world = World::start().await;
    let lines = world.play().await;
    let control = of_kind(&lines, "exchange").into_iter().find(|one| one["route"] == "control");
    let id = control.unwrap()["request_id"].as_str().unwrap();
    let (code, text) = explain(id, &world.file);
    assert_eq!(code, 0, "{text}");
    for words in [
        "1. stale at tool_call_id (call call_a)",
        "The ledger held call_a of get_order_status: superseded after",
        "in generation 41 (42 was current)",
    ] {
        assert!(text.contains(words), "{words}:\n{text}");
    }
}

#[tokio::test]
async fn an_exchange_without_a_conversation_is_found_and_a_strange_id_is_not() {
    let world = World::start().await;
    world.upstream.reply_with(text());
    let headers = [("x-request-id", "alone")];
    assert_eq!(world.gateway.chat(&question("A"), &headers).await.status, 200);
    until(&[&world.file], |lines| lines.len() == 1).await;
    let (code, text) = explain("alone", &world.file);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("without a conversation") && text.contains("No rule found anything"));
    let (code, text) = explain("nobody", &world.file);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("no exchange nobody"));
    let (code, text) = explain("alone", Path::new("/nowhere/tasks.jsonl"));
    assert_eq!(code, 2, "{text}");
}
