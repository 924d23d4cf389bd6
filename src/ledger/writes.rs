//! Writes whose outcome nobody knows: a timeout does not mean that a refund did not happen.
//!
//! A write is *unknown* while it timed out, was superseded or was replaced after its bytes may have gone
//! out, until its result is reported or somebody resolves it. The same write proposed anew is refused.

use super::Conversation;
use super::calls::{Call, CallState, Register};
use super::digest::Digest;
use super::event::{ExchangeId, Outcome, Proposed, Refused, Resolve, Settle};
use super::step::Step;
use super::words;
use crate::guard::fault::{Code, Fault};
use minicbor::{Decode, Encode};

/// One write of one task: what its operation key is made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    /// The task's generation.
    pub generation: u64,
    /// The tool.
    pub tool: Box<str>,
    /// Digest of the arguments.
    pub arguments: Digest,
    /// Which of the equal writes of that generation, from 0. Withdrawn ones do not count: what a retry
    /// proposes in their place is the same write.
    pub ordinal: u32,
}

/// What is known of a write that got no accepted result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Written {
    /// Its bytes never went out, or a declared retry replaced it: it was not run.
    #[n(0)]
    Withdrawn,
    /// Its result came too late for the model, but it came.
    #[n(1)]
    Reported,
    /// An application or operator says that it took effect.
    #[n(2)]
    Applied,
    /// An application or operator says that it did not.
    #[n(3)]
    NotApplied,
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
    /// The next ordinal for such a write in that generation.
    pub(super) fn ordinal(&self, generation: u64, proposed: &Proposed) -> u32 {
        let equal = self
            .iter()
            .filter(|one| one.generation == generation)
            .flat_map(|one| &one.calls)
            .filter(|call| call.write && call.written != Some(Written::Withdrawn))
            .filter(|call| call.tool == proposed.tool && call.arguments == proposed.arguments);
        u32::try_from(equal.count()).unwrap_or(u32::MAX)
    }

    /// Whether such a write is unknown.
    fn unknown(&self, proposed: &Proposed) -> bool {
        let calls = self.iter().flat_map(|one| &one.calls);
        calls
            .filter(|call| call.unknown_write())
            .any(|call| call.tool == proposed.tool && call.arguments == proposed.arguments)
    }

    /// The calls of that exchange are known not to have been run.
    pub(super) fn withdraw(&mut self, exchange: ExchangeId) {
        for proposal in self.iter_mut().filter(|one| one.exchange == exchange) {
            for call in proposal.calls.iter_mut().filter(|call| call.unknown_write()) {
                call.written = Some(Written::Withdrawn);
            }
        }
    }

    /// The late result of a write was seen: its outcome is known, though no model is told.
    pub(super) fn reported(&mut self, seq: u64, at: usize) {
        if let Some(call) = self.get_mut(seq).and_then(|one| one.calls.get_mut(at))
            && call.unknown_write()
        {
            call.written = Some(Written::Reported);
        }
    }
}

impl Conversation {
    /// Every write here with its operation, for finding one by its key.
    pub fn operations(&self) -> impl Iterator<Item = (Operation, &Call)> {
        self.calls.iter().flat_map(|proposal| {
            let writes = proposal.calls.iter().filter(|call| call.write);
            writes.map(|call| (call.operation(proposal.generation), call))
        })
    }

    /// Faults of a response that proposes a write anew while its outcome is unknown.
    pub(super) fn unknown_writes(&self, settle: &Settle) -> Vec<Fault> {
        let mut faults = Vec::new();
        for one in &settle.alternatives {
            for (at, call) in one.calls.iter().enumerate() {
                if call.write && self.calls.unknown(call) {
                    faults.push(words::write_outcome_unknown(one.choice, at, &call.id));
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
        for proposal in self.calls.iter_mut().filter(|one| one.generation == asked.generation) {
            let generation = proposal.generation;
            let writes = proposal.calls.iter_mut().filter(|call| call.write);
            for call in writes.filter(|call| call.operation(generation) == *asked) {
                match call.written {
                    Some(Written::Withdrawn) => {}
                    Some(known) if known == says => code = None,
                    Some(Written::Reported) | None if !call.answered() => {
                        call.written = Some(says);
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
