//! Traces of the built program, as OpenTelemetry's own types read them off a collector's socket.

#![expect(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod collector;

#[expect(dead_code, reason = "what other tests need")]
#[path = "../replicas/process.rs"]
mod process;

use axum::body::Body;
use bytes::Bytes;
use collector::{Collector, Told};
use http::{HeaderMap, Response};
use parking_lot::Mutex;
use process::Process;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

const SECRET: &str = "hunter2-marker";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A model that says what it is told to, and keeps the headers that it got.
#[derive(Clone, Default)]
struct Model {
    url: String,
    says: Arc<Mutex<VecDeque<(&'static str, String)>>>,
    headers: Arc<Mutex<Vec<HeaderMap>>>,
}

impl Model {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let model = Model { url, ..Model::default() };
        let state = model.clone();
        let chat = move |headers: HeaderMap, _: Bytes| {
            let state = state.clone();
            async move {
                state.headers.lock().push(headers);
                let (media, body) = state.says.lock().pop_front().unwrap();
                let mut response = Response::new(Body::from(body));
                response.headers_mut().insert("content-type", media.parse().unwrap());
                response
            }
        };
        let router = axum::Router::new()
            .route("/v1/chat/completions", axum::routing::post(chat))
            .fallback(|| async { "{}" });
        tokio::spawn(async move { axum::serve(listener, router).await });
        model
    }

    fn answers(&self, message: Value, finish: &str) {
        let body = json!({
            "id": "chatcmpl-1", "model": "served-model",
            "choices": [{ "index": 0, "message": message, "finish_reason": finish }],
            "usage": { "prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18 },
        });
        self.says.lock().push_back(("application/json", body.to_string()));
    }

    fn proposes(&self) {
        self.answers(
            json!({ "role": "assistant", "content": null, "tool_calls": [call()] }),
            "tool_calls",
        );
    }

    fn ends(&self) {
        self.answers(json!({ "role": "assistant", "content": SECRET }), "stop");
    }

    /// The `traceparent` of the last request that it got.
    fn parent(&self) -> Option<String> {
        let headers = self.headers.lock().pop().unwrap();
        headers.get("traceparent").map(|value| value.to_str().unwrap().to_owned())
    }
}

fn call() -> Value {
    let arguments = json!({ "order_id": SECRET }).to_string();
    json!({ "id": "call_1", "type": "function", "function": { "name": "get_order", "arguments": arguments } })
}

fn request(messages: &[Value]) -> String {
    let tool = json!({ "type": "function", "function": { "name": "get_order", "parameters": { "type": "object" } } });
    json!({ "model": "asked-model", "messages": messages, "tools": [tool] }).to_string()
}

fn question() -> Value {
    json!({ "role": "user", "content": SECRET })
}

fn continuation() -> String {
    request(&[
        question(),
        json!({ "role": "assistant", "content": null, "tool_calls": [call()] }),
        json!({ "role": "tool", "tool_call_id": "call_1", "content": SECRET }),
    ])
}

async fn guard(model: &Model, collector: &str) -> Process {
    let config = format!("[tools.get_order]\n[telemetry]\notlp_endpoint = \"{collector}\"\n");
    Process::start(&model.url, "memory:", &config).await
}

fn tracked(traceparent: Option<&str>) -> Vec<(&str, &str)> {
    let mut headers = vec![("x-conversation-id", "conv-9"), ("x-generation", "4")];
    headers.extend(traceparent.map(|value| ("traceparent", value)));
    headers
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_one_trace_below_its_clients() {
    let (model, collector) = (Model::start().await, Collector::start().await);
    let process = guard(&model, &collector.url).await;
    model.proposes();
    let got = process.chat(&tracked(Some(PARENT)), &request(&[question()])).await;
    assert_eq!(got.status, 200, "{got:?}");
    let first_up = model.parent().unwrap();
    model.ends();
    let got = process.chat(&tracked(Some(PARENT)), &continuation()).await;
    assert_eq!(got.status, 200, "{got:?}");
    let second_up = model.parent().unwrap();

    let spans = collector.spans(3).await;
    assert_eq!(collector.service(), "tigertally");
    let chats: Vec<&Told> = spans.iter().filter(|span| span.name == "chat asked-model").collect();
    let [first, second] = chats.as_slice() else { panic!("{spans:#?}") };
    for (chat, up) in [(first, first_up), (second, second_up)] {
        assert_eq!(chat.parent, "00f067aa0ba902b7", "the client's span");
        assert_eq!(up, format!("00-{TRACE}-{}-01", chat.span), "the upstream's parent is our span");
        assert_eq!(chat.kind, 3);
        for (key, value) in [
            ("gen_ai.operation.name", "chat"),
            ("gen_ai.request.model", "asked-model"),
            ("gen_ai.conversation.id", "conv-9"),
            ("gen_ai.response.id", "chatcmpl-1"),
            ("gen_ai.response.model", "served-model"),
            ("gen_ai.usage.input_tokens", "11"),
            ("gen_ai.usage.output_tokens", "7"),
            ("http.response.status_code", "200"),
            ("tigertally.outcome", "delivered"),
            ("tigertally.generation", "4"),
            ("tigertally.attempt", "1"),
        ] {
            assert_eq!(chat.attribute(key), value, "{key} of {chat:#?}");
        }
        assert!(chat.attribute("tigertally.rid").len() == 32, "{chat:#?}");
        assert_eq!(chat.attribute("error.type"), "");
        assert_eq!((chat.status, chat.events.len()), (0, 0));
    }
    assert_eq!(first.attribute("gen_ai.response.finish_reasons"), "tool_calls");
    assert_eq!(second.attribute("gen_ai.response.finish_reasons"), "stop");
    assert_eq!(second.links, [(TRACE.to_owned(), first.span.clone())]);
    let tool = spans.iter().find(|span| span.name == "execute_tool get_order").unwrap();
    assert_eq!((&tool.parent, tool.kind), (&first.span, 1));
    for (key, value) in [
        ("gen_ai.operation.name", "execute_tool"),
        ("gen_ai.tool.name", "get_order"),
        ("gen_ai.tool.call.id", "call_1"),
        ("gen_ai.tool.type", "function"),
    ] {
        assert_eq!(tool.attribute(key), value);
    }
    assert!(tool.began >= first.began && tool.ended <= second.ended);
    assert!(spans.iter().all(|span| span.trace == TRACE && span.began <= span.ended));
    assert!(!collector.holds(SECRET), "no contents");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_client_s_trace_a_task_has_its_own() {
    let (model, collector) = (Model::start().await, Collector::start().await);
    let process = guard(&model, &collector.url).await;
    model.proposes();
    let malformed = "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01";
    process.chat(&tracked(Some(malformed)), &request(&[question()])).await;
    model.ends();
    process.chat(&tracked(None), &continuation()).await;
    let up = model.parent().unwrap();
    let spans = collector.spans(3).await;
    let trace = &spans[0].trace;
    assert!(spans.iter().all(|span| span.trace == *trace), "{spans:#?}");
    assert!(up.starts_with(&format!("00-{trace}-")) && up.ends_with("-01"), "{up}");
    let roots = spans.iter().filter(|span| span.parent.is_empty()).count();
    assert_eq!(roots, 2, "the tool's wait hangs below the first");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_told_with_its_code_and_its_place() {
    let (model, collector) = (Model::start().await, Collector::start().await);
    let process = guard(&model, &collector.url).await;
    let orphan = json!({ "role": "tool", "tool_call_id": "call_9", "content": SECRET });
    let got = process.chat(&tracked(Some(PARENT)), &request(&[question(), orphan])).await;
    assert_eq!(got.status, 400);
    model.says.lock().push_back(("text/event-stream", [
        json!({ "id": "s1", "model": "served-model", "choices": [{ "index": 0, "delta": { "content": SECRET } }] }),
        json!({ "id": "s1", "choices": [{ "index": 0, "delta": {}, "finish_reason": "length" }] }),
        json!({ "id": "s1", "choices": [], "usage": { "prompt_tokens": 5, "completion_tokens": 6 } }),
    ].map(|event| format!("data: {event}\n\n")).concat() + "data: [DONE]\n\n"));
    let body = request(&[question()]).replacen('{', "{\"stream\":true,", 1);
    process.chat(&[("traceparent", PARENT)], &body).await;

    let spans = collector.spans(2).await;
    let of = |outcome: &str| {
        spans.iter().find(|span| span.attribute("tigertally.outcome") == outcome).unwrap()
    };
    let refused = of("refused");
    assert_eq!((refused.status, refused.attribute("error.type")), (2, "orphan_result".to_owned()));
    assert_eq!(
        refused.events[0],
        [
            ("tigertally.code".to_owned(), "orphan_result".to_owned()),
            ("tigertally.param".to_owned(), "messages.[1].role".to_owned()),
            ("tigertally.verdict".to_owned(), "refuse".to_owned()),
        ]
        .into(),
        "{refused:#?}"
    );
    let streamed = of("delivered");
    for (key, value) in [
        ("gen_ai.request.stream", "true"),
        ("gen_ai.response.finish_reasons", "length"),
        ("gen_ai.response.model", "served-model"),
        ("gen_ai.usage.output_tokens", "6"),
        ("gen_ai.conversation.id", ""),
    ] {
        assert_eq!(streamed.attribute(key), value, "{key} of {streamed:#?}");
    }
    assert!(
        streamed.attribute("gen_ai.response.time_to_first_chunk").parse::<f64>().unwrap() < 10.0
    );
    assert!(!collector.holds(SECRET), "no contents");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_off_or_not_sampled_passes_as_it_came() {
    let (model, collector) = (Model::start().await, Collector::start().await);
    let on = guard(&model, &collector.url).await;
    let off = Process::start(&model.url, "memory:", "").await;
    let unsampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    for (process, sent) in [
        (&off, Some(PARENT)),
        (&off, Some("anything at all")),
        (&off, None),
        (&on, Some(unsampled)),
    ] {
        model.ends();
        assert_eq!(process.chat(&tracked(sent), &request(&[question()])).await.status, 200);
        assert_eq!(model.parent().as_deref(), sent);
    }
    // The next span is the first.
    model.ends();
    on.chat(&[("traceparent", PARENT)], &request(&[question()])).await;
    let spans = collector.spans(1).await;
    assert_eq!(spans[0].attribute("gen_ai.conversation.id"), "", "{spans:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_gone_delays_nobody_and_is_counted() {
    let model = Model::start().await;
    let process = guard(&model, "http://127.0.0.1:1").await;
    model.ends();
    let got = process.chat(&[], &request(&[question()])).await;
    assert_eq!(got.status, 200);
    let failed = r#"spans_total{outcome="failed"}"#;
    process::until(&[&process], failed, 1.0).await;
    assert_eq!(process.metric(r#"spans_total{outcome="exported"}"#).await, 0.0);

    // One that takes nothing and never answers: exchanges go on.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let process = guard(&model, &url).await;
    let all = async {
        for _ in 0..50 {
            model.ends();
            assert_eq!(process.chat(&[], &request(&[question()])).await.status, 200);
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all).await.unwrap();
}
