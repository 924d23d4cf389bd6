//! Proposals and their calls: what was registered before a client saw it, and how each call ended.
//!
//! ```text
//!            result accepted ───────────────► Accepted   (one result, for ever)
//!           │closing (client's own notice) ─► Closed
//!   Open ───┤deadline ──────────────────────► TimedOut
//!           │user moved on ─────────────────► Superseded
//!           │newer attempt / never sent ────► Replaced
//!           └left out of the run, or another choice was answered ─► Unchosen
//! ```
//! Every arrow leaves `Open`; nothing leaves a final state. What a rule set to `note` let in is kept
//! beside the state (`forced`), never over it.

mod encoding;

use super::digest::Digest;
use super::event::{Alternative, ExchangeId, Millis, Pair, Proposed};
use super::writes::Written;
use minicbor::{Decode, Encode};
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};

/// How a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(flat)]
pub enum CallState {
    /// Registered, not yet answered.
    #[n(0)]
    Open,
    /// Answered: the digest of its one result.
    #[n(1)]
    Accepted(#[n(0)] Digest),
    /// The client put a notice in place of a result: its digest.
    #[n(2)]
    Closed(#[n(0)] Digest),
    /// Its deadline passed first.
    #[n(3)]
    TimedOut,
    /// The user moved on first.
    #[n(4)]
    Superseded,
    /// A newer attempt took over, or its bytes never went out.
    #[n(5)]
    Replaced,
    /// The run that answered its message left it out, or took another choice.
    #[n(6)]
    Unchosen,
}

/// One registered call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Call {
    /// Its id.
    #[n(0)]
    pub id: Box<str>,
    /// Its tool.
    #[n(1)]
    pub tool: Box<str>,
    /// Digest of its arguments.
    #[n(2)]
    pub arguments: Digest,
    /// Arguments that its result may echo.
    #[n(3)]
    pub echoes: Vec<(Box<str>, Digest)>,
    /// The choice that proposed it.
    #[n(4)]
    pub choice: u64,
    /// When it was registered.
    #[n(5)]
    pub registered: Millis,
    /// When its result is too late.
    #[n(6)]
    pub deadline: Option<Millis>,
    /// Whether the tool is declared a write.
    #[n(7)]
    pub write: bool,
    /// Attempts that were started (numbered from 1).
    #[n(8)]
    pub started: u32,
    /// How it stands.
    #[n(9)]
    pub state: CallState,
    /// A result that was let in although a rule would have refused it.
    #[n(10)]
    pub forced: Option<Digest>,
    /// When it ended.
    #[n(11)]
    pub ended: Option<Millis>,
    /// The control API call that decided it, and its `idempotency-key`.
    #[n(12)]
    pub decided_by: Option<(ExchangeId, Option<Digest>)>,
    /// The control API call that started the last attempt.
    #[n(13)]
    pub started_by: Option<ExchangeId>,
    /// Which of the equal writes of its generation it is.
    #[n(14)]
    pub ordinal: u32,
    /// What is known of a write that got no accepted result.
    #[n(15)]
    pub written: Option<Written>,
}

impl Call {
    /// Whether `result` is what was let in for this call.
    #[must_use]
    pub fn holds(&self, result: Digest) -> bool {
        self.forced == Some(result)
            || matches!(self.state, CallState::Accepted(d) | CallState::Closed(d) if d == result)
    }

    /// Whether a result was let in: accepted, closed by the client, or forced.
    #[must_use]
    pub fn answered(&self) -> bool {
        self.forced.is_some() || matches!(self.state, CallState::Accepted(_) | CallState::Closed(_))
    }

    /// Whether only a closing may stand for it: it ended without an answer and its task is gone.
    #[must_use]
    pub fn barred(&self) -> bool {
        !self.answered()
            && matches!(
                self.state,
                CallState::TimedOut | CallState::Superseded | CallState::Replaced
            )
    }

    /// Whether the offered pair is this very call: tool and arguments.
    #[must_use]
    pub fn is(&self, pair: &Pair) -> bool {
        self.tool == pair.tool && (pair.edits_allowed || self.arguments == pair.arguments)
    }
}

/// The calls of one assistant message.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Proposal {
    /// Rises by one with each proposal of the conversation.
    #[n(0)]
    pub seq: u64,
    /// The exchange that proposed it.
    #[n(1)]
    pub exchange: ExchangeId,
    /// Its lane, by number.
    #[n(2)]
    pub lane: u32,
    /// Its generation.
    #[n(3)]
    pub generation: u64,
    /// Whether a rule would have refused it.
    #[n(4)]
    pub forced: bool,
    /// Whether the answer to its results was delivered.
    #[n(5)]
    pub delivered: bool,
    /// Its calls, of all choices.
    #[n(6)]
    pub calls: Vec<Call>,
}

impl Proposal {
    /// The call of that id. With several choices, of `choice` if given.
    #[must_use]
    pub fn call(&self, id: &str, choice: Option<u64>) -> Option<usize> {
        self.calls
            .iter()
            .position(|call| *call.id == *id && choice.is_none_or(|choice| call.choice == choice))
    }

    /// The choice that these pairs answer: the one whose calls they are, else the first that holds all
    /// their ids (choices may use the same ids).
    #[must_use]
    pub fn choice_of(&self, pairs: &[Pair]) -> Option<u64> {
        let first = pairs.first()?;
        let choices =
            || self.calls.iter().filter(|call| call.id == first.id).map(|call| call.choice);
        let holds = |choice: u64, same: bool| {
            pairs.iter().all(|pair| {
                let at = self.call(&pair.id, Some(choice));
                at.is_some_and(|at| !same || self.calls[at].is(pair))
            })
        };
        choices().find(|one| holds(*one, true)).or_else(|| choices().find(|one| holds(*one, false)))
    }

    /// Whether any of its calls is open.
    #[must_use]
    pub fn open(&self) -> bool {
        self.calls.iter().any(|call| call.state == CallState::Open)
    }
}

/// All proposals of a conversation that are still remembered, newest last, found by id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Register {
    next: u64,
    proposals: VecDeque<Proposal>,
    by_id: BTreeMap<Box<str>, SmallVec<[u64; 2]>>,
    calls: usize,
    /// Whether a model's proposal was ever registered here (adopted runs do not count).
    pub used: bool,
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
                let here = u32::try_from(calls.iter().filter(equal).count()).unwrap_or(u32::MAX);
                call.ordinal = self.ordinal(origin.generation, proposed).saturating_add(here);
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
        self.index(&proposal);
        self.proposals.push_back(proposal);
        seq
    }

    /// From here on its calls are counted, and found by their ids.
    fn index(&mut self, proposal: &Proposal) {
        self.calls += proposal.calls.len();
        for call in &proposal.calls {
            let seqs = self.by_id.entry(call.id.clone()).or_default();
            if seqs.last() != Some(&proposal.seq) {
                seqs.push(proposal.seq);
            }
        }
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
        self.proposals.iter().rev().any(|one| one.exchange == exchange && one.open())
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
        for proposal in &mut self.proposals {
            for at in 0..proposal.calls.len() {
                let call = &proposal.calls[at];
                if call.state == CallState::Open && which(proposal, call) {
                    let call = &mut proposal.calls[at];
                    call.state = state;
                    call.ended = Some(now);
                    ended(call);
                }
            }
        }
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

impl Call {
    fn open(call: &Proposed, choice: u64, now: Millis) -> Call {
        Call {
            id: call.id.clone(),
            tool: call.tool.clone(),
            arguments: call.arguments,
            echoes: call.echoes.clone(),
            choice,
            registered: now,
            deadline: call.deadline.map(|span| now.after(span)),
            write: call.write,
            started: 0,
            state: CallState::Open,
            forced: None,
            ended: None,
            decided_by: None,
            started_by: None,
            ordinal: 0,
            written: None,
        }
    }
}
