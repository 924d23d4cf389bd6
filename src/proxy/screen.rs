//! What one event of a stream holds, as far as the relay must know.
//!
//! Each event is looked at by itself and in doubt taken for the worse: what cannot be read may hold a call.

use crate::wire::chunk::Chunk;

/// An event's payload.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it lives on the stack, for one event")]
pub(super) enum Payload<'a> {
    /// No data: a comment, a field of another kind, or an empty `data` line, which is never dispatched.
    Nothing,
    /// `[DONE]`
    Done,
    /// An error object of the upstream.
    Error,
    /// A chunk.
    Chunk(Chunk<'a>),
    /// Something else.
    Unreadable,
}

impl<'a> Payload<'a> {
    /// Reads the joined data of an event.
    #[must_use]
    pub(super) fn read(data: Option<&'a [u8]>, max_depth: usize) -> Self {
        let data = data.unwrap_or_default().trim_ascii();
        match data {
            b"" => Payload::Nothing,
            b"[DONE]" => Payload::Done,
            _ => match Chunk::parse(data, max_depth) {
                // An error that brings pieces of calls along is neither.
                Ok(chunk) if chunk.error && has_calls(&chunk) => Payload::Unreadable,
                Ok(chunk) if chunk.error => Payload::Error,
                Ok(chunk) => Payload::Chunk(chunk),
                Err(_) => Payload::Unreadable,
            },
        }
    }

    /// Whether it may carry a piece of a call. What cannot be read may.
    #[must_use]
    pub(super) fn carries_calls(&self) -> bool {
        match self {
            Payload::Nothing | Payload::Done | Payload::Error => false,
            Payload::Chunk(chunk) => has_calls(chunk),
            Payload::Unreadable => true,
        }
    }
}

/// Whether a chunk carries a piece of a call.
#[must_use]
pub(super) fn has_calls(chunk: &Chunk<'_>) -> bool {
    chunk
        .choices
        .iter()
        .any(|choice| !choice.tool_calls.is_empty() || choice.function_call.is_some())
}
