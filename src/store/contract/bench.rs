//! A store under test, with its clock and all that it told.

use super::events::{Events, admitted, delivered};
use crate::ledger::Conversation;
use crate::ledger::event::{Effects, Event, Millis, Outcome};
use crate::ledger::rules::Rules;
use crate::store::memory::Clock;
use crate::store::{ConversationKey, Listener, Store};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Opens an empty store: on that clock, telling that listener, with that bound per principal.
pub(super) type Factory = fn(Clock, Arc<dyn Listener>, usize) -> Arc<dyn Store>;

pub(super) const PER_PRINCIPAL: usize = 4;
pub(super) const RACERS: u128 = 8;

/// A store under test, with its clock and all that it told.
pub(super) struct Bench {
    pub(super) store: Arc<dyn Store>,
    time: Arc<AtomicU64>,
    told: Arc<Told>,
    pub(super) rules: Arc<Rules>,
}

#[derive(Default)]
struct Told(Mutex<Vec<(ConversationKey, Effects)>>);

impl Listener for Told {
    fn committed(&self, key: &ConversationKey, effects: &Effects) {
        self.0.lock().push((key.clone(), effects.clone()));
    }
}

impl Bench {
    pub(super) fn open(factory: Factory) -> Self {
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

    pub(super) fn pass(&self, millis: u64) {
        self.time.fetch_add(millis, Ordering::SeqCst);
    }

    pub(super) fn key(&self, principal: &str, conversation: &str) -> ConversationKey {
        let digests = self.store.digest_key();
        ConversationKey {
            principal: digests.bytes("principal", principal.as_bytes()),
            conversation: digests.bytes("conversation", conversation.as_bytes()),
        }
    }

    pub(super) async fn apply(&self, key: &ConversationKey, event: Event) -> Outcome {
        self.store.apply(key, event, &self.rules).await.unwrap().outcome
    }

    pub(super) async fn sweep(&self) {
        self.store.sweep(&self.rules).await.unwrap();
    }

    pub(super) async fn read(&self, key: &ConversationKey) -> Conversation {
        self.store.read(key).await.unwrap().unwrap_or_default()
    }

    /// What was told of one conversation since it was last asked.
    pub(super) fn told(&self, key: &ConversationKey) -> Effects {
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

    pub(super) fn events(&self) -> Events<'_> {
        Events(self.store.digest_key())
    }

    /// A conversation in generation 1 whose first exchange proposed one call, delivered.
    pub(super) async fn with_call(&self, key: &ConversationKey, deadline: Option<u64>) {
        let events = self.events();
        assert!(admitted(&self.apply(key, events.opening(1, 1)).await));
        assert_eq!(self.apply(key, events.proposal(1, deadline)).await, Outcome::Wanted);
        assert_eq!(self.apply(key, delivered(1)).await, Outcome::Done);
    }

    /// Brings all events at once, each on a task of its own. Gives their outcomes.
    pub(super) async fn race(&self, key: &ConversationKey, events: Vec<Event>) -> Vec<Outcome> {
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
