//! A request asks to go up: which generation it belongs to, whether it repeats an earlier one, and what
//! its results come to. First a plan is made that changes nothing; only when nothing refuses it is the
//! plan carried out ([`super::launch`]).

use super::Conversation;
use super::calls::Proposal;
use super::digest::Digest;
use super::event::{Admit, ExchangeId, Fact, Outcome, Refused, Run, TaskOutcome};
use super::exchanges::{Exchange, FlightState, Kind};
use super::lanes::{LAST_GENERATION, Lane, LaneKey, Limit};
use super::results::{Judge, Judgement};
use super::rules::Rules;
use super::step::{Findings, Step};
use super::story::Returned;
use super::words;
use crate::guard::fault::Code;
use crate::guard::verdict::Action;

/// What an admitted request will be.
pub(super) struct Plan {
    /// Its lane; `None`: a new thread.
    pub(super) lane: Option<u32>,
    /// Whether it begins a new generation there.
    pub(super) advances: bool,
    /// What it does. `None`: it continues a run that is adopted.
    pub(super) kind: Option<Kind>,
    /// The attempt before this one.
    pub(super) previous: Option<ExchangeId>,
    /// Whether the client declared it a retry.
    pub(super) declared: bool,
}

/// A request, with what is known of it before anything is judged.
struct Question<'a> {
    admit: &'a Admit,
    rules: &'a Rules,
    /// The header's lane, where the client counts.
    header: Option<u32>,
    /// The header's lane, or that of the thread.
    own: Option<u32>,
    /// `x-stainless-retry-count` > 0, or an `idempotency-key` seen before with this very list.
    declared: bool,
}

impl Conversation {
    pub(super) fn admit(&mut self, admit: &Admit, step: &mut Step<'_>) -> Outcome {
        if let Some(known) = self.exchanges.get(admit.exchange) {
            return Outcome::Admitted(known.admitted.0.clone());
        }
        let mut found = Findings::default();
        let Ok(header) = self.enter(admit, step, &mut found) else {
            self.came_too_late(admit, &found, step);
            return self.refused(found, None);
        };
        let question = self.question(admit, header, step.rules);
        let (plan, mut judged) = self.plan(&question);
        for (seq, at) in judged.reported.drain(..) {
            self.calls.reported(seq, at, step.now);
        }
        found.faults.append(&mut judged.findings.faults);
        found.notes.append(&mut judged.findings.notes);
        if plan.advances && self.at_the_end(&plan) {
            found.faults.push(words::no_such_generation());
        }
        if !found.faults.is_empty() {
            step.effects.facts.append(&mut judged.refused);
            for returned in judged.returned {
                self.tell_returned(returned, admit.exchange, step);
            }
            return self.refused(found, plan.lane);
        }
        if let Some(limit) = self.over_budget(&plan, step.rules)
            && found.weigh(words::budget_exhausted(limit), step.rules) == Action::Refuse
        {
            if let Some(lane) = plan.lane {
                self.exhaust(lane, limit, Some(admit.exchange), step);
                self.reckon_due(step.rules);
            }
            return self.refused(found, plan.lane);
        }
        judged.findings = found;
        self.launch(admit, plan, judged, step)
    }

    /// A request of an older generation is refused before its results are looked at. That they came is told
    /// all the same: the tool did its work.
    fn came_too_late(&self, admit: &Admit, found: &Findings, step: &mut Step<'_>) {
        let Some(fault) = found.faults.iter().find(|one| one.code == Code::StaleGeneration) else {
            return;
        };
        let live = admit.runs.last().filter(|run| run.live);
        for pair in live.into_iter().flat_map(|run| &run.pairs).filter(|pair| !pair.closing) {
            let theirs = |one: &&Proposal| Some(one.generation) == admit.generation;
            let Some(of) = self.calls.with_id(&pair.id).find(theirs) else { continue };
            let Some(call) = of.call(&pair.id, None) else { continue };
            let (seq, code, result) = (of.seq, fault.code, pair.result);
            self.tell_returned(Returned { seq, call, code, result }, admit.exchange, step);
        }
    }

    /// Whether the plan's lane has no generation left to advance to.
    fn at_the_end(&self, plan: &Plan) -> bool {
        let lane = plan.lane.and_then(|lane| self.lanes.get(lane));
        lane.is_some_and(|lane| lane.task.generation >= LAST_GENERATION)
    }

    fn question<'a>(
        &self,
        admit: &'a Admit,
        header: Option<u32>,
        rules: &'a Rules,
    ) -> Question<'a> {
        let thread = || self.lanes.find(LaneKey::Thread(admit.lane)).map(|lane| lane.number);
        let declared = admit.declared_retry
            || admit.idempotency.is_some_and(|key| self.exchanges.key_seen(key, admit.list));
        Question { admit, rules, header, own: header.or_else(thread), declared }
    }

    fn plan(&self, question: &Question<'_>) -> (Plan, Judgement) {
        let Question { admit, rules, own, declared, .. } = *question;
        let live = admit.runs.last().filter(|run| run.live);
        let repeat = live.and_then(|_| self.same_list(admit.list, true));
        let judge = Judge {
            register: &self.calls,
            lanes: &self.lanes,
            rules,
            lane: own,
            declared,
            repeat: repeat.and_then(|one| one.kind.proposal()),
        };
        let mut judged = judge.list(&admit.runs);
        let plan = match live {
            Some(run) => self.continuation(question, run, repeat, &mut judged),
            None => self.opening(question, &mut judged.findings),
        };
        (plan, judged)
    }

    /// The newest exchange of a current generation with this very list.
    fn same_list(&self, list: Digest, continuation: bool) -> Option<&Exchange> {
        self.exchanges.with_list(list).find(|one| {
            one.kind.proposal().is_some() == continuation
                && self.lanes.current(one.lane, one.generation)
        })
    }

    fn opening(&self, question: &Question<'_>, found: &mut Findings) -> Plan {
        let list = question.admit.list;
        let mut plan = Plan {
            lane: question.own,
            advances: false,
            kind: Some(Kind::Opening),
            previous: None,
            declared: question.declared,
        };
        let same = self.same_list(list, false);
        if question.header.is_some() {
            // Once it was answered for good, the same list again is a new opening of the same task.
            let again =
                |one: &&Exchange| one.state != FlightState::Delivered || self.calls.awaits(one.id);
            plan.previous = same.filter(again).map(|one| one.id);
            return plan;
        }
        let lane = plan.lane.and_then(|lane| self.lanes.get(lane));
        match (lane, same) {
            (Some(lane), Some(one)) => {
                plan.advances = lane.task.ended.is_some() && !exhausted_by(lane, question.admit);
                plan.previous = (!plan.advances).then_some(one.id);
            }
            (lane, None) | (lane @ None, _) => {
                plan.advances = lane.is_some_and(|lane| begins_anew(lane, question.admit));
                if self.left_behind(question, found) {
                    plan.advances = false;
                }
            }
        }
        plan
    }

    /// A declared retry of an exchange of an older generation never begins anything. Weighs the fault,
    /// and gives whether it is one.
    fn left_behind(&self, question: &Question<'_>, found: &mut Findings) -> bool {
        let list = question.admit.list;
        let of_older = |one: &Exchange| !self.lanes.current(one.lane, one.generation);
        let past = || self.exchanges.is_past(list) || self.exchanges.with_list(list).any(of_older);
        let left = question.declared && question.header.is_none() && past();
        if left {
            found.weigh(words::stale_retry(), question.rules);
        }
        left
    }

    fn continuation(
        &self,
        question: &Question<'_>,
        run: &Run,
        repeat: Option<&Exchange>,
        judged: &mut Judgement,
    ) -> Plan {
        let mut plan = Plan {
            lane: question.own,
            advances: false,
            kind: None,
            previous: None,
            declared: question.declared,
        };
        match (repeat, judged.matched) {
            (Some(one), _) => {
                plan.lane = Some(one.lane);
                plan.kind = Some(one.kind);
            }
            (None, Some(matched)) => {
                plan.kind = Some(if matched.recovers {
                    Kind::Recovery(matched.seq)
                } else {
                    Kind::Continuation(matched.seq)
                });
                let registered = self.calls.get(matched.seq).map(|proposal| proposal.lane);
                let registered = registered.filter(|lane| self.lanes.get(*lane).is_some());
                plan.lane = question.header.or(registered).or(question.own);
                if judged.findings.faults.is_empty() {
                    self.left_behind(question, &mut judged.findings);
                }
            }
            (None, None) => self.unknown(run, question.rules, judged),
        }
        if let Some(kind) = plan.kind {
            plan.previous = self.answered_before(question, kind, &mut judged.findings);
        }
        plan
    }

    /// The newest attempt at the same continuation; weighs whether there may be another one.
    fn answered_before(
        &self,
        question: &Question<'_>,
        kind: Kind,
        found: &mut Findings,
    ) -> Option<ExchangeId> {
        let same = || {
            let all = self.exchanges.of_kind(kind, question.admit.list);
            all.filter(|one| self.lanes.current(one.lane, one.generation))
        };
        let under_way = same().any(Exchange::under_way);
        let delivered = same().any(|one| one.state == FlightState::Delivered)
            || matches!(kind, Kind::Continuation(seq)
            if self.calls.get(seq).is_some_and(|of| {
                of.delivered && self.lanes.current(of.lane, of.generation)
            }));
        let free = question.declared || question.rules.repeat_allowed;
        if (under_way || delivered) && !free && found.faults.is_empty() {
            found.weigh(words::duplicate(under_way), question.rules);
        }
        same().next().map(|one| one.id)
    }

    /// A live run whose calls the ledger does not hold. A closing is no result: it passes (nothing is
    /// stuck for ever).
    fn unknown(&self, run: &Run, rules: &Rules, judged: &mut Judgement) {
        let adopts = !self.calls.used && rules.actions.action(Code::Adopted) != Action::Refuse;
        let code = if adopts { Code::Adopted } else { Code::Unmatched };
        for pair in run.pairs.iter().filter(|pair| adopts || !pair.closing) {
            if judged.findings.weigh(words::about(code, pair), rules) == Action::Refuse {
                judged.refused.push(unmatched_fact(&pair.tool));
            }
        }
    }

    /// What the plan would go beyond.
    fn over_budget(&self, plan: &Plan, rules: &Rules) -> Option<Limit> {
        if plan.advances {
            return None;
        }
        let task = &self.lanes.get(plan.lane?)?.task;
        if task.ended == Some(TaskOutcome::Incomplete) {
            return task.limit;
        }
        match plan.previous.and_then(|id| self.exchanges.get(id)) {
            Some(previous) => {
                (previous.reached_with() >= rules.attempts).then_some(Limit::Attempts)
            }
            None => rules
                .model_calls
                .is_some_and(|most| task.model_calls >= most)
                .then_some(Limit::ModelCalls),
        }
    }

    fn refused(&self, found: Findings, lane: Option<u32>) -> Outcome {
        let header = self.lanes.find(LaneKey::Header).map(|lane| lane.task.generation);
        let lane = lane.and_then(|lane| self.lanes.get(lane)).map(|lane| lane.task.generation);
        let Findings { faults, notes } = found;
        let held = Vec::new();
        Outcome::Refused(Refused { generation: lane.or(header), faults, notes, held })
    }
}

/// Whether an opening that is no repeat begins a new generation of the lane.
fn begins_anew(lane: &Lane, admit: &Admit) -> bool {
    let task = &lane.task;
    let other = task.ended.is_some() || task.opening != Some(admit.list);
    task.model_calls > 0 && other && !exhausted_by(lane, admit)
}

/// Whether this very event exhausted the task: it does not begin the next one when it comes again.
fn exhausted_by(lane: &Lane, admit: &Admit) -> bool {
    lane.task.exhausted_by == Some(admit.exchange)
}

/// What `Fact` tells of a result that the ledger does not hold.
#[must_use]
pub(super) fn unmatched_fact(tool: &str) -> Fact {
    Fact::ResultDecided { tool: tool.into(), code: Some(Code::Unmatched), waited: None }
}
