//! The text in a message's `content`, in each form that it may be sent in.

use super::json::{BodyFault, Field, Kind};
use super::scan::Scanner;
use std::borrow::Cow;

/// The text that a raw `content` value stands for: of a string, the string; of a list, the texts of
/// its parts, joined; of an object, its own JSON. `None` of anything else.
#[must_use]
pub fn text(raw: &str) -> Option<Cow<'_, str>> {
    let mut value = Scanner::new(raw, usize::MAX);
    match value.kind().ok()? {
        Kind::String => value.text().ok().map(|text| text.decode()),
        Kind::Array => parts(&mut value).ok(),
        Kind::Object => value.skip().ok().map(|span| Cow::Borrowed(span.raw)),
        Kind::Null | Kind::Bool | Kind::Number => None,
    }
}

/// Whether the text of a raw `content` value may be so short, in bytes. Most results are a long string, which
/// need not be decoded to see that it is none of a few short texts.
#[must_use]
pub fn may_be_as_short_as(raw: &str, length: usize) -> bool {
    // The longest way to spell a byte: an escape of a character of one byte.
    const SPELLED: usize = r"\u0041".len();
    let (raw, quotes) = (raw.trim_end(), 2);
    !raw.starts_with('"') || raw.len() <= length.saturating_mul(SPELLED).saturating_add(quotes)
}

fn parts<'a>(value: &mut Scanner<'a>) -> Result<Cow<'a, str>, BodyFault> {
    let mut joined = Cow::Borrowed("");
    value.array(|value, _| {
        if let Field::Text(text) = part(value)? {
            joined += text.decode();
        }
        Ok(())
    })?;
    Ok(joined)
}

/// One part: an object with a `text`, or a bare string.
fn part<'a>(value: &mut Scanner<'a>) -> Result<Field<'a>, BodyFault> {
    if value.kind()? != Kind::Object {
        return value.field();
    }
    let mut found = Field::Absent;
    value.members(|value, key, _| {
        if key.is("text") {
            found = value.field()?;
            return Ok(());
        }
        value.skip().map(drop)
    })?;
    Ok(found)
}

/// Whether a raw `content` value holds its [`text`] and nothing beside it: no other kind of part, no other
/// key in a part.
#[must_use]
pub fn is_text_alone(raw: &str) -> bool {
    let mut value = Scanner::new(raw, usize::MAX);
    match value.kind() {
        Ok(Kind::Array) => {
            let mut alone = true;
            let read = value.array(|value, _| {
                alone &= is_text_part(value)?;
                Ok(())
            });
            alone && read.is_ok()
        }
        kind => kind.is_ok(),
    }
}

fn is_text_part(value: &mut Scanner<'_>) -> Result<bool, BodyFault> {
    if value.kind()? != Kind::Object {
        return Ok(matches!(value.field()?, Field::Text(_)));
    }
    let (mut texts, mut types, mut alone) = (0, 0, true);
    value.members(|value, key, _| {
        if key.is("text") {
            texts += 1;
            alone &= matches!(value.field()?, Field::Text(_));
        } else if key.is("type") {
            types += 1;
            alone &= matches!(value.field()?, Field::Text(kind) if kind.decode() == "text");
        } else {
            alone = false;
            value.skip()?;
        }
        Ok(())
    })?;
    Ok(alone && texts == 1 && types <= 1)
}

/// The members of the JSON object that a text is, in order: decoded names and raw values. Neither a
/// byte order mark nor white space around it hides it, and a key that stands twice is told twice.
/// Empty when the text is no object.
#[must_use]
pub fn members(text: &str) -> Vec<(Cow<'_, str>, &str)> {
    let text = text.trim_matches(|letter: char| letter.is_whitespace() || letter == '\u{feff}');
    let mut members = Vec::new();
    let mut value = Scanner::new(text, usize::MAX);
    let read = value.members(|value, key, _| {
        members.push((key.decode(), value.skip()?.raw));
        Ok(())
    });
    match read.and_then(|()| value.end()) {
        Ok(()) => members,
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_alone_has_nothing_beside_it() {
        let table = [
            (r#""a""#, true),
            ("null", true),
            (r#"{"ok":false}"#, true),
            (r#"[{"type":"text","text":"a"}]"#, true),
            (r#"[{"t\u0065xt":"a"},"b"]"#, true),
            (r#"[{"type":"text","text":"a","cache_control":"late"}]"#, false),
            (r#"[{"type":"text","text":"late","text":"a"}]"#, false),
            (r#"[{"type":"late","text":"a"}]"#, false),
            (r#"[{"type":"image_url","image_url":{"url":"late"}},{"text":"a"}]"#, false),
            (r#"["a",["late"]]"#, false),
            (r#"["a",7]"#, false),
        ];
        for (raw, wanted) in table {
            assert_eq!(is_text_alone(raw), wanted, "{raw}");
        }
    }

    #[test]
    fn text_is_read_in_every_form() {
        let table = [
            (r#""a\n\u00e9""#, Some("a\né")),
            (r#" "lone \ud83d" "#, Some("lone \\ud83d")),
            (r#"[{"type":"text","text":"a"}]"#, Some("a")),
            (r#"[{"type":"text","text":"a"},{"text":"b"},"c"]"#, Some("abc")),
            (
                r#"[{"type":"image_url","image_url":{"url":"x"}},{"type":"text","text":"a"}]"#,
                Some("a"),
            ),
            (r#"[{"text":null},{"text":{"text":"no"}},7]"#, Some("")),
            ("[]", Some("")),
            (r#" {"a": 1}"#, Some(r#"{"a": 1}"#)),
            ("null", None),
            ("7", None),
            ("true", None),
            ("", None),
        ];
        for (raw, wanted) in table {
            assert_eq!(text(raw).as_deref(), wanted, "{raw}");
        }
    }

    #[test]
    fn a_long_string_is_no_short_text_however_it_is_spelled() {
        assert!(may_be_as_short_as(r#""\u0041\u0042""#, 2));
        assert!(!may_be_as_short_as(r#""\u0041\u0042C""#, 2));
        assert!(may_be_as_short_as(r#""ab""#, 2) && may_be_as_short_as(r#""""#, 0));
        for other in [r#"[{"text":"a long text"}]"#, r#" "a long text""#, "null"] {
            assert!(may_be_as_short_as(other, 1), "{other}");
        }
    }

    #[test]
    fn members_are_found_behind_marks_and_spaces() {
        let found = |text: &str| {
            let each = members(text).into_iter().map(|(name, raw)| format!("{name}={raw}"));
            each.collect::<Vec<_>>().join(",")
        };
        let table = [
            (r#"{"a":1,"b":{"a":2}}"#, r#"a=1,b={"a":2}"#),
            ("\u{feff}{\"a\":1}", "a=1"),
            ("\u{feff}\n\t\u{a0}\u{feff} {\"a\":1}\u{2028}\n", "a=1"),
            (r#"{"\u0061":1,"a":2}"#, "a=1,a=2"),
            (r#"{"\ud83d":1,"a":"\ud83d"}"#, r#"\ud83d=1,a="\ud83d""#),
            ("{}", ""),
            (r#"[{"a":1}]"#, ""),
            (r#"shipped {"a":1}"#, ""),
            (r#"{"a":1} {"b":2}"#, ""),
            (r#"{"a":1"#, ""),
            ("", ""),
        ];
        for (text, wanted) in table {
            assert_eq!(found(text), wanted, "{text}");
        }
    }
}
