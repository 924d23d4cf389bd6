//! One client's connection, as its bounds need to know it: what is under way on it, and since when it is quiet.
//!
//! ```text
//!  new ──first request──► busy ──last answer handed over──► quiet ──first bytes──► a head begins ─┐
//!   │                      ▲  └─ looked at from time to time  │                        │          │
//!   │                      └──────────────────────────────────┼──── request ───────────┘          │
//!   └ patience: cut        keep_alive: closed in good order ◄─┘                    patience: cut ◄┘
//! ```
//!
//! A client that takes nothing of its answer for `pause` loses it: its place and the upstream's work are not
//! kept for it. Over HTTP/1 the connection goes with it; over HTTP/2, where one stream's window may be shut while
//! others flow, only that answer does.

use crate::proxy::cut::Cut;
use axum::body::Body;
use bytes::Bytes;
use http::Version;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// How long what may be waited for.
#[derive(Clone, Copy, Debug)]
pub(in crate::proxy) struct Times {
    /// For a handshake, for the first request, and for the rest of a head that has begun.
    pub(in crate::proxy) patience: Duration,
    /// For the next request.
    pub(in crate::proxy) keep_alive: Duration,
    /// For a client that takes nothing of what it is sent.
    pub(in crate::proxy) pause: Duration,
}

/// What is due on a connection, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// It is busy, or still has something to send: it is looked at.
    Look(Instant),
    /// It has been quiet for long enough.
    Close(Instant),
    /// A request does not come to its end.
    Cut(Instant),
}

impl Due {
    pub(super) fn at(self) -> Instant {
        match self {
            Due::Look(at) | Due::Close(at) | Due::Cut(at) => at,
        }
    }
}

/// The state of one connection.
pub(super) struct Line {
    times: Times,
    /// When another connection, which is not ours, is right for what comes next.
    stop: Cut,
    state: Mutex<State>,
}

struct State {
    version: Option<Version>,
    /// Requests whose answer is not all handed over, and those of them that have none yet.
    under_way: usize,
    unanswered: usize,
    /// Since when nothing is under way.
    quiet: Instant,
    /// When the first bytes came after that.
    heard: Option<Instant>,
    /// Something waits to go out; when the last of it was taken.
    unsaid: Option<Instant>,
    /// The answers of an HTTP/2 connection.
    answers: Vec<Weak<Mutex<Flow>>>,
}

impl Line {
    pub(super) fn new(times: Times, stop: Cut) -> Arc<Self> {
        let state = State {
            version: None,
            under_way: 0,
            unanswered: 0,
            quiet: Instant::now(),
            heard: None,
            unsaid: None,
            answers: Vec::new(),
        };
        Arc::new(Line { times, stop, state: Mutex::new(state) })
    }

    /// A request is here.
    pub(super) fn asks(self: &Arc<Self>, version: Version) -> Asked {
        let mut state = self.state.lock();
        state.version = Some(version);
        state.under_way += 1;
        state.unanswered += 1;
        state.heard = None;
        Asked { line: Arc::clone(self), answered: false }
    }

    /// The client's version of HTTP, once it has asked something.
    pub(super) fn version(&self) -> Option<Version> {
        self.state.lock().version
    }

    /// Bytes come in.
    pub(super) fn hears(&self) {
        let mut state = self.state.lock();
        if state.under_way == 0 && state.heard.is_none() {
            state.heard = Some(Instant::now());
        }
    }

    /// Bytes go out, or wait to: whether some were taken.
    pub(super) fn says(&self, taken: bool) {
        let mut state = self.state.lock();
        if taken || state.unsaid.is_none() {
            state.unsaid = Some(Instant::now());
        }
    }

    /// All bytes so far have gone out.
    pub(super) fn has_said(&self) {
        self.state.lock().unsaid = None;
    }

    /// Whether bytes wait to go out.
    pub(super) fn is_saying(&self) -> bool {
        self.state.lock().unsaid.is_some()
    }

    /// Whether requests are under way.
    pub(super) fn is_busy(&self) -> bool {
        self.state.lock().under_way > 0
    }

    /// Whether some of them have no answer yet.
    pub(super) fn is_asked(&self) -> bool {
        self.state.lock().unanswered > 0
    }

    /// What is due next. Where places are `scarce`, a quiet connection is kept no longer than a head may take.
    pub(super) fn due(&self, scarce: bool) -> Due {
        let (state, times) = (self.state.lock(), &self.times);
        if state.under_way > 0 || state.unsaid.is_some() {
            return Due::Look(Instant::now() + times.pause / 4);
        }
        match (state.version, state.heard) {
            (None, _) => Due::Cut(state.quiet + times.patience),
            (Some(Version::HTTP_2), _) | (_, None) => {
                let kept = if scarce { times.patience } else { times.keep_alive };
                Due::Close(state.quiet + kept.min(times.keep_alive))
            }
            (Some(_), Some(heard)) => Due::Cut(heard + times.patience),
        }
    }

    /// Whether the client takes nothing at all. Answers of which it takes nothing are taken from it.
    pub(super) fn is_stuck(&self) -> bool {
        let now = Instant::now();
        let mut state = self.state.lock();
        let stuck = state.unsaid.is_some_and(|last| now - last >= self.times.pause);
        let mut lost = Vec::new();
        state.answers.retain(|answer| {
            let Some(flow) = answer.upgrade() else { return false };
            lost.extend(flow.lock().lose(now, self.times.pause));
            true
        });
        // What an answer's end does is not for this lock.
        drop(state);
        drop(lost);
        stuck
    }

    fn ends(&self, unanswered: bool) {
        let mut state = self.state.lock();
        state.unanswered -= usize::from(unanswered);
        state.under_way -= 1;
        if state.under_way == 0 {
            state.quiet = Instant::now();
            state.heard = None;
        }
    }
}

/// A request that is under way.
pub(super) struct Asked {
    line: Arc<Line>,
    answered: bool,
}

impl Asked {
    /// Whether its answer is the last one that this connection is for. HTTP/2 has its own way to say so.
    pub(super) fn is_last(&self) -> bool {
        self.line.stop.is_now() && self.line.version() != Some(Version::HTTP_2)
    }

    /// Its answer goes down.
    pub(super) fn answers(mut self, body: Body) -> Answer {
        self.answered = true;
        let mut state = self.line.state.lock();
        state.unanswered -= 1;
        let flow = Arc::new(Mutex::new(Flow { body: Some(body), given: None }));
        if state.version == Some(Version::HTTP_2) {
            state.answers.retain(|answer| answer.strong_count() > 0);
            state.answers.push(Arc::downgrade(&flow));
        }
        drop(state);
        Answer { flow, _asked: self }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.line.ends(!self.answered);
    }
}

/// An answer on its way down.
pub(in crate::proxy) struct Answer {
    flow: Arc<Mutex<Flow>>,
    _asked: Asked,
}

struct Flow {
    /// `None` when it was taken from a client that did not take it.
    body: Option<Body>,
    /// When a piece of it was handed over, after which no other was asked for.
    given: Option<Instant>,
}

impl Flow {
    fn lose(&mut self, now: Instant, pause: Duration) -> Option<Body> {
        let stuck = self.given.is_some_and(|given| now - given >= pause);
        if stuck { self.body.take() } else { None }
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut flow = self.flow.lock();
        let Some(body) = &mut flow.body else {
            let lost = std::io::Error::other("nothing of the answer was taken for too long");
            return Poll::Ready(Some(Err(axum::Error::new(lost))));
        };
        let polled = Pin::new(body).poll_frame(cx);
        flow.given = matches!(polled, Poll::Ready(Some(Ok(_)))).then(Instant::now);
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.flow.lock().body.as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.flow.lock().body.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}
