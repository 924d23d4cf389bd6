//! Letting a response go down: the rules on proposals, then the ledger, then the proof.
//!
//! [`Judged`] is made by the rules only, [`Released`] by the ledger's yes to a `Judged` only (or at once, when
//! nothing of the exchange is remembered). Calls leave through functions that take a `Released`.

use super::admission::{Passage, goes_on_without_store, untracked};
use super::clearance::Cleared;
use super::gateway::{Gateway, Settings};
use super::question::echoes;
use super::refusal::{Refusal, plain_fault};
use crate::guard::fault::{Code, Fault};
use crate::guard::proposal::{self, Proposal};
use crate::guard::verdict::Action;
use crate::ledger::event::{Alternative, Ending, ExchangeId, Millis, Outcome, Proposed, Settle};
use crate::store::StoreError;
use crate::telemetry::CallVerdict;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// A response that the rules let through.
#[derive(Debug)]
pub(super) struct Judged {
    alternatives: Vec<Alternative>,
    forced: bool,
    notes: Vec<Fault>,
}

/// A response that may go down.
#[derive(Debug)]
pub(super) struct Released {
    notes: Vec<Fault>,
}

impl Released {
    /// What the ledger noted.
    #[must_use]
    pub(super) fn notes(&self) -> &[Fault] {
        &self.notes
    }
}

/// A response that may not go down.
#[derive(Debug)]
pub(super) struct Stopped {
    /// What the client is told.
    pub refusal: Box<Refusal>,
    /// What the ledger is told.
    pub ending: Ending,
}

impl Stopped {
    /// The model's output is refused.
    #[must_use]
    pub(super) fn output(faults: Vec<Fault>, notes: Vec<Fault>) -> Self {
        let mut refusal = Refusal::of_response(faults);
        refusal.notes = notes;
        Stopped { refusal: Box::new(refusal), ending: Ending::OutputRefused }
    }

    /// The answer is no longer wanted.
    #[must_use]
    pub(super) fn unwanted(code: Code) -> Self {
        let message = match code {
            Code::StaleAnswer => {
                "The user has moved on: this answer belongs to an older generation."
            }
            Code::Overtaken => "A newer attempt has taken over: this one's answer is withheld.",
            Code::BudgetExhausted => "The task's budget of model calls is used up.",
            _ => "This answer is no longer wanted.",
        };
        let refusal = Refusal::of_response(vec![plain_fault(code, "", message)]);
        Stopped { refusal: Box::new(refusal), ending: Ending::Withheld }
    }

    /// The proxy goes down and cannot wait for this answer. `calls_sent`: whether calls of it may be with
    /// the client.
    #[must_use]
    pub(super) fn draining(calls_sent: bool) -> Self {
        let message = "This proxy is shutting down and could not wait for the end of this answer.";
        let refusal = Refusal::of_response(vec![plain_fault(Code::Draining, "", message)]);
        Stopped { refusal: Box::new(refusal), ending: Ending::ClientGone { calls_sent } }
    }

    /// The upstream gave no usable answer.
    #[must_use]
    pub(super) fn upstream(code: Code, message: &str) -> Self {
        let refusal = Refusal::of_response(vec![plain_fault(code, "", message)]);
        Stopped { refusal: Box::new(refusal), ending: Ending::UpstreamFailed }
    }
}

/// Judges what a response proposes. `faults` are those already found while it was put together.
///
/// # Errors
/// When it is refused.
pub(super) fn judge(
    gateway: &Gateway,
    settings: &Settings,
    cleared: &Cleared,
    passage: &Passage,
    proposal: &Proposal,
    mut faults: Vec<Fault>,
) -> Result<Judged, Stopped> {
    let (tracked, recorded) = (passage.admitted().is_some(), passage.is_recorded());
    faults.extend(proposal::judge(proposal, &cleared.offer, tracked));
    let verdict = settings.policy.rules.judge(faults);
    let refused = !verdict.refused.is_empty() && !settings.policy.observe;
    count(gateway, proposal, refused, recorded);
    if refused {
        return Err(Stopped::output(verdict.refused, verdict.notes));
    }
    let mut notes = verdict.refused;
    notes.extend(verdict.notes);
    let alternatives =
        if recorded { alternatives(gateway, settings, proposal) } else { Vec::new() };
    Ok(Judged { alternatives, forced: notes.iter().any(|note| could_refuse(note.code)), notes })
}

/// Counts proposed calls; those that are registered are counted by the ledger's facts.
fn count(gateway: &Gateway, proposal: &Proposal, refused: bool, recorded: bool) {
    let verdict = if refused { CallVerdict::Refuse } else { CallVerdict::Pass };
    if recorded && !refused {
        return;
    }
    for call in proposal.choices.iter().flat_map(|choice| &choice.calls) {
        gateway.metrics.call(call.name.as_deref().unwrap_or_default(), verdict);
    }
}

/// Whether a note of this code stands for a refusal that the operator switched off.
fn could_refuse(code: Code) -> bool {
    !matches!(code, Code::SchemaUnusable | Code::HistoryChanged | Code::Adopted | Code::Substituted)
}

/// The ledger's answer to a [`Judged`].
pub(super) type Settling = Pin<Box<dyn Future<Output = Result<Released, Stopped>> + Send>>;

impl Judged {
    /// What was noted about it.
    #[must_use]
    pub(super) fn notes(&self) -> &[Fault] {
        &self.notes
    }

    /// Whether it proposes a write.
    #[must_use]
    pub(super) fn writes(&self) -> bool {
        self.alternatives.iter().flat_map(|one| &one.calls).any(|call| call.write)
    }

    /// Asks the ledger to register the calls and let the response go down.
    #[must_use]
    pub(super) fn settle(self, passage: &mut Passage, settings: &Settings) -> Settling {
        let Some(flight) = passage.flight() else {
            return Box::pin(std::future::ready(Ok(Released { notes: Vec::new() })));
        };
        let applying = flight.settle(Settle {
            exchange: ExchangeId(0),
            alternatives: self.alternatives,
            forced: self.forced,
        });
        let observe = settings.policy.observe;
        let rules = settings.policy.rules.clone();
        let goes_on = goes_on_without_store(settings);
        let lenient = move |code: Code| observe || rules.action(code) != Action::Refuse;
        Box::pin(async move {
            let noted = |code: Code| Released {
                notes: vec![plain_fault(code, "", "noted on the way out")],
            };
            match applying.await.map(|transition| transition.outcome) {
                Ok(Outcome::Wanted) => Ok(Released { notes: Vec::new() }),
                Ok(Outcome::Noted(code)) => Ok(noted(code)),
                Ok(Outcome::Withheld(code)) if lenient(code) => Ok(noted(code)),
                Ok(Outcome::Withheld(code)) => Err(Stopped::unwanted(code)),
                Ok(Outcome::Refused(refused)) => {
                    Err(Stopped::output(refused.faults, refused.notes))
                }
                Ok(_) => Err(Stopped::unwanted(Code::StaleAnswer)),
                Err(StoreError::Unavailable(_)) if goes_on => {
                    Ok(Released { notes: vec![untracked()] })
                }
                Err(error) => Err(Stopped {
                    refusal: Box::new(Refusal::of_store(&error)),
                    ending: Ending::UpstreamFailed,
                }),
            }
        })
    }
}

fn alternatives(gateway: &Gateway, settings: &Settings, proposal: &Proposal) -> Vec<Alternative> {
    let key = gateway.store.digest_key();
    let tools = &settings.policy.tools;
    let millis = |span: Duration| Millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
    proposal
        .choices
        .iter()
        .filter(|choice| !choice.calls.is_empty())
        .map(|choice| Alternative {
            choice: choice.index,
            calls: choice
                .calls
                .iter()
                // One without an id gets by only while nobody can be asked, and has no result to be told.
                .filter(|call| call.id.as_deref().is_some_and(|id| !id.is_empty()))
                .map(|call| {
                    let name = call.name.as_deref().unwrap_or("");
                    let arguments = call.arguments.text().unwrap_or("");
                    let declared = tools.each.get(name);
                    Proposed {
                        id: call.id.as_deref().unwrap_or("").into(),
                        tool: name.into(),
                        arguments: key.arguments(arguments),
                        echoes: declared
                            .map(|tool| echoes(key, arguments, &tool.echo))
                            .unwrap_or_default(),
                        deadline: declared
                            .and_then(|tool| tool.deadline)
                            .or(tools.deadline)
                            .map(millis),
                        write: declared.is_some_and(|tool| tool.write),
                    }
                })
                .collect(),
        })
        .filter(|alternative| !alternative.calls.is_empty())
        .collect()
}
