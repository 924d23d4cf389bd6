//! The in-process store: conversations in this process's memory, lost at its end.
//!
//! Each conversation has its own lock, held for one pure transition (microseconds); the map around them
//! is sharded, and no lock is held over an await. What is due (deadlines, leases) is kept in a set of its
//! own, so that a sweep costs what is active, not what is kept; expiry walks everything once a minute.

use super::{Answer, ConversationKey, Listener, Store, StoreError};
use crate::ledger::Conversation;
use crate::ledger::digest::{Digest, DigestKey};
use crate::ledger::event::{Effects, Event, Millis, Transition};
use crate::ledger::rules::Rules;
use dashmap::DashMap;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What time it is, in milliseconds since the Unix epoch.
pub type Clock = Arc<dyn Fn() -> Millis + Send + Sync>;

/// How often everything is looked at for expiry.
const EXPIRY_EVERY: Millis = Millis(60_000);

/// Keeps ledgers in memory.
pub struct MemoryStore {
    key: DigestKey,
    clock: Clock,
    listener: Arc<dyn Listener>,
    most_per_principal: usize,
    slots: DashMap<ConversationKey, Arc<Mutex<Slot>>>,
    counts: DashMap<Digest, usize>,
    active: DashMap<ConversationKey, ()>,
    expiry_looked: AtomicU64,
}

#[derive(Default)]
struct Slot {
    conversation: Conversation,
    used: Millis,
    /// Taken out of the map: whoever still holds it must look again.
    gone: bool,
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").field("conversations", &self.slots.len()).finish()
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
        MemoryStore {
            key,
            clock,
            listener,
            most_per_principal,
            slots: DashMap::new(),
            counts: DashMap::new(),
            active: DashMap::new(),
            expiry_looked: AtomicU64::new(0),
        }
    }

    fn apply_now(
        &self,
        key: &ConversationKey,
        event: &Event,
        rules: &Rules,
    ) -> Result<Transition, StoreError> {
        loop {
            let (cell, new) = self.slot(key, event)?;
            let mut slot = cell.lock();
            if slot.gone {
                continue;
            }
            let now = (self.clock)();
            if !new && slot.used.after(rules.ttl) <= now {
                self.take_out(key, &cell, &mut slot, now);
                continue;
            }
            let transition = slot.conversation.apply(event, rules, now);
            slot.used = if matches!(event, Event::Tick) { slot.used } else { now };
            self.listener.committed(key, &transition.effects);
            if slot.conversation == Conversation::default() {
                self.take_out(key, &cell, &mut slot, now);
            } else {
                self.mark(key, slot.conversation.due().is_some());
            }
            return Ok(transition);
        }
    }

    /// The slot of a conversation. Only a request or an advance makes one that stays; any other event
    /// on an unknown conversation is answered by a fresh one that is thrown away.
    fn slot(
        &self,
        key: &ConversationKey,
        event: &Event,
    ) -> Result<(Arc<Mutex<Slot>>, bool), StoreError> {
        if let Some(slot) = self.slots.get(key) {
            return Ok((Arc::clone(&slot), false));
        }
        if !matches!(event, Event::Admit(_) | Event::Advance(_)) {
            return Ok((Arc::default(), true));
        }
        let mut count = self.counts.entry(key.principal).or_default();
        if *count >= self.most_per_principal {
            // Another request may have made this very conversation since we looked.
            let made = self.slots.get(key).map(|slot| (Arc::clone(&slot), false));
            return made.ok_or(StoreError::Full);
        }
        let mut new = false;
        let slot = Arc::clone(&self.slots.entry(key.clone()).or_insert_with(|| {
            new = true;
            Arc::default()
        }));
        *count += usize::from(new);
        Ok((slot, new))
    }

    fn mark(&self, key: &ConversationKey, active: bool) {
        if !active {
            self.active.remove(key);
        } else if !self.active.contains_key(key) {
            self.active.insert(key.clone(), ());
        }
    }

    /// Takes a conversation out, under its lock: what is under way there is cancelled. Only this very
    /// `cell` leaves the map: another may have been put there under the same key.
    fn take_out(
        &self,
        key: &ConversationKey,
        cell: &Arc<Mutex<Slot>>,
        slot: &mut Slot,
        now: Millis,
    ) {
        slot.gone = true;
        let effects = slot.conversation.forget(now);
        if effects != Effects::default() {
            self.listener.committed(key, &effects);
        }
        if self.slots.remove_if(key, |_, kept| Arc::ptr_eq(kept, cell)).is_none() {
            return;
        }
        self.active.remove(key);
        if let Some(mut count) = self.counts.get_mut(&key.principal) {
            *count = count.saturating_sub(1);
        }
    }

    fn expire(&self, rules: &Rules) {
        let now = (self.clock)();
        let before = self.expiry_looked.load(Ordering::Relaxed);
        if now < Millis(before).after(EXPIRY_EVERY) {
            return;
        }
        self.expiry_looked.store(now.0, Ordering::Relaxed);
        let keys: Vec<ConversationKey> = self
            .slots
            .iter()
            .filter(|entry| {
                entry.value().try_lock().is_some_and(|slot| slot.used.after(rules.ttl) <= now)
            })
            .map(|entry| entry.key().clone())
            .collect();
        for key in keys {
            let Some(cell) = self.slots.get(&key).map(|slot| Arc::clone(&slot)) else { continue };
            let mut slot = cell.lock();
            if !slot.gone && slot.used.after(rules.ttl) <= now {
                self.take_out(&key, &cell, &mut slot, now);
            }
        }
        self.counts.retain(|_, count| *count > 0);
    }
}

impl Store for MemoryStore {
    fn digest_key(&self) -> &DigestKey {
        &self.key
    }

    fn apply<'a>(
        &'a self,
        key: &'a ConversationKey,
        event: Event,
        rules: &'a Arc<Rules>,
    ) -> Answer<'a, Transition> {
        Box::pin(std::future::ready(self.apply_now(key, &event, rules)))
    }

    fn remove<'a>(&'a self, key: &'a ConversationKey) -> Answer<'a, bool> {
        let cell = self.slots.get(key).map(|slot| Arc::clone(&slot));
        let removed = cell.is_some_and(|cell| {
            let mut slot = cell.lock();
            let there = !slot.gone;
            if there {
                self.take_out(key, &cell, &mut slot, (self.clock)());
            }
            there
        });
        Box::pin(std::future::ready(Ok(removed)))
    }

    fn read<'a>(&'a self, key: &'a ConversationKey) -> Answer<'a, Option<Conversation>> {
        let slot = self.slots.get(key).map(|slot| Arc::clone(&slot));
        let read = slot.map(|slot| slot.lock().conversation.clone());
        Box::pin(std::future::ready(Ok(read)))
    }

    fn sweep<'a>(&'a self, rules: &'a Arc<Rules>) -> Answer<'a, ()> {
        let now = (self.clock)();
        let keys: Vec<ConversationKey> =
            self.active.iter().map(|entry| entry.key().clone()).collect();
        for key in keys {
            let due = self.slots.get(&key).map(|slot| Arc::clone(&slot));
            let due = due.and_then(|slot| slot.lock().conversation.due());
            if due.is_some_and(|due| due <= now)
                && let Err(error) = self.apply_now(&key, &Event::Tick, rules)
            {
                return Box::pin(std::future::ready(Err(error)));
            }
        }
        self.expire(rules);
        Box::pin(std::future::ready(Ok(())))
    }

    fn ready(&self) -> Answer<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn conversations(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    //! The contract ([`super::super::contract`]) holds for every store; here is what only this one has:
    //! maps beside each other that must agree after any race.
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::ledger::event::{
        Admit, Alternative, ExchangeId, Outcome, Proposed, Replica, Settle,
    };
    use std::collections::BTreeSet;
    use std::sync::atomic::AtomicI64;

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
            let digest = |domain: &str, n: u64| self.store.key.bytes(domain, &n.to_le_bytes());
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
                lane: self.store.key.bytes("lane", b""),
                list: self.store.key.bytes("list", &exchange.to_le_bytes()),
                declared_retry: false,
                idempotency: None,
                runs: Vec::new(),
            })
        }

        fn proposal(&self, exchange: u128) -> Event {
            let call = Proposed {
                id: "call".into(),
                tool: "query_order".into(),
                arguments: self.store.key.arguments("{}"),
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
                let opening = self.store.apply_now(&key, &self.opening(exchange), &self.rules);
                if matches!(opening.unwrap().outcome, Outcome::Admitted(_)) {
                    admitted.push(ExchangeId(exchange));
                }
                let _ = self.store.apply_now(&key, &self.proposal(exchange), &self.rules).unwrap();
                let _ = self.store.apply_now(&key, &Event::Tick, &self.rules).unwrap();
            }
            admitted
        }

        fn assert_empty(&self) {
            assert_eq!(self.store.slots.len(), 0);
            assert_eq!(self.store.active.len(), 0);
            assert_eq!(self.store.counts.iter().map(|count| *count).sum::<usize>(), 0);
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
        stress.store.apply_now(&key, &stress.opening(30), &stress.rules).unwrap();
        stress.store.apply_now(&key, &stress.proposal(30), &stress.rules).unwrap();
        assert_eq!(stress.store.active.len(), 1);
        now(stress.store.remove(&key));
        stress.assert_empty();
    }
}
