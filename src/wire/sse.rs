//! An incremental server-sent-event decoder, by the WHATWG HTML standard, section 9.2.6.
//!
//! It must be able to give back what it took: the `wire` bytes of all events, and then
//! [`Decoder::finish`], are the stream byte for byte, however it was cut. Bytes are looked at once; an
//! event that lies within one pushed buffer is a slice of it, and only one that spans buffers is copied.
//!
//! An event is dispatched at its blank line. When that line ends with CR, the event is whole there and
//! is given out at once, for the next byte may never come. Should that byte be LF, it still belongs to
//! the same line end: it then leads the `wire` of the next event (or of `finish`) and makes no line of
//! its own.

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;

/// One event as it stood on the wire.
#[derive(Debug)]
pub struct Event {
    /// The event's own bytes, from its first line to its closing blank line, comments included.
    pub wire: Bytes,
    /// The joined `data` payload; `None` when the event has no data line.
    pub data: Option<Bytes>,
    /// Its name: the value of its last `event` line, if it has one.
    pub name: Option<Bytes>,
    /// How many lines its data came in.
    pub lines: usize,
    /// Whether a line that the standard ignores may be data to a client that reads lines in its own way.
    pub stray: bool,
}

impl Event {
    /// Whether it is named an error.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.name.as_ref().is_some_and(|name| name.eq_ignore_ascii_case(b"error"))
    }
}

/// Takes bytes as they come and gives whole events. Holds at most one unfinished event.
#[derive(Debug, Default)]
pub struct Decoder {
    /// What came before `queue` of the unfinished event, all of it scanned.
    tail: BytesMut,
    /// Buffers not yet used up; the first begins where `tail` ends.
    queue: VecDeque<Bytes>,
    /// How far the first buffer is scanned.
    scanned: usize,
    /// Where the current line begins, counted from the event's first byte.
    line: usize,
    /// The values of the event's data lines, counted likewise.
    values: SmallVec<[Range<usize>; 2]>,
    /// The value of the event's last `event` line, counted likewise.
    name: Option<Range<usize>>,
    /// Whether an ignored line of the event may be data to somebody.
    stray: bool,
    /// Whether the last scanned byte is a CR, so that an LF here is no line end of its own.
    after_cr: bool,
    /// Whether the stream's first line is past: only there a byte order mark is skipped.
    begun: bool,
}

impl Decoder {
    /// Takes the next bytes of the stream.
    pub fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.queue.push_back(bytes);
        }
    }

    /// The next whole event, if there is one. Slices of what was pushed where possible.
    pub fn next_event(&mut self) -> Option<Event> {
        while !self.queue.is_empty() {
            while let Some(end) = self.next_line_end() {
                if self.end_line(end) {
                    return Some(self.dispatch());
                }
            }
            // No blank line in this buffer: what is left of it waits for the rest of its event.
            if let Some(buffer) = self.queue.pop_front() {
                self.tail.extend_from_slice(&buffer);
            }
            self.scanned = 0;
        }
        None
    }

    /// Bytes held of an event that is not yet whole.
    #[must_use]
    pub fn held(&self) -> usize {
        self.queue.iter().fold(self.tail.len(), |sum, buffer| sum + buffer.len())
    }

    /// At the end of the stream: what was left of an unfinished event (which the standard discards).
    pub fn finish(mut self) -> Bytes {
        if self.tail.is_empty() && self.queue.len() == 1 {
            return self.queue.pop_front().unwrap_or_default();
        }
        for buffer in self.queue {
            self.tail.extend_from_slice(&buffer);
        }
        self.tail.freeze()
    }

    /// Scans the first buffer up to the next line end: the line's end, counted from the event's first
    /// byte. Afterwards `scanned` stands behind the whole line end, as far as that has come.
    fn next_line_end(&mut self) -> Option<usize> {
        let buffer = self.queue.front()?;
        if self.after_cr && self.scanned < buffer.len() {
            self.after_cr = false;
            if buffer[self.scanned] == b'\n' {
                self.scanned += 1;
                self.line += 1;
            }
        }
        let rest = buffer.get(self.scanned..)?;
        let Some(found) = memchr::memchr2(b'\r', b'\n', rest) else {
            self.scanned = buffer.len();
            return None;
        };
        let end = self.tail.len() + self.scanned + found;
        self.after_cr = rest[found] == b'\r';
        self.scanned += found + 1;
        if self.after_cr && rest.get(found + 1) == Some(&b'\n') {
            self.scanned += 1;
            self.after_cr = false;
        }
        Some(end)
    }

    /// Reads the line that ends at `end`; whether it is blank and so ends the event.
    fn end_line(&mut self, end: usize) -> bool {
        let mut start = self.line;
        if !self.begun {
            self.begun = true;
            // "one leading U+FEFF BYTE ORDER MARK character must be ignored if any are present"
            if end - start >= 3 && self.starts_with(start, b"\xef\xbb\xbf") {
                start += 3;
            }
        }
        self.line = self.tail.len() + self.scanned;
        if start == end {
            return true;
        }
        // A field name runs to the colon, or is the whole line; one space after the colon is dropped.
        if let Some(value) = self.value(start, end, b"data") {
            self.values.push(value);
        } else {
            if let Some(value) = self.value(start, end, b"event") {
                self.name = Some(value);
            }
            self.stray = self.stray || may_be_data(&self.bytes(start, end));
        }
        false
    }

    /// The value of a line, when its field has this name.
    fn value(&self, start: usize, end: usize, name: &[u8]) -> Option<Range<usize>> {
        let colon = start + name.len();
        if colon > end || !self.starts_with(start, name) {
            return None;
        }
        if colon == end {
            return Some(end..end);
        }
        let value = colon + 1;
        let spaced = usize::from(value < end && self.byte(value) == Some(b' '));
        (self.byte(colon) == Some(b':')).then_some(value + spaced..end)
    }

    /// Cuts off the event that was scanned.
    fn dispatch(&mut self) -> Event {
        let mut wire = Bytes::new();
        if let Some(buffer) = self.queue.front_mut() {
            wire = buffer.split_to(self.scanned);
            if buffer.is_empty() {
                self.queue.pop_front();
            }
        }
        if !self.tail.is_empty() {
            self.tail.extend_from_slice(&wire);
            wire = self.tail.split().freeze();
        }
        self.scanned = 0;
        self.line = 0;
        let data = joined(&wire, &self.values);
        let lines = self.values.len();
        self.values.clear();
        let name = self.name.take().map(|name| wire.slice(name));
        Event { wire, data, name, lines, stray: std::mem::take(&mut self.stray) }
    }

    /// A byte of the unfinished event.
    fn byte(&self, at: usize) -> Option<u8> {
        match at.checked_sub(self.tail.len()) {
            None => self.tail.get(at).copied(),
            Some(at) => self.queue.front()?.get(at).copied(),
        }
    }

    /// Bytes of the unfinished event, copied only where they stand in two buffers.
    fn bytes(&self, start: usize, end: usize) -> Cow<'_, [u8]> {
        let tail = self.tail.len();
        let ahead = self.queue.front().map_or(&[][..], |buffer| buffer);
        let of_tail = self.tail.get(start..end.min(tail)).unwrap_or_default();
        let of_ahead = start.saturating_sub(tail)..end.saturating_sub(tail);
        match (of_tail, ahead.get(of_ahead).unwrap_or_default()) {
            (of_tail, []) => Cow::Borrowed(of_tail),
            ([], of_ahead) => Cow::Borrowed(of_ahead),
            both => Cow::Owned([both.0, both.1].concat()),
        }
    }

    fn starts_with(&self, at: usize, word: &[u8]) -> bool {
        word.iter().enumerate().all(|(offset, &byte)| self.byte(at + offset) == Some(byte))
    }
}

/// Whether a line that is no data by the standard may be read as a chunk all the same. There are clients that
/// know no CR as the end of a line, that end lines at U+2028 and its kin, that trim lines, or drop a byte order
/// mark wherever one stands: each finds a `data` line where the standard has a comment or an unknown field.
/// A chunk needs a brace; a comment, or a field that the standard knows, would have to hold the word as well.
fn may_be_data(line: &[u8]) -> bool {
    const KNOWN: [&[u8]; 4] = [b":", b"event:", b"id:", b"retry:"];
    let Some(brace) = memchr::memrchr(b'{', line) else { return false };
    let known = KNOWN.iter().any(|field| line.starts_with(field));
    !known || memchr::memmem::find(&line[..brace], b"data").is_some()
}

/// The values of an event's data lines, joined by line feeds.
fn joined(wire: &Bytes, values: &[Range<usize>]) -> Option<Bytes> {
    match values {
        [] => None,
        [only] => Some(wire.slice(only.clone())),
        [first, rest @ ..] => {
            let length = values.iter().map(|value| value.len() + 1).sum();
            let mut data = BytesMut::with_capacity(length);
            data.extend_from_slice(&wire[first.clone()]);
            for value in rest {
                data.extend_from_slice(b"\n");
                data.extend_from_slice(&wire[value.clone()]);
            }
            Some(data.freeze())
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    /// The data of every event; the wires and the rest, joined.
    fn decode(pieces: &[&[u8]]) -> (Vec<Option<Vec<u8>>>, Vec<u8>) {
        let (mut decoder, mut data, mut wire) = (Decoder::default(), Vec::new(), Vec::new());
        for piece in pieces {
            decoder.push(Bytes::copy_from_slice(piece));
            while let Some(event) = decoder.next_event() {
                wire.extend_from_slice(&event.wire);
                data.push(event.data.map(|data| data.to_vec()));
            }
        }
        let held = decoder.held();
        let rest = decoder.finish();
        assert_eq!(held, rest.len());
        wire.extend_from_slice(&rest);
        (data, wire)
    }

    #[test]
    fn events_by_the_standard() {
        type Row<'a> = (&'a str, &'a [Option<&'a str>]);
        let table: &[Row<'_>] = &[
            ("data: a\n\n", &[Some("a")]),
            ("data:a\r\n\r\n", &[Some("a")]),
            ("data:  a\r\r", &[Some(" a")]),
            ("data: a\r\n\n", &[Some("a")]),
            ("data: a\n\r\n", &[Some("a")]),
            ("data: a\r\n\r", &[Some("a")]),
            ("data: a\ndata: b\n\n", &[Some("a\nb")]),
            ("data: a\nid: 1\r: note\rdata:b\nretry: 3\nevent: x\n\n", &[Some("a\nb")]),
            ("data\n\n", &[Some("")]),
            ("data:\n\n", &[Some("")]),
            ("data: \n\n", &[Some("")]),
            ("data\ndata\n\n", &[Some("\n")]),
            (": ping\n\n", &[None]),
            (":\n\ndata: x\n\n", &[None, Some("x")]),
            ("event: e\n\n", &[None]),
            ("\n\n\r\n", &[None, None, None]),
            ("\r\r\n", &[None, None]),
            ("datum: a\ndata b\n data: c\nDATA: d\nid\n\n", &[None]),
            ("data: a: b\n\n", &[Some("a: b")]),
            ("\u{feff}data: a\n\n", &[Some("a")]),
            ("\u{feff}\ndata: a\n\n", &[None, Some("a")]),
            ("\u{feff}\u{feff}data: a\n\n", &[None]),
            ("data: a\n\n\u{feff}data: b\n\n", &[Some("a"), None]),
            ("data: a\n", &[]),
            ("data: a", &[]),
            ("", &[]),
        ];
        for (text, wanted) in table {
            let wanted: Vec<_> =
                wanted.iter().map(|data| data.map(|s| s.as_bytes().to_vec())).collect();
            let whole = decode(&[text.as_bytes()]);
            assert_eq!(whole, (wanted.clone(), text.as_bytes().to_vec()), "{text:?}");
            let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(decode(&bytes), (wanted, text.as_bytes().to_vec()), "{text:?} by bytes");
        }
    }

    #[test]
    fn an_event_has_the_name_of_its_last_event_line() {
        let table = [
            ("event: error\ndata: a\n\n", Some("error"), true),
            ("data: a\r\nevent:Error\r\n\r\n", Some("Error"), true),
            ("event: error\nevent: message\n\n", Some("message"), false),
            ("event\ndata: a\n\n", Some(""), false),
            ("event:  error\n\n", Some(" error"), false),
            ("events: error\ndata: event: error\n\n", None, false),
            (": event: error\nEVENT: error\n\n", None, false),
        ];
        for (text, name, error) in table {
            for size in [1, 3, text.len()] {
                let mut decoder = Decoder::default();
                for piece in text.as_bytes().chunks(size) {
                    decoder.push(Bytes::copy_from_slice(piece));
                }
                let event = decoder.next_event().unwrap();
                assert_eq!(event.name.as_deref(), name.map(str::as_bytes), "{text:?}");
                assert_eq!(event.is_error(), error, "{text:?}");
                decoder.push(Bytes::from_static(b"data: next\n\n"));
                assert_eq!(decoder.next_event().unwrap().name, None);
            }
        }
    }

    #[test]
    fn an_event_within_one_buffer_is_a_slice_of_it() {
        let buffer = Bytes::from_static(b"data: one\n\ndata: two\n\n");
        let mut decoder = Decoder::default();
        decoder.push(buffer.clone());
        for at in [0, 11] {
            let event = decoder.next_event().unwrap();
            assert_eq!(event.wire.as_ptr(), buffer[at..].as_ptr());
            assert_eq!(event.data.unwrap().as_ptr(), buffer[at + 6..].as_ptr());
        }
        assert!(decoder.next_event().is_none());
        assert_eq!(decoder.held(), 0);
    }

    #[test]
    fn after_an_event_that_spans_buffers_the_next_is_a_slice_again() {
        let second = Bytes::from_static(b"ne\n\ndata: two\n\n");
        let mut decoder = Decoder::default();
        decoder.push(Bytes::from_static(b"data: o"));
        assert!(decoder.next_event().is_none());
        assert_eq!(decoder.held(), 7);
        decoder.push(second.clone());
        assert_eq!(decoder.next_event().unwrap().data.unwrap(), "one");
        assert_eq!(decoder.next_event().unwrap().wire.as_ptr(), second[4..].as_ptr());
    }

    #[test]
    fn a_cr_at_the_end_of_a_read_ends_the_event_at_once() {
        let mut decoder = Decoder::default();
        decoder.push(Bytes::from_static(b"data: a\r\n\r"));
        let first = decoder.next_event().unwrap();
        assert_eq!((first.wire, first.data.unwrap()), ("data: a\r\n\r".into(), "a".into()));
        decoder.push(Bytes::from_static(b"\ndata: b\n\n"));
        let second = decoder.next_event().unwrap();
        assert_eq!((second.wire, second.data.unwrap()), ("\ndata: b\n\n".into(), "b".into()));
        decoder.push(Bytes::from_static(b"data: c\r\r"));
        assert!(decoder.next_event().is_some());
        decoder.push(Bytes::from_static(b"\n"));
        assert!(decoder.next_event().is_none());
        assert_eq!(decoder.finish(), "\n");
    }

    #[test]
    fn a_long_event_in_small_reads_takes_linear_work() {
        // Quadratic work would take minutes here.
        let mut decoder = Decoder::default();
        decoder.push(Bytes::from_static(b"data: "));
        for _ in 0..500_000 {
            decoder.push(Bytes::from_static(b"0123456789abcdef"));
            assert!(decoder.next_event().is_none());
        }
        decoder.push(Bytes::from_static(b"\n\n"));
        assert_eq!(decoder.next_event().unwrap().data.unwrap().len(), 8_000_000);
    }

    #[test]
    fn lines_that_some_client_may_take_for_data_are_told() {
        let stray = |text: &str, cut: usize| {
            let mut decoder = Decoder::default();
            for piece in text.as_bytes().chunks(cut) {
                decoder.push(Bytes::copy_from_slice(piece));
            }
            let events: Vec<_> = std::iter::from_fn(|| decoder.next_event()).collect();
            events.iter().map(|event| event.stray).collect::<Vec<_>>()
        };
        let table: [(&str, &[bool]); 12] = [
            ("data: {}\n\n: x\n\n", &[false, false]),
            (" data: {}\n\ndata: {}\n\n", &[true, false]),
            ("data:\r{}\n\n", &[true]),
            ("\u{feff}data: {}\n\n\u{feff}data: {}\n\n", &[false, true]),
            (": {\"ping\":1}\n\n", &[false]),
            (": x\u{2028}data: {}\n\n", &[true]),
            (": {} data\n\n", &[false]),
            ("event: x\u{c}data: {}\n\n", &[true]),
            ("id: data {\n\n", &[true]),
            ("retry: 3\nfoo: bar\ndata: {}\n\n", &[false]),
            ("foo: {\ndata: {}\n\n", &[true]),
            ("{}\n\n", &[true]),
        ];
        for (text, wanted) in table {
            for cut in [1, 3, 100] {
                assert_eq!(stray(text, cut), wanted, "{text:?} {cut}");
            }
        }
    }

    fn stream() -> impl Strategy<Value = Vec<u8>> {
        const TOKENS: &[&[u8]] = &[
            b"data:",
            b"data",
            b" ",
            b"x",
            b"\n",
            b"\r",
            b"\r\n",
            b"\n\n",
            b"\r\n\r\n",
            b":",
            b"\xef\xbb\xbf",
            b"id: 1",
            "é".as_bytes(),
            b"\xff",
        ];
        let token = prop::sample::select(TOKENS);
        prop::collection::vec(token, 0..40).prop_map(|tokens| tokens.concat())
    }

    proptest! {
        #[test]
        fn no_split_changes_events_or_loses_a_byte(
            bytes in stream(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let whole = decode(&[&bytes]);
            prop_assert_eq!(&whole.1, &bytes);
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(decode(&pieces), whole);
        }

        #[test]
        fn it_does_not_matter_when_events_are_taken(bytes in stream(), size in 1usize..9) {
            let mut decoder = Decoder::default();
            for piece in bytes.chunks(size) {
                decoder.push(Bytes::copy_from_slice(piece));
            }
            let events = std::iter::from_fn(|| decoder.next_event());
            let data: Vec<_> = events.map(|event| event.data.map(|data| data.to_vec())).collect();
            prop_assert_eq!(data, decode(&[&bytes]).0);
        }
    }
}
