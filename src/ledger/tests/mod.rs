//! The ledger, sentence by sentence of its rules, on virtual time.
//!
//! [`Talk`] plays one conversation. A message list is written as words: `u1` a user message, `a1` an
//! assistant's text, `s1` a system message, `c1(A)=R` a call with its result (calls side by side are one
//! run), `c1/refund(A)=R` the same of another tool, `=!` a closing in place of a result.
//!
//! After every event it is checked that the same event applied again changes nothing and gets the same
//! answer, that a refused request left no trace, that `open_calls` is the change in open calls, that no
//! final state changed, and that `due` is not later than the next thing due.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod budgets;
mod cases;
mod control;
mod generations;
mod history;
mod lanes;
mod merged;
mod notices;
mod observe;
mod reader;
mod repeats;
mod results;
mod stories;
mod twice;
mod walk;
mod way_out;
mod would;
mod writes;

use super::Conversation;
use super::calls::{CallState, Written};
use super::digest::{Digest, DigestKey};
use super::event::*;
use super::rules::Rules;
use crate::guard::fault::Code;
use crate::guard::verdict::Action;
use reader::Reader;
use std::collections::HashMap;

/// The digest of something made up.
pub(super) fn digest(text: &str) -> Digest {
    DigestKey::new([7; 32]).bytes("test", text.as_bytes())
}

/// A request in words.
#[derive(Clone)]
pub(super) struct Ask {
    pub(super) event: Admit,
}

pub(super) fn ask(list: &str) -> Ask {
    let words: Vec<&str> = list.split_whitespace().collect();
    let mut runs: Vec<Run> = Vec::new();
    let mut in_run = false;
    for (at, word) in words.iter().enumerate() {
        if let Some((call, result)) = word.split_once('=') {
            if !in_run {
                runs.push(Run { live: true, pairs: Vec::new() });
            }
            in_run = true;
            runs.last_mut().unwrap().pairs.push(pair(at, call, result));
        } else {
            in_run = false;
            if !word.starts_with('s') {
                runs.iter_mut().for_each(|run| run.live = false);
            }
        }
    }
    let last = runs.len().saturating_sub(1);
    for (at, run) in runs.iter_mut().enumerate() {
        run.live &= at == last;
    }
    let first_user = words.iter().position(|word| word.starts_with('u')).unwrap_or(0);
    let event = Admit {
        exchange: ExchangeId(0),
        replica: Replica(1),
        generation: None,
        lane: digest(&format!("lane {}", words[..=first_user].join(" "))),
        list: digest(&format!("list {}", words.join(" "))),
        declared_retry: false,
        idempotency: None,
        runs,
        names: Names::default(),
    };
    Ask { event }
}

fn pair(message: usize, call: &str, result: &str) -> Pair {
    let (id, tool, arguments) = call_words(call);
    Pair {
        id: id.into(),
        tool: tool.into(),
        arguments: digest(arguments),
        message,
        result: digest(result),
        closing: result == "!" || result == "!+",
        bare: result != "!+",
        name: None,
        echoes: Vec::new(),
        edits_allowed: false,
        attempt: None,
    }
}

/// `c1/refund(A)`: id, tool (`get` unless named), arguments.
fn call_words(call: &str) -> (&str, &str, &str) {
    let (head, arguments) = call.trim_end_matches(')').split_once('(').unwrap_or((call, ""));
    let (id, tool) = head.split_once('/').unwrap_or((head, "get"));
    (id, tool, arguments)
}

impl Ask {
    pub(super) fn generation(mut self, generation: u64) -> Ask {
        self.event.generation = Some(generation);
        self
    }

    pub(super) fn declared(mut self) -> Ask {
        self.event.declared_retry = true;
        self
    }

    pub(super) fn key(mut self, key: &str) -> Ask {
        self.event.idempotency = Some(digest(key));
        self
    }

    /// Changes every pair of the last run.
    pub(super) fn each(mut self, change: impl Fn(&mut Pair)) -> Ask {
        self.event.runs.last_mut().unwrap().pairs.iter_mut().for_each(change);
        self
    }
}

/// What a call is proposed with, in words: `c1(A)`; several side by side; `|` begins another choice.
pub(super) fn proposal(words: &str) -> Vec<Alternative> {
    words
        .split('|')
        .enumerate()
        .map(|(choice, words)| Alternative {
            choice: choice as u64,
            calls: words
                .split_whitespace()
                .map(|word| {
                    let (id, tool, arguments) = call_words(word);
                    Proposed {
                        id: id.into(),
                        tool: tool.into(),
                        arguments: digest(arguments),
                        echoes: Vec::new(),
                        deadline: None,
                        write: tool == "refund",
                    }
                })
                .collect(),
        })
        .collect()
}

/// One conversation, played.
#[derive(Clone, Default)]
pub(super) struct Talk {
    pub(super) conversation: Conversation,
    pub(super) rules: Rules,
    pub(super) now: Millis,
    pub(super) ids: u128,
    /// Every fact that was told.
    pub(super) facts: Vec<Fact>,
    /// Every story that was told.
    pub(super) stories: Vec<Story>,
    /// Exchanges that were declared retries.
    pub(super) declared: Vec<ExchangeId>,
    /// Every exchange that was cancelled.
    pub(super) cancelled: Vec<(ExchangeId, Code)>,
    /// Every write that may have been run, also those that are forgotten by now: in which proposal, and whether it
    /// was settled when it was last seen.
    operations: HashMap<Operation, (u64, bool)>,
    /// What enforcing would have refused the last event for.
    pub(super) would_refuse: Vec<Code>,
    reader: Reader,
}

impl Talk {
    pub(super) fn new() -> Talk {
        Talk { now: Millis(1_000), ..Talk::default() }
    }

    pub(super) fn with(change: impl FnOnce(&mut Rules)) -> Talk {
        let mut talk = Talk::new();
        change(&mut talk.rules);
        talk
    }

    /// Under `observe`: everything is let out and in, and noted.
    pub(super) fn observing() -> Talk {
        Talk::with(|rules| rules.actions = crate::guard::verdict::Rules::all(Action::Note))
    }

    pub(super) fn id(&mut self) -> ExchangeId {
        self.ids += 1;
        ExchangeId(self.ids)
    }

    pub(super) fn pass(&mut self, span: u64) {
        self.now = self.now.after(Millis(span));
    }

    /// Applies an event and checks what always holds.
    pub(super) fn apply(&mut self, event: &Event) -> Outcome {
        let mut ticked = self.conversation.clone();
        let time = ticked.apply(&Event::Tick, &self.rules, self.now);
        let before = self.conversation.clone();
        let Transition { outcome, effects, would_refuse } =
            self.conversation.apply(event, &self.rules, self.now);
        self.would_refuse = would_refuse;
        let read = self.reader.apply(event, &self.rules, self.now);
        assert_eq!((&read.outcome, &read.effects), (&outcome, &effects), "it was read wrong");
        self.reader.follow(&mut self.conversation);
        self.check_open_calls(&before, &effects);
        self.check_final(&before);
        self.check_due();
        self.check_operations();
        self.check_no_trace(event, &outcome, &ticked);
        self.check_twice(event, &outcome);
        if matches!(outcome, Outcome::Refused(_)) && !self.trace_allowed(&outcome, &ticked) {
            assert_eq!(effects.cancel, time.effects.cancel, "a refusal cancels nothing");
        }
        self.check_stories(&effects);
        self.stories.extend(effects.stories);
        self.facts.extend(effects.facts);
        self.cancelled.extend(effects.cancel);
        outcome
    }

    fn check_open_calls(&self, before: &Conversation, effects: &Effects) {
        let change = open_calls(&self.conversation) - open_calls(before);
        assert_eq!(effects.open_calls, change, "open_calls");
    }

    /// Each task that is counted is told, once, with all its exchanges that are still known.
    fn check_stories(&self, effects: &Effects) {
        let tasks = |stories: &[Story]| -> Vec<(u32, u64)> {
            let tasks = stories.iter().filter(|one| matches!(one.part, Part::Task(_)));
            tasks.map(|one| (one.lane, one.generation)).collect()
        };
        let (before, now) = (tasks(&self.stories), tasks(&effects.stories));
        let counted = effects.facts.iter().filter(|one| matches!(one, Fact::TaskEnded { .. }));
        assert_eq!(now.len(), counted.count());
        assert!(!now.iter().any(|task| before.contains(task)), "a task is told twice");
        for story in &effects.stories {
            for exchange in &story.exchanges {
                assert_eq!((exchange.lane, exchange.generation), (story.lane, story.generation));
                assert_eq!(exchange.under_way(), exchange.marks.ended.is_none(), "{exchange:?}");
            }
        }
    }

    fn check_final(&self, before: &Conversation) {
        for was in before.calls().iter() {
            let Some(is) = self.conversation.calls().get(was.seq) else { continue };
            for (was, is) in was.calls.iter().zip(&is.calls) {
                if was.state != CallState::Open {
                    assert_eq!(was.state, is.state, "a final state changed");
                }
            }
        }
    }

    fn check_due(&self) {
        let conversation = &self.conversation;
        let calls = conversation.calls().iter().flat_map(|one| &one.calls);
        let deadlines =
            calls.filter(|call| call.state == CallState::Open).filter_map(|call| call.deadline);
        let flights = conversation.exchanges().iter().filter(|one| one.under_way());
        let tasks = conversation
            .lanes()
            .iter()
            .filter(|lane| lane.task.ended.is_none() && lane.task.model_calls > 0);
        let ends =
            tasks.filter_map(|lane| Some(lane.task.started.after(self.rules.task_deadline?)));
        let next = deadlines.chain(flights.map(|one| one.lease)).chain(ends).min();
        if let Some(next) = next {
            assert!(conversation.due().is_some_and(|due| due <= next), "due is too late");
        }
    }

    /// No operation key is given to two writes, however long ago the first one was. (Of several choices one is
    /// taken; a withdrawn write was not run.)
    fn check_operations(&mut self) {
        let calls = self.conversation.calls();
        // What was not settled is never forgotten, but when it is withdrawn: then its ordinal is free.
        self.operations.retain(|operation, (seq, settled)| {
            *settled || calls.get(*seq).is_some() || operation.ordinal < calls.ordinals
        });
        for proposal in calls.iter() {
            for call in proposal.calls.iter().filter(|call| call.write) {
                let operation = call.operation(proposal.generation);
                let known = self.operations.get(&operation).map(|(seq, _)| *seq);
                if call.written == Some(Written::Withdrawn) {
                    if known == Some(proposal.seq) {
                        self.operations.remove(&operation);
                    }
                    continue;
                }
                let other = known.filter(|seq| *seq != proposal.seq);
                assert_eq!(other, None, "{operation:?} is two writes");
                let settled = call.state != CallState::Open && !call.unknown_write();
                self.operations.insert(operation, (proposal.seq, settled));
            }
        }
    }

    fn check_no_trace(&self, event: &Event, outcome: &Outcome, ticked: &Conversation) {
        if matches!(outcome, Outcome::Refused(_)) && !self.trace_allowed(outcome, ticked) {
            assert_eq!(self.conversation, *ticked, "{event:?} was refused and left a trace");
        }
    }

    /// A spent budget, an advance by header and the report of a write may stay.
    fn trace_allowed(&self, outcome: &Outcome, ticked: &Conversation) -> bool {
        let header = |of: &Conversation| {
            let lane = of.lanes().find(super::lanes::LaneKey::Header);
            (of.uses_header, lane.map(|lane| lane.task.generation))
        };
        let reported = |of: &Conversation| {
            of.calls().iter().flat_map(|one| &one.calls).filter(|call| call.unknown_write()).count()
        };
        codes(outcome).contains(&Code::BudgetExhausted)
            || header(&self.conversation) != header(ticked)
            || reported(&self.conversation) != reported(ticked)
    }

    fn check_twice(&self, event: &Event, outcome: &Outcome) {
        let mut again = self.conversation.clone();
        let second = again.apply(event, &self.rules, self.now);
        assert_eq!(second.outcome, *outcome, "{event:?}, applied twice");
        assert_eq!(again, self.conversation, "{event:?}, applied twice, changed something");
        assert_eq!((second.effects.open_calls, second.effects.cancel.len()), (0, 0));
        let told = |fact: &Fact| !matches!(fact, Fact::ResultDecided { code: Some(_), .. });
        let anew = |story: &Story| !matches!(story.part, Part::Result { .. });
        assert!(!second.effects.stories.iter().any(anew), "{event:?}, applied twice, told anew");
        assert!(!second.effects.facts.iter().any(told), "{event:?}, applied twice, told twice");
    }

    /// Sends a request.
    pub(super) fn ask(&mut self, mut ask: Ask) -> (ExchangeId, Outcome) {
        let id = self.id();
        ask.event.exchange = id;
        if ask.event.declared_retry {
            self.declared.push(id);
        }
        (id, self.apply(&Event::Admit(ask.event)))
    }

    /// Sends a request that must go up.
    pub(super) fn up(&mut self, ask: Ask) -> ExchangeId {
        let (id, outcome) = self.ask(ask);
        assert!(matches!(outcome, Outcome::Admitted(_)), "{outcome:?}");
        id
    }

    /// Sends a request that must go up; gives what it was told.
    pub(super) fn admitted(&mut self, ask: Ask) -> Admitted {
        match self.ask(ask).1 {
            Outcome::Admitted(admitted) => admitted,
            other => panic!("{other:?}"),
        }
    }

    /// Sends a request that must be refused; gives the codes.
    pub(super) fn refused(&mut self, ask: Ask) -> Vec<Code> {
        let (_, outcome) = self.ask(ask);
        let codes = codes(&outcome);
        assert!(!codes.is_empty(), "{outcome:?}");
        codes
    }

    pub(super) fn settle(&mut self, exchange: ExchangeId, calls: &str) -> Outcome {
        self.settle_as(exchange, proposal(calls))
    }

    pub(super) fn settle_as(&mut self, exchange: ExchangeId, calls: Vec<Alternative>) -> Outcome {
        let alternatives = calls.into_iter().filter(|one| !one.calls.is_empty()).collect();
        self.apply(&Event::Settle(Settle { exchange, alternatives, forced: false }))
    }

    pub(super) fn close(&mut self, exchange: ExchangeId, ending: Ending) {
        assert_eq!(self.apply(&Event::Close(Close { exchange, ending })), Outcome::Done);
    }

    /// The answer goes down: with calls, or (`""`) without.
    pub(super) fn answer(&mut self, exchange: ExchangeId, calls: &str) {
        assert_eq!(self.settle(exchange, calls), Outcome::Wanted);
        self.close(exchange, Ending::Delivered);
    }

    /// A request that goes up and is answered.
    pub(super) fn round(&mut self, ask: Ask, calls: &str) -> ExchangeId {
        let id = self.up(ask);
        self.answer(id, calls);
        id
    }

    /// The same, with a deadline on its calls.
    pub(super) fn round_within(&mut self, ask: Ask, calls: &str, span: u64) -> ExchangeId {
        let id = self.up(ask);
        let mut calls = proposal(calls);
        for call in calls.iter_mut().flat_map(|one| &mut one.calls) {
            call.deadline = Some(Millis(span));
        }
        assert_eq!(self.settle_as(id, calls), Outcome::Wanted);
        self.close(id, Ending::Delivered);
        id
    }

    pub(super) fn advance(&mut self, generation: Option<u64>) -> Outcome {
        let exchange = self.id();
        self.apply(&Event::Advance(Advance { exchange, generation, idempotency: None }))
    }

    /// The state of the newest call of that id.
    pub(super) fn call(&self, id: &str) -> CallState {
        let proposal = self.conversation.calls().with_id(id).next().unwrap();
        proposal.calls[proposal.call(id, None).unwrap()].state
    }

    /// How tasks ended, in order.
    pub(super) fn tasks(&self) -> Vec<(u64, TaskOutcome)> {
        let ends = self.facts.iter().filter_map(|fact| match fact {
            Fact::TaskEnded { generation, outcome, .. } => Some((*generation, *outcome)),
            _ => None,
        });
        ends.collect()
    }

    /// Codes of refused results, in order.
    pub(super) fn recorded(&self) -> Vec<Code> {
        let refused = self.facts.iter().filter_map(|fact| match fact {
            Fact::ResultDecided { code, .. } => *code,
            _ => None,
        });
        refused.collect()
    }
}

pub(super) fn codes(outcome: &Outcome) -> Vec<Code> {
    match outcome {
        Outcome::Refused(refused) => refused.faults.iter().map(|fault| fault.code).collect(),
        _ => Vec::new(),
    }
}

pub(super) fn notes(admitted: &Admitted) -> Vec<Code> {
    admitted.notes.iter().map(|fault| fault.code).collect()
}

/// Which results are replaced, and by what.
pub(super) fn replaced(admitted: &Admitted) -> Vec<(usize, Notice)> {
    admitted.substitutions.iter().map(|one| (one.message, one.notice)).collect()
}

pub(super) fn accepted(result: &str) -> CallState {
    CallState::Accepted(digest(result))
}

fn open_calls(of: &Conversation) -> i64 {
    let mut by_state: HashMap<bool, i64> = HashMap::new();
    for call in of.calls().iter().flat_map(|one| &one.calls) {
        *by_state.entry(call.state == CallState::Open).or_default() += 1;
    }
    by_state.get(&true).copied().unwrap_or_default()
}
