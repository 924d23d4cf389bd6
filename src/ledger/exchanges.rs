//! Exchanges: which model calls a generation made, and how each ended.
//!
//! ```text
//!   Flight ──settle──► Settled ──last byte──► Delivered
//!     │                   │
//!     ├───────────────────┼─ upstream failed, output refused, client gone, lease lapsed ─► Failed
//!     └───────────────────┴─ generation moved on, newer attempt, budget ─► Withheld(why)
//! ```
//! Nothing leaves `Delivered`, `Failed` or `Withheld`: what came first stays the reason. An exchange is
//! remembered until its replica closed it (or its lease lapsed), so that the reason can still be asked.

mod remembered;

pub use remembered::Exchanges;

use super::digest::Digest;
use super::event::{Admitted, Ending, ExchangeId, Millis, Names, Replica};
use super::marked::Moves;
use crate::guard::fault::Code;
use minicbor::{Decode, Encode};

/// What an exchange does for its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(flat)]
pub enum Kind {
    /// Starts work.
    #[n(0)]
    Opening,
    /// Feeds the results of that proposal back.
    #[n(1)]
    Continuation(#[n(0)] u64),
    /// Goes on after that proposal with notices in place of results that were accepted before: the way
    /// out of a conflict. It is no repeat of the continuation, and leaves that one alone.
    #[n(2)]
    Recovery(#[n(0)] u64),
}

impl Kind {
    /// The name in the record.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Opening => "opening",
            Kind::Continuation(_) => "continuation",
            Kind::Recovery(_) => "recovery",
        }
    }

    /// The proposal whose run the list ends in.
    #[must_use]
    pub fn proposal(self) -> Option<u64> {
        match self {
            Kind::Opening => None,
            Kind::Continuation(seq) | Kind::Recovery(seq) => Some(seq),
        }
    }
}

/// How an exchange stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(flat)]
pub enum FlightState {
    /// At the upstream.
    #[n(0)]
    Flight,
    /// Its response may go down.
    #[n(1)]
    Settled,
    /// Its last byte was handed to the client.
    #[n(2)]
    Delivered,
    /// It came to nothing.
    #[n(3)]
    Failed,
    /// It may not be answered any more, and why.
    #[n(4)]
    Withheld(#[n(0)] Code),
}

/// One exchange.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Exchange {
    /// Its id.
    #[n(0)]
    pub id: ExchangeId,
    /// Who serves it.
    #[n(1)]
    pub replica: Replica,
    /// Its lane, by number.
    #[n(2)]
    pub lane: u32,
    /// Its generation.
    #[n(3)]
    pub generation: u64,
    /// What it does.
    #[n(4)]
    pub kind: Kind,
    /// Digest of its message list.
    #[n(5)]
    pub list: Digest,
    /// Which try of the same opening or continuation, from 1.
    #[n(6)]
    pub attempt: u32,
    /// How many tries before this one reached the model.
    #[n(7)]
    pub reached: u32,
    /// Whether it is the last that the budget allows.
    #[n(8)]
    pub last_allowed: bool,
    /// Whether it proposed calls.
    #[n(9)]
    pub proposed: bool,
    /// What its settling was let through with.
    #[n(10)]
    pub noted: Option<Code>,
    /// How it stands.
    #[n(11)]
    pub state: FlightState,
    /// Whether its replica is done with it, or gone.
    #[n(12)]
    pub closed: bool,
    /// Whether the upstream gave no answer (such tries do not count against the bound).
    #[n(13)]
    pub unreached: bool,
    /// When its replica must have given a sign.
    #[n(14)]
    pub lease: Millis,
    /// The answer that `Admit` got, should the event come again.
    #[n(15)]
    pub admitted: Box<AdmittedOnce>,
    /// For the record: when it did what, and what others call it.
    #[n(16)]
    #[cbor(default)]
    pub marks: Marks,
}

/// What only the record wants of an exchange. No rule looks at it, so that two conversations which differ in
/// nothing else go on alike: it counts for nothing in a hash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Marks {
    /// When it was admitted; zero where an older version wrote it.
    #[n(0)]
    pub began: Millis,
    /// How long after that its response was first let down.
    #[n(1)]
    pub settled: Option<Millis>,
    /// How long after that it was over.
    #[n(2)]
    pub ended: Option<Millis>,
    /// What others call it.
    #[n(3)]
    pub names: Names,
    /// How it failed, if it did.
    #[n(4)]
    pub failure: Option<Failure>,
}

/// How an exchange came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Failure {
    /// The upstream gave no answer.
    #[n(0)]
    Upstream,
    /// The model's output was refused.
    #[n(1)]
    Output,
    /// The client went away.
    #[n(2)]
    Client,
    /// Its replica gave no sign any more.
    #[n(3)]
    Replica,
    /// It was withheld for another reason than the ledger's.
    #[n(4)]
    Withheld,
}

impl Failure {
    /// How an exchange failed that ended so.
    #[must_use]
    pub(super) fn of(ending: Ending) -> Failure {
        match ending {
            Ending::UpstreamFailed => Failure::Upstream,
            Ending::OutputRefused => Failure::Output,
            Ending::ClientGone { .. } => Failure::Client,
            // Nothing that was delivered fails, but for what was never settled.
            Ending::Delivered | Ending::Withheld => Failure::Withheld,
        }
    }
}

impl std::hash::Hash for Marks {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

/// What an `Admit` was answered, kept for a repeat of the same event.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct AdmittedOnce(#[n(0)] pub Admitted);

impl std::hash::Hash for AdmittedOnce {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.generation.hash(state);
        self.0.attempt.hash(state);
    }
}

impl Exchange {
    /// Whether it is under way: its answer may still be released.
    #[must_use]
    pub fn under_way(&self) -> bool {
        matches!(self.state, FlightState::Flight | FlightState::Settled)
    }

    /// Whether nothing falls due in it any more.
    pub(super) fn rests(&self) -> bool {
        self.closed && !self.under_way()
    }

    /// It stands so from now on, for good: it is over.
    pub(super) fn ends(&mut self, state: FlightState, now: Millis) {
        self.state = state;
        self.marks.ended.get_or_insert(now.since(self.marks.began));
    }

    /// How many tries, this one among them, reached the model.
    #[must_use]
    pub fn reached_with(&self) -> u32 {
        self.reached.saturating_add(u32::from(!self.unreached))
    }
}

/// What changes of an exchange.
#[derive(Encode, Decode)]
pub(super) struct Moved {
    #[n(0)]
    state: FlightState,
    #[n(1)]
    closed: bool,
    #[n(2)]
    unreached: bool,
    #[n(3)]
    proposed: bool,
    #[n(4)]
    lease: Millis,
    #[n(5)]
    settled: Option<Millis>,
    #[n(6)]
    ended: Option<Millis>,
    #[n(7)]
    noted: Option<Code>,
    #[n(8)]
    failure: Option<Failure>,
}

impl Moves for Exchange {
    type Moved = Moved;

    fn moved(&self) -> Moved {
        // Every field is named: whoever adds one decides whether it changes.
        let Exchange {
            id: _,
            replica: _,
            lane: _,
            generation: _,
            kind: _,
            list: _,
            attempt: _,
            reached: _,
            last_allowed: _,
            admitted: _,
            state,
            closed,
            unreached,
            proposed,
            lease,
            noted,
            marks: Marks { settled, ended, failure, began: _, names: _ },
        } = *self;
        Moved { state, closed, unreached, proposed, lease, settled, ended, noted, failure }
    }

    fn move_to(&mut self, moved: Moved) -> bool {
        let Moved { state, closed, unreached, proposed, lease, settled, ended, noted, failure } =
            moved;
        (self.state, self.closed, self.unreached, self.proposed) =
            (state, closed, unreached, proposed);
        (self.lease, self.noted) = (lease, noted);
        let marks = &mut self.marks;
        (marks.settled, marks.ended, marks.failure) = (settled, ended, failure);
        true
    }
}
