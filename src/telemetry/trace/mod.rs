//! Traces: what an exchange was part of, told to an OpenTelemetry collector (opt-in, `telemetry.otlp_endpoint`).
//!
//! | room | what is in it |
//! | --- | --- |
//! | `parent` | W3C's `traceparent` |
//! | `span` | one exchange as a span, with the names of OpenTelemetry's GenAI conventions |
//! | `wire` | OTLP's messages |
//! | `export` | the queue, the batches, and what is dropped |
//!
//! An exchange's span has the client's as its parent, and the upstream gets ours. Without a client's trace all
//! exchanges of one task share one that is made of the task itself, whichever replica serves them.
//! Spans hold ids, names, codes, counts and times: no prompt, no argument, no result. Telling never delays an
//! exchange: what the queue cannot take is dropped and counted.
//!
//! Not OpenTelemetry's SDK: its batches run on a thread of their own, and it does not tell what it dropped.

mod export;
mod parent;
mod span;
mod wire;

pub use export::Batches;
pub use parent::TraceParent;
pub use span::{Asked, ExchangeSpan, Usage};

use super::{Metrics, SpanOutcome};
use crate::ledger::event::ExchangeId;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use parking_lot::Mutex;
use prost::Message as _;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::{Notify, mpsc};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Spans that wait to be sent; past that they are dropped.
const QUEUE: usize = 4096;
/// Exchanges whose trace is remembered, so that later ones can be linked to them.
const REMEMBERED: usize = 8192;

/// Makes spans; off unless the operator wants them.
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<Inner>>);

struct Inner {
    /// Where traces go.
    endpoint: Uri,
    queue: mpsc::Sender<Bytes>,
    /// A batch is full.
    full: Arc<Notify>,
    batches: Mutex<Option<mpsc::Receiver<Bytes>>>,
    memory: Mutex<Memory>,
    metrics: Metrics,
}

/// The traces of the last exchanges.
#[derive(Default)]
struct Memory {
    traces: HashMap<ExchangeId, u128>,
    order: VecDeque<ExchangeId>,
}

impl Memory {
    fn keep(&mut self, exchange: ExchangeId, trace: u128) {
        if self.order.len() >= REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.traces.remove(&oldest);
        }
        self.order.push_back(exchange);
        self.traces.insert(exchange, trace);
    }
}

impl Tracer {
    /// Traces for that collector: the base URL of its OTLP/HTTP receiver, or the whole of its traces' path.
    #[must_use]
    pub fn to(endpoint: &Uri, metrics: Metrics) -> Self {
        let (queue, batches) = mpsc::channel(QUEUE);
        Tracer(Some(Arc::new(Inner {
            endpoint: export::path_of(endpoint),
            queue,
            full: Arc::default(),
            batches: Mutex::new(Some(batches)),
            memory: Mutex::default(),
            metrics,
        })))
    }

    /// Whether spans are wanted.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// A guarded exchange begins. `None` when nobody wants its span: traces are off, or its client's are
    /// not sampled.
    #[must_use]
    pub fn begin(&self, headers: &HeaderMap, exchange: ExchangeId) -> Option<Box<ExchangeSpan>> {
        self.0.as_ref()?;
        let mut values = headers.get_all(&TRACEPARENT).iter();
        let parent = match (values.next(), values.next()) {
            (Some(value), None) => TraceParent::read(value.as_bytes()),
            _ => None,
        };
        if parent.is_some_and(|parent| !parent.sampled) {
            return None;
        }
        Some(Box::new(ExchangeSpan::new(parent, exchange)))
    }

    /// Puts the exchange's own span into the headers of what goes up. Elsewhere a client's headers pass as
    /// they are.
    pub fn lead(&self, span: &ExchangeSpan, headers: &mut HeaderMap) {
        let Some(inner) = &self.0 else { return };
        if let Ok(value) = HeaderValue::from_str(&span.own().to_string()) {
            headers.insert(TRACEPARENT, value);
        }
        if !span.has_parent() {
            // It belongs to a trace that we did not take up.
            headers.remove(TRACESTATE);
        }
        inner.memory.lock().keep(span.exchange(), span.own().trace);
    }

    /// The trace of an exchange that this process has seen lately.
    fn remembered(&self, exchange: ExchangeId) -> Option<u128> {
        self.0.as_ref()?.memory.lock().traces.get(&exchange).copied()
    }

    /// The exchange ended: its spans go to the collector.
    pub fn end(&self, span: ExchangeSpan) {
        let Some(inner) = &self.0 else { return };
        for span in span.into_wire(|exchange| self.remembered(exchange)) {
            if inner.queue.try_send(span.encode_to_vec().into()).is_err() {
                inner.metrics.spans(SpanOutcome::Full, 1);
            }
        }
        if inner.queue.max_capacity() - inner.queue.capacity() >= export::BATCH {
            inner.full.notify_one();
        }
    }

    /// What is to be sent, once: for the one task that sends it.
    #[must_use]
    pub fn batches(&self) -> Option<Batches> {
        let inner = self.0.as_ref()?;
        let queue = inner.batches.lock().take()?;
        let full = Arc::clone(&inner.full);
        Some(Batches::new(queue, full, inner.endpoint.clone(), inner.metrics.clone()))
    }
}

impl std::fmt::Debug for Tracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tracer").field(&self.is_on()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut memory = Memory::default();
        for n in 0..REMEMBERED as u128 + 10 {
            memory.keep(ExchangeId(n), n);
        }
        assert_eq!((memory.traces.len(), memory.order.len()), (REMEMBERED, REMEMBERED));
        assert!(!memory.traces.contains_key(&ExchangeId(9)));
        assert_eq!(memory.traces.get(&ExchangeId(10)), Some(&10));
    }
}
