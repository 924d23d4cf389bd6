//! Faults: one thing wrong, at a place, with a stable code.
//!
//! What a fault tells ends up in answers, logs and the client's own error handling. So it holds no
//! argument and no result, its texts are short and on one line, and there is an end to how many are told.

/// Defines the codes, so that the list of all of them and their names cannot drift from the codes themselves.
macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)+) => {
        /// Stable codes of everything that can be wrong with an exchange. The names are a contract.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[expect(missing_docs, reason = "each is explained in docs/codes.md; the names are the contract")]
        pub enum Code {
            $($(#[$doc])* $variant,)+
        }

        impl Code {
            /// Every code, each at its number.
            pub const ALL: [Code; [$($name),+].len()] = [$(Code::$variant),+];

            /// The name that clients, logs and metrics see.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Code::$variant => $name,)+
                }
            }
        }
    };
}

codes! {
    BodyInvalid = "body_invalid",
    ConversationInvalid = "conversation_invalid",
    GenerationInvalid = "generation_invalid",
    OrphanResult = "orphan_result",
    UnknownResultId = "unknown_result_id",
    RepeatedResult = "repeated_result",
    MissingResult = "missing_result",
    RepeatedCallId = "repeated_call_id",
    MissingCallId = "missing_call_id",
    MissingResultId = "missing_result_id",
    ArgumentsNotString = "arguments_not_string",
    ArgumentsNotObject = "arguments_not_object",
    Unauthenticated = "unauthenticated",
    RouteClosed = "route_closed",
    ModelNotAllowed = "model_not_allowed",
    BodyTooLarge = "body_too_large",
    Unmatched = "unmatched",
    Duplicate = "duplicate",
    Conflict = "conflict",
    Stale = "stale",
    Late = "late",
    Mismatch = "mismatch",
    StaleGeneration = "stale_generation",
    GenerationRequired = "generation_required",
    WriteOutcomeUnknown = "write_outcome_unknown",
    WriteApplied = "write_applied",
    BudgetExhausted = "budget_exhausted",
    UnknownTool = "unknown_tool",
    ToolNotAllowed = "tool_not_allowed",
    ArgumentsMalformed = "arguments_malformed",
    ArgumentsSchema = "arguments_schema",
    ServerOwnedArgument = "server_owned_argument",
    ToolChoiceViolated = "tool_choice_violated",
    TooManyCalls = "too_many_calls",
    TruncatedCall = "truncated_call",
    BrokenStream = "broken_stream",
    TruncatedStream = "truncated_stream",
    HeldTooLarge = "held_too_large",
    StaleAnswer = "stale_answer",
    Overtaken = "overtaken",
    UpstreamUnreachable = "upstream_unreachable",
    UpstreamInvalid = "upstream_invalid",
    StoreUnavailable = "store_unavailable",
    IdentityUnavailable = "identity_unavailable",
    Overloaded = "overloaded",
    Draining = "draining",
    UpstreamTimeout = "upstream_timeout",
    /// Note only: a tool's schema that does not compile.
    SchemaUnusable = "schema_unusable",
    /// Note only: a known call's result or arguments in history are not what was accepted.
    HistoryChanged = "history_changed",
    /// Note only: a client's run that the ledger had not registered was taken as it came.
    Adopted = "adopted",
    /// Note only: a notice was put in place of a stale or late result.
    Substituted = "substituted",
}

impl Code {
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
    let plain = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\'' | b'\\');
    if text.len() <= LONGEST && text.bytes().all(plain) {
        return text.to_owned();
    }
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
        assert_eq!(shown(r#"a "b" 'c' \d ~"#), r#"a \"b\" \'c\' \\d ~"#);
        assert_eq!(shown(&"x".repeat(128)), "x".repeat(128));
        assert_eq!(shown(&"x".repeat(129)), "x".repeat(128) + "…");
    }
}
