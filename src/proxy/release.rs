//! Letting a response go down: the rules on proposals, then the ledger, then the proof.
//!
//! [`Judged`] is made by the rules only, [`Released`] by the ledger's yes to a `Judged` only (or at once, when
//! nothing of the exchange is remembered). Calls leave through functions that take a `Released`.

use super::admission::{Passage, goes_on_without_store, untracked};
use super::clearance::{self, Cleared};
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
use std::sync::Arc;
use std::time::Duration;

/// A response that the rules let through.
#[derive(Debug)]
pub(super) struct Judged {
    alternatives: Vec<Alternative>,
    forced: bool,
    notes: Vec<Fault>,
    would_refuse: Vec<Code>,
}

/// A response that may go down.
#[derive(Debug)]
pub(super) struct Released {
    notes: Vec<Fault>,
    would_refuse: Vec<Code>,
}

impl Released {
    /// What the ledger noted.
    #[must_use]
    pub(super) fn notes(&self) -> &[Fault] {
        &self.notes
    }

    /// What enforcing would have withheld it for.
    #[must_use]
    pub(super) fn would_refuse(&self) -> &[Code] {
        &self.would_refuse
    }

    /// Leave without a note.
    fn freely(would_refuse: Vec<Code>) -> Self {
        Released { notes: Vec::new(), would_refuse }
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
            Code::BudgetExhausted => {
                "The task's budget is used up (budget.model_calls, budget.tool_calls or budget.deadline)."
            }
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
    let would_refuse = clearance::would_refuse(settings, &faults);
    let verdict = settings.policy.rules.judge(faults);
    let refused = !verdict.refused.is_empty() && !settings.policy.observe;
    if refused {
        count(gateway, names(proposal), CallVerdict::Refuse);
        return Err(Stopped::output(verdict.refused, verdict.notes));
    }
    let mut notes = verdict.refused;
    notes.extend(verdict.notes);
    let forced = notes.iter().any(|note| could_refuse(note.code));
    let mut alternatives = Vec::new();
    if recorded {
        // Counted when the ledger has registered them (by its facts), or has not.
        alternatives = self::alternatives(gateway, settings, proposal);
    } else {
        count(
            gateway,
            names(proposal),
            if forced { CallVerdict::Forced } else { CallVerdict::Pass },
        );
    }
    Ok(Judged { alternatives, forced, notes, would_refuse })
}

/// Counts proposed calls, given by their tools.
fn count<'a>(gateway: &Gateway, tools: impl Iterator<Item = &'a str>, verdict: CallVerdict) {
    tools.for_each(|tool| gateway.metrics.call(tool, verdict));
}

fn names(proposal: &Proposal) -> impl Iterator<Item = &str> {
    let calls = proposal.choices.iter().flat_map(|choice| &choice.calls);
    calls.map(|call| call.name.as_deref().unwrap_or_default())
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

    /// What enforcing would have refused of it.
    #[must_use]
    pub(super) fn would_refuse(&self) -> &[Code] {
        &self.would_refuse
    }

    /// Whether it proposes a write.
    #[must_use]
    pub(super) fn writes(&self) -> bool {
        self.alternatives.iter().flat_map(|one| &one.calls).any(|call| call.write)
    }

    /// Asks the ledger to register the calls and let the response go down.
    #[must_use]
    pub(super) fn settle(
        self,
        gateway: &Arc<Gateway>,
        passage: &mut Passage,
        settings: &Settings,
    ) -> Settling {
        let Some(flight) = passage.flight() else {
            return Box::pin(std::future::ready(Ok(Released::freely(Vec::new()))));
        };
        let tools: Vec<Box<str>> = self
            .alternatives
            .iter()
            .flat_map(|one| one.calls.iter().map(|call| call.tool.clone()))
            .collect();
        let gateway = Arc::clone(gateway);
        let applying = flight.settle(Settle {
            exchange: ExchangeId(0),
            alternatives: self.alternatives,
            forced: self.forced,
        });
        let observe = settings.policy.observe;
        let rules = settings.policy.rules.clone();
        let goes_on = goes_on_without_store(settings);
        let action = move |code: Code| match rules.action(code) {
            Action::Refuse if observe => Action::Note,
            action => action,
        };
        Box::pin(async move {
            let count = |verdict| count(&gateway, tools.iter().map(AsRef::as_ref), verdict);
            let transition = match applying.await {
                Ok(transition) => transition,
                // The calls are counted when the ledger learns of them.
                Err(StoreError::Unavailable(_)) if goes_on => {
                    return Ok(Released { notes: vec![untracked()], would_refuse: Vec::new() });
                }
                Err(error) => {
                    count(CallVerdict::Refuse);
                    let refusal = Box::new(Refusal::of_store(&error));
                    return Err(Stopped { refusal, ending: Ending::UpstreamFailed });
                }
            };
            let mut released = Released::freely(transition.would_refuse);
            let stopped = match transition.outcome {
                Outcome::Wanted => return Ok(released),
                Outcome::Withheld(code) if action(code) == Action::Refuse => {
                    Stopped::unwanted(code)
                }
                Outcome::Noted(code) | Outcome::Withheld(code) => {
                    if action(code) != Action::Off {
                        released.notes.push(plain_fault(code, "", "noted on the way out"));
                    }
                    return Ok(released);
                }
                Outcome::Refused(refused) => Stopped::output(refused.faults, refused.notes),
                _ => Stopped::unwanted(Code::StaleAnswer),
            };
            count(CallVerdict::Refuse);
            Err(stopped)
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
