//! Batches of spans on their way to the collector: OTLP over HTTP, in protobuf.
//!
//! One task takes what is there, at most [`BATCH`] at once, each [`EVERY`], or as soon as a batch is full; one that
//! cannot be sent is tried once more and then dropped. While it is tried the queue fills, and what comes after is dropped where it is
//! made: so a collector that is gone costs a bounded amount of memory, and no exchange waits.

use super::wire::{self, attribute};
use crate::telemetry::{Metrics, SpanOutcome};
use bytes::Bytes;
use http::{Uri, uri};
use prost::Message as _;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

/// Most spans of one request.
pub(super) const BATCH: usize = 512;
/// How often what is there is sent.
const EVERY: Duration = Duration::from_secs(1);
/// Where traces go under an endpoint (OTLP's specification, section OTLP/HTTP Request).
const PATH: &str = "/v1/traces";

/// What is to be sent.
#[derive(Debug)]
pub struct Batches {
    queue: mpsc::Receiver<Bytes>,
    /// A batch is full.
    full: Arc<Notify>,
    endpoint: Uri,
    metrics: Metrics,
    /// Whether the last one did not get through: said once.
    failing: bool,
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
    pub(super) fn new(
        queue: mpsc::Receiver<Bytes>,
        full: Arc<Notify>,
        endpoint: Uri,
        metrics: Metrics,
    ) -> Self {
        Batches { queue, full, endpoint, metrics, failing: false }
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
        post: impl Fn(Bytes) -> F,
        end: CancellationToken,
    ) {
        let mut spans = Vec::new();
        loop {
            tokio::select! {
                () = end.cancelled() => break,
                () = self.full.notified() => {}
                () = tokio::time::sleep(EVERY) => {}
            }
            while self.take(&mut spans) {
                let body = encode(std::mem::take(&mut spans));
                let sent = post(body.0.clone()).await || {
                    tokio::select! {
                        () = end.cancelled() => {}
                        () = tokio::time::sleep(EVERY) => {}
                    }
                    post(body.0).await
                };
                self.sent(sent, body.1);
            }
        }
        while self.take(&mut spans) {
            let (body, count) = encode(std::mem::take(&mut spans));
            let sent = post(body).await;
            self.sent(sent, count);
            if !sent {
                break;
            }
        }
    }

    /// Whether there is anything to send.
    fn take(&mut self, spans: &mut Vec<Bytes>) -> bool {
        while spans.len() < BATCH
            && let Ok(span) = self.queue.try_recv()
        {
            spans.push(span);
        }
        !spans.is_empty()
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

/// The request, and how many spans are in it.
fn encode(spans: Vec<Bytes>) -> (Bytes, u64) {
    let count = spans.len() as u64;
    let (name, version) = ("tigertally", env!("CARGO_PKG_VERSION"));
    let request = wire::Request {
        resource_spans: vec![wire::ResourceSpans {
            resource: Some(wire::Resource {
                attributes: vec![
                    attribute("service.name", name),
                    attribute("service.version", version),
                ],
            }),
            scope_spans: vec![wire::ScopeSpans {
                scope: Some(wire::Scope { name: name.to_owned(), version: version.to_owned() }),
                spans,
            }],
        }],
    };
    (Bytes::from(request.encode_to_vec()), count)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

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
