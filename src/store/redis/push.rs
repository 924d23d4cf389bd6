//! Telling the other replicas at once that an exchange of theirs is no longer wanted.
//!
//! Only speed: a message may be lost, and then the exchange learns of it when it asks to go down, or at
//! its next look. So nothing waits for it, nothing is repeated, and what cannot be read is dropped.
//!
//! One channel per deployment. In a Cluster that has sharded channels (Redis 7, Valkey) it is one of
//! those: the message stays on the node of its slot. Elsewhere a plain one.

use super::agenda::{flat, unflat};
use crate::guard::fault::Code;
use crate::ledger::event::{Effects, ExchangeId};
use crate::store::{ConversationKey, Listener};
use redis::{PushInfo, PushKind, Value};
use std::sync::Arc;

const FORMAT: u8 = 1;

/// Takes what others publish and tells the listener.
pub(super) struct Ear {
    /// Who we are: our own messages come back to us.
    pub(super) origin: u64,
    pub(super) listener: Arc<dyn Listener>,
}

impl Ear {
    /// A message came.
    pub(super) fn hear(&self, info: &PushInfo) {
        if !matches!(info.kind, PushKind::Message | PushKind::SMessage) {
            return;
        }
        if let Some(Value::BulkString(message)) = info.data.last()
            && let Some((key, effects)) = read(message, self.origin)
        {
            self.listener.committed(&key, &effects);
        }
    }
}

/// What to publish.
pub(super) fn write(origin: u64, key: &ConversationKey, cancel: &[(ExchangeId, Code)]) -> Vec<u8> {
    let mut message = vec![FORMAT];
    message.extend_from_slice(&origin.to_be_bytes());
    message.extend_from_slice(&flat(key));
    for (exchange, code) in cancel {
        message.extend_from_slice(&exchange.0.to_be_bytes());
        message.extend_from_slice(code.as_str().as_bytes());
        message.push(b'\n');
    }
    message
}

/// What another replica published; `None` when it was us, or it cannot be read.
fn read(message: &[u8], origin: u64) -> Option<(ConversationKey, Effects)> {
    let rest = message.strip_prefix(&[FORMAT])?;
    let (from, rest) = rest.split_first_chunk::<8>()?;
    let (key, mut rest) = rest.split_first_chunk::<32>()?;
    if u64::from_be_bytes(*from) == origin {
        return None;
    }
    let mut effects = Effects::default();
    while let Some((exchange, after)) = rest.split_first_chunk::<16>() {
        let end = after.iter().position(|byte| *byte == b'\n')?;
        let code = std::str::from_utf8(&after[..end]).ok().and_then(Code::parse);
        // A newer version may give a reason that this one does not know: it is unwanted all the same.
        let code = code.unwrap_or(Code::StaleAnswer);
        effects.cancel.push((ExchangeId(u128::from_be_bytes(*exchange)), code));
        rest = &after[end + 1..];
    }
    Some((unflat(key), effects))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn others_read_what_we_write_and_we_do_not() {
        let key = unflat(&std::array::from_fn(|n| n as u8));
        let cancel = [(ExchangeId(7), Code::StaleAnswer), (ExchangeId(u128::MAX), Code::Overtaken)];
        let message = write(1, &key, &cancel);
        let (whose, effects) = read(&message, 2).unwrap();
        assert_eq!((whose, &effects.cancel[..]), (key, &cancel[..]));
        assert_eq!((effects.facts.len(), effects.open_calls), (0, 0));
        assert_eq!(read(&message, 1), None);
    }

    #[test]
    fn what_cannot_be_read_is_dropped_and_an_unknown_reason_is_not() {
        let message = write(1, &unflat(&[3; 32]), &[(ExchangeId(7), Code::Overtaken)]);
        for length in [0, 1, 9, 40, message.len() - 1] {
            let read = read(&message[..length], 2);
            assert!(read.is_none_or(|(_, effects)| effects.cancel.is_empty()), "{length} bytes");
        }
        let newer = [&message[..57], b"some_new_reason\n"].concat();
        assert_eq!(read(&newer, 2).unwrap().1.cancel, [(ExchangeId(7), Code::StaleAnswer)]);
    }
}
