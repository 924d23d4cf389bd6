//! What an agent does in a conversation: a task is a call, its result, and an answer. Two exchanges, six events.

use crate::server::cli;
use crate::{Kind, open, scratch};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tigertally::ledger::event::{
    Admit, Alternative, Close, Ending, Event, ExchangeId, Millis, Outcome, Pair, Proposed, Replica,
    Run, Settle,
};
use tigertally::ledger::rules::Rules;
use tigertally::store::{ConversationKey, Store, encoding};

pub(crate) fn key(store: &dyn Store, n: u128) -> ConversationKey {
    let digests = store.digest_key();
    ConversationKey {
        principal: digests.bytes("principal", &(n % 97).to_le_bytes()),
        conversation: digests.bytes("conversation", &n.to_le_bytes()),
    }
}

/// Does one; adds how long each event took.
pub(crate) async fn task(store: &dyn Store, n: u128, generation: u64, spans: &mut Vec<Duration>) {
    let digests = store.digest_key();
    let digest = |domain: &str| {
        digests.bytes(domain, &[n.to_le_bytes(), u128::from(generation).to_le_bytes()].concat())
    };
    let key = key(store, n);
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

/// What a conversation takes, after so many tasks.
pub(crate) async fn print_bytes(kinds: &[Kind]) {
    println!("| conversation | encoded | in the log | in Redis, with its overhead |");
    println!("| --- | --- | --- | --- |");
    let Some(kind @ Kind::Redis(server, _)) = kinds.last() else { return };
    let scratch = scratch();
    let store = open(kind, &scratch, "bytes").await.store;
    let port = server.port.to_string();
    for tasks in [1, 10, 20, 100] {
        let _ = cli(&port, &["flushall"]);
        store.ready().await.unwrap();
        let n = 1 << 40 | u128::from(tasks);
        for generation in 1..=tasks {
            task(&*store, n, generation, &mut Vec::new()).await;
        }
        let conversation = store.read(&key(&*store, n)).await.unwrap().unwrap();
        let encoded = encoding::encode(Millis(1_800_000_000_000), &conversation).unwrap().len();
        let name = cli(&port, &["--scan", "--pattern", "*:c:*"]).stdout;
        let name = String::from_utf8(name).unwrap();
        let used = cli(&port, &["memory", "usage", name.trim()]).stdout;
        let used = String::from_utf8(used).unwrap();
        println!("| {tasks} tasks | {encoded} | {} | {} |", encoded + 48, used.trim());
    }
    println!();
}
