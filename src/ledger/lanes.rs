//! Lanes and their current tasks.
//!
//! With the generation header a conversation has one lane, whose numbers the client gives. Without it
//! each thread of messages is a lane that counts by itself.

use super::digest::Digest;
use super::event::{ExchangeId, Millis, TaskOutcome};
use super::marked::{Change, Marked, Moves, Noted};
use minicbor::{Decode, Encode, decode};

/// The last generation there is: beyond it JSON numbers are not exact.
pub const LAST_GENERATION: u64 = (1 << 53) - 1;

/// What an incomplete task ran out of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Limit {
    /// Its model calls.
    #[n(0)]
    ModelCalls,
    /// The attempts at one opening or continuation.
    #[n(1)]
    Attempts,
    /// Its time.
    #[n(2)]
    Time,
    /// Its tool calls.
    #[n(3)]
    ToolCalls,
}

impl Limit {
    /// The name in the record.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Limit::ModelCalls => "model_calls",
            Limit::Attempts => "attempts",
            Limit::Time => "deadline",
            Limit::ToolCalls => "tool_calls",
        }
    }
}

/// The task of a lane's current generation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Task {
    /// The generation's number.
    #[n(0)]
    pub generation: u64,
    /// When its first model call was made (before that: when the generation began).
    #[n(1)]
    pub started: Millis,
    /// Openings and continuations so far, without further attempts.
    #[n(2)]
    pub model_calls: u32,
    /// The list of the opening that began it.
    #[n(3)]
    pub opening: Option<Digest>,
    /// How it ended, if it did and nothing was asked of it since.
    #[n(4)]
    pub ended: Option<TaskOutcome>,
    /// What it ran out of, when it is incomplete.
    #[n(5)]
    pub limit: Option<Limit>,
    /// The request that went beyond it: the same event again is refused again.
    #[n(6)]
    pub exhausted_by: Option<ExchangeId>,
    /// Whether its end was told: each task is counted once.
    #[n(7)]
    pub counted: bool,
    /// Whether its last exchange came to nothing.
    #[n(8)]
    pub failed: bool,
    /// When the generation began, if its time ran anew since.
    #[n(9)]
    #[cbor(default)]
    began: Option<Millis>,
    /// Tool calls let out so far; those that a further attempt replaced do not count.
    #[n(10)]
    #[cbor(default)]
    pub tool_calls: u32,
}

impl Task {
    /// A generation that begins now.
    #[must_use]
    pub fn new(generation: u64, now: Millis) -> Self {
        Task {
            generation,
            started: now,
            model_calls: 0,
            opening: None,
            ended: None,
            limit: None,
            exhausted_by: None,
            counted: false,
            failed: false,
            began: None,
            tool_calls: 0,
        }
    }

    /// When the generation began, whatever was asked of it since.
    #[must_use]
    pub fn began(&self) -> Millis {
        self.began.unwrap_or(self.started)
    }

    /// It is under way, from now on: its time runs anew.
    pub fn restart(&mut self, now: Millis) {
        self.ended = None;
        self.limit = None;
        self.began = self.began.or(Some(self.started).filter(|started| *started != now));
        self.started = now;
    }
}

/// What tells one lane from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(flat)]
pub enum LaneKey {
    /// The lane whose generations the header gives.
    #[n(0)]
    Header,
    /// A thread of messages, by the digest of its beginning.
    #[n(1)]
    Thread(#[n(0)] Digest),
}

/// One lane.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Lane {
    /// Rises by one with each lane of the conversation.
    #[n(0)]
    pub number: u32,
    /// What tells it from others.
    #[n(1)]
    pub key: LaneKey,
    /// Its current task.
    #[n(2)]
    pub task: Task,
}

impl Moves for Lane {
    type Moved = Task;

    fn moved(&self) -> Task {
        let Lane { number: _, key: _, task } = self;
        task.clone()
    }

    fn move_to(&mut self, moved: Task) -> bool {
        self.task = moved;
        true
    }
}

/// All lanes of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Lanes {
    #[n(0)]
    next: u32,
    #[n(1)]
    list: Marked<Lane>,
    /// The generation that the control API advanced to before any lane was there.
    #[n(2)]
    pub floor: u64,
}

impl Lanes {
    /// The lane of that number.
    #[must_use]
    pub fn get(&self, number: u32) -> Option<&Lane> {
        self.list.iter().find(|lane| lane.number == number)
    }

    /// The lane of that number, to be changed.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut Lane> {
        let at = self.place(number)?;
        self.list.get_mut(at)
    }

    /// The lane of that key.
    #[must_use]
    pub fn find(&self, key: LaneKey) -> Option<&Lane> {
        self.list.iter().rev().find(|lane| lane.key == key)
    }

    /// Adds a lane whose current generation is `generation`; gives its number.
    pub fn add(&mut self, key: LaneKey, generation: u64, now: Millis) -> u32 {
        let number = self.next;
        self.next += 1;
        self.list.push(Lane { number, key, task: Task::new(generation, now) });
        number
    }

    /// The lane was used just now: it is folded last.
    pub fn touch(&mut self, number: u32) {
        let at = self.place(number).filter(|at| at + 1 < self.list.len());
        if let Some(lane) = at.and_then(|at| self.list.remove(at)) {
            self.list.push(lane);
        }
    }

    fn place(&self, number: u32) -> Option<usize> {
        self.list.iter().position(|lane| lane.number == number)
    }

    /// All of them, the one last used at the end.
    pub fn iter(&self) -> impl Iterator<Item = &Lane> {
        self.list.iter()
    }

    /// Whether that generation is its lane's current one.
    #[must_use]
    pub fn current(&self, lane: u32, generation: u64) -> bool {
        self.get(lane).is_some_and(|lane| lane.task.generation == generation)
    }

    /// The highest current generation, or the floor.
    #[must_use]
    pub fn highest(&self) -> u64 {
        self.list.iter().map(|lane| lane.task.generation).fold(self.floor, u64::max)
    }

    /// The highest current generation of any lane there is.
    #[must_use]
    pub fn highest_task(&self) -> Option<u64> {
        self.list.iter().map(|lane| lane.task.generation).max()
    }

    /// Forgets the lanes longest unused, beyond `kept`, that `idle` allows.
    pub fn fold(&mut self, kept: usize, idle: impl Fn(&Lane) -> bool) -> Vec<Lane> {
        let mut gone = Vec::new();
        while self.list.len() > kept {
            let Some(at) = self.list.iter().position(&idle) else { break };
            gone.extend(self.list.remove(at));
        }
        gone
    }

    /// They were written as they are now.
    pub(super) fn written(&mut self) {
        self.list.written();
    }

    /// What became of them since. `None`: more than is worth noting.
    pub(super) fn change(&self) -> Option<LanesNoted<'_>> {
        Some(LanesNoted { next: self.next, list: self.list.change()?, floor: self.floor })
    }

    /// Makes the change that was read.
    pub(super) fn make(&mut self, change: LanesChange) -> Result<(), decode::Error> {
        (self.next, self.floor) = (change.next, change.floor);
        change.list.make(&mut self.list)
    }
}

/// What became of [`Lanes`], as it is written.
#[derive(Encode)]
pub(super) struct LanesNoted<'a> {
    #[n(0)]
    next: u32,
    #[n(1)]
    list: Noted<'a, Lane>,
    #[n(2)]
    floor: u64,
}

/// The same, as it is read.
#[derive(Decode)]
pub(super) struct LanesChange {
    #[n(0)]
    next: u32,
    #[n(1)]
    list: Change<Lane>,
    #[n(2)]
    floor: u64,
}
