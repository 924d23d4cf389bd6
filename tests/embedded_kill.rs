//! `kill -9` of the proxy at random moments under a load of tracked conversations. Whatever a client was
//! told before stays true after the restart: registered calls are known, accepted results stay accepted
//! with their content, generations never go back.
//!
//! `TIGERTALLY_TEST_KILLS` sets how often (20 by default).

#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod history;
mod lives;

use history::Action;
use history::client::{Client, Reply};
use history::load::{Conversation, kinds, under};
use lives::{Replica, kills};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;
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

/// The program, and a client of it that records.
struct Proxy {
    replica: Replica,
    client: Client,
}

impl Proxy {
    async fn chat(&self, truth: &Truth, generation: u64, call: Option<&Called>) -> Option<Reply> {
        let question = format!("Where is ORDER-{generation}?");
        let (url, name) = (&self.replica.url, &truth.name);
        let Some(Called { id, message, content }) = call else {
            return self.client.open(url, name, generation, &question).await;
        };
        let (call, content) = (id.clone(), content.clone());
        let action = Action::Continue { generation, call, content, declared: false };
        self.client.goes_on(url, name, (&question, message), action).await
    }

    async fn decide(&self, truth: &Truth, call: &Known, content: &str) -> Option<Reply> {
        let (generation, content) = (call.generation, content.to_owned());
        let action = Action::Decide { generation, call: call.id.clone(), content };
        self.client.ask(&self.replica.url, &truth.name, action).await
    }
}

/// A call with its result.
struct Called {
    id: String,
    message: Value,
    content: String,
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
    let opened = proxy.chat(&now, generation, None).await?;
    let answers = opened.status == 200 || opened.status == 503;
    assert!(answers, "an opening was refused: {opened:?}\n{now:?}");
    let message = opened.message().clone();
    let id = opened.calls().first()?.clone();
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
    let called = Called { id, message, content };
    let answered = proxy.chat(&now, generation, Some(&called)).await?;
    assert_eq!(answered.status, 200, "a continuation was refused: {answered:?}\n{now:?}");
    Some(())
}

/// What was told before the kill is true after it.
async fn look(proxy: &Proxy, truth: &mut Truth) {
    if truth.reached > 0 {
        let back = Action::Advance { generation: Some(truth.reached - 1) };
        let refused = proxy.client.ask(&proxy.replica.url, &truth.name, back).await.unwrap();
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

async fn proxy(durability: &'static str) -> Proxy {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = format!("http://{}", listener.local_addr().unwrap());
    #[expect(clippy::disallowed_methods, reason = "ends with the test's runtime")]
    tokio::spawn(serve(listener, Script::default()));
    let env = [
        ("TIGERTALLY_STORE__KIND", "embedded"),
        ("TIGERTALLY_STORE__PATH", "data"),
        ("TIGERTALLY_STORE__DURABILITY", durability),
    ];
    let env = env.map(|(name, value)| (name, value.to_owned())).to_vec();
    let replica = Replica::new(&upstream, env);
    Proxy { replica, client: Client::new(&Arc::default()) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_survives_every_kill() {
    survives("process", kills(KILLS)).await;
}

/// The same where every answer waits for the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_survives_kills_while_the_disk_syncs() {
    survives("machine", kills(KILLS) / 2).await;
}

async fn survives(durability: &'static str, kills: usize) {
    let mut proxy = proxy(durability).await;
    let truths: Vec<_> = (0..CLIENTS)
        .map(|client| Truth { name: format!("c{client}"), reached: 0, asked: 0, calls: Vec::new() })
        .map(|truth| Arc::new(Mutex::new(truth)))
        .collect();
    proxy.replica.start().await;
    let done = AtomicUsize::new(0);
    for _ in 0..kills {
        let stop = AtomicBool::new(false);
        let killed = async {
            tokio::time::sleep(Duration::from_micros(rand::random_range(1_000..80_000))).await;
            proxy.replica.signal("-KILL");
            stop.store(true, Ordering::SeqCst);
        };
        let clients = truths.iter().map(|truth| work(&proxy, truth, &stop, &done));
        tokio::join!(killed, all(clients));
        proxy.replica.kill();
        proxy.client.recorder.all_died();
        proxy.replica.start().await;
        for truth in &truths {
            let mut looked = truth.lock().clone();
            look(&proxy, &mut looked).await;
            *truth.lock() = looked;
        }
    }
    proxy.replica.kill();
    let (operations, lost) = proxy.client.recorder.check();
    let calls: usize = truths.iter().map(|truth| truth.lock().calls.len()).sum();
    let accepted = |truth: &Truth| {
        truth.calls.iter().filter(|call| matches!(call.result, Told::Accepted(_))).count()
    };
    let accepted: usize = truths.iter().map(|truth| accepted(&truth.lock())).sum();
    println!(
        "{durability}, {kills} kills: {calls} calls, {accepted} accepted, {done:?} tasks; \
         {operations} operations explained, {lost} without an answer"
    );
    assert!(calls > kills && accepted > 0, "nothing was under load: {calls} calls, {accepted}");
}

/// Waits for all of them.
async fn all(clients: impl Iterator<Item = impl Future<Output = ()>>) {
    let mut clients: Vec<_> = clients.map(Box::pin).collect();
    std::future::poll_fn(|cx| {
        clients.retain_mut(|client| client.as_mut().poll(cx).is_pending());
        if clients.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Several clients of each conversation at once: their answers are explained by one order, through all
/// kills.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_abreast_see_one_history_through_every_kill() {
    let kills = kills(KILLS);
    let Proxy { mut replica, client } = proxy("process").await;
    let conversations: Vec<_> = (0..CLIENTS).map(|n| Conversation::new(format!("c{n}"))).collect();
    replica.start().await;
    let urls = [replica.url.clone()];
    for _ in 0..kills {
        under(&client, &urls, &conversations, async || replica.kill()).await;
        client.recorder.all_died();
        replica.start().await;
        replica.is_ready().await;
        for conversation in &conversations {
            conversation.look(&client, &urls[0]).await;
        }
    }
    let (operations, lost) = client.recorder.check();
    println!("{kills} kills: {operations} explained, {lost} lost: {:?}", kinds(&client));
    assert!(kinds(&client).iter().all(|(_, seen)| *seen > 0), "{:?}", kinds(&client));
}
