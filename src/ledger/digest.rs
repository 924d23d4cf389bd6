//! Keyed digests: what the ledger remembers in place of contents.
//!
//! The key lives in the store, so a guessable result cannot be looked up by its hash.

use crate::wire::canonical;
use minicbor::{Decode, Encode};
use std::fmt;

/// A keyed 128-bit digest of something whose content the ledger never holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
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
        running.0.update(bytes);
        running.digest()
    }

    /// Of a JSON value (raw text), by what it means: key order, white space and escapes do not matter.
    #[must_use]
    pub fn json(&self, domain: &str, raw: &str) -> Digest {
        let mut running = self.begin(domain);
        running.json(raw);
        running.digest()
    }

    /// Of a call's arguments, as decoded from the `arguments` string. Empty and `null` equal `{}`; what
    /// is not JSON (let through by a rule) compares as text.
    #[must_use]
    pub fn arguments(&self, text: &str) -> Digest {
        let text = text.trim_matches([' ', '\t', '\n', '\r']);
        match text {
            "" | "null" => self.json("arguments", "{}"),
            _ if serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() => {
                self.json("arguments", text)
            }
            _ => self.bytes("arguments-text", text.as_bytes()),
        }
    }

    /// A digest that is fed piece by piece and can be read at any point.
    #[must_use]
    pub fn begin(&self, domain: &str) -> Running {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&(domain.len() as u64).to_le_bytes());
        hasher.update(domain.as_bytes());
        Running(Box::new(hasher))
    }
}

/// A digest under way.
#[derive(Clone, Debug)]
pub struct Running(Box<blake3::Hasher>);

impl Running {
    /// Feeds one JSON value, given as raw text.
    pub fn json(&mut self, raw: &str) {
        canonical::feed(raw, &mut |bytes| {
            self.0.update(bytes);
        });
        // No canonical text holds a bare 0 byte, so values one after another cannot run together.
        self.0.update(&[0]);
    }

    /// The digest of what was fed so far.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut out = [0; 16];
        out.copy_from_slice(&self.0.finalize().as_bytes()[..16]);
        Digest(out)
    }
}
