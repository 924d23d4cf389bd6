//! The contract of every store: one suite, run on each.
//!
//! The state machine is pure, so all that can go wrong between two replicas goes wrong here. Each rule
//! below is a security property; a store that breaks it lets through what the ledger would have stopped:
//!
//! | rule | what a breach would let happen |
//! | --- | --- |
//! | one conditional update per event | "it was 41 when I looked, 42 when I appended": two results are accepted for one call, two replicas answer one continuation, a budget is spent twice |
//! | an outcome is visible to the next event, whoever brings it | a stale answer is released after the user moved on |
//! | nothing on one key changes or reads another | one tenant's call is answered by another tenant's result |
//! | an event that comes twice has one outcome | a lost reply makes the proxy register calls twice, or refuse its own exchange |
//! | each committed effect is told exactly once | a cancelled answer goes on streaming, or the gauges lie |
//! | expiry and removal withhold what is in flight | an answer is released for which no ledger can be asked any more |
//! | a bound per principal, for new conversations only | one tenant fills the store; or, worse, a running task loses its ledger to make room |
//! | a refused first event leaves nothing | refused requests fill the store |
//! | deadlines fire once, without traffic | a late result overtakes its timeout |
//! | the store's clock decides, not the caller's | a replica with a slow clock accepts late results |
//!
//! A backend brings a factory: how to open a store on a clock and a listener that the test holds. Every
//! event is awaited to its end and nothing is looked at but through [`Store`] and [`Listener`], so that a
//! store over a network can pass only by being right.

#![expect(clippy::unwrap_used, reason = "tests")]

mod atomic;
mod bench;
mod bounds;
mod events;
mod time;
mod told;
mod visible;

use super::embedded::{Durability, EmbeddedStore};
use super::memory::{Clock, MemoryStore};
use super::{Listener, Store};
use crate::ledger::digest::DigestKey;
use atomic::*;
use bench::Bench;
use bounds::*;
use std::sync::Arc;
use time::*;
use told::*;
use visible::*;

/// Ready, and its key stays the same: digests that were kept must compare tomorrow.
async fn it_is_ready_and_keeps_its_key(bench: Bench) {
    assert_eq!(bench.store.ready().await, Ok(()));
    let digest = || bench.store.digest_key().bytes("test", b"value");
    assert_eq!(digest(), digest());
}

/// Makes the suite for one kind of store.
macro_rules! contract {
    ($kind:ident, $factory:expr, $($rule:ident)*) => {
        mod $kind {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
                async fn $rule() {
                    super::$rule(super::Bench::open($factory)).await;
                }
            )*
        }
    };
    ($kind:ident, $factory:expr) => {
        contract!($kind, $factory,
            one_result_wins
            one_continuation_runs
            one_decision_wins
            a_budget_is_spent_once
            no_advance_is_lost
            an_answer_and_an_advance_are_in_some_order
            an_outcome_is_visible_to_the_next_event
            keys_are_independent
            events_are_idempotent
            each_effect_is_told_once
            the_sums_agree_after_a_storm
            a_sweep_fires_deadlines_once
            racing_sweeps_fire_once
            the_clock_is_the_stores
            expiry_withholds_what_is_in_flight
            expiry_does_not_wait_for_a_sweep
            expiry_cancels_a_running_exchange
            removal_withholds_what_is_in_flight
            the_bound_is_per_principal_and_recovers
            the_last_place_is_one_conversations
            the_bound_holds_in_a_race
            a_refused_first_event_leaves_nothing
            creation_and_removal_race
            it_is_ready_and_keeps_its_key
        );
    };
}

contract!(memory, |clock, listener, most| {
    let key = super::DigestKey::new([7; 32]);
    std::sync::Arc::new(super::MemoryStore::new(key, clock, listener, most))
});

contract!(redis, crate::store::redis::tests::on_a_server);
contract!(redis_cluster, crate::store::redis::tests::on_a_cluster);

contract!(embedded, |clock, listener, most| {
    super::on_disk(super::Durability::Process, clock, listener, most)
});

contract!(embedded_machine, |clock, listener, most| {
    super::on_disk(super::Durability::Machine, clock, listener, most)
});

fn on_disk(
    durability: Durability,
    clock: Clock,
    listener: Arc<dyn Listener>,
    most_per_principal: usize,
) -> Arc<dyn Store> {
    Arc::new(EmbeddedStore::scratch(durability, clock, listener, most_per_principal))
}
