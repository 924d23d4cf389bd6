//! What one client got of one answer, piece by piece.

use crate::world::Call;
use serde_json::Value;

/// An answer as far as it came.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// The upstream's request that it answers.
    pub(crate) number: Option<u64>,
    /// Events so far.
    pub(crate) events: u64,
    /// When the upstream sent the newest of them.
    pub(crate) sent_at: u64,
    /// The call, as far as its pieces came.
    pub(crate) call: Option<Call>,
    pub(crate) finish: Option<String>,
    /// The answer's own end was seen.
    pub(crate) done: bool,
    /// The code of an error that came instead.
    pub(crate) error: Option<String>,
    /// What is wrong with what came.
    pub(crate) wrong: Option<String>,
    rest: Vec<u8>,
}

impl Reading {
    /// Takes the next bytes of a stream about `order`.
    pub(crate) fn push(&mut self, bytes: &[u8], order: &str) {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.windows(2).position(|pair| pair == b"\n\n") {
            let event: Vec<u8> = self.rest.drain(..end + 2).collect();
            let event = String::from_utf8_lossy(&event).into_owned();
            self.event(&event, order);
        }
    }

    /// Whether bytes of an unfinished event are left.
    pub(crate) fn torn(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Takes a whole answer about `order`.
    pub(crate) fn whole(&mut self, body: &[u8], order: &str) {
        let Ok(body) = serde_json::from_slice::<Value>(body) else {
            self.wrong = Some("the body is no JSON".to_owned());
            return;
        };
        if self.is_error(&body) {
            return;
        }
        self.stamp(&body, 0, order);
        let choice = &body["choices"][0];
        self.finish = choice["finish_reason"].as_str().map(str::to_owned);
        self.done = true;
        self.pieces(&choice["message"]["tool_calls"]);
    }

    fn event(&mut self, event: &str, order: &str) {
        if self.done || self.error.is_some() {
            let after = self.error.as_deref() != Some("boom") || !event.contains("[DONE]");
            if after {
                self.wrong = Some(format!("an event after the end: {event:.200}"));
            }
            return;
        }
        let mut comment = None;
        let mut data = None;
        for line in event.lines() {
            if let Some(text) = line.strip_prefix("data: ") {
                data = Some(text);
            } else if let Some(text) = line.strip_prefix(": ") {
                comment = Some(text);
            }
        }
        let Some(data) = data else { return };
        if data == "[DONE]" {
            let stamp: Vec<u64> = comment
                .unwrap_or_default()
                .split(' ')
                .filter_map(|text| text.parse().ok())
                .collect();
            match stamp[..] {
                [number, sequence, at] => self.stamped(number, sequence, at),
                _ => self.wrong = Some("an end without a stamp".to_owned()),
            }
            self.done = true;
            return;
        }
        let Ok(data) = serde_json::from_str::<Value>(data) else {
            self.wrong = Some(format!("an event that is no JSON: {event:.200}"));
            return;
        };
        if self.is_error(&data) {
            return;
        }
        self.stamp(&data, data["seq"].as_u64().unwrap_or(u64::MAX), order);
        let choice = &data["choices"][0];
        let text = choice["delta"]["content"].as_str();
        if text.is_some_and(|text| !text.starts_with(&format!("{order}:"))) {
            self.wrong = Some(format!("text of something else than {order}: {event:.200}"));
        }
        self.pieces(&choice["delta"]["tool_calls"]);
        if let Some(finish) = choice["finish_reason"].as_str() {
            self.finish = Some(finish.to_owned());
        }
    }

    fn is_error(&mut self, body: &Value) -> bool {
        let Some(code) = body["error"]["code"].as_str() else { return false };
        self.error = Some(code.to_owned());
        if let Some(at) = body["at"].as_u64() {
            self.sent_at = at;
        }
        true
    }

    fn stamp(&mut self, body: &Value, sequence: u64, order: &str) {
        if body["order"] != order {
            self.wrong = Some(format!("an answer about {} instead of {order}", body["order"]));
        }
        let number = body["u"].as_u64().unwrap_or_default();
        self.stamped(number, sequence, body["at"].as_u64().unwrap_or(u64::MAX));
    }

    fn stamped(&mut self, number: u64, sequence: u64, at: u64) {
        if self.number.is_some_and(|known| known != number) {
            self.wrong = Some(format!("pieces of two answers: {:?} and {number}", self.number));
        }
        if sequence != self.events {
            self.wrong = Some(format!("piece {sequence} where {} is due", self.events));
        }
        self.number = Some(number);
        self.events += 1;
        self.sent_at = at;
    }

    fn pieces(&mut self, calls: &Value) {
        let Some(pieces) = calls.as_array() else { return };
        let call = self.call.get_or_insert_with(Call::default);
        for piece in pieces {
            let add = |to: &mut String, value: &Value| to.push_str(value.as_str().unwrap_or(""));
            add(&mut call.id, &piece["id"]);
            add(&mut call.name, &piece["function"]["name"]);
            add(&mut call.arguments, &piece["function"]["arguments"]);
        }
    }
}
