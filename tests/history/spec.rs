//! What one store would answer that never fails and takes one step at a time.
//!
//! The generation only rises. A call is registered when its answer goes down, and has one state after
//! that: open, then accepted with one content, or superseded by a newer generation, or replaced by a newer
//! attempt. One continuation is answered once. Nothing of an older generation, and nothing of an attempt
//! that another took over, goes down.

use super::calls::{CallState, Calls, Question};
use super::check::Rules;
use super::{Action, Op, Outcome};
use std::collections::{BTreeMap, BTreeSet};

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) generation: Option<u64>,
    calls: Calls,
    /// Who asked last, of the current generation.
    asked: BTreeMap<Question, Holder>,
    /// Exchanges under way that another took over.
    overtaken: BTreeSet<usize>,
}

/// An exchange that asked to go up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Holder {
    /// Nobody knows what became of it, so one is like the other.
    Lost,
    UnderWay(usize),
    /// It went down, with an answer that a client was told.
    Settled,
}

impl Op {
    /// Nobody was told what became of it.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.outcome, Outcome::Lost)
    }

    /// In how many steps it takes effect.
    pub(crate) fn steps(&self) -> u8 {
        match (&self.action, &self.outcome) {
            (Action::Open { .. } | Action::Continue { .. }, outcome) if outcome.went_up() => 2,
            _ => 1,
        }
    }

    /// Whether nothing that it might still do would be seen.
    pub(crate) fn is_spent(&self, state: &State) -> bool {
        if !self.is_lost() {
            return false;
        }
        let current = state.generation.unwrap_or(0);
        let finished = |call: &String| {
            state.calls.current_one(call).is_some_and(|call| call.state != CallState::Open)
        };
        match &self.action {
            Action::Open { generation, .. } | Action::Continue { generation, .. } => {
                *generation < current
            }
            Action::Decide { generation, call, .. } | Action::Start { generation, call } => {
                *generation < current || (*generation == current && finished(call))
            }
            Action::Advance { generation } => generation.is_some_and(|to| to <= current),
            Action::Read => true,
        }
    }
}

impl Outcome {
    fn is_answer(&self) -> bool {
        matches!(self, Outcome::Proposed(_) | Outcome::Answered)
    }

    /// Whether it tells of an exchange that went up to the model and asked to go down.
    fn went_up(&self) -> bool {
        let withheld = |code: &String| code == "stale_answer" || code == "overtaken";
        self.is_answer() || matches!(self, Outcome::Refused(code) if withheld(code))
    }
}

impl State {
    /// The state after the next step of an operation, of which `taken` were taken; `None` when the answer
    /// that it got does not go with this state.
    pub(crate) fn step(&self, ops: &[Op], me: usize, taken: u8, rules: Rules) -> Option<State> {
        let op = &ops[me];
        if taken == 1 {
            return self.down(op, me, rules);
        }
        if let Outcome::Refused(code) = &op.outcome
            && !op.outcome.went_up()
        {
            return self.refuses(&op.action, code).then(|| self.clone());
        }
        let lost = op.is_lost();
        match (&op.action, &op.outcome) {
            (Action::Open { generation, question }, _) => {
                let mut next = self.reaching(*generation)?;
                let question = Question::Opening(question.clone());
                let theirs = next.calls.all_open().filter(|call| call.question == question);
                theirs.for_each(|call| call.finish(CallState::Replaced));
                next.hold(question, me, ops);
                Some(next)
            }
            (Action::Continue { generation, call, content, declared }, _) => {
                let mut next = self.reaching(*generation)?;
                next.accept(*generation, call, content, true)?;
                let question = Question::Result(call.clone());
                if let Some(holder) = next.asked.get(&question)
                    && !declared
                    && !holder.may_have_failed(ops, rules)
                {
                    return None;
                }
                next.hold(question, me, ops);
                Some(next)
            }
            (Action::Decide { generation, call, content }, Outcome::Accepted | Outcome::Lost) => {
                let mut next = self.clone();
                next.accept(*generation, call, content, false)?;
                Some(next)
            }
            (Action::Start { generation, call }, Outcome::Started(_) | Outcome::Lost) => {
                let mut next = self.clone();
                if self.generation != Some(*generation) {
                    return None;
                }
                let known = next.calls.open(call)?;
                known.started += 1;
                (lost || op.outcome == Outcome::Started(known.started)).then_some(next)
            }
            (Action::Advance { generation }, outcome) => self.advance(*generation, outcome, ops),
            (Action::Read, Outcome::Record(record)) => {
                let told = self.generation == record.generation
                    && self.calls.are_recorded(self.generation, record, || may_be_unknown(ops));
                told.then(|| self.clone())
            }
            _ => None,
        }
    }

    /// An exchange asks to go down.
    fn down(&self, op: &Op, me: usize, rules: Rules) -> Option<State> {
        let (Action::Open { generation, .. } | Action::Continue { generation, .. }) = &op.action
        else {
            return None;
        };
        let question = question_of(&op.action);
        let current = self.generation == Some(*generation);
        let overtaken = self.overtaken.contains(&me);
        let mut next = self.clone();
        match &op.outcome {
            Outcome::Refused(code) if code == "overtaken" => {
                // Given up by the others, even if nobody tried again.
                let lapsed = rules.leases_lapse && current;
                (next.overtaken.remove(&me) || lapsed).then_some(next)
            }
            Outcome::Refused(_) => (!current && !overtaken).then_some(next),
            outcome => {
                let holder = next.asked.get_mut(&question)?;
                if !current || overtaken || *holder != Holder::UnderWay(me) {
                    return None;
                }
                *holder = Holder::Settled;
                let Outcome::Proposed(calls) = outcome else { return Some(next) };
                let mut each = calls.iter();
                each.all(|id| next.calls.register(id, &question)).then_some(next)
            }
        }
    }

    /// The state once that generation is current; `None` when a newer one is.
    fn reaching(&self, generation: u64) -> Option<State> {
        let mut next = self.clone();
        match self.generation {
            Some(current) if generation < current => return None,
            Some(current) if generation == current => return Some(next),
            before => next.calls.supersede(before.unwrap_or(0)),
        }
        next.generation = Some(generation);
        next.asked.clear();
        Some(next)
    }

    fn hold(&mut self, question: Question, me: usize, ops: &[Op]) {
        let before = if !ops[me].is_lost() {
            self.asked.insert(question, Holder::UnderWay(me))
        } else if matches!(question, Question::Result(_)) {
            self.asked.insert(question, Holder::Lost)
        } else {
            // Nobody asks who opened, but to take over from him.
            self.asked.remove(&question)
        };
        if let Some(Holder::UnderWay(before)) = before {
            self.overtaken.insert(before);
        }
    }

    /// A call's one content. Again with the same only where `again`.
    fn accept(&mut self, generation: u64, call: &str, content: &str, again: bool) -> Option<()> {
        if self.generation != Some(generation) {
            return None;
        }
        match self.calls.open(call) {
            Some(call) => call.finish(CallState::Accepted(content.to_owned())),
            None => match &self.calls.current_one(call)?.state {
                CallState::Accepted(before) if again && before == content => {}
                _ => return None,
            },
        }
        Some(())
    }

    fn advance(&self, to: Option<u64>, outcome: &Outcome, ops: &[Op]) -> Option<State> {
        let current = self.generation.unwrap_or(0);
        let to = to.unwrap_or(current + 1);
        let next = self.reaching(to)?;
        let Outcome::Advanced { generation, superseded } = outcome else {
            return (*outcome == Outcome::Lost).then_some(next);
        };
        let moved = to > current || self.generation.is_none();
        let open = |id: &String| match self.calls.find(id) {
            Some((_, state)) => *state == CallState::Open,
            None => may_be_unknown(ops),
        };
        let told = |id: &String| superseded.contains(id);
        let all_told = self
            .calls
            .current()
            .filter(|(_, call)| moved && call.state == CallState::Open)
            .all(|(id, _)| told(id));
        let right = *generation == to && all_told && superseded.iter().all(open);
        (right && (moved || superseded.is_empty())).then_some(next)
    }

    /// Whether a refusal with that code is right here; it changes nothing.
    fn refuses(&self, action: &Action, code: &str) -> bool {
        let current = self.generation.unwrap_or(0);
        let (generation, call, content) = match action {
            Action::Open { generation, .. } => return older(code, *generation, current),
            Action::Advance { generation } => {
                return generation.is_some_and(|to| older(code, to, current));
            }
            Action::Continue { generation, .. } if code == "stale_generation" => {
                return *generation < current;
            }
            Action::Continue { generation, .. } if *generation != current => return false,
            Action::Continue { generation, call, content, .. }
            | Action::Decide { generation, call, content } => (*generation, call, Some(content)),
            Action::Start { generation, call } => (*generation, call, None),
            Action::Read => return false,
        };
        let Some((of, state)) = self.calls.find(call) else { return code == "unmatched" };
        match (state, code) {
            (CallState::Accepted(before), "duplicate") => {
                let held = || self.asked.contains_key(&Question::Result(call.clone()));
                content.is_none_or(|content| content == before)
                    && (!matches!(action, Action::Continue { .. }) || held())
            }
            (CallState::Accepted(before), "conflict") => {
                content.is_some_and(|other| other != before)
            }
            (CallState::Superseded | CallState::Replaced, "stale") => true,
            (CallState::Open, "stale") => generation != of.unwrap_or(current),
            _ => false,
        }
    }
}

impl Holder {
    fn may_have_failed(&self, ops: &[Op], rules: Rules) -> bool {
        match self {
            Holder::Lost => true,
            Holder::UnderWay(op) => rules.leases_lapse && !ops[*op].outcome.is_answer(),
            Holder::Settled => false,
        }
    }
}

fn question_of(action: &Action) -> Question {
    match action {
        Action::Open { question, .. } => Question::Opening(question.clone()),
        Action::Continue { call, .. } => Question::Result(call.clone()),
        _ => Question::Opening(String::new()),
    }
}

fn older(code: &str, generation: u64, current: u64) -> bool {
    code == "stale_generation" && generation < current
}

/// Whether there may be calls that no client was told of: the answer was lost, or withheld at the last
/// moment, when it had been registered.
fn may_be_unknown(ops: &[Op]) -> bool {
    let untold = |op: &Op| op.is_lost() || (op.steps() == 2 && !op.outcome.is_answer());
    ops.iter().any(|op| untold(op) && matches!(op.action, Action::Open { .. }))
}
