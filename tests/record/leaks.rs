//! No content reaches the record, a log, a metric, a page or an error of ours, whatever becomes of the exchange.

use crate::gateway::Reply;
use crate::lines::{answered, has_task, of_kind, proposal, question, text, until};
use crate::story::World;
use serde_json::json;
use std::time::{Duration, Instant};

/// The console's list, once it has the conversation.
async fn listed(world: &World) -> String {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let list = world.gateway.admin("/admin/v1/conversations").await;
        if list.contains("\"handle\"") {
            return list;
        }
        assert!(Instant::now() < end, "{list}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Marks that stand in arguments, results, prompts and keys, and nowhere else.
const MARK: &str = "s3cr3t";

#[tokio::test]
async fn marked_secrets_reach_nothing_that_is_written_or_shown() {
    let world = World::with(&[
        ("RUST_LOG", "trace"),
        ("TIGERTALLY_UPSTREAM__API_KEY", "s3cr3t-upstream-key"),
        ("TIGERTALLY_TOOLS__REFUND_ORDER__EFFECT", "write"),
    ])
    .await;
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
    let bodies: [(&'static str, Vec<u8>, Reply, u16); 10] = [
        ("1", question(&order), proposal(&order, "call_a"), 200),
        ("1", answered("other", "call_a", &result), text(), 422),
        ("1", answered(&order, "call_a", &result), text(), 200),
        ("1", answered(&order, "call_a", "another s3cr3t"), text(), 422),
        ("2", question(&order), proposal(&order, ""), 422),
        ("2", answered(&order, "call_unknown", &result), text(), 422),
        ("2", format!("{{\"messages\":\"{MARK}\"}}").into_bytes(), text(), 400),
        ("2", format!("{{\"messages\":[{{\"{MARK}").into_bytes(), text(), 400),
        ("2", question(&order), Reply::json(200, "s3cr3t-answer"), 502),
        ("2", question(&order), Reply::json(500, r#"{"error":{"message":"it broke"}}"#), 500),
    ];
    for (generation, body, says, status) in bodies {
        world.upstream.reply_with(says);
        let answer = world.gateway.chat(&body, &headers(generation)).await;
        let told = String::from_utf8_lossy(&answer.body);
        assert_eq!(answer.status, status, "{}", String::from_utf8_lossy(&body));
        assert!(status == 200 || !told.contains(MARK), "{told}");
    }
    for body in [
        json!({"generation": 1, "tool_call_id": "call_a", "content": "another s3cr3t"}),
        json!({"generation": "s3cr3t", "tool_call_id": "call_a", "content": "s3cr3t"}),
        json!({"generation": 1, "tool_call_id": "call_a", "content": {"s3cr3t": 1}}),
    ] {
        let (status, told) = world.gateway.control("POST", "c/results", &body).await;
        assert!(status >= 400 && !told.to_string().contains(MARK), "{status} {told}");
    }
    world.upstream.reply_with(text());
    assert_eq!(world.gateway.chat(&question(&order), &headers("3")).await.status, 200);
    let enough = |lines: &[serde_json::Value]| {
        has_task(lines, 1) && has_task(lines, 3) && of_kind(lines, "exchange").len() >= 6
    };
    until(&[&world.file], enough).await;
    let record = std::fs::read_to_string(&world.file).unwrap();
    let log = world.gateway.log();
    assert!(log.contains("TRACE"), "the log is as chatty as it gets");
    let (_, told) = world.gateway.control("GET", "c", &serde_json::Value::Null).await;
    let conversations = listed(&world).await;
    for (place, written) in [
        ("record", record),
        ("log", log),
        ("metrics", world.gateway.admin("/metrics").await),
        ("control API", told.to_string()),
        ("console", conversations),
        ("console", world.gateway.admin("/admin/v1/overview").await),
    ] {
        let line = written.lines().find(|line| line.contains(MARK));
        assert!(line.is_none(), "{place}: {line:?}");
    }
}
