//! How codes and faults are written where a store keeps them.
//!
//! Codes go by name: the names are a contract, the order of the list is not. A fault that is worded as
//! faults about one call are holds its place and its call only; the words are found again when it is read,
//! in the reader's version.

use super::words;
use crate::guard::fault::{Code, Fault};
use minicbor::encode::{self, Write};
use minicbor::{Decode, Decoder, Encode, Encoder, decode};

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
