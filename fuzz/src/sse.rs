//! An event stream, cut anywhere: the events are those of the standard, and no byte is lost. The first byte says how it
//! is cut.

use super::bounds;
use bytes::Bytes;
use tigertally::wire::sse::{Decoder, Event};

/// What counts of an event.
type Seen = (Option<Vec<u8>>, Option<Vec<u8>>, usize, bool);

/// Takes bytes as a stream.
pub fn run(data: &[u8]) {
    let Some((&seed, stream)) = data.split_first() else { return };
    let (whole, rest) = bounds::hold(stream.len(), || decode(&[stream]));
    let pieces = cut(stream, seed);
    assert_eq!(decode(&pieces), (whole.clone(), rest.clone()), "a cut changes what is read");
    let bytes: Vec<&[u8]> = stream.chunks(1).collect();
    assert_eq!(decode(&bytes), (whole.clone(), rest), "one at a time changes what is read");
    let data: Vec<_> = whole.into_iter().map(|event| (event.1, event.0)).collect();
    assert_eq!(data, by_the_standard(stream));
}

/// Pieces of lengths that a seed gives.
pub(crate) fn cut(data: &[u8], seed: u8) -> Vec<&[u8]> {
    let (mut state, mut rest, mut pieces) = (u32::from(seed), data, Vec::new());
    while !rest.is_empty() {
        state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        let length = (state >> 16) as usize % (usize::from(seed) + 2);
        let (piece, after) = rest.split_at(length.clamp(1, rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

/// The events, and what is left; no byte may be lost on the way.
fn decode(pieces: &[&[u8]]) -> (Vec<Seen>, Vec<u8>) {
    let (mut seen, mut wire, mut pushed) = (Vec::new(), Vec::new(), 0);
    let rest = each(pieces, |event, held| {
        wire.extend_from_slice(&event.wire);
        pushed += event.wire.len();
        assert!(held <= pieces.iter().map(|piece| piece.len()).sum::<usize>() - pushed);
        let bytes = |bytes: &Option<Bytes>| bytes.as_ref().map(|bytes| bytes.to_vec());
        seen.push((bytes(&event.data), bytes(&event.name), event.lines, event.stray));
    });
    wire.extend_from_slice(&rest);
    assert_eq!(wire, pieces.concat());
    // A line feed behind a CR may still be of the last event or of what is left.
    (seen, rest.strip_prefix(b"\n").unwrap_or(&rest).to_vec())
}

/// Decodes pieces as they come, telling each event and what is held behind it; what is left.
pub(crate) fn each(pieces: &[&[u8]], mut take: impl FnMut(Event, usize)) -> Bytes {
    let mut decoder = Decoder::default();
    for piece in pieces {
        decoder.push(Bytes::copy_from_slice(piece));
        while let Some(event) = decoder.next_event() {
            let held = decoder.held();
            take(event, held);
        }
    }
    decoder.finish()
}

/// The name and the data of an event.
type Named = (Option<Vec<u8>>, Option<Vec<u8>>);

/// The events, read in the plainest way, over the whole stream.
fn by_the_standard(stream: &[u8]) -> Vec<Named> {
    let stream = stream.strip_prefix(b"\xef\xbb\xbf").unwrap_or(stream);
    let (mut events, mut name, mut data) = (Vec::new(), None, None::<Vec<u8>>);
    for line in lines(stream) {
        if line.is_empty() {
            events.push((name.take(), data.take()));
            continue;
        }
        let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &line[..colon] {
            b"event" => name = Some(value.to_vec()),
            b"data" => match &mut data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => data = Some(value.to_vec()),
            },
            _ => {}
        }
    }
    events
}

/// Whole lines, without their ends.
fn lines(mut rest: &[u8]) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
        lines.push(&rest[..end]);
        let both = rest[end..].starts_with(b"\r\n");
        rest = &rest[end + 1 + usize::from(both)..];
    }
    lines
}
