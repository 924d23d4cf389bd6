//! Writes whose outcome nobody knows: a timeout does not mean that a refund did not happen.
//!
//! A write is *unknown* while it timed out, was superseded or was replaced after its bytes may have gone
//! out, until its result is reported or somebody resolves it. The same write proposed anew is refused.
//!
//! A result that came too late was most likely a success, and the model has not seen it: it would propose the
//! write again. The ledger does not judge contents, so until somebody says what the result meant, the same
//! write is refused to every task that had begun when it came.
//!
//! When it is resolved as *applied*, every task that had begun before goes on being refused it: what a
//! model proposes there is the write that took effect. A task that begins later may want a second one.
//!
//! Equal writes of a generation are told apart by an *ordinal*. It is given once: neither a write that is
//! forgotten nor one that may have been run leaves its ordinal to another. A withdrawn one does, as what is
//! proposed in its place is the same write.

use super::Conversation;
use super::calls::{Call, CallState, Proposal, Register, Written};
use super::digest::{Digest, DigestKey};
use super::event::{
    ExchangeId, Fact, Millis, Operation, Outcome, Proposed, Refused, Resolve, Settle, WriteOutcome,
};
use super::step::Step;
use super::words;
use crate::guard::fault::{Code, Fault};

impl Operation {
    /// Its key, which an application gives to its business service as idempotency key: the same for the
    /// same write in the same task, whatever its call id and attempt. `principal` and `conversation` are
    /// the digests that the conversation is kept under.
    #[must_use]
    pub fn key(&self, secret: &DigestKey, principal: &Digest, conversation: &Digest) -> Digest {
        // All parts before the last have a fixed length, so no two operations give the same bytes.
        let mut parts = Vec::with_capacity(60 + self.tool.len());
        parts.extend_from_slice(principal.as_bytes());
        parts.extend_from_slice(conversation.as_bytes());
        parts.extend_from_slice(&self.generation.to_le_bytes());
        parts.extend_from_slice(&self.ordinal.to_le_bytes());
        parts.extend_from_slice(self.arguments.as_bytes());
        parts.extend_from_slice(self.tool.as_bytes());
        secret.bytes("operation", &parts)
    }
}

/// No write of a conversation has the operation key that was named.
#[must_use]
pub fn no_such_write() -> Fault {
    words::not_resolved(Code::Unmatched)
}

impl Call {
    /// Whether it may or may not have taken effect.
    #[must_use]
    pub fn unknown_write(&self) -> bool {
        self.write
            && self.written.is_none()
            && matches!(
                self.state,
                CallState::TimedOut | CallState::Superseded | CallState::Replaced
            )
    }
}

impl Register {
    /// The ordinal for such a write in that generation; `here` are those of its equals beside it.
    pub(super) fn ordinal(&self, generation: u64, proposed: &Proposed, here: &[u32]) -> u32 {
        let (mut free, mut used) = (Vec::new(), here.to_vec());
        let equal = self.with_write(proposed.arguments);
        for proposal in equal.filter(|one| one.generation == generation) {
            for call in proposal.calls.iter().filter(|call| same_write(call, proposed)) {
                let withdrawn = call.written == Some(Written::Withdrawn);
                if withdrawn { &mut free } else { &mut used }.push(call.ordinal);
            }
        }
        free.retain(|ordinal| *ordinal >= self.ordinals && !used.contains(ordinal));
        let next = || used.iter().map(|ordinal| ordinal.saturating_add(1)).max().unwrap_or(0);
        free.into_iter().min().unwrap_or_else(|| self.ordinals.max(next()))
    }

    /// What bars such a write from being proposed in a task that began then.
    fn barring(&self, proposed: &Proposed, began: Millis) -> Option<Code> {
        let equal = || {
            let calls = self.with_write(proposed.arguments).flat_map(|one| &one.calls);
            calls.filter(|call| same_write(call, proposed))
        };
        let since = |call: &Call, written| {
            call.written == Some(written) && call.resolved.is_some_and(|at| began <= at)
        };
        if equal().any(|call| call.unknown_write() || since(call, Written::Reported)) {
            return Some(Code::WriteOutcomeUnknown);
        }
        equal().any(|call| since(call, Written::Applied)).then_some(Code::WriteApplied)
    }

    /// The calls of that exchange are known not to have been run.
    pub(super) fn withdraw(&mut self, exchange: ExchangeId) {
        let theirs =
            |one: &Proposal| one.exchange == exchange && one.calls.iter().any(Call::unknown_write);
        self.change_unsettled(theirs, |proposal| {
            for call in proposal.calls.iter_mut().filter(|call| call.unknown_write()) {
                call.written = Some(Written::Withdrawn);
            }
        });
    }

    /// The late result of a write was seen, though no model is told.
    pub(super) fn reported(&mut self, seq: u64, at: usize, now: Millis) {
        let unknown =
            self.get(seq).and_then(|one| one.calls.get(at)).is_some_and(Call::unknown_write);
        if unknown && let Some(call) = self.get_mut(seq).and_then(|one| one.calls.get_mut(at)) {
            call.written = Some(Written::Reported);
            call.resolved = Some(now);
        }
    }
}

fn same_write(call: &Call, proposed: &Proposed) -> bool {
    call.write && call.tool == proposed.tool && call.arguments == proposed.arguments
}

impl Conversation {
    /// Every write here with its operation, for finding one by its key.
    pub fn operations(&self) -> impl Iterator<Item = (Operation, &Call)> {
        self.calls.iter().flat_map(|proposal| {
            let writes = proposal.calls.iter().filter(|call| call.write);
            writes.map(|call| (call.operation(proposal.generation), call))
        })
    }

    /// Where the writes stand whose outcome is unknown.
    pub(super) fn unknown_writes(&self) -> impl Iterator<Item = (u64, usize)> {
        self.calls.unsettled().flat_map(|proposal| {
            let calls = proposal.calls.iter().enumerate();
            calls.filter(|(_, call)| call.unknown_write()).map(|(at, _)| (proposal.seq, at))
        })
    }

    /// Tells what an event made of the writes that were `unknown` before it, and of others. What it made
    /// unknown and known again is nothing to tell.
    pub(super) fn tell_of_writes(&self, unknown: &[(u64, usize)], step: &mut Step<'_>) {
        let facts = &mut step.effects.facts;
        // Both are in order.
        let new = self.unknown_writes().filter(|place| unknown.binary_search(place).is_err());
        facts.extend(new.map(|_| Fact::WriteBecame(WriteOutcome::Unknown)));
        for (seq, at) in unknown {
            let call = self.calls.get(*seq).and_then(|proposal| proposal.calls.get(*at));
            let outcome = match call.and_then(|call| call.written) {
                None => continue,
                Some(Written::Withdrawn) => WriteOutcome::Withdrawn,
                Some(Written::Reported) => WriteOutcome::Reported,
                Some(Written::Applied) => WriteOutcome::Applied,
                Some(Written::NotApplied) => WriteOutcome::NotApplied,
            };
            facts.push(Fact::WriteBecame(outcome));
        }
    }

    /// Faults of a response that proposes a write anew while its outcome is unknown, or when it took
    /// effect in this very task.
    pub(super) fn barred_writes(&self, settle: &Settle, lane: u32) -> Vec<Fault> {
        let began = self.lanes.get(lane).map_or(Millis(0), |lane| lane.task.began());
        let mut faults = Vec::new();
        for one in &settle.alternatives {
            for (at, call) in one.calls.iter().enumerate().filter(|(_, call)| call.write) {
                if let Some(code) = self.calls.barring(call, began) {
                    faults.push(words::write_barred(code, one.choice, at, &call.id));
                }
            }
        }
        faults
    }

    /// An application or operator says what became of a write.
    pub(super) fn resolve(&mut self, resolve: &Resolve, step: &mut Step<'_>) -> Outcome {
        let says = if resolve.applied { Written::Applied } else { Written::NotApplied };
        let mut code = Some(Code::Unmatched);
        let asked = &resolve.operation;
        let equal = self.calls.with_write(asked.arguments);
        let equal = equal.filter(|one| one.generation == asked.generation).map(|one| one.seq);
        for seq in equal.collect::<Vec<_>>() {
            let Some(proposal) = self.calls.get_mut(seq) else { continue };
            let generation = proposal.generation;
            let writes = proposal.calls.iter_mut().filter(|call| call.write);
            for call in writes.filter(|call| call.operation(generation) == *asked) {
                match call.written {
                    Some(Written::Withdrawn) => {}
                    Some(known) if known == says => code = None,
                    Some(Written::Reported) | None if !call.answered() => {
                        call.written = Some(says);
                        call.resolved = Some(step.now);
                        code = None;
                    }
                    _ => code = Some(Code::Conflict),
                }
            }
        }
        let Some(code) = code else { return Outcome::Done };
        self.reckon_due(step.rules);
        Outcome::Refused(Refused {
            generation: Some(self.lanes.highest()),
            faults: vec![words::not_resolved(code)],
            notes: Vec::new(),
            held: Vec::new(),
        })
    }
}

impl Call {
    /// What its operation key is made of.
    #[must_use]
    pub fn operation(&self, generation: u64) -> Operation {
        Operation {
            generation,
            tool: self.tool.clone(),
            arguments: self.arguments,
            ordinal: self.ordinal,
        }
    }
}
