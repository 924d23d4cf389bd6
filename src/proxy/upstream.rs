//! The server behind, as one exchange meets it: an [`Upcall`].
//!
//! An upcall is a guard: as long as the upstream still works for it, dropping it aborts that work
//! first and closes the connection after (see [`super::abort`]). Nothing is ever sent twice: the HTTP client
//! itself tries again only when a pooled connection had broken before it took any of the request.

use super::abort::{Aborter, Rid};
use super::arriving::Unfit;
use super::pool::{Answer, Call, CallError, Pool, UpBody};
use crate::guard::fault::Code;
use bytes::Bytes;
use http::{Request, response};
use http_body::{Body, SizeHint};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// The upstream did not give what it must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// No connection could be made.
    Unreachable,
    /// Nothing came for too long.
    Timeout,
    /// The connection broke, or what came is not HTTP.
    Invalid,
    /// An interim status or a redirect, which would lead a client around the guard.
    NotFinal,
    /// Not the upstream: what the client sent, and what went up as it came.
    Request(Unfit),
}

impl Broken {
    /// The code that a client is told.
    #[must_use]
    pub(super) fn code(self) -> Code {
        match self {
            Broken::Unreachable => Code::UpstreamUnreachable,
            Broken::Timeout => Code::UpstreamTimeout,
            Broken::Invalid | Broken::NotFinal => Code::UpstreamInvalid,
            Broken::Request(unfit) => unfit.code(),
        }
    }

    /// The same in words.
    #[must_use]
    pub(super) fn message(self) -> &'static str {
        match self {
            Broken::Unreachable => "The upstream cannot be reached.",
            Broken::Timeout => "The upstream sent nothing for too long.",
            Broken::Invalid => "The upstream's answer broke off or is not an answer.",
            Broken::Request(unfit) => unfit.message(),
            Broken::NotFinal => {
                "The upstream answered with a redirect or an interim status; upstream.url must be where it answers itself."
            }
        }
    }
}

/// An error with all that is behind it: `tcp connect error: Connection refused (os error 111)`.
fn cause(error: &dyn std::error::Error) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut next = error.source();
    while let Some(error) = next {
        let text = error.to_string();
        // Many errors repeat what is behind them.
        if words.last().is_none_or(|last| !last.ends_with(&text)) {
            words.push(text);
        }
        next = error.source();
    }
    words.join(": ")
}

/// How long an upcall waits.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For the response's head.
    pub first_byte: Duration,
    /// Between two reads of the body.
    pub idle: Duration,
}

enum State {
    Waiting(Call),
    Reading(Answer),
    Done,
}

/// One request to the upstream, and its response.
pub(super) struct Upcall {
    state: State,
    /// Made by us for this upcall; a client's own `rid` is never aborted by name.
    rid: Option<Rid>,
    aborter: Arc<Aborter>,
    idle: Duration,
    timer: Pin<Box<Sleep>>,
    last_read: Instant,
}

impl Upcall {
    /// Sends a request.
    #[must_use]
    pub(super) fn start(
        pool: &Pool,
        request: Request<UpBody>,
        patience: Patience,
        rid: Option<Rid>,
        aborter: Arc<Aborter>,
    ) -> Self {
        let now = Instant::now();
        Upcall {
            state: State::Waiting(pool.request(request)),
            rid,
            aborter,
            idle: patience.idle,
            timer: Box::pin(tokio::time::sleep_until(now + patience.first_byte)),
            last_read: now,
        }
    }

    /// Waits for the response's head.
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<response::Parts, Broken>> {
        let State::Waiting(future) = &mut self.state else {
            return Poll::Ready(Err(Broken::Invalid));
        };
        match Pin::new(future).poll(cx) {
            Poll::Ready(Ok(response)) => {
                let (parts, body) = response.into_parts();
                if parts.status.is_informational() || parts.status.is_redirection() {
                    self.state = State::Done;
                    tracing::warn!(status = parts.status.as_u16(), "the upstream redirects");
                    return Poll::Ready(Err(Broken::NotFinal));
                }
                self.state = State::Reading(body);
                self.last_read = Instant::now();
                self.timer.as_mut().reset(self.last_read + self.idle);
                Poll::Ready(Ok(parts))
            }
            Poll::Ready(Err(error)) => {
                self.state = State::Done;
                if let Some(unfit) = Unfit::behind(&error) {
                    return Poll::Ready(Err(Broken::Request(unfit)));
                }
                // One line for an exchange at most, and it holds nothing of what was sent.
                let cause = cause(&error);
                Poll::Ready(Err(if matches!(error, CallError::Connect(_)) {
                    tracing::warn!(cause, "the upstream cannot be reached");
                    Broken::Unreachable
                } else {
                    tracing::warn!(cause, "the upstream's answer broke off");
                    Broken::Invalid
                }))
            }
            Poll::Pending => {
                ready!(self.timer.as_mut().poll(cx));
                Poll::Ready(Err(Broken::Timeout))
            }
        }
    }

    /// The next bytes of the response's body; `None` at its end.
    pub(super) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Broken>>> {
        loop {
            let State::Reading(body) = &mut self.state else { return Poll::Ready(None) };
            match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.last_read = Instant::now();
                    if body.is_end_stream() {
                        // All of a known length is here: nobody may ask again.
                        self.state = State::Done;
                    }
                    if let Ok(data) = frame.into_data()
                        && !data.is_empty()
                    {
                        return Poll::Ready(Some(Ok(data)));
                    }
                }
                Poll::Ready(Some(Err(_))) => {
                    self.state = State::Done;
                    return Poll::Ready(Some(Err(Broken::Invalid)));
                }
                Poll::Ready(None) => {
                    self.state = State::Done;
                    return Poll::Ready(None);
                }
                Poll::Pending => return self.poll_idle(cx),
            }
        }
    }

    /// The timer is moved only when it fires: a read costs no timer work.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let due = self.last_read + self.idle;
            if due <= Instant::now() {
                return Poll::Ready(Some(Err(Broken::Timeout)));
            }
            self.timer.as_mut().reset(due);
        }
    }

    /// What is left of the body, as its length goes: for answers that pass through.
    #[must_use]
    pub(super) fn size_hint(&self) -> SizeHint {
        match &self.state {
            State::Reading(body) => body.size_hint(),
            State::Waiting(_) => SizeHint::default(),
            State::Done => SizeHint::with_exact(0),
        }
    }

    /// The answer is complete, whatever its connection still says: there is no work left to abort.
    pub(super) fn is_answered(&mut self) {
        self.rid = None;
    }

    /// The id that we minted for it.
    #[must_use]
    pub(super) fn rid(&self) -> Option<&Rid> {
        self.rid.as_ref()
    }

    /// Stops the upstream's work now: abort first, then the connection.
    pub(super) fn cancel(&mut self) {
        let state = std::mem::replace(&mut self.state, State::Done);
        if matches!(state, State::Done) {
            return;
        }
        if let Some(rid) = self.rid.take() {
            self.aborter.abort(rid, state);
        }
    }
}

impl Drop for Upcall {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl std::fmt::Debug for Upcall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upcall").finish_non_exhaustive()
    }
}
