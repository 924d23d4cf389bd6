//! Aborting the upstream's work.
//!
//! SGLang notices a closed connection late, or for whole responses in some versions never, so
//! `POST /abort_request` goes first and the connection is closed after. It matches a `rid` **by prefix**:
//! a client's own short `rid` could abort strangers' work, so only ids that we minted are ever named.
//! Fire and forget, bounded, counted.

use super::pool::{Pool, UpBody};
use crate::ledger::event::ExchangeId;
use crate::telemetry::{AbortOutcome, Metrics};
use crate::wire::hex::Hex;
use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Uri, header};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

/// Most aborts under way at once; past that, closing the connection has to do.
const AT_ONCE: usize = 256;
/// How long one abort may take before the connection is closed all the same.
const PATIENCE: Duration = Duration::from_secs(2);

/// An upstream request id that we minted: 32 hex digits of randomness, made of nothing else.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Rid(u128);

impl Rid {
    /// A new one.
    #[must_use]
    pub(crate) fn mint() -> Self {
        Rid(rand::random())
    }

    /// As the record keeps it.
    #[must_use]
    pub(crate) fn as_id(&self) -> ExchangeId {
        ExchangeId(self.0)
    }
}

impl fmt::Display for Rid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Hex::of(self.0).as_str())
    }
}

impl fmt::Debug for Rid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where aborts go.
#[derive(Debug)]
pub(crate) struct Target {
    /// The upstream's route for them.
    pub uri: Uri,
    /// `authorization` for it.
    pub authorization: Option<HeaderValue>,
}

/// Sends aborts.
pub(crate) struct Aborter {
    pool: Pool,
    target: ArcSwap<Target>,
    permits: Arc<Semaphore>,
    tasks: TaskTracker,
    runtime: Handle,
    metrics: Metrics,
}

impl Aborter {
    /// An aborter that posts to `target`, on `runtime`.
    #[must_use]
    pub(crate) fn new(
        pool: Pool,
        target: Target,
        tasks: TaskTracker,
        runtime: Handle,
        metrics: Metrics,
    ) -> Self {
        Aborter {
            pool,
            target: ArcSwap::from_pointee(target),
            permits: Arc::new(Semaphore::new(AT_ONCE)),
            tasks,
            runtime,
            metrics,
        }
    }

    /// From now on aborts go there.
    pub(super) fn aim(&self, target: Target) {
        self.target.store(Arc::new(target));
    }

    /// Aborts `rid`, then lets go of `connection`.
    pub(crate) fn abort<T: Send + 'static>(&self, rid: Rid, connection: T) {
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            self.metrics.abort(AbortOutcome::Dropped);
            return;
        };
        let body = Bytes::from(format!("{{\"rid\":\"{rid}\"}}"));
        let mut request = Request::new(UpBody::whole(&body));
        *request.method_mut() = Method::POST;
        let target = self.target.load();
        *request.uri_mut() = target.uri.clone();
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(key) = &target.authorization {
            headers.insert(header::AUTHORIZATION, key.clone());
        }
        let pool = self.pool.clone();
        let metrics = self.metrics.clone();
        let task = async move {
            let outcome = match tokio::time::timeout(PATIENCE, pool.ask(request)).await {
                Ok(Ok(status)) if status.is_success() => AbortOutcome::Accepted,
                _ => AbortOutcome::Failed,
            };
            metrics.abort(outcome);
            tracing::debug!(rid = %rid, outcome = outcome.as_str(), "abort");
            drop(connection);
            drop(permit);
        };
        self.tasks.spawn_on(task, &self.runtime);
    }
}

impl fmt::Debug for Aborter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aborter").field("target", &self.target.load()).finish_non_exhaustive()
    }
}
