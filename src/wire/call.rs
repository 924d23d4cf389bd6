//! The borrowed view of one tool call, as it stands in a request's history, in a completion, and (in
//! pieces) in a chunk.

use super::json::{BodyFault, Field, Kind};
use super::keys::Judged;
use super::scan::Scanner;

const CALL: Judged = Judged::new(&["id", "index", "function", "custom"]);
const FUNCTION: Judged = Judged::new(&["name", "arguments"]);
const CUSTOM: Judged = Judged::new(&["name", "input"]);

/// One entry of an assistant message's `tool_calls`.
#[derive(Debug, Default)]
pub struct ToolCall<'a> {
    /// `id`
    pub id: Field<'a>,
    /// `function.name` (or `custom.name`)
    pub name: Field<'a>,
    /// `function.arguments` (or `custom.input`)
    pub arguments: Field<'a>,
    /// Whether it holds a `custom` object in place of `function`.
    pub custom: bool,
}

/// Reads `tool_calls`: empty when it is null.
pub(super) fn list<'a>(value: &mut Scanner<'a>) -> Result<Vec<ToolCall<'a>>, BodyFault> {
    let mut calls = Vec::new();
    each(value, |value, _| {
        calls.push(read(value, |index| index.skip().map(drop))?);
        Ok(())
    })?;
    Ok(calls)
}

/// Reads a list that may be null and whose entries must be objects.
#[inline]
pub(super) fn each<'a>(
    value: &mut Scanner<'a>,
    mut visit: impl FnMut(&mut Scanner<'a>, usize) -> Result<(), BodyFault>,
) -> Result<(), BodyFault> {
    match value.kind()? {
        Kind::Null => value.skip().map(drop),
        Kind::Array => value.kept_array(|value, position| match value.kind()? {
            Kind::Object => visit(value, position),
            _ => Err(BodyFault::shape(value.offset(), "an object was expected")),
        }),
        _ => Err(BodyFault::shape(value.offset(), "a list was expected")),
    }
}

/// Reads one call; `index` is given its `index` member, which only stream fragments need.
#[inline]
pub(super) fn read<'a>(
    value: &mut Scanner<'a>,
    mut index: impl FnMut(&mut Scanner<'a>) -> Result<(), BodyFault>,
) -> Result<ToolCall<'a>, BodyFault> {
    let mut call = ToolCall::default();
    let mut bodies = 0;
    let from = value.mark();
    value.object(|value, key| {
        match (key, value.kind()?) {
            ("id", _) => call.id = value.name()?,
            ("index", _) => index(value)?,
            ("function" | "custom", Kind::Object) => {
                bodies += 1;
                call.custom = key == "custom";
                inside(value, &mut call)?;
            }
            ("function" | "custom", _) => drop(value.skip()?),
            _ => value.beside(&CALL, key)?,
        }
        Ok(())
    })?;
    if bodies > 1 {
        return Err(BodyFault::shape(from, "a call holds both `function` and `custom`"));
    }
    Ok(call)
}

/// Reads a legacy `function_call`, which is the inside of a call and has no id.
pub(super) fn legacy<'a>(value: &mut Scanner<'a>) -> Result<Option<ToolCall<'a>>, BodyFault> {
    if value.kind()? == Kind::Null {
        return value.skip().map(|_| None);
    }
    let mut call = ToolCall::default();
    inside(value, &mut call)?;
    Ok(Some(call))
}

/// Reads a `finish_reason`: a string, or an object that names it in its `type` (SGLang's own form).
#[inline]
pub(super) fn finish_reason<'a>(value: &mut Scanner<'a>) -> Result<Field<'a>, BodyFault> {
    if value.kind()? != Kind::Object {
        return value.field();
    }
    let mut reason = Field::Absent;
    value.object(|value, key| {
        if key == "type" {
            reason = value.field()?;
            return Ok(());
        }
        value.skip().map(drop)
    })?;
    Ok(match reason {
        Field::Text(_) => reason,
        Field::Absent | Field::Null | Field::Other(_) => Field::Other(Kind::Object),
    })
}

/// Whether calls stand in an object that should have none, as a whole message in a chunk. What is
/// no list may be read as calls all the same.
pub(super) fn any(value: &mut Scanner<'_>) -> Result<bool, BodyFault> {
    let mut found = false;
    if value.kind()? != Kind::Object {
        return value.skip().map(|_| false);
    }
    value.object(|value, key| {
        match (key, value.kind()?) {
            ("tool_calls", Kind::Array) => value.array(|value, _| {
                found = true;
                value.skip().map(drop)
            })?,
            ("tool_calls" | "function_call", kind) => {
                found |= kind != Kind::Null;
                value.skip()?;
            }
            _ => value.beside(&super::completion::MESSAGE, key)?,
        }
        Ok(())
    })?;
    Ok(found)
}

/// Reads a `function` or `custom` object.
#[inline]
fn inside<'a>(value: &mut Scanner<'a>, call: &mut ToolCall<'a>) -> Result<(), BodyFault> {
    let (arguments, judged) =
        if call.custom { ("input", &CUSTOM) } else { ("arguments", &FUNCTION) };
    value.object(|value, key| {
        match key {
            "name" => call.name = value.name()?,
            _ if key == arguments => call.arguments = value.field()?,
            _ => value.beside(judged, key)?,
        }
        Ok(())
    })
}

/// Reads an `index`: `None` when it is null.
#[inline]
pub(super) fn index(value: &mut Scanner<'_>) -> Result<Option<u64>, BodyFault> {
    let at = value.mark();
    let wrong = || BodyFault::shape(at, "an index must be a whole number, not below 0");
    match value.kind()? {
        Kind::Null => value.skip().map(|_| None),
        Kind::Number => value.number()?.parse().map(Some).map_err(|_| wrong()),
        _ => Err(wrong()),
    }
}
