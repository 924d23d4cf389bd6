//! What stands under a conversation's key.
//!
//! ```text
//! | version: counter, nonce | stamp | what `encoding` writes: a whole conversation, and changes |
//! |        8 + 8 bytes      |   8   |                                                         |
//! ```
//! A change is appended, in one step with a new version and stamp, until the changes are as long as the whole is; then
//! it is written whole again. So an event costs what it changed, here, on the wire and there, and a reader reads no
//! more than twice what the conversation is.
//!
//! The *version* is what a write is conditional on. The counter alone would not do: a conversation that
//! expired and began anew would count through the same numbers, and a replica that slept over it would
//! write its old state over the new. The nonce also tells our own write, when its reply was lost, from
//! somebody else's. The *stamp* is the latest time of any event here: the next event's time is not before
//! it, though another replica, or a server whose clock is behind after a failover, brings it.

use crate::ledger::Conversation;
use crate::ledger::event::Millis;
use crate::store::encoding::{self, EncodingError};
use std::sync::Arc;

const HEAD: usize = Version::LENGTH + 8;
/// Changes may be as long as this, however small the conversation is.
const FREE: usize = 512;

/// Which write of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version([u8; Version::LENGTH]);

impl Version {
    /// Bytes of a version, as the scripts know it, too.
    pub(super) const LENGTH: usize = 16;

    /// The one after `before`. `nonce` must be random.
    pub(super) fn after(before: Option<Version>, nonce: u64) -> Self {
        let count = before.map_or(0, |one| word(&one.0, 0)).wrapping_add(1);
        let mut bytes = [0; Version::LENGTH];
        bytes[..8].copy_from_slice(&count.to_be_bytes());
        bytes[8..].copy_from_slice(&nonce.to_be_bytes());
        Version(bytes)
    }

    /// Its bytes.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A conversation as it was when we last looked.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// `None`: there is none.
    pub(super) version: Option<Version>,
    /// The latest time of any event.
    pub(super) stamp: Millis,
    /// When it was last used.
    pub(super) used: Millis,
    /// Its ledger.
    pub(super) conversation: Arc<Conversation>,
    /// About the bytes that it takes.
    pub(super) weight: usize,
    /// How many bytes of changes may still follow there.
    pub(super) room: usize,
}

/// What stands there when a write comes.
#[derive(Clone, Copy, Default)]
pub(super) struct Stand {
    pub(super) version: Option<Version>,
    weight: usize,
    room: usize,
}

/// What is to be written: the beginning of the value, or all of it; and what is to be appended, if anything.
#[derive(Default)]
pub(super) struct Writing {
    pub(super) value: Vec<u8>,
    pub(super) change: Vec<u8>,
}

impl Seen {
    /// What stands there as long as nobody writes.
    pub(super) fn stand(&self) -> Stand {
        Stand { version: self.version, weight: self.weight, room: self.room }
    }

    /// How it is to be written where that stands: what changed since, or all of it.
    pub(super) fn writing(&mut self, before: Stand) -> Result<Writing, EncodingError> {
        let Some(version) = self.version else { return Ok(Writing::default()) };
        let (mut value, mut change) = (Vec::with_capacity(HEAD), Vec::new());
        value.extend_from_slice(version.as_bytes());
        value.extend_from_slice(&self.stamp.0.to_be_bytes());
        let changed = self.conversation.change().filter(|_| before.room > 0);
        if let Some(changed) = changed {
            encoding::encode_change_to(&mut change, self.used, &changed)?;
            self.weight = before.weight + change.len();
            self.room = before.room.saturating_sub(change.len());
        } else {
            value.reserve(before.weight);
            encoding::encode_to(&mut value, self.used, &self.conversation)?;
            self.weight = value.len();
            self.room = self.weight.max(FREE);
        }
        Ok(Writing { value, change })
    }

    /// It stands there as it is now.
    pub(super) fn written(&mut self) {
        Arc::make_mut(&mut self.conversation).written();
    }

    /// As it was written, by this version of the program or another. Nothing: there is none.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, EncodingError> {
        if bytes.is_empty() {
            return Ok(Seen::default());
        }
        let Some((head, written)) = bytes.split_at_checked(HEAD) else {
            return Err(EncodingError::Damaged("it is too short".to_owned()));
        };
        let (kept, whole) = encoding::decode_in_parts(written)?;
        let most = if encoding::may_be_followed(written) { whole.max(FREE) } else { 0 };
        let mut version = [0; Version::LENGTH];
        version.copy_from_slice(&head[..Version::LENGTH]);
        Ok(Seen {
            version: Some(Version(version)),
            stamp: Millis(word(head, Version::LENGTH)),
            used: kept.used,
            conversation: Arc::new(kept.conversation),
            weight: bytes.len(),
            room: most.saturating_sub(written.len() - whole),
        })
    }
}

/// The big-endian number at `from`; zero when it is cut short.
fn word(bytes: &[u8], from: usize) -> u64 {
    bytes
        .get(from..from + 8)
        .map_or(0, |eight| eight.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut seen = Seen {
            version: Some(Version::after(None, 0x1234_5678_9abc_def0)),
            stamp: Millis(77),
            used: Millis(55),
            ..Seen::default()
        };
        let bytes = seen.writing(Stand::default()).unwrap().value;
        assert_eq!(seen.weight, bytes.len());
        let read = Seen::from_bytes(&bytes).unwrap();
        assert_eq!((read.version, read.stamp, read.used), (seen.version, seen.stamp, seen.used));
        assert_eq!(read.conversation, seen.conversation);
        assert_eq!(&bytes[..Version::LENGTH], seen.version.unwrap().as_bytes());
        assert_eq!((read.weight, read.room), (seen.weight, seen.room));
    }

    #[test]
    fn changes_follow_until_they_are_as_long_as_the_whole() {
        let mut seen = Seen { version: Some(Version::after(None, 1)), ..Seen::default() };
        let mut bytes = seen.writing(Stand::default()).unwrap().value;
        let mut changes = 0;
        loop {
            seen.written();
            let before = seen.stand();
            seen.used = seen.used.after(Millis(1_000_000_000));
            let writing = seen.writing(before).unwrap();
            if writing.change.is_empty() {
                break assert!(writing.value.len() < bytes.len(), "whole again");
            }
            changes += writing.change.len();
            bytes.splice(..HEAD, writing.value);
            bytes.extend(writing.change);
            let read = Seen::from_bytes(&bytes).unwrap();
            assert_eq!((read.used, read.weight, read.room), (seen.used, seen.weight, seen.room));
        }
        assert!((FREE..2 * FREE).contains(&changes), "{changes} bytes");
        // An older version may read a value that begins so: nothing follows it.
        let mut whole = Seen { version: Some(Version::after(None, 1)), ..Seen::default() };
        let mut whole = whole.writing(Stand::default()).unwrap().value;
        whole[HEAD] = 1;
        assert_eq!(Seen::from_bytes(&whole).unwrap().room, 0);
    }

    #[test]
    fn a_version_is_never_met_again() {
        let one = Version::after(None, 1);
        assert_ne!(Version::after(None, 2), one, "a new life of the key");
        let two = Version::after(Some(one), 1);
        assert_eq!(word(two.as_bytes(), 0), 2);
    }

    #[test]
    fn nothing_is_a_conversation_that_is_not_there_and_damage_is_not() {
        assert_eq!(Seen::from_bytes(&[]).unwrap().version, None);
        let mut whole = Seen { version: Some(Version::after(None, 1)), ..Seen::default() };
        let whole = whole.writing(Stand::default()).unwrap().value;
        for length in [1, HEAD - 1, HEAD] {
            assert!(Seen::from_bytes(&whole[..length]).is_err(), "{length} bytes");
        }
        let mut newer = whole;
        newer[HEAD] = 200;
        assert_eq!(Seen::from_bytes(&newer).unwrap_err(), EncodingError::Newer(200));
    }
}
