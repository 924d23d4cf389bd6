//! An incremental server-sent-event decoder, by the WHATWG HTML standard, section 9.2.6.

use bytes::Bytes;

/// One event as it stood on the wire.
#[derive(Debug)]
pub struct Event {
    /// The event's own bytes, from its first line to its closing blank line, comments included.
    pub wire: Bytes,
    /// The joined `data` payload; `None` when the event has no data line.
    pub data: Option<Bytes>,
}

/// Takes bytes as they come and gives whole events. Holds at most one unfinished event.
#[derive(Debug, Default)]
pub struct Decoder {
    _tail: bytes::BytesMut,
}

impl Decoder {
    /// Takes the next bytes of the stream.
    pub fn push(&mut self, bytes: Bytes) {
        let _ = bytes;
    }

    /// The next whole event, if there is one. Slices of what was pushed where possible.
    pub fn next_event(&mut self) -> Option<Event> {
        None
    }

    /// Bytes held of an event that is not yet whole.
    #[must_use]
    pub fn held(&self) -> usize {
        0
    }

    /// At the end of the stream: what was left of an unfinished event (which the standard discards).
    pub fn finish(self) -> Bytes {
        Bytes::new()
    }
}
