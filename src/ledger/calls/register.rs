//! The register of all calls of a conversation, and how it is written: its proposals. What can be reckoned
//! from them is not.

use super::super::event::{Alternative, ExchangeId, Millis, Pair};
use super::{Call, CallState, Proposal, Written};
use minicbor::encode::{self, Write};
use minicbor::{Decode, Decoder, Encode, Encoder, decode};
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};

/// All proposals of a conversation that are still remembered, newest last, found by id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Register {
    next: u64,
    proposals: VecDeque<Proposal>,
    by_id: BTreeMap<Box<str>, SmallVec<[u64; 2]>>,
    unsettled: Unsettled,
    calls: usize,
    /// Whether a model's proposal was ever registered here (adopted runs do not count).
    pub used: bool,
    /// No write that is forgotten had this ordinal or a higher one.
    pub(in super::super) ordinals: u32,
}

/// The proposals that time or a newer task may still change, by number: those with an open call or an unknown
/// write, and perhaps some that had one. A settled one never becomes unsettled, so most events look at these
/// few, however old the conversation is. It follows from the rest: it is not written, and counts for nothing
/// in a comparison.
#[derive(Clone, Debug, Default)]
struct Unsettled(SmallVec<[u64; 4]>);

impl PartialEq for Unsettled {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Unsettled {}

impl Hash for Unsettled {
    fn hash<H: Hasher>(&self, _: &mut H) {}
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
        self.index(&proposal);
        self.proposals.push_back(proposal);
        seq
    }

    /// From here on its calls are counted, and found by their ids.
    fn index(&mut self, proposal: &Proposal) {
        self.calls += proposal.calls.len();
        if proposal.unsettled() {
            self.unsettled.0.push(proposal.seq);
        }
        for call in &proposal.calls {
            let seqs = self.by_id.entry(call.id.clone()).or_default();
            if seqs.last() != Some(&proposal.seq) {
                seqs.push(proposal.seq);
            }
        }
    }

    fn forget_settled(&mut self) {
        let mut unsettled = std::mem::take(&mut self.unsettled);
        unsettled.0.retain(|seq| self.get(*seq).is_some_and(Proposal::unsettled));
        self.unsettled = unsettled;
    }

    /// Every proposal with an open call or an unknown write, oldest first.
    pub fn unsettled(&self) -> impl Iterator<Item = &Proposal> {
        let all = self.unsettled.0.iter().filter_map(|seq| self.get(*seq));
        all.filter(|one| one.unsettled())
    }

    /// Changes every proposal with an open call or an unknown write, oldest first.
    pub fn change_unsettled(&mut self, mut change: impl FnMut(&mut Proposal)) {
        let unsettled = std::mem::take(&mut self.unsettled);
        for seq in &unsettled.0 {
            if let Some(proposal) = self.get_mut(*seq).filter(|one| one.unsettled()) {
                change(proposal);
            }
        }
        self.unsettled = unsettled;
        self.forget_settled();
    }

    /// Proposals that hold all ids of `pairs` in one choice, newest first.
    pub fn holding<'a, 'p>(
        &'a self,
        pairs: &'p [Pair],
    ) -> impl Iterator<Item = &'a Proposal> + use<'a, 'p> {
        let seqs = pairs.first().and_then(|pair| self.by_id.get(&pair.id));
        seqs.into_iter()
            .flat_map(|seqs| seqs.iter().rev())
            .filter_map(|seq| self.get(*seq))
            .filter(|proposal| proposal.choice_of(pairs).is_some())
    }

    /// Proposals that hold this id, newest first.
    pub fn with_id(&self, id: &str) -> impl Iterator<Item = &Proposal> {
        self.by_id
            .get(id)
            .into_iter()
            .flat_map(|seqs| seqs.iter().rev())
            .filter_map(|seq| self.get(*seq))
    }

    /// Whether calls that this exchange proposed are still open.
    #[must_use]
    pub fn awaits(&self, exchange: ExchangeId) -> bool {
        self.unsettled().any(|one| one.exchange == exchange && one.open())
    }

    /// The proposal of that number.
    #[must_use]
    pub fn get(&self, seq: u64) -> Option<&Proposal> {
        let at = self.proposals.binary_search_by_key(&seq, |proposal| proposal.seq).ok()?;
        self.proposals.get(at)
    }

    /// The proposal of that number, to be changed.
    pub fn get_mut(&mut self, seq: u64) -> Option<&mut Proposal> {
        let at = self.proposals.binary_search_by_key(&seq, |proposal| proposal.seq).ok()?;
        self.proposals.get_mut(at)
    }

    /// All of them, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Proposal> {
        self.proposals.iter()
    }

    /// All of them, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Proposal> {
        self.proposals.iter_mut()
    }

    /// Ends every open call that `which` picks; gives each to `ended`.
    pub fn end(
        &mut self,
        state: CallState,
        now: Millis,
        which: impl Fn(&Proposal, &Call) -> bool,
        mut ended: impl FnMut(&Call),
    ) {
        self.change_unsettled(|proposal| {
            for at in 0..proposal.calls.len() {
                let call = &proposal.calls[at];
                if call.state == CallState::Open && which(proposal, call) {
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
        while self.calls > kept {
            let hard = self.calls > kept.saturating_mul(4);
            let victim = self.proposals.iter().position(|proposal| {
                !proposal.open()
                    && !in_flight(proposal.seq)
                    && !proposal.calls.iter().any(Call::unknown_write)
                    && (hard || !proposal.calls.iter().any(Call::barred))
            });
            let Some(gone) = victim.and_then(|at| self.proposals.remove(at)) else { break };
            self.calls -= gone.calls.len();
            for call in &gone.calls {
                if call.write && call.written != Some(Written::Withdrawn) {
                    self.ordinals = self.ordinals.max(call.ordinal.saturating_add(1));
                }
                if let Some(seqs) = self.by_id.get_mut(&call.id) {
                    seqs.retain(|seq| *seq != gone.seq);
                    if seqs.is_empty() {
                        self.by_id.remove(&call.id);
                    }
                }
            }
        }
    }
}

/// What is read of a [`Register`].
#[derive(Decode)]
struct Registered {
    #[n(0)]
    next: u64,
    #[n(1)]
    proposals: VecDeque<Proposal>,
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
