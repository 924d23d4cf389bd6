//! A strict JSON scanner over borrowed text: it validates, finds and skips, but builds no tree.
//!
//! It reads RFC 8259 and nothing more: no trailing data, no control character in a string, no bad
//! escape, no `NaN`, no leading zero. Nesting is bounded, and skipping keeps its own stack of one bit
//! a level, so no body can exhaust the thread's. Every byte is looked at once.
//!
//! An object that is judged is read by [`Scanner::object`], which refuses a key that stands twice: of
//! two such members one parser takes the first and another the last.

mod judged;
mod string;
mod walk;

use super::json::{BodyFault, Escapes, Field, Flaw, Kind, Text};
use super::keys::Keys;
pub use judged::{MOST_ENTRIES, MOST_ENTRIES_OF_ANSWER, half_a_pair};
pub use walk::Observer;

/// A raw JSON value and where it stands in the body.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span<'a> {
    /// Offset of the first byte.
    pub at: usize,
    /// The value's bytes.
    pub raw: &'a str,
}

/// A cursor over JSON text.
#[derive(Debug)]
pub struct Scanner<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    max_depth: usize,
    /// How many entries were kept so far, and how many may be.
    kept: usize,
    most: usize,
}

impl<'a> Scanner<'a> {
    /// A scanner at the beginning of `text`. An object or list inside `max_depth` others is refused.
    #[must_use]
    pub fn new(text: &'a str, max_depth: usize) -> Self {
        Scanner { text, at: 0, depth: 0, max_depth, kept: 0, most: MOST_ENTRIES }
    }

    /// A scanner that begins at an offset of a text which is known to be valid.
    pub(super) fn from(text: &'a str, at: usize) -> Self {
        Scanner { text, at, depth: 0, max_depth: usize::MAX, kept: 0, most: MOST_ENTRIES }
    }

    /// Offset of the next byte.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Where the next value begins (white space before it is skipped), for [`Scanner::since`].
    #[inline]
    pub fn mark(&mut self) -> usize {
        self.space();
        self.at
    }

    /// The text from a mark to here.
    #[must_use]
    pub fn since(&self, mark: usize) -> &'a str {
        self.text.get(mark..self.at).unwrap_or_default()
    }

    /// The kind of the value that comes next.
    ///
    /// # Errors
    /// When no value can begin here.
    #[inline]
    pub fn kind(&mut self) -> Result<Kind, BodyFault> {
        self.space();
        match self.peek() {
            Some(b'"') => Ok(Kind::String),
            Some(b'{') => Ok(Kind::Object),
            Some(b'[') => Ok(Kind::Array),
            Some(b'-' | b'0'..=b'9') => Ok(Kind::Number),
            Some(b't' | b'f') => Ok(Kind::Bool),
            Some(b'n') => Ok(Kind::Null),
            Some(_) => Err(self.wrong("a value was expected")),
            None => Err(self.wrong("ends too early")),
        }
    }

    /// Reads a string.
    ///
    /// # Errors
    /// When no whole string stands here.
    #[inline]
    pub fn text(&mut self) -> Result<Text<'a>, BodyFault> {
        self.space();
        self.expect(b'"', "a string was expected")?;
        let start = self.at;
        let mut escapes = Escapes::None;
        loop {
            self.at += string::plain_length(self.text.as_bytes(), self.at, &mut escapes);
            match self.peek() {
                Some(b'"') => {
                    let raw = &self.text[start..self.at];
                    self.at += 1;
                    return Ok(Text::new(raw, escapes));
                }
                Some(b'\\') => escapes = escapes.max(self.escape()?),
                Some(_) => return Err(self.wrong("a control character in a string")),
                None => return Err(self.wrong("ends inside a string")),
            }
        }
    }

    /// Reads a member that ought to be a string; anything else is skipped and named.
    ///
    /// # Errors
    /// When no whole value stands here.
    #[inline]
    pub fn field(&mut self) -> Result<Field<'a>, BodyFault> {
        match self.kind()? {
            Kind::String => self.text().map(Field::Text),
            Kind::Null => self.literal("null").map(|()| Field::Null),
            other => self.skip().map(|_| Field::Other(other)),
        }
    }

    /// Reads the members of an object. `visit` gets each decoded key and must read its value.
    ///
    /// # Errors
    /// When no whole object stands here, a key stands twice in it or holds half of a surrogate pair, or `visit` fails.
    #[inline]
    pub fn object<V>(&mut self, mut visit: V) -> Result<(), BodyFault>
    where
        V: FnMut(&mut Self, &str) -> Result<(), BodyFault>,
    {
        self.object_as_sent(|value, name, _| visit(value, name))
    }

    /// The same, where `visit` also gets each key as it was sent.
    ///
    /// # Errors
    /// As of [`Scanner::object`].
    #[inline]
    pub(super) fn object_as_sent<V>(&mut self, mut visit: V) -> Result<(), BodyFault>
    where
        V: FnMut(&mut Self, &str, Text<'a>) -> Result<(), BodyFault>,
    {
        let mut keys = Keys::default();
        self.members(|value, key, at| {
            let name = key.decode();
            if key.has_lone_surrogate() {
                return Err(half_a_pair(at).under(&name));
            }
            if !keys.insert(key) {
                return Err(repeated_key(at).under(&name));
            }
            visit(value, &name, key).map_err(|fault| fault.under(&name))
        })
    }

    /// Reads the members of an object in which a key may stand twice. `visit` gets each key with its
    /// offset and must read its value.
    ///
    /// # Errors
    /// When no whole object stands here, or `visit` fails.
    #[inline]
    pub fn members<V>(&mut self, mut visit: V) -> Result<(), BodyFault>
    where
        V: FnMut(&mut Self, Text<'a>, usize) -> Result<(), BodyFault>,
    {
        self.open(Kind::Object, "an object was expected")?;
        if self.closes(b'}') {
            return Ok(());
        }
        loop {
            self.space();
            let at = self.at;
            let key = self.key()?;
            visit(self, key, at)?;
            if !self.continues(b'}')? {
                return Ok(());
            }
        }
    }

    /// Reads the entries of a list. `visit` gets each index and must read its value.
    ///
    /// # Errors
    /// When no whole list stands here, or `visit` fails.
    #[inline]
    pub fn array<V>(&mut self, mut visit: V) -> Result<(), BodyFault>
    where
        V: FnMut(&mut Self, usize) -> Result<(), BodyFault>,
    {
        self.open(Kind::Array, "a list was expected")?;
        if self.closes(b']') {
            return Ok(());
        }
        let mut index = 0;
        loop {
            visit(self, index).map_err(|fault| fault.at_index(index))?;
            index += 1;
            if !self.continues(b']')? {
                return Ok(());
            }
        }
    }

    /// Takes a list's opening bracket; where the list ends if nothing is in it.
    pub(super) fn empty_array(&mut self) -> Option<usize> {
        self.at += 1;
        self.space();
        (self.peek() == Some(b']')).then_some(self.at + 1)
    }

    /// Skips one value of any kind.
    ///
    /// # Errors
    /// When no whole value stands here.
    #[inline]
    pub fn skip(&mut self) -> Result<Span<'a>, BodyFault> {
        self.walk(&mut walk::Blind)
    }

    /// Reads a number's literal.
    ///
    /// # Errors
    /// When no number stands here.
    pub fn number(&mut self) -> Result<&'a str, BodyFault> {
        self.space();
        let start = self.at;
        self.at += usize::from(self.peek() == Some(b'-'));
        let zero = self.peek() == Some(b'0');
        let whole = self.digits("a number without digits")?;
        if zero && whole > 1 {
            return Err(BodyFault::syntax(start, "a number with a leading zero"));
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits("a number without digits after its point")?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.digits("a number without digits in its exponent")?;
        }
        Ok(&self.text[start..self.at])
    }

    /// Makes sure that nothing but white space follows.
    ///
    /// # Errors
    /// When something does.
    pub fn end(&mut self) -> Result<(), BodyFault> {
        self.space();
        if self.at == self.text.len() { Ok(()) } else { Err(self.wrong("data after the value")) }
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    #[inline]
    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    #[inline]
    fn expect(&mut self, byte: u8, reason: &'static str) -> Result<(), BodyFault> {
        if self.peek() != Some(byte) {
            return Err(self.wrong(reason));
        }
        self.at += 1;
        Ok(())
    }

    #[inline]
    fn open(&mut self, kind: Kind, reason: &'static str) -> Result<(), BodyFault> {
        if self.kind()? != kind {
            return Err(BodyFault::shape(self.at, reason));
        }
        self.at += 1;
        self.enter()
    }

    /// Reads a key and its colon.
    #[inline]
    pub(super) fn key(&mut self) -> Result<Text<'a>, BodyFault> {
        let key = self.text()?;
        self.space();
        self.expect(b':', "a colon was expected")?;
        Ok(key)
    }

    /// Counts a container that was just opened.
    #[inline]
    fn enter(&mut self) -> Result<(), BodyFault> {
        self.depth += 1;
        if self.depth > self.max_depth {
            return Err(BodyFault::new(Flaw::TooDeep, self.at - 1, "nested too deeply"));
        }
        Ok(())
    }

    /// Takes `close` if it comes next.
    #[inline]
    fn closes(&mut self, close: u8) -> bool {
        self.space();
        let closes = self.peek() == Some(close);
        if closes {
            self.at += 1;
            self.depth -= 1;
        }
        closes
    }

    /// After a value in a container: whether a comma (`true`) or the end comes.
    #[inline]
    fn continues(&mut self, close: u8) -> Result<bool, BodyFault> {
        if self.closes(close) {
            return Ok(false);
        }
        self.expect(b',', "a comma or the end of an object or list was expected")?;
        Ok(true)
    }

    fn digits(&mut self, reason: &'static str) -> Result<usize, BodyFault> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start { Err(self.wrong(reason)) } else { Ok(self.at - start) }
    }

    fn literal(&mut self, word: &'static str) -> Result<(), BodyFault> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return Err(self.wrong("a value was expected"));
        }
        self.at += word.len();
        Ok(())
    }

    #[inline]
    fn escape(&mut self) -> Result<Escapes, BodyFault> {
        let rest = &self.text.as_bytes()[self.at..];
        let (length, escape) = match rest.get(1) {
            Some(b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't') => (2, Escapes::Short),
            Some(b'/') => (2, Escapes::Any),
            Some(b'u') if hex4(rest) => (6, Escapes::Any),
            Some(_) => return Err(self.wrong("a bad escape in a string")),
            None => return Err(self.wrong("ends inside a string")),
        };
        self.at += length;
        Ok(escape)
    }

    #[cold]
    fn wrong(&self, reason: &'static str) -> BodyFault {
        BodyFault::syntax(self.at, reason)
    }
}

/// The fault of a key that stands twice.
#[cold]
pub fn repeated_key(at: usize) -> BodyFault {
    BodyFault::new(Flaw::RepeatedKey, at, "a key stands twice in one object")
}

fn hex4(rest: &[u8]) -> bool {
    rest.get(2..6).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn whole(text: &str, max_depth: usize) -> Result<Span<'_>, BodyFault> {
        let mut scanner = Scanner::new(text, max_depth);
        let span = scanner.skip()?;
        scanner.end().map(|()| span)
    }

    #[test]
    fn what_is_json_passes() {
        let long = format!("\"{}\"", "é1".repeat(500));
        let table = [
            "null",
            " true ",
            "false",
            "0",
            "-0",
            "-0.0e-0",
            "10",
            "1.5E+3",
            "\"\"",
            "[]",
            "{}",
            " [ 1 , \"a\" , { } , [ ] ] ",
            r#"{"a":{"b":[{"c":null}]},"d":"\u00e9\ud83d"}"#,
            "\"\u{7f}\u{2028}\u{ffff}\"",
            "123456789012345678901234567890",
            "1e999",
            r#"{"a":1,"a":2}"#,
            long.as_str(),
        ];
        for text in table {
            let span = whole(text, 8).unwrap();
            assert_eq!(span.raw, text.trim());
        }
    }

    #[test]
    fn what_is_not_json_is_refused_where_it_breaks() {
        let table = [
            ("", 0),
            (" ", 1),
            ("nul", 0),
            ("truE", 0),
            ("NaN", 0),
            ("Infinity", 0),
            ("-Infinity", 1),
            ("01", 0),
            ("-01", 0),
            ("+1", 0),
            (".5", 0),
            ("1.", 2),
            ("1e", 2),
            ("1e+", 3),
            ("-", 1),
            ("0x1", 1),
            ("1 2", 2),
            ("{} {}", 3),
            ("[1,]", 3),
            ("[,]", 1),
            ("[1 2]", 3),
            ("[", 1),
            ("{\"a\":1,}", 7),
            ("{\"a\" 1}", 5),
            ("{a:1}", 1),
            ("{\"a\":}", 5),
            ("{\"a\"", 4),
            ("{'a':1}", 1),
            ("[1}", 2),
            ("{\"a\":1]", 6),
            ("\"a", 2),
            ("\"a\\", 2),
            ("\"\\x\"", 1),
            ("\"\\u12g4\"", 1),
            ("\"\\u12\"", 1),
            ("\"a\nb\"", 2),
            ("\"\u{0}\"", 1),
            ("// c\n1", 0),
            ("\u{feff}1", 0),
            ("\u{a0}1", 0),
            ("[1]]", 3),
            ("\"\t\"", 1),
        ];
        for (text, offset) in table {
            let fault = whole(text, 8).unwrap_err();
            assert_eq!((fault.offset, fault.flaw), (offset, Flaw::Syntax), "{text:?}");
        }
    }

    #[test]
    fn nesting_is_bounded_without_recursion() {
        let nested =
            |depth: usize| format!("{}{}", "[{\"a\":".repeat(depth), "1") + &"}]".repeat(depth);
        assert!(whole(&nested(4), 8).is_ok());
        let fault = whole(&nested(5), 8).unwrap_err();
        assert_eq!((fault.flaw, fault.offset), (Flaw::TooDeep, 24));
        // Siblings do not add up.
        assert!(whole("[[],[],[{}],{},[[]]]", 3).is_ok());
        assert!(whole(&nested(200_000), usize::MAX).is_ok());
        assert_eq!(whole(&"[".repeat(1_000_000), 100).unwrap_err().flaw, Flaw::TooDeep);
    }

    #[test]
    fn a_repeated_key_is_found_in_any_spelling() {
        let read = |text: &str| Scanner::new(text, 8).object(|value, _| value.skip().map(|_| ()));
        assert!(read(r#"{"a":1,"b":{"x":1,"x":2},"A":3}"#).is_ok());
        let fault = read(r#"{"a":1,"b":2,"\u0061":3}"#).unwrap_err();
        assert_eq!((fault.path.as_str(), fault.flaw, fault.offset), ("a", Flaw::RepeatedKey, 13));
        let many: Vec<String> = (0..40).map(|n| format!("\"k{n}\":{n}")).collect();
        assert!(read(&format!("{{{}}}", many.join(","))).is_ok());
        assert_eq!(read(&format!("{{{},\"k3\":0}}", many.join(","))).unwrap_err().path, "k3");
        assert!(read(r#"{"\u0061":1,"b":2,"b":3}"#).is_err());
    }

    proptest! {
        #[test]
        fn agrees_with_another_strict_parser(text in "[\\[\\]{},:\"\\\\u0-9a-e.+ \\-ntrulfs]{0,24}") {
            let other: Result<serde::de::IgnoredAny, _> = serde_json::from_str(&text);
            prop_assert_eq!(whole(&text, 100).is_ok(), other.is_ok());
        }

        #[test]
        fn no_text_makes_it_panic(text in any::<String>()) {
            let _ = whole(&text, 4);
        }
    }
}
