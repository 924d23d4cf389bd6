//! No content reaches the record, whatever becomes of the exchange.

use crate::gateway::Reply;
use crate::lines::{answered, has_task, of_kind, proposal, question, text, until};
use crate::story::World;

/// Marks that stand in arguments, results, prompts and keys, and nowhere else.
const MARK: &str = "s3cr3t";

#[tokio::test]
async fn marked_secrets_never_reach_the_record() {
    let world = World::start().await;
    let order = format!("{MARK}-argument");
    let result = format!("{MARK}-result");
    let headers = |generation: &'static str| {
        [
            ("x-conversation-id", "c"),
            ("x-generation", generation),
            ("authorization", "Bearer s3cr3t-key"),
            ("idempotency-key", "s3cr3t-idempotency"),
        ]
    };
    let ask = async |generation: &'static str, body: &[u8], says: Reply| {
        world.upstream.reply_with(says);
        world.gateway.chat(body, &headers(generation)).await.status
    };
    let bodies: [(&'static str, Vec<u8>, Reply, u16); 8] = [
        ("1", question(&order), proposal(&order, "call_a"), 200),
        ("1", answered("other", "call_a", &result), text(), 422),
        ("1", answered(&order, "call_a", &result), text(), 200),
        ("1", answered(&order, "call_a", "another s3cr3t"), text(), 422),
        ("2", question(&order), proposal(&order, ""), 422),
        ("2", answered(&order, "call_unknown", &result), text(), 422),
        ("2", format!("{{\"messages\":\"{MARK}\"}}").into_bytes(), text(), 400),
        ("2", question(&order), Reply::json(200, "s3cr3t-answer"), 502),
    ];
    for (generation, body, says, status) in bodies {
        assert_eq!(
            ask(generation, &body, says).await,
            status,
            "{}",
            String::from_utf8_lossy(&body)
        );
    }
    assert_eq!(ask("3", &question(&order), text()).await, 200);
    let enough = |lines: &[serde_json::Value]| {
        has_task(lines, 1) && has_task(lines, 3) && of_kind(lines, "exchange").len() >= 6
    };
    until(&[&world.file], enough).await;
    let written = std::fs::read_to_string(&world.file).unwrap();
    assert!(!written.contains(MARK), "{written}");
}
