//! The events that the rules bring, and how their outcomes are read.

use crate::guard::fault::Code;
use crate::ledger::Conversation;
use crate::ledger::calls::CallState;
use crate::ledger::digest::DigestKey;
use crate::ledger::event::{
    Admit, Advance, Alternative, Close, Decide, Ending, Event, ExchangeId, Millis, Outcome, Pair,
    Proposed, Replica, Run, Settle,
};
use std::collections::BTreeMap;

/// Makes events.
pub(super) struct Events<'a>(pub(super) &'a DigestKey);

impl Events<'_> {
    pub(super) fn opening(&self, exchange: u128, generation: u64) -> Event {
        self.admit(exchange, Some(generation), Vec::new())
    }

    pub(super) fn continuation(&self, exchange: u128, generation: u64, result: &str) -> Event {
        let pair = Pair {
            id: "call_1".into(),
            tool: "query_order".into(),
            arguments: self.0.arguments("{}"),
            message: 2,
            result: self.0.bytes("result", result.as_bytes()),
            closing: false,
            name: None,
            echoes: Vec::new(),
            edits_allowed: false,
            attempt: None,
        };
        let mut event =
            self.admit(exchange, Some(generation), vec![Run { live: true, pairs: vec![pair] }]);
        if let Event::Admit(admit) = &mut event {
            admit.list = self.0.bytes("list", result.as_bytes());
        }
        event
    }

    pub(super) fn admit(&self, exchange: u128, generation: Option<u64>, runs: Vec<Run>) -> Event {
        Event::Admit(Admit {
            exchange: ExchangeId(exchange),
            replica: Replica(1),
            generation,
            lane: self.0.bytes("lane", b""),
            list: self.0.bytes("list", &exchange.to_le_bytes()),
            declared_retry: false,
            idempotency: None,
            runs,
        })
    }

    pub(super) fn proposal(&self, exchange: u128, deadline: Option<u64>) -> Event {
        let call = Proposed {
            id: "call_1".into(),
            tool: "query_order".into(),
            arguments: self.0.arguments("{}"),
            echoes: Vec::new(),
            deadline: deadline.map(Millis),
            write: false,
        };
        let alternatives = vec![Alternative { choice: 0, calls: vec![call] }];
        Event::Settle(Settle { exchange: ExchangeId(exchange), alternatives, forced: false })
    }

    pub(super) fn decision(&self, by: u128, result: &str) -> Event {
        Event::Decide(Decide {
            exchange: ExchangeId(by),
            generation: 1,
            id: "call_1".into(),
            name: None,
            result: self.0.bytes("result", result.as_bytes()),
            closing: false,
            echoes: Vec::new(),
            attempt: None,
            idempotency: None,
        })
    }
}

pub(super) fn answer(exchange: u128) -> Event {
    let exchange = ExchangeId(exchange);
    Event::Settle(Settle { exchange, alternatives: Vec::new(), forced: false })
}

pub(super) fn advance(by: u128, generation: Option<u64>) -> Event {
    Event::Advance(Advance { exchange: ExchangeId(by), generation, idempotency: None })
}

pub(super) fn check(exchange: u128) -> Event {
    Event::Check(ExchangeId(exchange))
}

pub(super) fn delivered(exchange: u128) -> Event {
    Event::Close(Close { exchange: ExchangeId(exchange), ending: Ending::Delivered })
}

pub(super) fn admitted(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Admitted(_))
}

pub(super) fn code(outcome: &Outcome) -> Option<Code> {
    match outcome {
        Outcome::Refused(refused) => refused.faults.first().map(|fault| fault.code),
        Outcome::Withheld(code) => Some(*code),
        _ => None,
    }
}

pub(super) fn codes(outcomes: &[Outcome]) -> BTreeMap<Option<Code>, usize> {
    let mut out = BTreeMap::new();
    outcomes.iter().for_each(|one| *out.entry(code(one)).or_default() += 1);
    out
}

pub(super) fn states(conversation: &Conversation) -> Vec<CallState> {
    let calls = conversation.calls().iter().flat_map(|one| &one.calls);
    calls.map(|call| call.state).collect()
}
