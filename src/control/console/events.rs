//! Server-sent events: once a second, if anything changed, which conversations did and the newest rates.
//!
//! An event holds no exchange and no id from traffic; the page asks again for what it shows. So a page costs the
//! same however much goes on. It says up to which change it has read, here as in each event's id, so that nothing
//! is missed between its reading and its listening, nor while a connection is made anew.

use super::telling;
use crate::proxy::Gateway;
use crate::proxy::reply::json;
use crate::telemetry::feed::Board;
use axum::body::Body;
use axum::extract::{Query, State};
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use serde::Deserialize;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Interval, MissedTickBehavior};

/// Most pages that listen at once: the port's other connections are for probes and metrics.
const LISTENERS: usize = 16;
const EVERY: Duration = Duration::from_secs(1);
/// Seconds without a change after which one is told all the same, so that a dead connection shows.
const QUIET: u32 = 10;

/// The pages that listen.
#[derive(Clone)]
pub(super) struct Listeners {
    gateway: Arc<Gateway>,
    places: Arc<Semaphore>,
}

impl Listeners {
    /// None yet.
    pub(super) fn of(gateway: &Arc<Gateway>) -> Self {
        Listeners { gateway: Arc::clone(gateway), places: Arc::new(Semaphore::new(LISTENERS)) }
    }
}

/// From where a page listens.
#[derive(Deserialize)]
pub(super) struct From {
    /// The last change that it knows; without it, only what changes from now on is told.
    after: Option<u64>,
}

/// Begins to tell a page what changes; 503 when too many listen.
pub(super) async fn listen(
    State(listeners): State<Listeners>,
    Query(From { after }): Query<From>,
) -> Response<Body> {
    let Ok(place) = listeners.places.try_acquire_owned() else {
        return json(StatusCode::SERVICE_UNAVAILABLE, r#"{"error":"too many pages listen"}"#);
    };
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // What this process never counted is another one's number: the page knows an earlier start.
    let known = listeners.gateway.metrics().feed().read(Board::changes);
    let after = after.map_or(known, |after| if after > known { 0 } else { after });
    let telling =
        Telling { gateway: listeners.gateway, tick, after, fresh: true, quiet: 0, _place: place };
    let mut response = Response::new(Body::new(telling));
    let media = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    response
}

/// The body of one listener's answer. It ends when the proxy goes down.
struct Telling {
    gateway: Arc<Gateway>,
    tick: Interval,
    /// The last change that the page knows.
    after: u64,
    /// Nothing was told yet: the first event comes at once, so that the page knows that it is heard.
    fresh: bool,
    quiet: u32,
    _place: OwnedSemaphorePermit,
}

impl http_body::Body for Telling {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            ready!(self.tick.poll_tick(cx));
            if self.gateway.is_draining() {
                return Poll::Ready(None);
            }
            if let Some(event) = self.event() {
                return Poll::Ready(Some(Ok(Frame::data(event))));
            }
        }
    }
}

impl Telling {
    fn event(&mut self) -> Option<Bytes> {
        let gateway = Arc::clone(&self.gateway);
        let (after, due) = (self.after, self.fresh || self.quiet >= QUIET);
        let pulse = gateway.metrics().feed().read(|board| {
            let changes = board.changes();
            (due || after != changes).then(|| (changes, telling::pulse(&gateway, board, after)))
        });
        let Some((changes, pulse)) = pulse else {
            self.quiet += 1;
            return None;
        };
        (self.after, self.fresh, self.quiet) = (changes, false, 0);
        Some(Bytes::from(format!("event: pulse\nid: {changes}\ndata: {pulse}\n\n")))
    }
}
