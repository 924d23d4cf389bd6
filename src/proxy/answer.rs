//! A whole response: read to its end, judged, settled, then sent down as it came.

use super::admission::Passage;
use super::body::Gathering;
use super::clearance::Cleared;
use super::gateway::{Gateway, Settings};
use super::journal::Journal;
use super::release::{self, Released, Stopped};
use super::upstream::{Broken, Upcall};
use crate::guard::fault::Code;
use crate::guard::proposal::Proposal;
use crate::ledger::event::Ending;
use crate::telemetry::ExchangeOutcome;
use crate::wire::completion::Completion;
use bytes::Bytes;
use http::HeaderValue;
use http_body::{Body, Frame, SizeHint};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// A whole response that may go down.
pub(super) struct Whole {
    /// The upstream's own bytes.
    pub body: Bytes,
    /// The proof; `None` for an upstream's own error object, which holds no calls.
    pub released: Option<Released>,
    /// What was noted about it.
    pub notes: Vec<crate::guard::fault::Fault>,
    /// The operation keys of the writes that it proposes, as a header.
    pub operations: Option<HeaderValue>,
}

/// Reads and judges a whole response. One that goes down in one piece is delivered before its head does: what is no
/// longer wanted by then is refused like anything else. A longer one is delivered with its last piece ([`Delivery`]).
///
/// # Errors
/// When it does not come, is refused, or is no longer wanted.
pub(super) async fn whole(
    gateway: &Arc<Gateway>,
    settings: &Settings,
    cleared: &Cleared,
    passage: &mut Passage,
    upcall: &mut Upcall,
    journal: &mut Journal,
) -> Result<Whole, Stopped> {
    let body = collect(settings, passage, upcall).await?;
    journal.judges();
    let judged = {
        let completion = Completion::parse(&body, settings.policy.limits.depth).map_err(|_| {
            Stopped::upstream(Code::UpstreamInvalid, "The upstream's answer is not a completion.")
        })?;
        journal.hears(&completion);
        let proposal = Proposal::of(&completion);
        if completion.error && !proposal.has_calls() {
            return Ok(Whole { body, released: None, notes: Vec::new(), operations: None });
        }
        release::judge(gateway, settings, cleared, passage, &proposal, Vec::new())?
    };
    journal.would_refuse(judged.would_refuse().iter().copied());
    let mut notes = judged.notes().to_vec();
    let writes = judged.writes();
    let released = judged.settle(gateway, passage, settings).await?;
    let operations = match passage.flight() {
        Some(flight) if writes => flight.operations().await,
        _ => None,
    };
    journal.would_refuse(released.would_refuse().iter().copied());
    notes.extend(released.notes().iter().cloned());
    journal.judged();
    if body.len() <= SLICE {
        deliver(settings, passage).await?;
    }
    Ok(Whole { body, released: Some(released), notes, operations })
}

/// Waits for the head, unless the exchange is no longer wanted first.
///
/// # Errors
/// When it does not come or is no longer wanted.
pub(super) async fn head(
    settings: &Settings,
    passage: &mut Passage,
    upcall: &mut Upcall,
) -> Result<http::response::Parts, Stopped> {
    poll_fn(|cx| {
        if let Poll::Ready(code) = passage.poll_unwanted(cx, &settings.policy) {
            return Poll::Ready(Err(Stopped::unwanted(code)));
        }
        upcall.poll_head(cx).map_err(stopped)
    })
    .await
}

fn stopped(broken: Broken) -> Stopped {
    Stopped::upstream(broken.code(), broken.message())
}

async fn collect(
    settings: &Settings,
    passage: &mut Passage,
    upcall: &mut Upcall,
) -> Result<Bytes, Stopped> {
    let limit = settings.policy.limits.body_bytes;
    let mut gathered = Gathering::new(limit, upcall.size_hint().lower());
    poll_fn(|cx| {
        if let Poll::Ready(code) = passage.poll_unwanted(cx, &settings.policy) {
            return Poll::Ready(Err(Stopped::unwanted(code)));
        }
        loop {
            match upcall.poll_data(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Ready(Some(Err(broken))) => return Poll::Ready(Err(stopped(broken))),
                Poll::Ready(Some(Ok(data))) => {
                    if !gathered.take(data) {
                        return Poll::Ready(Err(Stopped::upstream(
                            Code::UpstreamInvalid,
                            "The upstream's answer is larger than limits.body_bytes.",
                        )));
                    }
                }
            }
        }
    })
    .await?;
    Ok(gathered.whole())
}

/// Most of a whole body that is handed over at once: what the HTTP server holds beyond it is bounded, so
/// the last piece is taken only when nearly all of the body is on its way.
const SLICE: usize = 64 << 10;

/// Ends an exchange whose answer goes down now.
///
/// # Errors
/// When it is no longer wanted.
async fn deliver(settings: &Settings, passage: &mut Passage) -> Result<(), Stopped> {
    let unwanted = poll_fn(|cx| Poll::Ready(passage.poll_unwanted(cx, &settings.policy))).await;
    if let Poll::Ready(code) = unwanted {
        return Err(Stopped::unwanted(code));
    }
    passage.close(Ending::Delivered).await;
    Ok(())
}

/// A whole body on its way down. Its exchange is delivered when its last bytes are handed over, and broken
/// off when it is no longer wanted before.
#[derive(Debug)]
pub(super) struct Delivery {
    body: Option<Bytes>,
    settings: Arc<Settings>,
    passage: Passage,
    journal: Box<Journal>,
    failed: bool,
}

impl Delivery {
    /// Of a judged answer, which takes the proof; or of the upstream's own error object.
    #[must_use]
    pub(super) fn new(
        whole: Whole,
        settings: Arc<Settings>,
        passage: Passage,
        journal: Box<Journal>,
    ) -> Self {
        let failed = whole.released.is_none();
        let mut delivery = Delivery { body: Some(whole.body), settings, passage, journal, failed };
        if failed {
            delivery.journal.ends(ExchangeOutcome::UpstreamError);
            if let Some(flight) = delivery.passage.flight() {
                flight.ends(Ending::UpstreamFailed);
            }
        }
        delivery
    }
}

impl Delivery {
    /// A body that has begun cannot turn into an error object: it breaks off, so that no client takes it for
    /// an answer.
    fn withhold(&mut self, code: Code) -> std::io::Error {
        self.body = None;
        let stopped = Stopped::unwanted(code);
        self.journal.refuses(&stopped.refusal);
        if let Some(flight) = self.passage.flight() {
            flight.close(stopped.ending);
        }
        std::io::Error::other("the answer is no longer wanted")
    }
}

impl Body for Delivery {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let this = self.get_mut();
        if !this.failed
            && this.body.is_some()
            && let Poll::Ready(code) = this.passage.poll_unwanted(cx, &this.settings.policy)
        {
            return Poll::Ready(Some(Err(this.withhold(code))));
        }
        if let Some(body) = this.body.as_mut().filter(|body| body.len() > SLICE) {
            return Poll::Ready(Some(Ok(Frame::data(body.split_to(SLICE)))));
        }
        // The HTTP server takes this as it comes: closing first means that a client which asks again right
        // after the last byte finds this exchange ended.
        let ending = if this.failed { Ending::UpstreamFailed } else { Ending::Delivered };
        if let Some(flight) = this.passage.flight() {
            flight.close(ending);
            ready!(flight.poll_closed(cx));
        }
        if !this.failed {
            this.journal.ends(ExchangeOutcome::Delivered);
        }
        Poll::Ready(this.body.take().map(|body| Ok(Frame::data(body))))
    }

    fn is_end_stream(&self) -> bool {
        false
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.body.as_ref().map_or(0, |body| body.len() as u64))
    }
}

/// An answer that passes through unjudged: an upstream's error, or an unguarded route.
#[derive(Debug)]
pub(super) struct Through {
    upcall: Upcall,
    _passage: Option<Passage>,
    journal: Box<Journal>,
    ending: ExchangeOutcome,
    broken: Option<Broken>,
}

impl Through {
    /// Passes on what `upcall` still gives; the exchange ends as `ending` says when all of it went down.
    #[must_use]
    pub(super) fn new(
        upcall: Upcall,
        passage: Option<Passage>,
        journal: Box<Journal>,
        ending: ExchangeOutcome,
    ) -> Self {
        Through { upcall, _passage: passage, journal, ending, broken: None }
    }

    /// An error, which waits for one turn: when it is told, the HTTP server drops what it has not yet sent.
    fn breaks(&mut self, broken: Broken, cx: &mut Context<'_>) -> Poll<std::io::Error> {
        if self.broken.replace(broken).is_none() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.journal.ends(ExchangeOutcome::UpstreamError);
        Poll::Ready(std::io::Error::other(broken.message()))
    }
}

impl Body for Through {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        if let Some(broken) = self.broken {
            return self.breaks(broken, cx).map(|error| Some(Err(error)));
        }
        let data = ready!(self.upcall.poll_data(cx));
        Poll::Ready(match data {
            Some(Ok(data)) => {
                if self.upcall.size_hint().exact() == Some(0) {
                    // The HTTP server does not ask again after the last byte of a known length.
                    let ending = self.ending;
                    self.journal.ends(ending);
                }
                Some(Ok(Frame::data(data)))
            }
            Some(Err(broken)) => {
                return self.breaks(broken, cx).map(|error| Some(Err(error)));
            }
            None => {
                let ending = self.ending;
                self.journal.ends(ending);
                None
            }
        })
    }

    fn size_hint(&self) -> SizeHint {
        self.upcall.size_hint()
    }
}
