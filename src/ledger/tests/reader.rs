//! Whoever reads what a store writes: beside every conversation that a test plays, one is kept that knows of it by
//! what was written whole and by the changes since. After each event both are the same, and go on alike.

use super::*;
use minicbor::{Decoder, decode, to_vec};

#[derive(Clone, Default)]
pub(super) struct Reader {
    /// What was written last.
    written: Conversation,
    /// The same, with what became of it since.
    read: Conversation,
    events: u32,
}

impl Reader {
    /// What the event brings about here.
    pub(super) fn apply(&self, event: &Event, rules: &Rules, now: Millis) -> Transition {
        self.read.clone().apply(event, rules, now)
    }

    /// Reads what became of a conversation. It is written at some events, so that some changes are of several.
    pub(super) fn follow(&mut self, conversation: &mut Conversation) {
        self.read = match conversation.change() {
            Some(change) => {
                let bytes = to_vec(change).unwrap();
                let mut decoder = Decoder::new(&bytes);
                let mut read = self.written.clone();
                read.make(&mut decoder).unwrap();
                assert_eq!(decoder.position(), bytes.len());
                read
            }
            None => decode(&to_vec(&*conversation).unwrap()).unwrap(),
        };
        assert_eq!(self.read, *conversation);
        self.events += 1;
        if !self.events.is_multiple_of(3) {
            conversation.written();
            self.written = self.read.clone();
        }
    }
}
