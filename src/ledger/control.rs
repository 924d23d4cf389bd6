//! What an application tells by the control API: the user moved on; decide on this result now.

use super::Conversation;
use super::admit::unmatched_fact;
use super::calls::{Call, CallState};
use super::event::{Decide, Effects, Fact, Millis, Outcome, Pair, Refused};
use super::exchanges::Exchange;
use super::lanes::LaneKey;
use super::results::{Decision, How, mismatched};
use super::rules::Rules;
use super::words;
use crate::guard::fault::Code;

impl Conversation {
    /// The user moved on: to `generation`, or to the next. To the current one: nothing changes.
    pub(super) fn advance(
        &mut self,
        generation: Option<u64>,
        rules: &Rules,
        now: Millis,
        effects: &mut Effects,
    ) -> Outcome {
        let header = self.lanes.find(LaneKey::Header).map(|lane| lane.task.generation);
        let current = header.unwrap_or_else(|| self.lanes.highest());
        let asked = generation.unwrap_or(current + 1);
        if asked < current {
            let faults = vec![words::stale_generation(asked, current)];
            let notes = Vec::new();
            return Outcome::Refused(Refused { generation: Some(current), faults, notes });
        }
        let mut superseded = Vec::new();
        let cancelled_before = effects.cancel.len();
        if asked > current {
            self.lanes.floor = asked;
            let all: Vec<u32> = self.lanes.iter().map(|lane| lane.number).collect();
            for lane in all {
                superseded.extend(self.move_lane(lane, asked, rules, now, effects));
            }
            self.reckon_due(rules);
        }
        let cancelled = effects.cancel.len() - cancelled_before;
        Outcome::Advanced { generation: asked, superseded, cancelled }
    }

    /// Decides on one result now, in the same order as for a live run.
    pub(super) fn decide(
        &mut self,
        decide: &Decide,
        rules: &Rules,
        now: Millis,
        effects: &mut Effects,
    ) -> Outcome {
        let found = self.calls.newest(&decide.id).and_then(|proposal| {
            let at = proposal.call(&decide.id, None)?;
            let current = self.lanes.current(proposal.lane, proposal.generation);
            let same = current && proposal.generation == decide.generation;
            Some((proposal.seq, at, same))
        });
        let Some((seq, at, current)) = found else {
            effects.facts.push(unmatched_fact(decide.name.as_deref().unwrap_or_default()));
            return self.not_decided(Code::Unmatched, decide);
        };
        let Some(call) = self.calls.get(seq).and_then(|proposal| proposal.calls.get(at)) else {
            return self.not_decided(Code::Unmatched, decide);
        };
        let tool = call.tool.clone();
        if let Some(code) = ended_code(call, decide) {
            return match code {
                Some(code) => self.refuse_result(code, tool, decide, effects),
                None => Outcome::Accepted { tool },
            };
        }
        if !current {
            return self.refuse_result(Code::Stale, tool, decide, effects);
        }
        if !decide.closing && mismatched(call, &as_pair(call, decide)) {
            return self.refuse_result(Code::Mismatch, tool, decide, effects);
        }
        let how = if decide.closing { How::Close } else { How::Accept };
        let decision = Decision { seq, call: at, result: decide.result, how };
        if let Some(fact) = decision.carry_out(&mut self.calls, now) {
            effects.open_calls -= 1;
            effects.facts.push(fact);
        }
        if let Some(call) = self.calls.get_mut(seq).and_then(|one| one.calls.get_mut(at)) {
            call.decided_by = decide.idempotency;
        }
        self.reckon_due(rules);
        Outcome::Accepted { tool }
    }

    fn refuse_result(
        &self,
        code: Code,
        tool: Box<str>,
        decide: &Decide,
        effects: &mut Effects,
    ) -> Outcome {
        effects.facts.push(Fact::ResultDecided { tool, code: Some(code), waited: None });
        self.not_decided(code, decide)
    }

    fn not_decided(&self, code: Code, decide: &Decide) -> Outcome {
        let fault = words::of_call(code, "tool_call_id".to_owned(), &decide.id);
        Outcome::Refused(Refused {
            generation: Some(self.lanes.highest()),
            faults: vec![fault],
            notes: Vec::new(),
        })
    }

    /// The exchanges that are under way, for the record.
    pub fn under_way(&self) -> impl Iterator<Item = &Exchange> {
        self.exchanges.iter().filter(|one| one.under_way())
    }
}

/// What a call that ended already makes of a further result: `Some(None)` gives the first answer again.
fn ended_code(call: &Call, decide: &Decide) -> Option<Option<Code>> {
    let repeated = decide.idempotency.is_some() && call.decided_by == decide.idempotency;
    match call.state {
        _ if call.answered() && call.holds(decide.result) => {
            Some(if repeated { None } else { Some(Code::Duplicate) })
        }
        _ if call.answered() => Some(Some(Code::Conflict)),
        CallState::TimedOut => Some(Some(Code::Late)),
        CallState::Unchosen => Some(Some(Code::Duplicate)),
        CallState::Superseded | CallState::Replaced => Some(Some(Code::Stale)),
        _ => None,
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
        name: decide.name.clone(),
        echoes: decide.echoes.clone(),
        edits_allowed: false,
        attempt: decide.attempt,
    }
}
