//! What a client is told of the ledger's faults, and the way out of each.
//!
//! Every recovery names something that passes: nothing is stuck for ever.

use super::event::Pair;
use super::lanes::{LAST_GENERATION, Limit};
use crate::guard::fault::{Code, Fault, shown};

/// A fault about one result of a list.
#[must_use]
pub(super) fn about(code: Code, pair: &Pair) -> Fault {
    of_call(code, place_of(pair), &pair.id)
}

/// A fault about one call, at a place of the caller's choosing.
#[must_use]
pub(super) fn of_call(code: Code, param: String, id: &str) -> Fault {
    let (what, recovery) = result_words(code);
    let message = format!("Result for tool call '{}': {what}", shown(id));
    Fault { code, param, message, tool_call_id: Some(id.to_owned()), recovery }
}

/// A tool may not run for this call.
#[must_use]
pub(super) fn not_started(code: Code, id: &str) -> Fault {
    let (what, recovery) = match code {
        Code::Unmatched => (
            "no such call was proposed in this conversation",
            "Do not run the tool. Check the conversation id and where the call's id comes from.",
        ),
        Code::Duplicate => {
            ("it is decided", "Do not run the tool again: go on from the result that you have.")
        }
        Code::Late => (
            "its deadline has passed",
            "Do not run the tool. Put the notice for timed-out calls in its result's place and go on.",
        ),
        _ => (
            "it belongs to an older task, or to an attempt that was replaced",
            "Do not run the tool: nobody waits for its result.",
        ),
    };
    let message = format!("Tool call '{}' may not start: {what}.", id.escape_debug());
    let (param, tool_call_id) = ("tool_call_id".to_owned(), Some(id.to_owned()));
    Fault { code, param, message, tool_call_id, recovery }
}

/// The note that a human's edit of a call's arguments was allowed.
#[must_use]
pub(super) fn edited(pair: &Pair) -> Fault {
    let message = format!(
        "The arguments of tool call '{}' are not those that the model proposed; this tool's settings allow edits.",
        shown(&pair.id)
    );
    let recovery = "Nothing needs to be done: this is a note.";
    let tool_call_id = Some(pair.id.to_string());
    Fault { code: Code::Mismatch, param: place_of(pair), message, tool_call_id, recovery }
}

fn place_of(pair: &Pair) -> String {
    format!("messages[{}].tool_call_id", pair.message)
}

fn result_words(code: Code) -> (&'static str, &'static str) {
    match code {
        Code::Unmatched => (
            "no such call was proposed in this conversation.",
            "Check the conversation header and where the id comes from. To go on without this result, put a configured notice in its place.",
        ),
        Code::Duplicate => (
            "this call was decided before.",
            "Do not send it a second time: go on from the answer you have. If that answer was lost, declare the retry: x-stainless-retry-count above 0, or the idempotency-key of the first request.",
        ),
        Code::Conflict => (
            "a different result was accepted for it before, and the first one stays final.",
            "Find out why the tool gave two results: it may have run twice. Then send the first result again, or put a configured notice in its place and go on.",
        ),
        Code::Stale => (
            "it belongs to an older task, or to an attempt that was replaced: nobody waits for it now.",
            "Do not give it to the current task. Put the notice for superseded calls in its place and go on.",
        ),
        Code::Late => (
            "it came after the call's deadline, and the timeout stays final.",
            "Put the notice for timed-out calls in its place and go on. A read can be asked anew; a write must be looked up first, it may have taken effect.",
        ),
        Code::Mismatch => (
            "it is not the result of the call that was proposed: the tool, the arguments, the attempt or an echoed field differ.",
            "Send the call as it was proposed, with its own result; or put a configured notice in its place and go on.",
        ),
        Code::HistoryChanged => (
            "it is not what was accepted before; older messages may be rewritten.",
            "Nothing needs to be done: this is a note.",
        ),
        Code::Adopted => (
            "its call was made before this guard knew the conversation; it was taken as it came.",
            "Nothing needs to be done: this is a note.",
        ),
        Code::Substituted => (
            "its content was replaced by a notice, as the call had timed out or its task was left before it came.",
            "Nothing needs to be done: this is a note. To keep your history the same, store the notice too.",
        ),
        _ => ("it is refused.", "See the documentation of this code."),
    }
}

/// One of the ways out that this version words, by its text. A text of another version gives a general one.
#[must_use]
pub(super) fn recovery(text: &str) -> &'static str {
    let others = [
        stale_generation(0, 0),
        generation_required(),
        stale_retry(),
        duplicate(true),
        budget_exhausted(Limit::Time),
    ];
    let of_results = Code::ALL.into_iter().map(|code| result_words(code).1);
    let mut all = of_results.chain(others.iter().map(|fault| fault.recovery));
    all.find(|known| *known == text).unwrap_or("See the documentation of this code.")
}

/// A write is proposed anew while nobody knows what became of it, or when it is known to have taken
/// effect.
#[must_use]
pub(super) fn write_barred(code: Code, choice: u64, at: usize, id: &str) -> Fault {
    let (why, recovery) = match code {
        Code::WriteApplied => (
            "repeats a write that took effect already: so it was resolved after this task had begun.",
            "Do not run it again. Tell the user, or the model in a new user message, that it took effect. Whoever wants it a second time asks for it in a new task: the next generation, or a new user message.",
        ),
        _ => (
            "repeats a write whose outcome is unknown: it may have taken effect already.",
            "Do not run it again. Look the write up in its service, or in its late result. Then say what became of it, applied or not_applied (POST /guard/v1/conversations/{id}/writes/{operation_key}; GET /guard/v1/conversations/{id} tells the key), and ask again.",
        ),
    };
    Fault {
        code,
        param: format!("choices[{choice}].message.tool_calls[{at}]"),
        message: format!("Tool call '{}' {why}", shown(id)),
        tool_call_id: Some(id.to_owned()),
        recovery,
    }
}

/// An operation that is to be settled is not known, or was settled otherwise.
#[must_use]
pub(super) fn not_resolved(code: Code) -> Fault {
    let message = match code {
        Code::Conflict => "This write's outcome is known already, and it is another one.",
        _ => "No such write is known in this conversation.",
    };
    Fault {
        code,
        param: "operation_key".to_owned(),
        message: message.to_owned(),
        tool_call_id: None,
        recovery: "Read the conversation's record for its writes and what is known of them.",
    }
}

/// `stale_generation`: the header names an older generation than the current one.
#[must_use]
pub(super) fn stale_generation(asked: u64, current: u64) -> Fault {
    Fault {
        code: Code::StaleGeneration,
        param: "x-generation".to_owned(),
        message: format!("Generation {asked} is over: the current one is {current}."),
        tool_call_id: None,
        recovery: "Drop this work: the user has moved on. New work bears the current generation or a higher one.",
    }
}

/// `generation_invalid`: the count is at its end, or the number named is beyond it.
#[must_use]
pub(super) fn no_such_generation() -> Fault {
    Fault {
        code: Code::GenerationInvalid,
        param: "x-generation".to_owned(),
        message: format!("Generations end at {LAST_GENERATION}: there is none beyond it."),
        tool_call_id: None,
        recovery: "Go on in a new conversation, and count upwards from 0 by small steps.",
    }
}

/// `generation_required`: the header is missing where it is needed.
#[must_use]
pub(super) fn generation_required() -> Fault {
    Fault {
        code: Code::GenerationRequired,
        param: "x-generation".to_owned(),
        message: "This conversation counts generations by header, and the request bears none."
            .to_owned(),
        tool_call_id: None,
        recovery: "Send the generation header with every request of this conversation.",
    }
}

/// `stale`, of a declared retry that belongs to an older generation.
#[must_use]
pub(super) fn stale_retry() -> Fault {
    Fault {
        code: Code::Stale,
        param: "messages".to_owned(),
        message: "This retries a request of an older task: the user has moved on since.".to_owned(),
        tool_call_id: None,
        recovery: "Drop it. To ask the same again, send it as a new request, not as a retry.",
    }
}

/// `duplicate`, of a continuation that is under way or was answered.
#[must_use]
pub(super) fn duplicate(under_way: bool) -> Fault {
    let message = if under_way {
        "These results are being answered right now."
    } else {
        "These results were answered before."
    };
    Fault {
        code: Code::Duplicate,
        param: "messages".to_owned(),
        message: message.to_owned(),
        tool_call_id: None,
        recovery: "Go on from the answer to the first request. If it was lost, declare the retry: x-stainless-retry-count above 0, or the idempotency-key of the first request.",
    }
}

/// `budget_exhausted`, with the reason.
#[must_use]
pub(super) fn budget_exhausted(limit: Limit) -> Fault {
    let why = match limit {
        Limit::ModelCalls => "its model calls are used up (budget.model_calls)",
        Limit::ToolCalls => "its tool calls are used up (budget.tool_calls)",
        Limit::Attempts => "one of its requests was tried too often",
        Limit::Time => "its time is over (budget.deadline)",
    };
    Fault {
        code: Code::BudgetExhausted,
        param: "x-generation".to_owned(),
        message: format!("This task is over and stays incomplete: {why}."),
        tool_call_id: None,
        recovery: "Tell the user that the task was not completed. A new task begins with the next generation, or with a new user message.",
    }
}
