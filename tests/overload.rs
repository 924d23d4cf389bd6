//! More work than there are places for: who is over is told so at once, no principal's flood takes what others need,
//! and what gets through is as much as without the flood.
//!
//! What is counted here does not depend on how fast the machine is. What is measured does, so it is measured when
//! asked for: `cargo test --test overload -- --ignored --nocapture`.

#![expect(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, reason = "tests")]

#[expect(dead_code, reason = "what other tests need")]
mod program;
#[expect(dead_code, reason = "what other tests need")]
mod raw;
#[expect(dead_code, reason = "what other tests need")]
mod recorder;

use raw::{Answer, Raw};
use recorder::{Recorder, Step, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tigertally::policy::{FlagOverrides, Policy, Sources, StoreKind, load};
use tokio::sync::Notify;
use tokio::task::JoinSet;

const BODY: &str = r#"{"model":"m","messages":[{"role":"user","content":"Where is A?"}]}"#;

/// So many places; where `named`, a header says who asks.
fn policy(upstream: &Recorder, places: usize, named: bool) -> Policy {
    let env = [
        ("TIGERTALLY_AUTH__MODE", "header"),
        ("TIGERTALLY_AUTH__HEADER", "x-user"),
        ("TIGERTALLY_AUTH__TRUSTED_PEERS", "127.0.0.0/8"),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let env = if named { env } else { Vec::new() };
    let read = load(Sources { file: None, env, flags: FlagOverrides::default() }).unwrap();
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut policy = Policy { listen: loopback, store: StoreKind::Memory, ..read };
    policy.admin.listen = loopback;
    policy.upstream.url = format!("http://{}", upstream.address).parse().unwrap();
    policy.upstream.rid = false;
    policy.limits.exchanges = places;
    policy
}

fn request(user: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-user: {user}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{BODY}",
        BODY.len()
    )
}

/// The next answers of the upstream wait each for its own gate.
fn gates(upstream: &Recorder, count: usize) -> Vec<Arc<Notify>> {
    let gates: Vec<_> = (0..count).map(|_| Arc::new(Notify::new())).collect();
    for gate in &gates {
        upstream.will([Step::Gate(Arc::clone(gate)), json(recorder::ANSWER)]);
    }
    gates
}

/// Requests that are under way at once.
struct Flood {
    answers: JoinSet<Answer>,
}

impl Flood {
    fn new() -> Self {
        Flood { answers: JoinSet::new() }
    }

    fn ask(&mut self, address: SocketAddr, user: &'static str, count: usize) {
        for _ in 0..count {
            self.answers.spawn(async move {
                let mut client = Raw::connect(address).await;
                client.send(request(user)).await;
                client.answer().await.unwrap()
            });
        }
    }

    /// Takes so many answers, all of which say that there is no place.
    async fn refused(&mut self, count: usize) {
        for _ in 0..count {
            let answer = self.answers.join_next().await.unwrap().unwrap();
            assert_eq!((answer.status, answer.code().as_str()), (503, "overloaded"), "{answer:?}");
            assert!(answer.head.contains("\r\nretry-after: 1\r\n"), "{answer:?}");
            assert!(!answer.head.contains("x-should-retry"), "{answer:?}");
        }
    }

    /// Takes so many answers, all of them whole.
    async fn answered(&mut self, count: usize) {
        for _ in 0..count {
            let answer = self.answers.join_next().await.unwrap().unwrap();
            assert_eq!(
                (answer.status, answer.body.as_str()),
                (200, recorder::ANSWER),
                "{answer:?}"
            );
        }
    }
}

#[tokio::test]
async fn one_principals_flood_does_not_starve_another() {
    let upstream = Recorder::start().await;
    let guard = tigertally::cli::serve::start(policy(&upstream, 16, true)).await.unwrap();
    let address = guard.client_addr;
    let gates = gates(&upstream, 64);
    let asked = |count: usize| upstream.until("asked", move |up| up.whole().len() == count);
    let (mut flood, mut quiet) = (Flood::new(), Flood::new());
    // Of sixteen places, one principal alone gets fourteen.
    flood.ask(address, "flood", 64);
    flood.refused(50).await;
    asked(14).await;
    quiet.ask(address, "quiet", 1);
    asked(15).await;
    // Three of the flood's end. It comes again, and gets less than it had; the other one gets more.
    gates[..3].iter().for_each(|gate| gate.notify_one());
    flood.answered(3).await;
    flood.ask(address, "flood", 20);
    flood.refused(18).await;
    asked(17).await;
    quiet.ask(address, "quiet", 1);
    asked(18).await;
    gates.iter().for_each(|gate| gate.notify_one());
    flood.answered(13).await;
    quiet.answered(2).await;
    assert!(flood.answers.is_empty() && quiet.answers.is_empty());
    assert_eq!((upstream.whole().len(), upstream.half()), (18, 0), "each once");
}

#[tokio::test]
async fn as_much_gets_through_as_without_the_flood() {
    const PLACES: usize = 8;
    let upstream = Recorder::start().await;
    let guard = tigertally::cli::serve::start(policy(&upstream, PLACES, false)).await.unwrap();
    for (round, offered) in [1, 4, 1, 4, 4].into_iter().enumerate() {
        let gates = gates(&upstream, PLACES);
        let mut flood = Flood::new();
        flood.ask(guard.client_addr, "anybody", offered * PLACES);
        flood.refused((offered - 1) * PLACES).await;
        upstream.until("asked", |up| up.whole().len() == (round + 1) * PLACES).await;
        gates.iter().for_each(|gate| gate.notify_one());
        flood.answered(PLACES).await;
        // A place is given back when its answer has been handed over.
        let line = "tigertally_in_flight_exchanges 0\n";
        while !guard.gateway().metrics().encode().contains(line) {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(upstream.half() + upstream.left(), 0);
}

/// The built program with 64 places before an upstream that takes 200 ms: 320 answers a second are all there can be.
/// Requests come at a fixed rate, whatever becomes of those before.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it measures"]
async fn goodput_at_four_times_what_there_is_place_for() {
    let url = slow_upstream().await;
    let env = [("TIGERTALLY_LIMITS__EXCHANGES", "64"), ("TIGERTALLY_UPSTREAM__KIND", "openai")];
    let client = reqwest::Client::new();
    let up = async |url: &str| client.get(format!("{url}/health")).send().await.is_ok();
    let program = program::Program::start(&url, &env, up).await;
    let mut peak = 0.0_f64;
    for times in [0.5, 1.0, 2.0, 4.0] {
        let (good, refused) = offer(&client, &program.url, 320.0 * times).await;
        println!("{times:>4} × capacity: {good:6.1} answered, {refused:6.1} refused a second");
        peak = peak.max(good);
        assert!(times < 4.0 || good > 0.9 * peak, "{good} of {peak}");
    }
}

async fn slow_upstream() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let chat = || async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        ([("content-type", "application/json")], recorder::ANSWER)
    };
    let router = axum::Router::new().route("/v1/chat/completions", axum::routing::post(chat));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

/// Offers so many a second for ten seconds: how many of them were answered and refused, a second.
async fn offer(client: &reqwest::Client, url: &str, rate: f64) -> (f64, f64) {
    const SECONDS: f64 = 10.0;
    let (good, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tick = tokio::time::interval(Duration::from_secs_f64(1.0 / rate));
    let mut asked = JoinSet::new();
    for _ in 0..(rate * SECONDS) as usize {
        tick.tick().await;
        let request = client.post(format!("{url}/v1/chat/completions"));
        let request = request.header("content-type", "application/json").body(BODY);
        let (good, refused) = (Arc::clone(&good), Arc::clone(&refused));
        asked.spawn(async move {
            let Ok(answer) = request.send().await else { return };
            let counter = if answer.status() == 200 { &good } else { &refused };
            if answer.bytes().await.is_ok() {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    while asked.join_next().await.is_some() {}
    let a_second = |count: &AtomicUsize| count.load(Ordering::Relaxed) as f64 / SECONDS;
    (a_second(&good), a_second(&refused))
}
