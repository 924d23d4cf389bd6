//! Request rules: a body becomes [`Cleared`], or is refused.
//!
//! `Cleared` is a proof: only [`clear`] makes one, and nothing goes up the guarded route without it.

use super::abort::Rid;
use super::gateway::Gateway;
use super::gateway::Settings;
use super::headers::Standing;
use super::identity::Principal;
use super::question;
use super::refusal::{Refusal, body_fault};
use crate::guard::fault::{Code, Fault, shown};
use crate::guard::offer::Offer;
use crate::guard::pairing;
use crate::guard::verdict::Action;
use crate::ledger::event::{Admit, ExchangeId};
use crate::policy::UpstreamKind;
use crate::telemetry::trace::Asked;
use crate::wire::request::{ChatRequest, Slot};
use bytes::Bytes;

/// A request that the rules let through, and what the way back needs to know of it.
pub(super) struct Cleared {
    /// The client's own bytes.
    pub(super) body: Bytes,
    /// Where a member may be spliced in.
    pub(super) splice_at: usize,
    /// The client's own `rid`, if any.
    pub(super) rid: Slot,
    /// Ours, where the client sent none and the upstream takes one.
    pub(super) minted: Option<Rid>,
    /// What the model may propose.
    pub(super) offer: Offer,
    /// Whether its list ends in results.
    pub(super) continues: bool,
    /// What a span tells of the request.
    pub(super) asked: Asked,
    /// What was noted.
    pub(super) notes: Vec<Fault>,
    /// What enforcing would have refused it for.
    pub(super) would_refuse: Vec<Code>,
    /// The ledger's question, when the exchange is tracked.
    pub(super) admit: Option<Admit>,
    _proof: (),
}

/// What the request rules make of a body.
pub(super) enum Clearance {
    /// It may go on.
    Cleared(Box<Cleared>),
    /// It could not be read, and the operator lets such bodies through: as they are, and noted.
    Opaque(Vec<Fault>),
    /// It may not.
    Refused(Box<Refusal>),
}

/// Reads and judges a body.
pub(super) fn clear(
    gateway: &Gateway,
    settings: &Settings,
    standing: &Standing,
    principal: &Principal,
    exchange: ExchangeId,
    body: Bytes,
) -> Clearance {
    let rules = &settings.policy.rules;
    let request = match ChatRequest::parse(&body, settings.policy.limits.depth) {
        Ok(request) => request,
        Err(fault) => {
            let fault = body_fault(&fault);
            return match rules.action(Code::BodyInvalid) {
                // What cannot be read may ask for anything.
                _ if principal.is_restricted() => {
                    Clearance::Refused(Box::new(Refusal::of_request(vec![fault])))
                }
                Action::Refuse => Clearance::Refused(Box::new(Refusal::of_request(vec![fault]))),
                Action::Note => Clearance::Opaque(vec![fault]),
                Action::Off => Clearance::Opaque(Vec::new()),
            };
        }
    };
    if let Some(refusal) = model_refused(principal, &request) {
        return Clearance::Refused(Box::new(refusal));
    }
    let mut pairing = pairing::judge(&request);
    let faults = std::mem::take(&mut pairing.faults);
    let would_refuse = would_refuse(settings, &faults);
    let verdict = rules.judge(faults);
    if !verdict.refused.is_empty() {
        let mut refusal = Refusal::of_request(verdict.refused);
        refusal.notes = verdict.notes;
        return Clearance::Refused(Box::new(refusal));
    }
    let upstream = &settings.policy.upstream;
    let mints = upstream.kind == UpstreamKind::Sglang && upstream.rid && request.rid != Slot::Set;
    let minted = mints.then(Rid::mint);
    let admit = standing.conversation.is_some().then(|| {
        question::event(gateway, settings, standing, exchange, &request, &pairing, minted.as_ref())
    });
    let offer = Offer::of(&request, settings.tool_rules.clone(), &gateway.schemas)
        .permitting(principal.tools().cloned());
    Clearance::Cleared(Box::new(Cleared {
        splice_at: request.splice_at,
        rid: request.rid,
        minted,
        offer,
        asked: if gateway.tracer.is_on() { asked(&request) } else { Asked::default() },
        continues: pairing.runs.last().is_some_and(|run| run.live),
        notes: verdict.notes,
        would_refuse,
        admit,
        _proof: (),
        body: body.clone(),
    }))
}

/// Whether the principal may ask for that model. One that is not named is the server's own choice, and so
/// none that was allowed.
fn model_refused(principal: &Principal, request: &ChatRequest<'_>) -> Option<Refusal> {
    let allowed = principal.models()?;
    let model = request.model.text().map(|text| text.decode());
    if model.as_deref().is_some_and(|model| allowed.contains(model)) {
        return None;
    }
    let message = match model {
        Some(model) => format!("This principal may not use the model `{}`.", shown(&model)),
        None => {
            "This principal may use certain models only, and the request names none.".to_owned()
        }
    };
    Some(Refusal::at(Code::ModelNotAllowed, "model", message))
}

fn asked(request: &ChatRequest<'_>) -> Asked {
    let model = request.model.text().map(|model| shown(&model.decode()).into());
    Asked { model, stream: request.stream }
}

/// What enforcing would refuse of these faults, where the operator only watches.
pub(super) fn would_refuse(settings: &Settings, faults: &[Fault]) -> Vec<Code> {
    let codes = faults.iter().map(|fault| fault.code);
    codes.filter(|code| settings.policy.would_refuse(*code)).collect()
}
