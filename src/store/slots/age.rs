//! What time does to the working set: what falls due fires, what nobody used leaves memory or is forgotten, and what
//! stands in the oldest part of the backing is written anew.

use super::{Backing, Slot, Slots};
use crate::ledger::Conversation;
use crate::ledger::event::{Event, Millis};
use crate::ledger::rules::Rules;
use crate::store::{ConversationKey, StoreError};
use std::sync::atomic::Ordering;

/// How often everything is looked at for expiry.
const EXPIRY_EVERY: Millis = Millis(60_000);
/// A conversation unused for so long leaves memory, where there is a backing.
const COLD_AFTER: Millis = Millis(600_000);

impl<B: Backing> Slots<B> {
    /// Fires what fell due and forgets what expired; gives where that was written last.
    pub(in crate::store) fn sweep(&self, rules: &Rules) -> Result<Option<B::Place>, StoreError> {
        let now = (self.clock)();
        let keys: Vec<ConversationKey> =
            self.active.iter().map(|entry| entry.key().clone()).collect();
        let mut last = None;
        for key in keys {
            let due = self.cell(&key).and_then(|cell| {
                let slot = cell.lock();
                slot.conversation.as_ref().map_or(Some(now), |conversation| conversation.due())
            });
            if due.is_some_and(|due| due <= now) {
                last = self.apply(&key, &Event::Tick, rules)?.1.or(last);
            }
        }
        Ok(self.expire(rules)?.or(last))
    }

    fn expire(&self, rules: &Rules) -> Result<Option<B::Place>, StoreError> {
        let now = (self.clock)();
        let before = self.expiry_looked.load(Ordering::Relaxed);
        if now < Millis(before).after(EXPIRY_EVERY) {
            return Ok(None);
        }
        self.expiry_looked.store(now.0, Ordering::Relaxed);
        let expired = |slot: &Slot<B::Place>| slot.used.after(rules.ttl) <= now;
        let mut keys = Vec::new();
        for entry in &self.slots {
            let Some(mut slot) = entry.value().try_lock() else { continue };
            if expired(&slot) {
                keys.push(entry.key().clone());
            } else {
                self.cool(&mut slot, now);
            }
        }
        let mut last = None;
        for key in keys {
            let Some(cell) = self.cell(&key) else { continue };
            let mut slot = cell.lock();
            if !slot.gone && expired(&slot) {
                last = self.take_out(&key, &cell, &mut slot, now)?.or(last);
            }
        }
        self.counts.retain(|_, count| *count > 0);
        Ok(last)
    }

    /// What nobody used for a while, and nothing falls due in, leaves memory.
    fn cool(&self, slot: &mut Slot<B::Place>, now: Millis) {
        let idle = slot.conversation.as_ref().is_some_and(|one| one.due().is_none());
        if idle
            && self.backing.reads()
            && slot.place.is_some()
            && slot.used.after(COLD_AFTER) <= now
        {
            slot.conversation = None;
        }
    }

    /// Writes a conversation anew, if it is known and stands where `there` says.
    pub(in crate::store) fn rewrite(
        &self,
        key: &ConversationKey,
        there: impl Fn(B::Place) -> bool,
        write: impl FnOnce(Millis, &Conversation, B::Place) -> Result<B::Place, StoreError>,
    ) -> Result<(), StoreError> {
        let Some(cell) = self.cell(key) else { return Ok(()) };
        let mut slot = cell.lock();
        let Some(place) = slot.place.filter(|place| !slot.gone && there(*place)) else {
            return Ok(());
        };
        let used = slot.used;
        slot.place = Some(match &mut slot.conversation {
            Some(conversation) => {
                let place = write(used, conversation, place)?;
                conversation.written();
                place
            }
            None => {
                let kept = self.backing.load(key, place)?;
                write(kept.used, &kept.conversation, place)?
            }
        });
        Ok(())
    }
}
