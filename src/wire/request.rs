//! The borrowed view of a chat-completions request.

use super::json::{BodyFault, Field};

/// A chat-completions request: only what is judged, borrowed from the body.
#[derive(Debug)]
pub struct ChatRequest<'a> {
    /// The whole body.
    pub body: &'a str,
    /// Offset right after the opening brace: where a member may be spliced in.
    pub splice_at: usize,
    /// The message list.
    pub messages: Vec<Message<'a>>,
    /// The raw `tools` value, when it is a non-empty list.
    pub tools_raw: Option<&'a str>,
    /// The tools offered (`tools`, and legacy `functions`).
    pub tools: Vec<Tool<'a>>,
    /// `tool_choice`
    pub tool_choice: ToolChoice<'a>,
    /// `parallel_tool_calls`
    pub parallel_tool_calls: Option<bool>,
    /// `n`, 1 when absent or null.
    pub n: u64,
    /// `stream`
    pub stream: bool,
    /// `model`
    pub model: Field<'a>,
    /// Whether the client sent a `rid` that is not null.
    pub has_rid: bool,
    /// Whether the client sent a `session_id` that is not null.
    pub has_session_id: bool,
}

/// One entry of `messages`.
#[derive(Debug, Default)]
pub struct Message<'a> {
    /// The object's own bytes.
    pub raw: &'a str,
    /// `role`
    pub role: Field<'a>,
    /// `tool_calls`, when it is a list; empty when it is absent, null or `[]`.
    pub tool_calls: Vec<ToolCall<'a>>,
    /// `tool_call_id`
    pub tool_call_id: Field<'a>,
    /// `name`
    pub name: Field<'a>,
    /// The raw `content` value, and its offset in the body.
    pub content: Option<Span<'a>>,
    /// Whether a legacy `function_call` object stands here.
    pub function_call: bool,
}

/// A raw JSON value and where it stands in the body.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// Offset of the first byte.
    pub at: usize,
    /// The value's bytes.
    pub raw: &'a str,
}

/// One entry of an assistant message's `tool_calls`.
#[derive(Debug, Default)]
pub struct ToolCall<'a> {
    /// `id`
    pub id: Field<'a>,
    /// `type`; absent means `function`.
    pub kind: Field<'a>,
    /// `function.name` (or `custom.name`)
    pub name: Field<'a>,
    /// `function.arguments` (or `custom.input`)
    pub arguments: Field<'a>,
    /// Whether it holds a `custom` object in place of `function`.
    pub custom: bool,
}

/// One offered tool.
#[derive(Debug, Default)]
pub struct Tool<'a> {
    /// `function.name` (or `custom.name`)
    pub name: Field<'a>,
    /// The raw `function.parameters` value, when there is one and it is not null.
    pub parameters: Option<&'a str>,
    /// Whether it is a `custom` tool: raw input, no schema.
    pub custom: bool,
}

/// `tool_choice`
#[derive(Clone, Copy, Debug, Default)]
pub enum ToolChoice<'a> {
    /// Absent, null, `"auto"`, or a form that this version does not judge.
    #[default]
    Auto,
    /// `"none"`
    None,
    /// `"required"`
    Required,
    /// A named function: `{"type":"function","function":{"name":…}}`
    Named(super::json::Text<'a>),
}

impl<'a> ChatRequest<'a> {
    /// Reads a body in one pass.
    ///
    /// # Errors
    /// When it is not UTF-8 JSON of the right shape, is nested deeper than `max_depth`, or repeats a
    /// key (after unescaping) in an object that is judged.
    pub fn parse(body: &'a [u8], max_depth: usize) -> Result<Self, BodyFault> {
        let _ = (body, max_depth);
        Err(BodyFault { path: String::new(), offset: 0, reason: "not built yet" })
    }
}
