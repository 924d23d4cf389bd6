//! Batches of spans on their way to the collector: OTLP over HTTP, in protobuf.
//!
//! Spans gather in a [`Tray`]. One task takes a batch as soon as it is full, and each [`EVERY`] what there is; one that
//! cannot be sent is tried once more and then dropped. While it is tried the tray fills, and what comes after is
//! dropped where it is made: so a collector that is gone costs a bounded amount of memory, and no exchange waits.

use super::wire::{Fields, request};
use crate::telemetry::{Metrics, SpanOutcome};
use bytes::Bytes;
use http::{Uri, uri};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Most spans of one request.
const BATCH: usize = 512;
/// Most batches that wait; what comes on top is dropped.
const MOST_WAITING: usize = 8;
/// How often what is there is sent.
const EVERY: Duration = Duration::from_secs(1);
/// Where traces go under an endpoint (OTLP's specification, section OTLP/HTTP Request).
const PATH: &str = "/v1/traces";

/// What is to be sent.
#[derive(Debug)]
pub struct Batches {
    tray: Arc<Tray>,
    endpoint: Uri,
    metrics: Metrics,
    /// Whether the last one did not get through: said once.
    failing: bool,
}

/// Some spans of a scope.
#[derive(Debug)]
struct Batch {
    spans: Fields,
    count: usize,
}

/// Where spans wait to be sent.
#[derive(Debug, Default)]
pub(super) struct Tray {
    /// None of them is empty, and all but the last are full.
    batches: Mutex<VecDeque<Batch>>,
    /// How many bytes the last one had that was taken.
    usual: AtomicUsize,
    /// A batch is full.
    full: Notify,
}

impl Tray {
    /// Takes a span, if there is room. Never waits.
    pub(super) fn put(&self, span: &Fields) -> bool {
        let mut batches = self.batches.lock();
        if batches.back().is_none_or(|last| last.count >= BATCH) {
            if batches.len() >= MOST_WAITING {
                return false;
            }
            let spans = Fields::with_capacity(self.usual.load(Ordering::Relaxed));
            batches.push_back(Batch { spans, count: 0 });
        }
        let Some(last) = batches.back_mut() else { return false };
        last.spans.message(request::SPAN, span);
        last.count += 1;
        let full = last.count == BATCH;
        drop(batches);
        if full {
            self.full.notify_one();
        }
        true
    }

    /// The oldest batch, if it is full or any will do.
    fn take(&self, any: bool) -> Option<Batch> {
        let mut batches = self.batches.lock();
        let there = batches.front().is_some_and(|first| any || first.count == BATCH);
        let taken = if there { batches.pop_front() } else { None };
        if let Some(batch) = &taken {
            self.usual.store(batch.spans.len(), Ordering::Relaxed);
        }
        taken
    }
}

/// The endpoint with the path of traces, unless it has it.
pub(super) fn path_of(endpoint: &Uri) -> Uri {
    let path = endpoint.path().trim_end_matches('/');
    if path.ends_with(PATH) {
        return endpoint.clone();
    }
    let mut parts = endpoint.clone().into_parts();
    parts.path_and_query = uri::PathAndQuery::try_from(format!("{path}{PATH}")).ok();
    Uri::from_parts(parts).unwrap_or_else(|_| endpoint.clone())
}

impl Batches {
    pub(super) fn new(tray: Arc<Tray>, endpoint: Uri, metrics: Metrics) -> Self {
        Batches { tray, endpoint, metrics, failing: false }
    }

    /// Where they go.
    #[must_use]
    pub fn endpoint(&self) -> &Uri {
        &self.endpoint
    }

    /// Sends what comes until `end`, and then what is left, once. `post` sends a body and says whether it
    /// was taken.
    pub async fn send<F: Future<Output = bool>>(
        mut self,
        post: impl Fn([Bytes; 2]) -> F,
        end: CancellationToken,
    ) {
        loop {
            // What comes while these are sent waits for its own time.
            let mut due = tokio::select! {
                () = end.cancelled() => break,
                () = self.tray.full.notified() => 0,
                () = tokio::time::sleep(EVERY) => self.tray.batches.lock().len(),
            };
            while let Some(batch) = self.tray.take(due > 0) {
                due = due.saturating_sub(1);
                let body = encode(batch.spans);
                let sent = post(body.clone()).await || {
                    tokio::select! {
                        () = end.cancelled() => {}
                        () = tokio::time::sleep(EVERY) => {}
                    }
                    post(body).await
                };
                self.sent(sent, batch.count as u64);
            }
        }
        while let Some(batch) = self.tray.take(true) {
            let sent = post(encode(batch.spans)).await;
            self.sent(sent, batch.count as u64);
            if !sent {
                break;
            }
        }
    }

    fn sent(&mut self, sent: bool, spans: u64) {
        let outcome = if sent { SpanOutcome::Exported } else { SpanOutcome::Failed };
        self.metrics.spans(outcome, spans);
        if sent == self.failing {
            self.failing = !sent;
            let endpoint = self.endpoint.authority().map_or("", |authority| authority.as_str());
            if sent {
                tracing::info!(endpoint, "the collector takes spans again");
            } else {
                tracing::warn!(endpoint, "the collector does not take spans: they are dropped");
            }
        }
    }
}

/// The request, in two pieces: the spans are not copied.
fn encode(spans: Fields) -> [Bytes; 2] {
    let (name, version) = ("tigertally", env!("CARGO_PKG_VERSION"));
    let mut resource = Fields::default();
    resource.attribute(request::RESOURCE_ATTRIBUTE, "service.name", name);
    resource.attribute(request::RESOURCE_ATTRIBUTE, "service.version", version);
    let mut scope = Fields::default();
    scope.bytes(request::SCOPE_NAME, name.as_bytes());
    scope.bytes(request::SCOPE_VERSION, version.as_bytes());
    let mut scope_spans = Fields::default();
    scope_spans.message(request::SCOPE, &scope);
    let mut within = Fields::default();
    within.message(request::RESOURCE, &resource);
    within.begin(request::SCOPE_SPANS, scope_spans.len() + spans.len());
    within.append(&scope_spans);
    let mut head = Fields::default();
    head.begin(request::RESOURCE_SPANS, within.len() + spans.len());
    head.append(&within);
    [head, spans].map(|part| Bytes::from(part.into_bytes()))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_batch_goes_when_it_is_full_and_what_there_is_when_it_is_time() {
        let tray = Tray::default();
        let mut span = Fields::default();
        span.number(6, 1);
        assert!(tray.take(true).is_none());
        for n in 0..MOST_WAITING * BATCH {
            assert!(tray.put(&span), "{n}");
        }
        assert!(!tray.put(&span));
        for _ in 1..MOST_WAITING {
            assert_eq!(tray.take(false).unwrap().count, BATCH);
        }
        assert_eq!(tray.take(false).unwrap().spans.len(), BATCH * 4);
        assert!(tray.put(&span));
        assert!(tray.take(false).is_none());
        assert_eq!(tray.take(true).unwrap().count, 1);
        assert!(tray.take(true).is_none());
    }

    #[test]
    fn traces_have_their_path() {
        for (endpoint, wanted) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"),
            ("https://c.example/otlp/", "https://c.example/otlp/v1/traces"),
            ("https://c.example/v1/traces", "https://c.example/v1/traces"),
        ] {
            assert_eq!(path_of(&endpoint.parse().unwrap()).to_string(), wanted);
        }
    }
}
