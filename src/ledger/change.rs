//! What became of a conversation since it was last written, and how that is written: a map of the numbers of its
//! fields to what became of each. A field that is not there did not change. Of a later version's field stands what
//! it is now, whole: a version that does not know it puts that in its place and carries it along.

use super::Conversation;
use super::encoding::FIELDS;
use minicbor::encode::{self, Write};
use minicbor::{Decoder, Encode, Encoder, decode};

/// What became of a conversation, as it is written.
pub struct Change<'a>(&'a Conversation);

impl Conversation {
    /// What became of it since [`Conversation::written`], or since it was read. `None`: so much that it is to be
    /// written whole.
    #[must_use]
    pub fn change(&self) -> Option<Change<'_>> {
        let noted = self.lanes.change().is_some()
            && self.calls.change().is_some()
            && self.exchanges.change().is_some()
            && self.advances.change().is_some();
        noted.then_some(Change(self))
    }

    /// It was written as it is now.
    pub fn written(&mut self) {
        self.lanes.written();
        self.calls.written();
        self.exchanges.written();
        self.advances.written();
    }

    /// Makes the change that stands there to what was written before it.
    ///
    /// # Errors
    /// When it is not a change of this conversation.
    pub fn make(&mut self, decoder: &mut Decoder<'_>) -> Result<(), decode::Error> {
        let fields = decoder.map()?;
        let fields = fields.ok_or_else(|| decode::Error::message("a map without its length"))?;
        for _ in 0..fields {
            match decoder.u64()? {
                0 => self.uses_header = decoder.bool()?,
                1 => self.lanes.make(decoder.decode()?)?,
                2 => self.calls.make(decoder.decode()?)?,
                3 => self.exchanges.make(decoder.decode()?)?,
                4 => self.advances.make(decoder.decode()?)?,
                5 => self.due = decoder.decode()?,
                later => {
                    let begin = decoder.position();
                    decoder.skip()?;
                    let field = decoder.input().get(begin..decoder.position());
                    self.later.put(later - FIELDS, field.unwrap_or_default())?;
                }
            }
        }
        self.written();
        Ok(())
    }
}

impl<C> Encode<C> for Change<'_> {
    fn encode<W: Write>(
        &self,
        encoder: &mut Encoder<W>,
        context: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        let Conversation { uses_header, lanes, calls, exchanges, advances, due, .. } = self.0;
        let advanced = advances.change().filter(|_| !advances.untouched());
        encoder.map(FIELDS - u64::from(advanced.is_none()))?;
        encoder.u8(0)?.bool(*uses_header)?;
        encoder.u8(1)?.encode_with(lanes.change(), context)?;
        encoder.u8(2)?.encode_with(calls.change(), context)?;
        encoder.u8(3)?.encode_with(exchanges.change(), context)?;
        if let Some(advanced) = advanced {
            encoder.u8(4)?.encode_with(advanced, context)?;
        }
        encoder.u8(5)?.encode_with(due, context)?;
        Ok(())
    }
}
