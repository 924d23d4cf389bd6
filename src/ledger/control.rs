//! What an application tells by the control API: the user moved on; may I run this tool; decide on this
//! result now.

use super::Conversation;
use super::admit::unmatched_fact;
use super::calls::{Call, CallState, Proposal};
use super::digest::Digest;
use super::event::{Advance, Decide, ExchangeId, Fact, Outcome, Pair, Refused, Start};
use super::exchanges::Exchange;
use super::lanes::{LAST_GENERATION, LaneKey};
use super::marked::{Change, Marked, Noted};
use super::results::{Decision, How, mismatched};
use super::step::Step;
use super::story::Returned;
use super::words;
use crate::guard::fault::{Code, Fault};
use minicbor::{Decode, Encode, decode};

/// How many answers to advances are remembered for a repeat.
const ADVANCES_KEPT: usize = 16;

/// The last advances by the control API, and what each was answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(transparent)]
pub(super) struct Advances(#[n(0)] Marked<Advanced>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub(super) struct Advanced {
    #[n(0)]
    by: ExchangeId,
    #[n(1)]
    idempotency: Option<Digest>,
    #[n(2)]
    generation: u64,
    #[n(3)]
    superseded: Vec<Box<str>>,
    #[n(4)]
    cancelled: usize,
}

/// Where a call named by the control API stands.
#[derive(Clone, Copy)]
struct Place {
    seq: u64,
    at: usize,
    /// Whether it belongs to the generation named, and that is current.
    current: bool,
}

impl Conversation {
    /// The user moved on: to the generation named, or to the next. To the current one: nothing changes.
    pub(super) fn advance(&mut self, advance: &Advance, step: &mut Step<'_>) -> Outcome {
        let same = |one: &&Advanced| {
            one.by == advance.exchange
                || (one.idempotency.is_some() && one.idempotency == advance.idempotency)
        };
        if let Some(first) = self.advances.0.iter().find(same) {
            return first.outcome();
        }
        let header = self.lanes.find(LaneKey::Header).map(|lane| lane.task.generation);
        let current = header.unwrap_or_else(|| self.lanes.highest());
        let asked = advance.generation.unwrap_or(current.saturating_add(1));
        if asked < current {
            return refusal(words::stale_generation(asked, current), current);
        }
        if asked > LAST_GENERATION {
            return refusal(words::no_such_generation(), current);
        }
        let mut superseded = Vec::new();
        let cancelled_before = step.effects.cancel.len();
        if asked > current {
            self.lanes.floor = asked;
            let all: Vec<u32> = self.lanes.iter().map(|lane| lane.number).collect();
            for lane in all {
                superseded.extend(self.move_lane(lane, asked, step));
            }
            self.reckon_due(step.rules);
        }
        let done = Advanced {
            by: advance.exchange,
            idempotency: advance.idempotency,
            generation: asked,
            superseded,
            cancelled: step.effects.cancel.len() - cancelled_before,
        };
        let outcome = done.outcome();
        self.advances.0.push(done);
        while self.advances.0.len() > ADVANCES_KEPT {
            drop(self.advances.0.remove(0));
        }
        outcome
    }

    /// An application asks before it runs a tool: is the call open, current and in time?
    pub(super) fn start(&mut self, start: &Start, step: &mut Step<'_>) -> Outcome {
        let again = |call: &Call| call.started_by == Some(start.exchange);
        let place = self.place_of(&start.id, start.generation, again);
        let Some(place) = place.or_else(|| self.place(&start.id, start.generation)) else {
            return self.not_started(Code::Unmatched, &start.id);
        };
        let Some(call) = self.call_at(place) else {
            return self.not_started(Code::Unmatched, &start.id);
        };
        // A repeat gets its first number again, but never leave that is no longer given.
        let again = call.started_by == Some(start.exchange);
        let ended = ended_code(call, place.current);
        if let Some(code) = ended.or((!place.current).then_some(Code::Stale))
            && step.refuses(code)
        {
            return self.not_started(code, &start.id);
        }
        let (lane, generation) =
            self.calls.get(place.seq).map_or((0, 0), |one| (one.lane, one.generation));
        let task_ends = self.task_ends(lane, generation, step.rules);
        let proposal = self.calls.get_mut(place.seq);
        let Some(call) = proposal.and_then(|one| one.calls.get_mut(place.at)) else {
            return self.not_started(Code::Unmatched, &start.id);
        };
        if !again {
            call.started = call.started.saturating_add(1);
            call.started_by = Some(start.exchange);
        }
        Outcome::Started {
            tool: call.tool.clone(),
            attempt: call.started,
            deadline: call.deadline.into_iter().chain(task_ends).min(),
            operation: call.write.then(|| call.operation(generation)),
        }
    }

    /// Decides on one result now, in the same order as for a live run.
    pub(super) fn decide(&mut self, decide: &Decide, step: &mut Step<'_>) -> Outcome {
        // Ids repeat: the same event again is about the call that it decided, not about the next open one.
        let place = self
            .place_of(&decide.id, decide.generation, |call| {
                call.holds(decide.result) && decided_by(call, decide)
            })
            .or_else(|| self.place(&decide.id, decide.generation));
        let Some((place, call)) = place.and_then(|place| Some((place, self.call_at(place)?)))
        else {
            let tool = decide.name.clone().unwrap_or_default();
            step.effects.facts.push(unmatched_fact(&tool));
            return if step.refuses(Code::Unmatched) {
                self.not_decided(Code::Unmatched, &decide.id)
            } else {
                Outcome::Accepted { tool }
            };
        };
        let tool = call.tool.clone();
        if call.holds(decide.result) && decided_by(call, decide) {
            return Outcome::Accepted { tool };
        }
        let code = refused_as(call, place.current, decide);
        if fits(call, decide) {
            // The late result of a write tells what became of it, though no model may have it.
            self.calls.reported(place.seq, place.at, step.now);
        }
        let mut how = if decide.closing { How::Close } else { How::Accept };
        if let Some(code) = code {
            if step.refuses(code) {
                let fact = Fact::ResultDecided { tool, code: Some(code), waited: None };
                step.effects.facts.push(fact);
                let (seq, call, result) = (place.seq, place.at, decide.result);
                let returned = Returned { seq, call, code, result };
                self.tell_returned(returned, decide.exchange, step);
                return self.not_decided(code, &decide.id);
            }
            how = How::Force;
        }
        let decision = Decision { seq: place.seq, call: place.at, result: decide.result, how };
        self.carry_out(&decision, step);
        let proposal = self.calls.get_mut(place.seq);
        if let Some(call) = proposal.and_then(|one| one.calls.get_mut(place.at)) {
            call.decided_by = Some((decide.exchange, decide.idempotency));
        }
        self.reckon_due(step.rules);
        Outcome::Accepted { tool }
    }

    /// The call of that id in that generation: of a current task if there is one, else the newest. Where
    /// only other generations know the id, the newest of those.
    fn place(&self, id: &str, generation: u64) -> Option<Place> {
        let current = |one: &Proposal| {
            one.generation == generation && self.lanes.current(one.lane, generation)
        };
        let open = |one: &Proposal| {
            one.call(id, None).is_some_and(|at| one.calls[at].state == CallState::Open)
        };
        let all = || self.calls.with_id(id);
        let proposal = all()
            .find(|one| current(one) && open(one))
            .or_else(|| all().find(|one| current(one)))
            .or_else(|| all().find(|one| one.generation == generation))
            .or_else(|| all().next())?;
        let at = proposal.call(id, None)?;
        Some(Place { seq: proposal.seq, at, current: current(proposal) })
    }

    /// The newest call of that id that `which` picks.
    fn place_of(&self, id: &str, generation: u64, which: impl Fn(&Call) -> bool) -> Option<Place> {
        self.calls.with_id(id).find_map(|one| {
            let at = one.calls.iter().position(|call| *call.id == *id && which(call))?;
            let current = one.generation == generation && self.lanes.current(one.lane, generation);
            Some(Place { seq: one.seq, at, current })
        })
    }

    fn call_at(&self, place: Place) -> Option<&Call> {
        self.calls.get(place.seq)?.calls.get(place.at)
    }

    fn not_decided(&self, code: Code, id: &str) -> Outcome {
        refusal(words::of_call(code, "tool_call_id".to_owned(), id), self.lanes.highest())
    }

    fn not_started(&self, code: Code, id: &str) -> Outcome {
        refusal(words::not_started(code, id), self.lanes.highest())
    }

    /// The exchanges that are under way, for the record.
    pub fn under_way(&self) -> impl Iterator<Item = &Exchange> {
        self.exchanges.restless().filter(|one| one.under_way())
    }
}

impl Advances {
    /// They were written as they are now.
    pub(super) fn written(&mut self) {
        self.0.written();
    }

    /// What became of them since. `None`: more than is worth noting.
    pub(super) fn change(&self) -> Option<Noted<'_, Advanced>> {
        self.0.change()
    }

    /// Whether they are as they were written.
    pub(super) fn untouched(&self) -> bool {
        self.0.untouched()
    }

    /// Makes the change that was read.
    pub(super) fn make(&mut self, change: Change<Advanced>) -> Result<(), decode::Error> {
        change.make(&mut self.0)
    }
}

impl Advanced {
    fn outcome(&self) -> Outcome {
        Outcome::Advanced {
            generation: self.generation,
            superseded: self.superseded.clone(),
            cancelled: self.cancelled,
        }
    }
}

fn refusal(fault: Fault, generation: u64) -> Outcome {
    let (faults, notes) = (vec![fault], Vec::new());
    let held = Vec::new();
    Outcome::Refused(Refused { generation: Some(generation), faults, notes, held })
}

/// Whether this very event, or one with the same key, decided the call.
fn decided_by(call: &Call, decide: &Decide) -> bool {
    call.decided_by.is_some_and(|(by, key)| {
        by == decide.exchange || (key.is_some() && key == decide.idempotency)
    })
}

/// Whether what is told is a result, and of this very call.
fn fits(call: &Call, decide: &Decide) -> bool {
    !decide.closing && !mismatched(call, &as_pair(call, decide))
}

/// What refuses a result, in the order of a live run. A closing may stand for a timeout.
fn refused_as(call: &Call, current: bool, decide: &Decide) -> Option<Code> {
    let differs = call.answered() && !call.holds(decide.result);
    ended_code(call, current)
        .map(|code| if differs { Code::Conflict } else { code })
        .or((!current).then_some(Code::Stale))
        .or((!decide.closing && !fits(call, decide)).then_some(Code::Mismatch))
        .filter(|code| !(decide.closing && *code == Code::Late))
}

/// What a further step of a call that ended is called.
fn ended_code(call: &Call, current: bool) -> Option<Code> {
    match call.state {
        CallState::Open => None,
        _ if call.answered() => Some(Code::Duplicate),
        CallState::Unchosen => Some(Code::Duplicate),
        CallState::TimedOut if current => Some(Code::Late),
        _ => Some(Code::Stale),
    }
}

fn as_pair(call: &Call, decide: &Decide) -> Pair {
    Pair {
        id: call.id.clone(),
        tool: call.tool.clone(),
        arguments: call.arguments,
        message: 0,
        result: decide.result,
        closing: decide.closing,
        bare: true,
        name: decide.name.clone(),
        echoes: decide.echoes.clone(),
        edits_allowed: false,
        attempt: decide.attempt,
    }
}
