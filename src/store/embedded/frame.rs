//! How records lie in a segment, and what a segment begins with.
//!
//! ```text
//! segment: "TIGERTLY" · format u16 · 6 bytes 0 · number u64 · key check 8 bytes | record | record | …
//! record:  mark u16 · kind u8 · 0 · length u32 · check 8 bytes · key 32 bytes | payload
//! ```
//! Numbers are little-endian. The check is the XXH3 of key and payload, seeded with kind and length: a record is
//! whole or it is none. It finds what a crash or a disk damaged, and nobody else can write here.

use super::super::ConversationKey;
use crate::ledger::digest::{Digest, DigestKey};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The format of segments that this version writes.
pub(super) const FORMAT: u16 = 1;
/// Bytes that a segment begins with.
pub(super) const HEAD: usize = 32;
/// Bytes of a record before its payload.
pub(super) const RECORD: usize = 48;

/// Where its key begins.
const KEY_AT: usize = 16;

const MAGIC: &[u8; 8] = b"TIGERTLY";
const MARK: [u8; 2] = [0xe7, 0x16];
/// No conversation is written larger.
const LARGEST: usize = 1 << 28;

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The state of a conversation.
    State = 1,
    /// A conversation is no more.
    Gone = 2,
    /// Up to a position everything was on the disk itself.
    Synced = 3,
    /// What became of a conversation since the record that is named first.
    Change = 4,
}

/// One record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub(super) kind: Kind,
    pub(super) key: &'a [u8; 32],
    pub(super) payload: &'a [u8],
}

impl Record<'_> {
    /// How many bytes it takes.
    pub(super) fn size(&self) -> usize {
        RECORD + self.payload.len()
    }

    /// Its bytes. `None`: it is too large.
    pub(super) fn bytes(&self) -> Option<Vec<u8>> {
        let mut bytes = begin(self.kind, self.key, self.size());
        bytes.extend_from_slice(self.payload);
        seal(bytes)
    }
}

/// A record without its payload, which is to be written behind it; `size` is about how large it becomes.
pub(super) fn begin(kind: Kind, key: &[u8; 32], size: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size.max(RECORD));
    bytes.extend_from_slice(&MARK);
    bytes.extend_from_slice(&[kind as u8, 0]);
    bytes.extend_from_slice(&[0; 12]);
    bytes.extend_from_slice(key);
    bytes
}

/// The record, once its payload is behind it. `None`: it is too large.
pub(super) fn seal(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    let (head, payload) = bytes.split_first_chunk::<RECORD>()?;
    let length = u32::try_from(payload.len()).ok().filter(|_| payload.len() <= LARGEST)?;
    let check = check(head[2], length, &bytes[KEY_AT..]);
    bytes[4..8].copy_from_slice(&length.to_le_bytes());
    bytes[8..KEY_AT].copy_from_slice(&check);
    Some(bytes)
}

/// Why there is no record at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// It is cut off, or its bytes are not what was written.
    Broken,
    /// It is whole, and of a kind that only a newer version knows.
    Newer(u8),
}

/// The record that begins at `at`.
pub(super) fn record(segment: &[u8], at: usize) -> Result<Record<'_>, Unreadable> {
    let framed = Framed::at(segment, at).ok_or(Unreadable::Broken)?;
    if *framed.check != check(framed.kind, framed.length, framed.checked) {
        return Err(Unreadable::Broken);
    }
    framed.record()
}

/// The same without a look at its check: for whoever only asks whether it is still needed.
pub(super) fn unchecked(segment: &[u8], at: usize) -> Result<Record<'_>, Unreadable> {
    Framed::at(segment, at).ok_or(Unreadable::Broken)?.record()
}

/// What stands where a record should.
struct Framed<'a> {
    kind: u8,
    length: u32,
    check: &'a [u8; 8],
    /// Its key and payload.
    checked: &'a [u8],
}

impl<'a> Framed<'a> {
    fn at(segment: &'a [u8], at: usize) -> Option<Self> {
        let bytes = segment.get(at..)?;
        let (head, _) = bytes.split_first_chunk::<RECORD>()?;
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        let (_, check) = head[..KEY_AT].split_last_chunk()?;
        let checked = bytes.get(KEY_AT..RECORD.checked_add(length as usize)?)?;
        let fits = head[..2] == MARK && length as usize <= LARGEST;
        fits.then_some(Framed { kind: head[2], length, check, checked })
    }

    fn record(&self) -> Result<Record<'a>, Unreadable> {
        let kind = match self.kind {
            1 => Kind::State,
            2 => Kind::Gone,
            3 => Kind::Synced,
            4 => Kind::Change,
            other => return Err(Unreadable::Newer(other)),
        };
        let (key, payload) = self.checked.split_first_chunk().ok_or(Unreadable::Broken)?;
        Ok(Record { kind, key, payload })
    }
}

fn check(kind: u8, length: u32, key_and_payload: &[u8]) -> [u8; 8] {
    let seed = u64::from(kind) << 32 | u64::from(length);
    xxh3_64_with_seed(key_and_payload, seed).to_le_bytes()
}

/// What a segment begins with.
pub(super) fn head(number: u64, key: &DigestKey) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(MAGIC);
    head[8..10].copy_from_slice(&FORMAT.to_le_bytes());
    head[16..24].copy_from_slice(&number.to_le_bytes());
    head[24..].copy_from_slice(&key_check(key));
    head
}

/// Why a segment is not ours to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Foreign {
    /// It is cut off within its head.
    Cut,
    /// It is no segment of that number.
    NotOurs,
    /// It has another format.
    Format(u16),
    /// Its digests were made with another key.
    Key,
}

/// Looks at what a segment begins with.
pub(super) fn check_head(segment: &[u8], number: u64, key: &DigestKey) -> Result<(), Foreign> {
    let Some(found) = segment.first_chunk::<HEAD>() else { return Err(Foreign::Cut) };
    let format = u16::from_le_bytes([found[8], found[9]]);
    let expected = head(number, key);
    if found[..8] != *MAGIC || found[16..24] != expected[16..24] {
        // A file that was made just before power was lost may be nothing but zeros.
        let empty = found.iter().all(|byte| *byte == 0);
        return Err(if empty { Foreign::Cut } else { Foreign::NotOurs });
    }
    if format != FORMAT {
        return Err(Foreign::Format(format));
    }
    if found[24..] != expected[24..] { Err(Foreign::Key) } else { Ok(()) }
}

/// Tells keys apart without telling anything of them.
fn key_check(key: &DigestKey) -> [u8; 8] {
    let digest = key.bytes("store key check", b"");
    let mut check = [0; 8];
    check.copy_from_slice(&digest.as_bytes()[..8]);
    check
}

/// The bytes of a conversation's key.
pub(super) fn key_bytes(key: &ConversationKey) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(key.principal.as_bytes());
    bytes[16..].copy_from_slice(key.conversation.as_bytes());
    bytes
}

/// The conversation's key of those bytes.
pub(super) fn key_of(bytes: &[u8; 32]) -> ConversationKey {
    let half = |from: usize| {
        let mut half = [0; 16];
        half.copy_from_slice(&bytes[from..from + 16]);
        Digest::from_bytes(half)
    };
    ConversationKey { principal: half(0), conversation: half(16) }
}
