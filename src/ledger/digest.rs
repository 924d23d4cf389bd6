//! Keyed digests: what the ledger remembers in place of contents.
//!
//! The key lives in the store, so a guessable result cannot be looked up by its hash.

use crate::wire::canonical;
use crate::wire::hex::Hex;
use crate::wire::json::{Member, Text};
use highway::{HighwayHash, HighwayHasher, Key};
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
        f.write_str(Hex::of(u128::from_be_bytes(self.0)).as_str())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The secret that all digests of one store are made with.
#[derive(Clone)]
pub struct DigestKey {
    secret: [u8; 32],
    /// Drawn from it: what long texts are shortened with.
    shortening: [u64; 4],
}

impl fmt::Debug for DigestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DigestKey(..)")
    }
}

impl DigestKey {
    /// From 32 random bytes.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        let drawn = blake3::keyed_hash(&bytes, b"shortening");
        let (words, _) = drawn.as_bytes().as_chunks();
        let mut shortening = [0; 4];
        for (key, word) in shortening.iter_mut().zip(words) {
            *key = u64::from_le_bytes(*word);
        }
        DigestKey { secret: bytes, shortening }
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
        running.end();
        running.digest()
    }

    /// Of a call's arguments, as decoded from the `arguments` string. Empty and `null` equal `{}`; what
    /// is not JSON (let through by a rule) compares as text.
    #[must_use]
    pub fn arguments(&self, text: &str) -> Digest {
        let text = text.trim_matches([' ', '\t', '\n', '\r']);
        let text = if matches!(text, "" | "null") { "{}" } else { text };
        let mut running = self.begin("arguments");
        if running.json_if_valid(text) {
            return running.digest();
        }
        self.bytes("arguments-text", text.as_bytes())
    }

    /// A digest that is fed piece by piece and can be read at any point.
    #[must_use]
    pub fn begin(&self, domain: &str) -> Running<'_> {
        let mut running = Running { key: self, waiting: [0; SHORT], filled: 0, shortened: None };
        running.update(&(domain.len() as u64).to_le_bytes());
        running.update(domain.as_bytes());
        running
    }
}

/// A digest under way.
///
/// All digests are BLAKE3's under the key: of the text itself where it is short, of its 256 bits by `HighwayHash`
/// under another key where it is longer. A message list is digested with each request and is as long as the request;
/// `HighwayHash` reads some ten gigabytes a second, several times as much as BLAKE3 at such lengths. Nobody sees what
/// it gives, and two texts of the same 256 bits can be sought only by who knows its key.
#[derive(Clone)]
pub struct Running<'k> {
    key: &'k DigestKey,
    /// What is not shortened yet: the first `filled` bytes.
    waiting: [u8; SHORT],
    filled: usize,
    shortened: Option<HighwayHasher>,
}

impl fmt::Debug for Running<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Running(..)")
    }
}

/// Texts of up to so many bytes are not shortened.
const SHORT: usize = 128;

impl Running<'_> {
    /// Feeds one JSON value, given as raw text.
    pub fn json(&mut self, raw: &str) {
        if !self.json_if_valid(raw) {
            canonical::feed_invalid(raw, &mut |bytes| self.update(bytes));
            self.end();
        }
    }

    /// Feeds a JSON object by its members, as [`Running::json`] does by the text that they were read from.
    pub fn object(&mut self, members: &[Member<'_>]) {
        canonical::feed_object(members, &mut |bytes| self.update(bytes));
        self.end();
    }

    /// Feeds one JSON value; nothing, and `false`, where the text is none.
    fn json_if_valid(&mut self, raw: &str) -> bool {
        let valid = canonical::feed_valid(raw, &mut |bytes| self.update(bytes));
        if valid {
            self.end();
        }
        valid
    }

    /// No canonical text holds a bare 0 byte, so values one after another cannot run together.
    fn end(&mut self) {
        self.update(&[0]);
    }

    #[inline]
    fn update(&mut self, bytes: &[u8]) {
        match self.waiting.get_mut(self.filled..self.filled + bytes.len()) {
            Some(free) => {
                free.copy_from_slice(bytes);
                self.filled += bytes.len();
            }
            None => self.shorten(bytes),
        }
    }

    fn shorten(&mut self, bytes: &[u8]) {
        let key = Key(self.key.shortening);
        let hasher = self.shortened.get_or_insert_with(|| HighwayHasher::new(key));
        hasher.append(&self.waiting[..self.filled]);
        self.filled = 0;
        match self.waiting.get_mut(..bytes.len()) {
            Some(free) => {
                free.copy_from_slice(bytes);
                self.filled = bytes.len();
            }
            None => hasher.append(bytes),
        }
    }

    /// The digest of what was fed so far.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let waiting = &self.waiting[..self.filled];
        let hash = match &self.shortened {
            None => blake3::keyed_hash(&self.key.secret, waiting),
            Some(hasher) => {
                let mut hasher = hasher.clone();
                hasher.append(waiting);
                // No short text begins like this: all begin with the length of their domain's name.
                let mut shortened = [0xff; 40];
                for (word, bits) in shortened[8..].chunks_exact_mut(8).zip(hasher.finalize256()) {
                    word.copy_from_slice(&bits.to_le_bytes());
                }
                blake3::keyed_hash(&self.key.secret, &shortened)
            }
        };
        let mut out = [0; 16];
        out.copy_from_slice(&hash.as_bytes()[..16]);
        Digest(out)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::wire::request::ChatRequest;

    /// A result comes in a list and by the control API, and a list of any length is fed in pieces of any: all must
    /// give the same, on both sides of the length from which texts are shortened.
    #[test]
    fn what_is_fed_counts_and_not_how() {
        let key = DigestKey::new([7; 32]);
        let mut before = None;
        for length in 0..3 * SHORT {
            let raw = format!("\"{}\"", "x".repeat(length));
            let body = format!(r#"{{"messages":[{{"content":{raw},"role":"user"}}]}}"#);
            let request = ChatRequest::parse(body.as_bytes(), 16).unwrap();
            let message = &request.messages[0];
            let whole = key.json("result", &raw);
            assert_eq!(key.text("result", &message.text.unwrap()), whole, "{length}");
            let (mut by_members, mut bytewise) = (key.begin("list"), key.begin("list"));
            by_members.object(request.members_of(message));
            message.raw.bytes().chain([0]).for_each(|byte| bytewise.update(&[byte]));
            assert_eq!(by_members.digest(), bytewise.digest(), "{length}");
            assert_eq!(by_members.digest(), key.json("list", message.raw), "{length}");
            assert_ne!(before.replace(whole), Some(whole), "{length}");
        }
    }
}
