//! The pure state machine of one conversation: `(conversation, event, now) → (conversation', outcome)`.
//!
//! No clock, no I/O, no randomness: a store applies each event as one conditional update and says
//! what time it is. What must happen outside is told as [`event::Effects`].
//!
//! ```text
//!  request ── Admit ──► refused (nothing changed but what time or the header decided)
//!                │
//!                └────► Flight ── Settle ──► Wanted: registered, may go down ── Close ──► Delivered
//!                          │         └─────► Withheld: the generation moved on, or a newer attempt
//!                          └─ Check, once a second: still wanted? (renews the lease)
//!  Advance: the older generation's open calls are Superseded, its exchanges Withheld
//!  Tick:    deadlines and leases
//! ```
//! [`calls`] has the diagram of a call, [`exchanges`] that of an exchange.

mod admit;
pub mod calls;
mod control;
pub mod digest;
pub mod event;
pub mod exchanges;
pub mod lanes;
pub mod results;
pub mod rules;
mod settle;
mod time;
mod words;

use calls::{CallState, Register};
use event::{Effects, Event, Fact, Millis, Outcome, TaskOutcome, Transition};
use exchanges::{Exchange, Exchanges, FlightState};
use lanes::{Lanes, Task};
use rules::Rules;

use crate::guard::fault::Code;
use crate::guard::verdict::Action;

/// The state of one conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Conversation {
    /// Whether a client ever sent the generation header here.
    uses_header: bool,
    lanes: Lanes,
    calls: Register,
    exchanges: Exchanges,
    /// Nothing falls due before this.
    due: Option<Millis>,
}

impl Conversation {
    /// Applies one event. Whatever is refused leaves the conversation as it was, but for what time alone
    /// decided and an advance by header. An event applied twice gives its first outcome.
    pub fn apply(&mut self, event: &Event, rules: &Rules, now: Millis) -> Transition {
        let mut effects = Effects::default();
        self.tick(rules, now, &mut effects);
        let outcome = match event {
            Event::Admit(admit) => self.admit(admit, rules, now, &mut effects),
            Event::Settle(settle) => self.settle(settle, rules, now, &mut effects),
            Event::Close(close) => self.close(*close, rules, now, &mut effects),
            Event::Check(exchange) => self.check(*exchange, rules, now),
            Event::Advance(generation) => self.advance(*generation, rules, now, &mut effects),
            Event::Decide(decide) => self.decide(decide, rules, now, &mut effects),
            Event::Tick => Outcome::Done,
        };
        Transition { outcome, effects }
    }

    /// When something falls due by itself: a `Tick` then (or later) is not in vain.
    #[must_use]
    pub fn due(&self) -> Option<Millis> {
        self.due
    }

    /// Whether nothing here may be let go early: no open call, no exchange under way.
    #[must_use]
    pub fn idle(&self) -> bool {
        !self.exchanges.iter().any(Exchange::under_way)
            && !self.calls.iter().any(calls::Proposal::open)
    }

    /// The registered calls, for reading.
    #[must_use]
    pub fn calls(&self) -> &Register {
        &self.calls
    }

    /// The lanes and their tasks, for reading.
    #[must_use]
    pub fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// The exchanges, for reading.
    #[must_use]
    pub fn exchanges(&self) -> &Exchanges {
        &self.exchanges
    }

    /// The conversation is forgotten (expired or deleted): what is under way must be withheld.
    #[must_use]
    pub fn forget(&self, now: Millis) -> Effects {
        let mut effects = Effects::default();
        for exchange in self.exchanges.iter().filter(|one| one.under_way()) {
            effects.cancel.push((exchange.id, Code::StaleAnswer));
        }
        for lane in self.lanes.iter() {
            let outcome = if lane.task.failed { TaskOutcome::Failed } else { TaskOutcome::Expired };
            report_end(&lane.task, outcome, now, &mut effects);
        }
        effects.open_calls -= self.count_open();
        effects
    }

    fn count_open(&self) -> i64 {
        let open = self.calls.iter().flat_map(|proposal| &proposal.calls);
        open.filter(|call| call.state == CallState::Open).count().try_into().unwrap_or(i64::MAX)
    }

    /// The lane moves to `generation`: the older one's open calls are superseded, its exchanges withheld.
    fn move_lane(
        &mut self,
        lane: u32,
        generation: u64,
        rules: &Rules,
        now: Millis,
        effects: &mut Effects,
    ) -> Vec<Box<str>> {
        let mut superseded = Vec::new();
        self.calls.end(
            CallState::Superseded,
            now,
            |proposal, _| proposal.lane == lane,
            |call| superseded.push(call.id.clone()),
        );
        effects.open_calls -= i64::try_from(superseded.len()).unwrap_or(i64::MAX);
        let cancels = rules.actions.action(Code::StaleAnswer) == Action::Refuse;
        for exchange in self.exchanges.iter_mut() {
            if exchange.lane == lane && exchange.under_way() {
                exchange.state = FlightState::Withheld(Code::StaleAnswer);
                if cancels {
                    effects.cancel.push((exchange.id, Code::StaleAnswer));
                }
            }
        }
        if let Some(lane) = self.lanes.get_mut(lane) {
            if lane.task.ended.is_none() && lane.task.model_calls > 0 {
                report_end(&lane.task, TaskOutcome::Superseded, now, effects);
            }
            lane.task = Task::new(generation, now);
        }
        let lanes = &self.lanes;
        self.exchanges.retire(rules.kept, |one| lanes.current(one.lane, one.generation));
        superseded
    }

    /// The lane's task ends; gives whether it was under way.
    fn end_task(&mut self, lane: u32, outcome: TaskOutcome, now: Millis, effects: &mut Effects) {
        if let Some(lane) = self.lanes.get_mut(lane)
            && lane.task.ended.is_none()
        {
            lane.task.ended = Some(outcome);
            report_end(&lane.task, outcome, now, effects);
        }
    }
}

fn report_end(task: &Task, outcome: TaskOutcome, now: Millis, effects: &mut Effects) {
    if task.model_calls > 0 && (task.ended.is_none() || task.ended == Some(outcome)) {
        effects.facts.push(Fact::TaskEnded {
            generation: task.generation,
            outcome,
            took: now.since(task.started),
        });
    }
}
