//! How a conversation is written where it outlives the process: one byte of format, then CBOR.
//!
//! ```text
//! format 1:  1 │ whole
//! format 2:  2 │ whole      2 │ change      2 │ change  …
//! ```
//! A *change* says what became of a conversation since what stands before it, so that an event costs what it
//! changed and not what is remembered. What stands before it is the writer's to know: it may follow in the same
//! value (Redis) or elsewhere (the log of the embedded store). [`decode`] reads a whole one and the changes behind
//! it. Format 1 was never released by itself: one release reads and writes both.
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
//!   In a change such a field stands whole, whenever it changed: an older version puts it in its place.
//! - A new field of any other struct takes the next free number there and `#[cbor(default)]` (or is an
//!   `Option`). An older version skips it, and drops it when it writes: it must be sound without.
//! - A number is never used for something else, nor a field taken out.
//! - A new variant of a state needs a new [`FORMAT`], in two releases: the first reads it, the next writes
//!   it. A version reads every format up to the newest it knows; a newer one is an error that says so, and
//!   nothing that was not read is written over.
//!
//! The tests below hold the bytes of conversations as formats 1 and 2 have them: they must be readable for ever.

use crate::ledger::event::Millis;
use crate::ledger::{Change, Conversation};
use minicbor::{Decode, Decoder, Encode};

/// The format that this version writes.
pub const FORMAT: u8 = 2;
/// The format of one that no change may follow.
const WHOLE: u8 = 1;

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

/// Writes what became of a conversation since it was written, behind what stands there.
///
/// # Errors
/// As of [`encode`].
pub fn encode_change_to(
    bytes: &mut Vec<u8>,
    used: Millis,
    change: &Change<'_>,
) -> Result<(), EncodingError> {
    /// What is kept, as of now.
    #[derive(Encode)]
    struct Changed<'a> {
        #[n(0)]
        used: Millis,
        #[n(1)]
        change: &'a Change<'a>,
    }
    bytes.push(FORMAT);
    minicbor::encode(Changed { used, change }, bytes).map_err(damaged)
}

/// Whether changes may follow what begins so: not where a version may read it that knows of none.
#[must_use]
pub fn may_be_followed(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|format| *format > WHOLE)
}

/// Reads what [`encode`] wrote, in this version or another, and the changes that follow it.
///
/// # Errors
/// When a newer format or something else stands there.
pub fn decode(bytes: &[u8]) -> Result<Kept, EncodingError> {
    decode_in_parts(bytes).map(|(kept, _)| kept)
}

/// The same, and of how many bytes it is without the changes.
///
/// # Errors
/// As of [`decode`].
pub fn decode_in_parts(bytes: &[u8]) -> Result<(Kept, usize), EncodingError> {
    let mut rest = body(bytes)?;
    let mut decoder = Decoder::new(rest);
    let mut kept: Kept = decoder.decode().map_err(damaged)?;
    rest = rest.get(decoder.position()..).unwrap_or_default();
    let whole = bytes.len() - rest.len();
    while !rest.is_empty() {
        if rest.first() == Some(&WHOLE) {
            return Err(damaged("it goes on after its end"));
        }
        rest = body(rest)?;
        let mut decoder = Decoder::new(rest);
        follow(&mut kept, &mut decoder).map_err(damaged)?;
        rest = rest.get(decoder.position()..).unwrap_or_default();
    }
    Ok((kept, whole))
}

/// What stands behind the format.
fn body(bytes: &[u8]) -> Result<&[u8], EncodingError> {
    match bytes.split_first() {
        None => Err(damaged("it is empty")),
        Some((0, _)) => Err(damaged("there is no format 0")),
        Some((&(WHOLE..=FORMAT), rest)) => Ok(rest),
        Some((newer, _)) => Err(EncodingError::Newer(*newer)),
    }
}

/// Makes the change that stands there.
fn follow(kept: &mut Kept, decoder: &mut Decoder<'_>) -> Result<(), minicbor::decode::Error> {
    let fields = decoder.array()?.unwrap_or_default();
    if fields < 2 {
        return Err(minicbor::decode::Error::message("not a change"));
    }
    kept.used = decoder.decode()?;
    kept.conversation.make(decoder)?;
    // What a later version says besides.
    (2..fields).try_for_each(|_| decoder.skip())
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
        /// Where the change that each event makes is written.
        log: Option<Vec<u8>>,
    }

    impl Agent {
        fn new() -> Self {
            Agent {
                key: DigestKey::new([7; 32]),
                rules: Rules::default(),
                now: Millis(1_800_000_000_000),
                exchanges: 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef,
                conversation: Conversation::default(),
                log: None,
            }
        }

        fn digest(&self, domain: &str, n: u64) -> Digest {
            self.key.bytes(domain, &n.to_le_bytes())
        }

        fn apply(&mut self, event: &Event) -> Outcome {
            self.now.0 += 700;
            let outcome = self.conversation.apply(event, &self.rules, self.now).outcome;
            if let Some(log) = &mut self.log {
                encode_change_to(log, self.now, &self.conversation.change().unwrap()).unwrap();
                self.conversation.written();
            }
            outcome
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
        fn open(&mut self, generation: u64) {
            let admit = Admit {
                exchange: ExchangeId(1),
                replica: Replica(1),
                generation: Some(generation),
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
        agent.conversation.change_exchanges(|exchange| exchange.marks = Marks::default());
        let now = format!("{:?}", agent.conversation).replace("tool_calls: 1", "tool_calls: 0");
        assert_eq!(format!("{:?}", decode(&bytes).unwrap().conversation), now);
    }

    /// What format 2 is: a whole conversation, and what became of it by each event after that.
    #[test]
    fn a_conversation_and_its_changes_are_readable() {
        let bytes = hex(include_str!("encoding/two_tasks.v2.hex"));
        let mut agent = Agent::new();
        agent.task(1);
        agent.log = Some(agent.bytes());
        agent.conversation.written();
        agent.task(2);
        agent.open(2);
        assert_eq!(decode(&bytes).unwrap(), decode(&agent.bytes()).unwrap());
        assert_eq!(agent.log.unwrap(), bytes, "as this version writes it");
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
        agent.open(1);
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

        // The later version changes the second of its fields, and adds a fourth.
        let mut change = agent.bytes();
        change.extend([FORMAT, 0x82, 0x00, 0xa2, 0x07, 0x63, b'n', b'e', b'w', 0x09, 0x18, 0x2a]);
        let kept = decode(&change).unwrap();
        let bytes = encode(kept.used, &kept.conversation).unwrap();
        assert!(bytes.ends_with(&[0xf6, 0xf6, 0x63, b'n', b'e', b'w', 0xf6, 0x18, 0x2a]));
        assert_eq!(decode(&bytes), Ok(kept));
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
        let mut followed = bytes.clone();
        followed.extend([FORMAT + 1, 0x00]);
        assert_eq!(decode(&followed), Err(EncodingError::Newer(FORMAT + 1)));
        followed[0] = 1;
        followed.truncate(bytes.len());
        assert!(decode(&followed).is_ok(), "the first format is read");
        followed.push(1);
        assert!(matches!(decode(&followed), Err(EncodingError::Damaged(_))));
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
        agent.log = Some(agent.bytes());
        let whole = agent.bytes().len();
        agent.conversation.written();
        agent.task(4);
        let bytes = agent.log.take().unwrap();
        for end in 0..bytes.len() {
            // A change that is not there is not missed here: who keeps it knows where it ends.
            let ends = end >= whole && bytes[end] == FORMAT && decode(&bytes[..end]).is_ok();
            assert!(ends || decode(&bytes[..end]).is_err(), "cut at {end}");
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
