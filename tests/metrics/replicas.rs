//! Two replicas over one Redis: their sums are the truth. And a store that is gone is seen.

use super::TOOLS;
use super::model::{Model, assistant, call, proposes, request, user};
use super::process::{Process, sum, until};
use super::scrape::Before;
use super::server::{Server, signal};
use serde_json::json;

const ACCEPTED: &str = r#"results_total{verdict="accepted"}"#;
const COMPLETED: &str = r#"tasks_total{outcome="completed"}"#;
const UNKNOWN: &str = r#"write_outcomes_total{outcome="unknown"}"#;

fn headers(name: &str) -> [(&str, &str); 2] {
    [("x-conversation-id", name), ("x-generation", "1")]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sum_over_two_replicas_is_the_truth() {
    let (model, server) = (Model::start().await, Server::start(&[]));
    let one = Process::start(&model.url, &server.url(), TOOLS).await;
    let two = Process::start(&model.url, &server.url(), TOOLS).await;
    let both = [&one, &two];
    // Opened here, answered there.
    for round in 0..6 {
        let name = format!("c{round}");
        let (here, there) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
        let proposed = call("call_1", "get_order", "A");
        model.will(proposes(std::slice::from_ref(&proposed)));
        let got = here.chat(&headers(&name), &request(&user("Where?"), false)).await;
        assert_eq!(got.status, 200, "{got:?}");
        if round >= 4 {
            continue;
        }
        let result = json!({ "role": "tool", "tool_call_id": "call_1", "content": "shipped" });
        let list = [user("Where?"), assistant(&[proposed]), result.to_string()].join(",");
        let got = there.chat(&headers(&name), &request(&list, false)).await;
        assert_eq!(got.status, 200, "{got:?}");
    }
    until(&both, COMPLETED, 4.0).await;
    assert_eq!(sum(&both, ACCEPTED).await, 4.0);
    assert_eq!(sum(&both, "tool_wait_seconds_count{tool=\"get_order\"}").await, 4.0);
    assert_eq!(sum(&both, "calls_total{tool=\"get_order\",verdict=\"pass\"}").await, 6.0);
    assert_eq!(sum(&both, "open_calls").await, 2.0);
    assert_eq!(sum(&both, "exchanges_total{outcome=\"delivered\",route=\"chat\"}").await, 10.0);

    // A write goes out here, the user moves on there, and somebody says here what became of it.
    model.will(proposes(&[call("call_w", "refund_order", "A")]));
    let got = one.chat(&headers("w"), &request(&user("Refund."), false)).await;
    let key = got.operations.strip_prefix("call_w=").unwrap().to_owned();
    let (status, _) = two.control("w/generation", Some(json!({ "generation": 2 }))).await;
    assert_eq!(status, 200);
    assert_eq!((one.metric(UNKNOWN).await, two.metric(UNKNOWN).await), (0.0, 1.0));
    let said = Some(json!({ "outcome": "not_applied" }));
    assert_eq!(one.control(&format!("w/writes/{key}"), said).await.0, 200);
    let settled = r#"write_outcomes_total{outcome="not_applied"}"#;
    assert_eq!((one.metric(settled).await, two.metric(settled).await), (1.0, 0.0));
    assert_eq!(sum(&both, "open_calls").await, 2.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_gone_is_counted() {
    let (model, server) = (Model::start().await, Server::start(&[]));
    let process = Process::start(&model.url, &server.url(), TOOLS).await;
    assert_eq!(process.metric("store_errors_total").await, 0.0);
    let mut before = Before::of(&process).await;
    signal(server.process, "-STOP");
    let got = process.chat(&headers("c"), &request(&user("Where?"), false)).await;
    assert_eq!((got.status, got.code().as_str()), (503, "store_unavailable"));
    let errors = process.metric("store_errors_total").await;
    assert!(errors >= 1.0, "{errors}");
    signal(server.process, "-CONT");
    // Sweeps fail as well meanwhile, so the count of errors is not exact.
    let errors = process.metric("store_errors_total").await;
    before
        .moved(
            "a refused request",
            &[
                ("exchanges_total{outcome=\"refused\",route=\"chat\"}", 1.0),
                ("faults_total{code=\"store_unavailable\",verdict=\"refuse\"}", 1.0),
                ("store_seconds_count{op=\"admit\"}", 1.0),
                ("store_errors_total", errors),
            ],
        )
        .await;
}
