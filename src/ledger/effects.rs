//! What must happen outside after an event is committed: cancellations, metrics, the record.

use super::event::{ExchangeId, Millis};
use super::lanes::Limit;
use super::story::Story;
use crate::guard::fault::Code;
use minicbor::{Decode, Encode};

/// What must happen outside after an event is committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Exchanges in flight that are no longer wanted, and why.
    pub cancel: Vec<(ExchangeId, Code)>,
    /// What happened, for metrics and the record.
    pub facts: Vec<Fact>,
    /// What is to be written down: tasks that ended, and what came after their end.
    pub stories: Vec<Story>,
    /// Calls opened less calls ended.
    pub open_calls: i64,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A call was registered.
    CallRegistered {
        /// Its tool.
        tool: Box<str>,
        /// Whether it was let out although a rule would have refused it.
        forced: bool,
    },
    /// A result was accepted, or refused with a code.
    ResultDecided {
        /// Its tool.
        tool: Box<str>,
        /// `None`: accepted.
        code: Option<Code>,
        /// Time from the call's release to the decision.
        waited: Option<Millis>,
    },
    /// A call's result was accepted: it was awaited since then.
    CallAnswered {
        /// The call's id.
        call: Box<str>,
        /// Its tool.
        tool: Box<str>,
        /// When it was let out.
        registered: Millis,
        /// The exchange that proposed it.
        proposed_by: ExchangeId,
    },
    /// A result was let in although a rule would have refused it.
    ResultForced,
    /// A client's own notice stands in place of a result: the call ended, and nothing was accepted.
    ResultClosed,
    /// A write's outcome became unknown, or an unknown one's became known.
    WriteBecame(WriteOutcome),
    /// A call timed out by itself.
    CallTimedOut {
        /// Its tool.
        tool: Box<str>,
    },
    /// A generation's task ended.
    TaskEnded {
        /// Which generation.
        generation: u64,
        /// How.
        outcome: TaskOutcome,
        /// What it ran out of, when it is incomplete.
        limit: Option<Limit>,
        /// How long it took.
        took: Millis,
    },
}

/// What is known of a write that ended without an accepted result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteOutcome {
    /// It timed out, was superseded or was replaced after its bytes may have gone out.
    Unknown,
    /// It was unknown, and its late result came.
    Reported,
    /// It was unknown, and somebody said that it took effect.
    Applied,
    /// It was unknown, and somebody said that it did not.
    NotApplied,
    /// It was unknown, and it turned out that nobody can have run it.
    Withdrawn,
    /// It was unknown when its conversation was forgotten: nobody will be told.
    Forgotten,
}

impl WriteOutcome {
    /// The label in metrics and the record.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            WriteOutcome::Unknown => "unknown",
            WriteOutcome::Reported => "reported",
            WriteOutcome::Applied => "applied",
            WriteOutcome::NotApplied => "not_applied",
            WriteOutcome::Withdrawn => "withdrawn",
            WriteOutcome::Forgotten => "forgotten",
        }
    }
}

/// How a generation's task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum TaskOutcome {
    /// An answer without calls was delivered while current.
    #[n(0)]
    Completed,
    /// The user moved on.
    #[n(1)]
    Superseded,
    /// The budget or the deadline ended it.
    #[n(2)]
    Incomplete,
    /// Its last attempt failed and nothing followed.
    #[n(3)]
    Failed,
    /// The conversation expired.
    #[n(4)]
    Expired,
}

impl TaskOutcome {
    /// The label in metrics and the record.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            TaskOutcome::Completed => "completed",
            TaskOutcome::Superseded => "superseded",
            TaskOutcome::Incomplete => "incomplete",
            TaskOutcome::Failed => "failed",
            TaskOutcome::Expired => "expired",
        }
    }
}
