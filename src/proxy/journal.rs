//! The facts of one exchange, told once at its end: one log line, and the metrics made of the same.
//!
//! Ids, paths, codes and times only: no argument, result, prompt or key.

use super::admission::Passage;
use super::gateway::Gateway;
use super::headers::{Stamp, Standing};
use super::refusal::Refusal;
use crate::guard::fault::{Code, Fault};
use crate::ledger::event::ExchangeId;
use crate::store::ConversationKey;
use crate::telemetry::feed::{self, End, Faults, Subject};
use crate::telemetry::{ExchangeOutcome, FaultVerdict, InFlight, ModelCall, Route};
use http::{HeaderMap, StatusCode};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::OwnedSemaphorePermit;
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
    rid: Option<String>,
    stream: bool,
    status: Option<StatusCode>,
    outcome: ExchangeOutcome,
    codes: Vec<&'static str>,
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
    spoken: bool,
    place: Option<(OwnedSemaphorePermit, InFlight)>,
    _live: Option<TaskTrackerToken>,
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
            rid: None,
            stream: false,
            status: None,
            outcome: ExchangeOutcome::ClientGone,
            codes: Vec::new(),
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
            spoken: false,
            place: None,
            _live: Some(gateway.live.token()),
        })
    }

    /// The id that we minted.
    #[must_use]
    pub(crate) fn exchange(&self) -> ExchangeId {
        self.exchange
    }

    /// It holds this place among the exchanges in flight until it ends.
    pub(crate) fn holds(&mut self, permit: OwnedSemaphorePermit) {
        self.place = Some((permit, self.gateway.metrics.in_flight()));
    }

    /// Where the client says it belongs, and where the store keeps that.
    pub(crate) fn stands(&mut self, standing: &Standing, key: Option<ConversationKey>) {
        self.conversation.clone_from(&standing.conversation);
        self.key = key;
        self.asked = standing.generation;
        self.stamp.generation = standing.generation.filter(|_| standing.conversation.is_some());
    }

    /// What the ledger said.
    pub(crate) fn admitted(&mut self, passage: &Passage) {
        if let Some(admitted) = passage.admitted() {
            self.stamp.generation = Some(admitted.generation);
            self.attempt = admitted.attempt;
            self.first_call = admitted.first_call;
            let seen = self.seen(None);
            self.gateway.metrics.feed().exchange(seen);
        }
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

    /// Work of ours between the upstream and the client.
    pub(crate) fn spends(&mut self, span: Duration) {
        self.spent += span;
    }

    /// The upstream's head is here.
    pub(crate) fn heard(&mut self, status: StatusCode, stream: bool) {
        self.head = Some(Instant::now());
        self.status = Some(status);
        self.stream = stream;
    }

    /// The first bytes of a stream go down.
    pub(crate) fn speaks(&mut self) {
        if !self.spoken {
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
            self.gateway.metrics.fault(code, FaultVerdict::WouldRefuse);
        }
    }

    /// These are let through and recorded. Each fault is counted once: what was counted as what enforcing
    /// would have refused is no note.
    pub(crate) fn notes(&mut self, notes: &[Fault]) {
        for note in notes {
            self.codes.push(note.code.as_str());
            self.faults.add(note, FaultVerdict::Note);
            match self.counted.iter().position(|code| *code == note.code) {
                Some(at) => drop(self.counted.swap_remove(at)),
                None => self.gateway.metrics.fault(note.code, FaultVerdict::Note),
            }
        }
    }

    /// It is refused.
    pub(crate) fn refuses(&mut self, refusal: &Refusal) {
        for fault in &refusal.faults {
            self.codes.push(fault.code.as_str());
            self.faults.add(fault, FaultVerdict::Refuse);
            self.gateway.metrics.fault(fault.code, FaultVerdict::Refuse);
        }
        self.notes(&refusal.notes);
        if self.status.is_none() {
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

impl Journal {
    /// What the console is told of it.
    fn seen(&mut self, end: Option<End>) -> feed::Exchange {
        let ms = |from: Option<Instant>| from.map(|at| (at - self.began).as_secs_f64() * 1e3);
        let (sent, first_data) = (ms(self.sent), ms(self.first_data));
        let (faults, more_faults) = match end {
            Some(_) => self.faults.take(),
            None => Default::default(),
        };
        let named = self.key.clone().zip(self.conversation.as_deref());
        // Of a refused request the stamp says which generation is current, not which it came with.
        let asked = self.asked.filter(|_| self.attempt == 0);
        feed::Exchange {
            id: self.exchange,
            subject: named.map(|(key, name)| Subject { key, name: name.into() }),
            request_id: self.stamp.request_id.to_str().unwrap_or_default().into(),
            rid: self.rid.as_deref().map(Into::into),
            route: self.route,
            asks: self.asks,
            generation: asked.or(self.stamp.generation),
            attempt: self.attempt,
            first: self.first_call,
            stream: self.stream,
            began: feed::millis(self.came),
            sent,
            first_data,
            end,
            faults,
            more_faults,
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let now = Instant::now();
        if self.outcome == ExchangeOutcome::ClientGone && self.gateway.cut.is_cancelled() {
            // Not the client went away: we did.
            self.outcome = ExchangeOutcome::Withheld;
        }
        let end = End {
            outcome: self.outcome,
            status: self.status.map(|status| status.as_u16()),
            took: (now - self.began).as_secs_f64() * 1e3,
        };
        let seen = self.seen(Some(end));
        let metrics = &self.gateway.metrics;
        metrics.feed().exchange(seen);
        metrics.exchange(self.route, self.outcome);
        if let Some(sent) = self.sent {
            metrics.overhead(self.spent);
            if self.outcome == ExchangeOutcome::Delivered && self.route == Route::Chat {
                let first = self.first_call || self.attempt == 0;
                let call = if first { ModelCall::First } else { ModelCall::Later };
                metrics.model_call(call, now - sent);
            }
            if let Some(first) = self.first_data {
                metrics.first_token(first - sent);
            }
        }
        let ms = |from: Option<Instant>| from.map(|at| (at - self.began).as_secs_f64() * 1e3);
        tracing::info!(
            request_id = self.stamp.request_id.to_str().unwrap_or("-"),
            exchange = %self.exchange,
            rid = self.rid.as_deref(),
            conversation = self.conversation.as_deref(),
            generation = self.stamp.generation,
            attempt = self.attempt,
            route = self.route.as_str(),
            stream = self.stream,
            outcome = self.outcome.as_str(),
            status = self.status.map(|status| status.as_u16()),
            codes = self.codes.join(","),
            reason = self.reason.as_deref(),
            head_ms = ms(self.head),
            first_ms = ms(self.first_data),
            total_ms = ms(Some(now)),
            "exchange"
        );
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("exchange", &self.exchange).finish_non_exhaustive()
    }
}
