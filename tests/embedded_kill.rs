//! `kill -9` of the proxy at random moments under a load of tracked conversations. Whatever a client was
//! told before stays true after the restart: registered calls are known, accepted results stay accepted
//! with their content, generations never go back.
//!
//! `TIGERTALLY_TEST_KILLS` sets how often (20 by default).

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

use parking_lot::Mutex;
use serde_json::{Value, json};
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tigertally::cli::scripted_upstream::{Script, serve};

const KILLS: usize = 20;
const CLIENTS: usize = 6;
/// Calls of each conversation that are looked at after each restart, the newest.
const LOOKED_AT: usize = 6;

/// What a client knows of one call, by what it was told.
#[derive(Clone, Debug)]
struct Known {
    generation: u64,
    id: String,
    result: Told,
}

#[derive(Clone, Debug, PartialEq)]
enum Told {
    /// Its result was not sent.
    Open,
    /// Its result was sent, and no answer came.
    Sent(String),
    /// Its result was accepted.
    Accepted(String),
}

/// One conversation, as its client knows it.
#[derive(Clone, Debug)]
struct Truth {
    name: String,
    /// The highest generation that was answered for.
    reached: u64,
    /// The highest that was asked for.
    asked: u64,
    calls: Vec<Known>,
}

/// The program, on one data directory and one port for all its lives.
struct Proxy {
    listen: String,
    admin: String,
    upstream: String,
    durability: &'static str,
    scratch: tempfile::TempDir,
    client: reqwest::Client,
}

impl Proxy {
    fn spawn(&self) -> Child {
        let log = File::options().create(true).append(true).open(self.log()).unwrap();
        let store = format!("embedded:{}", self.scratch.path().join("data").display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_tigertally"));
        command
            .args(["serve", "--upstream", &self.upstream, "--store", &store])
            .args(["--listen", &self.listen, "--admin-listen", &self.admin])
            .current_dir(self.scratch.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TIGERTALLY_") {
                command.env_remove(name);
            }
        }
        command.env("TIGERTALLY_STORE__DURABILITY", self.durability).spawn().unwrap()
    }

    fn log(&self) -> impl AsRef<Path> {
        self.scratch.path().join("log")
    }

    async fn start(&self) -> Child {
        let mut child = self.spawn();
        let end = Instant::now() + Duration::from_secs(20);
        let health = format!("http://{}/health", self.listen);
        while !self.client.get(&health).send().await.is_ok_and(|answer| answer.status() == 200) {
            let ended = child.try_wait().unwrap();
            let log = std::fs::read_to_string(self.log()).unwrap_or_default();
            assert!(ended.is_none() && Instant::now() < end, "it does not answer:\n{log}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        child
    }

    /// `None`: there was no whole answer.
    async fn post(&self, path: &str, headers: &[(&str, String)], body: &Value) -> Option<Reply> {
        let mut request = self.client.post(format!("http://{}{path}", self.listen)).json(body);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let answer = request.timeout(Duration::from_secs(20)).send().await.ok()?;
        let status = answer.status().as_u16();
        let body = serde_json::from_slice(&answer.bytes().await.ok()?).ok()?;
        Some(Reply { status, body })
    }

    async fn chat(&self, truth: &Truth, generation: u64, rest: Vec<Value>) -> Option<Reply> {
        let question = format!("Where is ORDER-{generation}?");
        let mut messages = vec![json!({"role": "user", "content": question})];
        messages.extend(rest);
        let parameters = json!({"type": "object", "properties": {"order_id": {"type": "string"}}});
        let function = json!({"name": "get_order_status", "parameters": parameters});
        let tools = [json!({"type": "function", "function": function})];
        let body = json!({"model": "scripted", "messages": messages, "tools": tools});
        let headers =
            [("x-conversation-id", truth.name.clone()), ("x-generation", generation.to_string())];
        self.post("/v1/chat/completions", &headers, &body).await
    }

    async fn decide(&self, truth: &Truth, call: &Known, content: &str) -> Option<Reply> {
        let path = format!("/guard/v1/conversations/{}/results", truth.name);
        let generation = call.generation;
        let body = json!({"generation": generation, "tool_call_id": call.id, "content": content});
        self.post(&path, &[], &body).await
    }
}

#[derive(Debug)]
struct Reply {
    status: u16,
    body: Value,
}

impl Reply {
    fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }
}

/// One client: task after task, some of them left before their call is answered.
async fn work(proxy: &Proxy, truth: &Mutex<Truth>, stop: &AtomicBool, done: &AtomicUsize) {
    while !stop.load(Ordering::SeqCst) {
        if one_task(proxy, truth).await.is_none() {
            // The proxy is gone, or going: nothing is told any more.
            return;
        }
        done.fetch_add(1, Ordering::SeqCst);
    }
}

async fn one_task(proxy: &Proxy, truth: &Mutex<Truth>) -> Option<()> {
    let generation = truth.lock().asked + 1;
    truth.lock().asked = generation;
    let now = truth.lock().clone();
    let opened = proxy.chat(&now, generation, Vec::new()).await?;
    let answers = opened.status == 200 || opened.status == 503;
    assert!(answers, "an opening was refused: {opened:?}\n{now:?}");
    let message = opened.body["choices"][0]["message"].clone();
    let id = message["tool_calls"][0]["id"].as_str()?.to_owned();
    let call = Known { generation, id: id.clone(), result: Told::Open };
    let at = {
        let mut truth = truth.lock();
        truth.reached = generation;
        truth.calls.push(call.clone());
        truth.calls.len() - 1
    };
    if generation.is_multiple_of(4) {
        return Some(());
    }
    let content =
        json!({"order_id": format!("ORDER-{generation}"), "status": "in transit"}).to_string();
    truth.lock().calls[at].result = Told::Sent(content.clone());
    let decided = proxy.decide(&now, &call, &content).await?;
    assert_eq!(decided.status, 200, "a first result was refused: {decided:?}\n{now:?}");
    truth.lock().calls[at].result = Told::Accepted(content.clone());
    let result = json!({"role": "tool", "tool_call_id": id, "content": content});
    let answered = proxy.chat(&now, generation, vec![message, result]).await?;
    assert_eq!(answered.status, 200, "a continuation was refused: {answered:?}\n{now:?}");
    Some(())
}

/// What was told before the kill is true after it.
async fn look(proxy: &Proxy, truth: &mut Truth) {
    if truth.reached > 0 {
        let path = format!("/guard/v1/conversations/{}/generation", truth.name);
        let back = json!({"generation": truth.reached - 1});
        let refused = proxy.post(&path, &[], &back).await.unwrap();
        assert_eq!(refused.code(), "stale_generation", "it went back: {truth:?}");
    }
    let known = truth.clone();
    let (reached, asked) = (truth.reached, truth.asked);
    for call in truth.calls.iter_mut().rev().take(LOOKED_AT) {
        if let Told::Accepted(content) = &call.result {
            let again = proxy.decide(&known, call, content).await.unwrap();
            assert_eq!(again.code(), "duplicate", "{call:?} {again:?}");
            let other = proxy.decide(&known, call, "{\"status\":\"lost\"}").await.unwrap();
            assert_eq!(other.code(), "conflict", "{call:?} {other:?}");
            continue;
        }
        let content = match &call.result {
            Told::Sent(content) => content.clone(),
            _ => "{\"status\":\"late\"}".to_owned(),
        };
        let decided = proxy.decide(&known, call, &content).await.unwrap();
        let current = call.generation == reached && reached == asked;
        let sent = matches!(call.result, Told::Sent(_));
        let right = match decided.status {
            200 => true,
            // Its first sending was carried out, though nobody was told.
            422 if decided.code() == "duplicate" => sent,
            422 if decided.code() == "stale" => !current,
            _ => false,
        };
        assert!(right, "{call:?} of {reached}, {asked}: {decided:?}");
        if decided.status == 200 || decided.code() == "duplicate" {
            call.result = Told::Accepted(content);
        }
    }
}

fn kills() -> usize {
    std::env::var("TIGERTALLY_TEST_KILLS").map_or(KILLS, |kills| kills.parse().unwrap())
}

fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

async fn proxy(durability: &'static str) -> Proxy {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = format!("http://{}", listener.local_addr().unwrap());
    #[expect(clippy::disallowed_methods, reason = "ends with the test's runtime")]
    tokio::spawn(serve(listener, Script::default()));
    let scratch = tempfile::tempdir().unwrap();
    let client = reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap();
    let (listen, admin) = (free_address(), free_address());
    Proxy { listen, admin, upstream, durability, scratch, client }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_survives_every_kill() {
    survives("process", kills()).await;
}

/// The same where every answer waits for the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_survives_kills_while_the_disk_syncs() {
    survives("machine", kills() / 2).await;
}

async fn survives(durability: &'static str, kills: usize) {
    let proxy = Arc::new(proxy(durability).await);
    let truths: Vec<_> = (0..CLIENTS)
        .map(|client| Truth { name: format!("c{client}"), reached: 0, asked: 0, calls: Vec::new() })
        .map(|truth| Arc::new(Mutex::new(truth)))
        .collect();
    let mut child = proxy.start().await;
    let done = Arc::new(AtomicUsize::new(0));
    for _ in 0..kills {
        let stop = Arc::new(AtomicBool::new(false));
        let mut clients = tokio::task::JoinSet::new();
        for truth in &truths {
            let (proxy, truth) = (Arc::clone(&proxy), Arc::clone(truth));
            let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
            clients.spawn(async move { work(&proxy, &truth, &stop, &done).await });
        }
        tokio::time::sleep(Duration::from_micros(rand::random_range(1_000..80_000))).await;
        child.kill().unwrap();
        child.wait().unwrap();
        stop.store(true, Ordering::SeqCst);
        clients.join_all().await;
        child = proxy.start().await;
        for truth in &truths {
            let mut looked = truth.lock().clone();
            look(&proxy, &mut looked).await;
            *truth.lock() = looked;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let calls: usize = truths.iter().map(|truth| truth.lock().calls.len()).sum();
    let accepted = |truth: &Truth| {
        truth.calls.iter().filter(|call| matches!(call.result, Told::Accepted(_))).count()
    };
    let accepted: usize = truths.iter().map(|truth| accepted(&truth.lock())).sum();
    println!("{durability}, {kills} kills: {calls} calls, {accepted} accepted, {done:?} tasks");
    assert!(calls > kills && accepted > 0, "nothing was under load: {calls} calls, {accepted}");
}
