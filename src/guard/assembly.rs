//! A streamed answer, put together by choice and index.
//!
//! Text is let through as it comes. From the first fragment of a call on, [`Assembly::push`] says
//! [`Step::Hold`]: whether a call is sound is known at the end only, since a parser may close a cut
//! call, send its object twice, or go on after the first `finish_reason`.
//!
//! ```text
//!             fragment                      end of stream
//! forwarding ──────────▶ holding: assemble ───────────────▶ Proposal + faults ──▶ judge
//!      │                                                        ▲
//!      └────────────────────── end of stream ───────────────────┘
//! ```
//!
//! What breaks the *shape* of a stream is recorded as `broken_stream` when it is seen. Everything
//! else is left to the rules on the proposal, so that a streamed and a whole answer are judged alike.

mod call;

use super::fault::{Code, Fault};
use super::proposal::{Form, MOST_CALLS, Place, Proposal, ProposedChoice};
use crate::wire::chunk::{Chunk, ChunkChoice, Fragment};
use crate::wire::json::{Field, Text};
use call::OpenCall;

/// Most choices of a stream. Each is kept, and looked for among the others.
const MOST_CHOICES: usize = 1024;
/// Most `broken_stream` faults recorded of one stream: a broken server repeats itself.
const MAX_BROKEN: usize = 16;

/// What to do with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It may go on to the client, and so may all before it.
    Forward,
    /// It and all after it are held until the end.
    Hold,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end of the body, with or without `[DONE]`.
    Clean,
    /// An error event, or a broken connection.
    Error,
}

/// The calls of a stream so far.
#[derive(Debug)]
pub struct Assembly {
    n: u64,
    choices: Vec<OpenChoice>,
    holding: bool,
    failed: bool,
    broken: Vec<Fault>,
    overflowed: bool,
}

/// A choice that is still coming. Its calls are kept apart until the end.
#[derive(Debug, Default)]
struct OpenChoice {
    so_far: ProposedChoice,
    completion: String,
    calls: Vec<OpenCall>,
    legacy: Option<OpenCall>,
}

impl OpenChoice {
    fn has_calls(&self) -> bool {
        !self.calls.is_empty() || self.legacy.is_some()
    }
}

impl Assembly {
    /// For an answer to a request that asked for `n` choices.
    #[must_use]
    pub fn new(n: u64) -> Self {
        Assembly {
            n,
            choices: Vec::new(),
            holding: false,
            failed: false,
            broken: Vec::new(),
            overflowed: false,
        }
    }

    /// Takes one chunk in. A chunk of text allocates nothing.
    pub fn push(&mut self, chunk: &Chunk<'_>) -> Step {
        self.failed |= chunk.error;
        for part in &chunk.choices {
            let fragments = !part.tool_calls.is_empty() || part.function_call.is_some();
            self.holding |= fragments;
            let Some(at) = self.choice(part.index) else { continue };
            self.completion(at, chunk.id);
            if fragments {
                self.fragments(at, part);
            }
            self.choices[at].so_far.finish(part.finish_reason);
        }
        if self.holding { Step::Hold } else { Step::Forward }
    }

    /// Whether any fragment of a call came.
    #[must_use]
    pub fn has_calls(&self) -> bool {
        self.holding
    }

    /// Whether every choice has its finish. More may follow all the same.
    #[must_use]
    pub fn finished_all(&self) -> bool {
        let finished = self.choices.iter().filter(|choice| choice.so_far.finished).count();
        finished == self.choices.len() && finished > 0 && finished as u64 >= self.n
    }

    /// How many `broken_stream` faults were recorded so far. [`Assembly::finish`] gives them first.
    #[must_use]
    pub fn broken(&self) -> usize {
        self.broken.len()
    }

    /// The proposal, and what was broken on the way.
    #[must_use]
    pub fn finish(mut self, ended: End) -> (Proposal, Vec<Fault>) {
        let mut faults = std::mem::take(&mut self.broken);
        let failed = self.failed || ended == End::Error;
        if !self.choices.iter().any(|choice| choice.so_far.finished) {
            faults.push(truncated("choices".to_owned()));
        } else {
            for choice in self.choices.iter().filter(|choice| !choice.so_far.finished) {
                faults.push(truncated(format!("choices[{}].finish_reason", choice.so_far.index)));
            }
        }
        for choice in &self.choices {
            let nameless = choice.calls.iter().filter(|call| call.is_headless());
            for call in nameless.take(MAX_BROKEN) {
                let place = place(choice, call.index, Form::Function);
                faults.push(broken(place, None, "Its fragments never brought an id or a name."));
            }
        }
        let choices = self.choices.into_iter().map(|choice| {
            let mut proposed = choice.so_far;
            proposed.cut |= failed && (!choice.calls.is_empty() || choice.legacy.is_some());
            proposed.calls = choice.calls.into_iter().map(|call| call.close(false)).collect();
            proposed.calls.extend(choice.legacy.map(|call| call.close(true)));
            proposed
        });
        (Proposal { choices: choices.collect() }, faults)
    }

    /// Where a choice is kept; `None` of one more than can be.
    fn choice(&mut self, index: u64) -> Option<usize> {
        let known = self.choices.iter().rposition(|choice| choice.so_far.index == index);
        if known.is_none() && self.choices.len() == MOST_CHOICES {
            self.overflow(index, "The answer has more choices than can be kept apart.");
            return None;
        }
        Some(known.unwrap_or_else(|| {
            let so_far = ProposedChoice { index, ..ProposedChoice::default() };
            self.choices.push(OpenChoice { so_far, ..OpenChoice::default() });
            self.choices.len() - 1
        }))
    }

    /// A choice, or a call in one, more than is kept. Told once.
    fn overflow(&mut self, choice: u64, message: &str) {
        if !std::mem::replace(&mut self.overflowed, true) {
            let place = Place { choice, at: 0, form: Form::Function };
            self.broken.push(broken(place, None, message));
        }
    }

    /// With one choice, another completion id while a call is open means that two answers mix. With
    /// more, servers may give each choice its own.
    fn completion(&mut self, at: usize, id: Field<'_>) {
        let choice = &mut self.choices[at];
        let Field::Text(id) = id else { return };
        if self.n > 1 || id.raw().is_empty() || id.raw() == choice.completion {
            return;
        }
        let open = choice.has_calls() && !choice.so_far.finished;
        let changed = open && !choice.completion.is_empty();
        choice.completion.clear();
        choice.completion.push_str(id.raw());
        if changed {
            self.note(at, 0, None, "The completion's id changed while a call was open.");
        }
    }

    fn fragments(&mut self, at: usize, part: &ChunkChoice<'_>) {
        for fragment in &part.tool_calls {
            let Some(call) = self.slot(at, fragment) else { continue };
            let call = &mut self.choices[at].calls[call];
            if call.take(fragment) {
                let (index, id) = (call.index, call.known_id());
                self.note(at, index, id, "Text came after its arguments were complete.");
            }
        }
        if let Some(fragment) = &part.function_call {
            let legacy = &mut self.choices[at].legacy;
            if legacy.get_or_insert_with(OpenCall::default).take(fragment) {
                self.note(at, 0, None, "Text came after its arguments were complete.");
            }
        }
    }

    /// Which call a fragment belongs to; a new one where it starts one.
    fn slot(&mut self, at: usize, fragment: &Fragment<'_>) -> Option<usize> {
        if self.overflowed {
            return None;
        }
        let calls = &self.choices[at].calls;
        let id = match fragment.id {
            Field::Text(id) if !id.raw().is_empty() => Some(id),
            _ => None,
        };
        let found = match fragment.index {
            Some(index) => calls.iter().rposition(|call| call.index == index),
            None => match (calls.len(), id) {
                (0, _) => None,
                (1, _) => Some(0),
                (_, Some(id)) => calls.iter().rposition(|call| call.has_id(id)),
                (_, None) => {
                    self.note(
                        at,
                        0,
                        None,
                        "A fragment without index or id came while several calls were open.",
                    );
                    return None;
                }
            },
        };
        let index = fragment.index.or(found.map(|call| calls[call].index)).unwrap_or(0);
        let occupied = found.is_some_and(|call| id.is_some_and(|id| calls[call].clashes(id)));
        if let Some(call) = found.filter(|_| !occupied) {
            if let Some(id) = id.filter(|_| calls[call].known_id().is_none()) {
                self.elsewhere(at, index, id);
            }
            return Some(call);
        }
        let id_text = || id.map(|id| id.decode().into_owned());
        if occupied {
            self.note(at, index, id_text(), "A new id came at an index that another call has.");
        } else if fragment.index.is_none() && !calls.is_empty() {
            self.note(at, index, id_text(), "A further call came without an index.");
        } else if let Some(id) = id {
            self.elsewhere(at, index, id);
        }
        if self.choices[at].calls.len() == MOST_CALLS {
            let choice = self.choices[at].so_far.index;
            self.overflow(choice, "The answer has more calls than can be kept apart.");
            return None;
        }
        // Kept as a call of its own: the nearest to what the client will make of it.
        self.choices[at].calls.push(OpenCall::at(index));
        Some(self.choices[at].calls.len() - 1)
    }

    /// An id lives at one index only.
    fn elsewhere(&mut self, at: usize, index: u64, id: Text<'_>) {
        let mut calls = self.choices[at].calls.iter();
        if calls.any(|call| call.index != index && call.has_id(id)) {
            let id = Some(id.decode().into_owned());
            self.note(at, index, id, "Its id stands at another index as well.");
        }
    }

    fn note(&mut self, at: usize, index: u64, id: Option<String>, message: &str) {
        if self.broken.len() < MAX_BROKEN {
            let place = place(&self.choices[at], index, Form::Function);
            self.broken.push(broken(place, id, message));
        }
    }
}

fn place(choice: &OpenChoice, at: u64, form: Form) -> Place {
    Place { choice: choice.so_far.index, at, form }
}

fn broken(place: Place, id: Option<String>, message: &str) -> Fault {
    Fault {
        code: Code::BrokenStream,
        param: place.to_string(),
        message: message.to_owned(),
        tool_call_id: id,
        recovery: "The model's answer was withheld; ask again. If it persists, look at the server's tool-call parser.",
    }
}

fn truncated(param: String) -> Fault {
    Fault {
        code: Code::TruncatedStream,
        param,
        message: "The stream ended without a finish.".to_owned(),
        tool_call_id: None,
        recovery: "What came of the answer is incomplete; ask again.",
    }
}

#[cfg(test)]
mod tests;
