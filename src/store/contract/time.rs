//! The store's clock decides: deadlines, and the end of a conversation.

use super::bench::{Bench, RACERS};
use super::events::{admitted, answer, code, states};
use crate::guard::fault::Code;
use crate::ledger::calls::CallState;
use crate::ledger::event::{Effects, ExchangeId, Fact, Millis};
use crate::ledger::rules::Rules;
use std::sync::Arc;

/// Deadlines fire by the store's clock, in a sweep, once; and a late result finds the timeout.
pub(super) async fn a_sweep_fires_deadlines_once(bench: Bench) {
    let key = bench.key("p", "c");
    bench.with_call(&key, Some(1000)).await;
    let _ = bench.told(&key);
    bench.pass(999);
    bench.sweep().await;
    assert_eq!(bench.told(&key), Effects::default());
    assert_eq!(states(&bench.read(&key).await), [CallState::Open]);
    bench.pass(1);
    bench.sweep().await;
    bench.sweep().await;
    let timed_out = Fact::CallTimedOut { tool: "query_order".into() };
    let told = bench.told(&key);
    assert_eq!((told.facts, told.open_calls), (vec![timed_out], -1));
    assert_eq!(states(&bench.read(&key).await), [CallState::TimedOut]);
    let late = bench.apply(&key, bench.events().continuation(2, 1, "r")).await;
    assert_eq!(code(&late), Some(Code::Late));
}

/// Sweeps that race with each other and with a result: the deadline fires once.
pub(super) async fn racing_sweeps_fire_once(bench: Bench) {
    let bench = Arc::new(bench);
    let key = bench.key("p", "c");
    bench.with_call(&key, Some(10)).await;
    let _ = bench.told(&key);
    bench.pass(10);
    let mut sweeps = tokio::task::JoinSet::new();
    for _ in 0..RACERS {
        let bench = Arc::clone(&bench);
        sweeps.spawn(async move { bench.sweep().await });
    }
    let late = bench.apply(&key, bench.events().continuation(2, 1, "r")).await;
    sweeps.join_all().await;
    assert_eq!(code(&late), Some(Code::Late));
    assert_eq!(bench.told(&key).open_calls, -1);
}

/// The time of an event is the store's, even when no sweep came by.
pub(super) async fn the_clock_is_the_stores(bench: Bench) {
    let key = bench.key("p", "c");
    bench.with_call(&key, Some(1000)).await;
    bench.pass(1000);
    let late = bench.apply(&key, bench.events().continuation(2, 1, "r")).await;
    assert_eq!(code(&late), Some(Code::Late));
    let other = bench.key("p", "in time");
    bench.with_call(&other, Some(1000)).await;
    bench.pass(999);
    assert!(admitted(&bench.apply(&other, bench.events().continuation(2, 1, "r")).await));
}

/// A conversation is forgotten `ttl` after its last use: sweeps are no use of it, requests are.
pub(super) async fn expiry_withholds_what_is_in_flight(bench: Bench) {
    let key = bench.key("p", "c");
    let ttl = bench.rules.ttl.0;
    bench.with_call(&key, None).await;
    bench.pass(ttl - 1);
    bench.sweep().await;
    assert!(admitted(&bench.apply(&key, bench.events().opening(2, 1)).await), "it was used");
    bench.pass(ttl - 1);
    bench.sweep().await;
    assert_eq!(states(&bench.read(&key).await), [CallState::Open], "a use renews it");
    // An exchange that its replica still asks about keeps it alive; one that nobody serves does not.
    let _ = bench.told(&key);
    bench.pass(60_001);
    bench.sweep().await;
    assert_eq!(bench.store.read(&key).await.unwrap(), None);
    assert_eq!(bench.told(&key).open_calls, -1);
    assert_eq!(bench.store.conversations(), 0);
    let withheld = bench.apply(&key, answer(2)).await;
    assert_eq!(code(&withheld), Some(Code::StaleAnswer));
    assert_eq!(bench.store.read(&key).await.unwrap(), None, "the question leaves nothing");
}

/// An expired conversation is over even before a sweep finds it: its old results meet a new ledger.
pub(super) async fn expiry_does_not_wait_for_a_sweep(bench: Bench) {
    let key = bench.key("p", "c");
    bench.with_call(&key, None).await;
    let _ = bench.told(&key);
    bench.pass(bench.rules.ttl.0);
    let fresh = bench.apply(&key, bench.events().opening(2, 0)).await;
    assert!(admitted(&fresh), "generation 0 is not below a forgotten one: {fresh:?}");
    assert_eq!(bench.told(&key).open_calls, -1, "what was open is told of as ended");
    assert_eq!(states(&bench.read(&key).await), []);
}

/// A short `ttl` with an answer on its way: the listener is told to withhold it.
pub(super) async fn expiry_cancels_a_running_exchange(mut bench: Bench) {
    bench.rules =
        Arc::new(Rules { ttl: Millis(1000), lease: Millis(3_600_000), ..Rules::default() });
    let key = bench.key("p", "c");
    assert!(admitted(&bench.apply(&key, bench.events().opening(1, 1)).await));
    bench.pass(61_000);
    bench.sweep().await;
    assert_eq!(bench.told(&key).cancel, [(ExchangeId(1), Code::StaleAnswer)]);
    let withheld = bench.apply(&key, bench.events().proposal(1, None)).await;
    assert_eq!(code(&withheld), Some(Code::StaleAnswer));
}
