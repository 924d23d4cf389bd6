//! The relay of one event stream, as a response body.
//!
//! ```text
//!             first piece of a call             the end ([DONE] or EOF)
//!  Open ───────────────────────► Open, holding ───────────────────────► Settling ──► Tail ──► over
//!    │ every choice finished, no calls                                   ▲   │
//!    └───────────────────────────────────────────────────────────────────┘   └► refused: one error
//!    └ an error event of the upstream ──► Failed (no calls pass) ──► over           event, over
//! ```
//!
//! It is polled by the HTTP server: no task and no channel per stream, so a slow client slows the
//! upstream, and a client that leaves drops it. Events that may go go at once; nothing waits for the next.

mod ending;

use super::admission::Passage;
use super::clearance::Cleared;
use super::cut::Watch;
use super::gateway::{Gateway, Settings};
use super::hold::Hold;
use super::journal::Journal;
use super::outbox::Outbox;
use super::refusal::plain_fault;
use super::release::{Settling, Stopped};
use super::screen::Payload;
use super::upstream::Upcall;
use crate::guard::assembly::{Assembly, Step};
use crate::guard::fault::{Code, Fault};
use crate::guard::verdict::Action;
use crate::ledger::event::Ending;
use crate::wire::chunk::Stencil;
use crate::wire::sse::{Decoder, Event};
use bytes::Bytes;
use http_body::{Body, Frame};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Sleep;

/// How often a comment goes down while a stream is held, against idle timeouts on the way.
const COMMENT_EVERY: Duration = Duration::from_secs(15);
/// One comment line and no blank line, so that no event is dispatched for it.
const COMMENT: Bytes = Bytes::from_static(b":\n");

/// The event that ended the answer; it goes down after what was held.
struct Last {
    wire: Bytes,
    /// Whether nothing of the answer can follow it.
    done: bool,
}

impl Last {
    /// The end of the body.
    const END: Last = Last { wire: Bytes::new(), done: true };
}

enum Phase {
    /// Nothing is decided yet.
    Open,
    /// The ledger is asked; on its yes what is held goes down, and then this.
    Settling(Settling, Last),
    /// An answer without calls is settled; what follows it must hold none.
    Answered,
    /// Settled and ended: what follows passes, if it holds no calls.
    Tail,
    /// The upstream sent an error event: what follows passes, if it holds no calls.
    Failed,
    /// Nothing more is read.
    Over,
}

/// One stream on its way down.
pub(super) struct Relay {
    gateway: Arc<Gateway>,
    settings: Arc<Settings>,
    cleared: Box<Cleared>,
    passage: Passage,
    upcall: Upcall,
    journal: Box<Journal>,
    decoder: Decoder,
    assembly: Option<Assembly>,
    /// The chunk of text that was looked at last.
    stencil: Stencil,
    hold: Hold,
    outbox: Outbox,
    phase: Phase,
    /// Whether the calls in `outbox` are those of a settled proposal.
    calls_released: bool,
    /// The upstream's body is at its end.
    at_end: bool,
    /// What came last was an event without its blank line.
    torn: bool,
    /// Bytes of calls that passed while the operator only watches.
    watched: usize,
    comment: Option<Pin<Box<Sleep>>>,
    /// Ready at the end of a drain.
    cut: Watch,
}

impl Relay {
    /// Of an upcall whose head has come.
    #[must_use]
    pub(super) fn new(
        gateway: Arc<Gateway>,
        settings: Arc<Settings>,
        cleared: Box<Cleared>,
        passage: Passage,
        upcall: Upcall,
        journal: Box<Journal>,
    ) -> Self {
        let assembly = Assembly::new(cleared.offer.n());
        let hold = Hold::new(settings.policy.limits.held_bytes, gateway.metrics.held());
        let cut = gateway.cut.watch();
        Relay {
            gateway,
            settings,
            cleared,
            passage,
            upcall,
            journal,
            decoder: Decoder::default(),
            assembly: Some(assembly),
            stencil: Stencil::default(),
            hold,
            outbox: Outbox::default(),
            phase: Phase::Open,
            calls_released: false,
            at_end: false,
            torn: false,
            watched: 0,
            comment: None,
            cut,
        }
    }

    /// The next whole event, while events may be looked at.
    fn next_event(&mut self) -> Option<Event> {
        match self.phase {
            Phase::Open | Phase::Answered | Phase::Tail | Phase::Failed => {
                self.decoder.next_event()
            }
            Phase::Settling(..) | Phase::Over => None,
        }
    }

    /// Waits for whatever comes next: the ledger's answer, bytes, the end, or the time for a comment.
    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.cut.poll(cx).is_ready() {
            self.cut_short();
            return Poll::Ready(());
        }
        if let Phase::Settling(settling, last) = &mut self.phase {
            let settled = ready!(settling.as_mut().poll(cx));
            let last = std::mem::replace(last, Last::END);
            self.settled(settled, last);
            return Poll::Ready(());
        }
        if self.at_end {
            self.finish();
            return Poll::Ready(());
        }
        match self.upcall.poll_data(cx) {
            Poll::Ready(Some(Ok(data))) => {
                self.outbox.reading(data.clone());
                self.decoder.push(data);
            }
            Poll::Ready(Some(Err(broken))) => self.broken(broken),
            Poll::Ready(None) => self.end_of_body(),
            Poll::Pending => {
                ready!(self.poll_comment(cx));
                self.outbox.push(COMMENT);
            }
        }
        Poll::Ready(())
    }

    /// Stops the stream when its answer is no longer wanted. What was released but still waits for a slow
    /// client is not out yet.
    fn look_if_wanted(&mut self, cx: &mut Context<'_>) {
        let open = match self.phase {
            Phase::Open | Phase::Answered | Phase::Settling(..) => true,
            Phase::Tail => !self.outbox.is_empty(),
            Phase::Failed | Phase::Over => false,
        };
        if open && let Poll::Ready(code) = self.passage.poll_unwanted(cx, &self.settings.policy) {
            self.outbox.clear();
            self.stop(Stopped::unwanted(code));
        }
    }

    /// Ready each 15 s while something is held.
    fn poll_comment(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.hold.is_empty() {
            self.comment = None;
            return Poll::Pending;
        }
        let timer = self.comment.get_or_insert_with(|| Box::pin(tokio::time::sleep(COMMENT_EVERY)));
        ready!(timer.as_mut().poll(cx));
        self.comment = None;
        Poll::Ready(())
    }

    fn take(&mut self, mut event: Event) {
        if self.is_more_text(&event) {
            return self.outbox.push(event.wire);
        }
        let wire = std::mem::take(&mut event.wire);
        let payload = Payload::of(&event, self.settings.policy.limits.depth);
        match (&payload, &event.data) {
            (Payload::Chunk(chunk), Some(data)) => self.stencil.take(data.trim_ascii(), chunk),
            _ => self.stencil = Stencil::default(),
        }
        self.journal.hears_event(&payload);
        match self.phase {
            Phase::Open => self.take_open(&payload, wire),
            Phase::Answered | Phase::Tail if payload.carries_calls() => {
                let message = match payload {
                    Payload::Unreadable => "What came after the end of the answer cannot be read.",
                    _ => "A call came after the end of the answer.",
                };
                self.refuse_event(wire, message);
            }
            Phase::Answered | Phase::Tail => {
                if matches!(payload, Payload::Done) {
                    self.enter_tail();
                }
                self.outbox.push(wire);
            }
            Phase::Failed if payload.carries_calls() => {}
            Phase::Failed => self.outbox.push(wire),
            Phase::Settling(..) | Phase::Over => {}
        }
    }

    /// Whether nothing is decided and nothing held, and the event is the chunk before it with another text: then it
    /// goes down as that one did, and tells nothing new.
    fn is_more_text(&self, event: &Event) -> bool {
        matches!(self.phase, Phase::Open)
            && self.hold.is_empty()
            && self.watched == 0
            && event.name.is_none()
            && event.lines == 1
            && !event.stray
            && event.data.as_deref().is_some_and(|data| self.stencil.fits(data.trim_ascii()))
    }

    fn take_open(&mut self, payload: &Payload<'_>, wire: Bytes) {
        match payload {
            Payload::Nothing => self.place(wire, false, true),
            Payload::Done => self.conclude(Last { wire, done: true }),
            Payload::Unreadable => {
                self.refuse_event(wire, "An event of the stream does not hold a completion chunk.")
            }
            Payload::Error => {
                for held in self.hold.drop_calls() {
                    self.outbox.push(held);
                }
                self.failed();
                self.outbox.push(wire);
            }
            Payload::Chunk(chunk) => {
                let Some(assembly) = &mut self.assembly else {
                    return self.place(wire, false, true);
                };
                let forward = assembly.push(chunk) == Step::Forward;
                if self.hold.is_empty() && !assembly.has_calls() && assembly.finished_all() {
                    // An answer without calls is settled before its end goes out.
                    self.conclude(Last { wire, done: false });
                } else {
                    self.place(wire, super::screen::has_calls(chunk), forward);
                }
            }
        }
    }

    /// Forwards or holds an event. Once something is held, everything after it is.
    fn place(&mut self, wire: Bytes, carries: bool, forward: bool) {
        if self.settings.policy.observe {
            // What would be held is bounded: everything from the first piece of a call on.
            if carries || self.watched > 0 {
                self.watch(wire.len());
            }
            self.outbox.push(wire);
        } else if forward && self.hold.is_empty() {
            self.outbox.push(wire);
        } else if !self.hold.take(wire, carries) {
            // Whatever the rule: what is too large to hold cannot be judged, and is never flushed.
            self.stop(Stopped::output(vec![held_too_large()], Vec::new()));
        }
    }

    /// A piece of a call passes because the operator only watches. Putting it together is bounded all the
    /// same.
    fn watch(&mut self, bytes: usize) {
        self.calls_released = true;
        self.watched = self.watched.saturating_add(bytes);
        if self.watched > self.settings.policy.limits.held_bytes && self.assembly.take().is_some() {
            self.note(&held_too_large());
        }
    }

    /// An event that must not pass. Where the rule is a note, it passes like any other.
    fn refuse_event(&mut self, wire: Bytes, message: &str) {
        let fault = plain_fault(Code::BrokenStream, "", message);
        let policy = &self.settings.policy;
        if policy.rules.action(Code::BrokenStream) == Action::Refuse && !policy.observe {
            self.stop(Stopped::output(vec![fault], Vec::new()));
        } else {
            self.note(&fault);
            self.place(wire, true, true);
        }
    }

    /// A fault is let through.
    fn note(&mut self, fault: &Fault) {
        if self.settings.policy.rules.action(fault.code) == Action::Off {
            return;
        }
        if self.settings.policy.would_refuse(fault.code) {
            self.journal.would_refuse([fault.code]);
        }
        self.journal.notes(std::slice::from_ref(fault));
    }

    /// A slice is handed to the HTTP server.
    fn hand_over(&mut self, slice: Bytes) -> Bytes {
        self.journal.speaks(slice == COMMENT);
        if self.calls_released
            && !matches!(self.phase, Phase::Failed | Phase::Over)
            && let Some(flight) = self.passage.flight()
        {
            flight.ends(Ending::ClientGone { calls_sent: true });
        }
        slice
    }
}

impl Body for Relay {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let relay = self.get_mut();
        loop {
            relay.look_if_wanted(cx);
            // All that is here is looked at before anything goes out, so that neighbours leave as one.
            while let Some(event) = relay.next_event() {
                relay.take(event);
            }
            let held = relay.decoder.held();
            if held > relay.settings.policy.limits.held_bytes && !matches!(relay.phase, Phase::Over)
            {
                relay.stop(Stopped::output(vec![held_too_large()], Vec::new()));
            }
            if matches!(relay.phase, Phase::Tail) && relay.outbox.len() == 1 {
                // The end of the answer goes out now. Closing first means that a client which asks again
                // right after it finds this exchange ended; what may still follow, nobody waits for.
                relay.delivered();
                if let Some(flight) = relay.passage.flight() {
                    ready!(flight.poll_closed(cx));
                }
            }
            if let Some(slice) = relay.outbox.pop() {
                return Poll::Ready(Some(Ok(Frame::data(relay.hand_over(slice)))));
            }
            if matches!(relay.phase, Phase::Over) {
                if let Some(flight) = relay.passage.flight() {
                    ready!(flight.poll_closed(cx));
                }
                return Poll::Ready(None);
            }
            ready!(relay.poll_source(cx));
        }
    }
}

fn held_too_large() -> Fault {
    let message = "What is held of the answer is larger than limits.held_bytes.";
    plain_fault(Code::HeldTooLarge, "", message)
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").field("journal", &self.journal).finish_non_exhaustive()
    }
}
