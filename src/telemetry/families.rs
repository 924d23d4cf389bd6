//! The families of metrics: their names (a contract with dashboards), labels and buckets, and how they are
//! made: one registry, one prefix, one series for each label of a closed set.

use super::labels::{ExchangeOutcome, Label, Route};
use prometheus::core::Collector;
use prometheus::{
    Error, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts,
    Registry,
};
use std::sync::OnceLock;

/// 10 µs to 1 s: what the proxy itself, or its store, may take.
const OVERHEADS: &[f64] = &[
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025,
    0.05, 0.1, 0.25, 0.5, 1.0,
];

/// 10 ms to 10 min: what a model may take.
const MODEL: &[f64] = &[
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0,
];

/// 5 ms to 1 h: what a tool, a human who approves it, or a whole task may take.
const WAITS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
    1800.0, 3600.0,
];

/// One family: all series of one name.
pub(super) struct Family {
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    /// Upper bounds, in seconds; histograms only.
    buckets: &'static [f64],
}

impl Family {
    fn opts(&self) -> Opts {
        Opts::new(self.name, self.help).namespace("tigertally")
    }

    fn histogram(&self) -> HistogramOpts {
        HistogramOpts::from(self.opts()).buckets(self.buckets.to_vec())
    }
}

pub(super) const EXCHANGES: Family = Family {
    name: "exchanges_total",
    help: "Exchanges ended: the last byte was handed over, or it was refused or broken off.",
    labels: &["route", "outcome"],
    buckets: &[],
};

pub(super) const FAULTS: Family = Family {
    name: "faults_total",
    help: "Faults found; one exchange may have several.",
    labels: &["code", "verdict"],
    buckets: &[],
};

pub(super) const RESULTS: Family = Family {
    name: "results_total",
    help: "Decisions of the ledger on tool results (tracked conversations only): accepted, forced, closed, or the code that refused.",
    labels: &["verdict"],
    buckets: &[],
};

pub(super) const CALLS: Family = Family {
    name: "calls_total",
    help: "Tool calls let out, refused with their message, or timed out.",
    labels: &["tool", "verdict"],
    buckets: &[],
};

pub(super) const TOOL_WAIT: Family = Family {
    name: "tool_wait_seconds",
    help: "From the release of a call to the acceptance of its result; counted then.",
    labels: &["tool"],
    buckets: WAITS,
};

pub(super) const TASKS: Family = Family {
    name: "tasks_total",
    help: "Tasks (generations that called a model) ended; each is counted once.",
    labels: &["outcome"],
    buckets: &[],
};

pub(super) const TASK_SECONDS: Family = Family {
    name: "task_seconds",
    help: "From a task's first model call to its end.",
    labels: &["outcome"],
    buckets: WAITS,
};

pub(super) const MODEL_CALL: Family = Family {
    name: "model_call_seconds",
    help: "Guarded answers delivered: from the request going up to the last byte going down.",
    labels: &["call"],
    buckets: MODEL,
};

pub(super) const FIRST_TOKEN: Family = Family {
    name: "time_to_first_token_seconds",
    help: "From a request going up to the first event of its stream going down.",
    labels: &[],
    buckets: MODEL,
};

pub(super) const OVERHEAD: Family = Family {
    name: "overhead_seconds",
    help: "What the proxy itself added to an exchange that had gone up, when it ended.",
    labels: &[],
    buckets: OVERHEADS,
};

pub(super) const IN_FLIGHT: Family =
    Family { name: "in_flight_exchanges", help: "Exchanges under way.", labels: &[], buckets: &[] };

pub(super) const OPEN_CALLS: Family = Family {
    name: "open_calls",
    help: "Calls let out whose result is awaited; over Redis this replica's share.",
    labels: &[],
    buckets: &[],
};

pub(super) const CONVERSATIONS: Family = Family {
    name: "conversations",
    help: "Conversations that the store holds, read when it is scraped; over Redis those that this replica touched.",
    labels: &[],
    buckets: &[],
};

pub(super) const HELD: Family = Family {
    name: "held_bytes",
    help: "Bytes of streams that wait for the verdict on their calls.",
    labels: &[],
    buckets: &[],
};

pub(super) const RUNTIME_TASKS: Family = Family {
    name: "runtime_tasks",
    help: "Tasks of the async runtime that are alive, read when it is scraped.",
    labels: &[],
    buckets: &[],
};

pub(super) const STORE: Family = Family {
    name: "store_seconds",
    help: "Operations of the store.",
    labels: &["op"],
    buckets: OVERHEADS,
};

pub(super) const HANDSHAKES_FAILED: Family = Family {
    name: "handshakes_failed_total",
    help: "TLS handshakes on the client port that failed.",
    labels: &[],
    buckets: &[],
};

pub(super) const RECORD_DROPPED: Family = Family {
    name: "record_dropped_total",
    help: "Lines of the task record that a full disk or a slow sink kept out.",
    labels: &[],
    buckets: &[],
};

pub(super) const STORE_ERRORS: Family = Family {
    name: "store_errors_total",
    help: "Operations of the store that failed: it could not be read or written.",
    labels: &[],
    buckets: &[],
};

pub(super) const ABORTS: Family = Family {
    name: "aborts_total",
    help: "Requests to SGLang to abort.",
    labels: &["outcome"],
    buckets: &[],
};

pub(super) const WRITE_OUTCOMES: Family = Family {
    name: "write_outcomes_total",
    help: "Writes whose outcome became unknown, and what was learnt of such.",
    labels: &["outcome"],
    buckets: &[],
};

pub(super) const BUDGET_ENDS: Family = Family {
    name: "budget_ends_total",
    help: "Tasks that ended as incomplete; the label says what they ran out of.",
    labels: &["limit"],
    buckets: &[],
};

pub(super) const SPANS: Family = Family {
    name: "spans_total",
    help: "Spans sent to the collector of traces, or dropped (telemetry.otlp_endpoint).",
    labels: &["outcome"],
    buckets: &[],
};

/// Makes metrics and registers them.
pub(super) struct Maker(pub(super) Registry);

impl Maker {
    fn register<C: Collector + Clone + 'static>(&self, metric: C) -> Result<C, Error> {
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    pub(super) fn counter(&self, family: &Family) -> Result<IntCounter, Error> {
        self.register(IntCounter::with_opts(family.opts())?)
    }

    pub(super) fn counters(&self, family: &Family) -> Result<IntCounterVec, Error> {
        self.register(IntCounterVec::new(family.opts(), family.labels)?)
    }

    /// One counter for each label.
    pub(super) fn counters_by<L: Label>(&self, family: &Family) -> Result<Vec<IntCounter>, Error> {
        let counters = self.counters(family)?;
        Ok(L::ALL.iter().map(|label| counters.with_label_values(&[label.label()])).collect())
    }

    pub(super) fn lazy(&self, family: &Family, size: usize) -> Result<Lazy, Error> {
        let family = self.counters(family)?;
        Ok(Lazy { family, series: std::iter::repeat_with(OnceLock::new).take(size).collect() })
    }

    /// Every route with every outcome, the outcomes of one route side by side.
    pub(super) fn exchanges(&self) -> Result<Vec<IntCounter>, Error> {
        let family = self.counters(&EXCHANGES)?;
        let pairs = Route::ALL
            .iter()
            .flat_map(|route| ExchangeOutcome::ALL.iter().map(move |outcome| (route, outcome)));
        Ok(pairs
            .map(|(route, outcome)| family.with_label_values(&[route.as_str(), outcome.as_str()]))
            .collect())
    }

    pub(super) fn gauge(&self, family: &Family) -> Result<IntGauge, Error> {
        self.register(IntGauge::with_opts(family.opts())?)
    }

    pub(super) fn time(&self, family: &Family) -> Result<Histogram, Error> {
        self.register(Histogram::with_opts(family.histogram())?)
    }

    pub(super) fn times(&self, family: &Family) -> Result<HistogramVec, Error> {
        self.register(HistogramVec::new(family.histogram(), family.labels)?)
    }

    /// One histogram for each label.
    pub(super) fn times_by<L: Label>(&self, family: &Family) -> Result<Vec<Histogram>, Error> {
        let times = self.times(family)?;
        Ok(L::ALL.iter().map(|label| times.with_label_values(&[label.label()])).collect())
    }
}

/// Counters by code, each made when first counted: most codes never occur. What an alert looks at must be
/// made before, as a rise from nothing to one is no rise to Prometheus.
pub(super) struct Lazy {
    family: IntCounterVec,
    series: Vec<OnceLock<IntCounter>>,
}

impl Lazy {
    pub(super) fn at(&self, index: usize, labels: &[&str]) -> &IntCounter {
        self.series[index].get_or_init(|| self.family.with_label_values(labels))
    }
}

const BUILD: Family = Family {
    name: "build_info",
    help: "Always 1; the label tells the version.",
    labels: &[],
    buckets: &[],
};

/// `build_info`, and what the operating system knows of this process (under the usual names, `process_…`).
pub(super) fn about_this_build(registry: &Registry) -> Result<(), Error> {
    let version = env!("CARGO_PKG_VERSION");
    let build = IntGauge::with_opts(BUILD.opts().const_label("version", version))?;
    build.set(1);
    registry.register(Box::new(build))?;
    #[cfg(target_os = "linux")]
    registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
    Ok(())
}
