//! One connection, served to its end: by the HTTP server, under the eyes of the port.
//!
//! The HTTP server knows one bound, which holds for a head that has begun and for a connection that is merely kept.
//! They are not the same: a client sends a head in one go, but keeps connections in its pool for minutes, and one
//! that is closed just when it is used again fails that request. So its bound is off, and ours are here.

use super::line::{Due, Line};
use super::tap::{Ahead, Carrier, Reset, Tap};
use super::{Crowd, Cut, PerConnection, Watched};
use http::Version;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::futures::OwnedNotified;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

/// Most of a connection that is held at once while it is read or written, and so the largest head of a request.
const HELD_BYTES: usize = 128 << 10;
/// Streams of one HTTP/2 connection.
const STREAMS: u32 = 1024;
/// How long a connection that has nothing left to send may take to close.
const GOODBYE: Duration = Duration::from_secs(1);
/// How often a client that has ended its side is asked whether it is still there.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// When connections end.
#[derive(Clone)]
pub(in crate::proxy) struct Ends {
    /// No new connection is taken; clients are told to use another one for what comes next.
    pub(in crate::proxy) stop: Cut,
    /// Quiet connections close, and busy ones when they have sent what they have.
    pub(in crate::proxy) say_goodbye: Cut,
    /// All close.
    pub(in crate::proxy) cut: CancellationToken,
}

/// Serves one connection, HTTP/1.1 or HTTP/2 (by ALPN, or by prior knowledge).
pub(super) async fn serve<C: Carrier, S: PerConnection>(
    carrier: C,
    service: Watched<S>,
    line: Arc<Line>,
    crowd: Arc<Crowd>,
    ends: Ends,
) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    let mut http1 = builder.http1();
    http1.timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(HELD_BYTES);
    // Who has left is told by `Watch`, which tells it from half a close.
    http1.half_close(true);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(STREAMS);
    let tap = Tap::new(carrier, Arc::clone(&line));
    let mut watch = Watch::new(tap.other(), line, crowd);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(tap), service));
    let (mut stopped, mut goodbye) = (ends.stop.watch(), ends.say_goodbye.watch());
    let (mut told, mut leaving) = (false, false);
    poll_fn(|cx| {
        loop {
            // Errors here are the client's: it went away, or speaks something else.
            if connection.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            // HTTP/2 has a way of its own to send what comes next elsewhere; HTTP/1 says it with an answer.
            let http2 = watch.line.version() == Some(Version::HTTP_2);
            if !told && http2 && stopped.poll(cx).is_ready() {
                told = true;
                connection.as_mut().graceful_shutdown();
                continue;
            }
            if !leaving && goodbye.poll(cx).is_ready() {
                leaving = true;
                watch.leave();
                connection.as_mut().graceful_shutdown();
                continue;
            }
            match watch.poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Found::Bytes) => {}
                Poll::Ready(Found::Quiet) => {
                    watch.leave();
                    connection.as_mut().graceful_shutdown();
                }
                Poll::Ready(Found::Over) => return Poll::Ready(()),
            }
        }
    })
    .await;
}

/// What the port finds out about a connection.
enum Found {
    /// There is something to read.
    Bytes,
    /// It is kept for nothing.
    Quiet,
    /// It must end now.
    Over,
}

/// The port's eyes on one connection.
struct Watch<C> {
    line: Arc<Line>,
    tap: Tap<C>,
    crowd: Arc<Crowd>,
    /// Entered at the crowd since it has begun so often; asked no more often than that, as all share it.
    crowded: Option<(usize, Pin<Box<OwnedNotified>>)>,
    timer: Pin<Box<Sleep>>,
    /// It closes, and has until then.
    leaving: Option<Instant>,
    /// Its client has ended its side before it was answered.
    half: Option<Half>,
}

/// A client that has ended its side, and may be waiting.
struct Half {
    reset: Reset,
    again: Pin<Box<Sleep>>,
}

impl<C: Carrier> Watch<C> {
    fn new(tap: Tap<C>, line: Arc<Line>, crowd: Arc<Crowd>) -> Self {
        let timer = Box::pin(tokio::time::sleep_until(line.due(false).at()));
        Watch { line, tap, crowd, crowded: None, timer, leaving: None, half: None }
    }

    /// It closes, once what it has to send is out.
    fn leave(&mut self) {
        self.leaving = Some(Instant::now() + GOODBYE);
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Found> {
        if let Poll::Ready(found) = self.poll_client(cx) {
            return Poll::Ready(found);
        }
        self.enter_at_crowd(cx);
        loop {
            let due = self.due();
            // Moved when it must fire sooner, and else when it has fired: a busy connection costs no timer work.
            if due.at() < self.timer.deadline() {
                self.timer.as_mut().reset(due.at());
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if Instant::now() >= due.at() {
                match due {
                    Due::Cut(_) => return Poll::Ready(Found::Over),
                    Due::Close(_) => return Poll::Ready(Found::Quiet),
                    Due::Look(_) => {}
                }
            }
            if self.line.is_stuck() {
                return Poll::Ready(Found::Over);
            }
            self.timer.as_mut().reset(due.at());
        }
    }

    /// Has this task woken when a crowd begins.
    fn enter_at_crowd(&mut self, cx: &mut Context<'_>) {
        loop {
            let begun = self.crowd.begun();
            if self.crowded.as_ref().is_some_and(|(since, _)| *since == begun) {
                return;
            }
            let mut entry = Box::pin(self.crowd.begins());
            // One that began meanwhile is seen by the count.
            let _ = entry.as_mut().poll(cx);
            self.crowded = Some((begun, entry));
        }
    }

    fn due(&self) -> Due {
        match (self.leaving, self.line.due(self.crowd.is_here())) {
            (_, due @ Due::Look(_)) | (None, due) => due,
            (Some(until), _) => Due::Cut(until),
        }
    }

    /// Looks at what a client does that waits for its answer. HTTP/2 reads at all times by itself.
    fn poll_client(&mut self, cx: &mut Context<'_>) -> Poll<Found> {
        let version = match self.line.version() {
            Some(version) if version != Version::HTTP_2 && self.line.is_busy() => version,
            _ => return Poll::Pending,
        };
        match self.tap.poll_ahead(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ahead::Bytes) => return Poll::Ready(Found::Bytes),
            Poll::Ready(Ahead::Broken) => return Poll::Ready(Found::Over),
            Poll::Ready(Ahead::Ended) => {}
        }
        if self.half.is_none() {
            // Who ends its side in the middle of an answer does not want the rest; HTTP/1.0 knows no
            // interim response that could tell.
            if !self.line.is_asked() || version != Version::HTTP_11 {
                return Poll::Ready(Found::Over);
            }
            let Ok(reset) = self.tap.reset() else { return Poll::Ready(Found::Over) };
            let again = Box::pin(tokio::time::sleep(Duration::ZERO));
            self.half = Some(Half { reset, again });
        }
        self.poll_half(cx)
    }

    fn poll_half(&mut self, cx: &mut Context<'_>) -> Poll<Found> {
        let Some(half) = &mut self.half else { return Poll::Pending };
        if half.reset.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Found::Over);
        }
        while self.line.is_asked() && half.again.as_mut().poll(cx).is_ready() {
            half.again.as_mut().reset(Instant::now() + ASK_EVERY);
            if !self.line.is_saying() && self.tap.ask(cx).is_err() {
                return Poll::Ready(Found::Over);
            }
        }
        Poll::Pending
    }
}
