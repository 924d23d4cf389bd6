//! Proposals and their calls: what was registered before a client saw it, and how each call ended.
//!
//! ```text
//!            result accepted ───────────────► Accepted   (one result, for ever)
//!           │closing (client's own notice) ─► Closed
//!   Open ───┤deadline ──────────────────────► TimedOut
//!           │user moved on ─────────────────► Superseded
//!           │newer attempt / never sent ────► Replaced
//!           └left out of the run, or another choice was answered ─► Unchosen
//! ```
//! Every arrow leaves `Open`; nothing leaves a final state. What a rule set to `note` let in is kept
//! beside the state (`forced`), never over it.

mod index;
mod moved;
mod register;

pub use register::{Origin, Register};

use super::digest::Digest;
use super::event::{ExchangeId, Millis, Pair, Proposed};
use minicbor::{Decode, Encode};

/// How a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(flat)]
pub enum CallState {
    /// Registered, not yet answered.
    #[n(0)]
    Open,
    /// Answered: the digest of its one result.
    #[n(1)]
    Accepted(#[n(0)] Digest),
    /// The client put a notice in place of a result: its digest.
    #[n(2)]
    Closed(#[n(0)] Digest),
    /// Its deadline passed first.
    #[n(3)]
    TimedOut,
    /// The user moved on first.
    #[n(4)]
    Superseded,
    /// A newer attempt took over, or its bytes never went out.
    #[n(5)]
    Replaced,
    /// The run that answered its message left it out, or took another choice.
    #[n(6)]
    Unchosen,
}

impl CallState {
    /// The name in the record.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            CallState::Open => "open",
            CallState::Accepted(_) => "accepted",
            CallState::Closed(_) => "closed",
            CallState::TimedOut => "timed_out",
            CallState::Superseded => "superseded",
            CallState::Replaced => "replaced",
            CallState::Unchosen => "unchosen",
        }
    }
}

/// What is known of a write that got no accepted result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Written {
    /// Its bytes never went out, or a declared retry replaced it: it was not run.
    #[n(0)]
    Withdrawn,
    /// Its result came too late for the model, but it came.
    #[n(1)]
    Reported,
    /// An application or operator says that it took effect.
    #[n(2)]
    Applied,
    /// An application or operator says that it did not.
    #[n(3)]
    NotApplied,
}

impl Written {
    /// The name in the record.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Written::Withdrawn => "withdrawn",
            Written::Reported => "reported",
            Written::Applied => "applied",
            Written::NotApplied => "not_applied",
        }
    }
}

/// One registered call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Call {
    /// Its id.
    #[n(0)]
    pub id: Box<str>,
    /// Its tool.
    #[n(1)]
    pub tool: Box<str>,
    /// Digest of its arguments.
    #[n(2)]
    pub arguments: Digest,
    /// Arguments that its result may echo.
    #[n(3)]
    pub echoes: Vec<(Box<str>, Digest)>,
    /// The choice that proposed it.
    #[n(4)]
    pub choice: u64,
    /// When it was registered.
    #[n(5)]
    pub registered: Millis,
    /// When its result is too late.
    #[n(6)]
    pub deadline: Option<Millis>,
    /// Whether the tool is declared a write.
    #[n(7)]
    pub write: bool,
    /// Attempts that were started (numbered from 1).
    #[n(8)]
    pub started: u32,
    /// How it stands.
    #[n(9)]
    pub state: CallState,
    /// A result that was let in although a rule would have refused it.
    #[n(10)]
    pub forced: Option<Digest>,
    /// When it ended.
    #[n(11)]
    pub ended: Option<Millis>,
    /// The control API call that decided it, and its `idempotency-key`.
    #[n(12)]
    pub decided_by: Option<(ExchangeId, Option<Digest>)>,
    /// The control API call that started the last attempt.
    #[n(13)]
    pub started_by: Option<ExchangeId>,
    /// Which of the equal writes of its generation it is.
    #[n(14)]
    pub ordinal: u32,
    /// What is known of a write that got no accepted result.
    #[n(15)]
    pub written: Option<Written>,
    /// When somebody said what became of it.
    #[n(16)]
    #[cbor(default)]
    pub resolved: Option<Millis>,
}

impl Call {
    /// Whether `result` is what was let in for this call.
    #[must_use]
    pub fn holds(&self, result: Digest) -> bool {
        self.forced == Some(result)
            || matches!(self.state, CallState::Accepted(d) | CallState::Closed(d) if d == result)
    }

    /// Whether a result was let in: accepted, closed by the client, or forced.
    #[must_use]
    pub fn answered(&self) -> bool {
        self.forced.is_some() || matches!(self.state, CallState::Accepted(_) | CallState::Closed(_))
    }

    /// Whether only a closing may stand for it: it ended without an answer and its task is gone.
    #[must_use]
    pub fn barred(&self) -> bool {
        !self.answered()
            && matches!(
                self.state,
                CallState::TimedOut | CallState::Superseded | CallState::Replaced
            )
    }

    /// Whether the offered pair is this very call: tool and arguments.
    #[must_use]
    pub fn is(&self, pair: &Pair) -> bool {
        self.tool == pair.tool && (pair.edits_allowed || self.arguments == pair.arguments)
    }
}

/// The calls of one assistant message.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Proposal {
    /// Rises by one with each proposal of the conversation.
    #[n(0)]
    pub seq: u64,
    /// The exchange that proposed it.
    #[n(1)]
    pub exchange: ExchangeId,
    /// Its lane, by number.
    #[n(2)]
    pub lane: u32,
    /// Its generation.
    #[n(3)]
    pub generation: u64,
    /// Whether a rule would have refused it.
    #[n(4)]
    pub forced: bool,
    /// Whether the answer to its results was delivered.
    #[n(5)]
    pub delivered: bool,
    /// Its calls, of all choices.
    #[n(6)]
    pub calls: Vec<Call>,
}

impl Proposal {
    /// The call of that id. With several choices, of `choice` if given.
    #[must_use]
    pub fn call(&self, id: &str, choice: Option<u64>) -> Option<usize> {
        self.calls
            .iter()
            .position(|call| *call.id == *id && choice.is_none_or(|choice| call.choice == choice))
    }

    /// The choice that these pairs answer: the one whose calls they are, else the first that holds all
    /// their ids (choices may use the same ids).
    #[must_use]
    pub fn choice_of(&self, pairs: &[Pair]) -> Option<u64> {
        let first = pairs.first()?;
        let choices =
            || self.calls.iter().filter(|call| call.id == first.id).map(|call| call.choice);
        let holds = |choice: u64, same: bool| {
            pairs.iter().all(|pair| {
                let at = self.call(&pair.id, Some(choice));
                at.is_some_and(|at| !same || self.calls[at].is(pair))
            })
        };
        choices().find(|one| holds(*one, true)).or_else(|| choices().find(|one| holds(*one, false)))
    }

    /// The calls of its largest choice: no run can answer more of it.
    #[must_use]
    pub fn most_calls(&self) -> u32 {
        let of = |choice: u64| self.calls.iter().filter(|call| call.choice == choice).count();
        let most = self.calls.iter().map(|call| of(call.choice)).max();
        u32::try_from(most.unwrap_or(0)).unwrap_or(u32::MAX)
    }

    /// Whether any of its calls is open, or a write whose outcome is unknown.
    #[must_use]
    pub fn unsettled(&self) -> bool {
        self.calls.iter().any(|call| call.state == CallState::Open || call.unknown_write())
    }

    /// Whether any of its calls is open.
    #[must_use]
    pub fn open(&self) -> bool {
        self.calls.iter().any(|call| call.state == CallState::Open)
    }
}

impl Call {
    /// A call that was just proposed.
    fn open(call: &Proposed, choice: u64, now: Millis) -> Call {
        Call {
            id: call.id.clone(),
            tool: call.tool.clone(),
            arguments: call.arguments,
            echoes: call.echoes.clone(),
            choice,
            registered: now,
            deadline: call.deadline.map(|span| now.after(span)),
            write: call.write,
            started: 0,
            state: CallState::Open,
            forced: None,
            ended: None,
            decided_by: None,
            started_by: None,
            ordinal: 0,
            written: None,
            resolved: None,
        }
    }
}
