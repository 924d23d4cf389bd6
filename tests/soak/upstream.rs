//! The upstream: slow, scripted by the question itself, and on the record. Every event bears who asked
//! (`order`), which request it answers (`u`), its place (`seq`) and when it was sent (`at`).

mod script;

use crate::plan::{Act, Kind, Plan, Step};
use crate::world::{Call, World};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use script::Script;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};

/// How long "for long" is.
const LONG: Duration = Duration::from_millis(700);

pub(crate) struct Upstream {
    pub(crate) url: String,
    accepting: JoinSet<()>,
    connections: Arc<Mutex<Vec<AbortHandle>>>,
}

impl Upstream {
    pub(crate) async fn start(world: &Arc<World>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let connections = Arc::new(Mutex::new(Vec::new()));
        let server = Arc::new(Server { world: Arc::clone(world), rids: Mutex::default() });
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, server, Arc::clone(&connections)));
        Upstream { url, accepting, connections }
    }

    /// Closes every connection, idle ones too.
    pub(crate) fn close(mut self) {
        self.accepting.abort_all();
        self.connections.lock().iter().for_each(AbortHandle::abort);
    }
}

async fn accept(
    listener: TcpListener,
    server: Arc<Server>,
    connections: Arc<Mutex<Vec<AbortHandle>>>,
) {
    let mut running = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let server = Arc::clone(&server);
        let handle = running.spawn(async move {
            let _ = stream.set_nodelay(true);
            let service = service_fn(move |request| Arc::clone(&server).serve(request));
            let builder = auto::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
        let mut connections = connections.lock();
        connections.retain(|one| !one.is_finished());
        connections.push(handle);
        while running.try_join_next().is_some() {}
    }
}

/// What is known of a `rid`: the request that bears it, or that it was aborted before that came.
enum Rid {
    Works(u64),
    AbortedBefore,
}

struct Server {
    world: Arc<World>,
    rids: Mutex<HashMap<String, Rid>>,
}

impl Server {
    async fn serve(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Answer>, Infallible> {
        let (parts, body) = request.into_parts();
        let Ok(body) = body.collect().await else { return Ok(plain(400, "{}".into())) };
        let body = body.to_bytes();
        Ok(match parts.uri.path() {
            "/v1/chat/completions" => self.chat(&body).await,
            "/abort_request" => self.abort(&body),
            _ => plain(200, "{}".into()),
        })
    }

    fn abort(&self, body: &[u8]) -> Response<Answer> {
        let body: Value = serde_json::from_slice(body).unwrap();
        let rid = body["rid"].as_str().unwrap_or_default().to_owned();
        self.world.counts.aborts.fetch_add(1, Relaxed);
        let mut rids = self.rids.lock();
        match rids.get(&rid) {
            Some(Rid::Works(number)) => {
                self.world.change(*number, |work| work.aborted = true);
            }
            _ => {
                self.world.counts.aborts_before_request.fetch_add(1, Relaxed);
                rids.insert(rid, Rid::AbortedBefore);
            }
        }
        plain(200, "{}".into())
    }

    async fn chat(&self, body: &[u8]) -> Response<Answer> {
        let world = &self.world;
        let request: Value = serde_json::from_slice(body).unwrap();
        let Some((order, kind, step)) = asked(&request) else {
            // A trial, to warm up.
            let mut response = plain(200, sound_text("none", 0, 1, "ready"));
            response.headers_mut().insert("connection", "close".parse().unwrap());
            return response;
        };
        self.check(&request, &order);
        let (number, act) = world.arrives(&order, kind, step.act);
        let open = Open { world: Arc::clone(world), number };
        if let Some(rid) = request["rid"].as_str() {
            let before = self.rids.lock().insert(rid.to_owned(), Rid::Works(number));
            match before {
                None => {}
                Some(Rid::AbortedBefore) => {
                    world.change(number, |work| work.aborted = true);
                }
                Some(Rid::Works(_)) => world.violation(format!("{order}: one rid twice")),
            }
        } else {
            world.violation(format!("{order}: a request without rid"));
        }
        let step = Step { act, ..step };
        if act == Act::Silent {
            open.wait(LONG).await;
        }
        if act == Act::Status500 {
            open.complete();
            return plain(500, r#"{"error":{"message":"boom","code":"boom"}}"#.to_owned());
        }
        if request["stream"] == true {
            let script = Script::new(open, &order, kind, step);
            let mut response = Response::new(Answer::Stream(script));
            let media = "text/event-stream; charset=utf-8".parse().unwrap();
            response.headers_mut().insert("content-type", media);
            return response;
        }
        let stalled = if act == Act::Stalled { LONG } else { Duration::ZERO };
        open.wait(Duration::from_millis(step.pieces * step.gap) + stalled).await;
        whole(&open, &order, kind, step)
    }

    /// What must never come up, whatever the applications try.
    fn check(&self, request: &Value, order: &str) {
        let text = request["messages"].to_string();
        self.world.holds(!text.contains("LATE-"), || {
            format!("a late result reached the upstream in a request about {order}")
        });
        self.world.holds(request["late"] != true, || {
            format!("a request of an older generation reached the upstream: {order}")
        });
        if text.contains(crate::application::NOTICE_CODE) {
            self.world.counts.notices_in_history.fetch_add(1, Relaxed);
        }
    }
}

fn asked(request: &Value) -> Option<(String, Kind, Step)> {
    let messages = request["messages"].as_array()?;
    let last = messages.last()?["role"].as_str()?;
    let kind = if last == "tool" { Kind::Continuation } else { Kind::Opening };
    let question = messages.iter().rev().find(|message| message["role"] == "user")?;
    let (order, step) = Plan::asked(question["content"].as_str()?, kind)?;
    Some((order, kind, step))
}

/// A request that is worked on. It must end complete, or aborted by the proxy.
struct Open {
    world: Arc<World>,
    number: u64,
}

impl Open {
    fn aborted(&self) -> bool {
        self.world.change(self.number, |work| work.aborted).unwrap_or(false)
    }

    fn complete(&self) {
        self.world.change(self.number, |work| work.complete = true);
    }

    /// Works for so long; for ever once aborted.
    async fn wait(&self, span: Duration) {
        tokio::time::sleep(span).await;
        if self.aborted() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.world.open.fetch_sub(1, Relaxed);
        let sound = self.world.change(self.number, |work| work.complete || work.aborted);
        self.world.holds(sound == Some(true), || {
            let work = self.world.change(self.number, |work| work.clone());
            format!("its connection was closed and no abort came: {work:?}")
        });
    }
}

fn plain(status: u16, body: String) -> Response<Answer> {
    let mut response = Response::new(Answer::Whole(Some(Bytes::from(body))));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    response
}

fn sound_text(order: &str, number: u64, at: u64, content: &str) -> String {
    json!({
        "id": "x", "object": "chat.completion", "u": number, "at": at, "order": order, "choices": [{
            "index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop",
        }],
    })
    .to_string()
}

/// The call of an answer, as it is to be or as its act spoils it.
fn call(order: &str, number: u64, step: Step) -> Call {
    let repeats = crate::application::number_of(order) % 4 == 3;
    let id = if repeats { "functions.get_order:0".to_owned() } else { format!("call_{number}") };
    let note = "n".repeat(step.size);
    let arguments = json!({"order_id": order, "nonce": number, "note": note}).to_string();
    let cut = arguments.len() * 2 / 3;
    Call {
        id,
        name: if step.act == Act::BadName { "drop_table" } else { "get_order" }.to_owned(),
        arguments: match step.act {
            Act::BadArguments | Act::Cut => arguments[..cut].to_owned(),
            _ => arguments,
        },
    }
}

fn whole(open: &Open, order: &str, kind: Kind, step: Step) -> Response<Answer> {
    let (number, at) = (open.number, open.world.now());
    let calls = kind == Kind::Opening || step.act.fails();
    let body = if step.act == Act::Error {
        r#"{"error":{"message":"boom","code":"boom"}}"#.to_owned()
    } else if calls {
        let call = call(order, number, step);
        if !step.act.fails() {
            open.world.change(number, |work| work.call = Some(call.clone()));
        }
        let finish = if step.act == Act::Cut { "length" } else { "tool_calls" };
        json!({
            "id": "x", "object": "chat.completion", "u": number, "at": at, "order": order,
            "choices": [{"index": 0, "finish_reason": finish, "message": {
                "role": "assistant", "content": null, "tool_calls": [{
                    "id": call.id, "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }],
            }}],
        })
        .to_string()
    } else {
        sound_text(order, number, at, &format!("{order} is shipped."))
    };
    open.complete();
    plain(200, body)
}

/// An answer's body.
enum Answer {
    Whole(Option<Bytes>),
    Stream(Script),
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = match self.get_mut() {
            Answer::Whole(body) => body.take(),
            Answer::Stream(script) => ready!(script.poll_next(cx)),
        };
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
