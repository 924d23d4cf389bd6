//! What is measured and written down: numbers ([`metrics`]), logs ([`logs`]) and what the console shows
//! ([`feed`]).
//!
//! Numbers are sums of the facts that the ledger commits and of what the proxy did; labels are closed
//! sets, so no client can make a new series. Neither ever holds an argument, a result, a prompt or a key.

mod facts;
mod families;
pub mod feed;
mod gauges;
mod labels;
pub mod logs;
pub mod metrics;

pub use feed::Feed;
pub use gauges::{Held, InFlight};
pub use labels::{
    AbortOutcome, CallVerdict, ExchangeOutcome, FaultVerdict, ModelCall, Route, StoreOp,
};
pub use metrics::Metrics;
