//! Whether the text of a call's `arguments` is one JSON object that every parser reads alike.
//!
//! Asked of a request's history and of a model's fresh proposal. "Parses as JSON" is not the test:
//! a list, a scalar, or an object encoded twice parse as well, and break the tool that expects a mapping.

use crate::wire::json::{BodyFault, Flaw, Kind, Text};
use crate::wire::keys::Keys;
use crate::wire::scan::{Observer, Scanner, half_a_pair, repeated_key};
use std::fmt;

/// Why a text is not an arguments object. Offsets count bytes of the decoded text; no value is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentsFault {
    /// Not JSON, or more than one value.
    Malformed {
        /// Where it breaks: at the very end when the text was cut off.
        offset: usize,
        /// In words.
        reason: &'static str,
    },
    /// JSON, but not an object.
    NotObject(Kind),
    /// A key stands twice in some object.
    RepeatedKey {
        /// Where the second one stands.
        offset: usize,
    },
    /// Nested deeper than the bound.
    TooDeep {
        /// Where the bound is passed.
        offset: usize,
    },
}

impl fmt::Display for ArgumentsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed { offset, reason } => {
                write!(f, "not valid JSON at byte {offset}: {reason}")
            }
            Self::NotObject(kind) => write!(f, "{}, not an object", kind.as_str()),
            Self::RepeatedKey { offset } => {
                write!(f, "an object that holds a key twice, at byte {offset}")
            }
            Self::TooDeep { offset } => write!(f, "nested too deeply, at byte {offset}"),
        }
    }
}

/// Checks that `text` is one JSON object without a key that stands twice in any object in it. A text
/// that is empty, only white space, or `null` equals `{}`.
///
/// # Errors
/// When it is not that, or is nested deeper than `max_depth`.
pub fn arguments_object(text: &str, max_depth: usize) -> Result<(), ArgumentsFault> {
    if matches!(text.trim_matches([' ', '\t', '\n', '\r']), "" | "null") {
        return Ok(());
    }
    let mut scanner = Scanner::new(text, max_depth);
    let kind = scanner.kind().map_err(fault)?;
    scanner.walk(&mut OpenKeys::default()).map_err(fault)?;
    scanner.end().map_err(fault)?;
    if kind == Kind::Object { Ok(()) } else { Err(ArgumentsFault::NotObject(kind)) }
}

fn fault(BodyFault { offset, reason, flaw, .. }: BodyFault) -> ArgumentsFault {
    match flaw {
        Flaw::Syntax | Flaw::Shape => ArgumentsFault::Malformed { offset, reason },
        Flaw::RepeatedKey => ArgumentsFault::RepeatedKey { offset },
        Flaw::TooDeep => ArgumentsFault::TooDeep { offset },
    }
}

/// The keys of every open object, innermost last.
#[derive(Default)]
struct OpenKeys<'a>(Vec<Keys<'a>>);

impl<'a> Observer<'a> for OpenKeys<'a> {
    fn object(&mut self, _: usize) {
        self.0.push(Keys::default());
    }

    fn key(&mut self, key: Text<'a>, at: usize) -> Result<(), BodyFault> {
        if key.has_lone_surrogate() {
            return Err(half_a_pair(at));
        }
        let fresh = self.0.last_mut().is_none_or(|keys| keys.insert(key));
        if fresh { Ok(()) } else { Err(repeated_key(at)) }
    }

    fn end_object(&mut self, _: usize) {
        self.0.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_and_what_equals_an_empty_one_pass() {
        for text in [
            "",
            " \n",
            "null",
            " null\t",
            "{}",
            " {} ",
            r#"{"a":{"a":{"a":[{"a":1},{"a":2}]}},"b":1}"#,
            r#"{"order_id":"A1","note":"[1,2]"}"#,
            r#"{"x":"\ud83d"}"#,
            r#"{"n":120000.0,"e":1e999}"#,
        ] {
            assert_eq!(arguments_object(text, 8), Ok(()), "{text}");
        }
    }

    #[test]
    fn anything_else_is_named() {
        use ArgumentsFault::{Malformed, NotObject, RepeatedKey, TooDeep};
        let malformed = |text: &str, at: usize| match arguments_object(text, 8) {
            Err(Malformed { offset, .. }) => assert_eq!(offset, at, "{text}"),
            other => assert_eq!(other, Ok(()), "should be malformed: {text}"),
        };
        malformed(r#"{"order_id":"A"#, 14);
        malformed(r#"{"a":1}{"b":2}"#, 7);
        malformed("{'a':1}", 1);
        malformed(r#"{"a":NaN}"#, 5);
        malformed("{", 1);
        malformed("nullnull", 4);
        malformed("\u{a0}{}", 0);
        malformed(r#"{"a":1,"\ud83d":1}"#, 7);
        let table = [
            ("[\"A1\"]", NotObject(Kind::Array)),
            ("\"{}\"", NotObject(Kind::String)),
            ("7", NotObject(Kind::Number)),
            ("true", NotObject(Kind::Bool)),
            (r#"{"a":1,"\u0061":2}"#, RepeatedKey { offset: 7 }),
            (r#"{"x":[{"a":1,"b":{},"a":2}]}"#, RepeatedKey { offset: 20 }),
            (r#"{"a":[[[[[[[[1]]]]]]]]}"#, TooDeep { offset: 12 }),
        ];
        for (text, wanted) in table {
            assert_eq!(arguments_object(text, 8), Err(wanted), "{text}");
        }
    }
}
