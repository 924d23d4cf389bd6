//! The register of all calls of a conversation, and how it is written: its proposals. What can be reckoned
//! from them is not.

use super::super::digest::Digest;
use super::super::event::{Alternative, ExchangeId, Millis, Pair};
use super::super::marked::{Change, Marked, Moves, Noted, Takes};
use super::index::Index;
use super::moved::Moved;
use super::{Call, CallState, Proposal, Written};
use minicbor::encode::{self, Write};
use minicbor::{Decode, Decoder, Encode, Encoder, decode};

/// All proposals of a conversation that are still remembered, newest last, found by id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Register {
    next: u64,
    proposals: Marked<Proposal>,
    index: Index,
    /// Whether a model's proposal was ever registered here (adopted runs do not count).
    pub used: bool,
    /// No write that is forgotten had this ordinal or a higher one.
    pub(in super::super) ordinals: u32,
}

/// Where a proposal comes from.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// The exchange that proposed it, or that brought an adopted run.
    pub exchange: ExchangeId,
    /// Its lane.
    pub lane: u32,
    /// Its generation.
    pub generation: u64,
    /// Whether a rule would have refused it.
    pub forced: bool,
}

impl Register {
    /// Registers what a model proposed.
    pub fn propose(&mut self, origin: Origin, alternatives: &[Alternative], now: Millis) {
        let mut calls: Vec<Call> = Vec::new();
        for (choice, proposed) in
            alternatives.iter().flat_map(|one| one.calls.iter().map(|call| (one.choice, call)))
        {
            let mut call = Call::open(proposed, choice, now);
            if proposed.write {
                // Equal writes in one message are two writes; of several choices only one is taken.
                let equal = |one: &&Call| {
                    one.choice == choice && one.tool == call.tool && one.arguments == call.arguments
                };
                let here: Vec<u32> = calls.iter().filter(equal).map(|one| one.ordinal).collect();
                call.ordinal = self.ordinal(origin.generation, proposed, &here);
            }
            calls.push(call);
        }
        self.used = true;
        let _ = self.insert(origin, calls);
    }

    /// Remembers what an adopted run brought: calls that were answered before we knew them. Gives its
    /// number.
    pub fn adopt(&mut self, origin: Origin, pairs: &[Pair], now: Millis) -> u64 {
        let calls = pairs
            .iter()
            .map(|pair| Call {
                id: pair.id.clone(),
                tool: pair.tool.clone(),
                arguments: pair.arguments,
                echoes: Vec::new(),
                choice: 0,
                registered: now,
                deadline: None,
                write: false,
                started: 0,
                state: if pair.closing {
                    CallState::Closed(pair.result)
                } else {
                    CallState::Accepted(pair.result)
                },
                forced: origin.forced.then_some(pair.result),
                ended: Some(now),
                decided_by: None,
                started_by: None,
                ordinal: 0,
                written: None,
                resolved: None,
            })
            .collect();
        self.insert(origin, calls)
    }

    fn insert(&mut self, origin: Origin, calls: Vec<Call>) -> u64 {
        let seq = self.next;
        self.next += 1;
        let Origin { exchange, lane, generation, forced } = origin;
        let proposal =
            Proposal { seq, exchange, lane, generation, forced, delivered: false, calls };
        self.forget_settled();
        self.index.add(&proposal);
        self.proposals.push(proposal);
        seq
    }

    fn forget_settled(&mut self) {
        let mut unsettled = std::mem::take(&mut self.index.unsettled);
        unsettled.retain(|seq| self.get(*seq).is_some_and(Proposal::unsettled));
        self.index.unsettled = unsettled;
    }

    /// Every proposal with an open call or an unknown write, oldest first.
    pub fn unsettled(&self) -> impl Iterator<Item = &Proposal> {
        let all = self.index.unsettled.iter().filter_map(|seq| self.get(*seq));
        all.filter(|one| one.unsettled())
    }

    /// Changes every proposal with an open call or an unknown write that `which` picks, oldest first.
    pub fn change_unsettled(
        &mut self,
        which: impl Fn(&Proposal) -> bool,
        mut change: impl FnMut(&mut Proposal),
    ) {
        let unsettled = std::mem::take(&mut self.index.unsettled);
        for seq in &unsettled {
            if self.get(*seq).is_some_and(|one| one.unsettled() && which(one))
                && let Some(proposal) = self.get_mut(*seq)
            {
                change(proposal);
            }
        }
        self.index.unsettled = unsettled;
        self.forget_settled();
    }

    /// Proposals that hold all ids of `pairs` in one choice, newest first.
    pub fn holding<'a, 'p>(
        &'a self,
        pairs: &'p [Pair],
    ) -> impl Iterator<Item = &'a Proposal> + use<'a, 'p> {
        let seqs = pairs.first().map(|pair| self.index.with_id(&pair.id).rev());
        let found = seqs.into_iter().flatten().filter_map(|seq| self.get(seq));
        found.filter(|proposal| proposal.choice_of(pairs).is_some())
    }

    /// Proposals that hold this id, newest first.
    pub fn with_id<'a, 'i>(
        &'a self,
        id: &'i str,
    ) -> impl Iterator<Item = &'a Proposal> + use<'a, 'i> {
        let found = self.index.with_id(id).rev().filter_map(|seq| self.get(seq));
        found.filter(move |one| one.call(id, None).is_some())
    }

    /// Proposals of this exchange, oldest first.
    pub(in super::super) fn of_exchange(
        &self,
        exchange: ExchangeId,
    ) -> impl Iterator<Item = &Proposal> {
        self.index.by_exchange(exchange).filter_map(|seq| self.get(seq))
    }

    /// Proposals with a write of these arguments, oldest first.
    pub(in super::super) fn with_write(
        &self,
        arguments: Digest,
    ) -> impl Iterator<Item = &Proposal> {
        self.index.writes(arguments).filter_map(|seq| self.get(seq))
    }

    /// Whether calls that this exchange proposed are still open.
    #[must_use]
    pub fn awaits(&self, exchange: ExchangeId) -> bool {
        self.unsettled().any(|one| one.exchange == exchange && one.open())
    }

    /// The proposal of that number.
    #[must_use]
    pub fn get(&self, seq: u64) -> Option<&Proposal> {
        self.proposals.get(self.place(seq)?)
    }

    /// The proposal of that number, to be changed. What its calls are stays.
    pub fn get_mut(&mut self, seq: u64) -> Option<&mut Proposal> {
        let at = self.place(seq)?;
        self.proposals.get_mut(at)
    }

    fn place(&self, seq: u64) -> Option<usize> {
        let of = |at: usize| self.proposals.get(at).map(|proposal| proposal.seq);
        // Mostly none was taken out between the first and this one.
        let near = usize::try_from(seq.checked_sub(of(0)?)?).unwrap_or(usize::MAX);
        if of(near) == Some(seq) {
            return Some(near);
        }
        let (mut low, mut high) = (0, self.proposals.len());
        while low < high {
            let middle = low.midpoint(high);
            match of(middle)?.cmp(&seq) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// All of them, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Proposal> {
        self.proposals.iter()
    }

    /// Ends every open call that `which` picks; gives each to `ended`.
    pub fn end(
        &mut self,
        state: CallState,
        now: Millis,
        which: impl Fn(&Proposal, &Call) -> bool,
        mut ended: impl FnMut(&Call),
    ) {
        let ends = |proposal: &Proposal, call: &Call| {
            call.state == CallState::Open && which(proposal, call)
        };
        let any = |proposal: &Proposal| proposal.calls.iter().any(|call| ends(proposal, call));
        self.change_unsettled(any, |proposal| {
            for at in 0..proposal.calls.len() {
                if ends(proposal, &proposal.calls[at]) {
                    let call = &mut proposal.calls[at];
                    call.state = state;
                    call.ended = Some(now);
                    ended(call);
                }
            }
        });
    }

    /// Forgets the oldest proposals beyond `kept` calls. Open ones, unknown writes and those
    /// whose continuation is `in_flight` stay; those that
    /// only a closing may stand for stay four times as long, as nothing else would bar their late results.
    pub fn fold(&mut self, kept: usize, in_flight: impl Fn(u64) -> bool) {
        while self.index.calls > kept {
            let hard = self.index.calls > kept.saturating_mul(4);
            let victim = self.proposals.iter().position(|proposal| {
                !proposal.open()
                    && !in_flight(proposal.seq)
                    && !proposal.calls.iter().any(Call::unknown_write)
                    && (hard || !proposal.calls.iter().any(Call::barred))
            });
            let Some(gone) = victim.and_then(|at| self.proposals.remove(at)) else { break };
            self.index.remove(&gone);
            for call in &gone.calls {
                if call.write && call.written != Some(Written::Withdrawn) {
                    self.ordinals = self.ordinals.max(call.ordinal.saturating_add(1));
                }
            }
        }
    }

    /// They were written as they are now.
    pub(in super::super) fn written(&mut self) {
        self.proposals.written();
    }

    /// What became of them since. `None`: more than is worth noting.
    pub(in super::super) fn change(&self) -> Option<RegisterNoted<'_>> {
        let Register { next, used, ordinals, .. } = *self;
        Some(RegisterNoted { next, proposals: self.proposals.change()?, used, ordinals })
    }

    /// Makes the change that was read.
    pub(in super::super) fn make(&mut self, change: RegisterChange) -> Result<(), decode::Error> {
        let RegisterChange { next, proposals, used, ordinals } = change;
        (self.next, self.used, self.ordinals) = (next, used, ordinals);
        proposals.make(self)
    }
}

impl Takes<Proposal> for Register {
    fn drops(&mut self, at: usize) -> bool {
        self.proposals.remove(at).map(|gone| self.index.remove(&gone)).is_some()
    }

    fn moves(&mut self, at: usize, moved: Moved) -> bool {
        let Some(proposal) = self.proposals.get_mut(at) else { return false };
        let fits = proposal.move_to(moved);
        self.index.moved(proposal);
        fits
    }

    fn gets(&mut self, proposal: Proposal) -> bool {
        let last = self.proposals.iter().next_back().is_none_or(|last| last.seq < proposal.seq);
        let follows = last && proposal.seq < self.next;
        self.index.add(&proposal);
        self.proposals.push(proposal);
        follows
    }
}

/// What became of a [`Register`], as it is written.
#[derive(Encode)]
pub(in super::super) struct RegisterNoted<'a> {
    #[n(0)]
    next: u64,
    #[n(1)]
    proposals: Noted<'a, Proposal>,
    #[n(2)]
    used: bool,
    #[n(3)]
    ordinals: u32,
}

/// The same, as it is read.
#[derive(Decode)]
pub(in super::super) struct RegisterChange {
    #[n(0)]
    next: u64,
    #[n(1)]
    proposals: Change<Proposal>,
    #[n(2)]
    used: bool,
    #[n(3)]
    ordinals: u32,
}

/// What is read of a [`Register`].
#[derive(Decode)]
struct Registered {
    #[n(0)]
    next: u64,
    #[n(1)]
    proposals: Marked<Proposal>,
    #[n(2)]
    used: bool,
    #[n(3)]
    #[cbor(default)]
    ordinals: u32,
}

impl<C> Encode<C> for Register {
    fn encode<W: Write>(
        &self,
        encoder: &mut Encoder<W>,
        context: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        encoder.array(4)?.u64(self.next)?.encode_with(&self.proposals, context)?;
        encoder.bool(self.used)?.u32(self.ordinals)?;
        Ok(())
    }
}

impl<'b, C> Decode<'b, C> for Register {
    fn decode(decoder: &mut Decoder<'b>, context: &mut C) -> Result<Self, decode::Error> {
        let Registered { next, proposals, used, ordinals } = decoder.decode_with(context)?;
        let mut register = Register { next, used, ordinals, ..Register::default() };
        for proposal in proposals.iter() {
            register.index.add(proposal);
        }
        let last = proposals.iter().map(|one| one.seq).chain([next]);
        if !last.is_sorted_by(|before, after| before < after) {
            return Err(decode::Error::message("the proposals are out of order"));
        }
        register.proposals = proposals;
        Ok(register)
    }
}
