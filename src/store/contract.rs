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
//! A backend brings a [`Bench`]: how to open a store on a clock and a listener that the test holds. Every
//! event is awaited to its end and nothing is looked at but through [`Store`] and [`Listener`], so that a
//! store over a network can pass only by being right.

#![expect(clippy::unwrap_used, reason = "tests")]

use super::embedded::{Durability, EmbeddedStore};
use super::memory::{Clock, MemoryStore};
use super::{ConversationKey, Listener, Store, StoreError};
use crate::guard::fault::Code;
use crate::ledger::Conversation;
use crate::ledger::calls::CallState;
use crate::ledger::digest::DigestKey;
use crate::ledger::event::{
    Admit, Advance, Alternative, Close, Decide, Effects, Ending, Event, ExchangeId, Fact, Millis,
    Names, Outcome, Pair, Proposed, Replica, Run, Settle,
};
use crate::ledger::rules::Rules;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Opens an empty store: on that clock, telling that listener, with that bound per principal.
type Factory = fn(Clock, Arc<dyn Listener>, usize) -> Arc<dyn Store>;

const PER_PRINCIPAL: usize = 4;
const RACERS: u128 = 8;

/// A store under test, with its clock and all that it told.
struct Bench {
    store: Arc<dyn Store>,
    time: Arc<AtomicU64>,
    told: Arc<Told>,
    rules: Arc<Rules>,
}

#[derive(Default)]
struct Told(Mutex<Vec<(ConversationKey, Effects)>>);

impl Listener for Told {
    fn committed(&self, key: &ConversationKey, effects: &Effects) {
        self.0.lock().push((key.clone(), effects.clone()));
    }
}

impl Bench {
    fn open(factory: Factory) -> Self {
        let time = Arc::new(AtomicU64::new(1_000_000));
        let told = Arc::new(Told::default());
        let clock: Clock = {
            let time = Arc::clone(&time);
            Arc::new(move || Millis(time.load(Ordering::SeqCst)))
        };
        let listener: Arc<dyn Listener> = told.clone();
        let store = factory(clock, listener, PER_PRINCIPAL);
        let rules = Rules { model_calls: Some(4), ttl: Millis(3_600_000), ..Rules::default() };
        Bench { store, time, told, rules: Arc::new(rules) }
    }

    fn pass(&self, millis: u64) {
        self.time.fetch_add(millis, Ordering::SeqCst);
    }

    fn key(&self, principal: &str, conversation: &str) -> ConversationKey {
        let digests = self.store.digest_key();
        ConversationKey {
            principal: digests.bytes("principal", principal.as_bytes()),
            conversation: digests.bytes("conversation", conversation.as_bytes()),
        }
    }

    async fn apply(&self, key: &ConversationKey, event: Event) -> Outcome {
        self.store.apply(key, event, &self.rules).await.unwrap().outcome
    }

    async fn sweep(&self) {
        self.store.sweep(&self.rules).await.unwrap();
    }

    async fn read(&self, key: &ConversationKey) -> Conversation {
        self.store.read(key).await.unwrap().unwrap_or_default()
    }

    /// What was told of one conversation since it was last asked.
    fn told(&self, key: &ConversationKey) -> Effects {
        let mut sum = Effects::default();
        self.told.0.lock().retain(|(whose, effects)| {
            if whose == key {
                sum.cancel.extend(effects.cancel.iter().copied());
                sum.facts.extend(effects.facts.iter().cloned());
                sum.open_calls += effects.open_calls;
            }
            whose != key
        });
        sum
    }

    fn events(&self) -> Events<'_> {
        Events(self.store.digest_key())
    }

    /// A conversation in generation 1 whose first exchange proposed one call, delivered.
    async fn with_call(&self, key: &ConversationKey, deadline: Option<u64>) {
        let events = self.events();
        assert!(admitted(&self.apply(key, events.opening(1, 1)).await));
        assert_eq!(self.apply(key, events.proposal(1, deadline)).await, Outcome::Wanted);
        assert_eq!(self.apply(key, delivered(1)).await, Outcome::Done);
    }

    /// Brings all events at once, each on a task of its own. Gives their outcomes.
    async fn race(&self, key: &ConversationKey, events: Vec<Event>) -> Vec<Outcome> {
        let start = Arc::new(tokio::sync::Barrier::new(events.len()));
        let mut racers = tokio::task::JoinSet::new();
        for event in events {
            let (store, rules) = (Arc::clone(&self.store), Arc::clone(&self.rules));
            let (start, key) = (Arc::clone(&start), key.clone());
            racers.spawn(async move {
                start.wait().await;
                store.apply(&key, event, &rules).await.unwrap().outcome
            });
        }
        racers.join_all().await
    }
}

/// Makes events.
struct Events<'a>(&'a DigestKey);

impl Events<'_> {
    fn opening(&self, exchange: u128, generation: u64) -> Event {
        self.admit(exchange, Some(generation), Vec::new())
    }

    fn continuation(&self, exchange: u128, generation: u64, result: &str) -> Event {
        let pair = Pair {
            id: "call_1".into(),
            tool: "query_order".into(),
            arguments: self.0.arguments("{}"),
            message: 2,
            result: self.0.bytes("result", result.as_bytes()),
            closing: false,
            name: None,
            echoes: Vec::new(),
            edits_allowed: false,
            attempt: None,
        };
        let mut event =
            self.admit(exchange, Some(generation), vec![Run { live: true, pairs: vec![pair] }]);
        if let Event::Admit(admit) = &mut event {
            admit.list = self.0.bytes("list", result.as_bytes());
        }
        event
    }

    fn admit(&self, exchange: u128, generation: Option<u64>, runs: Vec<Run>) -> Event {
        Event::Admit(Admit {
            exchange: ExchangeId(exchange),
            replica: Replica(1),
            generation,
            lane: self.0.bytes("lane", b""),
            list: self.0.bytes("list", &exchange.to_le_bytes()),
            declared_retry: false,
            idempotency: None,
            runs,
            names: Names::default(),
        })
    }

    fn proposal(&self, exchange: u128, deadline: Option<u64>) -> Event {
        let call = Proposed {
            id: "call_1".into(),
            tool: "query_order".into(),
            arguments: self.0.arguments("{}"),
            echoes: Vec::new(),
            deadline: deadline.map(Millis),
            write: false,
        };
        let alternatives = vec![Alternative { choice: 0, calls: vec![call] }];
        Event::Settle(Settle { exchange: ExchangeId(exchange), alternatives, forced: false })
    }

    fn decision(&self, by: u128, result: &str) -> Event {
        Event::Decide(Decide {
            exchange: ExchangeId(by),
            generation: 1,
            id: "call_1".into(),
            name: None,
            result: self.0.bytes("result", result.as_bytes()),
            closing: false,
            echoes: Vec::new(),
            attempt: None,
            idempotency: None,
        })
    }
}

fn answer(exchange: u128) -> Event {
    let exchange = ExchangeId(exchange);
    Event::Settle(Settle { exchange, alternatives: Vec::new(), forced: false })
}

fn advance(by: u128, generation: Option<u64>) -> Event {
    Event::Advance(Advance { exchange: ExchangeId(by), generation, idempotency: None })
}

fn check(exchange: u128) -> Event {
    Event::Check(ExchangeId(exchange))
}

fn delivered(exchange: u128) -> Event {
    Event::Close(Close { exchange: ExchangeId(exchange), ending: Ending::Delivered })
}

fn admitted(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Admitted(_))
}

fn code(outcome: &Outcome) -> Option<Code> {
    match outcome {
        Outcome::Refused(refused) => refused.faults.first().map(|fault| fault.code),
        Outcome::Withheld(code) => Some(*code),
        _ => None,
    }
}

fn codes(outcomes: &[Outcome]) -> BTreeMap<Option<Code>, usize> {
    let mut out = BTreeMap::new();
    outcomes.iter().for_each(|one| *out.entry(code(one)).or_default() += 1);
    out
}

fn states(conversation: &Conversation) -> Vec<CallState> {
    let calls = conversation.calls().iter().flat_map(|one| &one.calls);
    calls.map(|call| call.state).collect()
}

// ---- one conditional update per event ----

/// Different results for one call, brought at once: one is accepted, every other is a conflict.
async fn one_result_wins(bench: Bench) {
    for round in 0..20 {
        let key = bench.key(&format!("p{round}"), "race");
        bench.with_call(&key, None).await;
        let racing = (0..RACERS)
            .map(|racer| bench.events().continuation(100 + racer, 1, &format!("result {racer}")));
        let outcomes = bench.race(&key, racing.collect()).await;
        let lost = RACERS as usize - 1;
        assert_eq!(codes(&outcomes), [(None, 1), (Some(Code::Conflict), lost)].into());
    }
}

/// The same result, brought at once by several requests: one continuation runs.
async fn one_continuation_runs(bench: Bench) {
    for round in 0..20 {
        let key = bench.key(&format!("p{round}"), "race");
        bench.with_call(&key, None).await;
        let racing = (0..RACERS).map(|racer| bench.events().continuation(100 + racer, 1, "same"));
        let outcomes = bench.race(&key, racing.collect()).await;
        let lost = RACERS as usize - 1;
        assert_eq!(codes(&outcomes), [(None, 1), (Some(Code::Duplicate), lost)].into());
    }
}

/// Decisions by the control API race with each other: one result is accepted.
async fn one_decision_wins(bench: Bench) {
    let key = bench.key("p", "race");
    bench.with_call(&key, None).await;
    let racing =
        (0..RACERS).map(|racer| bench.events().decision(500 + racer, &format!("result {racer}")));
    let outcomes = bench.race(&key, racing.collect()).await;
    let won = outcomes.iter().filter(|one| matches!(one, Outcome::Accepted { .. })).count();
    assert_eq!(won, 1);
    assert!(matches!(states(&bench.read(&key).await)[..], [CallState::Accepted(_)]));
}

/// Requests race for the last model calls of a budget: never more than it allows.
async fn a_budget_is_spent_once(bench: Bench) {
    let key = bench.key("p", "race");
    let racing = (0..RACERS).map(|racer| bench.events().opening(1 + racer, 1));
    let outcomes = bench.race(&key, racing.collect()).await;
    assert_eq!(codes(&outcomes), [(None, 4), (Some(Code::BudgetExhausted), 4)].into());
}

/// Every advance to "the next" counts: none is lost, no number is given twice.
async fn no_advance_is_lost(bench: Bench) {
    let key = bench.key("p", "race");
    let racing = (0..RACERS).map(|racer| advance(300 + racer, None)).collect();
    let mut numbers: Vec<u64> = Vec::new();
    for outcome in bench.race(&key, racing).await {
        if let Outcome::Advanced { generation, .. } = outcome {
            numbers.push(generation);
        }
    }
    numbers.sort_unstable();
    let first = numbers[0];
    let expected: Vec<u64> = (0..RACERS as u64).map(|n| first + n).collect();
    assert_eq!(numbers, expected);
    assert_eq!(bench.read(&key).await.lanes().highest(), first + RACERS as u64 - 1);
}

/// An answer asks to go down while the user moves on. Whoever is first: an answer that was let go is
/// told of as cancelled afterwards, one that came second is withheld. Never both wanted and forgotten.
async fn an_answer_and_an_advance_are_in_some_order(bench: Bench) {
    for round in 0..40 {
        let key = bench.key(&format!("p{round}"), "race");
        assert!(admitted(&bench.apply(&key, bench.events().opening(1, 1)).await));
        let _ = bench.told(&key);
        let racing = vec![bench.events().proposal(1, None), advance(300, Some(2))];
        let outcomes = bench.race(&key, racing).await;
        let withheld = outcomes.iter().any(|one| code(one) == Some(Code::StaleAnswer));
        let wanted = outcomes.contains(&Outcome::Wanted);
        assert!(withheld != wanted, "{outcomes:?}");
        let told = bench.told(&key);
        assert_eq!(told.cancel, [(ExchangeId(1), Code::StaleAnswer)]);
        assert_eq!(told.open_calls, 0);
        let expected = if wanted { vec![CallState::Superseded] } else { Vec::new() };
        assert_eq!(states(&bench.read(&key).await), expected);
        let later = bench.apply(&key, check(1)).await;
        assert_eq!(code(&later), Some(Code::StaleAnswer));
    }
}

// ---- visibility, independence, repeats ----

/// What one event decided, the next one sees, though it comes from another task.
async fn an_outcome_is_visible_to_the_next_event(bench: Bench) {
    let key = bench.key("p", "c");
    for generation in 1..50_u64 {
        let exchange = u128::from(generation);
        let opening = bench.events().opening(exchange, generation);
        assert!(admitted(&bench.race(&key, vec![opening]).await[0]));
        assert_eq!(bench.race(&key, vec![check(exchange)]).await, [Outcome::Wanted]);
        let before = bench.race(&key, vec![answer(exchange - 1)]).await;
        assert_eq!(code(&before[0]), Some(Code::StaleAnswer));
        assert_eq!(bench.read(&key).await.lanes().highest(), generation);
    }
}

/// The same ids, lists and results on other keys: another principal's, or another conversation's.
async fn keys_are_independent(bench: Bench) {
    let key = bench.key("p", "c");
    bench.with_call(&key, None).await;
    let before = bench.read(&key).await;
    let _ = bench.told(&key);
    for other in [bench.key("p", "other"), bench.key("other", "c")] {
        assert_eq!(bench.store.read(&other).await.unwrap(), None);
        bench.with_call(&other, None).await;
        let advanced = bench.apply(&other, advance(300, Some(9))).await;
        assert!(matches!(advanced, Outcome::Advanced { generation: 9, .. }));
        let stale = bench.apply(&other, bench.events().continuation(2, 1, "r")).await;
        assert_eq!(code(&stale), Some(Code::StaleGeneration));
        assert!(bench.store.remove(&other).await.unwrap());
        assert_eq!(bench.read(&key).await, before);
        assert_eq!(bench.told(&key), Effects::default());
    }
    assert!(admitted(&bench.apply(&key, bench.events().continuation(2, 1, "r")).await));
}

/// An event that comes twice (the first reply was lost) has its first outcome, and one effect.
async fn events_are_idempotent(bench: Bench) {
    let key = bench.key("p", "c");
    let events = bench.events();
    let all = [
        events.opening(1, 1),
        events.proposal(1, Some(1000)),
        delivered(1),
        events.continuation(2, 1, "r"),
        check(2),
        answer(2),
        delivered(2),
        advance(300, None),
        Event::Tick,
    ];
    for event in all {
        let first = bench.apply(&key, event.clone()).await;
        let state = bench.read(&key).await;
        assert_eq!(bench.apply(&key, event.clone()).await, first, "{event:?}");
        assert_eq!(bench.race(&key, vec![event.clone(); 4]).await, vec![first; 4], "{event:?}");
        assert_eq!(bench.read(&key).await, state, "{event:?}");
    }
    let told = bench.told(&key);
    let registered = |fact: &&Fact| matches!(fact, Fact::CallRegistered { .. });
    assert_eq!(told.facts.iter().filter(registered).count(), 1);
    assert_eq!(told.open_calls, 0);
}

// ---- what is told ----

/// Each effect is told once, on the key it happened on, whoever caused it; what changes nothing tells
/// nothing.
async fn each_effect_is_told_once(bench: Bench) {
    let key = bench.key("p", "c");
    bench.with_call(&key, Some(1000)).await;
    assert_eq!(bench.told(&key).open_calls, 1);
    assert!(admitted(&bench.apply(&key, bench.events().opening(2, 1)).await));
    assert_eq!(bench.told(&key), Effects::default());
    let _ = bench.apply(&key, advance(301, Some(2))).await;
    let told = bench.told(&key);
    assert_eq!(told.cancel, [(ExchangeId(2), Code::StaleAnswer)]);
    assert_eq!(told.open_calls, -1);
    let ended = |fact: &&Fact| matches!(fact, Fact::TaskEnded { .. });
    assert_eq!(told.facts.iter().filter(ended).count(), 1);
    let _ = bench.apply(&key, advance(302, Some(2))).await;
    bench.pass(5000);
    bench.sweep().await;
    let again = bench.told(&key);
    assert_eq!((again.cancel.len(), again.facts.len(), again.open_calls), (0, 0, 0));
}

/// What is told is committed: a listener that hears of a withheld exchange finds it withheld.
async fn the_sums_agree_after_a_storm(bench: Bench) {
    let keys: Vec<_> = (0..4).map(|n| bench.key(&format!("p{n}"), "storm")).collect();
    for key in &keys {
        bench.with_call(key, None).await;
        let mut storm = vec![advance(300, None), bench.events().decision(500, "one"), Event::Tick];
        storm.extend((2..6).map(|n| bench.events().opening(n, 1)));
        storm.extend((2..6).map(|n| bench.events().proposal(n, None)));
        let _ = bench.race(key, storm).await;
        let open =
            states(&bench.read(key).await).iter().filter(|one| **one == CallState::Open).count();
        assert_eq!(bench.told(key).open_calls, open as i64);
    }
}

// ---- time ----

/// Deadlines fire by the store's clock, in a sweep, once; and a late result finds the timeout.
async fn a_sweep_fires_deadlines_once(bench: Bench) {
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
async fn racing_sweeps_fire_once(bench: Bench) {
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
async fn the_clock_is_the_stores(bench: Bench) {
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
async fn expiry_withholds_what_is_in_flight(bench: Bench) {
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
async fn expiry_does_not_wait_for_a_sweep(bench: Bench) {
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
async fn expiry_cancels_a_running_exchange(mut bench: Bench) {
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

// ---- bounds ----

/// Removal forgets, says whether there was something, and withholds what is in flight.
async fn removal_withholds_what_is_in_flight(bench: Bench) {
    let key = bench.key("p", "c");
    assert!(!bench.store.remove(&key).await.unwrap());
    bench.with_call(&key, None).await;
    assert!(admitted(&bench.apply(&key, bench.events().opening(2, 1)).await));
    let _ = bench.told(&key);
    assert!(bench.store.remove(&key).await.unwrap());
    let told = bench.told(&key);
    assert_eq!((told.cancel, told.open_calls), (vec![(ExchangeId(2), Code::StaleAnswer)], -1));
    assert_eq!(bench.store.read(&key).await.unwrap(), None);
    assert_eq!(bench.store.conversations(), 0);
    assert_eq!(code(&bench.apply(&key, answer(2)).await), Some(Code::StaleAnswer));
    assert!(!bench.store.remove(&key).await.unwrap());
    assert!(admitted(&bench.apply(&key, bench.events().opening(3, 0)).await), "it begins anew");
}

/// The bound holds for new conversations of that principal only, and ends when one goes.
async fn the_bound_is_per_principal_and_recovers(bench: Bench) {
    let keys: Vec<_> = (0..=PER_PRINCIPAL).map(|n| bench.key("p", &format!("c{n}"))).collect();
    for key in &keys[..PER_PRINCIPAL] {
        bench.with_call(key, None).await;
    }
    let over = keys.last().unwrap();
    let opening = bench.events().opening(1, 1);
    let full = bench.store.apply(over, opening.clone(), &bench.rules).await;
    assert_eq!(full.unwrap_err(), StoreError::Full);
    assert_eq!(bench.store.read(over).await.unwrap(), None);
    assert_eq!(bench.told(over), Effects::default());
    // Those that run go on, and nothing but a new conversation is refused.
    assert!(admitted(&bench.apply(&keys[0], bench.events().continuation(2, 1, "r")).await));
    assert_eq!(code(&bench.apply(over, answer(9)).await), Some(Code::StaleAnswer));
    assert!(admitted(&bench.apply(&bench.key("other", "c"), opening.clone()).await));
    assert!(bench.store.remove(&keys[1]).await.unwrap());
    assert!(admitted(&bench.apply(over, opening).await));
    assert_eq!(bench.store.conversations(), PER_PRINCIPAL + 1);
}

/// Requests of one new conversation race for the last place: it is theirs, all of them.
async fn the_last_place_is_one_conversations(bench: Bench) {
    for round in 0..100 {
        let principal = format!("p{round}");
        for n in 1..PER_PRINCIPAL {
            let key = bench.key(&principal, &format!("c{n}"));
            assert!(admitted(&bench.apply(&key, bench.events().opening(1, 1)).await));
        }
        let last = bench.key(&principal, "last");
        let racing = (0..4).map(|racer| bench.events().opening(1 + racer, 1)).collect();
        let outcomes = bench.race(&last, racing).await;
        assert!(outcomes.iter().all(admitted));
    }
}

/// New conversations race for the last places: never more than the bound.
async fn the_bound_holds_in_a_race(bench: Bench) {
    let mut racers = tokio::task::JoinSet::new();
    let start = Arc::new(tokio::sync::Barrier::new(RACERS as usize));
    for racer in 0..RACERS {
        let key = bench.key("p", &format!("c{racer}"));
        let (store, rules) = (Arc::clone(&bench.store), Arc::clone(&bench.rules));
        let (opening, start) = (bench.events().opening(1, 1), Arc::clone(&start));
        racers.spawn(async move {
            start.wait().await;
            store.apply(&key, opening, &rules).await.is_ok()
        });
    }
    let made = racers.join_all().await.into_iter().filter(|made| *made).count();
    assert_eq!((made, bench.store.conversations()), (PER_PRINCIPAL, PER_PRINCIPAL));
}

/// A first event that is refused leaves nothing behind, and takes no place.
async fn a_refused_first_event_leaves_nothing(bench: Bench) {
    let mut strict = (*bench.rules).clone();
    strict.actions = strict.actions.with(Code::Adopted, crate::guard::verdict::Action::Refuse);
    let strict = Arc::new(strict);
    for n in 0..2 * PER_PRINCIPAL {
        let key = bench.key("p", &format!("c{n}"));
        let mut event = bench.events().continuation(1, 1, "r");
        if let Event::Admit(admit) = &mut event {
            admit.generation = None;
        }
        let refused = bench.store.apply(&key, event, &strict).await.unwrap();
        assert_eq!(code(&refused.outcome), Some(Code::Unmatched));
        for event in
            [answer(1), check(1), delivered(1), Event::Tick, bench.events().decision(500, "r")]
        {
            let _ = bench.apply(&key, event).await;
        }
        assert_eq!(bench.store.read(&key).await.unwrap(), None);
    }
    assert_eq!(bench.store.conversations(), 0);
}

/// Conversations are made, used and removed at once, on few keys: nothing is lost, doubled or left.
async fn creation_and_removal_race(bench: Bench) {
    let mut racers = tokio::task::JoinSet::new();
    for racer in 0..RACERS {
        let keys: Vec<_> = (0..3).map(|n| bench.key("p", &format!("c{n}"))).collect();
        let (store, rules) = (Arc::clone(&bench.store), Arc::clone(&bench.rules));
        let openings: Vec<_> =
            (0..100).map(|n| bench.events().opening(racer * 1000 + n, 1)).collect();
        racers.spawn(async move {
            for (n, opening) in openings.into_iter().enumerate() {
                let key = &keys[n % 3];
                let _ = store.apply(key, opening, &rules).await.unwrap();
                if n % 4 == racer as usize % 4 {
                    let _ = store.remove(key).await.unwrap();
                }
            }
        });
    }
    racers.join_all().await;
    for n in 0..3 {
        let _ = bench.store.remove(&bench.key("p", &format!("c{n}"))).await.unwrap();
    }
    assert_eq!(bench.store.conversations(), 0);
    // The bound counts none that is gone.
    for n in 0..PER_PRINCIPAL {
        let key = bench.key("p", &format!("new{n}"));
        assert!(admitted(&bench.apply(&key, bench.events().opening(1, 1)).await));
    }
}

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
