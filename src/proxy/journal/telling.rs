//! What a journal tells at an exchange's end, and to whom: the task record, the exchange's span, the console.

use super::Journal;
use crate::telemetry::feed::{self, End, Subject};
use crate::telemetry::{ExchangeFacts, ExchangeOutcome, ExchangeSpan, Route};
use crate::wire::hex::Hex;
use std::time::{Duration, Instant};

impl Journal {
    /// Tells the task record what the ledger's part of it does not hold: what was refused, noted or broke, and
    /// what is not remembered at all.
    pub(super) fn record(&mut self, took: Duration) {
        let told = std::mem::take(&mut self.told);
        let marked =
            !(told.faults.is_empty() && told.notes.is_empty() && told.would_refuse.is_empty());
        let untracked = self.route == Route::Chat && self.attempt == 0;
        let delivered = self.outcome == ExchangeOutcome::Delivered;
        if !self.gateway.recorder.is_on() || (delivered && !marked && !untracked) {
            return;
        }
        self.gateway.recorder.exchange(&ExchangeFacts {
            request_id: self.stamp.request_id.to_str().unwrap_or("-").to_owned(),
            exchange: self.exchange,
            rid: self.rid.clone(),
            key: self.key.clone(),
            generation: self.stamp.generation,
            attempt: self.attempt,
            route: self.route,
            stream: self.stream,
            outcome: self.outcome,
            status: self.status.map(|status| status.as_u16()),
            took,
            faults: told.faults,
            notes: told.notes,
            would_refuse: told.would_refuse,
            held: told.held,
        });
    }

    /// The span as far as the journal knows more than it.
    pub(super) fn traced(&mut self) -> Option<ExchangeSpan> {
        let mut span = *self.span.take()?;
        let request_id = self.stamp.request_id.to_str().unwrap_or("-");
        span.says("tigertally.request_id", request_id);
        span.says("tigertally.exchange", Hex::of(self.exchange.0).as_str());
        if let Some(conversation) = &self.conversation {
            span.says("gen_ai.conversation.id", conversation);
        }
        if let Some(rid) = &self.rid {
            span.says("tigertally.rid", rid);
        }
        if let Some(generation) = self.stamp.generation.filter(|_| self.conversation.is_some()) {
            span.counts("tigertally.generation", generation);
        }
        if self.attempt > 0 {
            span.counts("tigertally.attempt", self.attempt.into());
        }
        if let Some(status) = self.status {
            span.counts("http.response.status_code", status.as_u16().into());
        }
        if let (Some(sent), Some(first)) = (self.sent, self.first_data) {
            span.speaks(first - sent);
        }
        span.ends(self.outcome);
        Some(span)
    }

    /// What the console is told of it.
    pub(super) fn seen(&mut self, end: Option<End>) -> feed::Exchange {
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

    /// One log line. A sound answer is one only where somebody looks for it (`RUST_LOG=debug`): the record and the
    /// metrics hold them all, and a line each would cost more than judging the exchange.
    pub(super) fn log(&self, now: Instant) {
        let ms = |from: Option<Instant>| from.map(|at| (at - self.began).as_secs_f64() * 1e3);
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
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
                )
            };
        }
        if self.outcome == ExchangeOutcome::Delivered && self.codes.is_empty() {
            line!(debug);
        } else {
            line!(info);
        }
    }
}
