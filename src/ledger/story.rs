//! What is written down of a conversation: each task once, when it ends, and what comes after that.
//!
//! Whoever commits the event that ends a task commits its story with it. So a task that several replicas
//! served, or that went on after a restart, is told once and whole: from the state that was committed, not
//! from what one process happened to see. Stories hold what the ledger holds: ids, digests, states and times.

use super::Conversation;
use super::calls::{Call, Proposal};
use super::digest::Digest;
use super::event::{ExchangeId, Millis, Outcome, TaskOutcome};
use super::exchanges::Exchange;
use super::lanes::{Lane, LaneKey, Task};
use super::step::Step;
use crate::guard::fault::Code;

/// A piece of the record of one generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Story {
    /// What it tells.
    pub part: Part,
    /// When that happened.
    pub at: Millis,
    /// The lane, by number.
    pub lane: u32,
    /// Whether the client counts the lane's generations.
    pub by_header: bool,
    /// The generation.
    pub generation: u64,
    /// Its task as it stood, if it was still the lane's current one.
    pub task: Option<Task>,
    /// The exchanges told of, oldest first.
    pub exchanges: Vec<Exchange>,
    /// The proposals told of, with their calls.
    pub proposals: Vec<Proposal>,
}

/// What a story tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The whole task, as it ended.
    Task(TaskOutcome),
    /// One exchange that ended after its task's story was told.
    After,
    /// A result that was refused.
    Result {
        /// Its call's id.
        id: Box<str>,
        /// Why.
        code: Code,
        /// Its digest.
        result: Digest,
        /// The exchange, or the question to the control API, that brought it.
        by: ExchangeId,
    },
}

/// A call as the ledger held it when something about it was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its generation.
    pub generation: u64,
    /// Whether that was the current one of its lane.
    pub current: bool,
    /// The call.
    pub call: Call,
}

/// A refused result: where its call is registered, and why it was refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Returned {
    /// The proposal.
    pub(super) seq: u64,
    /// The call's place in it.
    pub(super) call: usize,
    /// Why.
    pub(super) code: Code,
    /// The result.
    pub(super) result: Digest,
}

impl Story {
    /// That a task ended. What it holds is filled in by [`Conversation::tell_whole`].
    pub(super) fn of_task(lane: &Lane, outcome: TaskOutcome, at: Millis) -> Story {
        Story {
            part: Part::Task(outcome),
            at,
            lane: lane.number,
            by_header: lane.key == LaneKey::Header,
            generation: lane.task.generation,
            task: Some(lane.task.clone()),
            exchanges: Vec::new(),
            proposals: Vec::new(),
        }
    }
}

impl Conversation {
    /// Fills the stories of tasks that this step ended, before what they tell of is let go.
    pub(super) fn tell_whole(&self, step: &mut Step<'_>) {
        for story in &mut step.effects.stories {
            if matches!(story.part, Part::Task(_)) && story.exchanges.is_empty() {
                let (lane, generation) = (story.lane, story.generation);
                let theirs = |one: &&Exchange| one.lane == lane && one.generation == generation;
                story.exchanges = self.exchanges.iter().filter(theirs).cloned().collect();
                story.proposals = self.proposals_of(lane, generation);
            }
        }
    }

    /// What was proposed in that generation, oldest first. A proposal of an older one was let out before all of
    /// them, or forced: so this looks at what came since, and not at all that is remembered.
    fn proposals_of(&self, lane: u32, generation: u64) -> Vec<Proposal> {
        let since =
            |one: &&Proposal| one.lane != lane || one.generation >= generation || one.forced;
        let theirs = |one: &&Proposal| one.lane == lane && one.generation == generation;
        let newest_first = self.calls.iter().rev().take_while(since).filter(theirs);
        let mut proposals: Vec<Proposal> = newest_first.cloned().collect();
        proposals.reverse();
        proposals
    }

    /// Tells of an exchange that ended after its task's story.
    pub(super) fn tell_after(&self, id: ExchangeId, step: &mut Step<'_>) {
        let told = self.exchanges.get(id).filter(|_| step.rules.told);
        let Some(exchange) = told else { return };
        let answers = exchange.kind.proposal();
        let answered = answers.and_then(|seq| self.calls.get(seq));
        let proposed = self.calls.of_exchange(id).filter(|one| Some(one.seq) != answers);
        let proposals = answered.into_iter().chain(proposed).cloned().collect();
        let mut story = self.story(Part::After, exchange.lane, exchange.generation, step.now);
        story.exchanges = vec![exchange.clone()];
        story.proposals = proposals;
        step.effects.stories.push(story);
    }

    /// Tells of a result that was refused.
    pub(super) fn tell_returned(&self, returned: Returned, by: ExchangeId, step: &mut Step<'_>) {
        let Some(of) = self.calls.get(returned.seq).filter(|_| step.rules.told) else { return };
        let Some(call) = of.calls.get(returned.call) else { return };
        let Returned { code, result, .. } = returned;
        let part = Part::Result { id: call.id.clone(), code, result, by };
        let mut story = self.story(part, of.lane, of.generation, step.now);
        story.proposals = vec![Proposal { calls: vec![call.clone()], ..of.clone() }];
        step.effects.stories.push(story);
    }

    fn story(&self, part: Part, lane: u32, generation: u64, at: Millis) -> Story {
        let found = self.lanes.get(lane);
        let task = found.map(|lane| &lane.task).filter(|task| task.generation == generation);
        Story {
            part,
            at,
            lane,
            by_header: found.is_some_and(|lane| lane.key == LaneKey::Header),
            generation,
            task: task.cloned(),
            exchanges: Vec::new(),
            proposals: Vec::new(),
        }
    }

    /// Whether the story of that generation's task was told.
    pub(super) fn is_told(&self, lane: u32, generation: u64) -> bool {
        let task = self.lanes.get(lane).map(|lane| &lane.task);
        task.is_none_or(|task| task.generation != generation || task.counted)
    }

    /// What the ledger holds of the calls that a refusal is about.
    pub(super) fn hold_up(&self, outcome: &mut Outcome) {
        let Outcome::Refused(refused) = outcome else { return };
        let mut ids: Vec<&str> = Vec::new();
        for id in refused.faults.iter().filter_map(|fault| fault.tool_call_id.as_deref()) {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        refused.held = ids
            .into_iter()
            .filter_map(|id| {
                let of = self.calls.with_id(id).next()?;
                let call = of.calls.get(of.call(id, None)?)?.clone();
                let current = self.lanes.current(of.lane, of.generation);
                Some(Held { generation: of.generation, current, call })
            })
            .collect();
    }
}
