//! The rules on a proposal. Every choice and every call is looked at, and every fault told at once:
//! one bad call refuses the whole message, so nothing is gained by stopping early.

use super::{Arguments, Form, MOST_CALLS, Place, Proposal, ProposedCall, ProposedChoice};
use crate::guard::arguments::arguments_object;
use crate::guard::fault::{Code, Fault, Faults, shown};
use crate::guard::offer::{Choice, Offer, ToolRule};
use crate::guard::schema::{OfferedTool, Schema, Unusable};
use crate::wire::json::without_lone_surrogates;
use serde_json::Value;
use std::collections::HashSet;

const ASK_AGAIN: &str = "The model's answer was withheld; ask again.";
const ASK_AGAIN_OR_NOTE: &str = "The model's answer was withheld; ask again. If the application feeds such errors back to the model, its operator sets this rule to `note`.";
const OFFER: &str = "Offer the tool in the request's `tools`, or ask again. If the application feeds such errors back to the model, its operator sets this rule to `note`.";
const ALLOW: &str = "Ask again without this tool, or have the operator add it to `tools.allow`.";
const PERMIT: &str =
    "Ask again without this tool, or have the operator permit it to this principal.";
const LIMIT: &str = "Ask again with a higher `max_tokens`, or for less at once.";
const IDENTITY: &str = "Take this argument out of the tool's schema: the application sets it from the authenticated user, never the model.";
const SCHEMA: &str = "Correct the tool's `parameters` in the request; until then its calls are not checked against them.";

/// Judges a proposal against what was offered. `tracked`: the ledger will want ids.
#[must_use]
pub fn judge(proposal: &Proposal, offer: &Offer, tracked: bool) -> Vec<Fault> {
    let mut judge = Judge { offer, tracked, faults: Faults::default() };
    for choice in &proposal.choices {
        judge.choice(choice);
    }
    judge.faults.into_list()
}

struct Judge<'a> {
    offer: &'a Offer,
    tracked: bool,
    faults: Faults,
}

impl<'a> Judge<'a> {
    fn choice(&mut self, choice: &ProposedChoice) {
        self.tool_choice(choice);
        if choice.calls.is_empty() {
            return;
        }
        self.count(choice);
        if choice.cut || !choice.finished {
            self.faults.add(Code::TruncatedCall, || Fault {
                code: Code::TruncatedCall,
                param: format!("choices[{}].finish_reason", choice.index),
                message: if choice.finished {
                    "The answer was cut while it held tool calls; what there is of them may look whole and be wrong."
                } else {
                    "The answer ended without a finish while it held tool calls; what there is of them may look whole and be wrong."
                }
                .to_owned(),
                tool_call_id: choice.calls.last().and_then(|call| call.id.clone()),
                recovery: LIMIT,
            });
        }
        let mut ids = HashSet::new();
        for call in &choice.calls {
            let place = Place { choice: choice.index, at: call.at, form: call.form };
            self.id(call, place, &mut ids);
            self.name(call, place);
            self.arguments(call, place);
        }
    }

    fn tool_choice(&mut self, choice: &ProposedChoice) {
        let none = choice.calls.is_empty();
        // An answer that was cut or filtered never came to its call, and brings none along.
        let whole = choice.finished && !choice.cut && !choice.filtered;
        let message = match &self.offer.choice {
            Choice::None if !none => {
                "`tool_choice` is `none`, but the model made a call.".to_owned()
            }
            Choice::Required if none && whole => {
                "`tool_choice` is `required`, but the model made no call.".to_owned()
            }
            Choice::Named(name) if none && whole => {
                format!("`tool_choice` names `{}`, but the model made no call.", shown(name))
            }
            Choice::Named(name) => {
                let other = |call: &&ProposedCall| {
                    call.name.as_deref().is_some_and(|called| called != &**name)
                };
                let Some(call) = choice.calls.iter().find(other) else { return };
                let called = shown(call.name.as_deref().unwrap_or(""));
                format!("`tool_choice` names `{}`, but the model called `{called}`.", shown(name))
            }
            _ => return,
        };
        self.faults.add(Code::ToolChoiceViolated, || Fault {
            code: Code::ToolChoiceViolated,
            param: format!("choices[{}].message.tool_calls", choice.index),
            message,
            tool_call_id: None,
            recovery: "Ask again. A server that does not enforce `tool_choice` may need another tool parser or model.",
        });
    }

    fn count(&mut self, choice: &ProposedChoice) {
        // A server may mirror its one call in the legacy form.
        let count = choice.calls.iter().filter(|call| call.form != Form::Legacy).count();
        let serial = (!self.offer.parallel).then_some((1, "`parallel_tool_calls: false`"));
        let max = self.offer.rules.max_calls.map(|max| (max, "the operator's `tools.max_calls`"));
        let most = (MOST_CALLS, "this proxy");
        let bounds = serial.into_iter().chain(max).chain([most]);
        let (bound, by) = bounds.min_by_key(|(bound, _)| *bound).unwrap_or(most);
        if count.max(1) > bound {
            self.faults.add(Code::TooManyCalls, || Fault {
                code: Code::TooManyCalls,
                param: format!("choices[{}].message.tool_calls", choice.index),
                message: format!("{} calls in one message; {by} allows {bound}.", count.max(1)),
                tool_call_id: None,
                recovery: ASK_AGAIN,
            });
        }
    }

    fn id<'c>(&mut self, call: &'c ProposedCall, place: Place, ids: &mut HashSet<&'c str>) {
        let Some(id) = call.id.as_deref() else {
            if call.form != Form::Legacy || self.tracked {
                let message = if call.form == Form::Legacy {
                    "A legacy `function_call` has no id, so its result cannot be paired with it."
                } else {
                    "The call has no id, so no result could be paired with it."
                };
                self.push(Code::MissingCallId, call, format!("{place}.id"), message, ASK_AGAIN);
            }
            return;
        };
        if !ids.insert(id) {
            let message = "Two calls of one message bear this id.";
            self.push(Code::RepeatedCallId, call, format!("{place}.id"), message, ASK_AGAIN);
        }
    }

    fn name(&mut self, call: &ProposedCall, place: Place) {
        let Some(name) = call.name.as_deref() else {
            let message = "The call names no tool.";
            return self.push(Code::UnknownTool, call, place.name(), message, OFFER);
        };
        let Some(tools) = &self.offer.tools else {
            let message = format!("The model called `{}`, but no tool was offered.", shown(name));
            return self.push(Code::UnknownTool, call, place.name(), message, OFFER);
        };
        let mut offered = tools.named(name).peekable();
        if offered.peek().is_none() {
            let message = format!("`{}` is not among the tools offered.", shown(name));
            return self.push(Code::UnknownTool, call, place.name(), message, OFFER);
        }
        // Raw input in place of arguments would go around the tool's schema.
        if call.form == Form::Custom && !offered.any(OfferedTool::is_custom) {
            let message = format!(
                "`{}` was offered as a function, but called as a custom tool.",
                shown(name)
            );
            return self.push(Code::UnknownTool, call, place.name(), message, OFFER);
        }
        if !self.offer.rules.allows(name) {
            let message =
                format!("`{}` is not on the operator's list (`tools.allow`).", shown(name));
            self.push(Code::ToolNotAllowed, call, place.name(), message, ALLOW);
        } else if self.offer.permitted.as_ref().is_some_and(|permitted| !permitted.contains(name)) {
            let message = format!("`{}` is not among this principal's tools.", shown(name));
            self.push(Code::ToolNotAllowed, call, place.name(), message, PERMIT);
        }
    }

    fn arguments(&mut self, call: &ProposedCall, place: Place) {
        let rule = call.name.as_ref().and_then(|name| self.offer.rules.each.get(name));
        if call.form == Form::Custom {
            return self.raw_input(call, place, rule);
        }
        let problem = match &call.arguments {
            Arguments::NotString(kind) => Some(format!("{}, not a string", kind.as_str())),
            Arguments::Absent => None,
            Arguments::Text(text) => arguments_object(text, self.offer.max_depth())
                .err()
                .map(|fault| format!("{fault} ({} bytes in all)", text.len())),
        };
        if let Some(problem) = problem {
            let message = format!("The arguments are no JSON object: {problem}.");
            let param = place.arguments();
            return self.push(Code::ArgumentsMalformed, call, param, message, ASK_AGAIN);
        }
        let text = call.arguments.text().unwrap_or("");
        let offered = self.schemas(call, place);
        let theirs = rule.and_then(|rule| rule.schema.as_deref());
        let owned = rule.map_or(&[][..], |rule| &rule.server_owned);
        if offered.is_empty() && theirs.is_none() && owned.is_empty() {
            return;
        }
        let Some(value) = value(text) else {
            let message = "The arguments hold a number or nesting that cannot be checked.";
            return self.push(Code::ArgumentsSchema, call, place.arguments(), message, ASK_AGAIN);
        };
        self.server_owned(call, place, owned, &value);
        // A name offered twice takes what either takes.
        let mut verdicts = offered.iter().map(|schema| schema.check(&value, text.len()));
        let verdict = verdicts.next().unwrap_or(Ok(()));
        if let Err(problems) = verdict
            && !verdicts.any(|verdict| verdict.is_ok())
        {
            self.breaks(call, place, "the schema that the request offers", &problems);
        }
        if let Some(Err(problems)) = theirs.map(|schema| schema.check(&value, text.len())) {
            self.breaks(call, place, "the operator's schema", &problems);
        }
    }

    /// A custom tool's input is not JSON. Where the operator set rules for arguments, it must be.
    fn raw_input(&mut self, call: &ProposedCall, place: Place, rule: Option<&ToolRule>) {
        if let Arguments::NotString(kind) = &call.arguments {
            let message = format!("The input is {}, not a string.", kind.as_str());
            let param = place.arguments();
            return self.push(Code::ArgumentsMalformed, call, param, message, ASK_AGAIN);
        }
        let Some(rule) = rule else { return };
        let text = call.arguments.text().unwrap_or("");
        let read = value(text).filter(Value::is_object);
        if let Some(value) = &read {
            self.server_owned(call, place, &rule.server_owned, value);
        }
        if let Some(schema) = &rule.schema {
            let verdict = match &read {
                Some(value) => schema.check(value, text.len()),
                None => Err(vec!["the input is no JSON object".to_owned()]),
            };
            if let Err(problems) = verdict {
                self.breaks(call, place, "the operator's schema", &problems);
            }
        }
    }

    /// The schemas that the request offers for a call; none when any of them takes anything, or
    /// cannot be used.
    fn schemas(&mut self, call: &ProposedCall, place: Place) -> Vec<&'a Schema> {
        let mut schemas = Vec::new();
        let (Some(tools), Some(name)) = (&self.offer.tools, &call.name) else { return schemas };
        for tool in tools.named(name).filter(|tool| !tool.is_custom()) {
            match tool.schema() {
                Ok(schema) if schema.takes_anything() => return Vec::new(),
                Ok(schema) => schemas.push(schema),
                Err(Unusable(why)) => {
                    let message = format!("The schema of `{}` cannot be used: {why}.", shown(name));
                    let param = place.arguments();
                    self.push(Code::SchemaUnusable, call, param, message, SCHEMA);
                    return Vec::new();
                }
            }
        }
        schemas
    }

    fn server_owned(&mut self, call: &ProposedCall, place: Place, owned: &[String], value: &Value) {
        let tool = shown(call.name.as_deref().unwrap_or(""));
        for name in owned.iter().filter(|name| holds(value, &folded(name))) {
            let message = format!(
                "`{tool}`: the argument `{}` is the server's to set (the operator's `server_owned`).",
                shown(name)
            );
            self.push(Code::ServerOwnedArgument, call, place.arguments(), message, IDENTITY);
        }
    }

    fn breaks(&mut self, call: &ProposedCall, place: Place, schema: &str, problems: &[String]) {
        let name = shown(call.name.as_deref().unwrap_or(""));
        let list = problems.join("; ");
        let colon = if problems.is_empty() { "" } else { ": " };
        let message = format!("The arguments of `{name}` do not satisfy {schema}{colon}{list}.");
        self.push(Code::ArgumentsSchema, call, place.arguments(), message, ASK_AGAIN_OR_NOTE);
    }

    fn push(
        &mut self,
        code: Code,
        call: &ProposedCall,
        param: String,
        message: impl Into<String>,
        recovery: &'static str,
    ) {
        self.faults.add(code, || {
            let (message, tool_call_id) = (message.into(), call.id.clone());
            Fault { code, param, message, tool_call_id, recovery }
        });
    }
}

/// A name as lenient readers of JSON compare it: many (Go's, .NET's) take `User_ID` for `user_id`, and by
/// Unicode's folding (`ſ` for `s`, the Kelvin sign for `k`).
fn folded(name: &str) -> String {
    name.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

/// Whether a key of this name, which is folded, stands at any depth.
fn holds(value: &Value, name: &str) -> bool {
    match value {
        Value::Object(members) => {
            members.iter().any(|(key, member)| folded(key) == name || holds(member, name))
        }
        Value::Array(items) => items.iter().any(|item| holds(item, name)),
        _ => false,
    }
}

/// Arguments as a tree. Empty text and `null` are `{}`.
fn value(text: &str) -> Option<Value> {
    if matches!(text.trim_ascii(), "" | "null") {
        return Some(Value::Object(serde_json::Map::new()));
    }
    serde_json::from_str(text)
        .or_else(|_| serde_json::from_str(&without_lone_surrogates(text)))
        .ok()
}

#[cfg(test)]
mod tests;
