//! The facts of one exchange, told once at its end: one log line, and the metrics made of the same.
//!
//! Ids, paths, codes and times only: no argument, result, prompt or key.

mod telling;

use super::admission::Passage;
use super::clearance::Cleared;
use super::gateway::Gateway;
use super::headers::{Stamp, Standing};
use super::places::Place;
use super::refusal::Refusal;
use super::screen::Payload;
use crate::guard::fault::{Code, Fault};
use crate::ledger::event::{ExchangeId, Held};
use crate::store::ConversationKey;
use crate::telemetry::feed::{End, Faults};
use crate::telemetry::{ExchangeOutcome, ExchangeSpan, FaultVerdict, InFlight, ModelCall, Route};
use crate::wire::completion::Completion;
use crate::wire::json::Field;
use http::{HeaderMap, StatusCode};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio_util::task::task_tracker::TaskTrackerToken;

/// What is known of one exchange so far. Dropping it ends the exchange.
pub(crate) struct Journal {
    gateway: Arc<Gateway>,
    /// What our answer headers say.
    pub stamp: Stamp,
    route: Route,
    exchange: ExchangeId,
    conversation: Option<String>,
    key: Option<ConversationKey>,
    asked: Option<u64>,
    asks: Option<&'static str>,
    faults: Faults,
    attempt: u32,
    first_call: bool,
    /// Whether its list ends in results.
    continues: bool,
    rid: Option<String>,
    stream: bool,
    status: Option<StatusCode>,
    outcome: ExchangeOutcome,
    codes: Vec<&'static str>,
    /// What only the task record wants.
    told: Told,
    reason: Option<Cow<'static, str>>,
    /// Whether enforcing would have ended it by now.
    would_be_over: bool,
    /// What was counted as what enforcing would have refused, and not yet as a note.
    counted: Vec<Code>,
    came: SystemTime,
    began: Instant,
    read: Instant,
    sent: Option<Instant>,
    head: Option<Instant>,
    first_data: Option<Instant>,
    spent: Duration,
    /// Since when its answer is judged and settled.
    judging: Option<Instant>,
    spoken: bool,
    /// Whether the console was told that it began.
    shown: bool,
    place: Option<(Place, InFlight)>,
    /// Its span, where somebody wants it.
    span: Option<Box<ExchangeSpan>>,
    _live: Option<TaskTrackerToken>,
}

/// What the task record tells of an exchange that was refused or noted. Empty when nothing is recorded.
#[derive(Default)]
struct Told {
    faults: Vec<Fault>,
    notes: Vec<Fault>,
    would_refuse: Vec<Code>,
    held: Vec<Held>,
}

impl Journal {
    /// Begins one.
    #[must_use]
    pub(crate) fn open(gateway: &Arc<Gateway>, route: Route, headers: &HeaderMap) -> Box<Self> {
        let exchange = ExchangeId(rand::random());
        let request_id = super::headers::request_id(headers, exchange);
        let now = Instant::now();
        Box::new(Journal {
            gateway: Arc::clone(gateway),
            stamp: Stamp { request_id, generation: None },
            route,
            exchange,
            conversation: None,
            key: None,
            asked: None,
            asks: None,
            faults: Faults::default(),
            attempt: 0,
            first_call: false,
            continues: false,
            rid: None,
            stream: false,
            status: None,
            outcome: ExchangeOutcome::ClientGone,
            codes: Vec::new(),
            told: Told::default(),
            reason: None,
            would_be_over: false,
            counted: Vec::new(),
            came: SystemTime::now(),
            began: now,
            read: now,
            sent: None,
            head: None,
            first_data: None,
            spent: Duration::ZERO,
            judging: None,
            spoken: false,
            shown: false,
            place: None,
            span: match route {
                Route::Chat => gateway.tracer.begin(headers, exchange),
                _ => None,
            },
            _live: Some(gateway.live.token()),
        })
    }

    /// The id that we minted.
    #[must_use]
    pub(crate) fn exchange(&self) -> ExchangeId {
        self.exchange
    }

    /// It holds this place among the exchanges in flight until it ends.
    pub(super) fn holds(&mut self, place: Place) {
        self.place = Some((place, self.gateway.metrics.in_flight()));
    }

    /// Where the client says it belongs, and where the store keeps that.
    pub(crate) fn stands(&mut self, standing: &Standing, key: Option<ConversationKey>) {
        self.conversation.clone_from(&standing.conversation);
        self.key = key;
        self.asked = standing.generation;
        self.stamp.generation = standing.generation.filter(|_| standing.conversation.is_some());
    }

    /// What the rules saw of its list.
    pub(super) fn reads(&mut self, cleared: &mut Cleared) {
        self.continues = cleared.continues;
        if let Some(span) = &mut self.span {
            span.asks(std::mem::take(&mut cleared.asked));
        }
    }

    /// What the ledger said.
    pub(crate) fn admitted(&mut self, passage: &mut Passage) {
        if let Some(admitted) = passage.admitted() {
            self.stamp.generation = Some(admitted.generation);
            self.attempt = admitted.attempt;
            self.first_call = admitted.first_call;
            self.shown = self.gateway.metrics.feed().takes_one_more();
            if self.shown {
                let seen = self.seen(None);
                self.gateway.metrics.feed().exchange(seen);
            }
        }
        if let (Some(span), Some(flight)) = (&mut self.span, passage.flight()) {
            flight.traces(span);
        }
    }

    /// What goes up is part of its span.
    pub(super) fn leads(&self, headers: &mut HeaderMap) {
        if let Some(span) = &self.span {
            self.gateway.tracer.lead(span, headers);
        }
    }

    /// What a whole answer says of itself.
    pub(super) fn hears(&mut self, completion: &Completion<'_>) {
        let Some(span) = &mut self.span else { return };
        let (id, model) = (text(&completion.id), text(&completion.model));
        span.hears(id.as_deref(), model.as_deref(), completion.usage);
        completion
            .choices
            .iter()
            .filter_map(|choice| text(&choice.finish_reason))
            .for_each(|reason| span.finishes(&reason));
    }

    /// What an event of a stream says of it.
    pub(super) fn hears_event(&mut self, payload: &Payload<'_>) {
        let (Some(span), Payload::Chunk(chunk)) = (&mut self.span, payload) else { return };
        let (id, model) = (text(&chunk.id), text(&chunk.model));
        span.hears(id.as_deref(), model.as_deref(), chunk.usage);
        chunk
            .choices
            .iter()
            .filter_map(|choice| text(&choice.finish_reason))
            .for_each(|reason| span.finishes(&reason));
    }

    /// An application asks this about a conversation, by the control API.
    pub(crate) fn asks(&mut self, what: &'static str, key: &ConversationKey, id: &str) {
        self.asks = Some(what);
        self.key = Some(key.clone());
        self.conversation = Some(id.to_owned());
    }

    /// The request's body is here: what it takes until it goes up is ours.
    pub(crate) fn has_read(&mut self) {
        self.read = Instant::now();
    }

    /// The request goes up now.
    pub(crate) fn goes_up(&mut self, rid: Option<String>) {
        self.rid = rid;
        let now = Instant::now();
        self.spent += now - self.read;
        self.sent = Some(now);
    }

    /// The whole answer is here: what it takes until it may go down is ours.
    pub(crate) fn judges(&mut self) {
        self.judging = Some(Instant::now());
    }

    /// It may go down, or not.
    pub(crate) fn judged(&mut self) {
        if let Some(since) = self.judging.take() {
            self.spent += since.elapsed();
        }
    }

    /// The upstream's head is here.
    pub(crate) fn heard(&mut self, status: StatusCode, stream: bool) {
        self.head = Some(Instant::now());
        self.status = Some(status);
        self.stream = stream;
    }

    /// Bytes of a stream go down. A comment of ours, or an error in place of an answer, is no first token.
    pub(crate) fn speaks(&mut self, comment: bool) {
        let answers =
            matches!(self.outcome, ExchangeOutcome::ClientGone | ExchangeOutcome::Delivered);
        if !self.spoken && !comment && answers {
            self.spoken = true;
            self.first_data = Some(Instant::now());
        }
    }

    /// Enforcing would have refused it here, for these. Only the first such place counts: an exchange that is
    /// refused there is never judged any further. To be told before the notes that hold the same faults.
    pub(crate) fn would_refuse(&mut self, codes: impl IntoIterator<Item = Code>) {
        if self.would_be_over {
            return;
        }
        for code in codes {
            self.would_be_over = true;
            self.counted.push(code);
            self.told.would_refuse.push(code);
            self.gateway.metrics.fault(code, FaultVerdict::WouldRefuse);
            if let Some(span) = &mut self.span {
                span.fault(code.as_str(), "", FaultVerdict::WouldRefuse);
            }
        }
    }

    /// These are let through and recorded. Each fault is counted once: what was counted as what enforcing
    /// would have refused is no note.
    pub(crate) fn notes(&mut self, notes: &[Fault]) {
        if self.gateway.recorder.is_on() {
            self.told.notes.extend_from_slice(notes);
        }
        for note in notes {
            self.codes.push(note.code.as_str());
            self.faults.add(note, FaultVerdict::Note);
            match self.counted.iter().position(|code| *code == note.code) {
                Some(at) => drop(self.counted.swap_remove(at)),
                None => self.gateway.metrics.fault(note.code, FaultVerdict::Note),
            }
            if let Some(span) = &mut self.span {
                span.fault(note.code.as_str(), &note.param, FaultVerdict::Note);
            }
        }
    }

    /// It is refused.
    pub(crate) fn refuses(&mut self, refusal: &Refusal) {
        for fault in &refusal.faults {
            self.codes.push(fault.code.as_str());
            self.faults.add(fault, FaultVerdict::Refuse);
            self.gateway.metrics.fault(fault.code, FaultVerdict::Refuse);
            if let Some(span) = &mut self.span {
                span.fault(fault.code.as_str(), &fault.param, FaultVerdict::Refuse);
            }
        }
        self.notes(&refusal.notes);
        if self.gateway.recorder.is_on() {
            self.told.faults.extend_from_slice(&refusal.faults);
            self.told.held.extend_from_slice(&refusal.held);
        }
        // Of a stream, the head has gone down with the upstream's status.
        if self.status.is_none() || !self.stream {
            self.status = Some(refusal.status());
        }
        self.outcome = match refusal.code() {
            Code::StaleAnswer | Code::Overtaken => ExchangeOutcome::Withheld,
            Code::UpstreamInvalid | Code::UpstreamTimeout | Code::UpstreamUnreachable => {
                ExchangeOutcome::UpstreamError
            }
            _ => ExchangeOutcome::Refused,
        };
    }

    /// What only the operator is told of a refusal.
    pub(crate) fn because(&mut self, reason: Cow<'static, str>) {
        self.reason = Some(reason);
    }

    /// How it ends when it is dropped now.
    pub(crate) fn ends(&mut self, outcome: ExchangeOutcome) {
        self.outcome = outcome;
    }

    /// Our answer's status.
    pub(crate) fn answers(&mut self, status: StatusCode) {
        self.status = Some(status);
    }
}

/// A text of the upstream's.
fn text<'a>(field: &Field<'a>) -> Option<Cow<'a, str>> {
    field.text().map(|text| text.decode())
}

impl Drop for Journal {
    fn drop(&mut self) {
        let now = Instant::now();
        if self.outcome == ExchangeOutcome::ClientGone && self.gateway.cut.is_now() {
            // Not the client went away: we did.
            self.outcome = ExchangeOutcome::Withheld;
        }
        self.judged();
        let end = End {
            outcome: self.outcome,
            status: self.status.map(|status| status.as_u16()),
            took: (now - self.began).as_secs_f64() * 1e3,
        };
        let sound = self.outcome == ExchangeOutcome::Delivered && self.codes.is_empty();
        let tracked = self.attempt > 0;
        if self.shown || !sound || (!tracked && self.gateway.metrics.feed().takes_one_more()) {
            let seen = self.seen(Some(end));
            self.gateway.metrics.feed().exchange(seen);
        }
        let metrics = &self.gateway.metrics;
        metrics.exchange(self.route, self.outcome);
        if let Some(sent) = self.sent {
            metrics.overhead(self.spent);
            if self.outcome == ExchangeOutcome::Delivered && self.route == Route::Chat {
                let first = if tracked { self.first_call } else { !self.continues };
                let call = if first { ModelCall::First } else { ModelCall::Later };
                metrics.model_call(call, now - sent);
            }
            if let Some(first) = self.first_data {
                metrics.first_token(first - sent);
            }
        }
        self.record(now - self.began);
        if let Some(span) = self.traced() {
            self.gateway.tracer.end(span);
        }
        self.log(now);
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("exchange", &self.exchange).finish_non_exhaustive()
    }
}
