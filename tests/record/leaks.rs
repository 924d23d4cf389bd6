//! No content and no secret reaches the record, a log, a metric, a span, a page, the store or an error of ours,
//! whatever becomes of the exchange.
//!
//! Marks stand in all that clients, models and operators keep to themselves; then everything that the program
//! wrote or shows is searched for them. Logs are at level `trace`.
//!
//! | room | which ways |
//! | --- | --- |
//! | here | exchanges that pass, are refused, withheld or broken off, each way whole and streamed; the control API |
//! | `doors` | keys, tokens, the admin port, TLS: who is let in and who is not |
//! | `settings` | configurations that are wrong, what is printed of right ones, and a store that fails |

mod doors;
mod settings;

use crate::collector::Collector;
use crate::gateway::{Gateway, Reply, Upstream};
use crate::lines::{answered, proposal, question, read, text};
use crate::story::World;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Stands in arguments, results, prompts, keys and tokens, and nowhere else.
pub(super) const MARK: &str = "s3cr3t";

/// Fails when one of the marks stands in what was written there.
pub(super) fn clean(place: &str, written: &str, marks: &[&str]) {
    for mark in marks {
        let line = written.lines().find(|line| line.contains(mark));
        assert!(line.is_none(), "{mark} in {place}: {line:?}");
    }
}

/// Until that is so.
pub(super) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so().await {
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// One exchange: what is asked, what the model says, and what becomes of it under `standard`.
struct Way {
    what: &'static str,
    generation: &'static str,
    body: Vec<u8>,
    says: Reply,
    status: u16,
}

fn way(
    what: &'static str,
    generation: &'static str,
    body: impl Into<Vec<u8>>,
    says: Reply,
    status: u16,
) -> Way {
    Way { what, generation, body: body.into(), says, status }
}

fn event(delta: &Value, finish: Option<&str>) -> String {
    let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
    format!("data: {}\n\n", json!({ "id": "x", "choices": [choice] }))
}

/// The events of a stream that ends as it should.
fn events(deltas: &[Value], finish: &str) -> Reply {
    let mut parts: Vec<Vec<u8>> =
        deltas.iter().map(|delta| event(delta, None).into_bytes()).collect();
    parts.push(event(&json!({}), Some(finish)).into_bytes());
    parts.push(b"data: [DONE]\n\n".to_vec());
    Reply::stream(parts)
}

/// A call as a stream's delta.
fn piece(arguments: &str) -> Value {
    let function = json!({ "name": "get_order_status", "arguments": arguments });
    json!({ "tool_calls": [{ "index": 0, "id": "call_s", "type": "function", "function": function }] })
}

fn streamed(body: Vec<u8>) -> Vec<u8> {
    String::from_utf8(body).unwrap().replacen('{', "{\"stream\":true,", 1).into()
}

/// The model proposes with these arguments, as they are.
fn raw(arguments: &str) -> Reply {
    let function = json!({ "name": "get_order_status", "arguments": arguments });
    let call = json!({ "id": "call_r", "type": "function", "function": function });
    let message = json!({ "role": "assistant", "content": "s3cr3t-text", "tool_calls": [call] });
    let choice = json!({ "index": 0, "message": message, "finish_reason": "tool_calls" });
    Reply::json(200, &json!({ "id": "x", "choices": [choice] }).to_string())
}

/// What is wrong with requests, and with what models say.
fn ways() -> Vec<Way> {
    let (order, result) = ("s3cr3t-argument", "s3cr3t-result");
    let ask = || question(order);
    let talk = json!({ "content": "s3cr3t-text", "reasoning_content": "s3cr3t-thought" });
    let mut twice = String::from_utf8(answered(order, "call_a", result)).unwrap();
    let at = twice.find("\"tool_call_id\"").unwrap();
    twice.insert_str(at, "\"content\":\"s3cr3t-first\",");
    vec![
        way("a call goes out", "1", ask(), proposal(order, "call_a"), 200),
        way("other arguments", "1", answered("s3cr3t-b", "call_a", result), text(), 422),
        way("the result passes", "1", answered(order, "call_a", result), text(), 200),
        way("a declared retry", "1", answered(order, "call_a", result), text(), 200),
        way("another result", "1", answered(order, "call_a", "other s3cr3t"), text(), 422),
        way("a call without an id", "2", ask(), proposal(order, ""), 422),
        way("nobody's call", "2", answered(order, "call_unknown", result), text(), 422),
        way("an older generation", "1", answered(order, "call_a", result), text(), 422),
        way("no list", "2", r#"{"messages":"s3cr3t"}"#, text(), 400),
        way("a cut body", "2", r#"{"messages":[{"s3cr3t"#, text(), 400),
        way("an unknown role", "2", r#"{"messages":[{"role":"s3cr3t","content":1}]}"#, text(), 200),
        way("a key twice", "2", twice, text(), 400),
        way(
            "no UTF-8",
            "2",
            [b"{\"messages\":[\"s3cr3t\xff".as_slice(), b"\"]}"].concat(),
            text(),
            400,
        ),
        way("cut arguments", "2", ask(), raw(r#"{"order_id":"s3cr3t"#), 422),
        way("arguments in a list", "2", ask(), raw(r#"["s3cr3t"]"#), 422),
        way("a missing argument", "2", ask(), raw(r#"{"s3cr3t":"s3cr3t"}"#), 422),
        way("a wrong argument", "2", ask(), raw(r#"{"order_id":{"s3cr3t":"s3cr3t"}}"#), 422),
        way("an identity", "2", ask(), raw(r#"{"order_id":"A","user_id":"s3cr3t"}"#), 422),
        way("no completion", "2", ask(), Reply::json(200, "s3cr3t-answer"), 502),
        way("a cut completion", "2", ask(), Reply::json(200, r#"{"choices":[{"s3cr3t"#), 502),
        way("no choices", "2", ask(), Reply::json(200, r#"{"choices":{"s3cr3t":1}}"#), 502),
        way("it fails", "2", ask(), Reply::json(500, r#"{"error":{"message":"s3cr3t"}}"#), 500),
        way(
            "it fails in words",
            "2",
            ask(),
            Reply::new(503, "text/html", vec![b"s3cr3t".into()]),
            503,
        ),
        way(
            "a stream of text",
            "3",
            streamed(ask()),
            events(std::slice::from_ref(&talk), "stop"),
            200,
        ),
        way(
            "a stream with a call",
            "4",
            streamed(ask()),
            events(&[talk.clone(), piece(r#"{"order_id":"s3cr3t"}"#)], "tool_calls"),
            200,
        ),
        way(
            "a stream whose call is bad",
            "5",
            streamed(ask()),
            events(&[talk.clone(), piece(r#"{"order_id":["s3cr3t"]}"#)], "tool_calls"),
            200,
        ),
        way(
            "a stream whose call is cut",
            "6",
            streamed(ask()),
            events(&[piece(r#"{"order_id":"s3cr3t"#)], "length"),
            200,
        ),
        way(
            "a stream that ends early",
            "7",
            streamed(ask()),
            Reply::stream(vec![event(&talk, None).into()]),
            200,
        ),
        way(
            "a stream of no events",
            "8",
            streamed(ask()),
            Reply::stream(vec![b"data: s3cr3t\n\n".into()]),
            200,
        ),
        way(
            "an error in a stream",
            "9",
            streamed(ask()),
            Reply::stream(vec![
                event(&talk, None).into(),
                b"data: {\"error\":{\"message\":\"s3cr3t\"}}\n\n".into(),
            ]),
            200,
        ),
    ]
}

/// What of an answer are our own words: a refusal, or the error event at the end of a stream. What the upstream
/// says in its own errors is the upstream's.
fn ours(way: &Way, status: u16, body: &str) -> String {
    if status >= 400 && way.says.status < 400 {
        return body.to_owned();
    }
    let refusal = |line: &&str| line.contains("guard_refusal") || line.contains("invalid_request");
    body.lines().filter(refusal).collect()
}

const HEADERS: [(&str, &str); 5] = [
    ("authorization", "Bearer s3cr3t-key"),
    ("idempotency-key", "s3cr3t-idempotency"),
    ("cookie", "session=s3cr3t-cookie"),
    ("x-api-key", "s3cr3t-api-key"),
    ("baggage", "s3cr3t-baggage=1"),
];

async fn exchanges(world: &World, strict: bool) {
    let mut otherwise = Vec::new();
    for way in ways() {
        let mut headers = HEADERS.to_vec();
        headers.extend([("x-conversation-id", "c"), ("x-generation", way.generation)]);
        world.upstream.reply_with(way.says.clone());
        let answer = world.gateway.chat(&way.body, &headers).await;
        let told = String::from_utf8_lossy(&answer.body);
        if strict && answer.status != way.status {
            otherwise.push(format!("{}: {answer}", way.what));
        }
        clean(way.what, &ours(&way, answer.status, &told), &[MARK]);
    }
    assert!(otherwise.is_empty(), "{otherwise:#?}");
    // A client that leaves, and one whose user moves on while the model thinks.
    world.upstream.reply_with(text().held());
    let mut headers = HEADERS.to_vec();
    headers.extend([("x-conversation-id", "c"), ("x-generation", "10")]);
    let body = question("s3cr3t-argument");
    tokio::select! {
        answer = world.gateway.chat(&body, &headers) => panic!("{answer}"),
        () = world.upstream.holds() => {}
    }
    world.gateway.counts(r#"exchanges_total{outcome="client_gone",route="chat"}"#).await;
    let moves_on = async {
        world.upstream.holds().await;
        let body = json!({ "generation": 12 });
        let moved = world.gateway.control("POST", "c/generation", &body).await;
        // Who only watches lets the answer down.
        world.upstream.go_on();
        moved
    };
    headers.extend([("x-generation", "11")]);
    headers.remove(headers.len() - 2);
    let (answer, (status, _)) = tokio::join!(world.gateway.chat(&body, &headers), moves_on);
    assert_eq!(status, 200);
    clean("an answer that nobody wants", &String::from_utf8_lossy(&answer.body), &[MARK]);
    world.upstream.reply_with(text());
    let huge = question(&format!("s3cr3t{}", "x".repeat(300_000)));
    let answer = world.gateway.chat(&huge, &HEADERS).await;
    assert_eq!(answer.status, 413);
    clean("a body too large", &String::from_utf8_lossy(&answer.body), &[MARK]);
}

async fn questions(gateway: &Gateway, strict: bool) {
    for body in [
        json!({"generation": 1, "tool_call_id": "call_a", "content": "another s3cr3t"}),
        json!({"generation": "s3cr3t", "tool_call_id": "call_a", "content": "s3cr3t"}),
        json!({"generation": 1, "tool_call_id": "call_a", "content": {"s3cr3t": 1}}),
        json!({"generation": 1, "tool_call_id": "call_nobody", "content": "s3cr3t"}),
        json!({"generation": 1, "tool_call_id": "call_a", "text": "s3cr3t"}),
        json!("s3cr3t"),
    ] {
        let (status, told) = gateway.control("POST", "c/results", &body).await;
        // What is accepted comes back as the message to send on.
        let told = if status == 200 { String::new() } else { told.to_string() };
        assert!(status >= 400 || !strict, "{told}");
        clean("the control API", &told, &[MARK]);
    }
    let generation = json!({ "generation": "s3cr3t" });
    let (status, told) = gateway.control("POST", "c/generation", &generation).await;
    assert_eq!(status, 400);
    clean("the control API", &told.to_string(), &[MARK]);
}

/// The console's list, once it has the conversation, and each conversation in it.
async fn pages(gateway: &Gateway) -> String {
    let mut told = String::new();
    until("the console lists nothing", async || {
        told = gateway.admin("/admin/v1/conversations").await;
        told.contains("\"name\":\"c\"")
    })
    .await;
    let list: Value = serde_json::from_str(&told).unwrap();
    let rows = list["rows"].as_array().unwrap();
    assert!(!rows.is_empty());
    for row in rows {
        let path = format!("/admin/v1/conversations/{}", row["handle"].as_str().unwrap());
        let one = gateway.admin(&path).await;
        assert!(one.contains("exchanges"), "{one}");
        told.push_str(&one);
    }
    told.push_str(&gateway.admin("/admin/v1/overview").await);
    told.push_str(&gateway.admin("/console").await);
    told
}

/// What `tigertally explain` makes of every exchange of a record.
fn explained(file: &Path) -> String {
    let mut ids: Vec<String> = Vec::new();
    for line in read(&[file]) {
        let own = line["exchange"].as_str().map(str::to_owned);
        let within = line["exchanges"].as_array().into_iter().flatten();
        ids.extend(
            own.into_iter().chain(within.filter_map(|one| Some(one["exchange"].as_str()?.into()))),
        );
    }
    assert!(ids.len() > 10, "{ids:?}");
    let explain = |id: &String| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tigertally"));
        let output = command.args(["explain", id, "--record"]).arg(file).output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    ids.iter().map(explain).collect()
}

/// All that lies in a folder, as text.
fn stored(folder: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap_or_default();
        text.push_str(&String::from_utf8_lossy(&bytes));
    }
    assert!(text.len() > 1000, "the store holds something");
    text
}

async fn nothing_of_it_is_anywhere(profile: &str) {
    let (collector, scratch) = (Collector::start().await, tempfile::tempdir().unwrap());
    let data = scratch.path().join("data");
    let world = World::with(&[
        ("RUST_LOG", "trace"),
        ("TIGERTALLY_GUARD__PROFILE", profile),
        ("TIGERTALLY_UPSTREAM__API_KEY", "s3cr3t-upstream-key"),
        ("TIGERTALLY_LIMITS__BODY_BYTES", "256 KiB"),
        ("TIGERTALLY_BUDGET__MODEL_CALLS", "99"),
        ("TIGERTALLY_TOOLS__GET_ORDER_STATUS__EFFECT", "write"),
        ("TIGERTALLY_TELEMETRY__OTLP_ENDPOINT", &collector.url),
        ("TIGERTALLY_STORE__KIND", "embedded"),
        ("TIGERTALLY_STORE__PATH", data.to_str().unwrap()),
    ])
    .await;
    exchanges(&world, profile == "standard").await;
    questions(&world.gateway, profile == "standard").await;
    let (_, told) = world.gateway.control("GET", "c", &Value::Null).await;
    let pages = pages(&world.gateway).await;
    // All that is under way has been told: the spans of the last one are there, and its line.
    let headers =
        [("x-conversation-id", "c"), ("x-generation", "13"), ("x-request-id", "the-last")];
    assert_eq!(world.gateway.chat(&question("s3cr3t-argument"), &headers).await.status, 200);
    until("no spans", async || collector.holds("the-last")).await;
    let record = || std::fs::read_to_string(&world.file).unwrap();
    until("no record", async || record().contains("the-last")).await;
    let log = world.gateway.log();
    assert!(log.contains("TRACE"), "the log is as chatty as it gets");
    for (place, written) in [
        ("record", record()),
        ("log", log),
        ("metrics", world.gateway.admin("/metrics").await),
        ("control API", told.to_string()),
        ("console", pages),
        ("explain", explained(&world.file)),
    ] {
        clean(place, &written, &[MARK]);
    }
    assert!(!collector.holds(MARK), "a span");
    drop(world);
    clean("store", &stored(&data), &[MARK]);
}

#[tokio::test]
async fn marked_secrets_reach_nothing_that_is_written_or_shown() {
    nothing_of_it_is_anywhere("standard").await;
}

#[tokio::test]
async fn nor_while_the_operator_only_watches() {
    nothing_of_it_is_anywhere("observe").await;
}
