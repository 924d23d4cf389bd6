//! The metrics, one method for each thing that happens.
//!
//! Every series with a closed label is resolved once, so that nothing is looked up by label on a
//! request's way. Only `tool` depends on the configuration: a configured name has series of its own,
//! whatever else a client or a model writes is counted as `other`.

use super::families::{self, Lazy, Maker, about_this_build};
use super::feed::Feed;
use super::gauges::{Held, InFlight};
use super::labels::{
    AbortOutcome, CallVerdict, ExchangeOutcome, FaultVerdict, Label, ModelCall, Route, SpanOutcome,
    StoreOp,
};
use crate::guard::fault::Code;
use crate::ledger::event::{TaskOutcome, WriteOutcome};
use crate::ledger::lanes::Limit;
use crate::policy::Tools;
use arc_swap::ArcSwap;
use prometheus::{
    Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, Registry, TextEncoder,
};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The label of tools that are not configured.
const OTHER: &str = "other";

/// What the ledger may say of a result.
const RESULT_CODES: &[Code] =
    &[Code::Unmatched, Code::Duplicate, Code::Conflict, Code::Stale, Code::Late, Code::Mismatch];

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
    runtime_tasks: IntGauge,
    store_seconds: Vec<Histogram>,
    store_errors: IntCounter,
    handshakes_failed: IntCounter,
    record_dropped: IntCounter,
    aborts: Vec<IntCounter>,
    write_outcomes: Vec<IntCounter>,
    budget_ends: Vec<IntCounter>,
    spans: Vec<IntCounter>,
    feed: Feed,
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
        let calls = make.counters(&families::CALLS)?;
        let tool_wait = make.times(&families::TOOL_WAIT)?;
        let series = Series {
            exchanges: make.exchanges()?,
            faults: make.lazy(&families::FAULTS, FaultVerdict::ALL.len() * Code::ALL.len())?,
            // The last ones are for what was accepted, let in by force, and closed by the client.
            results: make.lazy(&families::RESULTS, Code::ALL.len() + 3)?,
            tools: ArcSwap::from_pointee(tool_series(tools, &calls, &tool_wait)),
            calls,
            tool_wait,
            tasks: make.counters_by::<TaskOutcome>(&families::TASKS)?,
            task_seconds: make.times_by::<TaskOutcome>(&families::TASK_SECONDS)?,
            model_call: make.times_by::<ModelCall>(&families::MODEL_CALL)?,
            first_token: make.time(&families::FIRST_TOKEN)?,
            overhead: make.time(&families::OVERHEAD)?,
            in_flight: make.gauge(&families::IN_FLIGHT)?,
            open_calls: make.gauge(&families::OPEN_CALLS)?,
            conversations: make.gauge(&families::CONVERSATIONS)?,
            held: make.gauge(&families::HELD)?,
            runtime_tasks: make.gauge(&families::RUNTIME_TASKS)?,
            store_seconds: make.times_by::<StoreOp>(&families::STORE)?,
            store_errors: make.counter(&families::STORE_ERRORS)?,
            handshakes_failed: make.counter(&families::HANDSHAKES_FAILED)?,
            record_dropped: make.counter(&families::RECORD_DROPPED)?,
            aborts: make.counters_by::<AbortOutcome>(&families::ABORTS)?,
            write_outcomes: make.counters_by::<WriteOutcome>(&families::WRITE_OUTCOMES)?,
            budget_ends: make.counters_by::<Limit>(&families::BUDGET_ENDS)?,
            spans: make.counters_by::<SpanOutcome>(&families::SPANS)?,
            feed: Feed::default(),
            registry: make.0,
        };
        about_this_build(&series.registry)?;
        let metrics = Metrics(Arc::new(series));
        metrics.begin_at_zero();
        Ok(metrics)
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
        self.fault_series(code, verdict).inc();
    }

    fn fault_series(&self, code: Code, verdict: FaultVerdict) -> &IntCounter {
        let index = code as usize * FaultVerdict::ALL.len() + verdict.index();
        self.0.faults.at(index, &[code.as_str(), verdict.as_str()])
    }

    /// Everything that may be refused for, and every decision on a result, stands there with zero from the
    /// start: Prometheus cannot see a series rise that begins with one.
    fn begin_at_zero(&self) {
        for code in Code::ALL {
            let _ = self.fault_series(code, FaultVerdict::Refuse);
        }
        for code in RESULT_CODES {
            let _ = self.0.results.at(*code as usize, &[code.as_str()]);
        }
        let _ = (self.accepted(), self.forced(), self.closed());
    }

    /// A result was decided on. `None`: accepted.
    pub fn result(&self, refused: Option<Code>) {
        match refused {
            Some(code) => self.0.results.at(code as usize, &[code.as_str()]).inc(),
            None => self.accepted().inc(),
        }
    }

    fn accepted(&self) -> &IntCounter {
        self.0.results.at(Code::ALL.len(), &["accepted"])
    }

    fn forced(&self) -> &IntCounter {
        self.0.results.at(Code::ALL.len() + 1, &["forced"])
    }

    fn closed(&self) -> &IntCounter {
        self.0.results.at(Code::ALL.len() + 2, &["closed"])
    }

    /// A result was let in although a rule would have refused it.
    pub fn result_forced(&self) {
        self.forced().inc();
    }

    /// A client put its own notice in place of a result.
    pub fn result_closed(&self) {
        self.closed().inc();
    }

    /// Something became of a write whose outcome is, or was, unknown.
    pub fn write(&self, outcome: WriteOutcome) {
        self.0.write_outcomes[outcome.index()].inc();
    }

    /// A task ran out of something.
    pub fn budget_end(&self, limit: Limit) {
        self.0.budget_ends[limit.index()].inc();
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

    /// So many tasks of the async runtime are alive now.
    pub fn runtime_tasks(&self, alive: usize) {
        self.0.runtime_tasks.set(i64::try_from(alive).unwrap_or(i64::MAX));
    }

    /// The store did something.
    pub fn store(&self, op: StoreOp, took: Duration) {
        self.0.store_seconds[op.index()].observe(took.as_secs_f64());
    }

    /// The store failed.
    pub fn store_error(&self) {
        self.0.store_errors.inc();
    }

    /// A client's TLS handshake failed.
    pub fn handshake_failed(&self) {
        self.0.handshakes_failed.inc();
    }

    /// Lines of the task record were dropped.
    pub fn record_dropped(&self, lines: u64) {
        self.0.record_dropped.inc_by(lines);
    }

    /// So many spans were sent to the collector, or were not.
    pub fn spans(&self, outcome: SpanOutcome, spans: u64) {
        self.0.spans[outcome.index()].inc_by(spans);
    }

    /// The upstream was asked to abort.
    pub fn abort(&self, outcome: AbortOutcome) {
        self.0.aborts[outcome.index()].inc();
    }

    /// What the console shows of the same facts.
    #[must_use]
    pub fn feed(&self) -> &Feed {
        &self.0.feed
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
