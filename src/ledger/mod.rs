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
//!  Start, Decide, Resolve: what an application asks or tells about one call
//!  Tick:    deadlines and leases
//! ```
//! [`calls`] has the diagram of a call, [`exchanges`] that of an exchange.

mod admit;
mod apart;
pub mod calls;
mod change;
mod control;
pub mod digest;
pub mod effects;
mod encoding;
mod enter;
pub mod event;
pub mod exchanges;
pub mod lanes;
mod launch;
mod marked;
mod matching;
mod results;
pub mod rules;
mod settle;
mod sorted;
mod step;
pub mod story;
mod time;
mod words;
pub mod writes;

#[cfg(test)]
mod tests;

pub use change::Change;

use calls::{Call, CallState, Proposal, Register};
use control::Advances;
use encoding::Later;
use event::{
    Effects, Event, ExchangeId, Fact, Millis, Outcome, TaskOutcome, Transition, WriteOutcome,
};
use exchanges::{Exchange, Exchanges, FlightState};
use lanes::{Lanes, Limit};
use rules::Rules;
use step::Step;

use crate::guard::fault::Code;

/// The state of one conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Conversation {
    /// Whether a client ever sent the generation header here.
    uses_header: bool,
    lanes: Lanes,
    calls: Register,
    exchanges: Exchanges,
    /// The last advances by the control API, and what each was answered.
    advances: Advances,
    /// Nothing falls due before this.
    due: Option<Millis>,
    /// What a later version keeps here.
    later: Later,
}

impl Conversation {
    /// Applies one event. Whatever is refused leaves the conversation as it was, but for what time alone
    /// decided, an advance by header, a spent budget, and the report of a write's late result.
    ///
    /// An event applied twice (a lost reply) has its effect once and gives its first outcome; a release
    /// that was never carried out is withheld all the same when the generation has moved on since.
    pub fn apply(&mut self, event: &Event, rules: &Rules, now: Millis) -> Transition {
        let would_refuse = self.would_refuse(event, rules, now);
        let unknown: Vec<_> = self.unknown_writes().collect();
        let mut step = Step::new(rules, now);
        self.tick(&mut step);
        let mut outcome = match event {
            Event::Admit(admit) => self.admit(admit, &mut step),
            Event::Settle(settle) => self.settle(settle, &mut step),
            Event::Close(close) => self.close(*close, &mut step),
            Event::Check(exchange) => self.check(*exchange, &step),
            Event::Advance(advance) => self.advance(advance, &mut step),
            Event::Start(start) => self.start(start, &mut step),
            Event::Decide(decide) => self.decide(decide, &mut step),
            Event::Resolve(resolve) => self.resolve(resolve, &mut step),
            Event::Tick => Outcome::Done,
        };
        self.tell_of_writes(&unknown, &mut step);
        self.tell_whole(&mut step);
        self.hold_up(&mut outcome);
        Transition { outcome, effects: step.effects, would_refuse }
    }

    /// What enforcing would have refused this event for. Tried on a copy with the rules that enforce, so that
    /// what is counted while the operator only watches is what would have been refused, in the same order and
    /// with the same early ends.
    fn would_refuse(&self, event: &Event, rules: &Rules, now: Millis) -> Vec<Code> {
        let Some(enforcing) = &rules.enforcing else { return Vec::new() };
        if matches!(event, Event::Close(_) | Event::Check(_) | Event::Tick) {
            return Vec::new();
        }
        match self.clone().apply(event, enforcing, now).outcome {
            Outcome::Refused(refused) => refused.faults.iter().map(|fault| fault.code).collect(),
            Outcome::Withheld(code) => vec![code],
            _ => Vec::new(),
        }
    }

    /// When something falls due by itself: a `Tick` then (or later) is not in vain.
    #[must_use]
    pub fn due(&self) -> Option<Millis> {
        self.due
    }

    /// Whether nothing here may be let go early: no open call, no exchange under way, no write whose
    /// outcome is unknown.
    #[must_use]
    pub fn idle(&self) -> bool {
        !self.exchanges.restless().any(Exchange::under_way)
            && self.calls.unsettled().next().is_none()
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

    /// The exchanges, for a test that makes them older than they are.
    #[cfg(test)]
    pub(crate) fn change_exchanges(&mut self, mut change: impl FnMut(&mut Exchange)) {
        let ids: Vec<ExchangeId> = self.exchanges.iter().map(|one| one.id).collect();
        ids.into_iter().filter_map(|id| self.exchanges.get_mut(id).map(&mut change)).for_each(drop);
    }

    /// Every exchange that its replica is not done with has its lease until then. A store says so of what
    /// it reads: until long ago, if the replica is known to be dead.
    pub fn lease_until(&mut self, until: Millis) {
        let mut any = false;
        let open = |one: &Exchange| !one.closed;
        self.exchanges.change_restless(open, |exchange| {
            exchange.lease = until;
            any = true;
        });
        if any {
            self.due = Some(self.due.map_or(until, |due| due.min(until)));
        }
    }

    /// The conversation is forgotten (expired or deleted): what is under way must be withheld.
    #[must_use]
    pub fn forget(&self, now: Millis) -> Effects {
        let rules = Rules::default();
        let mut step = Step::new(&rules, now);
        for exchange in self.exchanges.restless().filter(|one| one.under_way()) {
            step.effects.cancel.push((exchange.id, Code::StaleAnswer));
        }
        for lane in self.lanes.iter() {
            let outcome = if lane.task.failed { TaskOutcome::Failed } else { TaskOutcome::Expired };
            step.report(&mut lane.clone(), outcome);
        }
        self.tell_whole(&mut step);
        step.effects.open_calls -= self.open_calls();
        let forgotten = Fact::WriteBecame(WriteOutcome::Forgotten);
        step.effects.facts.extend(self.unknown_writes().map(|_| forgotten.clone()));
        step.effects
    }

    /// How many calls are open.
    #[must_use]
    pub fn open_calls(&self) -> i64 {
        let open = self.calls.unsettled().flat_map(|proposal| &proposal.calls);
        open.filter(|call| call.state == CallState::Open).count().try_into().unwrap_or(i64::MAX)
    }

    /// Ends every open call that `which` picks; each is told to `each`.
    fn end_calls(
        &mut self,
        state: CallState,
        step: &mut Step<'_>,
        which: impl Fn(&Proposal, &Call) -> bool,
        mut each: impl FnMut(&Call, &mut Effects),
    ) {
        let effects = &mut step.effects;
        self.calls.end(state, step.now, which, |call| {
            effects.open_calls -= 1;
            each(call, effects);
        });
    }

    /// Open calls of these exchanges give way to a newer attempt, or never went out. A proposal of which
    /// nothing was decided gives its places in the budget of tool calls back.
    fn replace_calls(&mut self, step: &mut Step<'_>, theirs: impl Fn(ExchangeId) -> bool) {
        let untouched = |one: &&Proposal| {
            theirs(one.exchange) && one.calls.iter().all(|call| call.state == CallState::Open)
        };
        for proposal in self.calls.unsettled().filter(untouched) {
            let task = self.lanes.get_mut(proposal.lane).map(|lane| &mut lane.task);
            if let Some(task) = task.filter(|task| task.generation == proposal.generation) {
                task.tool_calls = task.tool_calls.saturating_sub(proposal.most_calls());
            }
        }
        self.end_calls(CallState::Replaced, step, |one, _| theirs(one.exchange), |_, _| {});
    }

    /// The lane moves to `generation`: the older one's open calls are superseded, its exchanges withheld.
    fn move_lane(&mut self, lane: u32, generation: u64, step: &mut Step<'_>) -> Vec<Box<str>> {
        let mut superseded = Vec::new();
        let of_lane = |proposal: &Proposal, _: &Call| proposal.lane == lane;
        self.end_calls(CallState::Superseded, step, of_lane, |call, _| {
            superseded.push(call.id.clone());
        });
        let cut = self.withhold(Code::StaleAnswer, step, |one| one.lane == lane);
        if let Some(lane) = self.lanes.get_mut(lane) {
            let failed = lane.task.failed && !cut;
            let outcome = if failed { TaskOutcome::Failed } else { TaskOutcome::Superseded };
            step.report(lane, outcome);
            lane.task = lanes::Task::new(generation, step.now);
        }
        self.tell_whole(step);
        let lanes = &self.lanes;
        self.exchanges.retire(step.rules.kept, |one| lanes.current(one.lane, one.generation));
        superseded
    }

    /// The exchanges under way that `which` picks may not be answered any more; gives whether there
    /// were any. Where the rules only note it, they go on: settling tells.
    fn withhold(
        &mut self,
        code: Code,
        step: &mut Step<'_>,
        which: impl Fn(&Exchange) -> bool,
    ) -> bool {
        let cancels = step.refuses(code);
        let mut any = false;
        let picked = |one: &Exchange| one.under_way() && which(one);
        self.exchanges.change_restless(picked, |exchange| {
            any = true;
            exchange.ends(FlightState::Withheld(code), step.now);
            if cancels {
                step.effects.cancel.push((exchange.id, code));
            }
        });
        any
    }

    /// The lane's task ends incomplete, if it is under way: it ran out of something.
    fn exhaust(&mut self, lane: u32, limit: Limit, by: Option<ExchangeId>, step: &mut Step<'_>) {
        if let Some(lane) = self.lanes.get_mut(lane)
            && lane.task.ended.is_none()
        {
            lane.task.limit = Some(limit);
            lane.task.exhausted_by = by;
        }
        self.end_task(lane, TaskOutcome::Incomplete, step);
    }

    /// The lane's task ends, if it is under way.
    fn end_task(&mut self, lane: u32, outcome: TaskOutcome, step: &mut Step<'_>) {
        if let Some(lane) = self.lanes.get_mut(lane)
            && lane.task.ended.is_none()
        {
            lane.task.ended = Some(outcome);
            step.report(lane, outcome);
        }
    }
}
