//! A response asks to go down, and how exchanges end.

use super::Conversation;
use super::calls::{CallState, Origin};
use super::event::{Close, Ending, ExchangeId, Fact, Outcome, Refused, Settle, TaskOutcome};
use super::exchanges::{Exchange, Failure, FlightState, Kind};
use super::lanes::Limit;
use super::rules::Rules;
use super::step::{Findings, Step};
use crate::guard::fault::Code;
use crate::guard::verdict::Action;

impl Conversation {
    /// Is this exchange's generation still current, and is it the newest attempt? Then its calls are
    /// registered, in the same step. Expired, deleted and lapsed exchanges are no longer wanted.
    pub(super) fn settle(&mut self, settle: &Settle, step: &mut Step<'_>) -> Outcome {
        let exchange = self.exchanges.get(settle.exchange);
        let mut noted = unwanted(exchange);
        if let Some(code) = noted.filter(|code| step.refuses(*code)) {
            return Outcome::Withheld(code);
        }
        let Some(exchange) = exchange else { return wanted_or(noted) };
        let (lane, generation) = (exchange.lane, exchange.generation);
        let again = exchange.proposed;
        noted = noted.or(exchange.noted);
        let proposes = !settle.alternatives.is_empty();
        let limit = proposes.then(|| self.beyond(exchange, settle, step.rules)).flatten();
        if let Some(limit) = limit {
            match step.rules.actions.action(Code::BudgetExhausted) {
                Action::Refuse => {
                    let withheld = FlightState::Withheld(Code::BudgetExhausted);
                    self.end_exchange(settle.exchange, withheld, step);
                    self.exhaust(lane, limit, Some(settle.exchange), step);
                    self.reckon_due(step.rules);
                    return Outcome::Withheld(Code::BudgetExhausted);
                }
                Action::Note => noted = noted.or(Some(Code::BudgetExhausted)),
                Action::Off => {}
            }
        }
        if proposes && !again {
            let mut found = Findings::default();
            for fault in self.barred_writes(settle, lane) {
                found.weigh(fault, step.rules);
            }
            let Findings { faults, notes } = found;
            noted = noted.or(notes.first().map(|fault| fault.code));
            if !faults.is_empty() {
                let held = Vec::new();
                return Outcome::Refused(Refused {
                    generation: Some(generation),
                    faults,
                    notes,
                    held,
                });
            }
            let forced = settle.forced || noted.is_some();
            let origin = Origin { exchange: settle.exchange, lane, generation, forced };
            self.register(origin, settle, step);
        }
        if let Some(exchange) = self.exchanges.get_mut(settle.exchange) {
            exchange.proposed |= proposes;
            exchange.noted = noted;
            let marks = &mut exchange.marks;
            marks.settled.get_or_insert(step.now.since(marks.began));
            if exchange.state == FlightState::Flight {
                exchange.state = FlightState::Settled;
            }
        }
        self.reckon_due(step.rules);
        wanted_or(noted)
    }

    /// What the proposed calls would go beyond.
    fn beyond(&self, exchange: &Exchange, settle: &Settle, rules: &Rules) -> Option<Limit> {
        if exchange.last_allowed {
            return Some(Limit::ModelCalls);
        }
        let most = rules.tool_calls.filter(|_| !exchange.proposed)?;
        let task = &self.lanes.get(exchange.lane)?.task;
        let used = task.tool_calls.saturating_add(largest(settle));
        (task.generation == exchange.generation && used > most).then_some(Limit::ToolCalls)
    }

    fn register(&mut self, origin: Origin, settle: &Settle, step: &mut Step<'_>) {
        self.calls.propose(origin, &settle.alternatives, step.now);
        for call in settle.alternatives.iter().flat_map(|one| &one.calls) {
            step.effects.open_calls += 1;
            let (tool, forced) = (call.tool.clone(), origin.forced);
            step.effects.facts.push(Fact::CallRegistered { tool, forced });
        }
        if self.lanes.current(origin.lane, origin.generation)
            && let Some(lane) = self.lanes.get_mut(origin.lane)
        {
            lane.task.tool_calls = lane.task.tool_calls.saturating_add(largest(settle));
        }
        if !self.lanes.current(origin.lane, origin.generation) {
            // Let out by a note after its generation: nobody waits for these calls.
            let theirs = |exchange| exchange == origin.exchange;
            let superseded = CallState::Superseded;
            self.end_calls(superseded, step, |one, _| theirs(one.exchange), |_, _| {});
        }
    }

    pub(super) fn close(&mut self, close: Close, step: &mut Step<'_>) -> Outcome {
        let id = close.exchange;
        let Some(exchange) = self.exchanges.get_mut(id) else { return Outcome::Done };
        let again = std::mem::replace(&mut exchange.closed, true);
        let (under_way, lane, kind) = (exchange.under_way(), exchange.lane, exchange.kind);
        let (generation, proposed) = (exchange.generation, exchange.proposed);
        let delivered = close.ending == Ending::Delivered && exchange.state == FlightState::Settled;
        let current = self.lanes.current(lane, generation);
        let told = self.is_told(lane, generation);
        if delivered && !again {
            self.end_exchange(id, FlightState::Delivered, step);
            if let Kind::Continuation(seq) = kind
                && let Some(proposal) = self.calls.get_mut(seq)
            {
                proposal.delivered = true;
            }
            if !proposed && current {
                self.end_task(lane, TaskOutcome::Completed, step);
            }
        } else if under_way {
            self.fail(close, step);
            let failed = !matches!(close.ending, Ending::ClientGone { .. } | Ending::Withheld);
            if let Some(lane) = self.lanes.get_mut(lane).filter(|_| current && failed) {
                lane.task.failed = true;
            }
        }
        if !delivered && unsent(close.ending) {
            self.calls.withdraw(id);
        }
        if told && !again && (delivered || under_way) {
            self.tell_after(id, step);
        }
        self.reckon_due(step.rules);
        Outcome::Done
    }

    fn fail(&mut self, close: Close, step: &mut Step<'_>) {
        if let Some(exchange) = self.exchanges.get_mut(close.exchange) {
            exchange.ends(FlightState::Failed, step.now);
            exchange.marks.failure = Some(Failure::of(close.ending));
            exchange.unreached = close.ending == Ending::UpstreamFailed;
        }
        // Calls that the client never saw are withdrawn: nobody can have run them.
        if unsent(close.ending) {
            self.replace_calls(step, |exchange| exchange == close.exchange);
        }
    }

    /// Whether an exchange is still wanted. Its replica asks once a second, which renews the lease.
    pub(super) fn check(&mut self, id: ExchangeId, step: &Step<'_>) -> Outcome {
        if let Some(code) = unwanted(self.exchanges.get(id)).filter(|code| step.refuses(*code)) {
            return Outcome::Withheld(code);
        }
        if let Some(exchange) = self.exchanges.get_mut(id) {
            exchange.lease = step.now.after(step.rules.lease);
        }
        Outcome::Wanted
    }

    fn end_exchange(&mut self, id: ExchangeId, state: FlightState, step: &Step<'_>) {
        if let Some(exchange) = self.exchanges.get_mut(id) {
            exchange.ends(state, step.now);
        }
    }
}

/// The calls of the largest alternative: a run answers one of them.
fn largest(settle: &Settle) -> u32 {
    let most = settle.alternatives.iter().map(|one| one.calls.len()).max();
    u32::try_from(most.unwrap_or(0)).unwrap_or(u32::MAX)
}

/// Why an exchange is not wanted any more. One that failed lapsed or was closed: a newer attempt may be
/// under way by now. One that is not known expired, was deleted, or is long over.
fn unwanted(exchange: Option<&Exchange>) -> Option<Code> {
    match exchange.map(|one| one.state) {
        None => Some(Code::StaleAnswer),
        Some(FlightState::Withheld(code)) => Some(code),
        Some(FlightState::Failed) => Some(Code::Overtaken),
        Some(FlightState::Flight | FlightState::Settled | FlightState::Delivered) => None,
    }
}

fn wanted_or(noted: Option<Code>) -> Outcome {
    noted.map_or(Outcome::Wanted, Outcome::Noted)
}

/// Whether no byte of the proposed calls went out.
fn unsent(ending: Ending) -> bool {
    !matches!(ending, Ending::ClientGone { calls_sent: true } | Ending::Delivered)
}
