//! The built program between a recording upstream and a client, for tests on real sockets.

use axum::body::Body;
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::fs::File;
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

const CHAT: &str = "/v1/chat/completions";

/// What the upstream answers.
#[derive(Clone, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    content_type: String,
    /// One write, and so one read at the other end, each.
    segments: Vec<Vec<u8>>,
}

impl Reply {
    pub(crate) fn new(status: u16, content_type: &str, segments: Vec<Vec<u8>>) -> Self {
        Reply { status, content_type: content_type.to_owned(), segments }
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
        let seen = Arc::clone(&state);
        let chat = move |body: Body| async move {
            let body = body.collect().await.unwrap().to_bytes();
            let mut state = seen.lock();
            state.bodies.push(body);
            let mut response =
                Response::new(Body::new(Segments(state.reply.segments.clone().into())));
            *response.status_mut() = StatusCode::from_u16(state.reply.status).unwrap();
            let content_type = state.reply.content_type.parse().unwrap();
            response.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
            response
        };
        let router = axum::Router::new()
            .route(CHAT, axum::routing::post(chat))
            .layer(axum::extract::DefaultBodyLimit::disable())
            .fallback(|| async { "" });
        #[expect(clippy::disallowed_methods, reason = "ends with the test's runtime")]
        tokio::spawn(async move { axum::serve(listener, router).await });
        Upstream { url, state }
    }

    pub(crate) fn reply_with(&self, reply: Reply) {
        self.state.lock().reply = reply;
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

/// `tigertally serve` in a process of its own; ended when dropped.
pub(crate) struct Gateway {
    url: String,
    child: Child,
    scratch: tempfile::TempDir,
    client: reqwest::Client,
}

impl Gateway {
    /// Starts it before `upstream` with these environment variables, and waits until it answers.
    pub(crate) async fn start(upstream: &Upstream, env: &[(&str, &str)]) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let listen = free_address();
        let log = File::create(scratch.path().join("log")).unwrap();
        let ours = std::env::vars_os().map(|(name, _)| name);
        let ours = ours.filter(|name| name.to_string_lossy().starts_with("TIGERTALLY_"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_tigertally"));
        command
            .args(["serve", "--upstream", &upstream.url, "--listen", &listen])
            .args(["--admin-listen", &free_address(), "--store", "memory:"])
            .current_dir(scratch.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        for name in ours {
            command.env_remove(name);
        }
        let child = command.envs(env.iter().copied()).spawn().unwrap();
        let url = format!("http://{listen}");
        let mut gateway = Gateway { url, child, scratch, client: reqwest::Client::new() };
        gateway.wait_until_it_answers().await;
        gateway
    }

    async fn wait_until_it_answers(&mut self) {
        let end = Instant::now() + Duration::from_secs(20);
        while !self.is_healthy().await {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "it ended with {ended:?}:\n{}", self.log());
            assert!(Instant::now() < end, "it does not answer:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn is_healthy(&self) -> bool {
        let answer = self.client.get(format!("{}/health", self.url)).send().await;
        answer.is_ok_and(|answer| answer.status() == 200)
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default()
    }

    /// Sends a chat request and reads its whole answer.
    pub(crate) async fn chat(&self, body: &[u8], headers: &[(&str, &str)]) -> Answer {
        let request = self.client.post(format!("{}{CHAT}", self.url));
        let mut request = request.timeout(Duration::from_secs(20)).body(body.to_vec());
        request = request.header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) => panic!("no answer: {error:?}\n{}", self.log()),
        };
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        // A body that breaks off is an answer, too: an empty one, which no check here takes.
        let body = answer.bytes().await.unwrap_or_default();
        Answer { status, headers, body }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
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

/// Decodes padded base64 (RFC 4648 section 4); the cases hold nothing else.
pub(crate) fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    let (mut held, mut bits) = (0u32, 0);
    for letter in text.bytes().filter(|letter| *letter != b'=') {
        let sextet = ALPHABET.iter().position(|known| *known == letter).expect("base64");
        held = (held << 6) | u32::try_from(sextet).unwrap();
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
            held &= (1 << bits) - 1;
        }
    }
    bytes
}
