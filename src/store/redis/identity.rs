//! Which digest key the conversations there were recorded with.
//!
//! All replicas of a store must make the same digests, or each would see conversations of its own. The
//! first one to start writes the key under a name of the deployment, the others read it there. With a
//! `key_file` the key stays out of Redis, and only a fingerprint of it stands there. Each connection and
//! each probe compares: after a flush, or on a failover to an older state, replicas of two keys must not
//! go on side by side.

use crate::ledger::digest::DigestKey;
use std::path::Path;

/// The key that stands in a file: 64 hexadecimal digits. It is not made when it is missing: every replica
/// must have the same.
///
/// # Errors
/// When there is no such file, or something else stands in it.
pub fn read_key(file: &Path) -> Result<DigestKey, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("store.key_file {}: {error}", file.display()))?;
    let digits = text.trim().as_bytes();
    let mut key = [0; 32];
    let read = digits.len() == 64
        && key.iter_mut().zip(digits.chunks(2)).all(|(byte, pair)| {
            let pair = std::str::from_utf8(pair).ok().filter(|pair| !pair.starts_with('+'));
            let value = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok());
            *byte = value.unwrap_or_default();
            value.is_some()
        });
    if !read {
        return Err(format!(
            "store.key_file {} does not hold 64 hexadecimal digits",
            file.display()
        ));
    }
    Ok(DigestKey::new(key))
}

/// A key of its own, in Redis.
const KEPT: u8 = b'k';
/// The fingerprint of one that is kept elsewhere.
const FINGERPRINT: u8 = b'f';

/// What is to stand in Redis.
#[derive(Clone)]
pub(super) struct Identity(Vec<u8>);

impl Identity {
    /// Of the configured key, or of a new one.
    pub(super) fn of(key: Option<&DigestKey>) -> Self {
        match key {
            Some(key) => {
                let print = key.bytes("fingerprint", b"");
                Identity([&[FINGERPRINT], &print.as_bytes()[..]].concat())
            }
            None => Identity([&[KEPT], &rand::random::<[u8; 32]>()[..]].concat()),
        }
    }

    /// As it stands there.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Takes what was found there. Gives the key to use, if ours and that go together.
    pub(super) fn settle(
        &mut self,
        found: &[u8],
        configured: Option<DigestKey>,
    ) -> Option<DigestKey> {
        if let Some(key) = configured {
            return (found == self.0).then_some(key);
        }
        let (kind, key) = found.split_first()?;
        let key: [u8; 32] = key.try_into().ok().filter(|_| *kind == KEPT)?;
        self.0 = found.to_vec();
        Some(DigestKey::new(key))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_key_file_holds_64_digits_and_nothing_else() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            read_key(file.path()).map(|key| key.bytes("test", b""))
        };
        let expected = DigestKey::new([0xab; 32]).bytes("test", b"");
        assert_eq!(read(&format!("{}\n", "aB".repeat(32))), Ok(expected));
        for text in ["", &"ab".repeat(31), &"ab".repeat(33), &"+1".repeat(32), &"xy".repeat(32)] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(read_key(Path::new("/nowhere")).is_err());
    }

    #[test]
    fn the_first_key_is_everybodys() {
        let (mut first, mut second) = (Identity::of(None), Identity::of(None));
        let there = first.bytes().to_vec();
        let digest = |key: Option<DigestKey>| key.map(|key| key.bytes("test", b"x"));
        let one = digest(first.settle(&there, None));
        assert!(one.is_some());
        assert_eq!(digest(second.settle(&there, None)), one);
        assert_eq!(first.bytes(), second.bytes());
    }

    #[test]
    fn a_configured_key_goes_with_itself_only_and_does_not_stand_there() {
        let key = || Some(DigestKey::new([7; 32]));
        let mut ours = Identity::of(key().as_ref());
        let there = ours.bytes().to_vec();
        assert!(!there.windows(32).any(|bytes| bytes == [7; 32]));
        assert!(ours.settle(&there, key()).is_some());
        let other = Some(DigestKey::new([8; 32]));
        assert!(Identity::of(other.as_ref()).settle(&there, other).is_none());
        assert!(Identity::of(None).settle(&there, None).is_none(), "a key file was in use");
        let kept = Identity::of(None).bytes().to_vec();
        assert!(ours.settle(&kept, key()).is_none(), "none was in use");
    }
}
