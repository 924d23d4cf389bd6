//! How each fault of pairing is told: its place, its words, and the way out.
//!
//! Where OpenAI's API refuses the same thing, its words and its spelling of the place are kept, for
//! error handlers in the wild match on them. No argument or result is ever quoted.

use crate::guard::arguments::ArgumentsFault;
use crate::guard::fault::{Code, Fault, shown};
use crate::wire::json::Kind;
use std::fmt::Write as _;

pub(super) fn missing_call_id(index: usize, position: usize) -> Fault {
    let param = format!("messages[{index}].tool_calls[{position}].id");
    Fault {
        code: Code::MissingCallId,
        message: format!("{param} must be a string that is not empty."),
        param,
        tool_call_id: None,
        recovery: "Give the call an id of its own, and its result the same tool_call_id.",
    }
}

pub(super) fn missing_result_id(index: usize) -> Fault {
    let param = format!("messages[{index}].tool_call_id");
    Fault {
        code: Code::MissingResultId,
        message: format!("{param} must be a string that is not empty."),
        param,
        tool_call_id: None,
        recovery: "Set tool_call_id to the id of the call that this result answers; it cannot be \
                   told by position.",
    }
}

pub(super) fn repeated_call_id(index: usize, first: usize, second: usize, id: &str) -> Fault {
    Fault {
        code: Code::RepeatedCallId,
        param: format!("messages[{index}].tool_calls[{second}].id"),
        message: format!(
            "Two calls of messages[{index}] have the id '{}': tool_calls[{first}] and \
             tool_calls[{second}].",
            shown(id),
        ),
        tool_call_id: Some(id.to_owned()),
        recovery: "Give every call of one message its own id, and each result the id of its call.",
    }
}

pub(super) fn arguments_not_string(param: String, id: Option<String>, kind: Kind) -> Fault {
    Fault {
        code: Code::ArgumentsNotString,
        message: format!("{param} must be a string, but is {}.", kind.as_str()),
        param,
        tool_call_id: id,
        recovery: "Send it as a string: for a function call, the JSON text of the arguments object.",
    }
}

pub(super) fn arguments_not_object(
    param: String,
    id: Option<String>,
    fault: ArgumentsFault,
) -> Fault {
    Fault {
        code: Code::ArgumentsNotObject,
        message: format!("{param} must be the JSON text of an object, but is {fault}."),
        param,
        tool_call_id: id,
        recovery: "Replace the arguments by \"{}\" and keep the call with its result, which should \
                   say that the call failed; or drop the call and its result together.",
    }
}

pub(super) fn unknown_result_id(index: usize, assistant: usize, id: &str) -> Fault {
    Fault {
        code: Code::UnknownResultId,
        param: format!("messages[{index}].tool_call_id"),
        message: format!(
            "messages[{index}] answers '{}', but messages[{assistant}], whose results stand here, \
             holds no call of that id.",
            shown(id),
        ),
        tool_call_id: Some(id.to_owned()),
        recovery: "Put each result right after the assistant message that holds its call, with \
                   that call's id unchanged; remove results whose call is gone.",
    }
}

pub(super) fn repeated_result(index: usize, first: usize, id: &str) -> Fault {
    Fault {
        code: Code::RepeatedResult,
        param: format!("messages.[{index}].tool_call_id"),
        message: format!(
            "Invalid parameter: Duplicate value for 'tool_call_id' of '{}', in messages[{first}] \
             and messages[{index}].",
            shown(id),
        ),
        tool_call_id: Some(id.to_owned()),
        recovery: "Keep one result for each call: the one that is true.",
    }
}

/// `index` is where the missing result was expected: the message that stands there instead, or the
/// end of the list.
pub(super) fn missing_result(index: usize, missing: &[&str]) -> Fault {
    /// The ids that are spelled out.
    const LISTED: usize = 64;
    let mut ids = String::new();
    for (position, id) in missing.iter().take(LISTED).enumerate() {
        ids.push_str(if position > 0 { ", " } else { "" });
        ids.push_str(&shown(id));
    }
    if let Some(more @ 1..) = missing.len().checked_sub(LISTED) {
        let _ = write!(ids, " and {more} more");
    }
    Fault {
        code: Code::MissingResult,
        param: format!("messages.[{index}].role"),
        message: format!(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to \
             each 'tool_call_id'. The following tool_call_ids did not have response messages: {ids}"
        ),
        tool_call_id: if let [only] = missing { Some((*only).to_owned()) } else { None },
        recovery: "Right after the assistant message, add one tool message for each id listed. For \
                   a call that never ran, say so in its content (\"cancelled\"), or remove the call.",
    }
}

/// `closed` is, when the call stands further up: the message that holds it, and the one that ended its
/// run before this result.
pub(super) fn orphan_result(
    index: usize,
    id: Option<&str>,
    closed: Option<(usize, usize)>,
) -> Fault {
    let mut message = String::from(
        "Invalid parameter: messages with role 'tool' must be a response to a preceeding message \
         with 'tool_calls'.",
    );
    if let (Some((assistant, by)), Some(id)) = (closed, id) {
        let _ = write!(
            message,
            " messages[{index}] answers '{}' of messages[{assistant}], but messages[{by}] stands \
             between them and ended that run.",
            shown(id),
        );
    }
    Fault {
        code: Code::OrphanResult,
        param: format!("messages.[{index}].role"),
        message,
        tool_call_id: id.map(str::to_owned),
        recovery: if closed.is_some() {
            "Move the message that stands between the call and its result behind all results of \
             that call's message."
        } else {
            "Put the result right after the assistant message that holds its call. When that \
             message was trimmed away, remove the result as well."
        },
    }
}

/// Adds to an orphan result where its call was found after all.
pub(super) fn call_stands_later(orphan: &mut Fault, index: usize) {
    let _ = write!(orphan.message, " A call of that id stands only later, in messages[{index}].");
}
