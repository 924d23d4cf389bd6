//! Results, judged one by one: which are accepted, which are refused, which are replaced.

use super::Conversation;
use super::calls::{Call, CallState, Proposal, Register, Written};
use super::digest::Digest;
use super::event::{Fact, Notice, Pair, Run, Substitution};
use super::lanes::Lanes;
use super::rules::{AtEnd, Rules};
use super::step::{Findings, Step};
use super::story::Returned;
use super::words;
use crate::guard::fault::{Code, Fault};
use crate::guard::verdict::Action;

/// One result that becomes its call's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decision {
    /// The proposal.
    pub(super) seq: u64,
    /// The call's place in it.
    pub(super) call: usize,
    /// The result.
    pub(super) result: Digest,
    /// What the call becomes.
    pub(super) how: How,
}

/// What a decision makes of its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Accepted.
    Accept,
    /// Closed by the client's own notice.
    Close,
    /// Let in although a rule would have refused it.
    Force,
}

/// The proposal that a live run answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matched {
    /// The proposal.
    pub(super) seq: u64,
    /// Whether notices (or what a note lets in) stand in place of results that were accepted before.
    pub(super) recovers: bool,
}

/// What the runs are judged against.
pub(super) struct Judge<'a> {
    /// All calls.
    pub(super) register: &'a Register,
    /// All generations.
    pub(super) lanes: &'a Lanes,
    /// The operator's settings.
    pub(super) rules: &'a Rules,
    /// The lane of the request, if it is known.
    pub(super) lane: Option<u32>,
    /// Whether the request is declared a retry.
    pub(super) declared: bool,
    /// The proposal of the live run, when the list is known and current: its live results are not
    /// judged anew.
    pub(super) repeat: Option<u64>,
}

/// What the runs of a list come to.
#[derive(Debug, Default)]
pub(super) struct Judgement {
    /// What refuses the request, and what is only recorded.
    pub(super) findings: Findings,
    /// Results to be replaced by a notice.
    pub(super) substitutions: Vec<Substitution>,
    /// Results to be made final.
    pub(super) decisions: Vec<Decision>,
    /// The proposals whose runs are offered here for the first time.
    pub(super) offered: Vec<u64>,
    /// The live run's proposal, if the ledger holds it.
    pub(super) matched: Option<Matched>,
    /// Writes whose late result was seen, whatever becomes of the request.
    pub(super) reported: Vec<(u64, usize)>,
    /// What was refused of which tool, for metrics.
    pub(super) refused: Vec<Fact>,
    /// What was refused of which call, for the record.
    pub(super) returned: Vec<Returned>,
}

/// One call of a proposal with the result offered for it.
pub(super) struct Offer<'a> {
    /// The proposal.
    pub(super) of: &'a Proposal,
    /// The call's place in it.
    pub(super) at: usize,
    /// The call.
    pub(super) call: &'a Call,
    /// What is offered.
    pub(super) pair: &'a Pair,
    /// Whether the call's generation is current.
    pub(super) current: bool,
}

impl Judge<'_> {
    /// Judges a live run.
    pub(super) fn live(&self, of: &Proposal, run: &Run, out: &mut Judgement) {
        let current = self.lanes.current(of.lane, of.generation);
        let mut recovers = false;
        for (at, call, pair) in calls_of(of, run) {
            recovers |= self.fed(&Offer { of, at, call, pair, current }, out);
        }
        if self.repeat.is_none() {
            // What the run leaves out closes, even when nothing in the run itself was still open.
            out.offered.push(of.seq);
        }
        out.matched = Some(Matched { seq: of.seq, recovers });
    }

    /// Judges one result at the end of a list; gives whether it stands in place of another one that was
    /// accepted before.
    pub(super) fn fed(&self, offer: &Offer<'_>, out: &mut Judgement) -> bool {
        let Offer { call, pair, .. } = *offer;
        if self.repeat.is_some() {
            self.repeated(offer, out);
        } else if call.answered() {
            self.answered(offer, out);
            return !call.holds(pair.result);
        } else if call.state == CallState::Open {
            self.open(offer, out);
        } else if pair.closing {
            self.bare(offer, out);
        } else {
            self.gone(offer, out);
        }
        false
    }

    /// Judges a run of history.
    pub(super) fn history(&self, of: &Proposal, run: &Run, out: &mut Judgement) {
        let current = self.lanes.current(of.lane, of.generation);
        let mut offered = false;
        for (at, call, pair) in calls_of(of, run) {
            offered |= self.past(&Offer { of, at, call, pair, current }, out);
        }
        if offered {
            out.offered.push(of.seq);
        }
    }

    /// Judges one result of history; gives whether it is offered for the first time.
    pub(super) fn past(&self, offer: &Offer<'_>, out: &mut Judgement) -> bool {
        let Offer { call, pair, .. } = *offer;
        if call.state == CallState::Open {
            self.open(offer, out);
            return true;
        }
        if pair.closing {
            // A closing may stand for anything that has ended.
            self.bare(offer, out);
        } else if call.holds(pair.result) {
            // As it was accepted.
        } else if call.barred() {
            self.barred(offer, out);
        } else {
            self.changed(offer, out);
        }
        false
    }

    /// A second copy of a run in one list. It decides nothing, but what is barred stays barred in every
    /// copy.
    pub(super) fn copy(&self, of: &Proposal, run: &Run, out: &mut Judgement) {
        let current = self.lanes.current(of.lane, of.generation);
        for (at, call, pair) in calls_of(of, run) {
            let offer = Offer { of, at, call, pair, current };
            let barred = call.barred() && !call.holds(pair.result);
            if barred && (call.tool == pair.tool || self.only_barred(&pair.id)) {
                if pair.closing { self.bare(&offer, out) } else { self.barred(&offer, out) }
            }
        }
    }

    /// A list that was admitted before: only what had to be replaced then must be replaced again.
    fn repeated(&self, offer: &Offer<'_>, out: &mut Judgement) {
        let code = gone_code(offer);
        let closes = offer.pair.closing && offer.pair.bare;
        if offer.call.barred() && !closes && self.refuses(code) {
            self.substitute(offer, out);
        }
    }

    /// A closing of a call that has ended. Where only a closing may stand, nothing may stand beside it: the
    /// stale result is no less stale under another key.
    fn bare(&self, offer: &Offer<'_>, out: &mut Judgement) {
        if offer.call.barred() && !offer.pair.bare && self.refuses(gone_code(offer)) {
            self.substitute(offer, out);
        }
    }

    /// A live result of a call that has one.
    fn answered(&self, offer: &Offer<'_>, out: &mut Judgement) {
        if offer.pair.closing {
            return;
        }
        if !offer.call.holds(offer.pair.result) {
            self.force_unless_refused(Code::Conflict, offer, out);
        } else if !offer.current {
            let delivered = offer.of.delivered && !self.declared;
            let code = if delivered { Code::Duplicate } else { Code::Stale };
            self.finding(code, offer, out);
        } else if mismatched(offer.call, offer.pair) {
            self.force_unless_refused(Code::Mismatch, offer, out);
        }
    }

    /// A result of a call that waits for one.
    fn open(&self, offer: &Offer<'_>, out: &mut Judgement) {
        let Offer { of, at, call, pair, current } = *offer;
        if pair.closing {
            out.decisions.push(decision(of, at, pair, How::Close));
        } else if !current {
            self.force_unless_refused(Code::Stale, offer, out);
        } else if mismatched(call, pair) {
            self.force_unless_refused(Code::Mismatch, offer, out);
        } else {
            if call.arguments != pair.arguments {
                self.note(words::edited(pair), out);
            }
            out.decisions.push(decision(of, at, pair, How::Accept));
        }
    }

    /// A live result of a call that ended without one.
    fn gone(&self, offer: &Offer<'_>, out: &mut Judgement) {
        self.report(offer, out);
        let code = gone_code(offer);
        let at_end = match (code, offer.call.state) {
            (Code::Late, _) => self.rules.late,
            (Code::Stale, CallState::TimedOut | CallState::Superseded) => self.rules.superseded,
            _ => AtEnd::Refuse,
        };
        if self.refuses(code) && at_end == AtEnd::Substitute {
            self.substitute(offer, out);
        } else {
            self.force_unless_refused(code, offer, out);
        }
    }

    /// History may hold only a closing for a call that was superseded or timed out unanswered.
    fn barred(&self, offer: &Offer<'_>, out: &mut Judgement) {
        self.report(offer, out);
        let code = gone_code(offer);
        if self.refuses(code) && self.rules.history == AtEnd::Substitute {
            self.substitute(offer, out);
        } else {
            self.force_unless_refused(code, offer, out);
        }
    }

    /// Clients trim, summarise and prune history: what changed there is noted.
    fn changed(&self, offer: &Offer<'_>, out: &mut Judgement) {
        match self.rules.actions.action(Code::HistoryChanged) {
            Action::Off => {}
            Action::Note => {
                out.findings.notes.push(words::about(Code::HistoryChanged, offer.pair));
            }
            Action::Refuse => {
                self.finding(Code::Conflict, offer, out);
            }
        }
    }

    /// The late result of a write tells what became of it, even when no model may have it.
    fn report(&self, offer: &Offer<'_>, out: &mut Judgement) {
        if offer.call.unknown_write() && !mismatched(offer.call, offer.pair) {
            out.reported.push((offer.of.seq, offer.at));
        }
    }

    pub(super) fn force_unless_refused(&self, code: Code, offer: &Offer<'_>, out: &mut Judgement) {
        if self.finding(code, offer, out) != Action::Refuse {
            out.decisions.push(decision(offer.of, offer.at, offer.pair, How::Force));
        }
    }

    fn finding(&self, code: Code, offer: &Offer<'_>, out: &mut Judgement) -> Action {
        let action = out.findings.weigh(words::about(code, offer.pair), self.rules);
        if action == Action::Refuse {
            let tool = offer.call.tool.clone();
            out.refused.push(Fact::ResultDecided { tool, code: Some(code), waited: None });
            let (seq, call, result) = (offer.of.seq, offer.at, offer.pair.result);
            out.returned.push(Returned { seq, call, code, result });
        }
        action
    }

    /// The notice goes by how the call ended, so that it stays the same in every later request.
    fn substitute(&self, offer: &Offer<'_>, out: &mut Judgement) {
        let notice = match offer.call.state {
            CallState::TimedOut => Notice::Timeout,
            _ => Notice::Superseded,
        };
        out.substitutions.push(Substitution { message: offer.pair.message, notice });
        self.note(words::about(Code::Substituted, offer.pair), out);
    }

    /// Records what needs no decision, unless the operator does not look at it.
    fn note(&self, fault: Fault, out: &mut Judgement) {
        if self.rules.actions.action(fault.code) != Action::Off {
            out.findings.notes.push(fault);
        }
    }

    fn refuses(&self, code: Code) -> bool {
        self.rules.actions.action(code) == Action::Refuse
    }
}

/// The calls that a run answers, each with its place in the proposal.
pub(super) fn calls_of<'a>(
    proposal: &'a Proposal,
    run: &'a Run,
) -> impl Iterator<Item = (usize, &'a Call, &'a Pair)> {
    let choice = proposal.choice_of(&run.pairs);
    run.pairs.iter().filter_map(move |pair| {
        let at = proposal.call(&pair.id, choice)?;
        Some((at, &proposal.calls[at], pair))
    })
}

/// Whether a result does not belong to the call that bears its id: another tool, other arguments, an
/// attempt that was never started, or a declared field that echoes another value.
pub(super) fn mismatched(call: &Call, pair: &Pair) -> bool {
    let renamed = pair.name.as_ref().is_some_and(|name| *name != call.tool);
    let unstarted = pair.attempt.is_some_and(|attempt| attempt == 0 || attempt > call.started);
    !call.is(pair) || renamed || unstarted || !echoes_agree(call, &pair.echoes)
}

/// Whether every field that both the call and its result hold has the same value.
fn echoes_agree(call: &Call, echoes: &[(Box<str>, Digest)]) -> bool {
    echoes.iter().all(|(field, value)| {
        call.echoes.iter().all(|(known, asked)| known != field || asked == value)
    })
}

/// What a result is called whose call ended without one. An older generation's is stale before it is
/// late.
fn gone_code(offer: &Offer<'_>) -> Code {
    match offer.call.state {
        CallState::Unchosen => Code::Duplicate,
        CallState::TimedOut if offer.current => Code::Late,
        _ => Code::Stale,
    }
}

fn decision(of: &Proposal, at: usize, pair: &Pair, how: How) -> Decision {
    Decision { seq: of.seq, call: at, result: pair.result, how }
}

impl Conversation {
    /// Carries a decision out.
    pub(super) fn carry_out(&mut self, decision: &Decision, step: &mut Step<'_>) {
        let Some(proposal) = self.calls.get_mut(decision.seq) else { return };
        let proposed_by = proposal.exchange;
        let Some(call) = proposal.calls.get_mut(decision.call) else { return };
        if decision.how == How::Force {
            call.forced = Some(decision.result);
            step.effects.facts.push(Fact::ResultForced);
            if call.unknown_write() {
                call.written = Some(Written::Reported);
            }
        }
        if call.state != CallState::Open {
            return;
        }
        call.state = match decision.how {
            How::Close => CallState::Closed(decision.result),
            How::Accept | How::Force => CallState::Accepted(decision.result),
        };
        call.ended = Some(step.now);
        step.effects.open_calls -= 1;
        match decision.how {
            How::Accept => {}
            How::Close => return step.effects.facts.push(Fact::ResultClosed),
            How::Force => return,
        }
        step.effects.facts.push(Fact::ResultDecided {
            tool: call.tool.clone(),
            code: None,
            waited: Some(step.now.since(call.registered)),
        });
        step.effects.facts.push(Fact::CallAnswered {
            call: call.id.clone(),
            tool: call.tool.clone(),
            registered: call.registered,
            proposed_by,
        });
    }
}
