//! The working set that stores in this process share: one slot per conversation, with a lock of its own.
//!
//! A lock is held for one pure transition and one hand-over to the [`Backing`] (microseconds); the map
//! around the slots is sharded, and no lock is held over an await. What is due (deadlines, leases) is kept
//! in a set of its own, so that a sweep costs what is active, not what is kept; expiry walks everything
//! once a minute.
//!
//! A changed conversation is handed to the backing *under its lock and before anybody is told*. When the
//! backing refuses it, the change is undone: the slot forgets its conversation and reads it again on the
//! next use. Conversations long unused leave memory the same way; their slots (about 150 bytes) stay, so
//! that what is there, how much each principal has and what expired is known without the backing.

mod age;

use super::encoding::Kept;
use super::{ConversationKey, Listener, StoreError};
use crate::ledger::Conversation;
use crate::ledger::digest::{Digest, DigestKey};
use crate::ledger::event::{Effects, Event, Millis, Outcome, Transition};
use crate::ledger::rules::Rules;
use dashmap::DashMap;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What time it is, in milliseconds since the Unix epoch.
pub type Clock = Arc<dyn Fn() -> Millis + Send + Sync>;

/// How long exchanges of this replica live that were read from the backing, until their next sign.
const LEASE: Millis = Millis(15_000);

/// What stands behind the slots. Called under a slot's lock.
pub(super) trait Backing: Send + Sync {
    /// Where a conversation was written.
    type Place: Copy + Send;

    /// Reads what was written there.
    fn load(&self, key: &ConversationKey, place: Self::Place) -> Result<Kept, StoreError>;

    /// Writes a conversation; `before` is where it stood when it was as [`Conversation::written`] says.
    fn put(
        &self,
        key: &ConversationKey,
        used: Millis,
        conversation: &Conversation,
        before: Option<Self::Place>,
    ) -> Result<Self::Place, StoreError>;

    /// Writes that a conversation is no more.
    fn remove(&self, key: &ConversationKey, before: Self::Place)
    -> Result<Self::Place, StoreError>;

    /// Tells of effects, once what was written up to `place` is as durable as configured.
    fn tell(
        &self,
        place: Option<Self::Place>,
        listener: &Arc<dyn Listener>,
        key: &ConversationKey,
        effects: &Effects,
    );

    /// Whether conversations can be read again, so that they may leave memory.
    fn reads(&self) -> bool;
}

/// The working set.
pub(super) struct Slots<B: Backing> {
    pub(super) key: DigestKey,
    pub(super) clock: Clock,
    pub(super) backing: B,
    listener: Arc<dyn Listener>,
    most_per_principal: usize,
    pub(super) slots: Map<ConversationKey, Cell<B>>,
    pub(super) counts: Map<Digest, usize>,
    pub(super) active: Map<ConversationKey, ()>,
    expiry_looked: AtomicU64,
}

/// By keyed digests, which nobody outside can choose: a fast hash of them will do.
type Map<K, V> = DashMap<K, V, RandomState>;

type Cell<B> = Arc<Mutex<Slot<<B as Backing>::Place>>>;

/// One conversation.
pub(super) struct Slot<P> {
    /// `None`: it is at its place only.
    conversation: Option<Box<Conversation>>,
    used: Millis,
    /// Where it was last written.
    pub(super) place: Option<P>,
    /// Taken out of the map: whoever still holds it must look again.
    gone: bool,
}

impl<P> Default for Slot<P> {
    fn default() -> Self {
        Slot { conversation: Some(Box::default()), used: Millis(0), place: None, gone: false }
    }
}

impl<B: Backing> Slots<B> {
    pub(super) fn new(
        key: DigestKey,
        clock: Clock,
        listener: Arc<dyn Listener>,
        most_per_principal: usize,
        backing: B,
    ) -> Self {
        Slots {
            key,
            clock,
            backing,
            listener,
            most_per_principal,
            slots: Map::default(),
            counts: Map::default(),
            active: Map::default(),
            expiry_looked: AtomicU64::new(0),
        }
    }

    /// Takes in a conversation that an earlier process left at `place`. That process is dead: what it had
    /// in flight has failed, and the first event or sweep says so.
    pub(super) fn adopt(&self, key: ConversationKey, place: B::Place, kept: Kept) {
        let Kept { used, mut conversation } = kept;
        conversation.lease_until(Millis(0));
        let open_calls = conversation.open_calls();
        if open_calls != 0 {
            self.listener.committed(&key, &Effects { open_calls, ..Effects::default() });
        }
        *self.counts.entry(key.principal).or_default() += 1;
        let due = conversation.due().is_some();
        self.mark(&key, due);
        let conversation = due.then(|| Box::new(conversation));
        let slot = Slot { conversation, used, place: Some(place), gone: false };
        self.slots.insert(key, Arc::new(Mutex::new(slot)));
    }

    /// Applies one event; gives where it was written, if it was.
    pub(super) fn apply(
        &self,
        key: &ConversationKey,
        event: &Event,
        rules: &Rules,
    ) -> Result<(Transition, Option<B::Place>), StoreError> {
        // Where it was written that an expired one is no more: whoever finds that out waits for it.
        let mut ended = None;
        loop {
            let (cell, new) = self.slot(key, event)?;
            let mut slot = cell.lock();
            if slot.gone {
                continue;
            }
            let now = (self.clock)();
            if !new && slot.used.after(rules.ttl) <= now {
                ended = self.take_out(key, &cell, &mut slot, now)?;
                continue;
            }
            let used = if matches!(event, Event::Tick) { slot.used } else { now };
            let before = slot.place;
            let lease = now.after(rules.lease);
            let conversation = self.conversation(key, &mut slot, lease)?;
            let transition = conversation.apply(event, rules, now);
            if *conversation == Conversation::default() {
                self.backing.tell(before, &self.listener, key, &transition.effects);
                let gone = self.take_out(key, &cell, &mut slot, now)?;
                return Ok((transition, gone.or(before).or(ended)));
            }
            let due = conversation.due().is_some();
            if !only_renewed(event, &transition) {
                match self.backing.put(key, used, conversation, before) {
                    Ok(place) => {
                        conversation.written();
                        slot.place = Some(place);
                    }
                    Err(error) => {
                        self.undo(key, &cell, &mut slot);
                        return Err(error);
                    }
                }
            }
            slot.used = used;
            self.backing.tell(slot.place, &self.listener, key, &transition.effects);
            self.mark(key, due);
            return Ok((transition, slot.place));
        }
    }

    /// The slot of a conversation. Only a request or an advance makes one that stays; any other event
    /// on an unknown conversation is answered by a fresh one that is thrown away.
    fn slot(&self, key: &ConversationKey, event: &Event) -> Result<(Cell<B>, bool), StoreError> {
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

    /// The conversation of a slot, read from its place if it is not in memory. Its replica is this one and
    /// lives, so what is in flight there is until `lease`.
    fn conversation<'s>(
        &self,
        key: &ConversationKey,
        slot: &'s mut Slot<B::Place>,
        lease: Millis,
    ) -> Result<&'s mut Conversation, StoreError> {
        if slot.conversation.is_none() {
            let mut conversation = match slot.place {
                None => Box::default(),
                Some(place) => Box::new(self.backing.load(key, place)?.conversation),
            };
            conversation.lease_until(lease);
            slot.conversation = Some(conversation);
        }
        Ok(slot.conversation.get_or_insert_default())
    }

    /// The backing did not take the change: what is in memory is what was written before.
    fn undo(&self, key: &ConversationKey, cell: &Cell<B>, slot: &mut Slot<B::Place>) {
        slot.conversation = None;
        if slot.place.is_none() {
            self.drop_slot(key, cell, slot);
        }
    }

    fn mark(&self, key: &ConversationKey, active: bool) {
        if !active {
            self.active.remove(key);
        } else if !self.active.contains_key(key) {
            self.active.insert(key.clone(), ());
        }
    }

    /// Takes a conversation out, under its lock: what is under way there is cancelled. Gives where that
    /// was written, if it was.
    fn take_out(
        &self,
        key: &ConversationKey,
        cell: &Cell<B>,
        slot: &mut Slot<B::Place>,
        now: Millis,
    ) -> Result<Option<B::Place>, StoreError> {
        let effects = match self.conversation(key, slot, now) {
            Ok(conversation) => conversation.forget(now),
            Err(error) => {
                // It cannot be told what ended with it; but it must not stay for ever.
                tracing::error!(%error, "a conversation that cannot be read is forgotten");
                Effects::default()
            }
        };
        let place = slot.place.map(|place| self.backing.remove(key, place)).transpose()?;
        if effects != Effects::default() {
            self.backing.tell(place, &self.listener, key, &effects);
        }
        self.drop_slot(key, cell, slot);
        Ok(place)
    }

    /// Only this very `cell` leaves the map: another may have been put there under the same key.
    fn drop_slot(&self, key: &ConversationKey, cell: &Cell<B>, slot: &mut Slot<B::Place>) {
        slot.gone = true;
        // While the count is held nobody makes this conversation anew: else a place that is free would be
        // taken for full, and the new one's mark as active would be lost.
        let count = self.counts.get_mut(&key.principal);
        if self.slots.remove_if(key, |_, kept| Arc::ptr_eq(kept, cell)).is_none() {
            return;
        }
        self.active.remove(key);
        if let Some(mut count) = count {
            *count = count.saturating_sub(1);
        }
    }

    /// Forgets a conversation. Whether there was one, and where that was written.
    pub(super) fn remove(
        &self,
        key: &ConversationKey,
    ) -> Result<(bool, Option<B::Place>), StoreError> {
        let Some(cell) = self.cell(key) else { return Ok((false, None)) };
        let mut slot = cell.lock();
        if slot.gone {
            return Ok((false, None));
        }
        let place = self.take_out(key, &cell, &mut slot, (self.clock)())?;
        Ok((true, place))
    }

    /// The state of a conversation, and where it was written.
    pub(super) fn read(
        &self,
        key: &ConversationKey,
    ) -> Result<(Option<Conversation>, Option<B::Place>), StoreError> {
        let Some(cell) = self.cell(key) else { return Ok((None, None)) };
        let mut slot = cell.lock();
        let now = (self.clock)();
        let conversation = self.conversation(key, &mut slot, now.after(LEASE))?.clone();
        Ok((Some(conversation), slot.place))
    }

    /// Whether it is known, and not in memory.
    pub(super) fn is_cold(&self, key: &ConversationKey) -> bool {
        self.cell(key).is_some_and(|cell| cell.lock().conversation.is_none())
    }

    /// Reads a conversation into memory, if it is not there.
    pub(super) fn warm(&self, key: &ConversationKey) -> Result<(), StoreError> {
        self.read(key).map(|_| ())
    }

    pub(super) fn cell(&self, key: &ConversationKey) -> Option<Cell<B>> {
        self.slots.get(key).map(|slot| Arc::clone(&slot))
    }
}

/// Whether a lease was renewed and nothing else happened: that is not written. What time alone decided is
/// decided again from what was written, and leases do not outlive their process.
fn only_renewed(event: &Event, transition: &Transition) -> bool {
    matches!(event, Event::Check(_))
        && transition.outcome == Outcome::Wanted
        && transition.effects == Effects::default()
}
