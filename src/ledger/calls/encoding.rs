//! How the register of calls is written: its proposals. What can be reckoned from them is not.

use super::{Proposal, Register};
use minicbor::encode::{self, Write};
use minicbor::{Decode, Decoder, Encode, Encoder, decode};
use std::collections::VecDeque;

/// What is read of a [`Register`].
#[derive(Decode)]
struct Registered {
    #[n(0)]
    next: u64,
    #[n(1)]
    proposals: VecDeque<Proposal>,
    #[n(2)]
    used: bool,
}

impl<C> Encode<C> for Register {
    fn encode<W: Write>(
        &self,
        encoder: &mut Encoder<W>,
        context: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        encoder.array(3)?.u64(self.next)?.encode_with(&self.proposals, context)?.bool(self.used)?;
        Ok(())
    }
}

impl<'b, C> Decode<'b, C> for Register {
    fn decode(decoder: &mut Decoder<'b>, context: &mut C) -> Result<Self, decode::Error> {
        let Registered { next, proposals, used } = decoder.decode_with(context)?;
        let mut register = Register { next, used, ..Register::default() };
        for proposal in &proposals {
            register.index(proposal);
        }
        let last = proposals.iter().map(|one| one.seq).chain([next]);
        if !last.is_sorted_by(|before, after| before < after) {
            return Err(decode::Error::message("the proposals are out of order"));
        }
        register.proposals = proposals;
        Ok(register)
    }
}
