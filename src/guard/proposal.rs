//! What a model proposes: the calls of one answer, owned, however it came.
//!
//! A whole completion and an assembled stream end up as the same [`Proposal`], so that one set of
//! rules ([`judge()`]) decides on both and cannot differ between them.

mod judge;

pub use judge::judge;

use crate::wire::completion::{Choice, Completion};
use crate::wire::json::{Field, Kind};
use crate::wire::request::ToolCall;
use std::fmt;

/// Most calls of one message, whatever else is allowed: in a stream, each is looked for among the others.
pub const MOST_CALLS: usize = 1024;

/// The calls of one answer, by choice. Choices without calls are there as well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proposal {
    /// In the order they came.
    pub choices: Vec<ProposedChoice>,
}

/// One choice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProposedChoice {
    /// Its `index`.
    pub index: u64,
    /// Its calls, a legacy one last.
    pub calls: Vec<ProposedCall>,
    /// Whether it ended by a length, an abort, an error, or in a way that cannot be read: its calls
    /// are never callable.
    pub cut: bool,
    /// Whether it ended at all.
    pub finished: bool,
    /// Whether a content filter ended it: then it need not hold what `tool_choice` asks for.
    pub filtered: bool,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedCall {
    /// Its id; `None` when it is missing, empty or no string.
    pub id: Option<String>,
    /// Its tool; `None` when it is missing, empty or no string.
    pub name: Option<String>,
    /// Its arguments, or a custom tool's raw input.
    pub arguments: Arguments,
    /// Its form.
    pub form: Form,
    /// Its index in `tool_calls`: the position, or in a stream the `index` that it came with.
    pub at: u64,
}

/// What stands in `arguments`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arguments {
    /// A string.
    Text(String),
    /// Nothing, or null: equals `{}`.
    Absent,
    /// Something else.
    NotString(Kind),
}

impl Arguments {
    /// The text that is judged; empty when absent.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Arguments::Text(text) => Some(text),
            Arguments::Absent => Some(""),
            Arguments::NotString(_) => None,
        }
    }
}

/// How a call is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `{"type":"function","function":{"name","arguments"}}`
    Function,
    /// `{"type":"custom","custom":{"name","input"}}`
    Custom,
    /// The older `function_call`, which has no id.
    Legacy,
}

impl Proposal {
    /// The calls of a whole completion. Its end is the end of the body, so it is finished even where
    /// a server leaves `finish_reason` out. What an error brings along is cut.
    #[must_use]
    pub fn of(completion: &Completion<'_>) -> Self {
        let choices = completion.choices.iter().map(|choice| {
            let mut proposed = ProposedChoice::of(choice);
            proposed.cut |= completion.error;
            proposed
        });
        Proposal { choices: choices.collect() }
    }

    /// Whether it holds any call.
    #[must_use]
    pub fn has_calls(&self) -> bool {
        self.choices.iter().any(|choice| !choice.calls.is_empty())
    }
}

impl ProposedChoice {
    fn of(choice: &Choice<'_>) -> Self {
        let mut proposed =
            ProposedChoice { index: choice.index, finished: true, ..ProposedChoice::default() };
        proposed.finish(choice.finish_reason);
        let calls = (0..).zip(&choice.tool_calls).map(|(at, call)| ProposedCall::of(call, at));
        proposed.calls.extend(calls);
        if let Some(call) = &choice.function_call {
            let call = ProposedCall { form: Form::Legacy, id: None, ..ProposedCall::of(call, 0) };
            proposed.calls.push(call);
        }
        proposed
    }

    /// Takes in a finish reason, in whatever case. Of several, any that cuts does.
    pub(super) fn finish(&mut self, reason: Field<'_>) {
        const CUTS: [&str; 4] = ["length", "max_tokens", "abort", "error"];
        match reason {
            Field::Absent | Field::Null => {}
            Field::Other(_) => {
                self.finished = true;
                self.cut = true;
            }
            Field::Text(reason) if reason.is_empty() => {}
            Field::Text(reason) => {
                let reason = reason.decode();
                self.finished = true;
                self.cut |= CUTS.iter().any(|cut| cut.eq_ignore_ascii_case(&reason));
                self.filtered |= reason.eq_ignore_ascii_case("content_filter");
            }
        }
    }
}

impl ProposedCall {
    fn of(call: &ToolCall<'_>, at: u64) -> Self {
        ProposedCall {
            id: text(call.id),
            name: text(call.name),
            arguments: match call.arguments {
                Field::Absent | Field::Null => Arguments::Absent,
                Field::Text(text) => Arguments::Text(text.decode().into_owned()),
                Field::Other(kind) => Arguments::NotString(kind),
            },
            form: if call.custom { Form::Custom } else { Form::Function },
            at,
        }
    }
}

fn text(field: Field<'_>) -> Option<String> {
    match field {
        Field::Text(text) if !text.raw().is_empty() => Some(text.decode().into_owned()),
        _ => None,
    }
}

/// Where a call stands, in the spelling of faults.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// The choice's index.
    pub(super) choice: u64,
    /// The call's index.
    pub(super) at: u64,
    /// The call's form.
    pub(super) form: Form,
}

impl Place {
    fn member(self, function: &str, custom: &str) -> String {
        match self.form {
            Form::Function => format!("{self}.function.{function}"),
            Form::Custom => format!("{self}.custom.{custom}"),
            Form::Legacy => format!("{self}.{function}"),
        }
    }

    fn name(self) -> String {
        self.member("name", "name")
    }

    fn arguments(self) -> String {
        self.member("arguments", "input")
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "choices[{}].message.", self.choice)?;
        match self.form {
            Form::Legacy => f.write_str("function_call"),
            Form::Function | Form::Custom => write!(f, "tool_calls[{}]", self.at),
        }
    }
}
