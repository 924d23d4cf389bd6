//! Keyed digests: what the ledger remembers in place of contents.
//!
//! The key lives in the store, so a guessable result cannot be looked up by its hash.

use crate::wire::canonical;
use crate::wire::json::Text;
use minicbor::{Decode, Encode};
use std::fmt;

/// A keyed 128-bit digest of something whose content the ledger never holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(transparent)]
pub struct Digest(
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    [u8; 16],
);

impl Digest {
    /// From its bytes, as a store keeps them.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Digest(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl std::hash::Hash for Digest {
    /// Half of it: nobody without the key can choose digests that agree there.
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u64((u128::from_be_bytes(self.0) >> 64) as u64);
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The secret that all digests of one store are made with.
#[derive(Clone)]
pub struct DigestKey([u8; 32]);

impl fmt::Debug for DigestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DigestKey(..)")
    }
}

impl DigestKey {
    /// From 32 random bytes.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        DigestKey(bytes)
    }

    /// Of plain bytes, such as an `idempotency-key`. `domain` keeps kinds of digests apart.
    #[must_use]
    pub fn bytes(&self, domain: &str, bytes: &[u8]) -> Digest {
        let mut running = self.begin(domain);
        running.update(bytes);
        running.digest()
    }

    /// Of a JSON value (raw text), by what it means: key order, white space and escapes do not matter.
    #[must_use]
    pub fn json(&self, domain: &str, raw: &str) -> Digest {
        let mut running = self.begin(domain);
        running.json(raw);
        running.digest()
    }

    /// Of a JSON string that was read: the same as of the text it was read from, without reading it again.
    #[must_use]
    pub fn text(&self, domain: &str, text: &Text<'_>) -> Digest {
        let mut running = self.begin(domain);
        canonical::feed_text(text, &mut |bytes| running.update(bytes));
        running.update(&[0]);
        running.digest()
    }

    /// Of a call's arguments, as decoded from the `arguments` string. Empty and `null` equal `{}`; what
    /// is not JSON (let through by a rule) compares as text.
    #[must_use]
    pub fn arguments(&self, text: &str) -> Digest {
        let text = text.trim_matches([' ', '\t', '\n', '\r']);
        let text = if matches!(text, "" | "null") { "{}" } else { text };
        let mut running = self.begin("arguments");
        if running.json_if_valid(text, None) {
            return running.digest();
        }
        self.bytes("arguments-text", text.as_bytes())
    }

    /// A digest that is fed piece by piece and can be read at any point.
    #[must_use]
    pub fn begin(&self, domain: &str) -> Running {
        let mut running = Running { key: self.0, waiting: Vec::new(), hasher: None };
        running.update(&(domain.len() as u64).to_le_bytes());
        running.update(domain.as_bytes());
        running
    }
}

/// A digest under way. What is fed is gathered first: short ones need no hasher at all, and long ones are
/// hashed many blocks at once, which is several times faster than piece by piece.
#[derive(Clone)]
pub struct Running {
    key: [u8; 32],
    /// What the hasher has not got yet: less than [`GATHERED`].
    waiting: Vec<u8>,
    hasher: Option<Box<blake3::Hasher>>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Running(..)")
    }
}

/// Bytes that are hashed at once: a power of two, so that blake3 can use the widest vectors there are.
const GATHERED: usize = 16 << 10;

impl Running {
    /// Feeds one JSON value, given as raw text.
    pub fn json(&mut self, raw: &str) {
        self.json_knowing(raw, None);
    }

    /// The same; `known` is a string that was read from it before, and its offset.
    pub fn json_knowing<'a>(&mut self, raw: &'a str, known: Option<(usize, Text<'a>)>) {
        if !self.json_if_valid(raw, known) {
            canonical::feed_invalid(raw, &mut |bytes| self.update(bytes));
            self.update(&[0]);
        }
    }

    /// Feeds one JSON value; nothing, and `false`, where the text is none.
    fn json_if_valid<'a>(&mut self, raw: &'a str, known: Option<(usize, Text<'a>)>) -> bool {
        let valid = canonical::feed_valid(raw, known, &mut |bytes| self.update(bytes));
        if valid {
            // No canonical text holds a bare 0 byte, so values one after another cannot run together.
            self.update(&[0]);
        }
        valid
    }

    #[inline]
    fn update(&mut self, bytes: &[u8]) {
        if bytes.len() < GATHERED - self.waiting.len() {
            self.waiting.extend_from_slice(bytes);
        } else {
            self.hash(bytes);
        }
    }

    /// Hashes all whole blocks.
    fn hash(&mut self, bytes: &[u8]) {
        let hasher =
            self.hasher.get_or_insert_with(|| Box::new(blake3::Hasher::new_keyed(&self.key)));
        let mut rest = bytes;
        if !self.waiting.is_empty() {
            let (first, after) = rest.split_at(GATHERED - self.waiting.len());
            self.waiting.extend_from_slice(first);
            hasher.update(&self.waiting);
            self.waiting.clear();
            rest = after;
        }
        let (blocks, rest) = rest.split_at(rest.len() - rest.len() % GATHERED);
        if !blocks.is_empty() {
            hasher.update(blocks);
        }
        self.waiting.extend_from_slice(rest);
    }

    /// The digest of what was fed so far.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let hash = match &self.hasher {
            None => blake3::keyed_hash(&self.key, &self.waiting),
            Some(hasher) => blake3::Hasher::clone(hasher).update(&self.waiting).finalize(),
        };
        let mut out = [0; 16];
        out.copy_from_slice(&hash.as_bytes()[..16]);
        Digest(out)
    }
}
