//! What one event of a stream holds, as far as whoever forwards or judges it must know.
//!
//! Each event is looked at by itself and in doubt taken for the worse: what cannot be read may hold a call.

use crate::wire::chunk::Chunk;
use crate::wire::json::Flaw;
use crate::wire::sse::Event;

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
    /// Reads an event. One in which a client that reads line by line would find another chunk than the standard
    /// has there is [`Payload::Unreadable`].
    #[must_use]
    pub fn of(event: &'a Event, max_depth: usize) -> Self {
        if misleads(event, max_depth) {
            return Payload::Unreadable;
        }
        Payload::read(event.data.as_deref(), event.is_error(), max_depth)
    }

    /// Reads the joined data of an event; `error`: its event is named so.
    fn read(data: Option<&'a [u8]>, error: bool, max_depth: usize) -> Self {
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

/// Whether a client that reads line by line would find another chunk in an event than the standard has there.
pub(super) fn misleads(event: &Event, max_depth: usize) -> bool {
    let data = event.data.as_deref().unwrap_or_default();
    event.stray || (event.lines > 1 && hides_calls(data, max_depth))
}

/// Whether one of several lines of data, taken for itself, is a chunk with a piece of a call. Joined with the others it
/// may be a part of something harmless. What cannot be judged may hold one.
fn hides_calls(data: &[u8], max_depth: usize) -> bool {
    let lines = || data.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    // Beside blank lines, the joined data is that line.
    let several = lines().filter(|line| !line.is_empty()).nth(1).is_some();
    several
        && lines().filter(|line| line.starts_with(b"{")).any(|line| {
            match Chunk::parse(line, max_depth) {
                Ok(chunk) => {
                    has_calls(&chunk) || chunk.choices.iter().any(|choice| choice.misplaced)
                }
                // No JSON for itself: a piece of the whole.
                Err(fault) => fault.flaw != Flaw::Syntax,
            }
        })
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
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::wire::sse::Decoder;

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

    #[test]
    fn a_line_that_is_a_call_for_itself_is_not_hidden_among_others() {
        let calls = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a"}]}}]}"#;
        let read = |lines: &[&str]| {
            let mut decoder = Decoder::default();
            let text: String = lines.iter().map(|line| format!("data: {line}\n")).collect();
            decoder.push(format!("{text}\n").into());
            let event = decoder.next_event().unwrap();
            match Payload::of(&event, 16) {
                Payload::Chunk(chunk) => {
                    if has_calls(&chunk) {
                        "calls"
                    } else {
                        "chunk"
                    }
                }
                Payload::Unreadable => "unreadable",
                Payload::Nothing | Payload::Done | Payload::Error => "other",
            }
        };
        assert_eq!(read(&[calls]), "calls");
        assert_eq!(read(&["", calls, " "]), "calls");
        assert_eq!(read(&[r#"{"x":"#, calls, "}"]), "unreadable");
        assert_eq!(
            read(&[
                r#"{"choices":[],"x":"#,
                &calls.replace("}]}}]", "}],\"tool_calls\":[]}}]"),
                "}"
            ]),
            "unreadable"
        );
        assert_eq!(read(&[r#"{"x":"#, &calls.replace("delta", "message"), "}"]), "unreadable");
        assert_eq!(read(&[r#"{"choices":"#, "[", r#"{"index":0}"#, "]}"]), "chunk");
        let (head, rest) = calls.split_at(calls.find('[').unwrap());
        assert_eq!(read(&[head, rest]), "calls");
    }
}
