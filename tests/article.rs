//! The article that this guard began with, row by row: each test bears the number of a row of its table of
//! errors, or the words of its version matrix. `docs/article.md` links each row to its rule and its test.
//!
//! Everything goes over real sockets through the built program with the article's own settings,
//! `config/order-query.toml`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[expect(dead_code, reason = "what other tests need")]
mod gateway;
#[expect(dead_code, reason = "what other tests need")]
mod program;

use gateway::{Answer, Gateway, Reply, Upstream};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const FOUND: &str = r#"{"ok":true,"order_id":"ORDER-A","status":"in transit"}"#;
const TIMEOUT: &str = r#"{"ok":false,"error":{"code":"timeout"}}"#;
const PATIENCE: Duration = Duration::from_secs(20);

/// The guard between a user's application and a model that says what the test tells it to.
struct World {
    upstream: Upstream,
    gateway: Gateway,
}

impl World {
    async fn start() -> Self {
        Self::with(&[]).await
    }

    /// With further settings on top of the article's.
    async fn with(settings: &[(&str, &str)]) -> Self {
        let upstream = Upstream::start().await;
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/config/order-query.toml");
        let env: Vec<_> = [("TIGERTALLY_CONFIG", file), ("TIGERTALLY_UPSTREAM__RID", "false")]
            .into_iter()
            .chain(settings.iter().copied())
            .collect();
        let gateway = Gateway::start(&upstream, &env).await;
        World { upstream, gateway }
    }

    /// One exchange of conversation `c`: what the model says, and what the application gets.
    async fn exchange(&self, generation: u64, request: &Value, model: Reply) -> Answer {
        let generation = generation.to_string();
        let headers = [("x-conversation-id", "c"), ("x-generation", generation.as_str())];
        self.upstream.reply_with(model);
        self.gateway.chat(request.to_string().as_bytes(), &headers).await
    }

    /// The user asks for an order, and the model proposes to look it up.
    async fn proposed(&self, generation: u64, call: &Call<'_>) -> Answer {
        let answer = self.exchange(generation, &question(call), call.proposal()).await;
        assert_eq!(answer.status, 200, "{answer}");
        answer
    }

    async fn control(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        self.gateway.control(method, path, &body).await
    }

    /// A tool's result as it comes back.
    async fn result(&self, generation: u64, id: &str, content: &str) -> (u16, Value) {
        let result = json!({ "generation": generation, "tool_call_id": id, "content": content });
        self.control("POST", "c/results", result).await
    }

    async fn record(&self) -> Value {
        let (status, record) = self.control("GET", "c", Value::Null).await;
        assert_eq!(status, 200);
        record
    }

    /// Waits until the call has timed out, by itself.
    async fn timed_out(&self, id: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let record = self.record().await;
            let calls = record["calls"].as_array().unwrap();
            if calls.iter().any(|call| call["tool_call_id"] == id && call["state"] == "timed_out") {
                return;
            }
            assert!(Instant::now() < end, "{record}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// How many requests reached the model since this was last asked.
    fn reached_the_model(&self) -> usize {
        self.upstream.take_bodies().len()
    }
}

/// One call as the model proposes it.
#[derive(Clone, Copy)]
struct Call<'a> {
    id: &'a str,
    tool: &'a str,
    arguments: &'a str,
}

const A: Call<'_> =
    Call { id: "call_order_a", tool: "get_order_status", arguments: r#"{"order_id":"ORDER-A"}"# };
const B: Call<'_> =
    Call { id: "call_order_b", tool: "get_order_status", arguments: r#"{"order_id":"ORDER-B"}"# };
const REFUND: Call<'_> =
    Call { id: "call_refund", tool: "refund_order", arguments: r#"{"order_id":"ORDER-A"}"# };

impl Call<'_> {
    fn json(&self) -> Value {
        json!({
            "id": self.id, "type": "function",
            "function": { "name": self.tool, "arguments": self.arguments },
        })
    }

    fn proposal(&self) -> Reply {
        proposal(&[self.json()])
    }

    /// The user's words, which differ by order.
    fn words(&self) -> String {
        format!("About {}", self.arguments.replace(['{', '}', '"'], ""))
    }
}

fn proposal(calls: &[Value]) -> Reply {
    let message = json!({ "role": "assistant", "content": null, "tool_calls": calls });
    let choice = json!({ "index": 0, "message": message, "finish_reason": "tool_calls" });
    Reply::json(200, &json!({ "id": "x", "choices": [choice] }).to_string())
}

fn text() -> Reply {
    Reply::plain(b"{}")
}

fn tools() -> Value {
    let tool = |name: &str| {
        json!({
            "type": "function",
            "function": {
                "name": name,
                "parameters": {
                    "type": "object",
                    "properties": { "order_id": { "type": "string" } },
                    "required": ["order_id"],
                },
            },
        })
    };
    json!([tool("get_order_status"), tool("refund_order")])
}

fn list(messages: Value) -> Value {
    json!({ "model": "m", "messages": messages, "tools": tools() })
}

fn question(call: &Call<'_>) -> Value {
    list(json!([{ "role": "user", "content": call.words() }]))
}

/// The second request: the question, the model's own message, and the result.
fn answered(call: &Call<'_>, content: &str) -> Value {
    list(json!([
        { "role": "user", "content": call.words() },
        { "role": "assistant", "content": null, "tool_calls": [call.json()] },
        { "role": "tool", "tool_call_id": call.id, "name": call.tool, "content": content },
    ]))
}

fn code(body: &Value) -> &str {
    body["error"]["code"].as_str().unwrap_or_default()
}

fn refused(answer: &Answer) -> String {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    assert_eq!(answer.header("x-should-retry"), "false", "{answer}");
    code(&body).to_owned()
}

// --- the table of errors ----------------------------------------------------------------------------

#[tokio::test]
async fn row_01_a_message_with_more_calls_than_the_scope_allows_is_refused_whole() {
    let world = World::start().await;
    let two = proposal(&[A.json(), B.json()]);
    let answer = world.exchange(1, &question(&A), two).await;
    assert_eq!((answer.status, refused(&answer).as_str()), (422, "too_many_calls"));
    let one = world.exchange(1, &question(&A), A.proposal()).await;
    assert_eq!((one.status, &*one.body), (200, &*world.upstream.reply().body()));
}

#[tokio::test]
async fn row_02_one_bad_call_among_good_ones_lets_none_through() {
    let world = World::with(&[("TIGERTALLY_TOOLS__MAX_CALLS", "2")]).await;
    let answer = world.exchange(1, &question(&A), proposal(&[A.json(), REFUND.json()])).await;
    assert_eq!((answer.status, refused(&answer).as_str()), (422, "tool_not_allowed"));
    assert!(!String::from_utf8_lossy(&answer.body).contains("ORDER-A"), "{answer}");
    assert_eq!(world.record().await["calls"], json!([]), "nothing of it is registered");
    let both = world.exchange(1, &question(&A), proposal(&[A.json(), B.json()])).await;
    assert_eq!(both.status, 200, "{both}");
}

#[tokio::test]
async fn row_03_the_models_user_id_is_no_identity() {
    let world = World::start().await;
    let schema = json!({ "type": "object" });
    let mut request = question(&A);
    request["tools"][0]["function"]["parameters"] = schema;
    for arguments in [
        r#"{"order_id":"ORDER-A","user_id":"u-1"}"#,
        r#"{"order_id":"ORDER-A","filter":[{"user\u005fid":"u-1"}]}"#,
    ] {
        let answer = world.exchange(1, &request, Call { arguments, ..A }.proposal()).await;
        assert_eq!((answer.status, refused(&answer).as_str()), (422, "server_owned_argument"));
        assert!(!String::from_utf8_lossy(&answer.body).contains("u-1"), "{answer}");
    }
    let named = r#"{"order_id":"user_id"}"#;
    let answer = world.exchange(1, &request, Call { arguments: named, ..A }.proposal()).await;
    assert_eq!(answer.status, 200, "a value of that name is no argument of that name: {answer}");
}

#[tokio::test]
async fn row_06_a_result_without_the_assistants_message_is_an_orphan() {
    let world = World::start().await;
    world.proposed(1, &A).await;
    let mut request = answered(&A, FOUND);
    request["messages"].as_array_mut().unwrap().remove(1);
    world.reached_the_model();
    let answer = world.exchange(1, &request, text()).await;
    assert_eq!((answer.status, refused(&answer).as_str()), (400, "orphan_result"));
    assert_eq!(world.reached_the_model(), 0);
    let whole = world.exchange(1, &answered(&A, FOUND), text()).await;
    assert_eq!(whole.status, 200, "{whole}");
}

#[tokio::test]
async fn row_07_a_result_must_bear_the_id_of_its_call() {
    let world = World::start().await;
    world.proposed(1, &A).await;
    let mut request = answered(&A, FOUND);
    request["messages"][2]["tool_call_id"] = "call_order_x".into();
    let answer = world.exchange(1, &request, text()).await;
    assert_eq!((answer.status, refused(&answer).as_str()), (400, "unknown_result_id"));
    let right = world.exchange(1, &answered(&A, FOUND), text()).await;
    assert_eq!(right.status, 200, "{right}");
}

#[tokio::test]
async fn row_08_arguments_are_a_string_that_parses_to_an_object() {
    let world = World::start().await;
    let object = json!({ "order_id": "ORDER-A" });
    let mut call = A.json();
    call["function"]["arguments"] = object.clone();
    let proposed = world.exchange(1, &question(&A), proposal(&[call.clone()])).await;
    assert_eq!((proposed.status, refused(&proposed).as_str()), (422, "arguments_malformed"));
    for arguments in [r#"{"order_id":"ORD"#, r#"{"a":1}{"b":2}"#, r#""{\"order_id\":\"A\"}""#] {
        let cut = world.exchange(1, &question(&A), Call { arguments, ..A }.proposal()).await;
        assert_eq!(
            (cut.status, refused(&cut).as_str()),
            (422, "arguments_malformed"),
            "{arguments}"
        );
    }
    world.proposed(1, &A).await;
    let mut request = answered(&A, FOUND);
    request["messages"][1]["tool_calls"][0] = call;
    let answer = world.exchange(1, &request, text()).await;
    assert_eq!((answer.status, refused(&answer).as_str()), (400, "arguments_not_string"));
}

#[tokio::test]
async fn row_09_a_session_id_restores_no_context() {
    let world = World::start().await;
    world.proposed(1, &A).await;
    let mut request = answered(&A, FOUND);
    request["messages"].as_array_mut().unwrap().remove(1);
    request["session_id"] = "s-1".into();
    let answer = world.exchange(1, &request, text()).await;
    assert_eq!((answer.status, refused(&answer).as_str()), (400, "orphan_result"));
    let mut whole = answered(&A, FOUND);
    whole["session_id"] = "s-1".into();
    let answer = world.exchange(1, &whole, text()).await;
    assert_eq!(answer.status, 200, "{answer}");
}

#[tokio::test]
async fn row_10_an_old_tasks_result_does_not_enter_the_new_tasks_list() {
    let world = World::start().await;
    world.proposed(41, &A).await;
    world.proposed(42, &B).await;
    let (status, stale) = world.result(41, A.id, FOUND).await;
    assert_eq!((status, code(&stale)), (422, "stale"));
    world.reached_the_model();
    let answer = world.exchange(42, &answered(&A, FOUND), text()).await;
    assert_eq!((answer.status, refused(&answer).as_str()), (422, "stale"));
    assert_eq!(world.reached_the_model(), 0);
    let found = FOUND.replace("ORDER-A", "ORDER-B");
    let answer = world.exchange(42, &answered(&B, &found), text()).await;
    assert_eq!(answer.status, 200, "{answer}");
}

#[tokio::test]
async fn row_11_an_old_tasks_answer_is_not_delivered_after_the_user_moved_on() {
    let world = World::start().await;
    world.proposed(41, &A).await;
    let late = async {
        let answer = world.exchange(41, &answered(&A, FOUND), text().held()).await;
        (answer.status, refused(&answer))
    };
    let moved = async {
        world.upstream.holds().await;
        let (status, advanced) =
            world.control("POST", "c/generation", json!({ "generation": 42 })).await;
        assert_eq!((status, &advanced["cancelled_exchanges"]), (200, &json!(1)));
        world.upstream.go_on();
    };
    let (withheld, ()) = tokio::join!(late, moved);
    assert_eq!(withheld, (422, "stale_answer".to_owned()));
    world.proposed(42, &B).await;
}

#[tokio::test]
async fn row_12_the_same_result_twice_counts_once() {
    let world = World::start().await;
    world.proposed(1, &A).await;
    let (status, first) = world.result(1, A.id, FOUND).await;
    assert_eq!((status, &first["verdict"]), (200, &json!("accepted")));
    let (status, second) = world.result(1, A.id, FOUND).await;
    assert_eq!((status, code(&second)), (422, "duplicate"));
    let answer = world.exchange(1, &answered(&A, FOUND), text()).await;
    assert_eq!(answer.status, 200, "the one continuation passes: {answer}");
    let again = world.exchange(1, &answered(&A, FOUND), text()).await;
    assert_eq!((again.status, refused(&again).as_str()), (422, "duplicate"));
}

#[tokio::test]
async fn row_13_another_result_for_the_same_call_does_not_win() {
    let world = World::start().await;
    world.proposed(1, &A).await;
    world.result(1, A.id, FOUND).await;
    let other = FOUND.replace("in transit", "lost");
    let (status, conflict) = world.result(1, A.id, &other).await;
    assert_eq!((status, code(&conflict)), (422, "conflict"));
    let answer = world.exchange(1, &answered(&A, &other), text()).await;
    assert_eq!((answer.status, refused(&answer).as_str()), (422, "conflict"));
    let first = world.exchange(1, &answered(&A, FOUND), text()).await;
    assert_eq!(first.status, 200, "the first stays final, and goes on: {first}");
}

#[tokio::test]
async fn row_14_an_unknown_id_is_matched_to_nothing() {
    let world = World::start().await;
    world.proposed(1, &A).await;
    let (status, unmatched) = world.result(1, "call_order_x", FOUND).await;
    assert_eq!((status, code(&unmatched)), (422, "unmatched"));
    let invented = Call { id: "call_order_x", ..A };
    let answer = world.exchange(1, &answered(&invented, FOUND), text()).await;
    assert_eq!((answer.status, refused(&answer).as_str()), (422, "unmatched"));
    assert_eq!(world.record().await["calls"][0]["state"], "open");
}

#[tokio::test]
async fn row_15_a_refund_that_timed_out_is_not_proposed_again_as_if_it_had_not_happened() {
    let world = World::with(&REFUNDS).await;
    world.proposed(1, &REFUND).await;
    world.timed_out(REFUND.id).await;
    let again = Call { id: "call_refund_2", ..REFUND };
    let told = answered(&REFUND, TIMEOUT);
    let answer = world.exchange(1, &told, again.proposal()).await;
    assert_eq!((answer.status, refused(&answer).as_str()), (422, "write_outcome_unknown"));
    let record = world.record().await;
    let key = record["calls"][0]["operation_key"].as_str().unwrap();
    let said = json!({ "outcome": "not_applied" });
    let (status, _) = world.control("POST", &format!("c/writes/{key}"), said).await;
    assert_eq!(status, 200);
    let answer = world.exchange(1, &told, again.proposal()).await;
    assert_eq!(answer.status, 200, "{answer}");
}

#[tokio::test]
async fn row_16_a_model_that_answered_is_not_a_user_that_was_answered() {
    let world = World::start().await;
    world.proposed(41, &A).await;
    world.proposed(42, &B).await;
    world.result(41, A.id, FOUND).await;
    let found = FOUND.replace("ORDER-A", "ORDER-B");
    let answer = world.exchange(42, &answered(&B, &found), text()).await;
    assert_eq!(answer.status, 200, "{answer}");
    let record = world.record().await;
    let state = |id: &str| {
        let calls = record["calls"].as_array().unwrap();
        calls.iter().find(|call| call["tool_call_id"] == id).unwrap()["state"].clone()
    };
    assert_eq!((state(A.id), state(B.id)), (json!("superseded"), json!("accepted")));
    assert_eq!(record["generations"][0]["outcome"], "completed");
    let metrics = world.gateway.metrics().await;
    for wanted in [
        r#"tasks_total{outcome="completed"}"#,
        r#"tasks_total{outcome="superseded"}"#,
        r#"results_total{verdict="stale"}"#,
        r#"results_total{verdict="accepted"}"#,
    ] {
        assert_eq!(metrics[wanted], 1, "{wanted}");
    }
}

#[tokio::test]
async fn row_17_the_number_of_model_calls_is_the_operators_budget() {
    let world = World::start().await;
    world.proposed(1, &A).await;
    let further = Call { id: "call_order_a2", ..A };
    let answer = world.exchange(1, &answered(&A, FOUND), further.proposal()).await;
    assert_eq!((answer.status, refused(&answer).as_str()), (422, "budget_exhausted"));
    assert_eq!(world.record().await["generations"][0]["outcome"], "incomplete");
    let world = World::with(&[("TIGERTALLY_BUDGET__MODEL_CALLS", "3")]).await;
    world.proposed(1, &A).await;
    let answer = world.exchange(1, &answered(&A, FOUND), further.proposal()).await;
    assert_eq!(answer.status, 200, "two is no law: {answer}");
}

// --- timeouts and repeats, as the article's fifth chapter tells them ---------------------------------------

#[tokio::test]
async fn a_late_success_does_not_overwrite_the_timeout() {
    let world = World::with(&[("TIGERTALLY_TOOLS__GET_ORDER_STATUS__DEADLINE", "1s")]).await;
    world.proposed(1, &A).await;
    world.timed_out(A.id).await;
    let (status, late) = world.result(1, A.id, FOUND).await;
    assert_eq!((status, code(&late)), (422, "late"));
    let answer = world.exchange(1, &answered(&A, FOUND), text()).await;
    assert_eq!((answer.status, refused(&answer).as_str()), (422, "late"));
    assert_eq!(world.record().await["calls"][0]["state"], "timed_out");
    let answer = world.exchange(1, &answered(&A, TIMEOUT), text()).await;
    assert_eq!(answer.status, 200, "the notice goes in its place: {answer}");
    let metrics = world.gateway.metrics().await;
    assert_eq!(metrics[r#"calls_total{tool="get_order_status",verdict="timed_out"}"#], 1);
}

#[tokio::test]
async fn a_further_attempt_at_a_read_is_told_apart_and_one_result_counts() {
    let world = World::start().await;
    world.proposed(1, &A).await;
    let start = json!({ "generation": 1 });
    for attempt in [1, 2] {
        let path = "c/calls/call_order_a/start";
        let (status, told) = world.control("POST", path, start.clone()).await;
        assert_eq!((status, &told["attempt"]), (200, &json!(attempt)));
    }
    let result = |attempt: u32| {
        json!({
            "generation": 1, "tool_call_id": A.id, "content": FOUND, "attempt": attempt,
        })
    };
    let (status, never) = world.control("POST", "c/results", result(3)).await;
    assert_eq!((status, code(&never)), (422, "mismatch"));
    let (status, second) = world.control("POST", "c/results", result(2)).await;
    assert_eq!((status, &second["verdict"]), (200, &json!("accepted")));
    let (status, first) = world.control("POST", "c/results", result(1)).await;
    assert_eq!((status, code(&first)), (422, "duplicate"));
}

#[tokio::test]
async fn a_result_that_echoes_another_order_is_not_this_calls() {
    let world = World::start().await;
    world.proposed(1, &A).await;
    let other = FOUND.replace("ORDER-A", "ORDER-B");
    let (status, mismatch) = world.result(1, A.id, &other).await;
    assert_eq!((status, code(&mismatch)), (422, "mismatch"));
    let failure = r#"{"ok":false,"error":{"code":"not_found_or_not_accessible"}}"#;
    let (status, accepted) = world.result(1, A.id, failure).await;
    assert_eq!((status, &accepted["verdict"]), (200, &json!("accepted")), "it echoes nothing");
}

// --- the version matrix -----------------------------------------------------------------------------

#[tokio::test]
async fn matrix_a_tool_call_id_is_no_business_idempotency_key() {
    let world = World::with(&REFUNDS).await;
    world.proposed(1, &REFUND).await;
    let first = world.record().await["calls"][0]["operation_key"].clone();
    let headers =
        [("x-conversation-id", "c"), ("x-generation", "1"), ("x-stainless-retry-count", "1")];
    let renamed = Call { id: "call_refund_b", ..REFUND };
    world.upstream.reply_with(renamed.proposal());
    let retried = world.gateway.chat(question(&REFUND).to_string().as_bytes(), &headers).await;
    assert_eq!(retried.status, 200, "{retried}");
    let record = world.record().await;
    assert_eq!(record["calls"][1]["tool_call_id"], "call_refund_b");
    assert_eq!(record["calls"][1]["operation_key"], first, "another id, and the same write");
    world.control("POST", "c/generation", json!({ "generation": 2 })).await;
    let settle = format!("c/writes/{}", first.as_str().unwrap());
    let (status, _) = world.control("POST", &settle, json!({ "outcome": "not_applied" })).await;
    assert_eq!(status, 200);
    world.proposed(2, &REFUND).await;
    let record = world.record().await;
    let last = record["calls"].as_array().unwrap().last().unwrap();
    assert_eq!(last["tool_call_id"], REFUND.id);
    assert_ne!(last["operation_key"], first, "the same id, and another task's write");
}

#[tokio::test]
async fn matrix_a_call_id_names_neither_the_order_nor_the_task() {
    let world = World::start().await;
    let same_id = Call { id: A.id, ..B };
    world.proposed(41, &A).await;
    world.proposed(42, &same_id).await;
    let (status, mismatch) = world.result(42, A.id, FOUND).await;
    assert_eq!((status, code(&mismatch)), (422, "mismatch"), "ORDER-A is the older call's");
    let found = FOUND.replace("ORDER-A", "ORDER-B");
    let (status, _) = world.result(42, A.id, &found).await;
    assert_eq!(status, 200);
    let calls = world.record().await["calls"].clone();
    let states: Vec<_> = calls.as_array().unwrap().iter().map(|call| &call["state"]).collect();
    assert_eq!(states, ["superseded", "accepted"], "one record each");
}

#[tokio::test]
async fn matrix_a_piece_of_a_stream_is_no_call() {
    let world = World::start().await;
    let mut request = question(&A);
    request["stream"] = true.into();
    let piece = |delta: Value, finish: Option<&str>| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        format!("data: {}\n\n", json!({ "id": "x", "choices": [choice] })).into_bytes()
    };
    let call = |arguments: &str| {
        let function = json!({ "name": A.tool, "arguments": arguments });
        json!({ "tool_calls": [{ "index": 0, "id": A.id, "type": "function", "function": function }] })
    };
    let rest =
        json!({ "tool_calls": [{ "index": 0, "function": { "arguments": "\"ORDER-A\"}" } }] });
    let pieces = vec![piece(call("{\"order_id\":"), None), piece(rest, None)];
    let cut = world.exchange(1, &request, Reply::stream(pieces.clone())).await;
    let [only] = &cut.events()[..] else { panic!("{cut}") };
    assert_eq!(code(only), "truncated_stream", "it parses, and was not finished");
    let mut whole = pieces;
    whole.push(piece(json!({}), Some("tool_calls")));
    whole.push(b"data: [DONE]\n\n".to_vec());
    let answer = world.exchange(1, &request, Reply::stream(whole)).await;
    assert_eq!(&*answer.body, &*world.upstream.reply().body());
}

// --- the acceptance rules, in the article's order ------------------------------------------------------

#[tokio::test]
async fn the_story_of_a_and_b_is_decided_when_the_results_come_back() {
    let world = World::with(&[("TIGERTALLY_TOOLS__GET_ORDER_STATUS__DEADLINE", "2s")]).await;
    world.proposed(41, &A).await;
    let (status, moved) = world.control("POST", "c/generation", json!({ "generation": 42 })).await;
    assert_eq!((status, &moved["superseded_calls"]), (200, &json!([A.id])));
    world.proposed(42, &B).await;
    let found = FOUND.replace("ORDER-A", "ORDER-B");
    for (generation, id, content, wanted) in [
        (42, "call_order_x", FOUND, "unmatched"),
        (41, A.id, FOUND, "stale"),
        (41, B.id, &found, "stale"),
        (42, B.id, FOUND, "mismatch"),
        (42, B.id, &found, "accepted"),
        (42, B.id, &found, "duplicate"),
        (42, B.id, r#"{"ok":true,"order_id":"ORDER-B","status":"lost"}"#, "conflict"),
    ] {
        let (status, told) = world.result(generation, id, content).await;
        let verdict = told["verdict"].as_str().unwrap_or_else(|| code(&told));
        assert_eq!(verdict, wanted, "{status} {told}");
        assert_eq!(status, if wanted == "accepted" { 200 } else { 422 });
    }
    let answer = world.exchange(42, &answered(&B, &found), text()).await;
    assert_eq!(answer.status, 200, "{answer}");
    let (_, moved) = world.control("POST", "c/generation", json!({})).await;
    assert_eq!(moved["generation"], 43);
    let third = Call { id: "call_order_c", ..A };
    world.proposed(43, &third).await;
    world.timed_out(third.id).await;
    let (status, late) = world.result(43, third.id, FOUND).await;
    assert_eq!((status, code(&late)), (422, "late"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn of_eight_that_bring_the_result_at_once_one_is_accepted() {
    let world = World::start().await;
    for round in 0..20 {
        world.proposed(round, &A).await;
        let bring = || world.result(round, A.id, FOUND);
        let told =
            tokio::join!(bring(), bring(), bring(), bring(), bring(), bring(), bring(), bring());
        let told = [told.0, told.1, told.2, told.3, told.4, told.5, told.6, told.7];
        let accepted = told.iter().filter(|(_, body)| body["verdict"] == "accepted").count();
        let duplicate = told.iter().filter(|(_, body)| code(body) == "duplicate").count();
        assert_eq!((accepted, duplicate), (1, 7), "{told:?}");
    }
}

/// A refund beside the query, with an outcome that is waited for one second.
const REFUNDS: [(&str, &str); 4] = [
    ("TIGERTALLY_TOOLS__ALLOW", "get_order_status,refund_order"),
    ("TIGERTALLY_TOOLS__REFUND_ORDER__EFFECT", "write"),
    ("TIGERTALLY_TOOLS__REFUND_ORDER__DEADLINE", "1s"),
    ("TIGERTALLY_BUDGET__MODEL_CALLS", "8"),
];
