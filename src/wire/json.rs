//! A borrowed JSON scanner: validates, finds and skips, but builds no tree.

use std::borrow::Cow;

/// What a JSON value is, by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// A number
    Number,
    /// A string
    String,
    /// A list
    Array,
    /// An object
    Object,
}

/// A JSON string as it was sent: what stands between the quotes, escapes and all.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    raw: &'a str,
    escaped: bool,
}

impl<'a> Text<'a> {
    /// The bytes between the quotes, undecoded.
    #[must_use]
    pub fn raw(&self) -> &'a str {
        self.raw
    }

    /// The string it stands for. A lone surrogate keeps its escape (`\ud83d`): it has no UTF-8 form.
    #[must_use]
    pub fn decode(&self) -> Cow<'a, str> {
        Cow::Borrowed(self.raw)
    }
}

/// A member that ought to be a string.
#[derive(Clone, Copy, Debug, Default)]
pub enum Field<'a> {
    /// The key is not there.
    #[default]
    Absent,
    /// `null`
    Null,
    /// A string
    Text(Text<'a>),
    /// Something else
    Other(Kind),
}

/// Why bytes are not the JSON they must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyFault {
    /// Where: a path such as `messages[3].role`, or empty for the whole body.
    pub path: String,
    /// Byte offset in the body.
    pub offset: usize,
    /// What is wrong there, in words; never a value from the body.
    pub reason: &'static str,
}
