//! What this replica has touched, and when it must look at it again.
//!
//! Nothing here decides: an entry says when a look is worth while, and the look is an event like any
//! other. Each replica that touched a conversation has it; the first to look fires what is due, the others
//! find it done. What is due is also listed where the other replicas see it (`watch`), for the case that
//! this one dies.

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

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// When something falls due.
    due: Option<Millis>,
    expires: Millis,
    placed_until: Millis,
    /// When the list that we share with the others says so.
    listed: Option<Millis>,
}

/// What a touch tells.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Touched {
    /// Until when its place is known to be held, which is zero at the first touch.
    pub(super) placed_until: Millis,
    /// Whether the shared list should say something else.
    pub(super) relist: bool,
}

impl Entry {
    /// When a look is worth while: an entry of the shared list that comes due is to be moved on.
    fn at(&self) -> Millis {
        [self.due, self.listed].into_iter().flatten().fold(self.expires, Millis::min)
    }

    /// Whether the shared list is right: it may say that something falls due earlier than it does, but then
    /// not before now, or others would look at it.
    fn is_listed(&self, now: Millis) -> bool {
        match (self.due, self.listed) {
            (None, None) => true,
            (Some(due), Some(listed)) => listed == due || (now < listed && listed < due),
            _ => false,
        }
    }
}

impl Agenda {
    /// The conversation exists, something falls due there, and it expires.
    pub(super) fn touch(
        &self,
        key: &ConversationKey,
        due: Option<Millis>,
        expires: Millis,
        now: Millis,
    ) -> Touched {
        let mut pages = self.0.lock();
        let before = pages.entries.get(key).copied().unwrap_or_default();
        let entry = Entry { due, expires, ..before };
        pages.set(key, entry);
        Touched { placed_until: entry.placed_until, relist: !entry.is_listed(now) }
    }

    /// Its place is held until then.
    pub(super) fn placed(&self, key: &ConversationKey, until: Millis) {
        if let Some(entry) = self.0.lock().entries.get_mut(key) {
            entry.placed_until = until;
        }
    }

    /// When our entry in the shared list should say that something falls due there.
    pub(super) fn wanted(&self, key: &ConversationKey) -> Option<Millis> {
        self.0.lock().entries.get(key)?.due
    }

    /// Our entry in the shared list says so now. Whether that is not right any more.
    pub(super) fn listed(&self, key: &ConversationKey, at: Option<Millis>, now: Millis) -> bool {
        let mut pages = self.0.lock();
        let Some(entry) = pages.entries.get(key).copied() else { return at.is_some() };
        let entry = Entry { listed: at, ..entry };
        pages.set(key, entry);
        !entry.is_listed(now)
    }

    /// Whether the shared list would be right if something fell due then.
    pub(super) fn is_listed(&self, key: &ConversationKey, due: Millis, now: Millis) -> bool {
        let entry = self.0.lock().entries.get(key).copied().unwrap_or_default();
        Entry { due: Some(due), ..entry }.is_listed(now)
    }

    /// The conversation is gone. Whether it is in the shared list.
    pub(super) fn gone(&self, key: &ConversationKey) -> bool {
        let taken = self.0.lock().take(key);
        taken.is_some_and(|entry| entry.listed.is_some())
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
    fn set(&mut self, key: &ConversationKey, entry: Entry) {
        let before = self.entries.insert(key.clone(), entry);
        if before.is_none_or(|before| before.at() != entry.at()) {
            if let Some(before) = before {
                self.order.remove(&(before.at(), flat(key)));
            }
            self.order.insert((entry.at(), flat(key)));
        }
    }

    fn take(&mut self, key: &ConversationKey) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        self.order.remove(&(entry.at(), flat(key)));
        Some(entry)
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

    fn touch(agenda: &Agenda, n: u8, expires: u64) -> Touched {
        agenda.touch(&key(n), None, Millis(expires), Millis(0))
    }

    #[test]
    fn what_is_due_comes_in_its_order_and_only_once_moved() {
        let agenda = Agenda::default();
        for (n, at) in [(1, 30), (2, 10), (3, 20)] {
            assert_eq!(touch(&agenda, n, at).placed_until, Millis(0));
        }
        assert_eq!(agenda.due(Millis(20), 9), [key(2), key(3)]);
        assert_eq!(agenda.due(Millis(99), 1), [key(2)]);
        let _ = touch(&agenda, 2, 40);
        assert_eq!(agenda.due(Millis(99), 9), [key(3), key(1), key(2)]);
        agenda.gone(&key(3));
        assert_eq!((agenda.due(Millis(99), 9), agenda.len()), (vec![key(1), key(2)], 2));
    }

    #[test]
    fn a_place_is_remembered_over_touches_but_not_over_the_end() {
        let agenda = Agenda::default();
        let _ = touch(&agenda, 1, 1);
        agenda.placed(&key(1), Millis(50));
        assert_eq!(touch(&agenda, 1, 2).placed_until, Millis(50));
        agenda.gone(&key(1));
        assert_eq!(touch(&agenda, 1, 3).placed_until, Millis(0));
    }

    #[test]
    fn the_shared_list_is_written_when_it_would_mislead_and_not_before() {
        let agenda = Agenda::default();
        let relist = |due: Option<u64>, now: u64| {
            agenda.touch(&key(1), due.map(Millis), Millis(1_000), Millis(now)).relist
        };
        assert!(!relist(None, 0), "nothing is due, nothing is listed");
        assert!(relist(Some(50), 0) && relist(Some(50), 0));
        assert_eq!(agenda.wanted(&key(1)), Some(Millis(50)));
        assert!(!agenda.listed(&key(1), Some(Millis(50)), Millis(0)));
        assert!(!relist(Some(50), 0) && !relist(Some(60), 49), "early is good enough");
        assert!(relist(Some(40), 0), "late is not");
        assert_eq!(agenda.due(Millis(40), 9), [key(1)]);
        assert!(relist(Some(60), 50), "nor is what others would look at now");
        assert_eq!(agenda.due(Millis(50), 9), [key(1)], "so we look first");
        assert!(!agenda.listed(&key(1), Some(Millis(60)), Millis(50)));
        assert_eq!(agenda.due(Millis(59), 9), []);
        assert!(agenda.is_listed(&key(1), Millis(70), Millis(59)));
        assert!(!agenda.is_listed(&key(1), Millis(30), Millis(20)));
        assert!(!agenda.is_listed(&key(2), Millis(70), Millis(59)));
        assert!(relist(None, 55), "what is over is taken off");
        assert!(!agenda.listed(&key(1), None, Millis(55)));
        assert!(agenda.listed(&key(2), Some(Millis(9)), Millis(0)), "listed, and not there");
        assert!(relist(Some(80), 55));
        assert!(!agenda.listed(&key(1), Some(Millis(80)), Millis(55)));
        assert!(agenda.gone(&key(1)) && !agenda.gone(&key(1)));
        assert_eq!(agenda.wanted(&key(1)), None);
    }
}
