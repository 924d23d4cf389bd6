//! Deadlines fire once and by themselves: nobody asks for the conversation, and the process that registered
//! them may be dead.

use super::model::{Model, call, proposes, request, user};
use super::process::{Process, sum, until};
use super::server::Server;
use std::time::Duration;

const TIMED_OUT: &str = r#"calls_total{tool="refund_order",verdict="timed_out"}"#;
const QUICK: &str = "[tools.refund_order]\neffect = \"write\"\ndeadline = \"2s\"\n";

/// A model's call goes out in a conversation of that name.
async fn open_call(model: &Model, process: &Process, name: &str, tool: &str) {
    model.will(proposes(&[call("call_1", tool, "A")]));
    let headers = [("x-conversation-id", name), ("x-generation", "1")];
    let got = process.chat(&headers, &request(&user("Refund A."), false)).await;
    assert_eq!(got.status, 200, "{got:?}");
}

/// Longer than a replica takes to look at what is due, its own and others'.
async fn everybody_has_looked() {
    tokio::time::sleep(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_replica_of_those_that_know_the_call_counts_it() {
    let (model, server) = (Model::start().await, Server::start(&[]));
    let one = Process::start(&model.url, &server.url(), QUICK).await;
    let two = Process::start(&model.url, &server.url(), QUICK).await;
    for round in 0..8 {
        let name = format!("c{round}");
        let (here, there) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
        open_call(&model, here, &name, "refund_order").await;
        let start = format!("{name}/calls/call_1/start");
        let (status, _) = there.control(&start, Some(serde_json::json!({"generation": 1}))).await;
        assert_eq!(status, 200, "both have it to look at");
    }
    until(&[&one, &two], TIMED_OUT, 8.0).await;
    everybody_has_looked().await;
    assert_eq!(sum(&[&one, &two], TIMED_OUT).await, 8.0, "each once");
    assert_eq!(sum(&[&one, &two], "open_calls").await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_replicas_deadlines_fire_in_one_that_lives() {
    let (model, server) = (Model::start().await, Server::start(&[]));
    let mut dead = Process::start(&model.url, &server.url(), QUICK).await;
    let one = Process::start(&model.url, &server.url(), QUICK).await;
    let two = Process::start(&model.url, &server.url(), QUICK).await;
    for round in 0..8 {
        open_call(&model, &dead, &format!("c{round}"), "refund_order").await;
    }
    dead.kill();
    until(&[&one, &two], TIMED_OUT, 8.0).await;
    everybody_has_looked().await;
    assert_eq!(sum(&[&one, &two], TIMED_OUT).await, 8.0, "each once");
    let (_, record) = one.control("c0", None).await;
    assert_eq!(record["calls"][0]["state"], "timed_out");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_replicas_task_runs_out_of_time_in_one_that_lives() {
    const INCOMPLETE: &str = r#"tasks_total{outcome="incomplete"}"#;
    let config = "[budget]\ndeadline = \"2s\"\n[tools.get_order]\n";
    let (model, server) = (Model::start().await, Server::start(&[]));
    let mut dead = Process::start(&model.url, &server.url(), config).await;
    let left = Process::start(&model.url, &server.url(), config).await;
    open_call(&model, &dead, "c", "get_order").await;
    dead.kill();
    until(&[&left], INCOMPLETE, 1.0).await;
    let (_, record) = left.control("c", None).await;
    let task = &record["generations"][0];
    assert_eq!((&task["outcome"], &task["reason"]), (&"incomplete".into(), &"deadline".into()));
    assert_eq!(record["calls"][0]["state"], "timed_out");
    let headers = [("x-conversation-id", "c"), ("x-generation", "1")];
    let got = left.chat(&headers, &request(&user("And now?"), false)).await;
    assert_eq!((got.status, got.code().as_str()), (422, "budget_exhausted"));
    assert_eq!(left.metric(INCOMPLETE).await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_passed_while_nobody_ran_fires_at_the_start_and_the_rest_in_its_time() {
    const OTHER: &str = r#"calls_total{tool="get_order",verdict="timed_out"}"#;
    let config = format!("{QUICK}[tools.get_order]\ndeadline = \"12s\"\n");
    let (model, server) = (Model::start().await, Server::start(&[]));
    for store in ["embedded".to_owned(), server.url()] {
        let mut process = Process::start(&model.url, &store, &config).await;
        open_call(&model, &process, "c1", "refund_order").await;
        open_call(&model, &process, "c2", "get_order").await;
        process.kill();
        tokio::time::sleep(Duration::from_secs(3)).await;
        process.restart().await;
        until(&[&process], TIMED_OUT, 1.0).await;
        let pending = process.metric(OTHER).await;
        until(&[&process], OTHER, 1.0).await;
        assert_eq!(pending, 0.0, "{store}: not before its time");
        assert_eq!(process.metric(TIMED_OUT).await, 1.0, "{store}");
    }
}
