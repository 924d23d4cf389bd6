//! The borrowed view of a whole `chat.completion`.

use super::call::{self, ToolCall};
use super::json::{BodyFault, Field, Kind, utf8};
use super::keys::Judged;
use super::scan::Scanner;

const COMPLETION: Judged = Judged::new(&["id", "choices", "error", "object"]);
const CHOICE: Judged = Judged::new(&["index", "finish_reason", "message", "delta"]);
pub(super) const MESSAGE: Judged = Judged::new(&["tool_calls", "function_call"]);

/// A whole completion: only what is judged.
#[derive(Debug, Default)]
pub struct Completion<'a> {
    /// `id`
    pub id: Field<'a>,
    /// `choices`; empty when absent or null.
    pub choices: Vec<Choice<'a>>,
    /// `model`
    pub model: Field<'a>,
    /// The raw `usage` value.
    pub usage: Option<&'a str>,
    /// Whether it is an error: by an `error` member that is not null, or by `"object":"error"`.
    pub error: bool,
}

/// One choice.
#[derive(Debug, Default)]
pub struct Choice<'a> {
    /// `index`, its position when absent or null.
    pub index: u64,
    /// `finish_reason`
    pub finish_reason: Field<'a>,
    /// `message.tool_calls`. Those of a `delta`, as in a chunk, are read like them: some clients do.
    pub tool_calls: Vec<ToolCall<'a>>,
    /// Legacy `message.function_call`; its `id` is absent.
    pub function_call: Option<ToolCall<'a>>,
}

impl<'a> Completion<'a> {
    /// Reads a completion in one pass.
    ///
    /// # Errors
    /// When it is not a JSON object of that shape, is nested deeper than `max_depth`, or repeats a key
    /// in an object that is judged.
    pub fn parse(body: &'a [u8], max_depth: usize) -> Result<Self, BodyFault> {
        let mut scanner = Scanner::of_answer(utf8(body)?, max_depth);
        let mut completion = Completion::default();
        scanner.object(|value, key| {
            match key {
                "id" => completion.id = value.field()?,
                "model" => completion.model = value.field()?,
                "usage" => completion.usage = Some(value.skip()?.raw),
                "error" => completion.error |= !matches!(value.field()?, Field::Null),
                "object" => completion.error |= value.field()?.is("error"),
                "choices" => completion.choices = choices(value)?,
                _ => value.beside(&COMPLETION, key)?,
            }
            Ok(())
        })?;
        scanner.end()?;
        Ok(completion)
    }
}

fn choices<'a>(value: &mut Scanner<'a>) -> Result<Vec<Choice<'a>>, BodyFault> {
    let mut choices = Vec::new();
    call::each(value, |value, position| {
        choices.push(choice(value, position as u64)?);
        Ok(())
    })?;
    Ok(choices)
}

fn choice<'a>(value: &mut Scanner<'a>, position: u64) -> Result<Choice<'a>, BodyFault> {
    let mut choice = Choice { index: position, ..Choice::default() };
    value.object(|value, key| {
        match key {
            "index" => choice.index = call::index(value)?.unwrap_or(position),
            "finish_reason" => choice.finish_reason = call::finish_reason(value)?,
            "message" => message(value, &mut choice)?,
            "delta" if value.kind()? == Kind::Object => message(value, &mut choice)?,
            "delta" => drop(value.skip()?),
            _ => value.beside(&CHOICE, key)?,
        }
        Ok(())
    })?;
    Ok(choice)
}

fn message<'a>(value: &mut Scanner<'a>, choice: &mut Choice<'a>) -> Result<(), BodyFault> {
    if value.kind()? == Kind::Null {
        return value.skip().map(drop);
    }
    let at = value.mark();
    let mut calls = Vec::new();
    let mut legacy = None;
    value.object(|value, key| {
        match key {
            "tool_calls" => calls = call::list(value)?,
            "function_call" => legacy = call::legacy(value)?,
            _ => value.beside(&MESSAGE, key)?,
        }
        Ok(())
    })?;
    if calls.is_empty() && legacy.is_none() {
        return Ok(());
    }
    if !choice.tool_calls.is_empty() || choice.function_call.is_some() {
        // Which of the two a client takes is not known.
        return Err(BodyFault::shape(at, "calls stand in both `message` and `delta`"));
    }
    choice.tool_calls = calls;
    choice.function_call = legacy;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn parse(body: &str) -> Result<Completion<'_>, BodyFault> {
        Completion::parse(body.as_bytes(), 16)
    }

    #[test]
    fn reads_every_choice_and_call() {
        let body = r#"{"id":"x","choices":[
            {"index":1,"finish_reason":"tool_calls","message":{"content":"","tool_calls":[
                {"id":"a","index":0,"type":"function","function":{"name":"f","arguments":"{}"}},
                {"id":"b","type":"function","function":{"name":"g","arguments":null}}]}},
            {"finish_reason":null,"message":{"tool_calls":null,"function_call":{"name":"old","arguments":"{}"}}},
            {"index":null,"message":null}
        ],"usage":{"a":1,"a":2},"error":null}"#;
        let completion = parse(body).unwrap();
        assert!(completion.id.is("x") && !completion.error);
        let [first, second, third] = completion.choices.as_slice() else { unreachable!() };
        assert!(first.index == 1 && first.finish_reason.is("tool_calls"));
        assert!(first.tool_calls.len() == 2 && first.tool_calls[1].name.is("g"));
        assert!(matches!(first.tool_calls[1].arguments, Field::Null));
        assert!(second.index == 1 && second.tool_calls.is_empty());
        assert!(second.function_call.as_ref().is_some_and(|call| call.name.is("old")));
        assert!(third.index == 2 && third.function_call.is_none());
    }

    #[test]
    fn calls_of_a_delta_are_read_as_well() {
        let calls = r#"{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]}"#;
        let legacy = r#"{"function_call":{"name":"f","arguments":"{}"}}"#;
        let text = r#"{"content":"hi","tool_calls":[],"function_call":null}"#;
        let table = [
            (text, calls, Some(1)),
            ("null", legacy, Some(1)),
            (calls, text, Some(1)),
            (calls, "null", Some(1)),
            (text, text, Some(0)),
            (text, "7", Some(0)),
            (calls, calls, None),
            (calls, legacy, None),
            (legacy, legacy, None),
        ];
        for (message, delta, wanted) in table {
            for pair in [
                format!(r#""message":{message},"delta":{delta}"#),
                format!(r#""delta":{delta},"message":{message}"#),
            ] {
                let body = format!(r#"{{"choices":[{{{pair}}}]}}"#);
                let read = parse(&body).ok().map(|completion| {
                    let choice = &completion.choices[0];
                    choice.tool_calls.len() + usize::from(choice.function_call.is_some())
                });
                assert_eq!(read, wanted, "{body}");
            }
        }
    }

    #[test]
    fn an_error_and_nothing_are_told_apart() {
        assert!(parse(r#"{"error":{"message":"x"}}"#).unwrap().error);
        assert!(parse(r#"{"error":"x"}"#).unwrap().error);
        assert!(parse(r#"{"object":"error","message":"x"}"#).unwrap().error);
        assert!(!parse(r#"{"object":"chat.completion"}"#).unwrap().error);
        let nothing = parse("{}").unwrap();
        assert!(!nothing.error && nothing.choices.is_empty());
        assert!(parse(r#"{"choices":null}"#).unwrap().choices.is_empty());
    }

    #[test]
    fn a_wrong_shape_is_told_by_its_path() {
        let table = [
            ("[]", ""),
            ("", ""),
            (r#"{"choices":{}}"#, "choices"),
            (r#"{"choices":[1]}"#, "choices[0]"),
            (r#"{"choices":[{"index":-1}]}"#, "choices[0].index"),
            (r#"{"choices":[{"index":"0"}]}"#, "choices[0].index"),
            (r#"{"choices":[{"message":[]}]}"#, "choices[0].message"),
            (r#"{"choices":[{"message":{"tool_calls":{}}}]}"#, "choices[0].message.tool_calls"),
            (r#"{"choices":[],"choices":[]}"#, "choices"),
            (r#"{"choices":[{"message":{},"message":{}}]}"#, "choices[0].message"),
            (
                r#"{"choices":[{"message":{"tool_calls":[],"tool_calls":[]}}]}"#,
                "choices[0].message.tool_calls",
            ),
            (
                r#"{"choices":[{"message":{"tool_calls":[{"function":{"arguments":"","arguments":""}}]}}]}"#,
                "choices[0].message.tool_calls[0].function.arguments",
            ),
        ];
        for (body, path) in table {
            assert_eq!(parse(body).unwrap_err().path, path, "{body}");
        }
    }

    #[test]
    fn what_is_kept_of_an_answer_is_bounded() {
        use crate::wire::scan::MOST_ENTRIES_OF_ANSWER;
        let list = |count: usize| vec!["{}"; count].join(",");
        let choices = |count: usize| format!(r#"{{"choices":[{}]}}"#, list(count));
        assert!(parse(&choices(MOST_ENTRIES_OF_ANSWER)).is_ok());
        assert!(parse(&choices(MOST_ENTRIES_OF_ANSWER + 1)).is_err());
        let calls =
            format!(r#"{{"message":{{"tool_calls":[{}]}}}}"#, list(MOST_ENTRIES_OF_ANSWER / 2));
        assert!(parse(&format!(r#"{{"choices":[{calls}]}}"#)).is_ok());
        assert!(parse(&format!(r#"{{"choices":[{calls},{calls}]}}"#)).is_err());
    }
}
