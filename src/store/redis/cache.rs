//! Conversations as this replica last saw them, to save the read before a write.
//!
//! Who applies an event takes the state out, changes it, and puts it back when it is written. So no state is copied,
//! and when a write fails, what was last seen is forgotten.
//!
//! Nothing is decided by what stands here alone: a write is conditional on the version, so a state that
//! another replica has passed by costs one more round trip and nothing else. Two generations per shard:
//! when the young one is full the old one is dropped, and what is asked for again is young again.

use super::frame::Seen;
use crate::store::ConversationKey;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

const SHARDS: usize = 64;

/// The last states seen.
pub(super) struct Cache {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    most: usize,
}

#[derive(Default)]
struct Shard {
    young: HashMap<ConversationKey, Seen>,
    old: HashMap<ConversationKey, Seen>,
    weight: usize,
}

impl Cache {
    /// For about that many bytes of encoded conversations.
    pub(super) fn new(bytes: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Cache { shards, hasher: RandomState::new(), most: bytes / SHARDS / 2 }
    }

    pub(super) fn take(&self, key: &ConversationKey) -> Option<Seen> {
        let mut shard = self.shard(key).lock();
        let old = shard.old.remove(key);
        let Some(young) = shard.young.remove(key) else { return old };
        shard.weight = shard.weight.saturating_sub(young.weight);
        Some(young)
    }

    pub(super) fn put(&self, key: &ConversationKey, seen: Seen) {
        let mut shard = self.shard(key).lock();
        shard.old.remove(key);
        self.put_in(&mut shard, key, seen);
    }

    pub(super) fn forget(&self, key: &ConversationKey) {
        drop(self.take(key));
    }

    fn put_in(&self, shard: &mut Shard, key: &ConversationKey, seen: Seen) {
        shard.weight += seen.weight;
        if let Some(before) = shard.young.insert(key.clone(), seen) {
            shard.weight = shard.weight.saturating_sub(before.weight);
        }
        if shard.weight > self.most {
            shard.old = std::mem::take(&mut shard.young);
            shard.weight = 0;
        }
    }

    fn shard(&self, key: &ConversationKey) -> &Mutex<Shard> {
        let hash = self.hasher.hash_one(key) as usize;
        &self.shards[hash % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::super::agenda::unflat;
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_whole_is_bounded() {
        let cache = Cache::new(SHARDS * 2 * 1000);
        let seen = || Seen { weight: 100, ..Seen::default() };
        let key = |n: u32| {
            let mut bytes = [0; 32];
            bytes[..4].copy_from_slice(&n.to_be_bytes());
            unflat(&bytes)
        };
        for n in 0..100_000 {
            cache.put(&key(n), seen());
            cache.put(&key(0), cache.take(&key(0)).unwrap());
        }
        assert!(cache.take(&key(1)).is_none());
        let held: usize =
            cache.shards.iter().map(|one| one.lock()).map(|s| s.young.len() + s.old.len()).sum();
        assert!(held <= SHARDS * 2 * 11, "{held}");
        cache.forget(&key(0));
        assert!(cache.take(&key(0)).is_none());
    }
}
