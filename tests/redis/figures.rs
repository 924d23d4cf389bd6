//! What an event costs, and what a conversation takes. Run for the figures in `docs/redis.md`:
//!
//! ```text
//! cargo test --release --test redis figures -- --ignored --nocapture
//! ```

use super::server::{Server, cli};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tigertally::ledger::digest::DigestKey;
use tigertally::ledger::event::{
    Admit, Alternative, Close, Effects, Ending, Event, ExchangeId, Millis, Names, Pair, Proposed,
    Replica, Run, Settle,
};
use tigertally::ledger::rules::Rules;
use tigertally::store::memory::MemoryStore;
use tigertally::store::redis::{Address, RedisStore, Settings};
use tigertally::store::{ConversationKey, Listener, Store};
use tokio::task::JoinSet;

const TASKS: u64 = 300;

struct Deaf;

impl Listener for Deaf {
    fn committed(&self, _: &ConversationKey, _: &Effects) {}
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures, and shows nothing that can be wrong"]
async fn figures() {
    for options in [&["--appendonly", "no"][..], &["--appendonly", "yes"]] {
        let server = Server::start(options);
        let settings = Settings::new(Address::parse(&server.url()).unwrap());
        let redis = RedisStore::open(settings, Arc::new(Deaf)).await.unwrap();
        println!("redis {options:?}");
        let began = redis.round_trips();
        one_after_the_other(redis.clone()).await;
        println!("  round trips per task: {}", (redis.round_trips() - began) / TASKS);
        for abreast in [8, 64, 256] {
            side_by_side(redis.clone(), abreast).await;
        }
        bytes(&server, &redis).await;
    }
    let clock = Arc::new(|| {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
        Millis(u64::try_from(now.as_millis()).unwrap())
    });
    println!("memory");
    let key = DigestKey::new([7; 32]);
    let memory = Arc::new(MemoryStore::new(key, clock, Arc::new(Deaf), 1 << 20));
    one_after_the_other(memory.clone()).await;
    side_by_side(memory, 64).await;
}

async fn one_after_the_other(store: Arc<dyn Store>) {
    let mut took = Vec::new();
    for n in 0..TASKS {
        task(&store, 1_000_000 + n, 0, &mut took).await;
    }
    took.sort_unstable();
    let at = |percent: usize| took[(took.len() - 1) * percent / 100];
    println!("  one event at a time: p50 {:?} p99 {:?}", at(50), at(99));
}

async fn side_by_side(store: Arc<dyn Store>, abreast: u64) {
    let began = Instant::now();
    let mut lanes = JoinSet::new();
    for lane in 0..abreast {
        let store = Arc::clone(&store);
        lanes.spawn(async move {
            let mut took = Vec::new();
            let mut n = 0;
            while began.elapsed() < Duration::from_secs(3) {
                task(&store, abreast << 40 | lane << 20 | n, 0, &mut took).await;
                n += 1;
            }
            took
        });
    }
    let mut took: Vec<Duration> = lanes.join_all().await.into_iter().flatten().collect();
    let second = took.len() as f64 / began.elapsed().as_secs_f64();
    took.sort_unstable();
    let at = |percent: usize| took[(took.len() - 1) * percent / 100];
    println!("  {abreast} abreast: {second:.0} events/s, p50 {:?} p99 {:?}", at(50), at(99));
}

/// What Redis says a conversation takes, after so many tasks in it.
async fn bytes(server: &Server, store: &Arc<RedisStore>) {
    let port = server.port.to_string();
    for tasks in [1, 10, 100] {
        let _ = cli(&port, &["flushall"]);
        store.ready().await.unwrap();
        let all: Arc<dyn Store> = store.clone();
        for generation in 0..tasks {
            task(&all, 77_000_000 + tasks, generation, &mut Vec::new()).await;
        }
        let keys = cli(&port, &["--scan", "--pattern", "*:c:*"]).stdout;
        let key = String::from_utf8(keys).unwrap();
        let length = cli(&port, &["strlen", key.trim()]).stdout;
        let memory = cli(&port, &["memory", "usage", key.trim()]).stdout;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().trim().to_owned();
        println!("  {tasks} tasks: {} bytes, {} in Redis", text(length), text(memory));
    }
}

/// One task of two exchanges with one call: six events.
async fn task(store: &Arc<dyn Store>, n: u64, generation: u64, took: &mut Vec<Duration>) {
    let digests = store.digest_key();
    let key = ConversationKey {
        principal: digests.bytes("principal", &(n % 97).to_be_bytes()),
        conversation: digests.bytes("conversation", &n.to_be_bytes()),
    };
    let rules: Arc<Rules> = Arc::default();
    let id: Box<str> = format!("call_{n:016x}{generation:08x}").into();
    let admit = |exchange: u128, runs: Vec<Run>| {
        Event::Admit(Admit {
            exchange: ExchangeId(exchange),
            replica: Replica(1),
            generation: Some(generation),
            lane: digests.bytes("lane", b""),
            list: digests.bytes("list", &exchange.to_be_bytes()),
            declared_retry: false,
            idempotency: None,
            runs,
            names: Names::default(),
        })
    };
    let pair = Pair {
        id: id.clone(),
        tool: "query_order".into(),
        arguments: digests.arguments("{}"),
        message: 2,
        result: digests.bytes("result", b"shipped"),
        closing: false,
        name: None,
        echoes: Vec::new(),
        edits_allowed: false,
        attempt: None,
    };
    let proposed = Proposed {
        id,
        tool: "query_order".into(),
        arguments: digests.arguments("{}"),
        echoes: Vec::new(),
        deadline: None,
        write: false,
    };
    let first: u128 = rand::random();
    let second: u128 = rand::random();
    let settle = |exchange: u128, alternatives: Vec<Alternative>| {
        Event::Settle(Settle { exchange: ExchangeId(exchange), alternatives, forced: false })
    };
    let close = |exchange: u128| {
        Event::Close(Close { exchange: ExchangeId(exchange), ending: Ending::Delivered })
    };
    let events = [
        admit(first, Vec::new()),
        settle(first, vec![Alternative { choice: 0, calls: vec![proposed] }]),
        close(first),
        admit(second, vec![Run { live: true, pairs: vec![pair] }]),
        settle(second, Vec::new()),
        close(second),
    ];
    for event in events {
        let began = Instant::now();
        store.apply(&key, event, &rules).await.unwrap();
        took.push(began.elapsed());
    }
}
