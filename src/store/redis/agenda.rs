//! What this replica has touched, and when it must look at it again.
//!
//! Nothing here decides: an entry says when a look is worth while, and the look is an event like any
//! other. Each replica that touched a conversation has it; the first to look fires what is due, the others
//! find it done. What only a dead replica touched is looked at when a request next comes for it.

use crate::ledger::digest::Digest;
use crate::ledger::event::Millis;
use crate::store::ConversationKey;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};

/// When to look at what.
#[derive(Debug, Default)]
pub(super) struct Agenda(Mutex<Pages>);

#[derive(Debug, Default)]
struct Pages {
    entries: HashMap<ConversationKey, Entry>,
    order: BTreeSet<(Millis, [u8; 32])>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Millis,
    placed_until: Millis,
}

impl Agenda {
    /// The conversation exists; a look is worth while at `at`. Gives until when its place is known to be
    /// held, which is zero at the first touch.
    pub(super) fn touch(&self, key: &ConversationKey, at: Millis) -> Millis {
        let mut pages = self.0.lock();
        let before = pages.entries.get(key).copied();
        let placed_until = before.map_or(Millis(0), |entry| entry.placed_until);
        if before.is_none_or(|entry| entry.at != at) {
            pages.take(key);
            pages.order.insert((at, flat(key)));
            pages.entries.insert(key.clone(), Entry { at, placed_until });
        }
        placed_until
    }

    /// Its place is held until then.
    pub(super) fn placed(&self, key: &ConversationKey, until: Millis) {
        if let Some(entry) = self.0.lock().entries.get_mut(key) {
            entry.placed_until = until;
        }
    }

    /// The conversation is gone.
    pub(super) fn gone(&self, key: &ConversationKey) {
        self.0.lock().take(key);
    }

    /// What is worth a look now, the longest due first.
    pub(super) fn due(&self, now: Millis, most: usize) -> Vec<ConversationKey> {
        let pages = self.0.lock();
        let due = pages.order.iter().take_while(|(at, _)| *at <= now).take(most);
        due.map(|(_, flat)| unflat(flat)).collect()
    }

    /// Conversations that this replica touched and believes to exist.
    pub(super) fn len(&self) -> usize {
        self.0.lock().entries.len()
    }
}

impl Pages {
    fn take(&mut self, key: &ConversationKey) {
        if let Some(entry) = self.entries.remove(key) {
            self.order.remove(&(entry.at, flat(key)));
        }
    }
}

/// Both digests, one after the other.
pub(super) fn flat(key: &ConversationKey) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(key.principal.as_bytes());
    bytes[16..].copy_from_slice(key.conversation.as_bytes());
    bytes
}

/// [`flat`] undone.
pub(super) fn unflat(flat: &[u8; 32]) -> ConversationKey {
    let half = |from: usize| {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&flat[from..from + 16]);
        Digest::from_bytes(bytes)
    };
    ConversationKey { principal: half(0), conversation: half(16) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> ConversationKey {
        unflat(&[n; 32])
    }

    #[test]
    fn what_is_due_comes_in_its_order_and_only_once_moved() {
        let agenda = Agenda::default();
        for (n, at) in [(1, 30), (2, 10), (3, 20)] {
            assert_eq!(agenda.touch(&key(n), Millis(at)), Millis(0));
        }
        assert_eq!(agenda.due(Millis(20), 9), [key(2), key(3)]);
        assert_eq!(agenda.due(Millis(99), 1), [key(2)]);
        let _ = agenda.touch(&key(2), Millis(40));
        assert_eq!(agenda.due(Millis(99), 9), [key(3), key(1), key(2)]);
        agenda.gone(&key(3));
        assert_eq!((agenda.due(Millis(99), 9), agenda.len()), (vec![key(1), key(2)], 2));
    }

    #[test]
    fn a_place_is_remembered_over_touches_but_not_over_the_end() {
        let agenda = Agenda::default();
        let _ = agenda.touch(&key(1), Millis(1));
        agenda.placed(&key(1), Millis(50));
        assert_eq!(agenda.touch(&key(1), Millis(2)), Millis(50));
        agenda.gone(&key(1));
        assert_eq!(agenda.touch(&key(1), Millis(3)), Millis(0));
    }
}
