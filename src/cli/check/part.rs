//! A body in a document, and the way back: from an offset in the body to a line and a column of the file.
//!
//! A body may stand there as it is, inside a JSON string (a HAR file), in pieces (a log that keeps messages
//! and tools apart), or encoded. Its offsets are told as those of the file that was given.

use crate::wire::json::Text;
use std::borrow::Cow;

/// What was read, or one line of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Document<'a> {
    /// Its bytes.
    pub(super) bytes: &'a [u8],
    /// The number of its first line.
    pub(super) line: usize,
}

impl Document<'_> {
    /// Line and column of an offset, both from 1. Columns count characters.
    pub(super) fn position(self, offset: usize) -> (usize, usize) {
        let before = self.bytes.get(..offset).unwrap_or(self.bytes);
        let line = self.line + memchr::memchr_iter(b'\n', before).count();
        let start = memchr::memrchr(b'\n', before).map_or(0, |at| at + 1);
        let characters = before[start..].iter().filter(|byte| (**byte & 0xc0) != 0x80).count();
        (line, characters + 1)
    }
}

/// A body.
#[derive(Clone, Debug)]
pub(super) struct Part<'a> {
    /// Its bytes.
    pub(super) bytes: Cow<'a, [u8]>,
    /// Where they stand.
    origin: Origin<'a>,
}

#[derive(Clone, Debug)]
enum Origin<'a> {
    /// As they are, from an offset on.
    At(usize),
    /// In a string whose inside stands at an offset.
    Quoted(usize, &'a str),
    /// In pieces: where each begins in the body, and in the document.
    Pieces(Vec<(usize, usize)>),
    /// Encoded: only where that begins is known.
    Encoded(usize),
}

impl<'a> Part<'a> {
    /// Bytes that stand in the document, from an offset on.
    pub(super) fn at(at: usize, bytes: &'a [u8]) -> Self {
        Part { bytes: Cow::Borrowed(bytes), origin: Origin::At(at) }
    }

    /// What a JSON string holds, the opening quote of which stands at an offset.
    pub(super) fn quoted(at: usize, text: Text<'a>) -> Self {
        let bytes = match text.decode() {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        };
        Part { bytes, origin: Origin::Quoted(at + 1, text.raw()) }
    }

    /// Bytes that were decoded from what begins at an offset.
    pub(super) fn encoded(at: usize, bytes: Vec<u8>) -> Self {
        Part { bytes: Cow::Owned(bytes), origin: Origin::Encoded(at) }
    }

    /// The offset in the document of an offset in the body.
    pub(super) fn offset(&self, inside: usize) -> usize {
        match &self.origin {
            Origin::At(at) => at + inside,
            Origin::Quoted(at, raw) => at + offset_in_raw(raw, inside),
            Origin::Encoded(at) => *at,
            Origin::Pieces(pieces) => {
                let piece = pieces.partition_point(|(begins, _)| *begins <= inside).checked_sub(1);
                match piece.and_then(|piece| pieces.get(piece)) {
                    Some((begins, at)) => at + (inside - begins),
                    None => pieces.first().map_or(0, |(_, at)| *at),
                }
            }
        }
    }
}

/// A body that is put together.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    bytes: Vec<u8>,
    pieces: Vec<(usize, usize)>,
}

impl Pieces {
    /// Adds what stands in the document at an offset.
    pub(super) fn take(&mut self, at: usize, raw: &str) -> &mut Self {
        self.pieces.push((self.bytes.len(), at));
        self.bytes.extend_from_slice(raw.as_bytes());
        self
    }

    /// Adds what stands nowhere: a key, a comma. A fault in it is told at the last piece's end.
    pub(super) fn add(&mut self, text: &str) -> &mut Self {
        self.bytes.extend_from_slice(text.as_bytes());
        self
    }

    pub(super) fn whole<'a>(self) -> Part<'a> {
        Part { bytes: Cow::Owned(self.bytes), origin: Origin::Pieces(self.pieces) }
    }
}

/// The offset in a JSON string's raw text of an offset in what it stands for.
fn offset_in_raw(raw: &str, decoded: usize) -> usize {
    let bytes = raw.as_bytes();
    let (mut at, mut left) = (0, decoded);
    while left > 0 && at < bytes.len() {
        let plain = memchr::memchr(b'\\', &bytes[at..]).unwrap_or(bytes.len() - at);
        if plain > 0 {
            let step = plain.min(left);
            (at, left) = (at + step, left - step);
            continue;
        }
        let (length, stands_for) = escape(&raw[at..]);
        if stands_for > left {
            break;
        }
        (at, left) = (at + length, left - stands_for);
    }
    at
}

/// Length of the escape that begins a text, and the bytes of what it stands for. As in
/// [`Text::decode`], a surrogate without its partner stands for itself.
fn escape(text: &str) -> (usize, usize) {
    let unit = |at: usize| text.get(at..at + 4).and_then(|hex| u16::from_str_radix(hex, 16).ok());
    if text.as_bytes().get(1) != Some(&b'u') {
        return (2, 1);
    }
    let first = unit(2).unwrap_or_default();
    if let Some(character) = char::from_u32(u32::from(first)) {
        return (6, character.len_utf8());
    }
    let second = if text.get(6..8) == Some("\\u") { unit(8) } else { None };
    let pair = char::decode_utf16([Some(first), second].into_iter().flatten()).next();
    if matches!(pair, Some(Ok(_))) { (12, 4) } else { (6, 6) }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::super::look::Node;
    use super::*;

    #[test]
    fn lines_and_columns_count_from_one_and_columns_count_characters() {
        let document = Document { bytes: "ab\né中x\n".as_bytes(), line: 1 };
        assert_eq!(document.position(0), (1, 1));
        assert_eq!(document.position(2), (1, 3));
        assert_eq!(document.position(3), (2, 1));
        assert_eq!(document.position(8), (2, 3));
        assert_eq!(document.position(99), (3, 1));
        assert_eq!(Document { line: 7, ..document }.position(3), (8, 1));
    }

    #[test]
    fn an_offset_in_a_string_is_told_where_it_stands_in_the_file() {
        let text = r#"  "a\n\u00e9\"\ud83d\ude00\ud83d中z""#;
        let node = Node::parse(text).unwrap();
        let part = Part::quoted(node.at, node.field().text().unwrap());
        let inside = std::str::from_utf8(&part.bytes).unwrap();
        assert_eq!(inside, "a\né\"😀\\ud83d中z");
        for (inner, outer) in
            [("a", "a"), ("\n", "\\n"), ("é", "\\u00e9"), ("😀", "\\ud83d\\ude"), ("z", "z")]
        {
            let at = part.offset(inside.find(inner).unwrap());
            assert!(text[at..].starts_with(outer), "{inner}: {at}");
        }
        assert_eq!(&text[part.offset(inside.len())..], "\"");
    }

    #[test]
    fn pieces_remember_where_they_stood() {
        let mut pieces = Pieces::default();
        pieces.add("{\"messages\":").take(100, "[1,2]").add(",\"tools\":").take(40, "[3]").add("}");
        let part = pieces.whole();
        assert_eq!(&*part.bytes, br#"{"messages":[1,2],"tools":[3]}"#);
        assert_eq!(part.offset(15), 103);
        assert_eq!(part.offset(27), 41);
        assert_eq!(part.offset(0), 100);
    }
}
