//! A proxy in this process between a scripted upstream and a client, all on real sockets.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "ends with the test's runtime")]

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tigertally::policy::{Policy, StoreKind};
use tigertally::proxy::Running;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

pub(crate) const CHAT: &str = "/v1/chat/completions";

/// What the upstream saw, in order.
#[derive(Debug)]
pub(crate) enum Seen {
    Request {
        path: String,
        headers: HeaderMap,
        body: Bytes,
    },
    /// The connection of a chat request went away before its answer was complete.
    Closed,
    /// An answer went out to its end.
    Complete,
}

/// What the upstream answers to the next chat request.
pub(crate) enum Answer {
    Whole {
        status: u16,
        headers: Vec<(&'static str, &'static str)>,
        body: Bytes,
    },
    /// Each item is one write; the end of the channel is the end of the body.
    Stream(mpsc::UnboundedReceiver<Bytes>),
    /// Nothing, for ever.
    Silence,
}

pub(crate) fn json(body: &str) -> Answer {
    Answer::Whole {
        status: 200,
        headers: vec![("content-type", "application/json")],
        body: Bytes::copy_from_slice(body.as_bytes()),
    }
}

pub(crate) struct Upstream {
    pub(crate) addr: SocketAddr,
    answers: Arc<Mutex<VecDeque<Answer>>>,
    seen: mpsc::UnboundedReceiver<Seen>,
}

impl Upstream {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let answers = Arc::new(Mutex::new(VecDeque::new()));
        let (tell, seen) = mpsc::unbounded_channel();
        tokio::spawn(accept(listener, Arc::clone(&answers), tell));
        Upstream { addr, answers, seen }
    }

    pub(crate) fn will(&self, answer: Answer) {
        self.answers.lock().push_back(answer);
    }

    /// A stream that the test feeds.
    pub(crate) fn will_stream(&self) -> mpsc::UnboundedSender<Bytes> {
        let (tell, told) = mpsc::unbounded_channel();
        self.will(Answer::Stream(told));
        tell
    }

    pub(crate) async fn saw(&mut self) -> Seen {
        within(self.seen.recv()).await.unwrap()
    }

    /// The next thing seen must be a request.
    pub(crate) async fn saw_request(&mut self) -> (String, HeaderMap, Bytes) {
        match self.saw().await {
            Seen::Request { path, headers, body } => (path, headers, body),
            other => panic!("{other:?}"),
        }
    }
}

async fn accept(
    listener: TcpListener,
    answers: Arc<Mutex<VecDeque<Answer>>>,
    seen: mpsc::UnboundedSender<Seen>,
) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (answers, seen) = (Arc::clone(&answers), seen.clone());
        tokio::spawn(async move {
            let service =
                service_fn(move |request| serve(request, Arc::clone(&answers), seen.clone()));
            let builder = auto::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn serve(
    request: Request<Incoming>,
    answers: Arc<Mutex<VecDeque<Answer>>>,
    seen: mpsc::UnboundedSender<Seen>,
) -> Result<Response<Scripted>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let path = parts.uri.to_string();
    let chat = parts.uri.path() == CHAT;
    let _ = seen.send(Seen::Request { path, headers: parts.headers, body });
    if !chat {
        let done = Watch { seen: None };
        return Ok(Response::new(Scripted { whole: Some(Bytes::from("{}")), told: None, done }));
    }
    let mut done = Watch { seen: Some(seen) };
    let answer = answers.lock().pop_front().unwrap_or(Answer::Silence);
    match answer {
        Answer::Whole { status, headers, body } => {
            done.seen = None;
            let mut response = Response::new(Scripted { whole: Some(body), told: None, done });
            *response.status_mut() = status.try_into().unwrap();
            for (name, value) in headers {
                response.headers_mut().append(name, value.parse().unwrap());
            }
            Ok(response)
        }
        Answer::Stream(told) => {
            let mut response = Response::new(Scripted { whole: None, told: Some(told), done });
            let media = "text/event-stream; charset=utf-8".parse().unwrap();
            response.headers_mut().insert("content-type", media);
            Ok(response)
        }
        Answer::Silence => {
            std::future::pending::<()>().await;
            drop(done);
            unreachable!()
        }
    }
}

/// Tells how an answer ended.
struct Watch {
    seen: Option<mpsc::UnboundedSender<Seen>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(seen) = self.seen.take() {
            let _ = seen.send(Seen::Closed);
        }
    }
}

struct Scripted {
    whole: Option<Bytes>,
    told: Option<mpsc::UnboundedReceiver<Bytes>>,
    done: Watch,
}

impl Body for Scripted {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(whole) = self.whole.take() {
            return Poll::Ready(Some(Ok(Frame::data(whole))));
        }
        let Some(told) = &mut self.told else { return Poll::Ready(None) };
        let next = std::task::ready!(told.poll_recv(cx));
        if next.is_none()
            && let Some(seen) = self.done.seen.take()
        {
            let _ = seen.send(Seen::Complete);
        }
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match &self.whole {
            Some(whole) => http_body::SizeHint::with_exact(whole.len() as u64),
            None => http_body::SizeHint::default(),
        }
    }
}

/// A policy for tests: free ports, that upstream.
pub(crate) fn policy(upstream: &Upstream) -> Policy {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut policy = Policy { listen: loopback, store: StoreKind::Memory, ..Policy::default() };
    policy.admin.listen = loopback;
    policy.upstream.url = format!("http://{}", upstream.addr).parse().unwrap();
    policy.limits.drain_timeout = Duration::from_secs(5);
    policy
}

pub(crate) async fn guard(policy: Policy) -> Running {
    tigertally::cli::serve::start(policy).await.unwrap()
}

pub(crate) type HttpClient = Client<HttpConnector, Full<Bytes>>;

pub(crate) fn client() -> HttpClient {
    Client::builder(TokioExecutor::new()).build_http()
}

pub(crate) fn chat(
    guard: &Running,
    headers: &[(&'static str, &str)],
    body: impl Into<Bytes>,
) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body.into()));
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = format!("http://{}{CHAT}", guard.client_addr).parse().unwrap();
    request.headers_mut().insert("content-type", "application/json".parse().unwrap());
    for (name, value) in headers {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    request
}

pub(crate) async fn send(client: &HttpClient, request: Request<Full<Bytes>>) -> Response<Incoming> {
    within(client.request(request)).await.unwrap()
}

pub(crate) async fn text(response: Response<Incoming>) -> String {
    let body = within(response.into_body().collect()).await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

/// The next bytes of a stream, or `None` at its end.
pub(crate) async fn next(body: &mut Incoming) -> Option<Bytes> {
    loop {
        match within(body.frame()).await {
            None => return None,
            Some(frame) => {
                if let Ok(data) = frame.unwrap().into_data()
                    && !data.is_empty()
                {
                    return Some(data);
                }
            }
        }
    }
}

pub(crate) fn error(body: &str) -> serde_json::Value {
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    body["error"].clone()
}

/// A bound on waiting, so that a failure is told and does not hang.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), future).await.unwrap()
}

/// One stream event with this delta, and perhaps a finish.
pub(crate) fn event(delta: &str, finish: Option<&str>) -> String {
    let finish = finish.map_or("null".to_owned(), |reason| format!("\"{reason}\""));
    format!(
        "data: {{\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
    )
}

/// A piece of a call.
pub(crate) fn fragment(id: Option<&str>, name: Option<&str>, arguments: &str) -> String {
    let quoted = |text: Option<&str>| serde_json::to_string(&text).unwrap();
    event(
        &format!(
            "{{\"tool_calls\":[{{\"index\":0,\"id\":{},\"type\":\"function\",\"function\":{{\"name\":{},\"arguments\":{}}}}}]}}",
            quoted(id),
            quoted(name),
            quoted(Some(arguments)),
        ),
        None,
    )
}

pub(crate) const TOOLS: &str = r#""tools":[{"type":"function","function":{"name":"get_order","parameters":{"type":"object","properties":{"order_id":{"type":"string"}},"required":["order_id"]}}}]"#;

/// A request that asks for a stream and offers one tool.
pub(crate) fn ask(stream: bool) -> String {
    format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"Where is A?"}}],"stream":{stream},{TOOLS}}}"#
    )
}
