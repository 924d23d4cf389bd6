//! Two replicas are replaced one after the other while agents stream through both: `/readyz` fails first, streams come
//! to their end, and what one replica decided the other knows.
//!
//! The agents stand behind what stands in front of replicas: it asks `/readyz`, sends work where that is well, and
//! where a replica says that it takes none, or is not there, the agent asks again elsewhere, as clients do. An
//! answer that has begun is never asked for again: it has to be whole.

use super::process::Process;
use super::server::{Server, signal};
use axum::body::Body;
use bytes::Bytes;
use http::Response;
use http_body::Frame;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

const AGENTS: usize = 6;
const DONE: &str = "data: [DONE]\n\n";
/// Between two events of the model's.
const PACE: Duration = Duration::from_millis(20);

/// A model that streams: a call when it is asked, an answer when it has the result. One that is asked to `hold`
/// begins, and goes on when the test lets it.
#[derive(Clone, Default)]
struct Model {
    url: String,
    held: Arc<Mutex<Vec<mpsc::Sender<Bytes>>>>,
}

fn event(delta: Value, finish: Value) -> Bytes {
    let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
    Bytes::from(format!("data: {}\n\n", json!({ "id": "x", "choices": [choice] })))
}

fn end() -> [Bytes; 2] {
    [event(json!({}), "stop".into()), Bytes::from(DONE)]
}

struct Events(mpsc::Receiver<Bytes>);

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

impl Model {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let model = Model { url, ..Model::default() };
        let state = model.clone();
        let chat = move |body: Bytes| {
            let state = state.clone();
            async move { state.answer(&body).await }
        };
        let router = axum::Router::new()
            .route("/v1/chat/completions", axum::routing::post(chat))
            .fallback(|| async { "{}" });
        tokio::spawn(async move { axum::serve(listener, router).await });
        model
    }

    async fn answer(self, body: &[u8]) -> Response<Body> {
        let asked: Value = serde_json::from_slice(body).unwrap();
        let last = asked["messages"].as_array().unwrap().last().unwrap().clone();
        let (tell, told) = mpsc::channel(64);
        if last["content"] == "hold" {
            tell.send(event(json!({ "content": "One moment. " }), Value::Null)).await.unwrap();
            self.held.lock().push(tell);
        } else {
            tokio::spawn(speak(tell, last["role"] == "tool"));
        }
        let mut response = Response::new(Body::new(Events(told)));
        let media = "text/event-stream".parse().unwrap();
        response.headers_mut().insert("content-type", media);
        response
    }

    /// What was held comes to its end.
    async fn go_on(&self) {
        let held = std::mem::take(&mut *self.held.lock());
        for tell in held {
            for event in end() {
                tell.send(event).await.unwrap();
            }
        }
    }
}

async fn speak(tell: mpsc::Sender<Bytes>, answers: bool) {
    let call = json!({ "index": 0, "id": "call_1", "type": "function", "function": { "name": "get_order", "arguments": "{\"order_id\":\"A\"}" } });
    let mut events: Vec<Bytes> =
        (0..8).map(|n| event(json!({ "content": format!("word {n} ") }), Value::Null)).collect();
    if answers {
        events.extend(end());
    } else {
        events.push(event(json!({ "tool_calls": [call] }), Value::Null));
        events.push(event(json!({}), "tool_calls".into()));
        events.push(Bytes::from(DONE));
    }
    for event in events {
        if tell.send(event).await.is_err() {
            return;
        }
        tokio::time::sleep(PACE).await;
    }
}

/// One replica, as seen from in front of it.
struct Seen {
    listen: String,
    admin: String,
    well: AtomicBool,
}

/// What stands in front of the replicas.
#[derive(Clone)]
struct Front {
    client: reqwest::Client,
    replicas: Arc<[Seen; 2]>,
    turn: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
}

impl Front {
    fn new(replicas: [&Process; 2]) -> Self {
        let seen = replicas.map(|one| Seen {
            listen: one.listen.clone(),
            admin: one.admin.clone(),
            well: AtomicBool::new(true),
        });
        Front {
            client: reqwest::Client::new(),
            replicas: Arc::new(seen),
            turn: Arc::default(),
            over: Arc::default(),
        }
    }

    /// Looks after the replicas.
    async fn watch(self) {
        while !self.over.load(Ordering::Relaxed) {
            for one in &*self.replicas {
                one.well.store(readiness(&self.client, &one.admin).await == 200, Ordering::Relaxed);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Asks a replica that is well, each in its turn, until one takes it: its answer, which has begun.
    async fn ask(&self, name: &str, body: &Value) -> reqwest::Response {
        for attempt in 0.. {
            assert!(attempt < 1000, "nobody answers");
            let one = &self.replicas[self.turn.fetch_add(1, Ordering::Relaxed) % 2];
            if one.well.load(Ordering::Relaxed) {
                let request = self
                    .client
                    .post(format!("http://{}/v1/chat/completions", one.listen))
                    .header("content-type", "application/json")
                    .header("x-conversation-id", name)
                    .header("x-generation", "1")
                    .header("x-stainless-retry-count", attempt.to_string());
                match request.body(body.to_string()).send().await {
                    Ok(answer) if answer.status() == 200 => return answer,
                    Ok(answer) => {
                        let status = answer.status().as_u16();
                        let closes = answer.headers().get("connection").cloned();
                        let told = answer.text().await.unwrap();
                        assert!(status == 503 && told.contains("\"draining\""), "{status} {told}");
                        assert_eq!(closes.unwrap(), "close");
                    }
                    Err(error) => assert!(error.is_connect(), "{error:?}"),
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        unreachable!()
    }
}

async fn readiness(client: &reqwest::Client, admin: &str) -> u16 {
    let answer = client.get(format!("http://{admin}/readyz")).send().await;
    answer.map_or(0, |answer| answer.status().as_u16())
}

fn request(messages: &[Value]) -> Value {
    let tool = json!({ "type": "function", "function": { "name": "get_order", "parameters": { "type": "object" } } });
    json!({ "model": "m", "stream": true, "messages": messages, "tools": [tool] })
}

/// One task after the other, each in a conversation of its own, until all is over. Gives their names.
async fn agent(front: Front, number: usize) -> Vec<String> {
    let mut names = Vec::new();
    while !front.over.load(Ordering::Relaxed) {
        let name = format!("agent-{number}-{}", names.len());
        let user = json!({ "role": "user", "content": "Where is A?" });
        let proposed = front.ask(&name, &request(std::slice::from_ref(&user))).await;
        let proposed = proposed.text().await.unwrap();
        assert!(proposed.ends_with(DONE) && proposed.contains("call_1"), "{name}: {proposed}");
        let call = json!({ "id": "call_1", "type": "function", "function": { "name": "get_order", "arguments": "{\"order_id\":\"A\"}" } });
        let called = json!({ "role": "assistant", "content": null, "tool_calls": [call] });
        let result = json!({ "role": "tool", "tool_call_id": "call_1", "content": "shipped" });
        let answered = front.ask(&name, &request(&[user, called, result])).await;
        let answered = answered.text().await.unwrap();
        assert!(answered.ends_with(DONE) && answered.contains("word 7"), "{name}: {answered}");
        names.push(name);
    }
    names
}

/// One replica is told to end while it streams, and starts anew when it has.
async fn replace(one: &mut Process, model: &Model) {
    let name = format!("held-{}", one.child.id());
    let headers = [("x-conversation-id", name.as_str()), ("x-generation", "1")];
    let held = request(&[json!({ "role": "user", "content": "hold" })]).to_string();
    let mut stream = one.ask(&headers, &held).send().await.unwrap();
    let begun = stream.chunk().await.unwrap().unwrap();
    signal(one.child.id(), "-TERM");
    while readiness(&one.client, &one.admin).await == 200 {
        tokio::task::yield_now().await;
    }
    // It is not ready any more, and says so; no connection of a client has ended for that.
    let told = one.client.get(format!("http://{}/readyz", one.admin)).send().await.unwrap();
    assert_eq!(
        (told.status().as_u16(), told.text().await.unwrap().contains("\"draining\":true")),
        (503, true)
    );
    // The others come to their end; what is left is held.
    while one.metric("in_flight_exchanges").await != 1.0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    model.go_on().await;
    let mut got = begun.to_vec();
    while let Some(piece) = stream.chunk().await.unwrap() {
        got.extend_from_slice(&piece);
    }
    assert!(got.ends_with(DONE.as_bytes()), "{}", String::from_utf8_lossy(&got));
    let ended = loop {
        match one.child.try_wait().unwrap() {
            Some(ended) => break ended,
            None => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    let log = one.log();
    assert!(ended.success() && !log.contains("were cut off"), "{ended:?}\n{log}");
    one.restart().await;
    while readiness(&one.client, &one.admin).await != 200 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_truncates_no_answer_and_loses_no_decision() {
    let (model, server) = (Model::start().await, Server::start(&[]));
    let mut one = Process::start(&model.url, &server.url(), super::TOOLS).await;
    let mut two = Process::start(&model.url, &server.url(), super::TOOLS).await;
    let front = Front::new([&one, &two]);
    let watching = tokio::spawn(front.clone().watch());
    let mut agents = JoinSet::new();
    for number in 0..AGENTS {
        agents.spawn(agent(front.clone(), number));
    }
    for _ in 0..3 {
        replace(&mut one, &model).await;
        replace(&mut two, &model).await;
    }
    front.over.store(true, Ordering::Relaxed);
    let names: Vec<String> = agents.join_all().await.into_iter().flatten().collect();
    watching.await.unwrap();
    assert!(names.len() >= AGENTS, "{names:?}");
    for (turn, name) in names.iter().enumerate() {
        // Whichever replica is asked knows what all of them decided.
        let (status, record) = if turn % 2 == 0 { &one } else { &two }.control(name, None).await;
        assert_eq!(status, 200, "{name}");
        let of = |list: &str, key: &str| {
            let all = record[list].as_array().unwrap().clone();
            all.iter().map(|each| each[key].clone()).collect::<Vec<_>>()
        };
        assert_eq!(of("calls", "state"), ["accepted"], "{record}");
        assert_eq!(of("exchanges", "state"), ["delivered", "delivered"], "{record}");
        assert_eq!(of("generations", "outcome"), ["completed"], "{record}");
    }
}
