//! The record of what was received, and the switchboard of what is being said.
//!
//! A generation holds an [`Open`]. Dropping it unfinished is how a client that went away is noticed,
//! so a generation cannot end unrecorded.

use bytes::Bytes;
use http::{HeaderMap, Method};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Exchanges remembered one by one; older ones only count.
const KEPT: usize = 256;

/// The record.
#[derive(Debug, Default)]
pub(super) struct Seen {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    requests: u64,
    abort_requests: u64,
    exchanges: VecDeque<Exchange>,
    others: VecDeque<String>,
    open: BTreeMap<u64, (String, CancellationToken)>,
}

#[derive(Debug)]
struct Exchange {
    serial: u64,
    rid: String,
    stream: bool,
    messages: usize,
    headers: Value,
    body: Bytes,
    outcome: &'static str,
}

/// What is known of a request when it comes in.
#[derive(Debug)]
pub(super) struct Arrival<'a> {
    /// `rid`, or the id made for it.
    pub(super) rid: String,
    /// `stream`
    pub(super) stream: bool,
    /// Length of the message list.
    pub(super) messages: usize,
    /// Its headers.
    pub(super) headers: &'a HeaderMap,
    /// Its body.
    pub(super) body: Bytes,
}

/// A generation under way.
#[derive(Debug)]
pub(super) struct Open {
    seen: Arc<Seen>,
    serial: u64,
    aborted: CancellationToken,
    finished: bool,
}

impl Seen {
    /// Counts a request and opens its generation; `None` when its rid is being used already.
    pub(super) fn open(self: &Arc<Self>, arrival: Arrival<'_>) -> Option<Open> {
        let mut state = self.state.lock();
        let taken = state.open.values().any(|(rid, _)| *rid == arrival.rid);
        let rid = arrival.rid.clone();
        let serial = state.note(arrival, if taken { "refused" } else { "open" });
        if taken {
            return None;
        }
        let aborted = CancellationToken::new();
        state.open.insert(serial, (rid, aborted.clone()));
        Some(Open { seen: Arc::clone(self), serial, aborted, finished: false })
    }

    /// Counts a request that cannot be answered.
    pub(super) fn unusable(&self, headers: &HeaderMap, body: Bytes) {
        let arrival = Arrival { rid: String::new(), stream: false, messages: 0, headers, body };
        self.state.lock().note(arrival, "refused");
    }

    /// Remembers a request for anything but a chat completion.
    pub(super) fn other(&self, method: &Method, path: &str) {
        let mut state = self.state.lock();
        state.others.push_back(format!("{method} {path}"));
        if state.others.len() > KEPT {
            state.others.pop_front();
        }
    }

    /// Aborts every generation whose rid begins with `prefix`, as SGLang does.
    pub(super) fn abort(&self, prefix: &str) {
        let mut state = self.state.lock();
        state.abort_requests += 1;
        for (_, aborted) in state.open.values().filter(|(rid, _)| rid.starts_with(prefix)) {
            aborted.cancel();
        }
    }

    /// Forgets what was counted. Generations under way go on.
    pub(super) fn reset(&self) {
        let mut state = self.state.lock();
        state.requests = 0;
        state.abort_requests = 0;
        state.exchanges.clear();
        state.others.clear();
    }

    /// The record as JSON.
    pub(super) fn report(&self) -> Value {
        let state = self.state.lock();
        let rids = |wanted: &dyn Fn(&Exchange) -> bool| -> Vec<&str> {
            state.exchanges.iter().filter(|e| wanted(e)).map(|e| e.rid.as_str()).collect()
        };
        let exchanges: Vec<Value> = state.exchanges.iter().map(Exchange::report).collect();
        json!({
            "requests": state.requests,
            "rids": rids(&|_| true),
            "aborted": rids(&|e| matches!(e.outcome, "aborted" | "disconnected")),
            "open": state.open.len(),
            "abort_requests": state.abort_requests,
            "others": state.others,
            "exchanges": exchanges,
        })
    }

    /// The body of the n-th exchange remembered.
    pub(super) fn body(&self, index: usize) -> Option<Bytes> {
        self.state.lock().exchanges.get(index).map(|exchange| exchange.body.clone())
    }
}

impl State {
    fn note(&mut self, arrival: Arrival<'_>, outcome: &'static str) -> u64 {
        let serial = self.next;
        self.next += 1;
        self.requests += 1;
        let headers: BTreeMap<&str, String> = arrival
            .headers
            .iter()
            .map(|(name, value)| {
                (name.as_str(), String::from_utf8_lossy(value.as_bytes()).into_owned())
            })
            .collect();
        self.exchanges.push_back(Exchange {
            serial,
            rid: arrival.rid,
            stream: arrival.stream,
            messages: arrival.messages,
            headers: json!(headers),
            body: arrival.body,
            outcome,
        });
        if self.exchanges.len() > KEPT {
            self.exchanges.pop_front();
        }
        serial
    }
}

impl Exchange {
    fn report(&self) -> Value {
        json!({
            "rid": self.rid,
            "stream": self.stream,
            "messages": self.messages,
            "outcome": self.outcome,
            "headers": self.headers,
        })
    }
}

impl Open {
    /// Whether it was told to stop.
    pub(super) fn is_aborted(&self) -> bool {
        self.aborted.is_cancelled()
    }

    /// Resolves when it is told to stop.
    pub(super) async fn aborted(&self) {
        self.aborted.cancelled().await;
    }

    /// It said all that it had to say.
    pub(super) fn finish(&mut self) {
        if !self.finished {
            self.end("finished");
        }
    }

    fn end(&mut self, ended: &'static str) {
        self.finished = true;
        let outcome = if self.aborted.is_cancelled() { "aborted" } else { ended };
        let mut state = self.seen.state.lock();
        state.open.remove(&self.serial);
        let exchange = state.exchanges.iter_mut().find(|e| e.serial == self.serial);
        if let Some(exchange) = exchange {
            exchange.outcome = outcome;
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.finished {
            self.end("disconnected");
        }
    }
}
