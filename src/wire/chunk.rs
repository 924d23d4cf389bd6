//! The borrowed view of one `chat.completion.chunk`.

use super::json::{BodyFault, Field};
use smallvec::SmallVec;

/// One stream chunk: only what is judged.
#[derive(Debug, Default)]
pub struct Chunk<'a> {
    /// `id`
    pub id: Field<'a>,
    /// `choices`; empty for usage-only chunks.
    pub choices: SmallVec<[ChunkChoice<'a>; 1]>,
    /// Whether an `error` member that is not null stands here.
    pub error: bool,
}

/// One choice of a chunk.
#[derive(Debug, Default)]
pub struct ChunkChoice<'a> {
    /// `index`, 0 when absent or null.
    pub index: u64,
    /// `finish_reason`
    pub finish_reason: Field<'a>,
    /// `delta.tool_calls`; empty when absent, null or `[]`.
    pub tool_calls: SmallVec<[Fragment<'a>; 1]>,
    /// Legacy `delta.function_call`.
    pub function_call: Option<Fragment<'a>>,
}

/// One entry of `delta.tool_calls`.
#[derive(Debug, Default)]
pub struct Fragment<'a> {
    /// `index`; absent and null are told as `None`.
    pub index: Option<u64>,
    /// `id`
    pub id: Field<'a>,
    /// `type`
    pub kind: Field<'a>,
    /// `function.name` (or `custom.name`)
    pub name: Field<'a>,
    /// `function.arguments` (or `custom.input`)
    pub arguments: Field<'a>,
    /// Whether it holds a `custom` object in place of `function`.
    pub custom: bool,
}

impl<'a> Chunk<'a> {
    /// Reads one event's payload. Allocates nothing for a chunk of one choice and one fragment.
    ///
    /// # Errors
    /// When it is not exactly one JSON object of that shape.
    pub fn parse(payload: &'a [u8], max_depth: usize) -> Result<Self, BodyFault> {
        let _ = (payload, max_depth);
        Err(BodyFault { path: String::new(), offset: 0, reason: "not built yet" })
    }
}
