//! How a stream ends: judged and settled, refused, broken off, failed upstream, or delivered.

use super::{Last, Phase, Relay};
use crate::guard::assembly::End;
use crate::guard::stream::{is_scrap, unfinished};
use crate::ledger::event::Ending;
use crate::proxy::release::{self, Released, Stopped};
use crate::proxy::upstream::Broken;
use crate::telemetry::ExchangeOutcome;
use bytes::Bytes;

impl Relay {
    /// At the end of the body, an event without its blank line: the standard discards it, but line-wise
    /// clients do not, so it is judged as if the blank line stood there.
    pub(super) fn end_of_body(&mut self) {
        self.at_end = true;
        let left = std::mem::take(&mut self.decoder).finish();
        if matches!(self.phase, Phase::Over) {
            return;
        }
        let Some(event) = unfinished(left) else { return };
        let depth = self.settings.policy.limits.depth;
        if matches!(self.phase, Phase::Answered | Phase::Tail) && is_scrap(&event, depth) {
            // The answer is whole without it: it does not go down.
            return;
        }
        self.torn = true;
        self.take(event);
    }

    /// Judges what came, and asks the ledger.
    pub(super) fn conclude(&mut self, last: Last) {
        self.journal.judges();
        let assembled = self.assembly.take().map(|assembly| assembly.finish(End::Clean));
        let (proposal, faults) = assembled.unwrap_or_default();
        if last.done {
            self.upcall.is_answered();
        }
        let judged = release::judge(
            &self.gateway,
            &self.settings,
            &self.cleared,
            &self.passage,
            &proposal,
            faults,
        );
        match judged {
            Ok(judged) => {
                self.journal.would_refuse(judged.would_refuse().iter().copied());
                self.journal.notes(judged.notes());
                let settling = judged.settle(&self.gateway, &mut self.passage, &self.settings);
                self.phase = Phase::Settling(settling, last);
            }
            Err(stopped) => self.stop(stopped),
        }
    }

    pub(super) fn settled(&mut self, settled: Result<Released, Stopped>, last: Last) {
        self.journal.judged();
        match settled {
            Ok(released) => {
                self.journal.would_refuse(released.would_refuse().iter().copied());
                self.journal.notes(released.notes());
                self.calls_released |= !self.hold.is_empty();
                for wire in self.hold.release(&released) {
                    self.outbox.push(wire);
                }
                self.phase = Phase::Answered;
                if last.done {
                    self.enter_tail();
                }
                self.outbox.push(last.wire);
            }
            Err(stopped) => self.stop(stopped),
        }
    }

    /// The end of the answer is here: there is nothing left to abort.
    pub(super) fn enter_tail(&mut self) {
        self.phase = Phase::Tail;
        self.upcall.is_answered();
    }

    /// The upstream's connection broke, or nothing came for too long.
    pub(super) fn broken(&mut self, broken: Broken) {
        match self.phase {
            Phase::Open => {
                self.stop(Stopped::upstream(broken.code(), broken.message()));
            }
            Phase::Answered | Phase::Tail | Phase::Failed => self.finish(),
            Phase::Settling(..) | Phase::Over => {}
        }
    }

    /// The proxy goes down. What is not at its end is broken off, and says so.
    pub(super) fn cut_short(&mut self) {
        match self.phase {
            Phase::Open | Phase::Settling(..) => {
                self.stop(Stopped::draining(self.calls_released));
                self.journal.ends(ExchangeOutcome::Withheld);
            }
            Phase::Answered | Phase::Tail | Phase::Failed => self.finish(),
            Phase::Over => {}
        }
    }

    /// Nothing more will come.
    pub(super) fn finish(&mut self) {
        match self.phase {
            Phase::Open => self.conclude(Last::END),
            Phase::Answered | Phase::Tail => {
                self.phase = Phase::Over;
                self.delivered();
            }
            Phase::Failed => self.phase = Phase::Over,
            Phase::Settling(..) | Phase::Over => {}
        }
    }

    /// One error event in place of what is held and of what would follow; the upstream is told to stop.
    pub(super) fn stop(&mut self, stopped: Stopped) {
        self.hold.discard();
        self.upcall.cancel();
        self.journal.judged();
        self.what_waits_is_said();
        self.journal.refuses(&stopped.refusal);
        if self.torn {
            // An event must not be glued to an unfinished one.
            self.outbox.push(Bytes::from_static(b"\n\n"));
        }
        self.outbox.push(stopped.refusal.event());
        self.phase = Phase::Over;
        if let Some(flight) = self.passage.flight() {
            flight.close(stopped.ending);
        }
    }

    /// The upstream says that it failed.
    pub(super) fn failed(&mut self) {
        self.phase = Phase::Failed;
        self.what_waits_is_said();
        self.journal.ends(ExchangeOutcome::UpstreamError);
        if let Some(flight) = self.passage.flight() {
            flight.close(Ending::UpstreamFailed);
        }
    }

    /// Text that may go goes down before the error that follows it.
    fn what_waits_is_said(&mut self) {
        if !self.outbox.is_empty() {
            self.journal.speaks(false);
        }
    }

    pub(super) fn delivered(&mut self) {
        self.journal.ends(ExchangeOutcome::Delivered);
        if let Some(flight) = self.passage.flight() {
            flight.close(Ending::Delivered);
        }
    }
}
