//! A response asks to go down, and how exchanges end.

use super::Conversation;
use super::calls::{CallState, Origin};
use super::event::{
    Close, Effects, Ending, ExchangeId, Fact, Millis, Outcome, Settle, TaskOutcome,
};
use super::exchanges::{FlightState, Kind};
use super::rules::Rules;
use crate::guard::fault::Code;
use crate::guard::verdict::Action;

impl Conversation {
    /// Is this exchange's generation still current, and is it the newest attempt? Then its calls are
    /// registered, in the same step. Expired, deleted and lapsed exchanges are no longer wanted.
    pub(super) fn settle(
        &mut self,
        settle: &Settle,
        rules: &Rules,
        now: Millis,
        effects: &mut Effects,
    ) -> Outcome {
        let Some(exchange) = self.exchanges.get(settle.exchange) else {
            return Outcome::Withheld(Code::StaleAnswer);
        };
        let noted = match exchange.state {
            FlightState::Withheld(code) if rules.actions.action(code) == Action::Refuse => {
                return Outcome::Withheld(code);
            }
            FlightState::Withheld(code) => Some(code),
            FlightState::Failed => return Outcome::Withheld(Code::Overtaken),
            FlightState::Flight | FlightState::Settled | FlightState::Delivered => None,
        };
        let proposes = !settle.alternatives.is_empty();
        if proposes && exchange.proposed {
            return noted.map_or(Outcome::Wanted, Outcome::Noted);
        }
        let (lane, generation) = (exchange.lane, exchange.generation);
        if proposes
            && exchange.last_allowed
            && rules.actions.action(Code::BudgetExhausted) == Action::Refuse
        {
            self.set_state(settle.exchange, FlightState::Withheld(Code::BudgetExhausted));
            self.end_task(lane, TaskOutcome::Incomplete, now, effects);
            return Outcome::Withheld(Code::BudgetExhausted);
        }
        if proposes {
            let forced = settle.forced || noted.is_some();
            let origin = Origin { exchange: settle.exchange, lane, generation, forced };
            self.calls.propose(origin, &settle.alternatives, now);
            for call in settle.alternatives.iter().flat_map(|one| &one.calls) {
                effects.open_calls += 1;
                effects.facts.push(Fact::CallRegistered { tool: call.tool.clone() });
            }
        }
        if let Some(exchange) = self.exchanges.get_mut(settle.exchange) {
            exchange.proposed |= proposes;
            if exchange.state == FlightState::Flight {
                exchange.state = FlightState::Settled;
            }
        }
        self.reckon_due(rules);
        noted.map_or(Outcome::Wanted, Outcome::Noted)
    }

    pub(super) fn close(
        &mut self,
        close: Close,
        rules: &Rules,
        now: Millis,
        effects: &mut Effects,
    ) -> Outcome {
        let Some(exchange) = self.exchanges.get(close.exchange) else { return Outcome::Done };
        if !exchange.under_way() {
            return Outcome::Done;
        }
        let (lane, kind) = (exchange.lane, exchange.kind);
        let answer = exchange.state == FlightState::Settled && !exchange.proposed;
        let current = self.lanes.current(lane, exchange.generation);
        let settled = exchange.state == FlightState::Settled;
        if close.ending == Ending::Delivered && settled {
            self.set_state(close.exchange, FlightState::Delivered);
            if let Kind::Continuation(seq) = kind
                && let Some(proposal) = self.calls.get_mut(seq)
            {
                proposal.delivered = true;
            }
            if answer && current {
                self.end_task(lane, TaskOutcome::Completed, now, effects);
            }
        } else {
            self.fail(close, now, effects);
            if let Some(lane) = self.lanes.get_mut(lane)
                && current
            {
                lane.task.failed = true;
            }
        }
        self.reckon_due(rules);
        Outcome::Done
    }

    fn fail(&mut self, close: Close, now: Millis, effects: &mut Effects) {
        if let Some(exchange) = self.exchanges.get_mut(close.exchange) {
            exchange.state = FlightState::Failed;
            exchange.unreached = close.ending == Ending::UpstreamFailed;
        }
        // Calls that the client never saw are withdrawn: nobody can have run them.
        if !matches!(close.ending, Ending::ClientGone { calls_sent: true } | Ending::Delivered) {
            let open = &mut effects.open_calls;
            self.calls.end(
                CallState::Replaced,
                now,
                |proposal, _| proposal.exchange == close.exchange,
                |_| *open -= 1,
            );
        }
    }

    /// Whether an exchange is still wanted. Its replica asks once a second, which renews the lease.
    pub(super) fn check(&mut self, id: ExchangeId, rules: &Rules, now: Millis) -> Outcome {
        let Some(exchange) = self.exchanges.get_mut(id) else {
            return Outcome::Withheld(Code::StaleAnswer);
        };
        match exchange.state {
            FlightState::Withheld(code) if rules.actions.action(code) == Action::Refuse => {
                Outcome::Withheld(code)
            }
            FlightState::Failed => Outcome::Withheld(Code::Overtaken),
            _ => {
                exchange.lease = now.after(rules.lease);
                Outcome::Wanted
            }
        }
    }

    fn set_state(&mut self, id: ExchangeId, state: FlightState) {
        if let Some(exchange) = self.exchanges.get_mut(id) {
            exchange.state = state;
        }
    }
}
