//! What is held of a stream until its calls are judged. Held bytes come out in one way only: with
//! [`Released`], the proof that the rules and the ledger let them.

use super::release::Released;
use crate::telemetry::Held as Gauge;
use bytes::Bytes;

/// Events held back, in the order they came.
#[derive(Debug)]
pub(super) struct Hold {
    events: Vec<Held>,
    bytes: usize,
    limit: usize,
    gauge: Gauge,
}

#[derive(Debug)]
struct Held {
    wire: Bytes,
    /// Whether it carries a piece of a call.
    carries: bool,
}

impl Hold {
    /// Holds at most `limit` bytes.
    #[must_use]
    pub(super) fn new(limit: usize, gauge: Gauge) -> Self {
        Hold { events: Vec::new(), bytes: 0, limit, gauge }
    }

    /// Whether nothing is held.
    #[must_use]
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Holds one event; false when that is too much.
    #[must_use]
    pub(super) fn take(&mut self, wire: Bytes, carries: bool) -> bool {
        self.bytes = self.bytes.saturating_add(wire.len());
        self.gauge.add(wire.len());
        self.events.push(Held { wire, carries });
        self.bytes <= self.limit
    }

    /// Lets everything go, verbatim and in order.
    pub(super) fn release(&mut self, _proof: &Released) -> impl Iterator<Item = Bytes> + use<> {
        self.empty().into_iter().map(|held| held.wire)
    }

    /// After an error of the upstream: pieces of calls are dropped, the rest was only waiting for them.
    pub(super) fn drop_calls(&mut self) -> impl Iterator<Item = Bytes> + use<> {
        self.empty().into_iter().filter(|held| !held.carries).map(|held| held.wire)
    }

    /// Drops everything.
    pub(super) fn discard(&mut self) {
        self.empty();
    }

    fn empty(&mut self) -> Vec<Held> {
        self.bytes = 0;
        self.gauge.release();
        std::mem::take(&mut self.events)
    }
}
