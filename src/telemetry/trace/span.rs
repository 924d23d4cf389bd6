//! One exchange as a span, and the waits for tools that it ended as spans beside it.
//!
//! The names are those of OpenTelemetry's conventions for generative AI (version 1.41, in development);
//! what they do not know is named `tigertally.…`.

use super::parent::TraceParent;
use super::wire::{self, attribute};
use crate::guard::fault::shown;
use crate::ledger::event::{ExchangeId, Millis};
use crate::telemetry::{ExchangeOutcome, FaultVerdict};
use bytes::Bytes;
use serde::Deserialize;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How many attributes a span has as a rule.
const ATTRIBUTES: usize = 18;
/// Most verdicts that one span tells; of more, their number.
const MOST_EVENTS: usize = 64;
/// Most finish reasons: one per choice.
const MOST_REASONS: usize = 16;

/// What the client asked.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The model.
    pub model: Option<Box<str>>,
    /// Whether it wants a stream.
    pub stream: bool,
}

/// What the model used, as far as the upstream says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Usage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
}

/// A wait for a tool that ended: its result was accepted.
struct Wait {
    tool: Box<str>,
    call: Box<str>,
    began: u64,
    ended: u64,
    proposed_by: ExchangeId,
}

/// One exchange while it is under way.
pub struct ExchangeSpan {
    parent: Option<TraceParent>,
    own: TraceParent,
    exchange: ExchangeId,
    began: Instant,
    began_at: u64,
    asked: Asked,
    attributes: Vec<wire::KeyValue>,
    reasons: Vec<String>,
    usage: Usage,
    answered_by: Option<String>,
    answer: Option<String>,
    events: Vec<wire::Event>,
    untold: u32,
    error: Option<&'static str>,
    outcome: Option<ExchangeOutcome>,
    waits: Vec<Wait>,
}

/// Nanoseconds since 1970.
fn nanos(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn of_millis(at: Millis) -> u64 {
    at.0.saturating_mul(1_000_000)
}

/// The span's id is part of the exchange's, so that whoever knows the one knows the other.
#[expect(clippy::cast_possible_truncation, reason = "half of it is enough")]
fn span_of(exchange: ExchangeId) -> u64 {
    (exchange.0 as u64).max(1)
}

impl ExchangeSpan {
    pub(super) fn new(parent: Option<TraceParent>, exchange: ExchangeId) -> Self {
        // Of its own until it is known which task it belongs to.
        let trace = parent.map_or(exchange.0.max(1), |parent| parent.trace);
        ExchangeSpan {
            parent,
            own: TraceParent { trace, span: span_of(exchange), sampled: true },
            exchange,
            began: Instant::now(),
            began_at: nanos(SystemTime::now()),
            asked: Asked::default(),
            attributes: Vec::with_capacity(ATTRIBUTES),
            reasons: Vec::new(),
            usage: Usage::default(),
            answered_by: None,
            answer: None,
            events: Vec::new(),
            untold: 0,
            error: None,
            outcome: None,
            waits: Vec::new(),
        }
    }

    /// As the upstream gets it.
    #[must_use]
    pub fn own(&self) -> TraceParent {
        self.own
    }

    /// Whether the client named one.
    #[must_use]
    pub fn has_parent(&self) -> bool {
        self.parent.is_some()
    }

    pub(super) fn exchange(&self) -> ExchangeId {
        self.exchange
    }

    /// It belongs to this task, all of whose exchanges make one trace unless a client says otherwise.
    pub fn belongs_to(&mut self, task: [u8; 16]) {
        if self.parent.is_none() {
            self.own.trace = u128::from_be_bytes(task).max(1);
        }
    }

    /// What the client asked.
    pub fn asks(&mut self, asked: Asked) {
        self.asked = asked;
    }

    /// A fact about it.
    pub fn says(&mut self, key: &'static str, text: String) {
        self.attributes.push(attribute(key, text));
    }

    /// A number of it.
    pub fn counts(&mut self, key: &'static str, number: u64) {
        self.attributes.push(attribute(key, number));
    }

    /// The first event of a stream went down, so long after it had gone up.
    pub fn speaks(&mut self, after: Duration) {
        let key = "gen_ai.response.time_to_first_chunk";
        self.attributes.push(attribute(key, after.as_secs_f64()));
    }

    /// A fault was found.
    pub fn fault(&mut self, code: &'static str, param: &str, verdict: FaultVerdict) {
        if verdict == FaultVerdict::Refuse {
            self.error = self.error.or(Some(code));
        }
        if self.events.len() >= MOST_EVENTS {
            self.untold = self.untold.saturating_add(1);
            return;
        }
        let mut attributes = vec![
            attribute("tigertally.code", code),
            attribute("tigertally.verdict", verdict.as_str()),
        ];
        if !param.is_empty() {
            attributes.push(attribute("tigertally.param", shown(param)));
        }
        let time_unix_nano = self.now();
        let name = Bytes::from_static(b"tigertally.fault");
        self.events.push(wire::Event { time_unix_nano, name, attributes });
    }

    /// The upstream's answer, or a piece of it, says this.
    pub fn hears(&mut self, id: Option<&str>, model: Option<&str>, usage: Option<&str>) {
        if self.answer.is_none() {
            self.answer = id.map(shown);
        }
        if self.answered_by.is_none() {
            self.answered_by = model.map(shown);
        }
        if let Some(usage) = usage.and_then(|raw| serde_json::from_str(raw).ok()) {
            self.usage = usage;
        }
    }

    /// A choice of the answer is finished.
    pub fn finishes(&mut self, reason: &str) {
        if self.reasons.len() < MOST_REASONS {
            self.reasons.push(shown(reason));
        }
    }

    /// A result that it brought was accepted: its call was let out at `registered`.
    pub fn waited(&mut self, tool: &str, call: &str, registered: Millis, proposed_by: ExchangeId) {
        self.waits.push(Wait {
            tool: shown(tool).into(),
            call: shown(call).into(),
            began: of_millis(registered),
            ended: self.now(),
            proposed_by,
        });
    }

    /// How it ended.
    pub fn ends(&mut self, outcome: ExchangeOutcome) {
        self.outcome = Some(outcome);
    }

    /// By the clock that stood at its beginning: one that is set meanwhile makes no span of negative length.
    fn now(&self) -> u64 {
        let after = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.began_at.saturating_add(after)
    }

    /// The spans as they are sent. `trace_of` tells the trace of an earlier exchange, if it is known.
    pub(super) fn into_wire(
        mut self,
        trace_of: impl Fn(ExchangeId) -> Option<u128>,
    ) -> Vec<wire::Span> {
        let own = self.own;
        // Without a client's trace all exchanges of a task share one, on every replica.
        let shared = (!self.has_parent()).then_some(own.trace);
        let trace_of = |exchange: ExchangeId| trace_of(exchange).or(shared);
        let mut spans = Vec::with_capacity(1 + self.waits.len());
        let mut links: Vec<wire::Link> = Vec::new();
        for wait in std::mem::take(&mut self.waits) {
            let proposer = trace_of(wait.proposed_by).map(|trace| TraceParent {
                trace,
                span: span_of(wait.proposed_by),
                sampled: true,
            });
            let here = proposer.filter(|proposer| proposer.trace == own.trace);
            let link = proposer.map(|proposer| wire::Link {
                trace_id: proposer.trace.to_be_bytes().to_vec(),
                span_id: proposer.span.to_be_bytes().to_vec(),
            });
            links.extend(link.clone().filter(|link| !links.contains(link)));
            let parent = here.or(self.parent).map(|parent| parent.span);
            let mut span = span(own, rand::random::<u64>().max(1), parent);
            span.name = format!("execute_tool {}", wait.tool);
            span.kind = wire::INTERNAL;
            span.start_time_unix_nano = wait.began.min(wait.ended);
            span.end_time_unix_nano = wait.ended;
            span.links = link.filter(|_| here.is_none()).into_iter().collect();
            span.attributes = vec![
                attribute("gen_ai.operation.name", "execute_tool"),
                attribute("gen_ai.tool.name", String::from(wait.tool)),
                attribute("gen_ai.tool.call.id", String::from(wait.call)),
                attribute("gen_ai.tool.type", "function"),
            ];
            spans.push(span);
        }
        let mut main = span(own, own.span, self.parent.map(|parent| parent.span));
        main.links = links;
        self.fill(&mut main);
        spans.push(main);
        spans
    }

    fn fill(mut self, span: &mut wire::Span) {
        span.end_time_unix_nano = self.now();
        span.start_time_unix_nano = self.began_at;
        span.kind = wire::CLIENT;
        span.name = match &self.asked.model {
            Some(model) => format!("chat {model}"),
            None => "chat".to_owned(),
        };
        let mut attributes = std::mem::take(&mut self.attributes);
        attributes.push(attribute("gen_ai.operation.name", "chat"));
        if let Some(model) = self.asked.model {
            attributes.push(attribute("gen_ai.request.model", String::from(model)));
        }
        if self.asked.stream {
            attributes.push(attribute("gen_ai.request.stream", true));
        }
        if let Some(id) = self.answer {
            attributes.push(attribute("gen_ai.response.id", id));
        }
        if let Some(model) = self.answered_by {
            attributes.push(attribute("gen_ai.response.model", model));
        }
        if !self.reasons.is_empty() {
            attributes.push(attribute("gen_ai.response.finish_reasons", self.reasons.as_slice()));
        }
        if let Some(tokens) = self.usage.prompt_tokens {
            attributes.push(attribute("gen_ai.usage.input_tokens", tokens));
        }
        if let Some(tokens) = self.usage.completion_tokens {
            attributes.push(attribute("gen_ai.usage.output_tokens", tokens));
        }
        let outcome = self.outcome.unwrap_or(ExchangeOutcome::ClientGone);
        attributes.push(attribute("tigertally.outcome", outcome.as_str()));
        if outcome != ExchangeOutcome::Delivered {
            let error = self.error.unwrap_or(outcome.as_str());
            attributes.push(attribute("error.type", error));
            span.status = Some(wire::Status { message: error.to_owned(), code: wire::ERROR });
        }
        span.attributes = attributes;
        span.events = self.events;
        span.dropped_events_count = self.untold;
    }
}

/// A bare span of that trace.
fn span(of: TraceParent, id: u64, parent: Option<u64>) -> wire::Span {
    wire::Span {
        trace_id: of.trace.to_be_bytes().to_vec(),
        span_id: id.to_be_bytes().to_vec(),
        parent_span_id: parent.map(|id| id.to_be_bytes().to_vec()).unwrap_or_default(),
        // Sampled, as W3C's flags have it.
        flags: 1,
        ..wire::Span::default()
    }
}

impl std::fmt::Debug for ExchangeSpan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExchangeSpan").field("own", &self.own).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const PARENT: TraceParent = TraceParent { trace: 7, span: 8, sampled: true };

    fn waits(parent: Option<TraceParent>, known: Option<u128>) -> Vec<wire::Span> {
        let mut span = ExchangeSpan::new(parent, ExchangeId(0x2_0000_0000_0000_0005));
        span.belongs_to([9; 16]);
        span.waited("get_order", "call_1", Millis(1), ExchangeId(0x2_0000_0000_0000_0003));
        span.ends(ExchangeOutcome::Delivered);
        span.into_wire(|_| known)
    }

    fn bytes(number: u64) -> Vec<u8> {
        number.to_be_bytes().to_vec()
    }

    #[test]
    fn a_wait_hangs_below_the_exchange_that_proposed_it_where_that_is_known() {
        // One trace of the client's for all of it.
        let spans = waits(Some(PARENT), Some(7));
        let [wait, main] = spans.as_slice() else { unreachable!() };
        assert_eq!((&wait.parent_span_id, wait.links.len()), (&bytes(3), 0));
        assert_eq!((&main.parent_span_id, &main.span_id), (&bytes(8), &bytes(5)));
        assert_eq!(main.links[0].span_id, bytes(3));
        // A trace of the client's for each.
        let spans = waits(Some(PARENT), Some(6));
        assert_eq!(spans[0].parent_span_id, bytes(8));
        assert_eq!(spans[0].links[0].trace_id, 6_u128.to_be_bytes());
        // It went through another replica, in whatever trace.
        let spans = waits(Some(PARENT), None);
        assert_eq!((&spans[0].parent_span_id, spans[0].links.len()), (&bytes(8), 0));
        assert!(spans[1].links.is_empty());
        // No client's trace: the task's own, wherever.
        let spans = waits(None, None);
        assert_eq!(spans[0].parent_span_id, bytes(3));
        assert!(spans.iter().all(|span| span.trace_id == [9; 16]), "{spans:?}");
        assert_eq!(spans[1].parent_span_id, Vec::<u8>::new());
        assert!(spans.iter().all(|span| span.start_time_unix_nano <= span.end_time_unix_nano));
    }

    #[test]
    fn what_a_span_tells_is_bounded_and_the_first_refusal_is_its_error() {
        let mut span = ExchangeSpan::new(None, ExchangeId(1));
        span.fault("late", "messages[1]", FaultVerdict::Note);
        for _ in 0..100 {
            span.fault("stale", "", FaultVerdict::Refuse);
            span.finishes("stop");
        }
        span.ends(ExchangeOutcome::Refused);
        let spans = span.into_wire(|_| None);
        assert_eq!((spans[0].events.len(), spans[0].dropped_events_count), (64, 37));
        assert_eq!(spans[0].status.as_ref().unwrap().message, "stale");
        let reasons = spans[0].attributes.iter().find(|one| one.key.ends_with(b"finish_reasons"));
        let Some(wire::Value::List(list)) = &reasons.unwrap().value.as_ref().unwrap().value else {
            unreachable!()
        };
        assert_eq!(list.values.len(), 16);
    }

    #[test]
    fn usage_is_read_where_it_can_be() {
        let mut span = ExchangeSpan::new(None, ExchangeId(1));
        span.hears(
            Some("x"),
            Some("m"),
            Some(r#"{"prompt_tokens":3,"completion_tokens":4,"a":{}}"#),
        );
        for other in ["null", "7", r#"{"prompt_tokens":"many"}"#, r#"{"prompt_tokens":-1}"#] {
            span.hears(Some("y"), Some("n"), Some(other));
        }
        assert_eq!((span.usage.prompt_tokens, span.usage.completion_tokens), (Some(3), Some(4)));
        assert_eq!((span.answer.as_deref(), span.answered_by.as_deref()), (Some("x"), Some("m")));
    }
}
