//! For each thing that can happen: which series move, by how much, and that no other does.

use super::TOOLS;
use super::guard;
use super::model::{Says, assistant, call, proposes, request, streams, user};
use super::process::{Got, Process};
use super::rig;
use super::scrape::Before;
use bytes::Bytes;
use serde_json::{Value, json};

const DELIVERED: &str = r#"exchanges_total{outcome="delivered",route="chat"}"#;
const REFUSED: &str = r#"exchanges_total{outcome="refused",route="chat"}"#;
const WITHHELD: &str = r#"exchanges_total{outcome="withheld",route="chat"}"#;
const UPSTREAM_ERROR: &str = r#"exchanges_total{outcome="upstream_error",route="chat"}"#;
const CLIENT_GONE: &str = r#"exchanges_total{outcome="client_gone",route="chat"}"#;
const CONTROL: &str = r#"exchanges_total{outcome="delivered",route="control"}"#;
const FIRST: &str = r#"model_call_seconds_count{call="first"}"#;
const LATER: &str = r#"model_call_seconds_count{call="later"}"#;
const OVERHEAD: &str = "overhead_seconds_count";
const OPEN: &str = "open_calls";
const ACCEPTED: &str = r#"results_total{verdict="accepted"}"#;
const ABORTED: &str = r#"aborts_total{outcome="accepted"}"#;
const UNKNOWN: &str = r#"write_outcomes_total{outcome="unknown"}"#;

fn fault(code: &str) -> String {
    format!("faults_total{{code=\"{code}\",verdict=\"refuse\"}}")
}

fn calls(tool: &str, verdict: &str) -> String {
    format!("calls_total{{tool=\"{tool}\",verdict=\"{verdict}\"}}")
}

fn store(op: &str) -> String {
    format!("store_seconds_count{{op=\"{op}\"}}")
}

fn task(outcome: &str) -> [(String, f64); 2] {
    [
        (format!("tasks_total{{outcome=\"{outcome}\"}}"), 1.0),
        (format!("task_seconds_count{{outcome=\"{outcome}\"}}"), 1.0),
    ]
}

/// One after the other on one process.
struct Scene<'p> {
    process: &'p Process,
    before: Before<'p>,
}

impl<'p> Scene<'p> {
    async fn new(process: &'p Process) -> Self {
        Scene { process, before: Before::of(process).await }
    }

    async fn chat(&self, headers: &[(&str, &str)], body: &str) -> Got {
        self.process.chat(headers, body).await
    }

    /// In a conversation, at that generation.
    async fn tracked(&self, name: &str, generation: &str, body: &str) -> Got {
        self.chat(&[("x-conversation-id", name), ("x-generation", generation)], body).await
    }

    async fn moved(&mut self, what: &str, expected: &[(String, f64)]) {
        let expected: Vec<(&str, f64)> =
            expected.iter().map(|(series, by)| (series.as_str(), *by)).collect();
        self.before.moved(what, &expected).await;
    }

    async fn control(&self, method: &str, path: &str, body: Value) -> u16 {
        let url = format!("http://{}/guard/v1/conversations/{path}", self.process.listen);
        let request = self.process.client.request(method.parse().unwrap(), url);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        request.body(body).send().await.unwrap().status().as_u16()
    }
}

fn moves(parts: &[&[(&str, f64)]]) -> Vec<(String, f64)> {
    parts.concat().into_iter().map(|(series, by)| (series.to_owned(), by)).collect()
}

/// A tracked exchange that went up and was settled.
const TRACKED: &[(&str, f64)] = &[
    (OVERHEAD, 1.0),
    (r#"store_seconds_count{op="admit"}"#, 1.0),
    (r#"store_seconds_count{op="settle"}"#, 1.0),
    (r#"store_seconds_count{op="close"}"#, 1.0),
];

/// The same, delivered, as the first model call of a new conversation that opens a call.
fn opening(tool: &str) -> Vec<(String, f64)> {
    let mut moved =
        moves(&[TRACKED, &[(DELIVERED, 1.0), (FIRST, 1.0), ("conversations", 1.0), (OPEN, 1.0)]]);
    moved.push((calls(tool, "pass"), 1.0));
    moved
}

fn order(id: &str) -> Value {
    call(id, "get_order", "A")
}

fn continuation(proposed: &Value, content: &str) -> String {
    let result = json!({ "role": "tool", "tool_call_id": proposed["id"], "content": content });
    let list = [user("Where?"), assistant(std::slice::from_ref(proposed)), result.to_string()];
    request(&list.join(","), false)
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_conversation() {
    let (model, process) = guard(TOOLS).await;
    let mut scene = Scene::new(&process).await;

    assert_eq!(scene.chat(&[], &request(&user("Hi."), false)).await.status, 200);
    let answered = moves(&[&[(DELIVERED, 1.0), (FIRST, 1.0), (OVERHEAD, 1.0)]]);
    scene.moved("a whole answer", &answered).await;

    model.will(streams(order("call_1")));
    assert_eq!(scene.chat(&[], &request(&user("Where?"), true)).await.status, 200);
    let mut moved = answered.clone();
    moved.push(("time_to_first_token_seconds_count".into(), 1.0));
    moved.push((calls("get_order", "pass"), 1.0));
    scene.moved("a stream with a call", &moved).await;

    let body = continuation(&order("call_1"), "shipped");
    assert_eq!(scene.chat(&[], &body).await.status, 200);
    let moved = moves(&[&[(DELIVERED, 1.0), (LATER, 1.0), (OVERHEAD, 1.0)]]);
    scene.moved("a list that ends in results", &moved).await;

    let orphan = json!({ "role": "tool", "tool_call_id": "call_9", "content": "x" }).to_string();
    assert_eq!(scene.chat(&[], &request(&orphan, false)).await.status, 400);
    let refused = |code: &str| vec![(REFUSED.to_owned(), 1.0), (fault(code), 1.0)];
    scene.moved("a result without a call", &refused("orphan_result")).await;

    assert_eq!(scene.chat(&[], "{").await.status, 400);
    scene.moved("no JSON", &refused("body_invalid")).await;

    model.will(proposes(&[call("call_1", "drop_tables", "A"), order("call_2")]));
    assert_eq!(scene.chat(&[], &request(&user("Hi."), false)).await.status, 422);
    let mut moved = refused("unknown_tool");
    moved.push((OVERHEAD.into(), 1.0));
    moved.push((calls("other", "refuse"), 1.0));
    moved.push((calls("get_order", "refuse"), 1.0));
    scene.moved("an invented tool", &moved).await;

    let mut bad = order("call_1");
    bad["function"]["arguments"] = "{\"order_id\"".into();
    model.will(streams(bad));
    assert_eq!(scene.chat(&[], &request(&user("Hi."), true)).await.status, 200);
    let mut moved = refused("arguments_malformed");
    moved.push((OVERHEAD.into(), 1.0));
    moved.push(("time_to_first_token_seconds_count".into(), 1.0));
    moved.push((calls("get_order", "refuse"), 1.0));
    scene.moved("a stream whose call is refused after text went out", &moved).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn upstreams_that_fail_and_clients_that_leave() {
    let (model, process) = guard(TOOLS).await;
    let mut scene = Scene::new(&process).await;

    model.will(Says::Whole(r#"{"error":{"message":"no"}}"#.to_owned()));
    scene.chat(&[], &request(&user("Hi."), false)).await;
    let failed = moves(&[&[(UPSTREAM_ERROR, 1.0), (OVERHEAD, 1.0)]]);
    scene.moved("an error object", &failed).await;

    model.will(Says::Events("data: {\"error\":{\"message\":\"no\"}}\n\n".to_owned()));
    scene.chat(&[], &request(&user("Hi."), true)).await;
    scene.moved("an error event is no first token", &failed).await;

    model.will(Says::Whole("<html>".to_owned()));
    assert_eq!(scene.chat(&[], &request(&user("Hi."), false)).await.status, 502);
    let mut moved = failed.clone();
    moved.push((fault("upstream_invalid"), 1.0));
    scene.moved("no completion", &moved).await;

    model.will(Says::Nothing);
    model.take();
    let asking = tokio::spawn(process.ask(&[], &request(&user("Hi."), false)).send());
    model.asked(1).await;
    scene.moved("an exchange begins", &moves(&[&[("in_flight_exchanges", 1.0)]])).await;
    asking.abort();
    let gone = [(CLIENT_GONE, 1.0), (OVERHEAD, 1.0), (ABORTED, 1.0), ("in_flight_exchanges", -1.0)];
    scene.moved("the client leaves", &moves(&[&gone])).await;

    let nobody = Process::start("http://127.0.0.1:1", "memory:", TOOLS).await;
    let mut scene = Scene::new(&nobody).await;
    assert_eq!(scene.chat(&[], &request(&user("Hi."), false)).await.status, 502);
    let mut moved = failed;
    moved.push((fault("upstream_unreachable"), 1.0));
    // An abort is not sent after a request that never went out, or fails as the request did.
    let aborts = nobody.metric(r#"aborts_total{outcome="failed"}"#).await;
    if aborts > 0.0 {
        moved.push((r#"aborts_total{outcome="failed"}"#.into(), aborts));
    }
    scene.moved("nobody is there", &moved).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_routes() {
    let (_model, process) = guard(TOOLS).await;
    let mut scene = Scene::new(&process).await;
    let get = async |path: &str| {
        process
            .client
            .get(format!("http://{}{path}", process.listen))
            .send()
            .await
            .unwrap()
            .status()
    };
    assert_eq!(get("/v1/models").await, 200);
    let models = [(r#"exchanges_total{outcome="delivered",route="models"}"#, 1.0), (OVERHEAD, 1.0)];
    scene.moved("the models", &moves(&[&models])).await;
    assert_eq!(get("/generate").await, 403);
    let closed = (r#"exchanges_total{outcome="refused",route="closed"}"#.to_owned(), 1.0);
    scene.moved("a closed path", &[closed, (fault("route_closed"), 1.0)]).await;
    assert_eq!(scene.control("GET", "c", Value::Null).await, 200);
    scene.moved("the record", &[(CONTROL.to_owned(), 1.0), (store("read"), 1.0)]).await;
    assert_eq!(get("/health").await, 200);
    scene.moved("a probe is no exchange", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_ends_and_one_that_is_left() {
    let (model, process) = guard(TOOLS).await;
    let mut scene = Scene::new(&process).await;

    model.will(proposes(&[order("call_1")]));
    scene.tracked("a", "1", &request(&user("Where?"), false)).await;
    scene.moved("a call goes out", &opening("get_order")).await;

    let body = continuation(&order("call_1"), "shipped");
    assert_eq!(scene.tracked("a", "1", &body).await.status, 200);
    let wait = r#"tool_wait_seconds_count{tool="get_order"}"#;
    let mut answered = moves(&[
        TRACKED,
        &[(DELIVERED, 1.0), (LATER, 1.0), (OPEN, -1.0), (ACCEPTED, 1.0), (wait, 1.0)],
    ]);
    answered.extend(task("completed"));
    scene.moved("its result is accepted and answered", &answered).await;

    assert_eq!(scene.tracked("a", "1", &body).await.status, 422);
    let again = [
        (REFUSED.to_owned(), 1.0),
        (fault("duplicate"), 1.0),
        (store("admit"), 1.0),
        (
            r#"results_total{verdict="duplicate"}"#.to_owned(),
            process.metric(r#"results_total{verdict="duplicate"}"#).await,
        ),
    ];
    let again: Vec<_> = again.into_iter().filter(|(_, by)| *by != 0.0).collect();
    scene.moved("the same again", &again).await;

    model.will(proposes(&[order("call_2")]));
    scene.tracked("b", "1", &request(&user("Where?"), false)).await;
    scene.moved("another call goes out", &opening("get_order")).await;
    assert_eq!(scene.control("POST", "b/generation", json!({ "generation": 2 })).await, 200);
    let mut left = moves(&[&[(CONTROL, 1.0), (OPEN, -1.0)]]);
    left.push((store("advance"), 1.0));
    left.extend(task("superseded"));
    scene.moved("the user moves on", &left).await;

    assert_eq!(
        scene.tracked("b", "2", &continuation(&order("call_2"), "shipped")).await.status,
        422
    );
    let stale = [
        (REFUSED.to_owned(), 1.0),
        (fault("stale"), 1.0),
        (r#"results_total{verdict="stale"}"#.to_owned(), 1.0),
        (store("admit"), 1.0),
    ];
    scene.moved("its result comes too late", &stale).await;

    assert_eq!(scene.control("DELETE", "b", Value::Null).await, 200);
    let gone =
        [(CONTROL.to_owned(), 1.0), (store("remove"), 1.0), ("conversations".to_owned(), -1.0)];
    scene.moved("it is forgotten", &gone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_nobody_wants_any_more() {
    let (model, process) = guard(TOOLS).await;
    let mut scene = Scene::new(&process).await;
    model.will(Says::Nothing);
    model.take();
    let headers = [("x-conversation-id", "c"), ("x-generation", "1")];
    let asking = tokio::spawn(process.ask(&headers, &request(&user("Where?"), false)).send());
    model.asked(1).await;
    assert_eq!(scene.control("POST", "c/generation", json!({ "generation": 2 })).await, 200);
    assert_eq!(asking.await.unwrap().unwrap().status(), 422);
    let mut moved = moves(&[&[
        (WITHHELD, 1.0),
        (CONTROL, 1.0),
        (OVERHEAD, 1.0),
        (ABORTED, 1.0),
        ("conversations", 1.0),
    ]]);
    moved.push((fault("stale_answer"), 1.0));
    moved.extend(["admit", "advance", "close"].map(|op| (store(op), 1.0)));
    moved.extend(task("superseded"));
    scene.moved("withheld", &moved).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notice_is_no_acceptance() {
    let (model, process) = guard(TOOLS).await;
    let mut scene = Scene::new(&process).await;
    model.will(proposes(&[order("call_1")]));
    scene.tracked("a", "1", &request(&user("Where?"), false)).await;
    scene.moved("a call goes out", &opening("get_order")).await;
    let notice = r#"{"ok":false,"error":{"code":"timeout"}}"#;
    assert_eq!(scene.tracked("a", "1", &continuation(&order("call_1"), notice)).await.status, 200);
    let closed = r#"results_total{verdict="closed"}"#;
    let mut moved =
        moves(&[TRACKED, &[(DELIVERED, 1.0), (LATER, 1.0), (OPEN, -1.0), (closed, 1.0)]]);
    moved.extend(task("completed"));
    scene.moved("the client closes it", &moved).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_times_out_and_is_reported() {
    let config =
        "[tools.refund_order]\neffect = \"write\"\ndeadline = \"500ms\"\n[tools.get_order]\n";
    let (model, process) = guard(config).await;
    let mut scene = Scene::new(&process).await;
    let refund = call("call_w", "refund_order", "A");
    model.will(proposes(std::slice::from_ref(&refund)));
    scene.tracked("w", "1", &request(&user("Where?"), false)).await;
    let mut moved = opening("refund_order");
    moved.push((store("read"), 1.0));
    moved.push((calls("refund_order", "timed_out"), 1.0));
    moved.push((UNKNOWN.to_owned(), 1.0));
    moved.retain(|(series, _)| series != OPEN);
    scene.moved("it goes out, and times out", &moved).await;

    assert_eq!(scene.tracked("w", "1", &continuation(&refund, "refunded")).await.status, 422);
    let late = [
        (REFUSED.to_owned(), 1.0),
        (fault("late"), 1.0),
        (r#"results_total{verdict="late"}"#.to_owned(), 1.0),
        (r#"write_outcomes_total{outcome="reported"}"#.to_owned(), 1.0),
        (store("admit"), 1.0),
    ];
    scene.moved("its result comes after all", &late).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_is_left_and_settled_and_one_that_is_forgotten() {
    let (model, process) = guard(TOOLS).await;
    let mut scene = Scene::new(&process).await;
    let refund = call("call_w", "refund_order", "A");
    for (name, applied) in [("w", true), ("x", false)] {
        model.will(proposes(std::slice::from_ref(&refund)));
        let got = scene.tracked(name, "1", &request(&user("Refund."), false)).await;
        let key = got.operations.strip_prefix("call_w=").unwrap().to_owned();
        let mut moved = opening("refund_order");
        moved.push((store("read"), 1.0));
        scene.moved("it goes out", &moved).await;
        let path = format!("{name}/generation");
        assert_eq!(scene.control("POST", &path, json!({ "generation": 2 })).await, 200);
        let mut left = moves(&[&[(CONTROL, 1.0), (OPEN, -1.0), (UNKNOWN, 1.0)]]);
        left.push((store("advance"), 1.0));
        left.extend(task("superseded"));
        scene.moved("the user moves on", &left).await;
        if applied {
            let path = format!("{name}/writes/{key}");
            assert_eq!(scene.control("POST", &path, json!({ "outcome": "applied" })).await, 200);
            let known = r#"write_outcomes_total{outcome="applied"}"#;
            let reads = process.metric(&store("read")).await - 1.0;
            let mut moved = moves(&[&[(CONTROL, 1.0), (known, 1.0)]]);
            moved.push((store("resolve"), 1.0));
            moved.push((store("read"), reads));
            scene.moved("somebody knows", &moved).await;
        } else {
            assert_eq!(scene.control("DELETE", name, Value::Null).await, 200);
            let known = r#"write_outcomes_total{outcome="forgotten"}"#;
            let mut moved = moves(&[&[(CONTROL, 1.0), (known, 1.0), ("conversations", -1.0)]]);
            moved.push((store("remove"), 1.0));
            scene.moved("nobody will know", &moved).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_runs_out_of_its_budget() {
    let (model, process) = guard(&format!("{TOOLS}\n[budget]\nmodel_calls = 2\n")).await;
    let mut scene = Scene::new(&process).await;
    model.will(proposes(&[order("call_1")]));
    scene.tracked("a", "1", &request(&user("Where?"), false)).await;
    scene.moved("a call goes out", &opening("get_order")).await;
    model.will(proposes(&[order("call_2")]));
    assert_eq!(scene.tracked("a", "1", &continuation(&order("call_1"), "no")).await.status, 422);
    let wait = r#"tool_wait_seconds_count{tool="get_order"}"#;
    let ended = r#"budget_ends_total{limit="model_calls"}"#;
    let mut moved = moves(&[
        TRACKED,
        &[(REFUSED, 1.0), (OPEN, -1.0), (ACCEPTED, 1.0), (wait, 1.0), (ended, 1.0)],
    ]);
    moved.push((fault("budget_exhausted"), 1.0));
    moved.push((calls("get_order", "refuse"), 1.0));
    moved.push((ABORTED.to_owned(), process.metric(ABORTED).await));
    moved.retain(|(_, by)| *by != 0.0);
    moved.extend(task("incomplete"));
    scene.moved("the model wants more", &moved).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_enforcing_would_refuse() {
    let (model, process) = guard(&format!("{TOOLS}\n[guard]\nprofile = \"observe\"\n")).await;
    let mut scene = Scene::new(&process).await;
    model.will(proposes(&[call("call_1", "drop_tables", "A")]));
    assert_eq!(scene.chat(&[], &request(&user("Hi."), false)).await.status, 200);
    let would = r#"faults_total{code="unknown_tool",verdict="would_refuse"}"#;
    let mut moved = moves(&[&[(DELIVERED, 1.0), (FIRST, 1.0), (OVERHEAD, 1.0), (would, 1.0)]]);
    moved.push((calls("other", "forced"), 1.0));
    scene.moved("watched only", &moved).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_is_seen_until_it_goes() {
    let upstream = rig::Upstream::start().await;
    let url = format!("http://{}", upstream.addr);
    let process = Process::start(&url, "memory:", TOOLS).await;
    let mut scene = Scene::new(&process).await;
    let feed = upstream.will_stream();
    let asking = tokio::spawn(process.ask(&[], &rig::ask(true)).send());
    let tell = |event: &str| feed.send(Bytes::copy_from_slice(event.as_bytes())).unwrap();
    tell(&rig::event("{\"content\":\"Let me see.\"}", None));
    let fragment = rig::fragment(Some("call_1"), Some("get_order"), "{\"order_id\":\"A\"}");
    tell(&fragment);
    let held = fragment.len() as f64;
    scene
        .moved("it is held", &moves(&[&[("in_flight_exchanges", 1.0), ("held_bytes", held)]]))
        .await;
    tell(&rig::event("{}", Some("tool_calls")));
    tell("data: [DONE]\n\n");
    drop(feed);
    assert!(asking.await.unwrap().unwrap().text().await.unwrap().contains("call_1"));
    let token = "time_to_first_token_seconds_count";
    let mut moved = moves(&[&[
        ("in_flight_exchanges", -1.0),
        ("held_bytes", -held),
        (DELIVERED, 1.0),
        (FIRST, 1.0),
        (OVERHEAD, 1.0),
        (token, 1.0),
    ]]);
    moved.push((calls("get_order", "pass"), 1.0));
    scene.moved("it goes", &moved).await;
}
