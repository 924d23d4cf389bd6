//! What time alone decides: deadlines of calls and generations, and leases of exchanges in flight.

use super::Conversation;
use super::calls::{Call, CallState, Proposal};
use super::event::{Fact, Millis};
use super::exchanges::{Exchange, Failure, FlightState};
use super::lanes::{Limit, Task};
use super::rules::Rules;
use super::step::Step;
use crate::guard::fault::Code;

impl Conversation {
    /// Fires what has fallen due, each once.
    pub(super) fn tick(&mut self, step: &mut Step<'_>) {
        let now = step.now;
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        self.time_out(step, |_, call| call.deadline.is_some_and(|at| at <= now));
        self.lapse(step);
        self.end_overdue_tasks(step);
        self.reckon_due(step.rules);
    }

    /// Exchanges whose replica gave no sign have failed. They may have reached the model.
    fn lapse(&mut self, step: &mut Step<'_>) {
        let now = step.now;
        let mut failed = Vec::new();
        let lapsed = |one: &Exchange| !one.closed && one.lease <= now;
        self.exchanges.change_restless(lapsed, |exchange| {
            exchange.closed = true;
            if exchange.under_way() {
                exchange.ends(FlightState::Failed, now);
                exchange.marks.failure = Some(Failure::Replica);
                failed.push((exchange.id, exchange.lane, exchange.generation));
            }
        });
        for (id, lane, generation) in failed {
            if self.is_told(lane, generation) {
                self.tell_after(id, step);
            }
            if let Some(lane) = self.lanes.get_mut(lane)
                && lane.task.generation == generation
            {
                lane.task.failed = true;
            }
        }
    }

    fn end_overdue_tasks(&mut self, step: &mut Step<'_>) {
        let now = step.now;
        let overdue: Vec<u32> = self
            .lanes
            .iter()
            .filter(|lane| ends_at(&lane.task, step.rules).is_some_and(|at| at <= now))
            .map(|lane| lane.number)
            .collect();
        for lane in overdue {
            self.exhaust(lane, Limit::Time, None, step);
            self.time_out(step, |proposal, _| proposal.lane == lane);
            if step.refuses(Code::BudgetExhausted) {
                self.withhold(Code::BudgetExhausted, step, |one| one.lane == lane);
            }
        }
    }

    fn time_out(&mut self, step: &mut Step<'_>, which: impl Fn(&Proposal, &Call) -> bool) {
        self.end_calls(CallState::TimedOut, step, which, |call, effects| {
            effects.facts.push(Fact::CallTimedOut { tool: call.tool.clone() });
        });
    }

    /// Reckons anew when something falls due next.
    pub(super) fn reckon_due(&mut self, rules: &Rules) {
        let leases = self.exchanges.restless().filter(|one| !one.closed).map(|one| one.lease);
        self.due = leases.chain(self.deadline(rules)).min();
    }

    /// When the next deadline passes, of a call or of a task. (What falls due by itself besides are leases.)
    #[must_use]
    pub fn deadline(&self, rules: &Rules) -> Option<Millis> {
        let calls = self.calls.unsettled().flat_map(|proposal| &proposal.calls);
        let deadlines =
            calls.filter(|call| call.state == CallState::Open).filter_map(|call| call.deadline);
        let tasks = self.lanes.iter().filter_map(|lane| ends_at(&lane.task, rules));
        deadlines.chain(tasks).min()
    }
}

impl Conversation {
    /// When the time of that generation's task is over, if it is limited and the task is under way.
    pub(super) fn task_ends(&self, lane: u32, generation: u64, rules: &Rules) -> Option<Millis> {
        let task = &self.lanes.get(lane)?.task;
        (task.generation == generation).then(|| ends_at(task, rules)).flatten()
    }
}

/// When a task's time is over, if it is under way and its time is limited.
fn ends_at(task: &Task, rules: &Rules) -> Option<Millis> {
    let span = rules.task_deadline?;
    (task.ended.is_none() && task.model_calls > 0).then(|| task.started.after(span))
}
