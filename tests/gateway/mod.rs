//! The built program between an upstream that records and a client.

use crate::program::Program;
use axum::body::Body;
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

const CHAT: &str = "/v1/chat/completions";

/// What the upstream answers.
#[derive(Clone, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    content_type: String,
    /// One write, and so one read at the other end, each.
    segments: Vec<Vec<u8>>,
    /// Whether it waits until the upstream is told to go on.
    held: bool,
}

impl Reply {
    pub(crate) fn new(status: u16, content_type: &str, segments: Vec<Vec<u8>>) -> Self {
        Reply { status, content_type: content_type.to_owned(), segments, held: false }
    }

    /// The same, but not before [`Upstream::go_on`].
    pub(crate) fn held(self) -> Self {
        Reply { held: true, ..self }
    }

    pub(crate) fn json(status: u16, body: &str) -> Self {
        Reply::new(status, "application/json", vec![body.into()])
    }

    pub(crate) fn stream(segments: Vec<Vec<u8>>) -> Self {
        Reply::new(200, "text/event-stream; charset=utf-8", segments)
    }

    /// A text, in the way in which `request` wants it.
    pub(crate) fn plain(request: &[u8]) -> Self {
        let request: Value = serde_json::from_slice(request).unwrap_or(Value::Null);
        if request["stream"] == true {
            let delta = r#"data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"It is shipped."},"finish_reason":"stop"}]}"#;
            return Reply::stream(vec![format!("{delta}\n\ndata: [DONE]\n\n").into()]);
        }
        Reply::json(
            200,
            r#"{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"It is shipped."},"finish_reason":"stop"}]}"#,
        )
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        self.segments.concat()
    }
}

/// An upstream that gives the reply it was told to and keeps the bodies that it got.
pub(crate) struct Upstream {
    pub(crate) url: String,
    state: Arc<Mutex<State>>,
    go: Arc<Notify>,
    held: Arc<Notify>,
}

#[derive(Default)]
struct State {
    reply: Reply,
    bodies: Vec<Bytes>,
}

impl Upstream {
    pub(crate) async fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (go, held) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (seen, may_go, holds) = (Arc::clone(&state), Arc::clone(&go), Arc::clone(&held));
        let chat = move |body: Body| async move {
            let body = body.collect().await.unwrap().to_bytes();
            let reply = {
                let mut state = seen.lock();
                state.bodies.push(body);
                state.reply.clone()
            };
            if reply.held {
                holds.notify_one();
                may_go.notified().await;
            }
            let mut response = Response::new(Body::new(Segments(reply.segments.into())));
            *response.status_mut() = StatusCode::from_u16(reply.status).unwrap();
            let content_type = reply.content_type.parse().unwrap();
            response.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
            response
        };
        let router = axum::Router::new()
            .route(CHAT, axum::routing::post(chat))
            .layer(axum::extract::DefaultBodyLimit::disable())
            .fallback(|| async { "" });
        #[expect(clippy::disallowed_methods, reason = "ends with the test's runtime")]
        tokio::spawn(async move { axum::serve(listener, router).await });
        Upstream { url, state, go, held }
    }

    pub(crate) fn reply_with(&self, reply: Reply) {
        self.state.lock().reply = reply;
    }

    /// Waits until a reply is held.
    pub(crate) async fn holds(&self) {
        self.held.notified().await;
    }

    /// One held reply goes down.
    pub(crate) fn go_on(&self) {
        self.go.notify_one();
    }

    pub(crate) fn reply(&self) -> Reply {
        self.state.lock().reply.clone()
    }

    /// The chat bodies that came since the last call.
    pub(crate) fn take_bodies(&self) -> Vec<Bytes> {
        std::mem::take(&mut self.state.lock().bodies)
    }
}

/// A body of separate frames, the first of which does not wait for the last.
struct Segments(VecDeque<Vec<u8>>);

impl http_body::Body for Segments {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|segment| Ok(Frame::data(segment.into()))))
    }
}

/// The program, and a client of it.
pub(crate) struct Gateway {
    program: Program,
    client: reqwest::Client,
}

impl Gateway {
    /// Starts it before `upstream` with these environment variables, and waits until it answers.
    pub(crate) async fn start(upstream: &Upstream, env: &[(&str, &str)]) -> Self {
        let client = reqwest::Client::new();
        let answers = async |url: &str| is_healthy(&client, url).await;
        let program = Program::start(&upstream.url, env, answers).await;
        Gateway { program, client }
    }

    pub(crate) async fn is_healthy(&self) -> bool {
        is_healthy(&self.client, &self.program.url).await
    }

    /// The number of each of its metrics' series, without `tigertally_`.
    pub(crate) async fn metrics(&self) -> BTreeMap<String, u64> {
        let answer = self.client.get(format!("{}/metrics", self.program.admin)).send().await;
        let text = answer.unwrap().text().await.unwrap();
        let series = text.lines().filter_map(|line| {
            let (name, value) = line.strip_prefix("tigertally_")?.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        series.collect()
    }

    /// Waits until a series of its metrics is above zero.
    pub(crate) async fn counts(&self, series: &str) {
        let end = Instant::now() + Duration::from_secs(20);
        while self.metrics().await.get(series).is_none_or(|count| *count == 0) {
            assert!(Instant::now() < end, "no {series}:\n{}", self.program.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sends a chat request and reads its whole answer.
    pub(crate) async fn chat(&self, body: &[u8], headers: &[(&str, &str)]) -> Answer {
        let request = self.client.post(format!("{}{CHAT}", self.program.url));
        let mut request = request.timeout(Duration::from_secs(20)).body(body.to_vec());
        request = request.header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) => panic!("no answer: {error:?}\n{}", self.program.log()),
        };
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        // A body that breaks off is an answer, too: an empty one, which no check here takes.
        let body = answer.bytes().await.unwrap_or_default();
        Answer { status, headers, body }
    }
}

impl Gateway {
    /// What it has written so far.
    pub(crate) fn log(&self) -> String {
        self.program.log()
    }

    /// What the admin port says.
    pub(crate) async fn admin(&self, path: &str) -> String {
        let answer = self.client.get(format!("{}{path}", self.program.admin)).send().await;
        answer.unwrap().text().await.unwrap()
    }

    /// Asks the control API about a conversation.
    pub(crate) async fn control(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let method = method.parse().unwrap();
        let url = format!("{}/guard/v1/conversations/{path}", self.program.url);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = self.client.request(method, url).body(body).send().await.unwrap();
        let status = answer.status().as_u16();
        (status, serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap())
    }
}

async fn is_healthy(client: &reqwest::Client, url: &str) -> bool {
    let answer = client.get(format!("{url}/health")).send().await;
    answer.is_ok_and(|answer| answer.status() == 200)
}

/// What the client got.
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: http::HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.header("content-type").starts_with("text/event-stream")
    }

    /// The payloads of the stream's events; `null` for one that is not JSON.
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = String::from_utf8_lossy(&self.body);
        let payloads = text.lines().filter_map(|line| line.strip_prefix("data:"));
        payloads.map(|payload| serde_json::from_str(payload).unwrap_or(Value::Null)).collect()
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body: String = String::from_utf8_lossy(&self.body).chars().take(400).collect();
        write!(f, "{} {body}", self.status)
    }
}
