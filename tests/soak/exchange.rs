//! One exchange of an application, and what the application holds against its answer.

use crate::plan::Kind;
use crate::reading::Reading;
use crate::world::{Call, World};
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

pub(crate) type HttpClient = Client<HttpConnector, Full<Bytes>>;

/// How long an exchange may take. The upstream never needs more than two seconds.
const PATIENCE: Duration = Duration::from_secs(20);
/// A settled answer that came down so long (ns) after the advance was held somewhere.
const SLACK: u64 = 3_000_000_000;
/// Codes that tell that the request was not let in.
const NOT_LET_IN: [&str; 9] = [
    "stale",
    "stale_generation",
    "duplicate",
    "conflict",
    "mismatch",
    "unmatched",
    "late",
    "generation_required",
    "budget_exhausted",
];

/// What an application knows of an exchange of its own that is under way.
#[derive(Debug, Default)]
pub(crate) struct Track {
    /// When it was certain that something newer counts: its head was here, or the advance had returned.
    superseded: AtomicU64,
    /// Something was sent that may take its place.
    excused: AtomicBool,
    /// It repeats something undeclared: it may be told so.
    pub(crate) may_be_duplicate: AtomicBool,
}

impl Track {
    pub(crate) fn excuse(&self) {
        self.excused.store(true, Relaxed);
    }

    pub(crate) fn supersede(&self, now: u64) {
        let _ = self.superseded.compare_exchange(0, now, Relaxed, Relaxed);
    }
}

/// What is asked.
pub(crate) struct Ask {
    pub(crate) order: String,
    pub(crate) kind: Kind,
    pub(crate) request: Request<Full<Bytes>>,
    /// Whether the client is slow to read.
    pub(crate) slow: bool,
    /// What no longer counts once this is let in.
    pub(crate) replaces: Vec<Arc<Track>>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// A sound answer, whole. The generation that its headers name.
    Answered { call: Option<Call>, generation: Option<u64> },
    /// An error instead, or at its end.
    Stopped(String),
    /// Nothing usable: recorded as a violation.
    Broken,
}

/// An answer that was read to its end.
struct Read {
    status: u16,
    headers: HeaderMap,
    reading: Reading,
}

/// Sends it, reads the answer to its end, and checks it.
pub(crate) async fn run(
    world: Arc<World>,
    client: HttpClient,
    ask: Ask,
    track: Arc<Track>,
) -> Outcome {
    world.counts.exchanges.fetch_add(1, Relaxed);
    let (order, kind) = (ask.order.clone(), ask.kind);
    let read = match tokio::time::timeout(PATIENCE, read(&world, &client, ask)).await {
        Ok(Ok(read)) => read,
        Ok(Err(error)) => {
            world.violation(format!("{order} {kind:?}: {error}"));
            return Outcome::Broken;
        }
        Err(_) => {
            world.violation(format!("{order} {kind:?}: no end after {PATIENCE:?}"));
            return Outcome::Broken;
        }
    };
    let check = Check { world: &world, order: &order, kind, track: &track };
    check.stamps(&read.reading);
    match read.reading.error.clone() {
        Some(code) => check.stopped(&read, code),
        None => check.answered(read),
    }
}

async fn read(world: &World, client: &HttpClient, ask: Ask) -> Result<Read, String> {
    let response =
        client.request(ask.request).await.map_err(|error| format!("no answer: {error:?}"))?;
    let head_at = world.now();
    let supersede = || ask.replaces.iter().for_each(|older| older.supersede(head_at));
    let (parts, mut body) = response.into_parts();
    let (status, headers) = (parts.status.as_u16(), parts.headers);
    if status == 200 {
        supersede();
    }
    let media = headers.get("content-type").and_then(|value| value.to_str().ok());
    let stream = media.is_some_and(|media| media.starts_with("text/event-stream"));
    let mut reading = Reading::default();
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| format!("the answer broke off: {error:?}"))?;
        let Ok(data) = frame.into_data() else { continue };
        if stream {
            reading.push(&data, &ask.order);
        } else {
            bytes.extend_from_slice(&data);
        }
        if ask.slow {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    if !stream {
        reading.whole(&bytes, &ask.order);
    }
    let let_in = reading.error.as_deref().is_none_or(|code| !NOT_LET_IN.contains(&code));
    if let_in {
        supersede();
    }
    Ok(Read { status, headers, reading })
}

struct Check<'a> {
    world: &'a World,
    order: &'a str,
    kind: Kind,
    track: &'a Track,
}

impl Check<'_> {
    fn holds(&self, holds: bool, otherwise: impl FnOnce() -> String) {
        self.world.holds(holds, || format!("{} {:?}: {}", self.order, self.kind, otherwise()));
    }

    /// Whatever the upstream sent after something newer was certain must not be here. The proxy looks
    /// before it hands anything on, so there is no grace, not even of a millisecond.
    fn stamps(&self, reading: &Reading) {
        self.holds(reading.wrong.is_none(), || format!("{:?}", reading.wrong));
        self.holds(!reading.torn(), || "it ended within an event".to_owned());
        let superseded = self.track.superseded.load(Relaxed);
        if superseded == 0 {
            return;
        }
        self.holds(reading.sent_at <= superseded, || {
            let late = Duration::from_nanos(reading.sent_at - superseded);
            format!(
                "a piece sent {late:?} after something newer counted was delivered: {reading:?}"
            )
        });
        let over = self.world.now().saturating_sub(superseded);
        self.holds(reading.error.is_some() || over < SLACK, || {
            format!(
                "it was delivered {:?} after something newer counted",
                Duration::from_nanos(over)
            )
        });
    }

    fn stopped(&self, read: &Read, code: String) -> Outcome {
        let counts = &self.world.counts;
        let fine = match code.as_str() {
            "stale_answer" => {
                counts.stale_answers_withheld.fetch_add(1, Relaxed);
                self.track.excused.load(Relaxed)
            }
            "overtaken" => {
                counts.overtaken_withheld.fetch_add(1, Relaxed);
                self.track.excused.load(Relaxed)
            }
            "duplicate" => {
                counts.duplicates_refused.fetch_add(1, Relaxed);
                self.track.may_be_duplicate.load(Relaxed)
            }
            "stale" | "stale_generation" => self.track.excused.load(Relaxed),
            other => {
                let acts = self.world.acts(self.order, self.kind);
                let known = acts.iter().any(|act| act.codes().contains(&other));
                let count = if other == "boom" {
                    &counts.upstream_errors
                } else {
                    &counts.bad_outputs_refused
                };
                count.fetch_add(1, Relaxed);
                known
            }
        };
        self.holds(fine, || format!("stopped without a reason: {} {code}", read.status));
        self.holds(read.reading.call.is_none(), || {
            format!("pieces of a call came before {code}: {:?}", read.reading.call)
        });
        if read.status != 200 && code != "boom" {
            let retry = read.headers.get("x-should-retry").map(|value| value.as_bytes());
            self.holds(read.status == 422 && retry == Some(b"false"), || {
                format!("{code} came as {} with x-should-retry {retry:?}", read.status)
            });
        }
        Outcome::Stopped(code)
    }

    fn answered(&self, read: Read) -> Outcome {
        let reading = read.reading;
        self.holds(read.status == 200, || format!("status {}", read.status));
        self.holds(reading.done && reading.finish.is_some(), || {
            format!("the answer has no end: {reading:?}")
        });
        let work = reading.number.and_then(|number| self.world.change(number, |one| one.clone()));
        let Some(work) = work else {
            self.holds(false, || format!("an answer that the upstream did not give: {reading:?}"));
            return Outcome::Broken;
        };
        self.holds(work.order == self.order && work.kind == self.kind, || {
            format!("the answer to something else: {work:?}")
        });
        self.holds(work.sent == 0 || work.sent == reading.events, || {
            format!("{} of {} pieces came", reading.events, work.sent)
        });
        self.holds(reading.call == work.call, || {
            format!("the call is not what was sent whole: {:?}, sent {:?}", reading.call, work.call)
        });
        let counts = &self.world.counts;
        counts.answers_delivered.fetch_add(1, Relaxed);
        counts.calls_delivered.fetch_add(u64::from(reading.call.is_some()), Relaxed);
        let number = read.headers.get("x-generation").and_then(|value| value.to_str().ok());
        Outcome::Answered { call: reading.call, generation: number.and_then(|n| n.parse().ok()) }
    }
}
