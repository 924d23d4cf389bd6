//! What time alone decides: deadlines of calls and generations, and leases of exchanges in flight.

use super::Conversation;
use super::calls::CallState;
use super::event::{Effects, Fact, Millis, TaskOutcome};
use super::exchanges::FlightState;
use super::rules::Rules;
use crate::guard::fault::Code;
use crate::guard::verdict::Action;

impl Conversation {
    /// Fires what has fallen due, each once.
    pub(super) fn tick(&mut self, rules: &Rules, now: Millis, effects: &mut Effects) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        self.time_out_calls(now, effects, |deadline| deadline.is_some_and(|at| at <= now), None);
        for exchange in self.exchanges.iter_mut() {
            if exchange.under_way() && exchange.lease <= now {
                exchange.state = FlightState::Failed;
                exchange.unreached = true;
            }
        }
        self.end_overdue_tasks(rules, now, effects);
        self.reckon_due(rules);
    }

    fn end_overdue_tasks(&mut self, rules: &Rules, now: Millis, effects: &mut Effects) {
        let Some(span) = rules.task_deadline else { return };
        let overdue: Vec<u32> = self
            .lanes
            .iter()
            .filter(|lane| lane.task.ended.is_none() && lane.task.model_calls > 0)
            .filter(|lane| lane.task.started.after(span) <= now)
            .map(|lane| lane.number)
            .collect();
        let cancels = rules.actions.action(Code::BudgetExhausted) == Action::Refuse;
        for lane in overdue {
            self.end_task(lane, TaskOutcome::Incomplete, now, effects);
            self.time_out_calls(now, effects, |_| true, Some(lane));
            for exchange in self.exchanges.iter_mut() {
                if exchange.lane == lane && exchange.under_way() && cancels {
                    exchange.state = FlightState::Withheld(Code::BudgetExhausted);
                    effects.cancel.push((exchange.id, Code::BudgetExhausted));
                }
            }
        }
    }

    fn time_out_calls(
        &mut self,
        now: Millis,
        effects: &mut Effects,
        over: impl Fn(Option<Millis>) -> bool,
        lane: Option<u32>,
    ) {
        self.calls.end(
            CallState::TimedOut,
            now,
            |proposal, call| over(call.deadline) && lane.is_none_or(|lane| proposal.lane == lane),
            |call| {
                effects.open_calls -= 1;
                effects.facts.push(Fact::CallTimedOut { tool: call.tool.clone() });
            },
        );
    }

    /// Reckons anew when something falls due next.
    pub(super) fn reckon_due(&mut self, rules: &Rules) {
        let calls = self.calls.iter().flat_map(|proposal| &proposal.calls);
        let deadlines =
            calls.filter(|call| call.state == CallState::Open).filter_map(|call| call.deadline);
        let leases = self.exchanges.iter().filter(|one| one.under_way()).map(|one| one.lease);
        let tasks = self.lanes.iter().filter_map(|lane| {
            let span = rules.task_deadline?;
            (lane.task.ended.is_none() && lane.task.model_calls > 0)
                .then(|| lane.task.started.after(span))
        });
        self.due = deadlines.chain(leases).chain(tasks).min();
    }
}
