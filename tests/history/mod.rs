//! What clients did to a conversation and what they were told, and whether one order of single steps
//! explains it (linearizability, per conversation).
//!
//! [`Recorder`] keeps what clients see: when they asked, when they were answered, and what. [`spec`] says in
//! one small machine, written from the promises and not from the ledger, what a single store that never
//! fails would have answered. [`check`] looks for an order of the operations in which it would have said the
//! same: each takes effect between its question and its answer, and one that got no answer takes effect at
//! any time after its question, or never.
//!
//! A chat exchange is two steps, with the model in between: it asks to go up, and asks to go down.

#![expect(dead_code, reason = "each test that uses it uses a part")]

mod calls;
pub(crate) mod check;
pub(crate) mod client;
pub(crate) mod load;
pub(crate) mod spec;

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// What a client asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The first question of a task.
    Open { generation: u64, question: String },
    /// The result of a call goes back to the model.
    Continue { generation: u64, call: String, content: String, declared: bool },
    /// Control API: decide on a result.
    Decide { generation: u64, call: String, content: String },
    /// Control API: may this call run?
    Start { generation: u64, call: String },
    /// Control API: the user moved on.
    Advance { generation: Option<u64> },
    /// Control API: the record.
    Read,
}

/// What it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing, or that the proxy could not do it: it may have happened, and may yet.
    Lost,
    /// An answer that proposes these calls.
    Proposed(Vec<String>),
    /// An answer without calls.
    Answered,
    Accepted,
    /// The number of this attempt.
    Started(u64),
    Advanced {
        generation: u64,
        superseded: Vec<String>,
    },
    Record(Record),
    Refused(String),
}

/// The record, as far as it is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// `None`: the conversation is not known.
    pub(crate) generation: Option<u64>,
    /// Each call's generation and state.
    pub(crate) calls: BTreeMap<String, (u64, String)>,
}

/// One operation of one client.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) asked: u64,
    /// It takes effect before this, or never. `None`: at any time.
    pub(crate) until: Option<u64>,
    pub(crate) action: Action,
    pub(crate) outcome: Outcome,
}

/// Keeps what clients see, by one clock for all of them: it counts.
#[derive(Debug, Default)]
pub(crate) struct Recorder(Mutex<Recorded>);

#[derive(Debug, Default)]
struct Recorded {
    now: u64,
    conversations: BTreeMap<String, Vec<Op>>,
}

/// An operation under way.
#[must_use]
#[derive(Debug)]
pub(crate) struct Ticket {
    conversation: String,
    at: usize,
}

impl Recorder {
    /// A client asks now.
    pub(crate) fn asks(&self, conversation: &str, action: Action) -> Ticket {
        let mut recorded = self.0.lock();
        recorded.now += 1;
        let op = Op { asked: recorded.now, until: None, action, outcome: Outcome::Lost };
        let ops = recorded.conversations.entry(conversation.to_owned()).or_default();
        ops.push(op);
        Ticket { conversation: conversation.to_owned(), at: ops.len() - 1 }
    }

    /// It is answered now. A ticket that is dropped instead is an operation without an answer.
    pub(crate) fn told(&self, ticket: &Ticket, outcome: Outcome) {
        let mut recorded = self.0.lock();
        recorded.now += 1;
        let now = recorded.now;
        let ops = recorded.conversations.get_mut(&ticket.conversation);
        let op = ops.and_then(|ops| ops.get_mut(ticket.at)).unwrap();
        op.until = (outcome != Outcome::Lost).then_some(now);
        op.outcome = outcome;
    }

    /// It was never sent.
    pub(crate) fn never(&self, ticket: &Ticket) {
        let mut recorded = self.0.lock();
        let ops = recorded.conversations.get_mut(&ticket.conversation);
        ops.and_then(|ops| ops.get_mut(ticket.at)).unwrap().until = Some(0);
    }

    /// Whoever could still carry out what is unanswered is dead, and nothing of it is under way elsewhere.
    pub(crate) fn all_died(&self) {
        let mut recorded = self.0.lock();
        recorded.now += 1;
        let now = recorded.now;
        let ops = recorded.conversations.values_mut().flatten();
        ops.filter(|op| op.until.is_none()).for_each(|op| op.until = Some(now));
    }

    /// Everything so far, by conversation.
    pub(crate) fn histories(&self) -> BTreeMap<String, Vec<Op>> {
        self.0.lock().conversations.clone()
    }

    /// Panics at a conversation that no order explains, and keeps its history in a file. Gives the number
    /// of operations, and of those without an answer.
    pub(crate) fn check(&self) -> (usize, usize) {
        self.check_with(check::Rules::default())
    }

    pub(crate) fn check_with(&self, rules: check::Rules) -> (usize, usize) {
        let histories = self.histories();
        let begun = Instant::now();
        let mut states = 0;
        for (conversation, ops) in &histories {
            match check::explain(ops, rules) {
                Ok(seen) => states += seen,
                Err(why) => panic!("{conversation}: {why}\nits history: {}", keep(ops)),
            }
        }
        let lost = |op: &&Op| op.outcome == Outcome::Lost;
        let all = || histories.values().flatten();
        let (operations, took) = (all().count(), begun.elapsed());
        println!("{operations} operations are explained, in {states} states and {took:.1?}");
        (operations, all().filter(lost).count())
    }
}

/// Writes a history where it can be read after the test, one operation a line.
fn keep(ops: &[Op]) -> String {
    let file = format!("history-{:016x}", rand::random::<u64>());
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
    let mut ops: Vec<&Op> = ops.iter().collect();
    ops.sort_by_key(|op| op.asked);
    let line = |op: &Op| {
        let until = op.until.map_or_else(|| "-".to_owned(), |until| until.to_string());
        format!("{} {until} {:?} → {:?}\n", op.asked, op.action, op.outcome)
    };
    std::fs::write(&file, ops.into_iter().map(line).collect::<String>()).unwrap();
    file.display().to_string()
}
