//! The metrics, one method for each thing that happens.
//!
//! Every series with a closed label is resolved once, so that nothing is looked up by label on a
//! request's way. Only `tool` depends on the configuration: a configured name has series of its own,
//! whatever else a client or a model writes is counted as `other`.

use super::gauges::{Held, InFlight};
use super::labels::{
    AbortOutcome, CallVerdict, ExchangeOutcome, FaultVerdict, Label, ModelCall, Route, StoreOp,
};
use crate::guard::fault::Code;
use crate::guard::verdict::Verdict;
use crate::ledger::event::TaskOutcome;
use crate::policy::Tools;
use arc_swap::ArcSwap;
use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
    TextEncoder,
};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The label of tools that are not configured.
const OTHER: &str = "other";

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

/// All metrics of one process. Clones count into the same series.
#[derive(Clone)]
pub struct Metrics(Arc<Series>);

struct Series {
    registry: Registry,
    exchanges: Vec<IntCounter>,
    faults: Lazy,
    results: Lazy,
    calls: IntCounterVec,
    tool_wait: HistogramVec,
    tools: ArcSwap<ToolSeries>,
    tasks: Vec<IntCounter>,
    task_seconds: Vec<Histogram>,
    model_call: Vec<Histogram>,
    first_token: Histogram,
    overhead: Histogram,
    in_flight: IntGauge,
    open_calls: IntGauge,
    conversations: IntGauge,
    held: IntGauge,
    store_seconds: Vec<Histogram>,
    store_errors: IntCounter,
    aborts: Vec<IntCounter>,
}

/// Counters by code, each made when first counted: most codes never occur.
struct Lazy {
    family: IntCounterVec,
    series: Vec<OnceLock<IntCounter>>,
}

impl Lazy {
    fn at(&self, index: usize, labels: &[&str]) -> &IntCounter {
        self.series[index].get_or_init(|| self.family.with_label_values(labels))
    }
}

/// Series of every configured tool, and of all others together.
struct ToolSeries {
    configured: HashMap<Box<str>, ToolHandles>,
    other: ToolHandles,
}

impl ToolSeries {
    fn of(&self, tool: &str) -> &ToolHandles {
        self.configured.get(tool).unwrap_or(&self.other)
    }
}

struct ToolHandles {
    calls: Vec<IntCounter>,
    wait: Histogram,
}

impl Metrics {
    /// Metrics of a process that begins, with series for the configured tools.
    ///
    /// # Errors
    /// When two metrics bear one name: a fault of this program.
    pub fn new(tools: &Tools) -> Result<Self, prometheus::Error> {
        let make = Maker(Registry::new());
        let calls = make.counters(
            "calls_total",
            "Tool calls proposed by the model.",
            &["tool", "verdict"],
        )?;
        let tool_wait = make.times(
            "tool_wait_seconds",
            "From the release of a call to the acceptance of its result.",
            &["tool"],
            WAITS,
        )?;
        let series = Series {
            exchanges: make.exchanges()?,
            faults: make.lazy(
                "faults_total",
                "Faults found.",
                &["code", "verdict"],
                FaultVerdict::ALL.len() * Code::ALL.len(),
            )?,
            // The last one is for what was accepted.
            results: make.lazy(
                "results_total",
                "Decisions on tool results: accepted, or the code that refused.",
                &["verdict"],
                Code::ALL.len() + 1,
            )?,
            tools: ArcSwap::from_pointee(tool_series(tools, &calls, &tool_wait)),
            calls,
            tool_wait,
            tasks: counters_by::<TaskOutcome>(&make.counters(
                "tasks_total",
                "Tasks (generations) ended.",
                &["outcome"],
            )?),
            task_seconds: times_by::<TaskOutcome>(&make.times(
                "task_seconds",
                "How long tasks took.",
                &["outcome"],
                WAITS,
            )?),
            model_call: times_by::<ModelCall>(&make.times(
                "model_call_seconds",
                "Model calls, from the request to the end of the response.",
                &["call"],
                MODEL,
            )?),
            first_token: make.time(
                "time_to_first_token_seconds",
                "From the request to the first event of a streamed response.",
                MODEL,
            )?,
            overhead: make.time(
                "overhead_seconds",
                "Time the proxy itself added to an exchange.",
                OVERHEADS,
            )?,
            in_flight: make.gauge("in_flight_exchanges", "Exchanges under way.")?,
            open_calls: make.gauge("open_calls", "Calls let out whose result is awaited.")?,
            conversations: make.gauge("conversations", "Conversations that the store holds.")?,
            held: make.gauge("held_bytes", "Bytes held back while calls are judged.")?,
            store_seconds: times_by::<StoreOp>(&make.times(
                "store_seconds",
                "Operations of the store.",
                &["op"],
                OVERHEADS,
            )?),
            store_errors: make
                .counter("store_errors_total", "Operations of the store that failed.")?,
            aborts: counters_by::<AbortOutcome>(&make.counters(
                "aborts_total",
                "Requests to the upstream to abort.",
                &["outcome"],
            )?),
            registry: make.0,
        };
        about_this_build(&series.registry)?;
        Ok(Metrics(Arc::new(series)))
    }

    /// The configuration changed: series for the tools that it names now. Older series stay.
    pub fn set_tools(&self, tools: &Tools) {
        let series = tool_series(tools, &self.0.calls, &self.0.tool_wait);
        self.0.tools.store(Arc::new(series));
    }

    /// An exchange ended.
    pub fn exchange(&self, route: Route, outcome: ExchangeOutcome) {
        self.0.exchanges[route.index() * ExchangeOutcome::ALL.len() + outcome.index()].inc();
    }

    /// A fault was found.
    pub fn fault(&self, code: Code, verdict: FaultVerdict) {
        let index = code as usize * FaultVerdict::ALL.len() + verdict.index();
        self.0.faults.at(index, &[code.as_str(), verdict.as_str()]).inc();
    }

    /// Faults were judged.
    pub fn judged(&self, verdict: &Verdict) {
        verdict.refused.iter().for_each(|fault| self.fault(fault.code, FaultVerdict::Refuse));
        verdict.notes.iter().for_each(|fault| self.fault(fault.code, FaultVerdict::Note));
    }

    /// A result was decided on. `None`: accepted.
    pub fn result(&self, refused: Option<Code>) {
        match refused {
            Some(code) => self.0.results.at(code as usize, &[code.as_str()]).inc(),
            None => self.0.results.at(Code::ALL.len(), &["accepted"]).inc(),
        }
    }

    /// Something became of a proposed call.
    pub fn call(&self, tool: &str, verdict: CallVerdict) {
        self.0.tools.load().of(tool).calls[verdict.index()].inc();
    }

    /// A tool's result was accepted, so long after its call was let out.
    pub fn tool_waited(&self, tool: &str, waited: Duration) {
        self.0.tools.load().of(tool).wait.observe(waited.as_secs_f64());
    }

    /// A task ended.
    pub fn task(&self, outcome: TaskOutcome, took: Duration) {
        self.0.tasks[outcome.index()].inc();
        self.0.task_seconds[outcome.index()].observe(took.as_secs_f64());
    }

    /// A model call ended.
    pub fn model_call(&self, call: ModelCall, took: Duration) {
        self.0.model_call[call.index()].observe(took.as_secs_f64());
    }

    /// The first event of a streamed response came.
    pub fn first_token(&self, after: Duration) {
        self.0.first_token.observe(after.as_secs_f64());
    }

    /// Time that the proxy itself added to an exchange.
    pub fn overhead(&self, time: Duration) {
        self.0.overhead.observe(time.as_secs_f64());
    }

    /// An exchange begins; it is in flight until the value is dropped.
    #[must_use]
    pub fn in_flight(&self) -> InFlight {
        InFlight::new(self.0.in_flight.clone())
    }

    /// Exchanges in flight now.
    #[must_use]
    pub fn in_flight_now(&self) -> usize {
        usize::try_from(self.0.in_flight.get()).unwrap_or(0)
    }

    /// Counts what is held of one response.
    #[must_use]
    pub fn held(&self) -> Held {
        Held::new(self.0.held.clone())
    }

    /// Calls were opened, or (less than zero) ended.
    pub fn open_calls(&self, change: i64) {
        self.0.open_calls.add(change);
    }

    /// So many conversations are held now.
    pub fn conversations(&self, held: usize) {
        self.0.conversations.set(i64::try_from(held).unwrap_or(i64::MAX));
    }

    /// The store did something.
    pub fn store(&self, op: StoreOp, took: Duration) {
        self.0.store_seconds[op.index()].observe(took.as_secs_f64());
    }

    /// The store failed.
    pub fn store_error(&self) {
        self.0.store_errors.inc();
    }

    /// The upstream was asked to abort.
    pub fn abort(&self, outcome: AbortOutcome) {
        self.0.aborts[outcome.index()].inc();
    }

    /// Everything, in Prometheus' text format.
    #[must_use]
    pub fn encode(&self) -> String {
        // Fails only for a family without series, which the registry does not give.
        TextEncoder::new().encode_to_string(&self.0.registry.gather()).unwrap_or_default()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics(..)")
    }
}

/// Makes metrics and registers them.
struct Maker(Registry);

impl Maker {
    fn register<C: Collector + Clone + 'static>(&self, metric: C) -> Result<C, prometheus::Error> {
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
        self.register(IntCounter::with_opts(opts(name, help))?)
    }

    fn counters(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntCounterVec, prometheus::Error> {
        self.register(IntCounterVec::new(opts(name, help), labels)?)
    }

    fn lazy(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        size: usize,
    ) -> Result<Lazy, prometheus::Error> {
        let family = self.counters(name, help, labels)?;
        Ok(Lazy { family, series: std::iter::repeat_with(OnceLock::new).take(size).collect() })
    }

    fn exchanges(&self) -> Result<Vec<IntCounter>, prometheus::Error> {
        let family = self.counters("exchanges_total", "Exchanges ended.", &["route", "outcome"])?;
        let pairs = Route::ALL
            .iter()
            .flat_map(|route| ExchangeOutcome::ALL.iter().map(move |outcome| (route, outcome)));
        Ok(pairs
            .map(|(route, outcome)| family.with_label_values(&[route.as_str(), outcome.as_str()]))
            .collect())
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        self.register(IntGauge::with_opts(opts(name, help))?)
    }

    fn time(
        &self,
        name: &str,
        help: &str,
        buckets: &[f64],
    ) -> Result<Histogram, prometheus::Error> {
        let opts = HistogramOpts::from(opts(name, help)).buckets(buckets.to_vec());
        self.register(Histogram::with_opts(opts)?)
    }

    fn times(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> Result<HistogramVec, prometheus::Error> {
        let opts = HistogramOpts::from(opts(name, help)).buckets(buckets.to_vec());
        self.register(HistogramVec::new(opts, labels)?)
    }
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(name, help).namespace("tigertally")
}

fn counters_by<L: Label>(family: &IntCounterVec) -> Vec<IntCounter> {
    L::ALL.iter().map(|label| family.with_label_values(&[label.label()])).collect()
}

fn times_by<L: Label>(family: &HistogramVec) -> Vec<Histogram> {
    L::ALL.iter().map(|label| family.with_label_values(&[label.label()])).collect()
}

fn tool_series(tools: &Tools, calls: &IntCounterVec, wait: &HistogramVec) -> ToolSeries {
    let handles = |tool: &str| ToolHandles {
        calls: CallVerdict::ALL
            .iter()
            .map(|verdict| calls.with_label_values(&[tool, verdict.as_str()]))
            .collect(),
        wait: wait.with_label_values(&[tool]),
    };
    let names = tools.each.keys().chain(tools.allow.iter().flatten());
    let configured = names.map(|name| (name.as_str().into(), handles(name))).collect();
    ToolSeries { configured, other: handles(OTHER) }
}

/// `build_info`, and what the operating system knows of this process (under the usual names, `process_…`).
fn about_this_build(registry: &Registry) -> Result<(), prometheus::Error> {
    let version = env!("CARGO_PKG_VERSION");
    let build = IntGauge::with_opts(
        opts("build_info", "Always 1; the label tells the version.")
            .const_label("version", version),
    )?;
    build.set(1);
    registry.register(Box::new(build))?;
    #[cfg(target_os = "linux")]
    registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
    Ok(())
}
