//! A canonical walk over raw JSON: two texts that mean the same value give the same bytes.
//!
//! The relation is RFC 8785's (key order, white space, escapes and number spelling do not matter),
//! but integers compare as they are written: a 20-digit order number is not its neighbour, though an
//! IEEE double cannot tell them apart.
//!
//! No tree is built. Keys can be sorted only when all are known, so a first pass notes where objects
//! and their keys stand (a few bytes each, so that no body swells), and a second one feeds the text in
//! that order. Both keep their own stack: nesting costs no recursion, and work grows with the length of
//! the text, not with length times depth.

use super::json::{BodyFault, Kind, Member, Piece, Text, Value, escape_at, pieces};
use super::scan::{Observer, Scanner};
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::fmt::{self, Write as _};

/// Feeds `value` to `sink` in canonical form; feeds nothing, and gives `false`, when it is not one valid JSON
/// value. Never feeds a 0 byte.
pub fn feed_valid(value: &str, sink: &mut impl FnMut(&[u8])) -> bool {
    let mut out = Out { sink };
    if value.starts_with('"') {
        return text_alone(value).map(|text| out.string(&text)).is_some();
    }
    Objects::of(value).map(|objects| objects.feed(&mut out)).is_some()
}

/// Feeds an object whose members were read before: as [`feed_valid`] feeds what they were read from, without
/// reading its strings again.
pub fn feed_object(members: &[Member<'_>], sink: &mut impl FnMut(&[u8])) {
    let mut sorted: SmallVec<[&Member<'_>; 8]> = members.iter().collect();
    // Stable, as in [`Survey`].
    sorted.sort_by(|one, other| order(&one.key, &other.key));
    let mut out = Out { sink };
    let mut before: &[u8] = b"{";
    for member in sorted {
        out.put(before);
        out.string(&member.key);
        out.put(b":");
        out.value(&member.value);
        before = b",";
    }
    out.put(if members.is_empty() { b"{}" } else { b"}" });
}

/// Feeds a string that was read before: as [`feed_valid`] feeds what it was read from.
pub fn feed_text(text: &Text<'_>, sink: &mut impl FnMut(&[u8])) {
    Out { sink }.string(text);
}

/// Feeds what is not valid JSON as it stands, behind a byte that no JSON begins with.
pub fn feed_invalid(value: &str, sink: &mut impl FnMut(&[u8])) {
    Out { sink }.invalid(value);
}

/// The string that a text is, and nothing else.
fn text_alone(value: &str) -> Option<Text<'_>> {
    let mut scanner = Scanner::new(value, usize::MAX);
    let text = scanner.text().ok()?;
    scanner.end().ok().map(|()| text)
}

/// Where the objects of a value stand, in the order of the text; empty ones are left out.
struct Objects<'a> {
    text: &'a str,
    objects: SmallVec<[Object; 4]>,
    /// Offsets of keys. Those of one object are together, and sorted.
    keys: SmallVec<[u32; 16]>,
    /// Long strings, in the order of the text: they are looked at once.
    strings: SmallVec<[(u32, Text<'a>); 2]>,
}

#[derive(Clone, Copy)]
struct Object {
    at: u32,
    end: u32,
    first_key: u32,
    key_count: u32,
}

impl<'a> Objects<'a> {
    /// `None` when the text is not one JSON value (or is longer than any body may be).
    fn of(text: &'a str) -> Option<Self> {
        u32::try_from(text.len()).ok()?;
        let mut scanner = Scanner::new(text, usize::MAX);
        let objects = Objects {
            text,
            objects: SmallVec::new(),
            keys: SmallVec::new(),
            strings: SmallVec::new(),
        };
        let mut survey = Survey { objects, open: SmallVec::new(), pending: SmallVec::new() };
        scanner.walk(&mut survey).ok()?;
        scanner.end().ok()?;
        Some(survey.objects)
    }

    /// The object that begins at an offset, unless it is empty.
    fn at(&self, at: usize) -> Option<Object> {
        let found = self.objects.binary_search_by_key(&at, |object| object.at as usize).ok()?;
        self.objects.get(found).copied()
    }

    /// The long string that begins at an offset, and where it ends.
    fn string(&self, at: usize) -> Option<(Text<'a>, usize)> {
        let found = self.strings.binary_search_by_key(&at, |(at, _)| *at as usize).ok()?;
        let (_, text) = self.strings.get(found)?;
        Some((*text, at + text.quoted_length()))
    }

    fn feed(&self, out: &mut Out<'_, impl FnMut(&[u8])>) {
        let mut open = Levels::new();
        let mut at = 0;
        // The text is known to be valid, so each step finds what it expects; an error ends the walk.
        while let Ok(next) = self.value(at, &mut open, out) {
            match self.after(next, &mut open, out) {
                Some(next) => at = next,
                None => return,
            }
        }
    }

    /// Feeds what begins at an offset, down to the first scalar or empty container in it, and opens
    /// the containers on the way; where that scalar ends.
    fn value(
        &self,
        at: usize,
        open: &mut Levels,
        out: &mut Out<'_, impl FnMut(&[u8])>,
    ) -> Result<usize, BodyFault> {
        let mut at = at;
        loop {
            let mut scanner = Scanner::from(self.text, at);
            match scanner.kind()? {
                Kind::String => {
                    if let Some((text, end)) = self.string(scanner.offset()) {
                        out.string(&text);
                        return Ok(end);
                    }
                    out.string(&scanner.text()?);
                }
                Kind::Number => out.number(scanner.number()?),
                Kind::Null | Kind::Bool => out.put(scanner.skip()?.raw.as_bytes()),
                Kind::Array => {
                    if let Some(end) = scanner.empty_array() {
                        out.put(b"[]");
                        return Ok(end);
                    }
                    out.put(b"[");
                    open.push(Open::Array);
                    at = scanner.offset();
                    continue;
                }
                Kind::Object => {
                    let Some(object) = self.at(scanner.offset()) else {
                        out.put(b"{}");
                        return scanner.skip().map(|_| scanner.offset());
                    };
                    out.put(b"{");
                    open.push(Open::Object { object, fed: 1 });
                    at = self.key(object.first_key, out)?;
                    continue;
                }
            }
            return Ok(scanner.offset());
        }
    }

    /// Feeds what stands between a value and the next; where that is, or `None` at the end.
    fn after(
        &self,
        mut at: usize,
        open: &mut Levels,
        out: &mut Out<'_, impl FnMut(&[u8])>,
    ) -> Option<usize> {
        loop {
            match open.last_mut()? {
                Open::Array => {
                    let mut scanner = Scanner::from(self.text, at);
                    at = scanner.mark() + 1;
                    if self.text.as_bytes().get(at - 1) == Some(&b',') {
                        out.put(b",");
                        return Some(at);
                    }
                    out.put(b"]");
                }
                Open::Object { object, fed } if *fed < object.key_count => {
                    let key = object.first_key + *fed;
                    *fed += 1;
                    out.put(b",");
                    return self.key(key, out).ok();
                }
                Open::Object { object, .. } => {
                    at = object.end as usize;
                    out.put(b"}");
                }
            }
            open.pop();
        }
    }

    /// Feeds a key and its colon; where its value begins.
    fn key(&self, key: u32, out: &mut Out<'_, impl FnMut(&[u8])>) -> Result<usize, BodyFault> {
        let at = self.keys.get(key as usize).copied().unwrap_or_default();
        let mut scanner = Scanner::from(self.text, at as usize);
        out.string(&scanner.key()?);
        out.put(b":");
        Ok(scanner.offset())
    }
}

/// The containers that are being fed, innermost last.
type Levels = SmallVec<[Open; 4]>;

enum Open {
    Array,
    Object {
        object: Object,
        /// How many of its keys are fed.
        fed: u32,
    },
}

/// A string is long from here on: then noting it costs less than looking at it again.
const LONG: usize = 64;

/// The first pass.
struct Survey<'a> {
    objects: Objects<'a>,
    /// For each open object: where it begins, its entry once it has a key, its first pending key.
    open: SmallVec<[(usize, Option<usize>, usize); 4]>,
    /// Keys of the open objects, each with its offset.
    pending: SmallVec<[(u32, Text<'a>); 8]>,
}

// Every offset fits: the text was measured first.
#[expect(clippy::cast_possible_truncation, reason = "no offset is above the measured length")]
impl<'a> Observer<'a> for Survey<'a> {
    fn object(&mut self, at: usize) {
        self.open.push((at, None, self.pending.len()));
    }

    fn string(&mut self, text: Text<'a>, at: usize) {
        if text.raw().len() >= LONG {
            self.objects.strings.push((at as u32, text));
        }
    }

    fn key(&mut self, key: Text<'a>, at: usize) -> Result<(), BodyFault> {
        if let Some((begin, entry, _)) = self.open.last_mut() {
            if entry.is_none() {
                *entry = Some(self.objects.objects.len());
                let at = *begin as u32;
                self.objects.objects.push(Object { at, end: 0, first_key: 0, key_count: 0 });
            }
            self.pending.push((at as u32, key));
        }
        Ok(())
    }

    fn end_object(&mut self, end: usize) {
        let Some((_, Some(entry), first)) = self.open.pop() else { return };
        let Objects { objects, keys, .. } = &mut self.objects;
        let own = &mut self.pending[first..];
        // Stable: where a key stands twice, the order of the two values is part of the value.
        own.sort_by(|(_, one), (_, other)| order(one, other));
        if let Some(object) = objects.get_mut(entry) {
            object.end = end as u32;
            object.first_key = keys.len() as u32;
            object.key_count = own.len() as u32;
        }
        keys.extend(own.iter().map(|(at, _)| *at));
        self.pending.truncate(first);
    }
}

/// The order of two keys by RFC 8785, which is that of their UTF-16 code units.
fn order(one: &Text<'_>, other: &Text<'_>) -> Ordering {
    if let (Some(&first), Some(&second)) =
        (one.raw().as_bytes().first(), other.raw().as_bytes().first())
        && first != second
        && first.max(second) < 0x80
        && first != b'\\'
        && second != b'\\'
    {
        return first.cmp(&second);
    }
    let plain = |key: &Text<'_>| !key.is_escaped() && key.raw().is_ascii();
    if plain(one) && plain(other) {
        return one.raw().cmp(other.raw());
    }
    units(one.raw()).cmp(units(other.raw()))
}

fn units(key: &str) -> impl Iterator<Item = u16> {
    pieces(key).flat_map(|piece| {
        let (plain, own) = match piece {
            Piece::Plain(plain) => (plain, [None, None]),
            Piece::Lone(unit) => ("", [Some(unit), None]),
            Piece::Char(character) => {
                let mut units = [0; 2];
                let mut units = character.encode_utf16(&mut units).iter().copied();
                ("", [units.next(), units.next()])
            }
        };
        plain.encode_utf16().chain(own.into_iter().flatten())
    })
}

/// Writes to the sink.
struct Out<'s, S> {
    sink: &'s mut S,
}

impl<S: FnMut(&[u8])> Out<'_, S> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        (self.sink)(bytes);
    }

    fn value(&mut self, value: &Value<'_>) {
        let raw = match value {
            Value::Text(text) => return self.string(text),
            Value::Raw(raw) => raw,
        };
        match raw.as_bytes().first() {
            Some(b'-' | b'0'..=b'9') => self.number(raw),
            Some(b'n' | b't' | b'f') => self.put(raw.as_bytes()),
            _ => {
                // It was read, so it is valid.
                let _ = feed_valid(raw, self.sink);
            }
        }
    }

    /// A string in RFC 8785's form: only what must be escaped is, in its shortest way.
    fn string(&mut self, text: &Text<'_>) {
        self.put(b"\"");
        match text.canonical() {
            Some(raw) => self.put(raw.as_bytes()),
            None => self.escaped(text.raw()),
        }
        self.put(b"\"");
    }

    /// All two-character escapes but `\/` are canonical as they stand, and so is the text around them:
    /// only the rest is spelled anew.
    fn escaped(&mut self, raw: &str) {
        let bytes = raw.as_bytes();
        let (mut fed, mut at) = (0, 0);
        while let Some(found) = memchr::memchr(b'\\', &bytes[at..]) {
            let escape = at + found;
            at = escape + 2;
            if let Some(b'u' | b'/') = bytes.get(escape + 1) {
                let (piece, length) = escape_at(raw, escape);
                self.put(&bytes[fed..escape]);
                self.piece(piece);
                at = escape + length;
                fed = at;
            }
        }
        self.put(&bytes[fed..]);
    }

    fn piece(&mut self, piece: Piece<'_>) {
        let character = match piece {
            Piece::Plain(text) => return self.put(text.as_bytes()),
            Piece::Lone(unit) => return self.write(format_args!("\\u{unit:04x}")),
            Piece::Char(character) => character,
        };
        match character {
            '"' => self.put(b"\\\""),
            '\\' => self.put(b"\\\\"),
            '\u{8}' => self.put(b"\\b"),
            '\u{c}' => self.put(b"\\f"),
            '\n' => self.put(b"\\n"),
            '\r' => self.put(b"\\r"),
            '\t' => self.put(b"\\t"),
            '\0'..='\u{1f}' => self.write(format_args!("\\u{:04x}", u32::from(character))),
            _ => self.put(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }

    fn number(&mut self, literal: &str) {
        /// From here on ECMAScript, and so RFC 8785, writes an exponent.
        const EXPONENT_FROM: f64 = 1e21;
        if !literal.contains(['.', 'e', 'E']) {
            return self.put(if literal == "-0" { b"0" } else { literal.as_bytes() });
        }
        match literal.parse::<f64>() {
            Ok(0.0) => self.put(b"0"),
            // A whole number is the same in either spelling: `1e2`, `100.0`, `100`.
            Ok(value) if value.fract() == 0.0 && value.abs() < EXPONENT_FROM => {
                self.write(format_args!("{value}"));
            }
            Ok(value) if value.is_finite() => self.write(format_args!("{value:e}")),
            _ => self.put(literal.as_bytes()),
        }
    }

    fn invalid(&mut self, text: &str) {
        self.put(&[1]);
        for (position, piece) in text.split('\0').enumerate() {
            if position > 0 {
                self.put(b"\\u0000");
            }
            self.put(piece.as_bytes());
        }
    }

    fn write(&mut self, text: fmt::Arguments<'_>) {
        // Writing here does not fail.
        let _ = self.write_fmt(text);
    }
}

impl<S: FnMut(&[u8])> fmt::Write for Out<'_, S> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.put(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value as Tree;

    fn canonical(text: &str) -> String {
        let mut out = Vec::new();
        let mut sink = |bytes: &[u8]| out.extend_from_slice(bytes);
        if !feed_valid(text, &mut sink) {
            feed_invalid(text, &mut sink);
        }
        assert!(!out.contains(&0));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn equal_values_in_other_spellings() {
        let table = [
            (" null ", "null"),
            (r#"{"b":1, "a" : [ true ,false,{ } , [ ]]}"#, r#"{"a":[true,false,{},[]],"b":1}"#),
            (r#""\u00e9\/\u000a\u0001\"\\""#, "\"é/\\n\\u0001\\\"\\\\\""),
            (r#""\uD83D\uDE00""#, "\"😀\""),
            (r#""a\uD83D""#, r#""a\ud83d""#),
            (
                r#"{"z":{"y":{"b":[{"d":1,"c":2}],"a":0},"x":1},"\u0061":0}"#,
                r#"{"a":0,"z":{"x":1,"y":{"a":0,"b":[{"c":2,"d":1}]}}}"#,
            ),
            // RFC 8785, section 3.2.3: sorted by UTF-16 code units.
            (
                "{\"\u{20ac}\":1,\"\\r\":2,\"\u{fb33}\":3,\"1\":4,\"\u{1f600}\":5,\"\u{80}\":6,\"\u{f6}\":7}",
                "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"\u{f6}\":7,\"\u{20ac}\":1,\"\u{1f600}\":5,\"\u{fb33}\":3}",
            ),
            ("1.0", "1"),
            ("-0", "0"),
            ("-0.0", "0"),
            ("0e5", "0"),
            ("1e2", "100"),
            ("1E+2", "100"),
            ("120000.0", "120000"),
            ("0.10", "1e-1"),
            ("1e-1", "1e-1"),
            ("1e20", "100000000000000000000"),
            ("100000000000000000000", "100000000000000000000"),
            ("1e22", "1e22"),
            ("1.50", "1.5e0"),
            ("12345678901234567890123", "12345678901234567890123"),
            ("1e999", "1e999"),
            ("9007199254740993", "9007199254740993"),
        ];
        for (text, wanted) in table {
            assert_eq!(canonical(text), wanted, "{text}");
            assert_eq!(canonical(wanted), wanted, "not a fixed point: {wanted}");
        }
    }

    #[test]
    fn different_values_differ() {
        let table = [
            ("9007199254740993", "9007199254740992"),
            ("1", "\"1\""),
            ("null", "\"null\""),
            ("[[1],2]", "[[1,2]]"),
            (r#"{"a":1,"a":2}"#, r#"{"a":2,"a":1}"#),
            (r#""\\ud83d""#, r#""\ud83d""#),
            ("[]", "{}"),
            ("[1,2]", "[2,1]"),
            (r#""\u0000""#, r#""""#),
            ("1e999", "1e998"),
        ];
        for (one, other) in table {
            assert_ne!(canonical(one), canonical(other), "{one} {other}");
        }
    }

    #[test]
    fn long_texts_go_through_in_one_piece() {
        let text = format!("\"{}\"", "x".repeat(100_000));
        let mut longest = 0;
        assert!(feed_valid(&text, &mut |bytes| longest = longest.max(bytes.len())));
        assert_eq!(longest, 100_000);
    }

    #[test]
    fn what_was_read_before_makes_no_difference() {
        let long = "x\\u0041\\n".repeat(30);
        for text in ["", "a", r"\u0041\/", r"\n", long.as_str()] {
            let nested = format!(r#"["{text}", {{"d":1,"c":"{text}"}}]"#);
            let value = format!(
                r#"{{"b": "{text}" ,"a":{nested},"\u0060":-0,"d":1.0,"c":null,"é":{{}},"e":true}}"#
            );
            let mut members = Vec::new();
            let read = Scanner::new(&value, 8).members(|value, key, _| {
                let value = match value.kind()? {
                    Kind::String => Value::Text(value.text()?),
                    _ => Value::Raw(value.skip()?.raw),
                };
                members.push(Member { key, value });
                Ok(())
            });
            read.unwrap();
            let (mut out, mut alone) = (Vec::new(), Vec::new());
            feed_object(&members, &mut |bytes| out.extend_from_slice(bytes));
            assert_eq!(String::from_utf8(out).unwrap(), canonical(&value));
            let Value::Text(text_of) = &members[0].value else { panic!("no text") };
            feed_text(text_of, &mut |bytes| alone.extend_from_slice(bytes));
            assert_eq!(String::from_utf8(alone).unwrap(), canonical(&format!("\"{text}\"")));
        }
        let mut empty = Vec::new();
        feed_object(&[], &mut |bytes| empty.extend_from_slice(bytes));
        assert_eq!(empty, b"{}");
    }

    #[test]
    fn what_is_not_json_is_kept_apart() {
        assert_eq!(canonical("{\"a\":\u{0}"), "\u{1}{\"a\":\\u0000");
        assert_ne!(canonical("[1"), canonical("[1]"));
    }

    #[test]
    fn deep_nesting_takes_linear_work() {
        // Quadratic work, or recursion, would not come to an end here.
        let deep = format!("{}1{}", "{\"b\":1,\"a\":[".repeat(200_000), "]}".repeat(200_000));
        assert!(canonical(&deep).ends_with("],\"b\":1}],\"b\":1}"));
    }

    fn value() -> impl Strategy<Value = Tree> {
        let leaf = prop_oneof![
            Just(Tree::Null),
            any::<bool>().prop_map(Tree::from),
            any::<i64>().prop_map(Tree::from),
            any::<f64>().prop_filter("finite", |x| x.is_finite()).prop_map(Tree::from),
            "[ -~é中😀\u{0}-\u{1f}]{0,6}".prop_map(Tree::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Tree::from),
                prop::collection::btree_map("[a-cé😀\u{fb33}\n\"]{0,2}", inner, 0..5)
                    .prop_map(|map| Tree::Object(map.into_iter().collect())),
            ]
        })
    }

    /// The same value spelled otherwise: keys backwards, white space, every character escaped.
    fn respelled(value: &Tree, escape: bool, out: &mut String) {
        let text = |text: &str| {
            let units = text.encode_utf16().map(|unit| format!("\\u{unit:04X}"));
            if escape {
                format!("\"{}\"", units.collect::<String>())
            } else {
                Tree::from(text).to_string()
            }
        };
        match value {
            Tree::String(string) => out.push_str(&text(string)),
            Tree::Array(items) => {
                out.push('[');
                for (position, item) in items.iter().enumerate() {
                    out.push_str(if position > 0 { " ,\n" } else { " " });
                    respelled(item, escape, out);
                }
                out.push(']');
            }
            Tree::Object(members) => {
                out.push('{');
                for (position, (key, item)) in members.iter().rev().enumerate() {
                    out.push_str(if position > 0 { "\t," } else { "\r" });
                    out.push_str(&text(key));
                    out.push_str(" : ");
                    respelled(item, escape, out);
                }
                out.push('}');
            }
            other => out.push_str(&other.to_string()),
        }
    }

    proptest! {
        #[test]
        fn spelling_does_not_matter(value in value(), escape in any::<bool>()) {
            let mut other = String::new();
            respelled(&value, escape, &mut other);
            let canonical_text = canonical(&value.to_string());
            prop_assert_eq!(canonical(&other), &*canonical_text);
            prop_assert_eq!(canonical(&canonical_text), canonical_text);
        }

        #[test]
        fn values_differ_as_their_canonical_forms_do(one in value(), other in value()) {
            let (a, b) = (canonical(&one.to_string()), canonical(&other.to_string()));
            // Read back, a canonical form is the value again; integers and floats of one value are one.
            let read = |text: &str| serde_json::from_str::<Tree>(text).unwrap();
            prop_assert_eq!(a == b, read(&a) == read(&b));
        }

        #[test]
        fn a_changed_leaf_changes_the_form(value in value(), name in "[a-z]{1,3}") {
            let wrapped = |leaf: Tree| canonical(&serde_json::json!({"k": value, "l": [leaf]}).to_string());
            prop_assert_ne!(wrapped(Tree::from(name.clone())), wrapped(Tree::from(format!("{name}!"))));
        }

        #[test]
        fn no_text_makes_it_panic(text in any::<String>()) {
            canonical(&text);
        }
    }
}
