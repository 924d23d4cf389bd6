//! Gateways in this process before one scripted upstream, each with a store of its own on one Redis.

use axum::body::Body;
use bytes::Bytes;
use http::Response;
use http_body::Frame;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tigertally::policy::{OnError, Policy, StoreKind};
use tigertally::proxy::Running;
use tigertally::store::redis::Address;
use tokio::sync::{Semaphore, mpsc, oneshot};

pub(crate) const ANSWER: &str = r#"{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"It is shipped."},"finish_reason":"stop"}]}"#;
const TOOLS: &str = r#""tools":[{"type":"function","function":{"name":"get_order","parameters":{"type":"object","properties":{"order_id":{"type":"string"}}}}}]"#;

/// What a test feeds a stream with.
pub(crate) type Feed = mpsc::UnboundedSender<Bytes>;

/// A model that calls a tool when it is asked, and answers when it has the result. One that is asked for a
/// stream gives the test the other end of it ([`Upstream::feeds`]). One whose question says `hold` waits for [`Upstream::held`].
#[derive(Clone)]
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    /// Answers to results so far.
    pub(crate) answered: Arc<Mutex<u64>>,
    streams: Arc<Mutex<HashMap<String, oneshot::Sender<Feed>>>>,
    /// Questions that are held, and leave for them to be answered.
    pub(crate) holding: Arc<Semaphore>,
    pub(crate) held: Arc<Semaphore>,
}

impl Upstream {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = Upstream {
            address: listener.local_addr().unwrap(),
            answered: Arc::default(),
            streams: Arc::default(),
            holding: Arc::new(Semaphore::new(0)),
            held: Arc::new(Semaphore::new(0)),
        };
        let state = upstream.clone();
        let chat = move |body: Bytes| {
            let state = state.clone();
            async move { state.chat(&body).await }
        };
        let router = axum::Router::new()
            .route("/v1/chat/completions", axum::routing::post(chat))
            .fallback(|| async { "{}" });
        tokio::spawn(async move { axum::serve(listener, router).await });
        upstream
    }

    /// The other end of the stream that this question will ask for.
    pub(crate) fn feeds(&self, question: &str) -> oneshot::Receiver<Feed> {
        let (tell, told) = oneshot::channel();
        self.streams.lock().insert(question.to_owned(), tell);
        told
    }

    async fn chat(self, body: &[u8]) -> Response<Body> {
        let request: Value = serde_json::from_slice(body).unwrap();
        if request["stream"] == true {
            let (tell, told) = mpsc::unbounded_channel();
            let question = request["messages"][0]["content"].as_str().unwrap();
            self.streams.lock().remove(question).unwrap().send(tell).unwrap();
            let mut response = Response::new(Body::new(Fed(told)));
            let media = "text/event-stream; charset=utf-8".parse().unwrap();
            response.headers_mut().insert("content-type", media);
            return response;
        }
        let question = request["messages"][0]["content"].as_str().unwrap();
        if question.contains("hold") {
            self.holding.add_permits(1);
            self.held.acquire().await.unwrap().forget();
        }
        let last = request["messages"].as_array().unwrap().last().unwrap();
        let answer = if last["role"] == "tool" {
            *self.answered.lock() += 1;
            ANSWER.to_owned()
        } else {
            proposal(question)
        };
        let mut response = Response::new(Body::from(answer));
        response.headers_mut().insert("content-type", "application/json".parse().unwrap());
        response
    }
}

struct Fed(mpsc::UnboundedReceiver<Bytes>);

impl http_body::Body for Fed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// The gateways.
pub(crate) struct Fleet {
    pub(crate) upstream: Upstream,
    pub(crate) gateways: Vec<Running>,
    pub(crate) client: reqwest::Client,
}

/// What a client got.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) retry_after: bool,
    pub(crate) notes: String,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or("-")
    }
}

impl Fleet {
    pub(crate) async fn start(url: &str, size: usize) -> Self {
        Self::with(url, size, OnError::Closed).await
    }

    pub(crate) async fn with(url: &str, size: usize, on_error: OnError) -> Self {
        let upstream = Upstream::start().await;
        let mut gateways = Vec::new();
        for _ in 0..size {
            let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
            let mut policy = Policy { listen: loopback, ..Policy::default() };
            policy.admin.listen = loopback;
            policy.upstream.url = format!("http://{}", upstream.address).parse().unwrap();
            policy.store = StoreKind::Redis {
                address: Box::new(Address::parse(url).unwrap()),
                prefix: "tigertally".to_owned(),
                key_file: None,
            };
            policy.store_on_error = on_error;
            gateways.push(tigertally::cli::serve::start(policy).await.unwrap());
        }
        let client = reqwest::Client::builder().timeout(Duration::from_secs(60)).build().unwrap();
        Fleet { upstream, gateways, client }
    }

    /// Sends a chat request of generation 1 to one gateway.
    pub(crate) async fn chat(&self, gateway: usize, conversation: &str, body: &str) -> Answer {
        let request = self.request(gateway, conversation, body);
        read(request.send().await.unwrap()).await
    }

    pub(crate) fn request(
        &self,
        gateway: usize,
        conversation: &str,
        body: &str,
    ) -> reqwest::RequestBuilder {
        let address = self.gateways[gateway].client_addr;
        let mut request = self
            .client
            .post(format!("http://{address}/v1/chat/completions"))
            .header("content-type", "application/json")
            .body(body.to_owned());
        if !conversation.is_empty() {
            request = request.header("x-conversation-id", conversation).header("x-generation", 1);
        }
        request
    }

    /// Advances a conversation by the control API of one gateway.
    pub(crate) async fn advance(&self, gateway: usize, conversation: &str) -> Answer {
        let address = self.gateways[gateway].client_addr;
        let url = format!("http://{address}/guard/v1/conversations/{conversation}/generation");
        let request = self.client.post(url).header("content-type", "application/json").body("{}");
        read(request.send().await.unwrap()).await
    }

    /// The status of `/readyz`.
    pub(crate) async fn ready(&self, gateway: usize) -> u16 {
        let url = format!("http://{}/readyz", self.gateways[gateway].admin_addr);
        self.client.get(url).send().await.unwrap().status().as_u16()
    }
}

async fn read(response: reqwest::Response) -> Answer {
    let status = response.status().as_u16();
    let retry_after = response.headers().contains_key("retry-after");
    let notes = response.headers().get("x-tigertally-notes");
    let notes = notes.map_or_else(String::new, |notes| notes.to_str().unwrap().to_owned());
    let body = response.json().await.unwrap_or(Value::Null);
    Answer { status, retry_after, notes, body }
}

/// What the model proposes to that question: the call's id holds it, so that it is told from others.
fn proposal(question: &str) -> String {
    format!(
        r#"{{"id":"x","choices":[{{"index":0,"message":{{"role":"assistant","content":"","tool_calls":[{}]}},"finish_reason":"tool_calls"}}]}}"#,
        call(question)
    )
}

fn call(question: &str) -> String {
    format!(
        r#"{{"id":"call_{question}","type":"function","function":{{"name":"get_order","arguments":"{{\"order_id\":\"A\"}}"}}}}"#
    )
}

/// A request that asks a question.
pub(crate) fn opening(question: &str, stream: bool) -> String {
    format!(
        r#"{{"model":"m","stream":{stream},"messages":[{{"role":"user","content":"{question}"}}],{TOOLS}}}"#
    )
}

/// A request that feeds the result back.
pub(crate) fn continuation(question: &str) -> String {
    format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"{question}"}},{{"role":"assistant","content":"","tool_calls":[{}]}},{{"role":"tool","tool_call_id":"call_{question}","content":"shipped"}}],{TOOLS}}}"#,
        call(question)
    )
}
