//! One exchange as a span, and the waits for tools that it ended as spans beside it.
//!
//! The names are those of OpenTelemetry's conventions for generative AI (version 1.41, in development);
//! what they do not know is named `tigertally.…`.

use super::parent::TraceParent;
use super::wire::{self, Fields, Value};
use crate::guard::fault::shown;
use crate::ledger::event::{ExchangeId, Millis};
use crate::telemetry::{ExchangeOutcome, FaultVerdict};
use serde::Deserialize;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Bytes that a span's attributes take as a rule.
const ATTRIBUTES: usize = 1024;
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

/// One exchange while it is under way. What is told of it is written down at once.
pub struct ExchangeSpan {
    parent: Option<TraceParent>,
    own: TraceParent,
    exchange: ExchangeId,
    began: Instant,
    began_at: u64,
    asked: Asked,
    /// The fields of its span so far.
    fields: Fields,
    reasons: Fields,
    reasons_told: usize,
    usage: Usage,
    has_model: bool,
    has_answer: bool,
    events: usize,
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
            fields: Fields::with_capacity(ATTRIBUTES),
            reasons: Fields::default(),
            reasons_told: 0,
            usage: Usage::default(),
            has_model: false,
            has_answer: false,
            events: 0,
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
    pub fn says(&mut self, key: &'static str, text: &str) {
        self.attribute(key, text);
    }

    /// A number of it.
    pub fn counts(&mut self, key: &'static str, number: u64) {
        self.attribute(key, number);
    }

    fn attribute<'a>(&mut self, key: &'static str, value: impl Into<Value<'a>>) {
        self.fields.attribute(wire::span::ATTRIBUTE, key, value);
    }

    /// The first event of a stream went down, so long after it had gone up.
    pub fn speaks(&mut self, after: Duration) {
        self.attribute("gen_ai.response.time_to_first_chunk", after.as_secs_f64());
    }

    /// A fault was found.
    pub fn fault(&mut self, code: &'static str, param: &str, verdict: FaultVerdict) {
        if verdict == FaultVerdict::Refuse {
            self.error = self.error.or(Some(code));
        }
        if self.events >= MOST_EVENTS {
            self.untold = self.untold.saturating_add(1);
            return;
        }
        self.events += 1;
        let mut event = Fields::default();
        event.fixed64(wire::event::TIME, self.now());
        event.bytes(wire::event::NAME, b"tigertally.fault");
        event.attribute(wire::event::ATTRIBUTE, "tigertally.code", code);
        event.attribute(wire::event::ATTRIBUTE, "tigertally.verdict", verdict.as_str());
        if !param.is_empty() {
            event.attribute(wire::event::ATTRIBUTE, "tigertally.param", &*shown(param));
        }
        self.fields.message(wire::span::EVENT, &event);
    }

    /// The upstream's answer, or a piece of it, says this.
    pub fn hears(&mut self, id: Option<&str>, model: Option<&str>, usage: Option<&str>) {
        if let Some(id) = id.filter(|_| !self.has_answer) {
            self.has_answer = true;
            self.attribute("gen_ai.response.id", &*shown(id));
        }
        if let Some(model) = model.filter(|_| !self.has_model) {
            self.has_model = true;
            self.attribute("gen_ai.response.model", &*shown(model));
        }
        if let Some(usage) = usage.and_then(|raw| serde_json::from_str(raw).ok()) {
            self.usage = usage;
        }
    }

    /// A choice of the answer is finished.
    pub fn finishes(&mut self, reason: &str) {
        if self.reasons_told < MOST_REASONS {
            self.reasons_told += 1;
            self.reasons.element(&shown(reason));
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

    /// Its spans as they are sent, each to `put`. `trace_of` tells the trace of an earlier exchange, if it is known.
    pub(super) fn tell(
        mut self,
        trace_of: impl Fn(ExchangeId) -> Option<u128>,
        mut put: impl FnMut(&Fields),
    ) {
        let own = self.own;
        // Without a client's trace all exchanges of a task share one, on every replica.
        let shared = (!self.has_parent()).then_some(own.trace);
        let trace_of = |exchange: ExchangeId| trace_of(exchange).or(shared);
        let mut links: Vec<TraceParent> = Vec::new();
        for wait in std::mem::take(&mut self.waits) {
            let proposer = trace_of(wait.proposed_by).map(|trace| TraceParent {
                trace,
                span: span_of(wait.proposed_by),
                sampled: true,
            });
            let here = proposer.filter(|proposer| proposer.trace == own.trace);
            links.extend(proposer.filter(|proposer| !links.contains(proposer)));
            let parent = here.or(self.parent).map(|parent| parent.span);
            let began = wait.began.min(wait.ended);
            let mut span = Fields::with_capacity(ATTRIBUTES / 2);
            head(&mut span, own, rand::random::<u64>().max(1), parent, [began, wait.ended]);
            span.texts(wire::span::NAME, ["execute_tool ", &wait.tool]);
            span.number(wire::span::KIND, wire::INTERNAL);
            if let Some(elsewhere) = proposer.filter(|_| here.is_none()) {
                link(&mut span, elsewhere);
            }
            for (key, text) in [
                ("gen_ai.operation.name", "execute_tool"),
                ("gen_ai.tool.name", &wait.tool),
                ("gen_ai.tool.call.id", &wait.call),
                ("gen_ai.tool.type", "function"),
            ] {
                span.attribute(wire::span::ATTRIBUTE, key, text);
            }
            put(&span);
        }
        let (parent, now) = (self.parent.map(|parent| parent.span), self.now());
        head(&mut self.fields, own, own.span, parent, [self.began_at, now]);
        links.into_iter().for_each(|to| link(&mut self.fields, to));
        self.conclude();
        put(&self.fields);
    }

    /// Writes what is known at its end only.
    fn conclude(&mut self) {
        self.fields.number(wire::span::KIND, wire::CLIENT);
        if self.untold > 0 {
            self.fields.number(wire::span::DROPPED_EVENTS, self.untold.into());
        }
        let name = match &self.asked.model {
            Some(model) => ["chat ", model],
            None => ["chat", ""],
        };
        self.fields.texts(wire::span::NAME, name);
        self.attribute("gen_ai.operation.name", "chat");
        if let Some(model) = self.asked.model.take() {
            self.attribute("gen_ai.request.model", &*model);
        }
        if self.asked.stream {
            self.attribute("gen_ai.request.stream", true);
        }
        if self.reasons_told > 0 {
            let reasons = std::mem::take(&mut self.reasons);
            self.attribute("gen_ai.response.finish_reasons", &reasons);
        }
        if let Some(tokens) = self.usage.prompt_tokens {
            self.attribute("gen_ai.usage.input_tokens", tokens);
        }
        if let Some(tokens) = self.usage.completion_tokens {
            self.attribute("gen_ai.usage.output_tokens", tokens);
        }
        let outcome = self.outcome.unwrap_or(ExchangeOutcome::ClientGone);
        self.attribute("tigertally.outcome", outcome.as_str());
        if outcome != ExchangeOutcome::Delivered {
            let error = self.error.unwrap_or(outcome.as_str());
            self.attribute("error.type", error);
            let mut status = Fields::default();
            status.bytes(wire::status::MESSAGE, error.as_bytes());
            status.number(wire::status::CODE, wire::ERROR);
            self.fields.message(wire::span::STATUS, &status);
        }
    }
}

/// What every span of that trace has.
fn head(
    span: &mut Fields,
    of: TraceParent,
    id: u64,
    parent: Option<u64>,
    [began, ended]: [u64; 2],
) {
    span.bytes(wire::span::TRACE_ID, &of.trace.to_be_bytes());
    span.bytes(wire::span::SPAN_ID, &id.to_be_bytes());
    if let Some(parent) = parent {
        span.bytes(wire::span::PARENT_SPAN_ID, &parent.to_be_bytes());
    }
    span.fixed64(wire::span::START, began);
    span.fixed64(wire::span::END, ended);
    // Sampled, as W3C's flags have it.
    span.fixed32(wire::span::FLAGS, 1);
}

fn link(span: &mut Fields, to: TraceParent) {
    let mut link = Fields::default();
    link.bytes(wire::span::TRACE_ID, &to.trace.to_be_bytes());
    link.bytes(wire::span::SPAN_ID, &to.span.to_be_bytes());
    span.message(wire::span::LINK, &link);
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
    use opentelemetry_proto::tonic::common::v1::any_value;
    use opentelemetry_proto::tonic::trace::v1::Span;
    use prost::Message as _;

    const PARENT: TraceParent = TraceParent { trace: 7, span: 8, sampled: true };

    fn spans(span: ExchangeSpan, known: Option<u128>) -> Vec<Span> {
        let mut spans = Vec::new();
        span.tell(|_| known, |span| spans.push(Span::decode(span.as_bytes()).unwrap()));
        spans
    }

    fn waits(parent: Option<TraceParent>, known: Option<u128>) -> Vec<Span> {
        let mut span = ExchangeSpan::new(parent, ExchangeId(0x2_0000_0000_0000_0005));
        span.belongs_to([9; 16]);
        span.waited("get_order", "call_1", Millis(1), ExchangeId(0x2_0000_0000_0000_0003));
        span.ends(ExchangeOutcome::Delivered);
        spans(span, known)
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
        let spans = spans(span, None);
        assert_eq!((spans[0].events.len(), spans[0].dropped_events_count), (64, 37));
        assert_eq!(spans[0].status.as_ref().unwrap().message, "stale");
        let reasons = spans[0].attributes.iter().find(|one| one.key.ends_with("finish_reasons"));
        let value = &reasons.unwrap().value.as_ref().unwrap().value;
        let Some(any_value::Value::ArrayValue(list)) = value else { unreachable!() };
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
        let spans = spans(span, None);
        let says = |key: &str| {
            let found: Vec<_> = spans[0].attributes.iter().filter(|one| one.key == key).collect();
            let [one] = found.as_slice() else { unreachable!() };
            one.value.clone().unwrap().value.unwrap()
        };
        let text = |text: &str| any_value::Value::StringValue(text.to_owned());
        assert_eq!(says("gen_ai.response.id"), text("x"));
        assert_eq!(says("gen_ai.response.model"), text("m"));
        assert_eq!(says("gen_ai.usage.output_tokens"), any_value::Value::IntValue(4));
    }
}
