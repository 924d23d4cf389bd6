//! The borrowed view of a whole `chat.completion`.

use super::json::{BodyFault, Field};
use super::request::ToolCall;

/// A whole completion: only what is judged.
#[derive(Debug, Default)]
pub struct Completion<'a> {
    /// `id`
    pub id: Field<'a>,
    /// `choices`
    pub choices: Vec<Choice<'a>>,
    /// Whether an `error` member stands in place of a completion.
    pub error: bool,
}

/// One choice.
#[derive(Debug, Default)]
pub struct Choice<'a> {
    /// `index`, its position when absent.
    pub index: u64,
    /// `finish_reason`
    pub finish_reason: Field<'a>,
    /// `message.tool_calls`
    pub tool_calls: Vec<ToolCall<'a>>,
    /// Legacy `message.function_call`; its `id` is absent.
    pub function_call: Option<ToolCall<'a>>,
}

impl<'a> Completion<'a> {
    /// Reads a completion in one pass.
    ///
    /// # Errors
    /// When it is not a JSON object of that shape.
    pub fn parse(body: &'a [u8], max_depth: usize) -> Result<Self, BodyFault> {
        let _ = (body, max_depth);
        Err(BodyFault { path: String::new(), offset: 0, reason: "not built yet" })
    }
}
