//! Gauges that cannot be left standing: what raises one is a value, and its end lowers it again.

use prometheus::IntGauge;

/// One exchange in flight, until this is dropped.
#[derive(Debug)]
pub struct InFlight(IntGauge);

impl InFlight {
    pub(super) fn new(gauge: IntGauge) -> Self {
        gauge.inc();
        InFlight(gauge)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Bytes held of one response, until they are released or this is dropped.
#[derive(Debug)]
pub struct Held {
    gauge: IntGauge,
    bytes: i64,
}

impl Held {
    pub(super) fn new(gauge: IntGauge) -> Self {
        Held { gauge, bytes: 0 }
    }

    /// So many more bytes are held.
    pub fn add(&mut self, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.bytes = self.bytes.saturating_add(bytes);
        self.gauge.add(bytes);
    }

    /// None are held any more.
    pub fn release(&mut self) {
        self.gauge.sub(std::mem::take(&mut self.bytes));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release();
    }
}
