//! An admitted request is carried out: its results become final, its lane moves, the attempt before it is
//! over, and its exchange is in flight.

use super::Conversation;
use super::admit::Plan;
use super::calls::{CallState, Origin};
use super::event::{Admit, Admitted, ExchangeId, Outcome, TaskOutcome};
use super::exchanges::{AdmittedOnce, Exchange, FlightState, Kind, Marks};
use super::lanes::{Lane, LaneKey};
use super::results::Judgement;
use super::step::Step;
use crate::guard::fault::Code;

/// How an exchange stands among the tries of the same opening or continuation.
struct Try {
    attempt: u32,
    /// Tries before it that reached the model.
    reached: u32,
    /// Whether it is the last that the budget allows.
    last_allowed: bool,
    first_call: bool,
}

impl Conversation {
    pub(super) fn launch(
        &mut self,
        admit: &Admit,
        plan: Plan,
        judged: Judgement,
        step: &mut Step<'_>,
    ) -> Outcome {
        self.decide_all(&judged, step);
        let lane = self.lane_for(admit, &plan, step);
        let generation = self.lanes.get(lane).map_or(0, |lane| lane.task.generation);
        let kind = plan.kind.unwrap_or_else(|| {
            let forced = self.calls.used;
            let origin = Origin { exchange: admit.exchange, lane, generation, forced };
            let pairs = admit.runs.last().map_or(&[][..], |run| &run.pairs);
            Kind::Continuation(self.calls.adopt(origin, pairs, step.now))
        });
        let previous = plan.previous.and_then(|id| self.exchanges.get(id).cloned());
        let of = match previous {
            Some(previous) => self.take_over(&previous, plan.declared, step),
            None => self.count(lane, step),
        };
        if let Some(Lane { task, .. }) = self.lanes.get_mut(lane) {
            task.failed = false;
            task.opening = task.opening.or((kind == Kind::Opening).then_some(admit.list));
        }
        let admitted = Admitted {
            generation,
            attempt: of.attempt,
            first_call: of.first_call,
            substitutions: judged.substitutions,
            notes: judged.findings.notes,
        };
        if let Some(key) = admit.idempotency {
            self.exchanges.remember_key(key, admit.list, step.rules.kept);
        }
        self.exchanges.push(Exchange {
            id: admit.exchange,
            replica: admit.replica,
            lane,
            generation,
            kind,
            list: admit.list,
            attempt: of.attempt,
            reached: of.reached,
            last_allowed: of.last_allowed,
            proposed: false,
            noted: None,
            state: FlightState::Flight,
            closed: false,
            unreached: false,
            lease: step.now.after(step.rules.lease),
            admitted: Box::new(AdmittedOnce(admitted.clone())),
            marks: Marks { began: step.now, names: admit.names.clone(), ..Marks::default() },
        });
        self.lanes.touch(lane);
        self.keep_bounds(step);
        Outcome::Admitted(admitted)
    }

    /// Makes the results final, and closes what the runs left out.
    fn decide_all(&mut self, judged: &Judgement, step: &mut Step<'_>) {
        for decision in &judged.decisions {
            self.carry_out(decision, step);
        }
        for seq in &judged.offered {
            let of = *seq;
            self.end_calls(CallState::Unchosen, step, |one, _| one.seq == of, |_, _| {});
        }
    }

    fn lane_for(&mut self, admit: &Admit, plan: &Plan, step: &mut Step<'_>) -> u32 {
        let Some(lane) = plan.lane else {
            let first = self.lanes.floor.max(1);
            return self.lanes.add(LaneKey::Thread(admit.lane), first, step.now);
        };
        if plan.advances {
            let current = self.lanes.get(lane).map_or(0, |lane| lane.task.generation);
            let _ = self.move_lane(lane, current.saturating_add(1), step);
        }
        lane
    }

    /// A model call that is no repeat counts against the budget. A task that had ended is under way
    /// again: its deadline runs anew, its calls are counted on.
    fn count(&mut self, lane: u32, step: &Step<'_>) -> Try {
        let mut of = Try { attempt: 1, reached: 0, last_allowed: false, first_call: false };
        let Some(lane) = self.lanes.get_mut(lane) else { return of };
        let task = &mut lane.task;
        of.first_call = task.model_calls == 0;
        if of.first_call || task.ended.is_some() {
            task.restart(step.now);
        }
        task.model_calls = task.model_calls.saturating_add(1);
        of.last_allowed = step.rules.model_calls.is_some_and(|most| task.model_calls >= most);
        of
    }

    /// The attempt before this one is over: what it may still bring is withheld, and the calls that its
    /// like proposed and nobody answered are closed.
    fn take_over(&mut self, before: &Exchange, declared: bool, step: &mut Step<'_>) -> Try {
        let same = |one: &&Exchange| one.lane == before.lane && one.generation == before.generation;
        let like = self.exchanges.of_kind(before.kind, before.list).filter(same);
        let attempts: Vec<ExchangeId> = like.map(|one| one.id).collect();
        let theirs = |of: ExchangeId| attempts.contains(&of);
        self.withhold(Code::Overtaken, step, |one| theirs(one.id));
        self.replace_calls(step, theirs);
        // Who declares a retry says that he had nothing of the attempt before: its calls were not run.
        for attempt in attempts.iter().filter(|_| declared) {
            self.calls.withdraw(*attempt);
        }
        if let Some(lane) = self.lanes.get_mut(before.lane)
            && lane.task.ended.is_some()
        {
            lane.task.restart(step.now);
        }
        Try {
            attempt: before.attempt.saturating_add(1),
            reached: before.reached_with(),
            last_allowed: before.last_allowed,
            first_call: before.admitted.0.first_call,
        }
    }

    /// Old calls, exchanges and lanes beyond the bound are folded.
    fn keep_bounds(&mut self, step: &mut Step<'_>) {
        let kept = step.rules.kept;
        let exchanges = &self.exchanges;
        self.calls.fold(kept, |seq| {
            exchanges.restless().any(|one| one.under_way() && one.kind.proposal() == Some(seq))
        });
        self.exchanges.bound(kept);
        let (calls, exchanges) = (&self.calls, &self.exchanges);
        let gone = self.lanes.fold(kept.min(64), |lane| {
            lane.key != LaneKey::Header
                && !exchanges.restless().any(|one| one.lane == lane.number && !one.closed)
                && !calls.unsettled().any(|one| one.lane == lane.number && one.open())
        });
        for mut lane in gone {
            step.report(&mut lane, TaskOutcome::Expired);
        }
        self.reckon_due(step.rules);
    }
}
