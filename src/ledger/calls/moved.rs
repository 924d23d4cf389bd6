//! What changes of a proposal and its calls once they are registered.

use super::super::digest::Digest;
use super::super::event::{ExchangeId, Millis};
use super::super::marked::Moves;
use super::{Call, CallState, Proposal, Written};
use minicbor::{Decode, Encode};

/// What changes of a proposal.
#[derive(Encode, Decode)]
pub(in super::super) struct Moved {
    #[n(0)]
    delivered: bool,
    #[n(1)]
    calls: Vec<MovedCall>,
}

/// What changes of a call.
#[derive(Encode, Decode)]
struct MovedCall {
    #[n(0)]
    state: CallState,
    #[n(1)]
    ended: Option<Millis>,
    #[n(2)]
    forced: Option<Digest>,
    #[n(3)]
    written: Option<Written>,
    #[n(4)]
    resolved: Option<Millis>,
    #[n(5)]
    decided_by: Option<(ExchangeId, Option<Digest>)>,
    #[n(6)]
    started: Option<u32>,
    #[n(7)]
    started_by: Option<ExchangeId>,
}

impl Moves for Proposal {
    type Moved = Moved;

    fn moved(&self) -> Moved {
        // Every field is named: whoever adds one decides whether it changes.
        let Proposal { seq: _, exchange: _, lane: _, generation: _, forced: _, delivered, calls } =
            self;
        Moved { delivered: *delivered, calls: calls.iter().map(MovedCall::of).collect() }
    }

    fn move_to(&mut self, moved: Moved) -> bool {
        self.delivered = moved.delivered;
        let fits = self.calls.len() == moved.calls.len();
        let calls = self.calls.iter_mut().zip(moved.calls);
        calls.for_each(|(call, moved)| moved.onto(call));
        fits
    }
}

impl MovedCall {
    fn of(call: &Call) -> Self {
        let Call {
            id: _,
            tool: _,
            arguments: _,
            echoes: _,
            choice: _,
            registered: _,
            deadline: _,
            write: _,
            ordinal: _,
            started,
            state,
            forced,
            ended,
            decided_by,
            started_by,
            written,
            resolved,
        } = *call;
        let started = (started > 0).then_some(started);
        MovedCall { state, ended, forced, written, resolved, decided_by, started, started_by }
    }

    fn onto(self, call: &mut Call) {
        let MovedCall { state, ended, forced, written, resolved, decided_by, started, started_by } =
            self;
        (call.state, call.ended, call.forced) = (state, ended, forced);
        (call.written, call.resolved, call.decided_by) = (written, resolved, decided_by);
        (call.started, call.started_by) = (started.unwrap_or(0), started_by);
    }
}
