//! The borrowed view of one `chat.completion.chunk`.
//!
//! This is read once per token, so the usual chunk (one choice, at most one fragment) allocates nothing.

mod stencil;

pub use stencil::Stencil;

use super::call::{self, ToolCall};
use super::json::{BodyFault, Field, Kind, utf8};
use super::keys::Judged;
use super::scan::Scanner;
use smallvec::SmallVec;
use std::ops::Range;

const CHUNK: Judged = Judged::new(&["id", "choices", "error", "object"]);
const CHOICE: Judged = Judged::new(&["index", "finish_reason", "delta", "message"]);
const DELTA: Judged = Judged::new(&["tool_calls", "function_call"]);

/// One stream chunk: only what is judged.
#[derive(Debug, Default)]
pub struct Chunk<'a> {
    /// `id`
    pub id: Field<'a>,
    /// `choices`; empty for usage-only chunks.
    pub choices: SmallVec<[ChunkChoice<'a>; 1]>,
    /// `model`
    pub model: Field<'a>,
    /// The raw `usage` value.
    pub usage: Option<&'a str>,
    /// Whether it is an error: by an `error` member that is not null, or by `"object":"error"`.
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
    /// Whether calls stand in `message`, where only a whole completion has them.
    pub misplaced: bool,
    /// Where the text of `delta` stands in the payload, between its quotes.
    text: Option<Range<usize>>,
}

/// One entry of `delta.tool_calls`.
#[derive(Debug, Default)]
pub struct Fragment<'a> {
    /// `index`; absent and null are told as `None`.
    pub index: Option<u64>,
    /// `id`
    pub id: Field<'a>,
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
    /// When it is not exactly one JSON object of that shape, is nested deeper than `max_depth`, or
    /// repeats a key in an object that is judged.
    pub fn parse(payload: &'a [u8], max_depth: usize) -> Result<Self, BodyFault> {
        let mut scanner = Scanner::of_answer(utf8(payload)?, max_depth);
        let mut chunk = Chunk::default();
        scanner.object(|value, key| {
            match key {
                "id" => chunk.id = value.field()?,
                "model" => chunk.model = value.field()?,
                "usage" => chunk.usage = Some(value.skip()?.raw),
                "error" => chunk.error |= !matches!(value.field()?, Field::Null),
                "object" => chunk.error |= value.field()?.is("error"),
                "choices" => call::each(value, |value, _| {
                    chunk.choices.push(choice(value)?);
                    Ok(())
                })?,
                _ => value.beside(&CHUNK, key)?,
            }
            Ok(())
        })?;
        scanner.end()?;
        Ok(chunk)
    }
}

fn choice<'a>(value: &mut Scanner<'a>) -> Result<ChunkChoice<'a>, BodyFault> {
    let mut choice = ChunkChoice::default();
    value.object(|value, key| {
        match key {
            "index" => choice.index = call::index(value)?.unwrap_or(0),
            "finish_reason" => choice.finish_reason = call::finish_reason(value)?,
            "delta" => delta(value, &mut choice)?,
            "message" => choice.misplaced = call::any(value)?,
            _ => value.beside(&CHOICE, key)?,
        }
        Ok(())
    })?;
    Ok(choice)
}

fn delta<'a>(value: &mut Scanner<'a>, choice: &mut ChunkChoice<'a>) -> Result<(), BodyFault> {
    if value.kind()? == Kind::Null {
        return value.skip().map(drop);
    }
    value.object(|value, key| {
        match key {
            "tool_calls" => call::each(value, |value, _| {
                choice.tool_calls.push(fragment(value)?);
                Ok(())
            })?,
            "function_call" => {
                choice.function_call = call::legacy(value)?.map(|call| Fragment::new(call, None));
            }
            "content" | "reasoning_content" | "reasoning" if value.kind()? == Kind::String => {
                let length = value.text()?.raw().len();
                let end = value.offset() - 1;
                choice.text = Some(end - length..end);
            }
            _ => value.beside(&DELTA, key)?,
        }
        Ok(())
    })
}

fn fragment<'a>(value: &mut Scanner<'a>) -> Result<Fragment<'a>, BodyFault> {
    let mut index = None;
    let call = call::read(value, |value| {
        index = call::index(value)?;
        Ok(())
    })?;
    Ok(Fragment::new(call, index))
}

impl<'a> Fragment<'a> {
    fn new(call: ToolCall<'a>, index: Option<u64>) -> Self {
        let ToolCall { id, name, arguments, custom } = call;
        Fragment { index, id, name, arguments, custom }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn parse(payload: &str) -> Result<Chunk<'_>, BodyFault> {
        Chunk::parse(payload.as_bytes(), 16)
    }

    #[test]
    fn reads_a_fragment_without_spilling() {
        let chunk = parse(
            r#"{"id":"x","choices":[{"index":2,"delta":{"role":null,"content":null,"tool_calls":[
            {"id":null,"index":1,"type":"function","function":{"name":null,"arguments":"\": \""}}]},
            "logprobs":null,"finish_reason":null}],"usage":null}"#,
        )
        .unwrap();
        assert!(!chunk.choices.spilled() && !chunk.choices[0].tool_calls.spilled());
        let choice = &chunk.choices[0];
        assert!(choice.index == 2 && matches!(choice.finish_reason, Field::Null));
        let fragment = &choice.tool_calls[0];
        assert!(fragment.index == Some(1) && fragment.arguments.is("\": \""));
        assert!(matches!((fragment.id, fragment.name), (Field::Null, Field::Null)));
    }

    #[test]
    fn chunks_without_calls_pass() {
        for payload in [
            "{}",
            r#"{"choices":[],"usage":{"total_tokens":1}}"#,
            r#"{"choices":null}"#,
            r#"{"choices":[{"index":0,"delta":null,"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"delta":{"content":"a \ud83d b","tool_calls":null}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[]}}]}"#,
        ] {
            let chunk = parse(payload).unwrap();
            assert!(
                !chunk.error && chunk.choices.iter().all(|choice| choice.tool_calls.is_empty())
            );
        }
        assert!(parse(r#"{"error":{"message":"x"}}"#).unwrap().error);
    }

    #[test]
    fn an_error_is_told_by_its_key_or_its_object() {
        let table = [
            (r#"{"error":{"message":"x"}}"#, true),
            (r#"{"object":"error","message":"x","code":500}"#, true),
            (r#"{"error":"x","object":"chat.completion.chunk"}"#, true),
            (r#"{"object":"chat.completion.chunk","error":null}"#, false),
            (r#"{"object":{"error":"error"}}"#, false),
        ];
        for (payload, wanted) in table {
            assert_eq!(parse(payload).unwrap().error, wanted, "{payload}");
        }
    }

    #[test]
    fn calls_in_a_message_are_seen() {
        let table = [
            (r#"{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]}"#, true),
            (r#"{"tool_calls":{"id":"a"}}"#, true),
            (r#"{"function_call":{"name":"f"}}"#, true),
            (r#"{"role":"assistant","content":"hi"}"#, false),
            (r#"{"content":"hi","tool_calls":[],"function_call":null}"#, false),
            (r#"{"tool_calls":null}"#, false),
            ("null", false),
            (r#""tool_calls""#, false),
        ];
        for (message, wanted) in table {
            let payload = format!(r#"{{"choices":[{{"delta":{{}},"message":{message}}}]}}"#);
            assert_eq!(parse(&payload).unwrap().choices[0].misplaced, wanted, "{message}");
        }
    }

    #[test]
    fn a_finish_reason_may_be_an_object_with_a_type() {
        let table = [
            (r#"{"type":"abort","message":"x"}"#, "abort"),
            (r#"{"type":"stop","matched":1}"#, "stop"),
            (r#""length""#, "length"),
            (r#"{"message":"x"}"#, "other"),
            (r#"{"type":null}"#, "other"),
            ("7", "other"),
            ("null", ""),
        ];
        for (reason, wanted) in table {
            let payload = format!(r#"{{"choices":[{{"finish_reason":{reason}}}]}}"#);
            let seen = match parse(&payload).unwrap().choices[0].finish_reason {
                Field::Text(text) => text.raw().to_owned(),
                Field::Other(_) => "other".to_owned(),
                Field::Absent | Field::Null => String::new(),
            };
            assert_eq!(seen, wanted, "{reason}");
        }
    }

    #[test]
    fn legacy_and_custom_fragments() {
        let chunk = parse(
            r#"{"choices":[{"delta":{"function_call":{"arguments":"{"}}},{"index":1,"delta":{
            "tool_calls":[{"index":null,"custom":{"input":"ls"}}]}}]}"#,
        )
        .unwrap();
        assert!(chunk.choices[0].function_call.as_ref().unwrap().arguments.is("{"));
        let custom = &chunk.choices[1].tool_calls[0];
        assert!(custom.custom && custom.index.is_none() && custom.arguments.is("ls"));
    }

    #[test]
    fn a_wrong_shape_is_refused() {
        for payload in [
            "[DONE]",
            "",
            "{} {}",
            r#"{"choices":[null]}"#,
            r#"{"choices":[{"delta":"x"}]}"#,
            r#"{"choices":[{"index":0.5}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"index":1}]}}]}"#,
            r#"{"choices":[{"delta":{},"delta":{}}]}"#,
        ] {
            assert!(parse(payload).is_err(), "{payload}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in any::<Vec<u8>>()) {
            let _ = Chunk::parse(&bytes, 16);
        }
    }
}
