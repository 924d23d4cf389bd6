//! A model that says what it is told to, and keeps what it was asked.

use axum::body::Body;
use bytes::Bytes;
use http::Response;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

pub(crate) const ANSWER: &str = r#"{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"Done."},"finish_reason":"stop"}]}"#;

/// One answer.
pub(crate) enum Says {
    Whole(String),
    Events(String),
    /// Nothing, for ever.
    Nothing,
}

#[derive(Clone, Default)]
pub(crate) struct Model {
    pub(crate) url: String,
    says: Arc<Mutex<VecDeque<Says>>>,
    asked: Arc<Mutex<Vec<Bytes>>>,
    changed: Arc<Notify>,
}

impl Model {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let model = Model { url, ..Model::default() };
        let state = model.clone();
        let chat = move |body: Bytes| {
            let state = state.clone();
            async move { state.answer(body).await }
        };
        let router = axum::Router::new()
            .route("/v1/chat/completions", axum::routing::post(chat))
            .fallback(|| async { "{}" });
        tokio::spawn(async move { axum::serve(listener, router).await });
        model
    }

    pub(crate) fn will(&self, says: Says) {
        self.says.lock().push_back(says);
    }

    /// What it was asked since the last call.
    pub(crate) fn take(&self) -> Vec<Bytes> {
        std::mem::take(&mut self.asked.lock())
    }

    /// Waits until it was asked so often since the last [`Model::take`].
    pub(crate) async fn asked(&self, times: usize) {
        let wait = async {
            loop {
                let changed = self.changed.notified();
                if self.asked.lock().len() >= times {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), wait).await.unwrap();
    }

    async fn answer(self, body: Bytes) -> Response<Body> {
        self.asked.lock().push(body);
        self.changed.notify_waiters();
        let says = self.says.lock().pop_front();
        let (media, body) = match says.unwrap_or_else(|| Says::Whole(ANSWER.to_owned())) {
            Says::Whole(body) => ("application/json", body),
            Says::Events(body) => ("text/event-stream", body),
            Says::Nothing => std::future::pending().await,
        };
        let mut response = Response::new(Body::from(body));
        response.headers_mut().insert("content-type", media.parse().unwrap());
        response
    }
}

/// A call, as an assistant message holds it.
pub(crate) fn call(id: &str, tool: &str, order: &str) -> Value {
    let arguments = json!({ "order_id": order }).to_string();
    json!({ "id": id, "type": "function", "function": { "name": tool, "arguments": arguments } })
}

/// An answer that proposes these calls.
pub(crate) fn proposes(calls: &[Value]) -> Says {
    let message = json!({ "role": "assistant", "content": null, "tool_calls": calls });
    let choice = json!({ "index": 0, "message": message, "finish_reason": "tool_calls" });
    Says::Whole(json!({ "id": "x", "choices": [choice] }).to_string())
}

/// The same as a stream.
pub(crate) fn streams(mut call: Value) -> Says {
    call["index"] = 0.into();
    let event = |delta: Value, finish: Value| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        format!("data: {}\n\n", json!({ "id": "x", "choices": [choice] }))
    };
    let head = event(json!({ "role": "assistant", "content": "Let me see. " }), Value::Null);
    let calls = event(json!({ "tool_calls": [call] }), Value::Null);
    let end = event(json!({}), "tool_calls".into());
    Says::Events(format!("{head}{calls}{end}data: [DONE]\n\n"))
}

/// A request of these messages.
pub(crate) fn request(messages: &str, stream: bool) -> String {
    let tool = |name| json!({ "type": "function", "function": { "name": name, "parameters": { "type": "object" } } });
    let tools = json!([tool("get_order"), tool("refund_order")]);
    format!(
        "{{\"model\":\"m\",\"stream\":{stream},\n \"messages\": [{messages}] ,\"tools\":{tools}}}"
    )
}

pub(crate) fn user(words: &str) -> String {
    json!({ "role": "user", "content": words }).to_string()
}

pub(crate) fn assistant(calls: &[Value]) -> String {
    json!({ "role": "assistant", "content": null, "tool_calls": calls }).to_string()
}
