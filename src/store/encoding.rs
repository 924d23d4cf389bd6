//! How a conversation is written where it outlives the process: one byte of format, then CBOR.
//!
//! CBOR by `minicbor`, whose derives give every field and variant a number that we write beside it. We
//! chose it over `rmp-serde` and `ciborium` (through serde, fields go by name: two to three times the
//! bytes; or by position: no field can ever be added in the middle or skipped safely) and over `postcard`
//! (smallest, but nothing in the bytes says where an unknown field ends, so that two versions cannot read
//! each other). `minicbor` has no dependencies, does not allocate ahead of its input, and is well kept.
//!
//! **Two versions run at once** in a rolling deploy, so the rules for a change are:
//! - What must outlive a write by an older version becomes a new last field of the *conversation* (facts about
//!   a call or an exchange, too: keyed by its number there). An older version carries such fields along as
//!   they are. The newer one must bear that they are behind what the older one has done since.
//! - A new field of any other struct takes the next free number there and `#[cbor(default)]` (or is an
//!   `Option`). An older version skips it, and drops it when it writes: it must be sound without.
//! - A number is never used for something else, nor a field taken out.
//! - A new variant of a state needs a new [`FORMAT`], in two releases: the first reads it, the next writes
//!   it. A version reads every format up to the newest it knows; a newer one is an error that says so, and
//!   nothing that was not read is written over.
//!
//! The test below holds the bytes of a conversation as version 1 wrote it: it must be readable for ever.

use crate::ledger::Conversation;
use crate::ledger::event::Millis;
use minicbor::{Decode, Decoder, Encode};

/// The format that this version writes.
pub const FORMAT: u8 = 1;

/// What is kept of one conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Kept {
    /// When it was last used: it expires by that.
    #[n(0)]
    pub used: Millis,
    /// The ledger.
    #[n(1)]
    pub conversation: Conversation,
}

/// Why bytes cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodingError {
    /// A newer version wrote them.
    #[error(
        "written in format {0}, and this version reads formats up to {FORMAT}: a newer version of \
         tigertally wrote it"
    )]
    Newer(u8),
    /// They are not what any version wrote.
    #[error("damaged: {0}")]
    Damaged(String),
}

/// Writes what is kept of a conversation.
///
/// # Errors
/// None that is known: what is in memory can be written.
pub fn encode(used: Millis, conversation: &Conversation) -> Result<Vec<u8>, EncodingError> {
    let mut bytes = Vec::new();
    encode_to(&mut bytes, used, conversation)?;
    Ok(bytes)
}

/// The same, behind what stands there.
///
/// # Errors
/// As of [`encode`].
pub fn encode_to(
    bytes: &mut Vec<u8>,
    used: Millis,
    conversation: &Conversation,
) -> Result<(), EncodingError> {
    /// The same as [`Kept`], without a copy.
    #[derive(Encode)]
    struct Borrowed<'a> {
        #[n(0)]
        used: Millis,
        #[n(1)]
        conversation: &'a Conversation,
    }
    bytes.push(FORMAT);
    minicbor::encode(Borrowed { used, conversation }, bytes).map_err(damaged)
}

/// Reads what [`encode`] wrote, in this version or another.
///
/// # Errors
/// When a newer format or something else stands there.
pub fn decode(bytes: &[u8]) -> Result<Kept, EncodingError> {
    let rest = match bytes.split_first() {
        None => return Err(damaged("it is empty")),
        Some((0, _)) => return Err(damaged("there is no format 0")),
        Some((&FORMAT, rest)) => rest,
        Some((newer, _)) => return Err(EncodingError::Newer(*newer)),
    };
    let mut decoder = Decoder::new(rest);
    let kept = decoder.decode().map_err(damaged)?;
    let end = decoder.position() == rest.len();
    if end { Ok(kept) } else { Err(damaged("it goes on after its end")) }
}

fn damaged(why: impl std::fmt::Display) -> EncodingError {
    EncodingError::Damaged(why.to_string())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::ledger::digest::{Digest, DigestKey};
    use crate::ledger::event::{
        Admit, Alternative, Close, Ending, Event, ExchangeId, Names, Outcome, Pair, Proposed,
        Replica, Run, Settle,
    };
    use crate::ledger::exchanges::Marks;
    use crate::ledger::rules::Rules;

    /// Conversations as agents have them: each task is a call, its result, and an answer.
    struct Agent {
        key: DigestKey,
        rules: Rules,
        now: Millis,
        exchanges: u128,
        conversation: Conversation,
    }

    impl Agent {
        fn new() -> Self {
            Agent {
                key: DigestKey::new([7; 32]),
                rules: Rules::default(),
                now: Millis(1_800_000_000_000),
                exchanges: 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef,
                conversation: Conversation::default(),
            }
        }

        fn digest(&self, domain: &str, n: u64) -> Digest {
            self.key.bytes(domain, &n.to_le_bytes())
        }

        fn apply(&mut self, event: &Event) -> Outcome {
            self.now.0 += 700;
            self.conversation.apply(event, &self.rules, self.now).outcome
        }

        fn exchange(&mut self, generation: u64, runs: Vec<Run>, calls: Vec<Proposed>) {
            self.exchanges += 1;
            let exchange = ExchangeId(self.exchanges);
            let admit = Admit {
                exchange,
                replica: Replica(0x1234_5678_9abc_def0),
                generation: Some(generation),
                lane: self.digest("lane", 0),
                list: self.digest("list", self.exchanges as u64),
                declared_retry: false,
                idempotency: None,
                runs,
                names: Names::default(),
            };
            assert!(matches!(self.apply(&Event::Admit(admit)), Outcome::Admitted(_)));
            let alternatives =
                if calls.is_empty() { Vec::new() } else { vec![Alternative { choice: 0, calls }] };
            let settle = Settle { exchange, alternatives, forced: false };
            assert_eq!(self.apply(&Event::Settle(settle)), Outcome::Wanted);
            let close = Close { exchange, ending: Ending::Delivered };
            assert_eq!(self.apply(&Event::Close(close)), Outcome::Done);
        }

        fn task(&mut self, generation: u64) {
            let id = format!("call_{generation:024x}");
            let call = Proposed {
                id: id.as_str().into(),
                tool: "query_order".into(),
                arguments: self.digest("arguments", generation),
                echoes: vec![("order_id".into(), self.digest("echo", generation))],
                deadline: Some(Millis(5_000)),
                write: false,
            };
            let pair = Pair {
                id: id.as_str().into(),
                tool: "query_order".into(),
                arguments: call.arguments,
                message: 2,
                result: self.digest("result", generation),
                closing: false,
                bare: true,
                name: None,
                echoes: Vec::new(),
                edits_allowed: false,
                attempt: None,
            };
            self.exchange(generation, Vec::new(), vec![call]);
            self.exchange(generation, vec![Run { live: true, pairs: vec![pair] }], Vec::new());
        }

        /// An exchange that does not end.
        fn open(&mut self) {
            let admit = Admit {
                exchange: ExchangeId(1),
                replica: Replica(1),
                generation: Some(1),
                lane: self.digest("lane", 0),
                list: self.digest("list", 0),
                declared_retry: false,
                idempotency: None,
                runs: Vec::new(),
                names: Names::default(),
            };
            assert!(matches!(self.apply(&Event::Admit(admit)), Outcome::Admitted(_)));
        }

        fn bytes(&self) -> Vec<u8> {
            encode(self.now, &self.conversation).unwrap()
        }
    }

    #[test]
    fn what_is_written_is_read_and_is_small() {
        for (tasks, most) in [(1, 500), (20, 4_600)] {
            let mut agent = Agent::new();
            (1..=tasks).for_each(|generation| agent.task(generation));
            let bytes = agent.bytes();
            let kept = Kept { used: agent.now, conversation: agent.conversation.clone() };
            assert_eq!(decode(&bytes), Ok(kept));
            assert!(bytes.len() < most, "{tasks} tasks take {} bytes", bytes.len());
        }
    }

    /// What version 1 wrote, for ever readable.
    #[test]
    fn the_first_format_is_readable() {
        let bytes = hex(include_str!("encoding/one_task.v1.hex"));
        let mut agent = Agent::new();
        agent.task(1);
        // Tool calls were not counted then, and the times of exchanges not kept.
        for exchange in agent.conversation.exchanges_mut() {
            exchange.marks = Marks::default();
        }
        let now = format!("{:?}", agent.conversation).replace("tool_calls: 1", "tool_calls: 0");
        assert_eq!(format!("{:?}", decode(&bytes).unwrap().conversation), now);
    }

    /// A later version of the same format keeps more of a conversation. This one works with what it knows and
    /// writes the rest again, byte for byte.
    #[test]
    fn what_a_later_version_keeps_is_carried_along() {
        /// A conversation with two more fields, of which one is not set.
        struct Later<'a>(&'a [u8], Vec<(u64, &'a str)>);
        impl<C> Encode<C> for Later<'_> {
            fn encode<W: minicbor::encode::Write>(
                &self,
                encoder: &mut minicbor::Encoder<W>,
                _: &mut C,
            ) -> Result<(), minicbor::encode::Error<W::Error>> {
                // The head of a list of six: the fields that this version knows follow it.
                assert_eq!(self.0[0], 0x86);
                encoder.array(8)?;
                encoder
                    .writer_mut()
                    .write_all(&self.0[1..])
                    .map_err(minicbor::encode::Error::write)?;
                encoder.null()?.encode(&self.1)?;
                Ok(())
            }
        }
        let mut agent = Agent::new();
        agent.task(1);
        // Something under way, so that something is due: all six fields are there.
        agent.open();
        let known = minicbor::to_vec(&agent.conversation).unwrap();
        let notes = vec![(1, "a fact about call 1"), (7, "\u{1f405}")];
        let mut bytes = vec![FORMAT, 0x82];
        minicbor::encode(agent.now, &mut bytes).unwrap();
        minicbor::encode(Later(&known, notes.clone()), &mut bytes).unwrap();
        let kept = decode(&bytes).unwrap();
        assert_eq!(encode(kept.used, &kept.conversation).unwrap(), bytes, "written as it was read");

        let mut tail = vec![0xf6];
        minicbor::encode(notes, &mut tail).unwrap();
        agent.conversation = kept.conversation;
        agent.task(2);
        assert!(agent.bytes().ends_with(&tail), "also when this version changes the rest");
        assert_eq!(decode(&agent.bytes()).unwrap().conversation, agent.conversation);
        agent.conversation.lease_until(Millis(0));
        let _ = agent.apply(&Event::Tick);
        assert_eq!(agent.conversation.due(), None);
        assert!(agent.bytes().ends_with(&tail), "also when nothing is due any more");
        assert_eq!(decode(&agent.bytes()).unwrap().conversation, agent.conversation);
    }

    /// A later version adds fields elsewhere; this one skips them, whatever they hold.
    #[test]
    fn fields_of_a_later_version_are_skipped() {
        #[derive(Encode)]
        struct Later<'a> {
            #[n(0)]
            used: Millis,
            #[n(1)]
            conversation: &'a Conversation,
            #[n(2)]
            more: Vec<Option<&'a str>>,
            #[n(5)]
            yet_more: u64,
        }
        let mut agent = Agent::new();
        agent.task(1);
        let conversation = &agent.conversation;
        let more = vec![None, Some("text")];
        let later = Later { used: agent.now, conversation, more, yet_more: u64::MAX };
        let mut bytes = vec![FORMAT];
        minicbor::encode(later, &mut bytes).unwrap();
        assert_eq!(decode(&bytes).unwrap().conversation, agent.conversation);
    }

    #[test]
    fn a_newer_format_is_told_apart_from_damage() {
        let mut bytes = Agent::new().bytes();
        bytes[0] = FORMAT + 1;
        assert_eq!(decode(&bytes), Err(EncodingError::Newer(FORMAT + 1)));
        bytes[0] = 0;
        assert!(matches!(decode(&bytes), Err(EncodingError::Damaged(_))));
        assert!(matches!(decode(&[]), Err(EncodingError::Damaged(_))));
    }

    #[test]
    fn cut_and_flipped_bytes_are_errors_or_other_states_but_never_a_panic() {
        let mut agent = Agent::new();
        (1..=3).for_each(|generation| agent.task(generation));
        let bytes = agent.bytes();
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        for at in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[at / 8] ^= 1 << (at % 8);
            if let Ok(mut kept) = decode(&bytes) {
                let _ = kept.conversation.apply(&Event::Tick, &agent.rules, Millis(u64::MAX));
            }
        }
    }

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16);
        digits.chunks(2).map(|pair| byte(pair).unwrap()).collect()
    }
}
