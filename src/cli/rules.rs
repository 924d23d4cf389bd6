//! The rule behind each code, in one sentence: what must hold for the exchange to pass.

use crate::guard::fault::Code;

/// What the rule of that code asks for.
#[must_use]
pub(super) fn of(code: Code) -> &'static str {
    match code {
        Code::BodyInvalid
        | Code::ConversationInvalid
        | Code::GenerationInvalid
        | Code::OrphanResult
        | Code::UnknownResultId
        | Code::RepeatedResult
        | Code::MissingResult
        | Code::RepeatedCallId
        | Code::MissingCallId
        | Code::MissingResultId
        | Code::ArgumentsNotString
        | Code::ArgumentsNotObject => of_list(code),
        Code::Unmatched
        | Code::Duplicate
        | Code::Conflict
        | Code::Stale
        | Code::Late
        | Code::Mismatch
        | Code::StaleGeneration
        | Code::GenerationRequired
        | Code::WriteOutcomeUnknown
        | Code::WriteApplied
        | Code::BudgetExhausted
        | Code::StaleAnswer
        | Code::Overtaken => of_ledger(code),
        Code::SchemaUnusable => {
            "A tool's schema must compile; where it does not, arguments are not held to it."
        }
        Code::HistoryChanged => {
            "An old call or result is what was accepted then; a change is noted, as clients trim."
        }
        Code::Adopted => "A run that began before this ledger did is taken as it came.",
        Code::Substituted => {
            "No model gets the result of a call that timed out or was superseded: a notice stands in its place."
        }
        _ => of_output(code),
    }
}

fn of_list(code: Code) -> &'static str {
    match code {
        Code::BodyInvalid => "A body is one JSON object that every parser reads alike.",
        Code::ConversationInvalid => {
            "A conversation's id is one text of 1 to 256 visible ASCII characters."
        }
        Code::GenerationInvalid => "A generation is a whole number from 0 to 2^53-1.",
        Code::OrphanResult => {
            "A result stands in a run: behind the assistant message that made its call."
        }
        Code::UnknownResultId => "A result bears the id of a call of its run's assistant message.",
        Code::RepeatedResult => "A call has one result in its run.",
        Code::MissingResult => "Every call of a run has its result before any other message.",
        Code::RepeatedCallId => "The calls of one assistant message have ids of their own.",
        Code::MissingCallId => "A call has an id: a text that is not empty.",
        Code::MissingResultId => "A result names the id of its call.",
        Code::ArgumentsNotString => "The arguments of a call are a string.",
        _ => "The arguments of a call are the text of one whole JSON object.",
    }
}

fn of_ledger(code: Code) -> &'static str {
    match code {
        Code::Unmatched => "A result belongs to a call that was proposed in this conversation.",
        Code::Duplicate => "A call is decided once, and its results are answered once.",
        Code::Conflict => "A call has one result for ever: the first that was accepted.",
        Code::Stale => {
            "A result counts for the task that the user waits for now, and for no later one."
        }
        Code::Late => {
            "A result comes before its call's deadline; success never overwrites a timeout."
        }
        Code::Mismatch => {
            "A result is of the very call that was proposed: tool, arguments, attempt, echoed fields."
        }
        Code::StaleGeneration => {
            "A request belongs to the current generation or begins a higher one."
        }
        Code::GenerationRequired => {
            "Where generations are counted by header, every request bears it."
        }
        Code::WriteOutcomeUnknown => {
            "A write is not made again while nobody knows what became of the first."
        }
        Code::WriteApplied => {
            "A write that took effect is not made again in a task that had begun before that was known."
        }
        Code::BudgetExhausted => {
            "A task keeps within its model calls, tool calls, attempts and time."
        }
        Code::StaleAnswer => "An answer is delivered while the user still waits for it.",
        _ => "Of several attempts the newest is answered.",
    }
}

fn of_output(code: Code) -> &'static str {
    match code {
        Code::UnknownTool => "The model calls tools that the request offers.",
        Code::ToolNotAllowed => "The model calls tools that the operator allows this principal.",
        Code::ArgumentsMalformed => {
            "The arguments that the model writes are one whole JSON object."
        }
        Code::ArgumentsSchema => "The arguments that the model writes fit the tool's schema.",
        Code::ServerOwnedArgument => {
            "Identity comes from the login: the model does not set what only the server may set."
        }
        Code::ToolChoiceViolated => "The model keeps to tool_choice.",
        Code::TooManyCalls => "One message proposes no more calls than it may.",
        Code::TruncatedCall => "A call that was cut is never let out, even where its text parses.",
        Code::BrokenStream => {
            "A stream can be read without guessing which piece belongs to which call."
        }
        Code::TruncatedStream => "A stream says how it finished.",
        Code::HeldTooLarge => "A call fits in what may be held of it; none goes out unjudged.",
        Code::Unauthenticated => "A client proves who it is.",
        Code::ModelNotAllowed => "A principal asks models that it may use.",
        Code::RouteClosed => "Only guarded and opened paths are served.",
        Code::BodyTooLarge => "A body fits in limits.body_bytes.",
        Code::UpstreamUnreachable => "The upstream can be reached. This is a failure, no verdict.",
        Code::UpstreamInvalid => {
            "The upstream's answer can be read. This is a failure, no verdict."
        }
        Code::UpstreamTimeout => "The upstream answers in time. This is a failure, no verdict.",
        Code::IdentityUnavailable => "The issuer's keys can be had. This is a failure, no verdict.",
        Code::StoreUnavailable => "The store answers. This is a failure, no verdict.",
        Code::Overloaded => "There is room for one more. This is a failure, no verdict.",
        _ => "The proxy is not shutting down. This is a failure, no verdict.",
    }
}
