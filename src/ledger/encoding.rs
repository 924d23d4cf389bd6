//! How a conversation, and the codes and faults in it, are written where a store keeps them.
//!
//! A conversation is a list of fields. What stands behind the last field that this version knows is a later
//! version's: it is carried along as it is and written again, so that two versions can work on one store
//! during a deploy and neither takes the other's facts away.
//!
//! Codes go by name: the names are a contract, the order of the list is not. A fault that is worded as
//! faults about one call are holds its place and its call only; the words are found again when it is read,
//! in the reader's version.

use super::{Conversation, words};
use crate::guard::fault::{Code, Fault};
use minicbor::encode::{self, Write};
use minicbor::{Decode, Decoder, Encode, Encoder, decode};

/// How many fields of a conversation this version knows. Their order is for ever.
pub(super) const FIELDS: u64 = 6;

/// The fields of a later version: as they stand, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Later {
    count: u64,
    bytes: Box<[u8]>,
}

impl Later {
    /// The field of that number, counted from the first that this version does not know, is this now.
    pub(super) fn put(&mut self, number: u64, field: &[u8]) -> Result<(), decode::Error> {
        /// More fields than any version will have.
        const MOST: u64 = 1 << 10;
        if number >= MOST {
            return Err(decode::Error::message("a field of no version"));
        }
        let (mut begin, mut end) = (self.bytes.len(), self.bytes.len());
        let mut decoder = Decoder::new(&self.bytes);
        if number < self.count {
            (0..number).try_for_each(|_| decoder.skip())?;
            begin = decoder.position();
            decoder.skip()?;
            end = decoder.position();
        }
        // Those between, of which nothing was written.
        let null = usize::try_from(number.saturating_sub(self.count)).unwrap_or_default();
        let mut bytes = self.bytes[..begin].to_vec();
        bytes.extend(std::iter::repeat_n(NULL, null));
        bytes.extend_from_slice(field);
        bytes.extend_from_slice(&self.bytes[end..]);
        *self = Later { count: self.count.max(number + 1), bytes: bytes.into() };
        Ok(())
    }
}

/// Nothing, in CBOR.
const NULL: u8 = 0xf6;

impl<C> Encode<C> for Conversation {
    fn encode<W: Write>(
        &self,
        encoder: &mut Encoder<W>,
        context: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        let Conversation { uses_header, lanes, calls, exchanges, advances, due, later } = self;
        let has_due = due.is_some() || later.count > 0;
        encoder.array(FIELDS - u64::from(!has_due) + later.count)?;
        encoder.bool(*uses_header)?;
        encoder.encode_with(lanes, context)?.encode_with(calls, context)?;
        encoder.encode_with(exchanges, context)?.encode_with(advances, context)?;
        if has_due {
            encoder.encode_with(due, context)?;
        }
        encoder.writer_mut().write_all(&later.bytes).map_err(encode::Error::write)
    }
}

impl<'b, C> Decode<'b, C> for Conversation {
    fn decode(decoder: &mut Decoder<'b>, context: &mut C) -> Result<Self, decode::Error> {
        let length = decoder.array()?;
        let length = length.ok_or_else(|| decode::Error::message("a list without its length"))?;
        let conversation = Conversation {
            uses_header: decoder.bool()?,
            lanes: decoder.decode_with(context)?,
            calls: decoder.decode_with(context)?,
            exchanges: decoder.decode_with(context)?,
            advances: decoder.decode_with(context)?,
            due: if length < FIELDS { None } else { decoder.decode_with(context)? },
            later: Later::default(),
        };
        let count = length.saturating_sub(FIELDS);
        let begin = decoder.position();
        (0..count).try_for_each(|_| decoder.skip())?;
        let bytes = decoder.input().get(begin..decoder.position()).unwrap_or_default().into();
        Ok(Conversation { later: Later { count, bytes }, ..conversation })
    }
}

impl<C> Encode<C> for Code {
    fn encode<W: Write>(
        &self,
        encoder: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        encoder.str(self.as_str())?;
        Ok(())
    }
}

impl<'b, C> Decode<'b, C> for Code {
    /// A code that only a newer version knows reads as `stale_answer`: what it withheld stays withheld.
    fn decode(decoder: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        Ok(Code::parse(decoder.str()?).unwrap_or(Code::StaleAnswer))
    }
}

/// A fault as it is written; words only where they are not the usual ones.
#[derive(Encode, Decode)]
struct Written<'a> {
    #[n(0)]
    code: Code,
    #[b(1)]
    param: &'a str,
    #[b(2)]
    tool_call_id: Option<&'a str>,
    #[b(3)]
    message: Option<&'a str>,
    #[b(4)]
    recovery: Option<&'a str>,
}

impl<C> Encode<C> for Fault {
    fn encode<W: Write>(
        &self,
        encoder: &mut Encoder<W>,
        context: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        let tool_call_id = self.tool_call_id.as_deref();
        let usual = words::of_call(self.code, String::new(), tool_call_id.unwrap_or_default());
        let written = Written {
            code: self.code,
            param: &self.param,
            tool_call_id,
            message: (self.message != usual.message).then_some(&self.message),
            recovery: (self.recovery != usual.recovery).then_some(self.recovery),
        };
        written.encode(encoder, context)
    }
}

impl<'b, C> Decode<'b, C> for Fault {
    fn decode(decoder: &mut Decoder<'b>, context: &mut C) -> Result<Self, decode::Error> {
        let written: Written<'b> = decoder.decode_with(context)?;
        let id = written.tool_call_id;
        let usual = words::of_call(written.code, written.param.to_owned(), id.unwrap_or_default());
        Ok(Fault {
            tool_call_id: id.map(str::to_owned),
            message: written.message.map_or(usual.message, str::to_owned),
            recovery: written.recovery.map_or(usual.recovery, words::recovery),
            ..usual
        })
    }
}
