//! Changes that may wait a moment, so that many are written at once.

use crate::store::ConversationKey;
use parking_lot::Mutex;
use std::collections::HashSet;

/// Conversations whose entry is to be written.
#[derive(Debug, Default)]
pub(super) struct Wanted(Mutex<Gathering>);

#[derive(Debug, Default)]
struct Gathering {
    keys: HashSet<ConversationKey>,
    /// Whether somebody is on the way to write them.
    attended: bool,
}

impl Wanted {
    /// Adds one. Whether the caller must see to it that they are written.
    pub(super) fn add(&self, key: &ConversationKey) -> bool {
        let mut gathering = self.0.lock();
        gathering.keys.insert(key.clone());
        !std::mem::replace(&mut gathering.attended, true)
    }

    pub(super) fn take(&self) -> HashSet<ConversationKey> {
        let mut gathering = self.0.lock();
        gathering.attended = false;
        std::mem::take(&mut gathering.keys)
    }
}

#[cfg(test)]
mod tests {
    use super::super::agenda::unflat;
    use super::*;

    #[test]
    fn one_sees_to_it_that_what_is_gathered_is_written() {
        let (wanted, one, two) = (Wanted::default(), unflat(&[1; 32]), unflat(&[2; 32]));
        assert!(wanted.add(&one));
        assert!(!wanted.add(&two) && !wanted.add(&one));
        assert_eq!(wanted.take().len(), 2);
        assert!(wanted.add(&two));
        assert_eq!(wanted.take().into_iter().collect::<Vec<_>>(), [two]);
    }
}
