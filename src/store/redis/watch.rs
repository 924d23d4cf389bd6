//! What falls due where, told to the other replicas: a deadline fires by itself though the replica that
//! registered it is dead.
//!
//! ```text
//!  this replica: touch ──► wanted ──► listed under our name ──► moved, or taken off when nothing is due
//!  any replica, once a second: names overdue by GRACE ──► claimed for HOLD ──► read anew, a tick ──► taken off
//! ```
//! A list is an index, never the truth: an entry says that a look is worth while, and the look is an event
//! like any other, so whoever's write comes first fires what is due and counts it. Each replica lists under its
//! own name and looks after its own entries; so no two write one entry, and an entry that is overdue is one
//! whose replica is dead or stuck. A claim moves it in one step, so that of all the living one looks.
//!
//! There are [`LISTS`] sorted sets, each in a hash slot of its own, and a conversation is always on the same one.
//! Leases are listed a moment later and in batches: most exchanges are over by then. A deadline is listed at the
//! side of the write that registers it, before anybody is told. When a list cannot be written, what it would
//! have told is found when the next event comes for that conversation.

use super::agenda::{flat, unflat};
use super::commit::Core;
use super::frame::Seen;
use crate::ledger::Conversation;
use crate::ledger::event::{Event, Millis};
use crate::ledger::rules::Rules;
use crate::store::{ConversationKey, StoreError};
use redis::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How many lists there are. Part of the format: all replicas must agree.
pub(super) const LISTS: u8 = 16;
/// A living replica looks at its own entries within this.
const GRACE: Millis = Millis(2_000);
/// For so long a claimed entry is left to whoever claimed it.
const HOLD: Millis = Millis(5_000);
/// Most entries claimed of one list at once, and looked at abreast.
const CLAIMED: usize = 256;
const AT_ONCE: usize = 32;
/// How long changes are gathered.
const GATHERED: Duration = Duration::from_millis(100);

/// One entry: whose it is, and of which conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    key: ConversationKey,
    origin: u64,
}

impl Member {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = flat(&self.key).to_vec();
        bytes.extend_from_slice(&self.origin.to_be_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (key, origin) = bytes.split_first_chunk::<32>()?;
        let origin = u64::from_be_bytes(origin.try_into().ok()?);
        Some(Member { key: unflat(key), origin })
    }
}

/// Which list a conversation is on.
pub(super) fn list_of(key: &ConversationKey) -> u8 {
    key.conversation.as_bytes()[15] % LISTS
}

impl Core {
    /// Notes when it is worth a look. Gives until when its place is known to be held.
    pub(super) fn look_again(
        self: &Arc<Self>,
        key: &ConversationKey,
        state: &Seen,
        rules: &Rules,
    ) -> Millis {
        if state.version.is_none() {
            self.gone(key);
            return Millis(0);
        }
        let expires = state.used.after(rules.ttl);
        let touched = self.agenda.touch(key, state.conversation.due(), expires, self.now());
        if touched.relist {
            self.relist(key);
        }
        touched.placed_until
    }

    /// The entry of that conversation is not what it should be: it is written in a moment.
    pub(super) fn relist(self: &Arc<Self>, key: &ConversationKey) {
        if !self.wanted.add(key) {
            return;
        }
        let core = Arc::clone(self);
        self.tasks.spawn(async move {
            tokio::time::sleep(GATHERED).await;
            let mut lists: BTreeMap<u8, Vec<ConversationKey>> = BTreeMap::new();
            for key in core.wanted.take() {
                lists.entry(list_of(&key)).or_default().push(key);
            }
            for (list, keys) in lists {
                core.write_list(list, &keys).await;
            }
        });
    }

    /// Writes our entries of one list as they should be now.
    async fn write_list(self: &Arc<Self>, list: u8, keys: &[ConversationKey]) {
        let wanted: Vec<Option<Millis>> = keys.iter().map(|key| self.agenda.wanted(key)).collect();
        let entries = keys.iter().zip(&wanted);
        let written = self.list(list, entries.map(|(key, at)| (key, *at))).await;
        for (key, at) in keys.iter().zip(wanted) {
            // What could not be written is tried again when it is touched or looked at next.
            if written.is_ok() && self.agenda.listed(key, at, self.now()) {
                self.relist(key);
            }
        }
    }

    /// A new deadline is listed for the other replicas before anybody is told of it. Gives when, if it is.
    pub(super) async fn list_deadline(
        &self,
        key: &ConversationKey,
        next: &Conversation,
        rules: &Rules,
    ) -> Option<Millis> {
        let due = next.due()?;
        next.deadline(rules)?;
        if self.agenda.is_listed(key, due, self.now()) {
            return None;
        }
        let written = self.list(list_of(key), [(key, Some(due))].into_iter()).await;
        written.is_ok().then_some(due)
    }

    /// The conversation is gone, and so is what falls due there.
    pub(super) fn gone(self: &Arc<Self>, key: &ConversationKey) {
        if self.agenda.gone(key) {
            self.relist(key);
        }
    }

    async fn list<'a>(
        &self,
        list: u8,
        entries: impl Iterator<Item = (&'a ConversationKey, Option<Millis>)>,
    ) -> Result<(), StoreError> {
        let mut arguments: Vec<Vec<u8>> = Vec::new();
        for (key, at) in entries {
            arguments.push(at.map_or_else(String::new, |at| at.0.to_string()).into_bytes());
            arguments.push(Member { key: key.clone(), origin: self.origin }.to_bytes());
        }
        let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
        let name = self.names.due(list);
        let until = Instant::now() + self.budget;
        self.link.run(&self.scripts.list, &[&name], &arguments, until).await.map(|_| ())
    }

    /// Looks at what others listed and did not look after.
    pub(super) async fn look_after_others(
        self: &Arc<Self>,
        rules: &Arc<Rules>,
    ) -> Result<(), StoreError> {
        let now = self.now();
        let mut claims = JoinSet::new();
        for list in 0..LISTS {
            let core = Arc::clone(self);
            claims.spawn(async move { (list, core.claim(list, now).await) });
        }
        let mut looks = JoinSet::new();
        while let Some(claimed) = claims.join_next().await {
            let Ok((list, members)) = claimed else { continue };
            for member in members? {
                if looks.len() >= AT_ONCE {
                    looks.join_next().await;
                }
                let (core, rules) = (Arc::clone(self), Arc::clone(rules));
                looks.spawn(core.look_at(list, member, now.after(HOLD), rules));
            }
        }
        while looks.join_next().await.is_some() {}
        Ok(())
    }

    /// What is overdue on a list, and now ours to look at.
    async fn claim(&self, list: u8, now: Millis) -> Result<Vec<Member>, StoreError> {
        let name = self.names.due(list);
        let numbers = [now.since(GRACE).0, now.after(HOLD).0, CLAIMED as u64];
        let numbers = numbers.map(|number| number.to_string());
        let [overdue, held, most] = numbers.each_ref().map(String::as_bytes);
        let until = Instant::now() + self.budget;
        let arguments = [overdue, held, most];
        let (reply, ..) = self.link.run(&self.scripts.claim, &[&name], &arguments, until).await?;
        let members = reply.values().iter().filter_map(|value| match value {
            Value::BulkString(bytes) => Member::from_bytes(bytes),
            _ => None,
        });
        Ok(members.collect())
    }

    async fn look_at(self: Arc<Self>, list: u8, member: Member, held: Millis, rules: Arc<Rules>) {
        let key = &member.key;
        // What we last saw of it may be older than what its replica wrote.
        self.cache.forget(key);
        if Arc::clone(&self).apply(key.clone(), Event::Tick, rules).await.is_err() {
            return;
        }
        if member.origin == self.origin {
            if self.agenda.listed(key, Some(held), self.now()) {
                self.relist(key);
            }
            return;
        }
        let (name, held) = (self.names.due(list), held.0.to_string());
        let arguments = [held.as_bytes(), &member.to_bytes()];
        let until = Instant::now() + self.budget;
        // When that fails, it is looked at once more.
        let _ = self.link.run(&self.scripts.unlist, &[&name], &arguments, until).await;
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_member_is_read_as_it_was_written() {
        let key = unflat(&std::array::from_fn(|n| n as u8));
        let member = Member { key, origin: u64::MAX - 7 };
        let bytes = member.to_bytes();
        assert_eq!(Member::from_bytes(&bytes).unwrap(), member);
        for length in [0, 32, 39] {
            assert_eq!(Member::from_bytes(&bytes[..length]), None, "{length} bytes");
        }
        assert_eq!(Member::from_bytes(&[bytes, vec![0]].concat()), None);
    }
}
