//! The figures of `docs/stores.md`, measured in one run:
//!
//! `cargo test --release --test embedded_figures -- --ignored --nocapture`

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tigertally::ledger::digest::DigestKey;
use tigertally::ledger::event::{
    Admit, Alternative, Close, Effects, Ending, Event, ExchangeId, Millis, Names, Outcome, Pair,
    Proposed, Replica, Run, Settle,
};
use tigertally::ledger::rules::Rules;
use tigertally::store::embedded::{Durability, EmbeddedStore, Options, SEGMENT_BYTES};
use tigertally::store::memory::{Clock, MemoryStore};
use tigertally::store::{ConversationKey, Listener, Store};

const CONVERSATIONS: u128 = 1000;
const TASKS: u64 = 20;
const KEPT: u128 = 100_000;

struct Deaf;

impl Listener for Deaf {
    fn committed(&self, _: &ConversationKey, _: &Effects) {}
}

fn clock() -> Clock {
    Arc::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Millis(u64::try_from(since.as_millis()).unwrap())
    })
}

fn embedded(path: &Path, durability: Durability) -> EmbeddedStore {
    let options = Options {
        path: path.to_owned(),
        key_file: None,
        durability,
        most_per_principal: 10_000_000,
        segment_bytes: SEGMENT_BYTES,
    };
    EmbeddedStore::open(&options, clock(), Arc::new(Deaf)).unwrap()
}

/// Six events: a task of one call, its result, and an answer.
async fn task(store: &dyn Store, n: u128, generation: u64, spans: &mut Vec<Duration>) {
    let digests = store.digest_key();
    let digest = |domain: &str| {
        digests.bytes(domain, &[n.to_le_bytes(), u128::from(generation).to_le_bytes()].concat())
    };
    let key = ConversationKey {
        principal: digests.bytes("principal", b"p"),
        conversation: digests.bytes("conversation", &n.to_le_bytes()),
    };
    let id = format!("call_{n:012x}{generation:012x}");
    let call = Proposed {
        id: id.as_str().into(),
        tool: "query_order".into(),
        arguments: digest("arguments"),
        echoes: Vec::new(),
        deadline: None,
        write: false,
    };
    let pair = Pair {
        id: id.as_str().into(),
        tool: "query_order".into(),
        arguments: call.arguments,
        message: 2,
        result: digest("result"),
        closing: false,
        name: None,
        echoes: Vec::new(),
        edits_allowed: false,
        attempt: None,
    };
    let continued = vec![Run { live: true, pairs: vec![pair] }];
    let rules = Arc::new(Rules::default());
    for (runs, calls) in [(Vec::new(), vec![call]), (continued, Vec::new())] {
        let exchange = ExchangeId(rand::random());
        let list = digest(if runs.is_empty() { "opening" } else { "continuation" });
        let admit = Event::Admit(Admit {
            exchange,
            replica: Replica(1),
            generation: Some(generation),
            lane: digest("lane"),
            list,
            declared_retry: false,
            idempotency: None,
            runs,
            names: Names::default(),
        });
        let alternatives =
            if calls.is_empty() { Vec::new() } else { vec![Alternative { choice: 0, calls }] };
        let settle = Event::Settle(Settle { exchange, alternatives, forced: false });
        let close = Event::Close(Close { exchange, ending: Ending::Delivered });
        for event in [admit, settle, close] {
            let began = Instant::now();
            let told = store.apply(&key, event, &rules).await.unwrap();
            spans.push(began.elapsed());
            assert!(!matches!(told.outcome, Outcome::Refused(_) | Outcome::Withheld(_)));
        }
    }
}

fn report(name: &str, mut spans: Vec<Duration>, took: Duration) {
    spans.sort_unstable();
    let at = |part: f64| spans[((spans.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e6;
    let rate = spans.len() as f64 / took.as_secs_f64();
    println!(
        "{name:32} p50 {:8.1} µs  p99 {:8.1}  p99.9 {:8.1}  max {:8.0}  {rate:8.0} events/s",
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
}

async fn measure(
    name: &str,
    store: Arc<dyn Store>,
    at_once: u128,
    conversations: u128,
    tasks: u64,
) {
    let began = Instant::now();
    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..at_once {
        let store = Arc::clone(&store);
        workers.spawn(async move {
            let mut spans = Vec::new();
            for generation in 1..=tasks {
                for n in (worker..conversations).step_by(usize::try_from(at_once).unwrap()) {
                    task(&*store, n, generation, &mut spans).await;
                }
            }
            spans
        });
    }
    let spans: Vec<Duration> = workers.join_all().await.into_iter().flatten().collect();
    report(name, spans, began.elapsed());
}

fn bytes(path: &Path) -> u64 {
    let files: Vec<PathBuf> =
        std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.iter().flat_map(std::fs::metadata).map(|found| found.len()).sum()
}

/// Resident memory in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures; run it alone and built for release"]
async fn figures() {
    let place =
        std::env::var_os("TIGERTALLY_TEST_DATA").map_or_else(std::env::temp_dir, PathBuf::from);
    let scratch = tempfile::tempdir_in(place).unwrap();
    let path = |name: &str| scratch.path().join(name);
    let memory = || MemoryStore::new(DigestKey::new([7; 32]), clock(), Arc::new(Deaf), 10_000_000);
    measure("memory", Arc::new(memory()), 1, CONVERSATIONS, TASKS).await;
    let process = Arc::new(embedded(&path("process"), Durability::Process));
    measure("process", process.clone(), 1, CONVERSATIONS, TASKS).await;
    drop(process);
    println!("process: {} MB on the disk", bytes(&path("process")) >> 20);
    let process = Arc::new(embedded(&path("process 64"), Durability::Process));
    measure("process, 64 at once", process, 64, CONVERSATIONS, TASKS).await;
    for at_once in [1, 16, 64, 256] {
        let name = format!("machine, {at_once} at once");
        let machine = Arc::new(embedded(&path(&name), Durability::Machine));
        measure(&name, machine, at_once, at_once * 4, 4).await;
    }
    let before = resident();
    let many = Arc::new(embedded(&path("many"), Durability::Process));
    measure("process, 100000 conversations", many.clone(), 2, KEPT, 1).await;
    println!("{} bytes of memory each", (resident() - before) / u64::try_from(KEPT).unwrap());
    drop(many);
    let began = Instant::now();
    let before = resident();
    let many = embedded(&path("many"), Durability::Process);
    println!(
        "opened {} conversations, {} MB, in {:?}; {} bytes of memory each until used",
        many.conversations(),
        bytes(&path("many")) >> 20,
        began.elapsed(),
        resident().saturating_sub(before) / u64::try_from(KEPT).unwrap()
    );
}
