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
use export::Tray;
use foldhash::fast::RandomState;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Exchanges whose client's trace is remembered, so that later ones can be linked to them; as many in each part. Without
/// one the task says which it is.
const REMEMBERED: usize = 1024;
/// Parts of that memory, so that threads seldom meet.
const PARTS: usize = 8;

/// Makes spans; off unless the operator wants them.
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<Inner>>);

struct Inner {
    /// Where traces go.
    endpoint: Uri,
    tray: Arc<Tray>,
    /// Whether somebody sends them.
    sent: AtomicBool,
    memory: [Mutex<Memory>; PARTS],
    metrics: Metrics,
}

impl Inner {
    /// The part that remembers this exchange.
    fn memory(&self, exchange: ExchangeId) -> &Mutex<Memory> {
        &self.memory[exchange.0 as usize % PARTS]
    }
}

/// The clients' traces of the last exchanges that had one.
#[derive(Default)]
struct Memory {
    /// The ids are random and ours: a fast hash of them will do.
    traces: HashMap<ExchangeId, u128, RandomState>,
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
        Tracer(Some(Arc::new(Inner {
            endpoint: export::path_of(endpoint),
            tray: Arc::default(),
            sent: AtomicBool::new(false),
            memory: Default::default(),
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
        if let Ok(value) = HeaderValue::from_bytes(&span.own().written()) {
            headers.insert(TRACEPARENT, value);
        }
        if !span.has_parent() {
            // It belongs to a trace that we did not take up.
            headers.remove(TRACESTATE);
        }
        if span.has_parent() {
            inner.memory(span.exchange()).lock().keep(span.exchange(), span.own().trace);
        }
    }

    /// The trace of an exchange that this process has seen lately.
    fn remembered(&self, exchange: ExchangeId) -> Option<u128> {
        self.0.as_ref()?.memory(exchange).lock().traces.get(&exchange).copied()
    }

    /// The exchange ended: its spans go to the collector.
    pub fn end(&self, span: ExchangeSpan) {
        let Some(inner) = &self.0 else { return };
        let mut dropped = 0;
        span.tell(
            |exchange| self.remembered(exchange),
            |span| dropped += u64::from(!inner.tray.put(span)),
        );
        if dropped > 0 {
            inner.metrics.spans(SpanOutcome::Full, dropped);
        }
    }

    /// What is to be sent, once: for the one task that sends it.
    #[must_use]
    pub fn batches(&self) -> Option<Batches> {
        let inner = self.0.as_ref()?;
        let first = !inner.sent.swap(true, Ordering::Relaxed);
        let (tray, endpoint) = (Arc::clone(&inner.tray), inner.endpoint.clone());
        first.then(|| Batches::new(tray, endpoint, inner.metrics.clone()))
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
