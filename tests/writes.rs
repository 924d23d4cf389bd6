//! Before a tool runs, and writes whose outcome nobody knows: the application asks, and the same refund is
//! not proposed a second time before somebody says what became of the first.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[expect(dead_code, reason = "what other tests need")]
mod rig;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use rig::{Answer, Upstream, chat, client, error, event, next, send, text};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tigertally::guard::fault::Code;
use tigertally::guard::verdict::Action;
use tigertally::ledger::digest::DigestKey;
use tigertally::ledger::event::Millis;
use tigertally::ledger::rules::Rules;
use tigertally::policy::{Policy, Tool};
use tigertally::proxy::{Flights, Running};
use tigertally::store::memory::MemoryStore;
use tigertally::telemetry::Metrics;

const TOOLS: &str = r#""tools":[{"type":"function","function":{"name":"get_order","parameters":{"type":"object"}}},{"type":"function","function":{"name":"refund_order","parameters":{"type":"object"}}}]"#;
const DONE: &str = r#"{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"Done."},"finish_reason":"stop"}]}"#;
/// The notice that an application puts in place of a result that did not come in time.
const TIMEOUT: &str = r#"{"ok":false,"error":{"code":"timeout"}}"#;
/// 2025-11-30T18:12:00Z
const BEGIN: u64 = 1_764_526_320_000;
const REFUND_A: Call<'_> = Call { id: "call_1", tool: "refund_order", order: "A" };

/// A proxy whose clock the test moves. `refund_order` is a write that may take 5 s.
struct World {
    upstream: Upstream,
    guard: Running,
    clock: Arc<AtomicU64>,
}

impl World {
    async fn start() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut Policy)) -> Self {
        let upstream = Upstream::start().await;
        let mut policy = rig::policy(&upstream);
        let refund =
            Tool { write: true, deadline: Some(Duration::from_secs(5)), ..Tool::default() };
        policy.tools.each.insert("refund_order".to_owned(), refund);
        change(&mut policy);
        let clock = Arc::new(AtomicU64::new(BEGIN));
        let now = Arc::clone(&clock);
        let flights = Arc::new(Flights::default());
        let store = MemoryStore::new(
            DigestKey::new([7; 32]),
            Arc::new(move || Millis(now.load(Ordering::SeqCst))),
            Arc::clone(&flights) as _,
            100,
        );
        let metrics = Metrics::new(&policy.tools).unwrap();
        let guard = tigertally::control::start(policy, Arc::new(store), flights, metrics).await;
        World { upstream, guard: guard.unwrap(), clock }
    }

    /// More than a refund may take, less than a lease.
    fn time_passes(&self) {
        self.clock.fetch_add(6_000, Ordering::SeqCst);
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        control(self.guard.client_addr, "POST", path, &body.to_string()).await
    }

    /// The record's calls, oldest first.
    async fn calls(&self, conversation: &str) -> Vec<Value> {
        let (status, record) = control(self.guard.client_addr, "GET", conversation, "").await;
        assert_eq!(status, 200);
        record["calls"].as_array().unwrap().clone()
    }

    async fn start_call(&self, path: &str, generation: u64) -> (u16, Value) {
        self.post(path, json!({ "generation": generation })).await
    }

    /// One exchange of conversation `c`, generation 1: its status, operations header and body.
    async fn exchange(&self, body: String, answer: Answer) -> (u16, Option<String>, String) {
        self.exchange_as(&[("x-conversation-id", "c"), ("x-generation", "1")], body, answer).await
    }

    async fn exchange_as(
        &self,
        headers: &[(&'static str, &str)],
        body: String,
        answer: Answer,
    ) -> (u16, Option<String>, String) {
        self.upstream.will(answer);
        let response = send(&client(), chat(&self.guard, headers, body)).await;
        let operations = response.headers().get("x-tigertally-operations");
        let operations = operations.map(|value| value.to_str().unwrap().to_owned());
        (response.status().as_u16(), operations, text(response).await)
    }

    /// The model's refund of A went out and timed out; the application told the model so.
    async fn with_unknown_refund() -> World {
        let world = World::start().await;
        let (status, ..) = world.exchange(ask("Refund A."), proposes(REFUND_A)).await;
        assert_eq!(status, 200);
        world.time_passes();
        let (_, late) = world.start_call("c/calls/call_1/start", 1).await;
        assert_eq!(code(&late), "late");
        world
    }

    /// The model is told of the timeout and proposes what it will.
    async fn after_timeout(&self, call: Call<'_>) -> (u16, Option<String>, String) {
        self.exchange(answered("Refund A.", REFUND_A, TIMEOUT), proposes(call)).await
    }
}

#[derive(Clone, Copy)]
struct Call<'a> {
    id: &'a str,
    tool: &'a str,
    order: &'a str,
}

impl Call<'_> {
    fn json(self) -> Value {
        let arguments = json!({ "order_id": self.order }).to_string();
        json!({
            "id": self.id, "type": "function",
            "function": { "name": self.tool, "arguments": arguments },
        })
    }
}

fn ask(words: &str) -> String {
    format!(r#"{{"messages":[{{"role":"user","content":"{words}"}}],{TOOLS}}}"#)
}

fn answered(words: &str, call: Call<'_>, result: &str) -> String {
    let messages = json!([
        { "role": "user", "content": words },
        { "role": "assistant", "content": "", "tool_calls": [call.json()] },
        { "role": "tool", "tool_call_id": call.id, "content": result },
    ]);
    format!(r#"{{"messages":{messages},{TOOLS}}}"#)
}

fn proposes(call: Call<'_>) -> Answer {
    rig::json(&proposal(&[call]))
}

fn proposal(calls: &[Call<'_>]) -> String {
    let calls: Vec<Value> = calls.iter().map(|call| call.json()).collect();
    let message = json!({ "role": "assistant", "content": "", "tool_calls": calls });
    let choice = json!({ "index": 0, "message": message, "finish_reason": "tool_calls" });
    json!({ "id": "x", "choices": [choice] }).to_string()
}

/// The same as a stream.
fn streams(upstream: &Upstream, call: Call<'_>) {
    let mut delta = call.json();
    delta["index"] = 0.into();
    let feed = upstream.will_stream();
    let calls = event(&json!({ "tool_calls": [delta] }).to_string(), None);
    feed.send(Bytes::from(calls)).unwrap();
    feed.send(Bytes::from(event("{}", Some("tool_calls")) + "data: [DONE]\n\n")).unwrap();
}

async fn control(to: SocketAddr, method: &str, path: &str, body: &str) -> (u16, Value) {
    let uri = format!("http://{to}/guard/v1/conversations/{path}");
    let request = Request::builder().method(method).uri(uri);
    let response = send(&client(), request.body(Full::from(body.to_owned())).unwrap()).await;
    let status = response.status().as_u16();
    (status, serde_json::from_str(&text(response).await).unwrap())
}

fn code(body: &Value) -> &str {
    body["error"]["code"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn a_tool_starts_while_its_call_is_open_current_and_in_time() {
    let world = World::start().await;
    let odd = Call { id: "functions.x:0/ü", tool: "get_order", order: "A" };
    world.exchange(ask("Where is A?"), proposes(odd)).await;
    let path = "c/calls/functions.x:0%2F%C3%BC/start";
    let (status, told) = world.start_call(path, 1).await;
    assert_eq!((status, told), (200, json!({ "attempt": 1, "deadline_at": null })));
    let (_, told) = world.start_call(path, 1).await;
    assert_eq!(told["attempt"], 2, "each yes is an attempt of its own");
    assert_eq!(world.calls("c").await[0]["attempts_started"], 2);

    world.exchange(ask("Refund A."), proposes(REFUND_A)).await;
    let (status, told) = world.start_call("c/calls/call_1/start", 1).await;
    assert_eq!((status, &told["deadline_at"]), (200, &"2025-11-30T18:12:05.000Z".into()));
    world.time_passes();
    let (status, late) = world.start_call("c/calls/call_1/start", 1).await;
    assert_eq!((status, code(&late)), (422, "late"));
    let recovery = late["error"]["faults"][0]["recovery"].as_str().unwrap();
    assert!(recovery.contains("Do not run the tool"), "{recovery}");
    let (status, _) = world.start_call(path, 1).await;
    assert_eq!(status, 200, "the other call has no deadline");

    world.post("c/generation", json!({ "generation": 2 })).await;
    let (status, stale) = world.start_call(path, 1).await;
    assert_eq!((status, code(&stale)), (422, "stale"));
}

#[tokio::test]
async fn a_start_that_names_nothing_to_run_is_refused() {
    let world = World::start().await;
    let call = Call { id: "call_1", tool: "get_order", order: "A" };
    world.exchange(ask("Where is A?"), proposes(call)).await;
    let cases = [
        ("c/calls/call_9/start", json!({ "generation": 1 }), 422, "unmatched"),
        ("other/calls/call_1/start", json!({ "generation": 1 }), 422, "unmatched"),
        ("c/calls/call_1/start", json!({ "generation": 0 }), 422, "stale"),
        ("c/calls/call_1/start", json!({ "generation": "1" }), 400, "body_invalid"),
        ("c/calls/call_1/start", json!({}), 400, "body_invalid"),
        ("c/calls/call_1/start", json!({ "generation": 1_u64 << 53 }), 400, "generation_invalid"),
        ("c/calls/%FF/start", json!({ "generation": 1 }), 400, "body_invalid"),
        ("c/calls/call_1/stop", json!({ "generation": 1 }), 403, "route_closed"),
    ];
    for (path, body, status, wanted) in cases {
        let (got, refused) = world.post(path, body).await;
        assert_eq!((got, code(&refused)), (status, wanted), "{path}");
    }
    assert_eq!(world.calls("c").await[0]["attempts_started"], 0);
    world.exchange(answered("Where is A?", call, "shipped"), rig::json(DONE)).await;
    let (status, decided) = world.start_call("c/calls/call_1/start", 1).await;
    assert_eq!((status, code(&decided)), (422, "duplicate"));
}

#[tokio::test]
async fn a_result_may_name_started_attempts_only() {
    let world = World::start().await;
    world.exchange(ask("Refund A."), proposes(REFUND_A)).await;
    let result = |attempt: u32| json!({ "generation": 1, "tool_call_id": "call_1", "content": "refunded", "attempt": attempt });
    let (status, never) = world.post("c/results", result(1)).await;
    assert_eq!((status, code(&never)), (422, "mismatch"));
    for attempt in [1, 2] {
        let (_, told) = world.start_call("c/calls/call_1/start", 1).await;
        assert_eq!(told["attempt"], attempt);
    }
    for never in [0, 3] {
        let (status, refused) = world.post("c/results", result(never)).await;
        assert_eq!((status, code(&refused)), (422, "mismatch"));
    }
    let (status, accepted) = world.post("c/results", result(1)).await;
    assert_eq!((status, &accepted["verdict"]), (200, &"accepted".into()), "{accepted}");
    let (status, second) = world.post("c/results", result(2)).await;
    assert_eq!((status, code(&second)), (422, "duplicate"), "the first of the started ones wins");
}

#[tokio::test]
async fn a_late_report_is_recorded_and_waits_for_somebody_to_say_what_it_means() {
    let world = World::with_unknown_refund().await;
    let again = Call { id: "call_2", ..REFUND_A };
    let (status, operations, body) = world.after_timeout(again).await;
    assert_eq!((status, operations), (422, None), "{body}");
    let refused = error(&body);
    assert_eq!(refused["code"], "write_outcome_unknown");
    assert_eq!(refused["faults"][0]["tool_call_id"], "call_2");
    assert_eq!(refused["param"], "choices[0].message.tool_calls[0]");
    let recovery = refused["faults"][0]["recovery"].as_str().unwrap();
    assert!(recovery.contains("/guard/v1/conversations/{id}/writes/{operation_key}"), "{recovery}");
    let calls = world.calls("c").await;
    assert_eq!(calls.len(), 1, "what was refused is not registered");
    assert_eq!(calls[0]["state"], "timed_out");
    assert_eq!((&calls[0]["write"], &calls[0]["outcome_unknown"]), (&true.into(), &true.into()));

    let late = json!({ "generation": 1, "tool_call_id": "call_1", "content": "refunded" });
    let (status, refused) = world.post("c/results", late).await;
    assert_eq!((status, code(&refused)), (422, "late"));
    let reported = &world.calls("c").await[0];
    assert_eq!(reported["state"], "timed_out", "a success never overwrites a timeout");
    assert_eq!(reported["outcome_unknown"], false);
    assert_eq!(reported["outcome"], "reported");
    let (status, _, body) = world.after_timeout(again).await;
    assert_eq!(status, 422, "the model does not know of it: {body}");
    assert_eq!(error(&body)["code"], "write_outcome_unknown");
    let key = reported["operation_key"].as_str().unwrap();
    let (status, _) =
        world.post(&format!("c/writes/{key}"), json!({ "outcome": "not_applied" })).await;
    assert_eq!(status, 200);
    let (status, _, body) = world.after_timeout(again).await;
    assert_eq!(status, 200, "{body}");
}

#[tokio::test]
async fn other_work_goes_on_while_a_write_is_unknown() {
    for other in
        [Call { id: "call_2", order: "B", ..REFUND_A }, Call { tool: "get_order", ..REFUND_A }]
    {
        let world = World::with_unknown_refund().await;
        let (status, _, body) = world.after_timeout(other).await;
        assert_eq!(status, 200, "{body}");
    }
}

#[tokio::test]
async fn an_application_or_an_operator_settles_an_unknown_write() {
    for (by_operator, outcome) in [(false, "applied"), (true, "applied"), (true, "not_applied")] {
        let world = World::with_unknown_refund().await;
        let to = if by_operator { world.guard.admin_addr } else { world.guard.client_addr };
        let again = Call { id: "call_2", ..REFUND_A };
        assert_eq!(world.after_timeout(again).await.0, 422);
        let key = world.calls("c").await[0]["operation_key"].as_str().unwrap().to_owned();
        let said = |path: String, outcome: &str| {
            let body = json!({ "outcome": outcome }).to_string();
            async move { control(to, "POST", &path, &body).await }
        };
        let (status, unknown) = said(format!("c/writes/{}", "0".repeat(32)), outcome).await;
        assert_eq!((status, code(&unknown)), (422, "unmatched"));
        let (status, elsewhere) = said(format!("other/writes/{key}"), outcome).await;
        assert_eq!((status, code(&elsewhere)), (422, "unmatched"));
        let (status, unclear) = said(format!("c/writes/{key}"), "perhaps").await;
        assert_eq!((status, code(&unclear)), (400, "body_invalid"));
        assert_eq!(world.after_timeout(again).await.0, 422, "none of these said anything");
        for _ in 0..2 {
            let (status, done) = said(format!("c/writes/{key}"), outcome).await;
            assert_eq!((status, done), (200, json!({ "operation_key": key, "outcome": outcome })));
        }
        let opposite = if outcome == "applied" { "not_applied" } else { "applied" };
        let (status, conflict) = said(format!("c/writes/{key}"), opposite).await;
        assert_eq!((status, code(&conflict)), (422, "conflict"));
        assert_eq!(world.calls("c").await[0]["outcome"], outcome);
        let (status, operations, body) = world.after_timeout(again).await;
        if outcome == "applied" {
            assert_eq!((status, operations), (422, None), "{body}");
            assert_eq!(error(&body)["code"], "write_applied");
            assert!(error(&body)["message"].as_str().unwrap().contains("took effect already"));
            world.clock.fetch_add(1, Ordering::SeqCst);
            let words = "Refund A a second time.";
            let later = [("x-conversation-id", "c"), ("x-generation", "2")];
            let (status, later, body) =
                world.exchange_as(&later, ask(words), proposes(again)).await;
            assert_eq!(status, 200, "a new task may want it again: {body}");
            assert!(!later.unwrap().contains(&key));
            continue;
        }
        assert_eq!(status, 200, "{body}");
        assert!(!operations.unwrap().contains(&key), "a further write, not the first one again");
    }
}

#[tokio::test]
async fn another_sites_page_settles_nothing() {
    let world = World::with_unknown_refund().await;
    let key = world.calls("c").await[0]["operation_key"].as_str().unwrap().to_owned();
    let uri = format!("http://{}/guard/v1/conversations/c/writes/{key}", world.guard.admin_addr);
    let request = Request::post(uri).header("origin", "http://evil.example");
    let body = Full::from(r#"{"outcome":"applied"}"#);
    assert_eq!(send(&client(), request.body(body).unwrap()).await.status(), 403);
    assert_eq!(world.calls("c").await[0]["outcome_unknown"], true);
}

#[tokio::test]
async fn in_a_stream_the_refusal_is_one_error_event() {
    let world = World::with_unknown_refund().await;
    let headers = [("x-conversation-id", "c"), ("x-generation", "1")];
    streams(&world.upstream, Call { id: "call_2", ..REFUND_A });
    let asked = chat(&world.guard, &headers, answered("Refund A.", REFUND_A, TIMEOUT));
    let mut body = send(&client(), asked).await.into_body();
    let only = next(&mut body).await.unwrap();
    let only = std::str::from_utf8(&only).unwrap().strip_prefix("data: ").unwrap();
    assert_eq!(error(only)["code"], "write_outcome_unknown");
    assert!(error(only)["faults"][0]["recovery"].as_str().unwrap().contains("/writes/"));
    assert_eq!(next(&mut body).await, None);
}

#[tokio::test]
async fn where_it_is_a_note_the_write_goes_out_and_is_told() {
    let world = World::with(|policy| {
        let rules = policy.rules.clone().with(Code::WriteOutcomeUnknown, Action::Note);
        policy.ledger = Arc::new(Rules { actions: rules.clone(), ..Rules::default() });
        policy.rules = rules;
    })
    .await;
    world.exchange(ask("Refund A."), proposes(REFUND_A)).await;
    world.time_passes();
    world.upstream.will(proposes(Call { id: "call_2", ..REFUND_A }));
    let headers = [("x-conversation-id", "c"), ("x-generation", "1")];
    let asked = chat(&world.guard, &headers, answered("Refund A.", REFUND_A, TIMEOUT));
    let response = send(&client(), asked).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["x-tigertally-verdict"], "note");
    let notes = response.headers()["x-tigertally-notes"].to_str().unwrap();
    assert!(notes.contains("write_outcome_unknown@"), "{notes}");
    assert!(response.headers().contains_key("x-tigertally-operations"));
    assert_eq!(world.calls("c").await[1]["forced"], true);
}

#[tokio::test]
async fn the_last_allowed_model_call_proposes_nothing() {
    let world = World::with(|policy| {
        policy.ledger = Arc::new(Rules { model_calls: Some(1), ..Rules::default() });
    })
    .await;
    let (status, operations, body) = world.exchange(ask("Refund A."), proposes(REFUND_A)).await;
    assert_eq!((status, operations), (422, None));
    assert_eq!(error(&body)["code"], "budget_exhausted");
    assert!(world.calls("c").await.is_empty());
}

#[tokio::test]
async fn header_record_and_start_tell_the_same_key() {
    let world = World::start().await;
    let read = Call { id: "call_0", tool: "get_order", order: "A" };
    let twice = Call { id: "call 2", ..REFUND_A };
    let answer = rig::json(&proposal(&[read, REFUND_A, twice]));
    let (_, operations, _) = world.exchange(ask("Refund A twice."), answer).await;
    let calls = world.calls("c").await;
    let key = |at: usize| calls[at]["operation_key"].as_str().unwrap();
    assert_eq!(operations.unwrap(), format!("call_1={}, call%202={}", key(1), key(2)));
    assert_eq!(calls[0]["operation_key"], Value::Null, "a read has none");
    assert_ne!(key(1), key(2), "two equal writes are two");
    assert!(key(1).len() == 32 && key(1).bytes().all(|byte| byte.is_ascii_hexdigit()));
    for (path, at) in [("c/calls/call_1/start", 1), ("c/calls/call%202/start", 2)] {
        assert_eq!(world.start_call(path, 1).await.1["operation_key"], key(at));
    }
}

#[tokio::test]
async fn a_retried_attempt_proposes_the_same_write() {
    let world = World::start().await;
    let (_, first, _) = world.exchange(ask("Refund A."), proposes(REFUND_A)).await;
    let retry =
        [("x-conversation-id", "c"), ("x-generation", "1"), ("x-stainless-retry-count", "1")];
    let again = proposes(Call { id: "call_2", ..REFUND_A });
    let (status, second, _) = world.exchange_as(&retry, ask("Refund A."), again).await;
    assert_eq!(status, 200);
    assert_eq!(first.unwrap().strip_prefix("call_1="), second.unwrap().strip_prefix("call_2="));
    let calls = world.calls("c").await;
    assert_eq!((&calls[0]["outcome"], &calls[1]["outcome"]), (&"withdrawn".into(), &Value::Null));
    assert_eq!(calls[0]["operation_key"], calls[1]["operation_key"]);
}

#[tokio::test]
async fn a_key_is_the_conversations_own_and_outlives_the_process() {
    let (world, restarted) = (World::start().await, World::start().await);
    let (_, here, _) = world.exchange(ask("Refund A."), proposes(REFUND_A)).await;
    let other = [("x-conversation-id", "other"), ("x-generation", "1")];
    let (_, elsewhere, _) = world.exchange_as(&other, ask("Refund A."), proposes(REFUND_A)).await;
    let (_, later, _) = restarted.exchange(ask("Refund A."), proposes(REFUND_A)).await;
    assert_ne!(here, elsewhere);
    assert_eq!(here, later, "the same store's secret gives the same key");
}

#[tokio::test]
async fn in_a_stream_the_record_and_start_tell_the_key() {
    let world = World::start().await;
    let headers = [("x-conversation-id", "c"), ("x-generation", "1")];
    streams(&world.upstream, REFUND_A);
    let response = send(&client(), chat(&world.guard, &headers, ask("Refund A."))).await;
    assert!(!response.headers().contains_key("x-tigertally-operations"));
    assert!(text(response).await.contains("call_1"));
    let (status, told) = world.start_call("c/calls/call_1/start", 1).await;
    assert_eq!(status, 200);
    assert_eq!(told["operation_key"], world.calls("c").await[0]["operation_key"]);
    assert!(told["operation_key"].is_string());
}

#[tokio::test]
async fn an_upstream_does_not_name_operations() {
    let world = World::start().await;
    let headers = vec![
        ("content-type", "application/json"),
        ("x-tigertally-operations", "call_1=00000000000000000000000000000000"),
    ];
    let read = Call { id: "call_1", tool: "get_order", order: "A" };
    let body = Bytes::from(proposal(&[read]));
    let answer = Answer::Whole { status: 200, headers, body };
    let (status, operations, _) = world.exchange(ask("Where is A?"), answer).await;
    assert_eq!((status, operations), (200, None));
}
