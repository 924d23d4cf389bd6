//! What one event of a stream holds, as far as whoever forwards or judges it must know.
//!
//! Each event is looked at by itself and in doubt taken for the worse: what cannot be read may hold a call.

use crate::wire::chunk::Chunk;

/// An event's payload.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it lives on the stack, for one event")]
pub enum Payload<'a> {
    /// No data: a comment, a field of another kind, or an empty `data` line, which is never dispatched.
    Nothing,
    /// `[DONE]`
    Done,
    /// An error of the upstream: by its payload, or by its event's name.
    Error,
    /// A chunk.
    Chunk(Chunk<'a>),
    /// Something else.
    Unreadable,
}

impl<'a> Payload<'a> {
    /// Reads the joined data of an event; `error`: its event is named so.
    #[must_use]
    pub fn read(data: Option<&'a [u8]>, error: bool, max_depth: usize) -> Self {
        let data = data.unwrap_or_default().trim_ascii();
        match data {
            b"" | b"[DONE]" if error => Payload::Error,
            b"" => Payload::Nothing,
            b"[DONE]" => Payload::Done,
            _ => match Chunk::parse(data, max_depth) {
                // Calls where only a whole completion has them cannot be put together.
                Ok(chunk) if chunk.choices.iter().any(|choice| choice.misplaced) => {
                    Payload::Unreadable
                }
                // An error that brings pieces of calls along is neither.
                Ok(chunk) if (chunk.error || error) && has_calls(&chunk) => Payload::Unreadable,
                Ok(chunk) if chunk.error || error => Payload::Error,
                Ok(chunk) => Payload::Chunk(chunk),
                // Plain words of an error: without an object, no client finds a call in them.
                Err(_) if error && !data.contains(&b'{') => Payload::Error,
                Err(_) => Payload::Unreadable,
            },
        }
    }

    /// Whether it may carry a piece of a call. What cannot be read may.
    #[must_use]
    pub fn carries_calls(&self) -> bool {
        match self {
            Payload::Nothing | Payload::Done | Payload::Error => false,
            Payload::Chunk(chunk) => has_calls(chunk),
            Payload::Unreadable => true,
        }
    }
}

/// Whether a chunk carries a piece of a call.
#[must_use]
pub fn has_calls(chunk: &Chunk<'_>) -> bool {
    chunk
        .choices
        .iter()
        .any(|choice| !choice.tool_calls.is_empty() || choice.function_call.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_event_is() {
        let calls = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a"}]}}]}"#;
        let misplaced = r#"{"choices":[{"message":{"tool_calls":[{"id":"a"}]}}]}"#;
        let message = r#"{"choices":[{"delta":{},"message":{"content":"hi","tool_calls":[]}}]}"#;
        let table = [
            ("", "nothing", "error"),
            ("[DONE]", "done", "error"),
            ("{}", "chunk", "error"),
            (r#"{"error":{"message":"x"}}"#, "error", "error"),
            (r#"{"object":"error","message":"x"}"#, "error", "error"),
            (r#"{"message":"x","code":500}"#, "chunk", "error"),
            ("out of memory", "unreadable", "error"),
            ("oh\n{\"choices\":[]}", "unreadable", "unreadable"),
            (calls, "calls", "unreadable"),
            (misplaced, "unreadable", "unreadable"),
            (message, "chunk", "error"),
        ];
        for (data, plain, named) in table {
            for (error, wanted) in [(false, plain), (true, named)] {
                let seen = match Payload::read(Some(data.as_bytes()), error, 16) {
                    Payload::Nothing => "nothing",
                    Payload::Done => "done",
                    Payload::Error => "error",
                    Payload::Chunk(chunk) if has_calls(&chunk) => "calls",
                    Payload::Chunk(_) => "chunk",
                    Payload::Unreadable => "unreadable",
                };
                assert_eq!(seen, wanted, "{data} {error}");
            }
        }
    }
}
