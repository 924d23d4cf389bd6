//! What happens to a conversation, and what comes of it.

pub use super::effects::{Effects, Fact, TaskOutcome, WriteOutcome};
pub use super::story::{Held, Part, Story};

use super::digest::Digest;
use crate::guard::fault::{Code, Fault};
use crate::wire::hex::Hex;
use minicbor::{Decode, Encode};
use std::fmt;

/// Milliseconds: a point in time (since the Unix epoch, by the store's clock) or a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct Millis(#[n(0)] pub u64);

impl Millis {
    /// This point, `span` later.
    #[must_use]
    pub fn after(self, span: Millis) -> Millis {
        Millis(self.0.saturating_add(span.0))
    }

    /// The span since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Millis) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

/// The id of one exchange, minted by the proxy at random.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
#[cbor(transparent)]
pub struct ExchangeId(#[n(0)] pub u128);

impl fmt::Display for ExchangeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Hex::of(self.0).as_str())
    }
}

impl fmt::Debug for ExchangeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The id of one running proxy, minted at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct Replica(#[n(0)] pub u64);

/// Something that happens to a conversation.
#[derive(Clone, Debug)]
pub enum Event {
    /// A request asks to go up.
    Admit(Admit),
    /// A response (or the held part of a stream) asks to go down.
    Settle(Settle),
    /// An exchange ended.
    Close(Close),
    /// Its replica asks whether an exchange is still wanted, and renews its lease.
    Check(ExchangeId),
    /// An application says that the user moved on.
    Advance(Advance),
    /// An application asks before it runs a tool.
    Start(Start),
    /// An application asks to decide on one result now.
    Decide(Decide),
    /// An application or operator says what became of a write.
    Resolve(Resolve),
    /// Time passes: deadlines and leases are looked at.
    Tick,
}

/// A request asks to go up.
#[derive(Clone, Debug)]
pub struct Admit {
    /// Minted for this exchange.
    pub exchange: ExchangeId,
    /// Who serves it.
    pub replica: Replica,
    /// The generation header.
    pub generation: Option<u64>,
    /// Digest of the list's beginning: leading system/developer messages and the first user message.
    pub lane: Digest,
    /// Digest of the whole message list.
    pub list: Digest,
    /// `x-stainless-retry-count` > 0.
    pub declared_retry: bool,
    /// Digest of the `idempotency-key`.
    pub idempotency: Option<Digest>,
    /// Every run of the list, in order; the last may be live.
    pub runs: Vec<Run>,
    /// What others call the exchange.
    pub names: Names,
}

/// What others call an exchange, kept for the record alone: neither id is made of the other, nor of ours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Names {
    /// The client's own `x-request-id`. `None`: it sent none, and ours is the exchange's id.
    #[n(0)]
    pub request_id: Option<Box<str>>,
    /// The id that we gave it for the upstream.
    #[n(1)]
    pub rid: Option<ExchangeId>,
}

/// A run of the list: an assistant message with calls, and its results.
#[derive(Clone, Debug)]
pub struct Run {
    /// Whether no assistant or user message follows: its results are being fed to the model now.
    pub live: bool,
    /// Each call with its result, in the order of the results.
    pub pairs: Vec<Pair>,
}

/// One call and its result, as a request offers them.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The id that both bear.
    pub id: Box<str>,
    /// The call's tool.
    pub tool: Box<str>,
    /// Digest of the call's arguments.
    pub arguments: Digest,
    /// Index of the result's message.
    pub message: usize,
    /// Digest of the result's content.
    pub result: Digest,
    /// Whether the content is one of the configured notices.
    pub closing: bool,
    /// Whether the message holds nothing else. What stands beside a notice may be what it stands for.
    pub bare: bool,
    /// The result's own `name`.
    pub name: Option<Box<str>>,
    /// Fields that the operator declared as echoed, found in the result: name and value digest.
    pub echoes: Vec<(Box<str>, Digest)>,
    /// Whether a human may have edited the arguments (`edits = "note"`).
    pub edits_allowed: bool,
    /// The attempt that the result names.
    pub attempt: Option<u32>,
}

/// A response asks to go down: what it proposes.
#[derive(Clone, Debug)]
pub struct Settle {
    /// Which exchange.
    pub exchange: ExchangeId,
    /// What it proposes: one alternative per choice that has calls. Empty: an answer.
    pub alternatives: Vec<Alternative>,
    /// Whether rules that would have refused let it out.
    pub forced: bool,
}

/// The calls of one choice.
#[derive(Clone, Debug)]
pub struct Alternative {
    /// The choice's index.
    pub choice: u64,
    /// Its calls.
    pub calls: Vec<Proposed>,
}

/// One call, as a model proposes it.
#[derive(Clone, Debug)]
pub struct Proposed {
    /// Its id.
    pub id: Box<str>,
    /// Its tool.
    pub tool: Box<str>,
    /// Digest of its arguments.
    pub arguments: Digest,
    /// Arguments that its result may echo: name and value digest.
    pub echoes: Vec<(Box<str>, Digest)>,
    /// How long its result may take.
    pub deadline: Option<Millis>,
    /// Whether the operator declared the tool a write.
    pub write: bool,
}

/// An exchange ended.
#[derive(Clone, Copy, Debug)]
pub struct Close {
    /// Which exchange.
    pub exchange: ExchangeId,
    /// How.
    pub ending: Ending,
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The last byte was handed to the client without an error.
    Delivered,
    /// The upstream gave no answer: not reached, an error of its own, or a timeout.
    UpstreamFailed,
    /// The model's output was refused.
    OutputRefused,
    /// The client went away.
    ClientGone {
        /// Whether bytes of the proposed calls had gone out.
        calls_sent: bool,
    },
    /// The answer was withheld.
    Withheld,
}

/// An application says that the user moved on.
#[derive(Clone, Debug)]
pub struct Advance {
    /// Minted for this call of the control API: a repeat of it does not advance again.
    pub exchange: ExchangeId,
    /// To this generation; `None`: to the next.
    pub generation: Option<u64>,
    /// Digest of the `idempotency-key`: the same one gives the first answer again.
    pub idempotency: Option<Digest>,
}

/// An application asks before it runs a tool.
#[derive(Clone, Debug)]
pub struct Start {
    /// Minted for this call of the control API: a repeat of it starts no further attempt.
    pub exchange: ExchangeId,
    /// The generation that the application says the call belongs to.
    pub generation: u64,
    /// The call's id.
    pub id: Box<str>,
}

/// One write of one task: what its operation key is made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    /// The task's generation.
    pub generation: u64,
    /// The tool.
    pub tool: Box<str>,
    /// Digest of the arguments.
    pub arguments: Digest,
    /// Which of the equal writes of that generation, from 0. Withdrawn ones do not count: what a retry
    /// proposes in their place is the same write.
    pub ordinal: u32,
}

/// An application or operator says what became of a write.
#[derive(Clone, Debug)]
pub struct Resolve {
    /// Which write.
    pub operation: Operation,
    /// Whether it took effect.
    pub applied: bool,
}

/// An application asks to decide on one result.
#[derive(Clone, Debug)]
pub struct Decide {
    /// Minted for this call of the control API: a repeat of it gives the first answer.
    pub exchange: ExchangeId,
    /// The generation that the application says it belongs to.
    pub generation: u64,
    /// The call's id.
    pub id: Box<str>,
    /// The tool, when the application names it.
    pub name: Option<Box<str>>,
    /// Digest of the content, as the later continuation will carry it.
    pub result: Digest,
    /// Whether the content is one of the configured notices.
    pub closing: bool,
    /// Declared echo fields found in the content.
    pub echoes: Vec<(Box<str>, Digest)>,
    /// The attempt that the result names.
    pub attempt: Option<u32>,
    /// Digest of the `idempotency-key`: the same one gives the first answer again.
    pub idempotency: Option<Digest>,
}

/// What came of an event.
#[derive(Clone, Debug)]
pub struct Transition {
    /// The answer to whoever brought the event.
    pub outcome: Outcome,
    /// What must happen outside.
    pub effects: Effects,
    /// What enforcing would have refused this very event for, where the rules only watch
    /// ([`super::rules::Rules::enforcing`]). Nothing where they enforce, or where it would have passed.
    pub would_refuse: Vec<Code>,
}

/// The answer to an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// `Admit`: go up.
    Admitted(Admitted),
    /// `Admit`, `Settle`, `Advance`, `Start`, `Decide`, `Resolve`: refused. A refused `Settle` releases
    /// nothing (`write_outcome_unknown`, `write_applied`); the exchange closes with `OutputRefused`.
    Refused(Refused),
    /// `Settle`, `Check`: still wanted; what is held may go down.
    Wanted,
    /// `Settle`: no longer wanted, but the rule is a note: it goes down all the same.
    Noted(Code),
    /// `Settle`, `Check`: no longer wanted: `stale_answer`, `overtaken`, or `budget_exhausted`.
    Withheld(Code),
    /// `Advance`: the generation now current, and what it ended.
    Advanced {
        /// The current generation.
        generation: u64,
        /// Ids of calls that are superseded now.
        superseded: Vec<Box<str>>,
        /// Exchanges cancelled.
        cancelled: usize,
    },
    /// `Decide`: accepted. Holds the call's tool.
    Accepted {
        /// The call's tool.
        tool: Box<str>,
    },
    /// `Start`: the tool may run.
    Started {
        /// The call's tool.
        tool: Box<str>,
        /// The number of this attempt, from 1: its result may name it.
        attempt: u32,
        /// When the result is too late.
        deadline: Option<Millis>,
        /// For writes: what the operation key is made of.
        operation: Option<Operation>,
    },
    /// `Close`, `Resolve`, `Tick`: done.
    Done,
}

/// A request may go up.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Admitted {
    /// Its generation.
    #[n(0)]
    pub generation: u64,
    /// Which try this is, from 1.
    #[n(1)]
    pub attempt: u32,
    /// Whether it is the first model call of its generation, or a further attempt at that.
    #[n(2)]
    pub first_call: bool,
    /// Results whose content the notice must replace.
    #[n(3)]
    pub substitutions: Vec<Substitution>,
    /// What was let through and is recorded.
    #[n(4)]
    pub notes: Vec<Fault>,
}

/// A result whose content the notice must replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Substitution {
    /// Index of its message.
    #[n(0)]
    pub message: usize,
    /// Which notice.
    #[n(1)]
    pub notice: Notice,
}

/// The two notices an operator words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Notice {
    /// The call timed out.
    #[n(0)]
    Timeout,
    /// The user moved on.
    #[n(1)]
    Superseded,
}

/// A refusal by the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The generation then current, when there is one.
    pub generation: Option<u64>,
    /// Why: at least one.
    pub faults: Vec<Fault>,
    /// What else was seen.
    pub notes: Vec<Fault>,
    /// The calls that the faults are about, as the ledger held them then.
    pub held: Vec<Held>,
}
