//! One exchange, from the request's head to the response's body.
//!
//! An exchange that was admitted and is refused on its way is ended in the ledger before its client hears of
//! it: who asks again right after a refusal must not find the old attempt still under way.

use super::admission::{self, Passage};
use super::answer::{self, Delivery, Through};
use super::arriving::Arriving;
use super::body;
use super::clearance::{self, Clearance, Cleared};
use super::entrance::{check_unread, prove};
use super::forward;
use super::gateway::{Gateway, Settings};
use super::headers::{self, Standing};
use super::identity::{Peer, Principal};
use super::journal::Journal;
use super::places::NoPlace;
use super::pool::UpBody;
use super::question::conversation_key;
use super::refusal::Refusal;
use super::relay::Relay;
use super::release::Stopped;
use super::reply::refuse;
use super::upstream::Upcall;
use crate::guard::fault::{Code, Fault};
use crate::ledger::event::{Ending, ExchangeId};
use crate::telemetry::{ExchangeOutcome, Route};
use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode, Version, header, response};
use hyper::body::Incoming;
use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;

/// From this size on, reading a body takes long enough to delay others.
const LARGE_BODY: usize = 256 << 10;

/// Serves the guarded route.
pub(crate) async fn guarded(
    gateway: Arc<Gateway>,
    request: Request<Incoming>,
    peer: Arc<Peer>,
) -> Result<Response<Body>, Infallible> {
    let settings = gateway.settings();
    let (parts, body) = request.into_parts();
    let mut journal = Journal::open(&gateway, Route::Chat, &parts.headers);
    let woken = in_its_connection(parts.version);
    let running = run(&gateway, &settings, &mut journal, parts, body, &peer);
    Ok(match gateway.cut.before(woken, running).await {
        Some(Ok(going)) => going.into_response(gateway, settings, journal),
        Some(Err(refusal)) => refuse(&refusal, &mut journal),
        // What was under way is ended by its guards.
        None => refuse_cut(&mut journal),
    })
}

/// Whether a request is served in the task of its connection. A stream of HTTP/2 has a task of its own.
fn in_its_connection(version: Version) -> bool {
    version <= Version::HTTP_11
}

/// Serves a route that is forwarded unjudged.
pub(crate) async fn unguarded(
    gateway: Arc<Gateway>,
    request: Request<Incoming>,
    route: Route,
    peer: Arc<Peer>,
) -> Result<Response<Body>, Infallible> {
    let settings = gateway.settings();
    let (parts, body) = request.into_parts();
    let woken = in_its_connection(parts.version);
    let mut journal = Journal::open(&gateway, route, &parts.headers);
    let opened = prove(&settings, &mut journal, &parts.headers, &peer)
        .await
        .and_then(|principal| check_unread(&principal, route).map(|()| principal))
        .and_then(|principal| take_place(&gateway, &mut journal, &principal));
    let limits = &settings.policy.limits;
    let opened = opened.and_then(|()| body::check_length(&body, limits));
    let begun = match opened {
        Ok(()) => {
            let body = UpBody::Streamed(Arriving::new(body, limits));
            forward::pass(&gateway, &settings, parts, body)
        }
        Err(refusal) => {
            body::dismiss(&gateway, &parts.headers, body);
            Err(refusal)
        }
    };
    let mut upcall = match begun {
        Ok(upcall) => upcall,
        Err(refusal) => return Ok(refuse(&refusal, &mut journal)),
    };
    journal.goes_up(None);
    let heard = gateway.cut.before(woken, poll_fn(|cx| upcall.poll_head(cx))).await;
    Ok(match heard {
        None => refuse_cut(&mut journal),
        Some(Ok(head)) => {
            journal.heard(head.status, false);
            let way = Way::Through(upcall, None, ending_by(head.status));
            let going = Going { head, notes: Vec::new(), way };
            going.into_response(gateway, settings, journal)
        }
        Some(Err(broken)) => {
            let refusal = Stopped::upstream(broken.code(), broken.message()).refusal;
            refuse(&refusal, &mut journal)
        }
    })
}

/// The end of a drain: what has no answer yet gets none.
fn refuse_cut(journal: &mut Journal) -> Response<Body> {
    let response = refuse(&Stopped::draining(false).refusal, journal);
    journal.ends(ExchangeOutcome::Withheld);
    response
}

/// Refuses a request without looking at its body.
pub(crate) fn refuse_unread(
    gateway: &Arc<Gateway>,
    request: Request<Incoming>,
    refusal: Refusal,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let mut journal = Journal::open(gateway, Route::Closed, &parts.headers);
    body::dismiss(gateway, &parts.headers, body);
    refuse(&refusal, &mut journal)
}

/// An answer that goes down.
struct Going {
    head: response::Parts,
    notes: Vec<Fault>,
    way: Way,
}

enum Way {
    /// Unjudged: an upstream's error, or an unguarded route.
    Through(Upcall, Option<Passage>, ExchangeOutcome),
    Whole(answer::Whole, Passage),
    Stream(Box<Cleared>, Passage, Upcall),
}

impl Going {
    fn into_response(
        mut self,
        gateway: Arc<Gateway>,
        settings: Arc<Settings>,
        mut journal: Box<Journal>,
    ) -> Response<Body> {
        let unchanged = matches!(self.way, Way::Through(..));
        headers::make_downward(&mut self.head.headers, unchanged);
        journal.notes(&self.notes);
        journal.stamp.passed(&mut self.head.headers, &self.notes);
        if let Way::Whole(answer::Whole { operations: Some(value), .. }, _) = &self.way {
            self.head.headers.insert(headers::OPERATIONS, value.clone());
        }
        let body = match self.way {
            Way::Through(upcall, passage, ending) => {
                Body::new(Through::new(upcall, passage, journal, ending))
            }
            Way::Whole(whole, passage) => {
                Body::new(Delivery::new(whole, settings, passage, journal))
            }
            Way::Stream(cleared, passage, upcall) => {
                Body::new(Relay::new(gateway, settings, cleared, passage, upcall, journal))
            }
        };
        Response::from_parts(self.head, body)
    }
}

/// Takes a place among the exchanges in flight.
fn take_place(
    gateway: &Gateway,
    journal: &mut Journal,
    principal: &Principal,
) -> Result<(), Box<Refusal>> {
    if gateway.is_draining() {
        return Err(Box::new(Refusal::plain(Code::Draining, "This proxy is shutting down.")));
    }
    let message = match gateway.places.take(principal) {
        Ok(place) => {
            journal.holds(place);
            return Ok(());
        }
        Err(NoPlace::Full) => "Too many exchanges are in flight (limits.exchanges).",
        Err(NoPlace::Share) => {
            "This principal has too many exchanges in flight: what is left is for others (limits.exchanges)."
        }
    };
    Err(Box::new(Refusal::plain(Code::Overloaded, message)))
}

async fn run(
    gateway: &Arc<Gateway>,
    settings: &Arc<Settings>,
    journal: &mut Journal,
    parts: Parts,
    body: Incoming,
    peer: &Peer,
) -> Result<Going, Box<Refusal>> {
    let principal = match prove(settings, journal, &parts.headers, peer).await {
        Ok(principal) => principal,
        Err(refusal) => {
            body::dismiss(gateway, &parts.headers, body);
            return Err(refusal);
        }
    };
    let checked = take_place(gateway, journal, &principal)
        .and_then(|()| body::check_media(&parts.headers))
        .and_then(|()| Standing::read(&parts.headers, &settings.policy));
    let standing = match checked {
        Ok(standing) => standing,
        Err(refusal) => {
            body::dismiss(gateway, &parts.headers, body);
            return Err(refusal);
        }
    };
    let key = standing
        .conversation
        .as_deref()
        .map(|name| conversation_key(gateway.store.digest_key(), &principal, name));
    journal.stands(&standing, key.clone());
    let body = body::read(gateway, &parts.headers, body, &settings.policy.limits).await?;
    journal.has_read();
    let clearance = clear(gateway, settings, &standing, &principal, journal.exchange(), &body);
    let mut cleared = match clearance.await {
        Clearance::Cleared(cleared) => cleared,
        Clearance::Refused(refusal) => return Err(refusal),
        Clearance::Opaque(notes) => {
            journal.would_refuse(clearance::would_refuse(settings, &notes));
            return opaque(gateway, settings, journal, parts, body, notes).await;
        }
    };
    journal.reads(&mut cleared);
    journal.would_refuse(std::mem::take(&mut cleared.would_refuse));
    let mut passage = admission::admit(gateway, settings, key, &mut cleared).await?;
    journal.admitted(&mut passage);
    journal.would_refuse(passage.would_refuse());
    go_up(gateway, settings, journal, parts, cleared, passage).await
}

/// Judges the body; a large one away from the threads that serve everybody's streams.
async fn clear(
    gateway: &Arc<Gateway>,
    settings: &Arc<Settings>,
    standing: &Standing,
    principal: &Principal,
    exchange: ExchangeId,
    body: &Bytes,
) -> Clearance {
    if body.len() < LARGE_BODY {
        return clearance::clear(gateway, settings, standing, principal, exchange, body.clone());
    }
    let (judge, settings) = (Arc::clone(gateway), Arc::clone(settings));
    let (standing, principal, body) = (standing.clone(), principal.clone(), body.clone());
    let judging = gateway.tasks.spawn_blocking(move || {
        clearance::clear(&judge, &settings, &standing, &principal, exchange, body)
    });
    judging.await.unwrap_or_else(|_| {
        let message = "This proxy is shutting down.";
        Clearance::Refused(Box::new(Refusal::plain(Code::Draining, message)))
    })
}

/// Up and back again.
async fn go_up(
    gateway: &Arc<Gateway>,
    settings: &Settings,
    journal: &mut Journal,
    mut parts: Parts,
    mut cleared: Box<Cleared>,
    mut passage: Passage,
) -> Result<Going, Box<Refusal>> {
    let notes = admission::notes(&cleared, &passage);
    journal.leads(&mut parts.headers);
    let mut upcall = match forward::forward(gateway, settings, parts, &cleared, &passage) {
        Ok(upcall) => upcall,
        Err(refusal) => return Err(stop(passage, Ending::UpstreamFailed, refusal).await),
    };
    // It may be long, and so may the answer: once it is sent, nobody keeps it.
    cleared.body = Bytes::new();
    journal.goes_up(upcall.rid().map(ToString::to_string));
    if let Some(flight) = passage.flight() {
        flight.goes_up(upcall.rid());
    }
    let head = match answer::head(settings, &mut passage, &mut upcall).await {
        Ok(head) => head,
        Err(stopped) => {
            upcall.cancel();
            return Err(stop(passage, stopped.ending, stopped.refusal).await);
        }
    };
    let framing = Framing::of(&head);
    journal.heard(head.status, framing == Framing::Events);
    match framing {
        Framing::Error => {
            passage.close(Ending::UpstreamFailed).await;
            let way = Way::Through(upcall, Some(passage), ExchangeOutcome::UpstreamError);
            Ok(Going { head, notes, way })
        }
        Framing::Events => Ok(Going { head, notes, way: Way::Stream(cleared, passage, upcall) }),
        Framing::Json => {
            let whole =
                answer::whole(gateway, settings, &cleared, &mut passage, &mut upcall, journal);
            match whole.await {
                Ok(mut whole) => {
                    let mut notes = notes;
                    notes.append(&mut whole.notes);
                    Ok(Going { head, notes, way: Way::Whole(whole, passage) })
                }
                Err(mut stopped) => {
                    upcall.cancel();
                    stopped.refusal.notes.extend(notes);
                    Err(stop(passage, stopped.ending, stopped.refusal).await)
                }
            }
        }
        Framing::Unreadable => {
            upcall.cancel();
            let stopped = Stopped::upstream(
                Code::UpstreamInvalid,
                "The upstream's answer is neither JSON nor an event stream.",
            );
            Err(stop(passage, stopped.ending, stopped.refusal).await)
        }
    }
}

/// Tells the ledger how it ended before the client hears of it.
async fn stop(mut passage: Passage, ending: Ending, refusal: Box<Refusal>) -> Box<Refusal> {
    passage.close(ending).await;
    refusal
}

/// A body that cannot be read, where the operator only watches: up as it is, and its answer down as it is.
async fn opaque(
    gateway: &Arc<Gateway>,
    settings: &Settings,
    journal: &mut Journal,
    mut parts: Parts,
    body: Bytes,
    notes: Vec<Fault>,
) -> Result<Going, Box<Refusal>> {
    journal.leads(&mut parts.headers);
    let mut upcall = forward::pass(gateway, settings, parts, UpBody::whole(&body))?;
    journal.goes_up(None);
    match poll_fn(|cx| upcall.poll_head(cx)).await {
        Ok(head) => {
            journal.heard(head.status, false);
            let ending = ending_by(head.status);
            Ok(Going { head, notes, way: Way::Through(upcall, None, ending) })
        }
        Err(broken) => Err(Stopped::upstream(broken.code(), broken.message()).refusal),
    }
}

/// How an unjudged answer counts when all of it went down.
fn ending_by(status: StatusCode) -> ExchangeOutcome {
    if status.is_server_error() {
        ExchangeOutcome::UpstreamError
    } else {
        ExchangeOutcome::Delivered
    }
}

/// How a response is to be read: by its status and its content type, whatever the request asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Error,
    Json,
    Events,
    Unreadable,
}

impl Framing {
    fn of(head: &response::Parts) -> Self {
        if !head.status.is_success() {
            return Framing::Error;
        }
        let encodings = head.headers.get_all(header::CONTENT_ENCODING);
        if encodings.iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity")) {
            return Framing::Unreadable;
        }
        let media = head.headers.get(header::CONTENT_TYPE);
        match media.and_then(|value| value.to_str().ok()) {
            Some(value) if body::is_json(value) => Framing::Json,
            Some(value) if body::essence(value) == "text/event-stream" => Framing::Events,
            _ => Framing::Unreadable,
        }
    }
}
