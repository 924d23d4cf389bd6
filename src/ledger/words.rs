//! What a client is told of the ledger's faults, and the way out of each.

use super::event::Pair;
use crate::guard::fault::{Code, Fault};

/// A fault about one result of a list.
#[must_use]
pub(super) fn about(code: Code, pair: &Pair) -> Fault {
    let param = format!("messages[{}].tool_call_id", pair.message);
    of_call(code, param, &pair.id)
}

/// A fault about one call, at a place of the caller's choosing.
#[must_use]
pub(super) fn of_call(code: Code, param: String, id: &str) -> Fault {
    let (what, recovery) = result_words(code);
    Fault {
        code,
        param,
        message: format!("Result for tool call '{}': {what}", id.escape_debug()),
        tool_call_id: Some(id.to_owned()),
        recovery,
    }
}

fn result_words(code: Code) -> (&'static str, &'static str) {
    match code {
        Code::Unmatched => (
            "no such call was proposed in this conversation.",
            "Check the conversation header and where the id comes from; put a configured notice in its place to go on.",
        ),
        Code::Duplicate => (
            "it was decided before, and its answer was given or is under way.",
            "Go on from the answer you have; to ask again for a lost answer, declare the retry (x-stainless-retry-count or the same idempotency-key).",
        ),
        Code::Conflict => (
            "another result was accepted for it before; the first stays final.",
            "Send the first result again, or put a configured notice in its place and go on.",
        ),
        Code::Stale => (
            "the user has moved on: the call belongs to an older task or attempt.",
            "Do not use it. Put the notice for superseded calls in its place and go on with the current task.",
        ),
        Code::Late => (
            "it came after the call's deadline; the timeout stays final.",
            "Put the notice for timed-out calls in its place and go on.",
        ),
        Code::Mismatch => (
            "its tool, arguments, attempt or an echoed field differ from what was proposed.",
            "Send the result of this very call, with the call as it was proposed; or put a configured notice in its place and go on.",
        ),
        Code::HistoryChanged => {
            ("it is not what was accepted before.", "Nothing needs to be done: this is a note.")
        }
        Code::Adopted => (
            "its call was made before this guard knew the conversation; taken as it came.",
            "Nothing needs to be done: this is a note.",
        ),
        Code::Substituted => (
            "its content was replaced by the configured notice, as it came too late.",
            "Nothing needs to be done: this is a note.",
        ),
        _ => ("it is refused.", "See docs/codes.md."),
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
        message: "This is a retry of a request whose task the user has left.".to_owned(),
        tool_call_id: None,
        recovery: "Drop it. To ask the same again, send it as a new request, not as a retry.",
    }
}

/// `duplicate`, of a continuation that is under way or was answered.
#[must_use]
pub(super) fn duplicate(under_way: bool) -> Fault {
    let message = if under_way {
        "The same results are being answered right now."
    } else {
        "The same results were answered before."
    };
    Fault {
        code: Code::Duplicate,
        param: "messages".to_owned(),
        message: message.to_owned(),
        tool_call_id: None,
        recovery: "Go on from the answer you have. To replace a lost one, declare the retry: x-stainless-retry-count above 0, or the same idempotency-key.",
    }
}

/// `budget_exhausted`, with the reason.
#[must_use]
pub(super) fn budget_exhausted(why: &'static str) -> Fault {
    Fault {
        code: Code::BudgetExhausted,
        param: "x-generation".to_owned(),
        message: format!("This task is over and stays incomplete: {why}."),
        tool_call_id: None,
        recovery: "Tell the user that the task was not completed; a new task begins with the next generation or a new user message.",
    }
}
