//! The in-process store: conversations in this process's memory, lost at its end.

use super::encoding::Kept;
use super::slots::{Backing, Slots};
use super::{Answer, ConversationKey, Listener, Store, StoreError};
use crate::ledger::Conversation;
use crate::ledger::digest::DigestKey;
use crate::ledger::event::{Effects, Event, Millis, Transition};
use crate::ledger::rules::Rules;
use std::future::ready;
use std::sync::Arc;

pub use super::slots::Clock;

/// Keeps ledgers in memory.
pub struct MemoryStore(Slots<Nothing>);

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").field("conversations", &self.conversations()).finish()
    }
}

impl MemoryStore {
    /// An empty store. `key` should be fresh randomness; `listener` learns of everything committed.
    #[must_use]
    pub fn new(
        key: DigestKey,
        clock: Clock,
        listener: Arc<dyn Listener>,
        most_per_principal: usize,
    ) -> Self {
        MemoryStore(Slots::new(key, clock, listener, most_per_principal, Nothing))
    }
}

impl Store for MemoryStore {
    fn digest_key(&self) -> &DigestKey {
        &self.0.key
    }

    fn apply<'a>(
        &'a self,
        key: &'a ConversationKey,
        event: Event,
        rules: &'a Arc<Rules>,
    ) -> Answer<'a, Transition> {
        Box::pin(ready(self.0.apply(key, &event, rules).map(|(transition, _)| transition)))
    }

    fn remove<'a>(&'a self, key: &'a ConversationKey) -> Answer<'a, bool> {
        Box::pin(ready(self.0.remove(key).map(|(there, _)| there)))
    }

    fn read<'a>(&'a self, key: &'a ConversationKey) -> Answer<'a, Option<Conversation>> {
        Box::pin(ready(self.0.read(key).map(|(conversation, _)| conversation)))
    }

    fn sweep<'a>(&'a self, rules: &'a Arc<Rules>) -> Answer<'a, ()> {
        Box::pin(ready(self.0.sweep(rules).map(|_| ())))
    }

    fn ready(&self) -> Answer<'_, ()> {
        Box::pin(ready(Ok(())))
    }

    fn conversations(&self) -> usize {
        self.0.slots.len()
    }
}

/// Nothing stands behind: what leaves memory is gone.
struct Nothing;

impl Backing for Nothing {
    type Place = ();

    fn load(&self, _: &ConversationKey, (): ()) -> Result<Kept, StoreError> {
        Err(StoreError::Unavailable("nothing stands behind memory"))
    }

    fn put(
        &self,
        _: &ConversationKey,
        _: Millis,
        _: &Conversation,
        _: Option<()>,
    ) -> Result<(), StoreError> {
        Ok(())
    }

    fn remove(&self, _: &ConversationKey, (): ()) -> Result<(), StoreError> {
        Ok(())
    }

    fn tell(
        &self,
        _: Option<()>,
        listener: &Arc<dyn Listener>,
        key: &ConversationKey,
        effects: &Effects,
    ) {
        listener.committed(key, effects);
    }

    fn reads(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    //! The contract ([`super::super::contract`]) holds for every store; here is what only this one has:
    //! maps beside each other that must agree after any race.
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::ledger::event::{
        Admit, Alternative, ExchangeId, Names, Outcome, Proposed, Replica, Settle,
    };
    use parking_lot::Mutex;
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

    /// Sums up what is told: calls open by all accounts, and exchanges told to be cancelled.
    #[derive(Default)]
    struct Sums {
        open_calls: AtomicI64,
        cancelled: Mutex<BTreeSet<ExchangeId>>,
    }

    impl Listener for Sums {
        fn committed(&self, _: &ConversationKey, effects: &Effects) {
            self.open_calls.fetch_add(effects.open_calls, Ordering::SeqCst);
            let mut cancelled = self.cancelled.lock();
            for (exchange, _) in &effects.cancel {
                assert!(cancelled.insert(*exchange), "cancelled twice");
            }
        }
    }

    struct Stress {
        store: MemoryStore,
        time: Arc<AtomicU64>,
        sums: Arc<Sums>,
        rules: Arc<Rules>,
    }

    impl Stress {
        fn new(ttl: Millis) -> Self {
            let time = Arc::new(AtomicU64::new(1));
            let sums = Arc::new(Sums::default());
            let clock: Clock = {
                let time = Arc::clone(&time);
                Arc::new(move || Millis(time.load(Ordering::SeqCst)))
            };
            let rules = Rules { ttl, lease: Millis(u64::MAX), ..Rules::default() };
            let key = DigestKey::new([7; 32]);
            let store = MemoryStore::new(key, clock, sums.clone(), 1000);
            Stress { store, time, sums, rules: Arc::new(rules) }
        }

        fn key(&self, principal: u64, conversation: u64) -> ConversationKey {
            let digest = |domain: &str, n: u64| self.store.0.key.bytes(domain, &n.to_le_bytes());
            ConversationKey {
                principal: digest("principal", principal),
                conversation: digest("conversation", conversation),
            }
        }

        fn opening(&self, exchange: u128) -> Event {
            Event::Admit(Admit {
                exchange: ExchangeId(exchange),
                replica: Replica(1),
                generation: Some(1),
                lane: self.store.0.key.bytes("lane", b""),
                list: self.store.0.key.bytes("list", &exchange.to_le_bytes()),
                declared_retry: false,
                idempotency: None,
                runs: Vec::new(),
                names: Names::default(),
            })
        }

        fn proposal(&self, exchange: u128) -> Event {
            let call = Proposed {
                id: "call".into(),
                tool: "query_order".into(),
                arguments: self.store.0.key.arguments("{}"),
                echoes: Vec::new(),
                deadline: Some(Millis(exchange as u64 % 50)),
                write: false,
            };
            let alternatives = vec![Alternative { choice: 0, calls: vec![call] }];
            Event::Settle(Settle { exchange: ExchangeId(exchange), alternatives, forced: false })
        }

        /// Works on a few keys; gives the exchanges that were admitted.
        fn work(&self, thread: u128) -> Vec<ExchangeId> {
            let mut admitted = Vec::new();
            for n in 0..400_u128 {
                let exchange = (thread << 64) | n;
                let key = self.key((n % 2) as u64, (n % 5) as u64);
                let opening = self.store.0.apply(&key, &self.opening(exchange), &self.rules);
                if matches!(opening.unwrap().0.outcome, Outcome::Admitted(_)) {
                    admitted.push(ExchangeId(exchange));
                }
                let _ = self.store.0.apply(&key, &self.proposal(exchange), &self.rules).unwrap();
                let _ = self.store.0.apply(&key, &Event::Tick, &self.rules).unwrap();
            }
            admitted
        }

        fn assert_empty(&self) {
            assert_eq!(self.store.0.slots.len(), 0);
            assert_eq!(self.store.0.active.len(), 0);
            assert_eq!(self.store.0.counts.iter().map(|count| *count).sum::<usize>(), 0);
            assert_eq!(self.sums.open_calls.load(Ordering::SeqCst), 0);
        }
    }

    fn now<T>(answer: super::super::Answer<'_, T>) -> T {
        let mut answer = std::pin::pin!(answer);
        let mut waker = std::task::Context::from_waker(std::task::Waker::noop());
        match answer.as_mut().poll(&mut waker) {
            std::task::Poll::Ready(done) => done.unwrap(),
            std::task::Poll::Pending => unreachable!("this store never waits"),
        }
    }

    /// Workers make conversations while others let them expire and remove them. In the end nothing is
    /// there, every count is back at zero, and each exchange was told to be cancelled exactly once.
    #[test]
    fn creation_expiry_and_removal_race() {
        let stress = Stress::new(Millis(70_000));
        let admitted = std::thread::scope(|scope| {
            let workers: Vec<_> = (1..=4)
                .map(|thread| {
                    scope.spawn({
                        let s = &stress;
                        move || s.work(thread)
                    })
                })
                .collect();
            for _ in 0..2 {
                scope.spawn(|| {
                    for n in 0..300_u64 {
                        stress.time.fetch_add(20_000, Ordering::SeqCst);
                        now(stress.store.sweep(&stress.rules));
                        if n % 7 == 0 {
                            now(stress.store.remove(&stress.key(n % 2, n % 5)));
                        }
                        std::thread::yield_now();
                    }
                });
            }
            workers.into_iter().flat_map(|one| one.join().unwrap()).collect::<BTreeSet<_>>()
        });
        stress.time.fetch_add(200_000, Ordering::SeqCst);
        now(stress.store.sweep(&stress.rules));
        stress.assert_empty();
        assert_eq!(*stress.sums.cancelled.lock(), admitted);
    }

    /// Only what has something due is swept, and what has nothing due any more leaves that set.
    #[test]
    fn only_what_is_due_is_active() {
        let stress = Stress::new(Millis(u64::MAX));
        let key = stress.key(1, 1);
        stress.store.0.apply(&key, &stress.opening(30), &stress.rules).unwrap();
        stress.store.0.apply(&key, &stress.proposal(30), &stress.rules).unwrap();
        assert_eq!(stress.store.0.active.len(), 1);
        now(stress.store.remove(&key));
        stress.assert_empty();
    }
}
