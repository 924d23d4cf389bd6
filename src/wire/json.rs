//! The words of the JSON scanner: kinds, strings as they were sent, and what can be wrong.
//!
//! Nothing here is a tree. A [`Text`] is the bytes between two quotes, decoded only when someone
//! asks; [`super::scan`] finds and skips.

use std::borrow::Cow;
use std::fmt::Write as _;

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

impl Kind {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Null => "null",
            Kind::Bool => "a boolean",
            Kind::Number => "a number",
            Kind::String => "a string",
            Kind::Array => "a list",
            Kind::Object => "an object",
        }
    }
}

/// A JSON string as it was sent: what stands between the quotes, escapes and all.
///
/// Only the scanner makes one, so its escapes are known to be whole.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    raw: &'a str,
    escapes: Escapes,
}

/// Which escapes stand in a string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Escapes {
    /// None: the raw text is the string.
    #[default]
    None,
    /// Of two characters only and no `\/`: the raw text is how RFC 8785 writes the string.
    Short,
    /// Others, which may be spelled in another way as well.
    Any,
}

impl<'a> Text<'a> {
    pub(super) fn new(raw: &'a str, escapes: Escapes) -> Self {
        Text { raw, escapes }
    }

    /// Its length with both quotes.
    pub(super) fn quoted_length(&self) -> usize {
        self.raw.len() + 2
    }

    /// The raw text, when that is also the string's form in RFC 8785.
    pub(super) fn canonical(&self) -> Option<&'a str> {
        (self.escapes != Escapes::Any).then_some(self.raw)
    }

    /// The bytes between the quotes, undecoded.
    #[must_use]
    pub fn raw(&self) -> &'a str {
        self.raw
    }

    /// Whether an escape stands in it, so that its raw text is not the string itself.
    #[must_use]
    pub fn is_escaped(&self) -> bool {
        self.escapes != Escapes::None
    }

    /// Whether half of a surrogate pair is escaped in it. One parser keeps such a half, another puts U+FFFD in its
    /// place, a third refuses the body: it names nothing that all read alike.
    #[must_use]
    pub fn has_lone_surrogate(&self) -> bool {
        self.escapes == Escapes::Any
            && pieces(self.raw).any(|piece| matches!(piece, Piece::Lone(_)))
    }

    /// Whether it is `""`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// The string it stands for. A lone surrogate keeps its escape, in lower case (`\ud83d`): it has
    /// no UTF-8 form.
    #[must_use]
    #[inline]
    pub fn decode(&self) -> Cow<'a, str> {
        if self.is_escaped() { Cow::Owned(unescaped(self.raw)) } else { Cow::Borrowed(self.raw) }
    }

    /// Whether it stands for `other`. Allocates only when it is escaped.
    #[must_use]
    pub fn is(&self, other: &str) -> bool {
        if self.is_escaped() { self.decode() == other } else { self.raw == other }
    }
}

/// A member of an object that was read.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Its key.
    pub key: Text<'a>,
    /// Its value.
    pub value: Value<'a>,
}

/// A value that was read: known to be whole and valid.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// A string.
    Text(Text<'a>),
    /// Anything, as it stands.
    Raw(&'a str),
}

fn unescaped(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut at = 0;
    while let Some(escape) = next_escape(raw, at) {
        out.push_str(raw.get(at..escape).unwrap_or_default());
        let (piece, length) = escape_at(raw, escape);
        at = escape + length;
        match piece {
            Piece::Plain(text) => out.push_str(text),
            Piece::Char(character) => out.push(character),
            Piece::Lone(unit) => {
                // Writing to a String does not fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    out.push_str(raw.get(at..).unwrap_or_default());
    out
}

/// Where the next backslash stands. Escapes come close together where there are any, so the next few bytes are
/// looked at before a search is begun.
#[inline]
fn next_escape(raw: &str, at: usize) -> Option<usize> {
    const NEAR: usize = 16;
    let rest = raw.as_bytes().get(at..)?;
    let (near, far) = rest.split_at(rest.len().min(NEAR));
    let found = near.iter().position(|&byte| byte == b'\\');
    let found = found.or_else(|| memchr::memchr(b'\\', far).map(|found| NEAR + found));
    found.map(|found| at + found)
}

/// A part of a JSON string: plain text, or what one escape stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// A stretch without escapes.
    Plain(&'a str),
    /// The character of an escape, or of a pair of surrogate escapes.
    Char(char),
    /// A surrogate without its partner.
    Lone(u16),
}

/// The parts of a string whose escapes are known to be whole.
pub(super) fn pieces(raw: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = raw.get(at..).filter(|rest| !rest.is_empty())?;
        let plain = memchr::memchr(b'\\', rest.as_bytes()).unwrap_or(rest.len());
        let (piece, length) = match rest.split_at(plain) {
            ("", _) => escape_at(raw, at),
            (text, _) => (Piece::Plain(text), plain),
        };
        at += length;
        Some(piece)
    })
}

/// Reads the escape at an offset: what it stands for and its length.
pub(super) fn escape_at(raw: &str, at: usize) -> (Piece<'_>, usize) {
    let text = raw.get(at..).unwrap_or_default();
    let character = match text.as_bytes().get(1) {
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => return unicode_escape(text),
        // `\"`, `\\` and `\/` stand for their second character.
        Some(&other) => char::from(other),
        None => '\\',
    };
    (Piece::Char(character), 2)
}

fn unicode_escape(text: &str) -> (Piece<'_>, usize) {
    let unit = unit_at(text, 2).unwrap_or_default();
    if let Some(character) = char::from_u32(u32::from(unit)) {
        return (Piece::Char(character), 6);
    }
    let partner = if text.get(6..8) == Some("\\u") { unit_at(text, 8) } else { None };
    let pair = char::decode_utf16([Some(unit), partner].into_iter().flatten()).next();
    match pair {
        Some(Ok(character)) => (Piece::Char(character), 12),
        _ => (Piece::Lone(unit), 6),
    }
}

fn unit_at(text: &str, at: usize) -> Option<u16> {
    u16::from_str_radix(text.get(at..at + 4)?, 16).ok()
}

/// The same JSON text with U+FFFD for every surrogate escape without its partner, which a tree of Rust
/// strings cannot hold. For looking at it only: the text itself travels as it came.
#[must_use]
pub fn without_lone_surrogates(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'\\', text.as_bytes().get(at..).unwrap_or_default()) {
        let escape = at + found;
        out.push_str(&text[at..escape]);
        let (piece, length) = escape_at(text, escape);
        at = escape + length;
        match piece {
            Piece::Lone(_) => out.push_str("\\ufffd"),
            Piece::Plain(_) | Piece::Char(_) => {
                out.push_str(text.get(escape..at).unwrap_or_default());
            }
        }
    }
    out.push_str(text.get(at..).unwrap_or_default());
    out
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

impl<'a> Field<'a> {
    /// The string, when it is one.
    #[must_use]
    pub fn text(&self) -> Option<Text<'a>> {
        match self {
            Field::Text(text) => Some(*text),
            Field::Absent | Field::Null | Field::Other(_) => None,
        }
    }

    /// Whether it is a string that stands for `other`.
    #[must_use]
    pub fn is(&self, other: &str) -> bool {
        self.text().is_some_and(|text| text.is(other))
    }
}

/// The sort of a [`BodyFault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Not JSON, or not in UTF-8.
    Syntax,
    /// JSON, but not of the shape that it must have.
    Shape,
    /// A key stands twice in one object.
    RepeatedKey,
    /// Nested deeper than the bound.
    TooDeep,
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
    /// The sort of it.
    pub flaw: Flaw,
}

/// A longer key, or one with other characters than these, is not repeated in a path.
const KEY_IN_PATH: usize = 64;

impl BodyFault {
    pub(super) fn new(flaw: Flaw, offset: usize, reason: &'static str) -> Self {
        BodyFault { path: String::new(), offset, reason, flaw }
    }

    pub(super) fn syntax(offset: usize, reason: &'static str) -> Self {
        BodyFault::new(Flaw::Syntax, offset, reason)
    }

    pub(super) fn shape(offset: usize, reason: &'static str) -> Self {
        BodyFault::new(Flaw::Shape, offset, reason)
    }

    /// The same fault, seen from the object that holds it under `key`.
    #[cold]
    pub(super) fn under(mut self, key: &str) -> Self {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        let shown = if key.len() <= KEY_IN_PATH && key.bytes().all(plain) { key } else { "?" };
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{shown}{dot}{}", self.path);
        self
    }

    /// The same fault, seen from the list that holds it at `index`.
    #[cold]
    pub(super) fn at_index(mut self, index: usize) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("[{index}]{dot}{}", self.path);
        self
    }
}

/// The bytes as UTF-8 text without a byte order mark, which some parsers skip and others refuse.
///
/// # Errors
/// When they are not that.
pub fn utf8(bytes: &[u8]) -> Result<&str, BodyFault> {
    if bytes.starts_with(b"\xef\xbb\xbf") {
        return Err(BodyFault::syntax(0, "begins with a byte order mark"));
    }
    simdutf8::basic::from_utf8(bytes).map_err(|_| {
        // The fast check does not say where; it failed, so a second look costs nothing that matters.
        let at = std::str::from_utf8(bytes).map_or_else(|error| error.valid_up_to(), str::len);
        BodyFault::syntax(at, "not valid UTF-8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(raw: &str) -> Text<'_> {
        Text::new(raw, Escapes::None)
    }

    fn spelled(raw: &str) -> Text<'_> {
        Text::new(raw, if raw.contains('\\') { Escapes::Any } else { Escapes::None })
    }

    #[test]
    fn escapes_decode() {
        let table = [
            ("", ""),
            ("plain é 中", "plain é 中"),
            (r#"\" \\ \/ \b\f\n\r\t"#, "\" \\ / \u{8}\u{c}\n\r\t"),
            (r"\u0041\u00e9\u4e2d", "Aé中"),
            (r"\ud83d\ude00!", "😀!"),
            (r"\uD83D\uDE00", "😀"),
            (r"\uD83D", r"\ud83d"),
            (r"\ud83dx", r"\ud83dx"),
            (r"\ud83d\n", "\\ud83d\n"),
            (r"\ud83d\u0041", r"\ud83dA"),
            (r"\ude00\ud83d", r"\ude00\ud83d"),
            (r"\ud83d\ud83d\ude00", r"\ud83d😀"),
        ];
        for (raw, decoded) in table {
            let text = spelled(raw);
            assert_eq!(text.decode(), decoded, "{raw}");
            assert!(text.is(decoded));
            assert!(!text.is("something else"));
        }
    }

    #[test]
    fn plain_texts_decode_without_a_copy() {
        assert!(matches!(plain("abc").decode(), Cow::Borrowed("abc")));
    }

    #[test]
    fn texts_compare_by_what_they_stand_for() {
        let (plain, spelled) = (plain("call_A"), spelled(r"call_\u0041"));
        assert!(plain.is("call_A") && spelled.is("call_A"));
        assert!(!plain.is("call_a") && !spelled.is("call_a"));
    }

    #[test]
    fn lone_surrogates_make_way_and_nothing_else_changes() {
        let table = [
            (r#"{"a":"\ud83d"}"#, r#"{"a":"\ufffd"}"#),
            (r#"{"a":"\ude00\ud83dx"}"#, r#"{"a":"\ufffd\ufffdx"}"#),
            (
                r#"["\\\ud83d\ude00","\"\\","\u0041 中"]"#,
                r#"["\\\ud83d\ude00","\"\\","\u0041 中"]"#,
            ),
            ("", ""),
        ];
        for (text, wanted) in table {
            assert_eq!(without_lone_surrogates(text), wanted, "{text}");
        }
    }

    #[test]
    fn paths_grow_from_the_inside() {
        let fault = BodyFault::shape(9, "x").under("role").at_index(3).under("messages");
        assert_eq!(fault.path, "messages[3].role");
        let nested = BodyFault::shape(9, "x").at_index(1).at_index(0).under("a\nb");
        assert_eq!(nested.path, "?[0][1]");
    }

    #[test]
    fn bodies_are_utf8_without_a_mark() {
        assert_eq!(utf8(b"\xef\xbb\xbf{}").map_err(|fault| fault.offset), Err(0));
        assert_eq!(utf8(b"{\"a\":\"\xff\"}").map_err(|fault| fault.offset), Err(6));
        assert_eq!(utf8("é".as_bytes()), Ok("é"));
    }
}
