//! Where a conversation stands in the log: a record that holds it whole, and behind it, each naming the one before,
//! records of what became of it since.
//!
//! ```text
//! State ◄─ Change ◄─ Change ◄─ Change
//! whole                        last
//! ```
//! It is written whole again when its changes are as long as that: so an event costs about twice what it changed,
//! however old the conversation is, and reading it twice what it is. No other record lies between these and the
//! end that is of the same conversation, so nothing but the last one's place must be known to find them all.

use super::frame::{self, Kind};
use super::log::Log;
use crate::store::encoding::{self, EncodingError, Kept};
use std::io;

/// Changes may be as long as this, however small the conversation is.
const FREE: u32 = 1024;

/// A point in the log: all before it was written earlier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) segment: u64,
    pub(super) offset: u64,
}

impl Position {
    /// Bytes of one in a record.
    const LENGTH: usize = 16;

    /// As it is written in a record.
    pub(super) fn bytes(self) -> [u8; Position::LENGTH] {
        let mut bytes = [0; Position::LENGTH];
        bytes[..8].copy_from_slice(&self.segment.to_le_bytes());
        bytes[8..].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    /// As it was written.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (segment, rest) = bytes.split_first_chunk()?;
        let offset = rest.first_chunk()?;
        Some(Position {
            segment: u64::from_le_bytes(*segment),
            offset: u64::from_le_bytes(*offset),
        })
    }
}

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) at: Position,
    pub(super) size: u32,
}

impl Place {
    /// Bytes of one in a record.
    const LENGTH: usize = Position::LENGTH + 4;

    /// The point right after it.
    pub(super) fn end(self) -> Position {
        Position { offset: self.at.offset + u64::from(self.size), ..self.at }
    }

    /// As it is written in a record.
    pub(super) fn bytes(self) -> [u8; Place::LENGTH] {
        let mut bytes = [0; Place::LENGTH];
        bytes[..Position::LENGTH].copy_from_slice(&self.at.bytes());
        bytes[Position::LENGTH..].copy_from_slice(&self.size.to_le_bytes());
        bytes
    }

    /// What a change follows, and what it is.
    pub(super) fn split(payload: &[u8]) -> Option<(Self, &[u8])> {
        let (bytes, change) = payload.split_first_chunk::<{ Place::LENGTH }>()?;
        let at = Position::read(bytes)?;
        let size = bytes[Position::LENGTH..].first_chunk()?;
        Some((Place { at, size: u32::from_le_bytes(*size) }, change))
    }
}

/// Where a conversation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Chain {
    /// Its last record.
    pub(super) last: Place,
    /// The record that holds it whole.
    pub(super) whole: Position,
    whole_size: u32,
    /// Bytes of the records of changes.
    changes: u32,
}

impl Chain {
    /// Of that record alone.
    pub(super) fn of(whole: Place) -> Self {
        Chain { last: whole, whole: whole.at, whole_size: whole.size, changes: 0 }
    }

    /// The same, and one change more.
    pub(super) fn with(self, last: Place) -> Self {
        Chain { last, changes: self.changes.saturating_add(last.size), ..self }
    }

    /// Whether a change may follow.
    pub(super) fn has_room(self) -> bool {
        self.changes < self.whole_size.max(FREE)
    }

    /// Bytes of all its records.
    pub(super) fn bytes(self) -> u64 {
        u64::from(self.whole_size) + u64::from(self.changes)
    }

    /// Room for it, whole.
    pub(super) fn room(self) -> usize {
        usize::try_from(self.bytes()).unwrap_or_default()
    }

    /// Bytes of the record that holds it whole.
    #[cfg(test)]
    pub(super) fn whole_bytes(self) -> usize {
        self.whole_size as usize
    }
}

/// Why a conversation cannot be read.
pub(super) enum Unrecalled {
    /// The disk does not give it.
    Io(io::Error),
    /// Something else stands there.
    Broken(Place),
    /// It is no conversation, or a newer version's.
    Encoding(EncodingError),
}

impl Log {
    /// Reads the conversation of that key at `chain`.
    pub(super) fn recall(&self, key: &[u8; 32], chain: Chain) -> Result<Kept, Unrecalled> {
        let mut records = Vec::new();
        let mut place = chain.last;
        loop {
            let bytes = self.read(place).map_err(Unrecalled::Io)?;
            let before = {
                let record = frame::record(&bytes, 0).ok().filter(|record| record.key == key);
                let record = record.ok_or(Unrecalled::Broken(place))?;
                match (record.kind, place.at == chain.whole) {
                    (Kind::State, true) => None,
                    (Kind::Change, false) => Place::split(record.payload).map(|(before, _)| before),
                    _ => return Err(Unrecalled::Broken(place)),
                }
            };
            records.push(bytes);
            match before {
                // Nothing follows what was written later.
                Some(before) if before.at < place.at => place = before,
                Some(_) => return Err(Unrecalled::Broken(place)),
                None => break,
            }
        }
        encoding::decode(&joined(&records)).map_err(Unrecalled::Encoding)
    }
}

/// What is in these records, the oldest last.
fn joined(records: &[Vec<u8>]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(records.iter().map(Vec::len).sum());
    for (bytes, is_change) in
        records.iter().rev().zip(std::iter::once(false).chain(std::iter::repeat(true)))
    {
        let of = bytes.get(frame::RECORD..).unwrap_or_default();
        payload.extend_from_slice(if is_change {
            Place::split(of).map_or(&[], |(_, change)| change)
        } else {
            of
        });
    }
    payload
}
