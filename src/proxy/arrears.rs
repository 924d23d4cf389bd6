//! What the ledger is owed: exchanges that went on while the store did not answer (`on_error = "open"`).
//!
//! What was forwarded happened. So the events of such exchanges are kept here, in their order, and brought to
//! the store when it answers again: before anything else is asked about that conversation on this replica,
//! and in the background. They are the ledger's own events, under rules that only note, so what they register
//! and accept is marked `forced`; an exchange id that comes twice is one exchange, as ever. One thing still
//! refuses: a request of an older generation than the current one. Its exchange is unknown then, and its
//! answer is withheld if it is still on its way.
//!
//! ```text
//! no answer ──► owed ──┬─ next question about it here ─┬──► the store has it
//!                      ├─ once a second ───────────────┘
//!                      └─ too much is owed (the oldest conversation goes), DELETE, the end of this process
//! ```
//! The trade-off: until then it is in this process only. Another replica does not know these calls yet and
//! finds their results `unmatched`; so does everybody when this process ends first.

use crate::guard::fault::Code;
use crate::guard::verdict::Action;
use crate::ledger::event::{Event, Settle};
use crate::ledger::rules::Rules;
use crate::store::{ConversationKey, Store, StoreError};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most that is owed in all, in events and the calls and results in them: about 30 MB.
const MOST: usize = 1 << 17;
/// Conversations that share a turn wait for each other, which costs time and nothing else.
const TURNS: usize = 64;

/// What is owed.
pub(crate) struct Arrears {
    books: Mutex<Books>,
    /// How much is owed in all, so that nobody takes the lock when it is nothing.
    weight: AtomicUsize,
    turns: Vec<tokio::sync::Mutex<()>>,
    hasher: RandomState,
    most: usize,
}

#[derive(Default)]
struct Books {
    accounts: HashMap<ConversationKey, Account>,
    /// Which conversation has owed the longest.
    order: BTreeMap<u64, ConversationKey>,
    next: u64,
}

#[derive(Default)]
struct Account {
    since: u64,
    entries: VecDeque<Entry>,
}

#[derive(Clone)]
struct Entry {
    number: u64,
    weight: usize,
    event: Event,
    rules: Arc<Rules>,
}

impl Default for Arrears {
    fn default() -> Self {
        Arrears::bounded(MOST)
    }
}

impl Arrears {
    fn bounded(most: usize) -> Self {
        Arrears {
            books: Mutex::default(),
            weight: AtomicUsize::new(0),
            turns: (0..TURNS).map(|_| tokio::sync::Mutex::default()).collect(),
            hasher: RandomState::new(),
            most,
        }
    }

    /// Notes what happened, for later. Gives how many events had to be given up for it.
    pub(crate) fn owe(&self, key: &ConversationKey, event: Event, rules: &Rules) -> usize {
        let (event, weight) = forced(event);
        let rules = Arc::new(lenient(&event, rules));
        let mut books = self.books.lock();
        let number = books.next;
        books.next += 1;
        if !books.accounts.contains_key(key) {
            books.order.insert(number, key.clone());
        }
        let account = books.accounts.entry(key.clone());
        let account = account.or_insert_with(|| Account { since: number, ..Account::default() });
        account.entries.push_back(Entry { number, weight, event, rules });
        let mut owed = self.weight.fetch_add(weight, Ordering::Relaxed) + weight;
        let mut given_up = 0;
        // A whole conversation goes: half of it would be another story.
        while owed > self.most
            && let Some((_, oldest)) = books.order.pop_first()
        {
            let gone = books.accounts.remove(&oldest).unwrap_or_default();
            given_up += gone.entries.len();
            owed -= self.lighter(&gone);
        }
        given_up
    }

    /// Brings what is owed of a conversation to the store; at once if there is nothing. Gives how many
    /// events had to be given up.
    ///
    /// # Errors
    /// When the store does not answer: nothing else may be asked about this conversation before.
    pub(crate) async fn pay(
        &self,
        store: &dyn Store,
        key: &ConversationKey,
    ) -> Result<usize, StoreError> {
        if !self.owes(key) {
            return Ok(0);
        }
        let _turn = self.turn(key).lock().await;
        while let Some(Entry { number, event, rules, .. }) = self.first(key) {
            match store.apply(key, event, &rules).await {
                Ok(_) => self.paid(key, number),
                Err(StoreError::Full) => return Ok(self.forget(key)),
                Err(error) => return Err(error),
            }
        }
        Ok(0)
    }

    /// Forgets a conversation in the store, and what is owed of it.
    ///
    /// # Errors
    /// When the store does not answer: then nothing is forgotten.
    pub(crate) async fn remove(
        &self,
        store: &dyn Store,
        key: &ConversationKey,
    ) -> Result<bool, StoreError> {
        let _turn = self.turn(key).lock().await;
        let there = store.remove(key).await?;
        Ok(self.forget(key) > 0 || there)
    }

    /// The conversations of which something is owed, the longest first.
    pub(crate) fn debtors(&self) -> Vec<ConversationKey> {
        if self.weight.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        self.books.lock().order.values().cloned().collect()
    }

    fn owes(&self, key: &ConversationKey) -> bool {
        self.weight.load(Ordering::Relaxed) > 0 && self.books.lock().accounts.contains_key(key)
    }

    fn turn(&self, key: &ConversationKey) -> &tokio::sync::Mutex<()> {
        &self.turns[self.hasher.hash_one(key) as usize % TURNS]
    }

    fn first(&self, key: &ConversationKey) -> Option<Entry> {
        self.books.lock().accounts.get(key).and_then(|one| one.entries.front().cloned())
    }

    /// The account stays until its last entry is paid: whoever comes meanwhile waits.
    fn paid(&self, key: &ConversationKey, number: u64) {
        let mut books = self.books.lock();
        let Some(account) = books.accounts.get_mut(key) else { return };
        if account.entries.front().is_some_and(|one| one.number == number)
            && let Some(entry) = account.entries.pop_front()
        {
            self.weight.fetch_sub(entry.weight, Ordering::Relaxed);
        }
        if account.entries.is_empty() {
            let since = account.since;
            books.accounts.remove(key);
            books.order.remove(&since);
        }
    }

    fn forget(&self, key: &ConversationKey) -> usize {
        let mut books = self.books.lock();
        let Some(gone) = books.accounts.remove(key) else { return 0 };
        books.order.remove(&gone.since);
        self.lighter(&gone);
        gone.entries.len()
    }

    fn lighter(&self, gone: &Account) -> usize {
        let weight = gone.entries.iter().map(|entry| entry.weight).sum();
        self.weight.fetch_sub(weight, Ordering::Relaxed);
        weight
    }
}

/// The event as it happened, and about how much it holds.
fn forced(event: Event) -> (Event, usize) {
    match event {
        Event::Settle(settle) => {
            let calls: usize = settle.alternatives.iter().map(|one| one.calls.len()).sum();
            (Event::Settle(Settle { forced: true, ..settle }), 1 + calls)
        }
        Event::Admit(admit) => {
            let pairs: usize = admit.runs.iter().map(|run| run.pairs.len()).sum();
            (Event::Admit(admit), 1 + pairs)
        }
        other => (other, 1),
    }
}

/// Rules that refuse nothing that happened.
fn lenient(event: &Event, rules: &Rules) -> Rules {
    // A request of an older generation does not enter the current one; one that moves the generation on, or
    // takes over, cuts what is under way.
    let kept: &[Code] = match event {
        Event::Admit(_) => &[Code::StaleGeneration, Code::StaleAnswer, Code::Overtaken],
        _ => &[],
    };
    let mut lenient = Rules { enforcing: None, ..rules.clone() };
    for code in Code::ALL {
        if rules.actions.action(code) == Action::Refuse && !kept.contains(&code) {
            lenient.actions = lenient.actions.with(code, Action::Note);
        }
    }
    lenient
}

#[cfg(test)]
mod tests {
    //! Over a real outage: `tests/redis/outage.rs`.
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::ledger::calls::CallState;
    use crate::ledger::digest::{Digest, DigestKey};
    use crate::ledger::event::{
        Admit, Advance, Alternative, Close, Effects, Ending, ExchangeId, Millis, Outcome, Proposed,
        Replica,
    };
    use crate::store::Listener;
    use crate::store::memory::MemoryStore;

    struct Deaf;

    impl Listener for Deaf {
        fn committed(&self, _: &ConversationKey, _: &Effects) {}
    }

    fn store(most: usize) -> MemoryStore {
        let clock = Arc::new(|| Millis(1_000_000));
        MemoryStore::new(DigestKey::new([7; 32]), clock, Arc::new(Deaf), most)
    }

    fn key(n: u8) -> ConversationKey {
        ConversationKey { principal: digest(0), conversation: digest(n) }
    }

    fn digest(n: u8) -> Digest {
        Digest::from_bytes([n; 16])
    }

    fn exchange(id: u128, generation: u64) -> [Event; 3] {
        let admit = Admit {
            exchange: ExchangeId(id),
            replica: Replica(1),
            generation: Some(generation),
            lane: digest(1),
            list: digest(2),
            declared_retry: false,
            idempotency: None,
            runs: Vec::new(),
        };
        let call = Proposed {
            id: "call_1".into(),
            tool: "query_order".into(),
            arguments: digest(3),
            echoes: Vec::new(),
            deadline: None,
            write: false,
        };
        let alternatives = vec![Alternative { choice: 0, calls: vec![call] }];
        let exchange = ExchangeId(id);
        [
            Event::Admit(admit),
            Event::Settle(Settle { exchange, alternatives, forced: false }),
            Event::Close(Close { exchange, ending: Ending::Delivered }),
        ]
    }

    fn owe(arrears: &Arrears, key: &ConversationKey, events: [Event; 3]) -> usize {
        events.into_iter().map(|event| arrears.owe(key, event, &Rules::default())).sum()
    }

    async fn calls(store: &MemoryStore, key: &ConversationKey) -> Vec<(CallState, bool)> {
        let conversation = store.read(key).await.unwrap().unwrap_or_default();
        let proposals = conversation.calls().iter();
        proposals.flat_map(|one| one.calls.iter().map(|call| (call.state, one.forced))).collect()
    }

    #[tokio::test]
    async fn what_is_owed_is_registered_as_forced_and_paid_once() {
        let (arrears, store) = (Arrears::default(), store(9));
        assert_eq!(owe(&arrears, &key(1), exchange(1, 1)), 0);
        assert_eq!(arrears.debtors(), [key(1)]);
        assert_eq!(arrears.pay(&store, &key(2)).await, Ok(0), "nothing is owed there");
        assert_eq!(arrears.pay(&store, &key(1)).await, Ok(0));
        assert_eq!(calls(&store, &key(1)).await, [(CallState::Open, true)]);
        assert!(arrears.debtors().is_empty());
        assert_eq!(arrears.weight.load(Ordering::SeqCst), 0);
        // Some of it had arrived, and only the replies were lost.
        owe(&arrears, &key(1), exchange(1, 1));
        assert_eq!(arrears.pay(&store, &key(1)).await, Ok(0));
        assert_eq!(calls(&store, &key(1)).await, [(CallState::Open, true)]);
    }

    #[tokio::test]
    async fn an_older_generation_is_not_brought_back() {
        let (arrears, store) = (Arrears::default(), store(9));
        let advance = Advance { exchange: ExchangeId(9), generation: Some(2), idempotency: None };
        let rules = Arc::new(Rules::default());
        let told = store.apply(&key(1), Event::Advance(advance), &rules).await.unwrap();
        assert!(matches!(told.outcome, Outcome::Advanced { .. }));
        owe(&arrears, &key(1), exchange(1, 1));
        owe(&arrears, &key(1), exchange(2, 2));
        assert_eq!(arrears.pay(&store, &key(1)).await, Ok(0));
        assert_eq!(calls(&store, &key(1)).await.len(), 1, "that of generation 2");
    }

    #[tokio::test]
    async fn when_too_much_is_owed_the_oldest_conversation_goes_and_is_counted() {
        // Each exchange weighs four: three events, one of them with a call.
        let (arrears, store) = (Arrears::bounded(8), store(9));
        assert_eq!(owe(&arrears, &key(1), exchange(1, 1)), 0);
        assert_eq!(owe(&arrears, &key(2), exchange(2, 1)), 0);
        assert_eq!(owe(&arrears, &key(3), exchange(3, 1)), 3);
        assert_eq!(arrears.debtors(), [key(2), key(3)]);
        for (n, there) in [(1, 0), (2, 1), (3, 1)] {
            assert_eq!(arrears.pay(&store, &key(n)).await, Ok(0));
            assert_eq!(calls(&store, &key(n)).await.len(), there, "{n}");
        }
        assert_eq!(arrears.weight.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn a_principal_that_may_have_no_more_conversations_gets_none() {
        let (arrears, store) = (Arrears::default(), store(0));
        owe(&arrears, &key(1), exchange(1, 1));
        assert_eq!(arrears.pay(&store, &key(1)).await, Ok(3), "given up");
        assert!(arrears.debtors().is_empty());
    }

    #[tokio::test]
    async fn what_is_deleted_does_not_come_back() {
        let (arrears, store) = (Arrears::default(), store(9));
        owe(&arrears, &key(1), exchange(1, 1));
        assert_eq!(arrears.remove(&store, &key(1)).await, Ok(true));
        assert_eq!(arrears.remove(&store, &key(1)).await, Ok(false));
        assert_eq!(arrears.pay(&store, &key(1)).await, Ok(0));
        assert_eq!(store.conversations(), 0);
    }
}
