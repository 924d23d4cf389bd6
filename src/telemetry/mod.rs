//! What is measured and written down: numbers ([`metrics`]), the task record ([`record`]), traces ([`trace`]), logs
//! ([`logs`]) and what the console shows ([`feed`]).
//!
//! Numbers are sums of the facts that the ledger commits and of what the proxy did; labels are closed
//! sets, so no client can make a new series. None of them ever holds an argument, a result, a prompt or a key.

mod facts;
mod families;
pub mod feed;
mod gauges;
mod labels;
pub mod logs;
pub mod metrics;
pub mod record;
pub mod trace;

pub use feed::Feed;
pub use gauges::{Held, InFlight};
pub use labels::{
    AbortOutcome, CallVerdict, ExchangeOutcome, FaultVerdict, ModelCall, Route, SpanOutcome,
    StoreOp,
};
pub use metrics::Metrics;
pub use record::{ExchangeFacts, Recorder};
pub use trace::{ExchangeSpan, Tracer};

/// Where a proxy tells what it does.
#[derive(Clone, Debug)]
pub struct Telemetry {
    /// Numbers.
    pub metrics: Metrics,
    /// The task record.
    pub recorder: Recorder,
}

impl From<Metrics> for Telemetry {
    /// Numbers only.
    fn from(metrics: Metrics) -> Self {
        Telemetry { metrics, recorder: Recorder::default() }
    }
}
