//! Faults: one thing wrong, at a place, with a stable code.
//!
//! What a fault tells ends up in answers, logs and the client's own error handling. So it holds no
//! argument and no result, its texts are short and on one line, and there is an end to how many are told.

/// Stable codes of everything that can be wrong with an exchange. The names are a contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[expect(missing_docs, reason = "each is explained in docs/codes.md; the names are the contract")]
pub enum Code {
    BodyInvalid,
    ConversationInvalid,
    GenerationInvalid,
    OrphanResult,
    UnknownResultId,
    RepeatedResult,
    MissingResult,
    RepeatedCallId,
    MissingCallId,
    MissingResultId,
    ArgumentsNotString,
    ArgumentsNotObject,
    Unauthenticated,
    RouteClosed,
    BodyTooLarge,
    Unmatched,
    Duplicate,
    Conflict,
    Stale,
    Late,
    Mismatch,
    StaleGeneration,
    GenerationRequired,
    WriteOutcomeUnknown,
    BudgetExhausted,
    UnknownTool,
    ToolNotAllowed,
    ArgumentsMalformed,
    ArgumentsSchema,
    ServerOwnedArgument,
    ToolChoiceViolated,
    TooManyCalls,
    TruncatedCall,
    BrokenStream,
    TruncatedStream,
    HeldTooLarge,
    StaleAnswer,
    Overtaken,
    UpstreamUnreachable,
    UpstreamInvalid,
    StoreUnavailable,
    Overloaded,
    Draining,
    UpstreamTimeout,
    /// Note only: a tool's schema that does not compile.
    SchemaUnusable,
    /// Note only: a known call's result or arguments in history are not what was accepted.
    HistoryChanged,
    /// Note only: a client's run that the ledger had not registered was taken as it came.
    Adopted,
    /// Note only: a notice was put in place of a stale or late result.
    Substituted,
}

impl Code {
    /// Every code.
    pub const ALL: [Code; 48] = [
        Code::BodyInvalid,
        Code::ConversationInvalid,
        Code::GenerationInvalid,
        Code::OrphanResult,
        Code::UnknownResultId,
        Code::RepeatedResult,
        Code::MissingResult,
        Code::RepeatedCallId,
        Code::MissingCallId,
        Code::MissingResultId,
        Code::ArgumentsNotString,
        Code::ArgumentsNotObject,
        Code::Unauthenticated,
        Code::RouteClosed,
        Code::BodyTooLarge,
        Code::Unmatched,
        Code::Duplicate,
        Code::Conflict,
        Code::Stale,
        Code::Late,
        Code::Mismatch,
        Code::StaleGeneration,
        Code::GenerationRequired,
        Code::WriteOutcomeUnknown,
        Code::BudgetExhausted,
        Code::UnknownTool,
        Code::ToolNotAllowed,
        Code::ArgumentsMalformed,
        Code::ArgumentsSchema,
        Code::ServerOwnedArgument,
        Code::ToolChoiceViolated,
        Code::TooManyCalls,
        Code::TruncatedCall,
        Code::BrokenStream,
        Code::TruncatedStream,
        Code::HeldTooLarge,
        Code::StaleAnswer,
        Code::Overtaken,
        Code::UpstreamUnreachable,
        Code::UpstreamInvalid,
        Code::StoreUnavailable,
        Code::Overloaded,
        Code::Draining,
        Code::UpstreamTimeout,
        Code::SchemaUnusable,
        Code::HistoryChanged,
        Code::Adopted,
        Code::Substituted,
    ];

    /// The name that clients, logs and metrics see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Code::BodyInvalid => "body_invalid",
            Code::ConversationInvalid => "conversation_invalid",
            Code::GenerationInvalid => "generation_invalid",
            Code::OrphanResult => "orphan_result",
            Code::UnknownResultId => "unknown_result_id",
            Code::RepeatedResult => "repeated_result",
            Code::MissingResult => "missing_result",
            Code::RepeatedCallId => "repeated_call_id",
            Code::MissingCallId => "missing_call_id",
            Code::MissingResultId => "missing_result_id",
            Code::ArgumentsNotString => "arguments_not_string",
            Code::ArgumentsNotObject => "arguments_not_object",
            Code::Unauthenticated => "unauthenticated",
            Code::RouteClosed => "route_closed",
            Code::BodyTooLarge => "body_too_large",
            Code::Unmatched => "unmatched",
            Code::Duplicate => "duplicate",
            Code::Conflict => "conflict",
            Code::Stale => "stale",
            Code::Late => "late",
            Code::Mismatch => "mismatch",
            Code::StaleGeneration => "stale_generation",
            Code::GenerationRequired => "generation_required",
            Code::WriteOutcomeUnknown => "write_outcome_unknown",
            Code::BudgetExhausted => "budget_exhausted",
            Code::UnknownTool => "unknown_tool",
            Code::ToolNotAllowed => "tool_not_allowed",
            Code::ArgumentsMalformed => "arguments_malformed",
            Code::ArgumentsSchema => "arguments_schema",
            Code::ServerOwnedArgument => "server_owned_argument",
            Code::ToolChoiceViolated => "tool_choice_violated",
            Code::TooManyCalls => "too_many_calls",
            Code::TruncatedCall => "truncated_call",
            Code::BrokenStream => "broken_stream",
            Code::TruncatedStream => "truncated_stream",
            Code::HeldTooLarge => "held_too_large",
            Code::StaleAnswer => "stale_answer",
            Code::Overtaken => "overtaken",
            Code::UpstreamUnreachable => "upstream_unreachable",
            Code::UpstreamInvalid => "upstream_invalid",
            Code::StoreUnavailable => "store_unavailable",
            Code::Overloaded => "overloaded",
            Code::Draining => "draining",
            Code::UpstreamTimeout => "upstream_timeout",
            Code::SchemaUnusable => "schema_unusable",
            Code::HistoryChanged => "history_changed",
            Code::Adopted => "adopted",
            Code::Substituted => "substituted",
        }
    }

    /// The code of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Code> {
        Code::ALL.into_iter().find(|code| code.as_str() == name)
    }
}

/// One thing wrong, at a place. Holds ids, names and paths, never argument or result values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong.
    pub code: Code,
    /// Where, in the spelling of this project: `messages[3].tool_call_id`, `choices[0].message.tool_calls[1]`.
    pub param: String,
    /// In words, for the client.
    pub message: String,
    /// The call concerned.
    pub tool_call_id: Option<String>,
    /// The way out, in words.
    pub recovery: &'static str,
}

/// Faults as they are found, bounded per code: a body full of faults must not swell into a larger
/// answer, and no code may crowd out another.
#[derive(Debug)]
pub(super) struct Faults {
    list: Vec<Fault>,
    counts: [usize; Code::ALL.len()],
}

impl Default for Faults {
    fn default() -> Self {
        Faults { list: Vec::new(), counts: [0; Code::ALL.len()] }
    }
}

impl Faults {
    /// More faults of one code than these are not told.
    pub(super) const PER_CODE: usize = 256;

    /// Tells a fault of this code, and gives its place among those told; `None` when enough are.
    pub(super) fn add(&mut self, code: Code, fault: impl FnOnce() -> Fault) -> Option<usize> {
        let count = &mut self.counts[code as usize];
        if *count >= Self::PER_CODE {
            return None;
        }
        *count += 1;
        self.list.push(fault());
        Some(self.list.len() - 1)
    }

    /// One of those told, to add to it.
    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut Fault> {
        self.list.get_mut(at)
    }

    /// All of them, in the order they were found.
    pub(super) fn into_list(self) -> Vec<Fault> {
        self.list
    }
}

/// An id or a name as a text may hold it that ends up in logs: on one line, and not endless.
pub(crate) fn shown(text: &str) -> String {
    const LONGEST: usize = 128;
    let mut shown: String = text.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    if text.chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_stays_on_its_line_and_ends() {
        assert_eq!(shown("functions.get:0"), "functions.get:0");
        assert_eq!(shown("über\u{202e}\n"), "über\\u{202e}\\n");
        assert_eq!(shown(&"x".repeat(128)), "x".repeat(128));
        assert_eq!(shown(&"x".repeat(129)), "x".repeat(128) + "…");
    }
}
