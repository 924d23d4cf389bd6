//! The events of a captured stream, however they were saved: as the event stream itself, as a list of chunks,
//! or as one chunk on each line.

use super::look::Node;
use crate::guard::screen::Payload;
use crate::guard::stream::{Heard, Listening, unfinished};
use crate::wire::chunk::Chunk;
use crate::wire::json::{BodyFault, Field};
use crate::wire::sse::{Decoder, Event};
use bytes::Bytes;

/// Events, each with the offset of its payload in the body.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    events: Vec<(Event, usize)>,
    /// What stood behind the last event's blank line.
    left: Bytes,
    /// Its offset.
    left_at: usize,
}

impl Chunks {
    /// Of an event stream.
    pub(super) fn of_stream(body: &[u8]) -> Self {
        let mut decoder = Decoder::default();
        decoder.push(Bytes::copy_from_slice(body));
        let mut chunks = Chunks::default();
        let mut at = 0;
        while let Some(event) = decoder.next_event() {
            let length = event.wire.len();
            let payload = at + payload(&event.wire);
            chunks.events.push((event, payload));
            at += length;
        }
        chunks.left = decoder.finish();
        chunks.left_at = at + payload(&chunks.left);
        chunks
    }

    /// Of chunks in a list, or one on each line.
    pub(super) fn of_values_in(bytes: &[u8]) -> Self {
        let text = std::str::from_utf8(bytes).unwrap_or_default();
        if let Ok(list) = Node::parse(text)
            && list.is_list()
        {
            return Chunks::of_values(list.items());
        }
        let mut at = 0;
        let lines = text.split_inclusive('\n').filter_map(|line| {
            let begins = at + (line.len() - line.trim_ascii_start().len());
            at += line.len();
            let raw = line.trim_ascii();
            (!raw.is_empty()).then_some(Node { at: begins, raw })
        });
        Chunks::of_values(lines)
    }

    fn of_values<'a>(values: impl IntoIterator<Item = Node<'a>>) -> Self {
        let event = |node: Node<'_>| {
            let data = Bytes::copy_from_slice(node.raw.as_bytes());
            (
                Event { wire: data.clone(), data: Some(data), name: None, lines: 1, stray: false },
                node.at,
            )
        };
        Chunks { events: values.into_iter().map(event).collect(), ..Chunks::default() }
    }

    /// Where an event's payload stands; behind the last, where that stands.
    pub(super) fn offset(&self, event: usize) -> usize {
        let last = || {
            if self.left.is_empty() {
                self.events.last().map_or(0, |(_, at)| *at)
            } else {
                self.left_at
            }
        };
        self.events.get(event).map_or_else(last, |(_, at)| *at)
    }

    /// Why an event holds no chunk, when it holds none.
    pub(super) fn flaw(&self, event: usize, max_depth: usize) -> Option<BodyFault> {
        let last = unfinished(self.left.clone());
        let event = self.events.get(event).map(|(event, _)| event).or(last.as_ref())?;
        Chunk::parse(event.data.as_deref()?.trim_ascii(), max_depth).err()
    }

    /// What the rules hear.
    pub(super) fn heard(&self, n: u64, max_depth: usize, max_held: usize) -> Heard {
        let mut listening = Listening::new(n, max_depth, max_held);
        self.events.iter().for_each(|(event, _)| listening.take(event));
        listening.finish(self.left.clone())
    }

    /// Which event brought what, for telling where a fault stands.
    pub(super) fn seen(&self, max_depth: usize) -> Seen {
        let mut seen = Seen { choices: 1, ..Seen::default() };
        for (number, (event, _)) in self.events.iter().enumerate() {
            seen.take(number, event, max_depth);
        }
        if let Some(event) = unfinished(self.left.clone()) {
            seen.take(self.events.len(), &event, max_depth);
        }
        seen
    }
}

/// Where the value of the first data line begins.
fn payload(wire: &[u8]) -> usize {
    let begins = |at: usize| at == 0 || matches!(wire[at - 1], b'\n' | b'\r' | 0xbf);
    let line = memchr::memmem::find_iter(wire, b"data:").find(|at| begins(*at));
    line.map_or(0, |at| {
        let value = at + b"data:".len();
        value + usize::from(wire.get(value) == Some(&b' '))
    })
}

/// Which event of a stream brought what first.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// How many choices it has, by their highest index; 1 at least.
    pub(super) choices: u64,
    /// The first event of each place: `choices[0].message.tool_calls[1]` and those around it.
    places: Vec<(String, usize)>,
    last: usize,
}

impl Seen {
    fn take(&mut self, number: usize, event: &Event, max_depth: usize) {
        let payload = Payload::of(event, max_depth);
        let Payload::Chunk(chunk) = payload else { return };
        self.last = number;
        for choice in &chunk.choices {
            self.choices = self.choices.max(choice.index.saturating_add(1)).min(128);
            let name = format!("choices[{}]", choice.index);
            for fragment in &choice.tool_calls {
                let at = fragment.index.unwrap_or(0);
                self.first(format!("{name}.message.tool_calls"), number);
                self.first(format!("{name}.message.tool_calls[{at}]"), number);
            }
            if choice.function_call.is_some() {
                self.first(format!("{name}.message.tool_calls"), number);
                self.first(format!("{name}.message.function_call"), number);
            }
            if !matches!(choice.finish_reason, Field::Absent | Field::Null) {
                self.first(format!("{name}.finish_reason"), number);
            }
        }
    }

    fn first(&mut self, place: String, number: usize) {
        if !self.places.iter().any(|(known, _)| *known == place) {
            self.places.push((place, number));
        }
    }

    /// The event at which a fault's place is told: where the innermost thing that came began, or the end.
    pub(super) fn event_of(&self, place: &str) -> usize {
        let inside = |known: &str| {
            place
                .strip_prefix(known)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let nearest = self.places.iter().filter(|(known, _)| inside(known));
        nearest.max_by_key(|(known, _)| known.len()).map_or(self.last, |(_, number)| *number)
    }
}

/// Chunks of one stream on lines of their own.
#[derive(Default)]
pub(super) struct ChunkRun {
    /// The number of its first line.
    pub(super) line: usize,
    /// Those lines.
    pub(super) bytes: Vec<u8>,
    lines: usize,
    id: String,
    finished: bool,
}

impl ChunkRun {
    /// Whether a chunk belongs to another stream: it bears another id, and this one was finished.
    pub(super) fn is_over(&self, chunk: Node<'_>) -> bool {
        let id = chunk.member("id").map_or("", |id| id.raw);
        self.finished && !self.id.is_empty() && id != self.id
    }

    /// Takes the chunk of a line.
    pub(super) fn take(&mut self, line: usize, bytes: &[u8], chunk: Node<'_>) {
        if self.bytes.is_empty() {
            (self.line, self.lines) = (line, line);
        }
        // Blank lines between them keep their numbers.
        self.bytes.extend(std::iter::repeat_n(b'\n', line - self.lines));
        self.bytes.extend_from_slice(bytes.trim_ascii_end());
        self.bytes.push(b'\n');
        self.lines = line + 1;
        self.id = chunk.member("id").map_or("", |id| id.raw).to_owned();
        let choices = chunk.member("choices").map(Node::items).unwrap_or_default();
        self.finished |= choices.iter().any(|choice| {
            choice.member("finish_reason").is_some_and(|reason| reason.raw != "null")
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &str = r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"a","function":{"name":"f"}}]}}]}"#;

    #[test]
    fn payloads_are_found_in_the_body() {
        let body = format!("\u{feff}data: {{}}\n\n: note\nevent: x\ndata:{CALL}\r\n\r\ndata: torn");
        let chunks = Chunks::of_stream(body.as_bytes());
        assert_eq!(chunks.events.len(), 2);
        assert!(body[chunks.offset(0)..].starts_with("{}"));
        assert!(body[chunks.offset(1)..].starts_with(CALL));
        assert_eq!(&body[chunks.offset(2)..], "torn");
    }

    #[test]
    fn a_place_is_told_at_the_event_that_brought_it() {
        let end = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}"#;
        let text = r#"{"choices":[{"index":0,"delta":{"content":"x"}}]}"#;
        let body = format!("data: {text}\n\ndata: {CALL}\n\ndata: {end}\n\ndata: {text}\n\n");
        let seen = Chunks::of_stream(body.as_bytes()).seen(16);
        for (place, event) in [
            ("choices[0].message.tool_calls[1].function.arguments", 1),
            ("choices[0].message.tool_calls[2].id", 1),
            ("choices[0].message.tool_calls", 1),
            ("choices[0].finish_reason", 2),
            ("choices[1].finish_reason", 3),
            ("choices", 3),
        ] {
            assert_eq!(seen.event_of(place), event, "{place}");
        }
        assert_eq!(seen.choices, 1);
    }
}
