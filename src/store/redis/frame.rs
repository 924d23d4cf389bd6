//! What stands under a conversation's key.
//!
//! ```text
//! | version: counter, nonce | stamp | what `encoding` writes: when it was last used, and the ledger |
//! |        8 + 8 bytes      |   8   |                                                               |
//! ```
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
}

impl Seen {
    /// As it is to be written.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, EncodingError> {
        let written = encoding::encode(self.used, &self.conversation)?;
        let mut bytes = Vec::with_capacity(HEAD + written.len());
        bytes.extend_from_slice(self.version.as_ref().map_or(&[], Version::as_bytes));
        bytes.extend_from_slice(&self.stamp.0.to_be_bytes());
        bytes.extend_from_slice(&written);
        Ok(bytes)
    }

    /// As it was written, by this version of the program or another. Nothing: there is none.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, EncodingError> {
        if bytes.is_empty() {
            return Ok(Seen::default());
        }
        let Some((head, written)) = bytes.split_at_checked(HEAD) else {
            return Err(EncodingError::Damaged("it is too short".to_owned()));
        };
        let kept = encoding::decode(written)?;
        let mut version = [0; Version::LENGTH];
        version.copy_from_slice(&head[..Version::LENGTH]);
        Ok(Seen {
            version: Some(Version(version)),
            stamp: Millis(word(head, Version::LENGTH)),
            used: kept.used,
            conversation: Arc::new(kept.conversation),
            weight: bytes.len(),
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
        let seen = Seen {
            version: Some(Version::after(None, 0x1234_5678_9abc_def0)),
            stamp: Millis(77),
            used: Millis(55),
            ..Seen::default()
        };
        let bytes = seen.to_bytes().unwrap();
        let read = Seen::from_bytes(&bytes).unwrap();
        assert_eq!((read.version, read.stamp, read.used), (seen.version, seen.stamp, seen.used));
        assert_eq!(read.conversation, seen.conversation);
        assert_eq!(&bytes[..Version::LENGTH], seen.version.unwrap().as_bytes());
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
        let whole = Seen { version: Some(Version::after(None, 1)), ..Seen::default() };
        let whole = whole.to_bytes().unwrap();
        for length in [1, HEAD - 1, HEAD] {
            assert!(Seen::from_bytes(&whole[..length]).is_err(), "{length} bytes");
        }
        let mut newer = whole;
        newer[HEAD] = 200;
        assert_eq!(Seen::from_bytes(&newer).unwrap_err(), EncodingError::Newer(200));
    }
}
