//! The keys seen in one object, to find one that stands twice.
//!
//! A handful of plain keys (nearly every object) are compared as they are and cost no allocation; more
//! keys, or escaped ones, go into a hashed set, so that no body makes this quadratic.
//!
//! And the keys that are judged, to find one that only differs from them in case.

use super::json::Text;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::collections::HashSet;

const FEW: usize = 16;

/// The keys of one object so far.
#[derive(Debug, Default)]
pub struct Keys<'a> {
    few: SmallVec<[&'a str; FEW]>,
    /// One bit for each key in `few`: of a key whose bit is not set, none of them is the same.
    marks: u64,
    many: Option<HashSet<Cow<'a, str>>>,
}

impl<'a> Keys<'a> {
    /// Adds a key; `false` when it was there already, in whatever spelling.
    #[inline]
    pub fn insert(&mut self, key: Text<'a>) -> bool {
        if self.many.is_none() && !key.is_escaped() && self.few.len() < FEW {
            let key = key.raw();
            let mark = mark(key);
            let fresh = self.marks & mark == 0 || !self.few.contains(&key);
            self.marks |= mark;
            self.few.push(key);
            return fresh;
        }
        self.insert_hashed(key)
    }

    #[cold]
    fn insert_hashed(&mut self, key: Text<'a>) -> bool {
        let few = &mut self.few;
        let many = self.many.get_or_insert_with(|| few.drain(..).map(Cow::Borrowed).collect());
        many.insert(key.decode())
    }
}

/// One of 64 bits, by a key's length and outer bytes.
#[inline]
fn mark(key: &str) -> u64 {
    let byte = |byte: Option<&u8>| usize::from(byte.copied().unwrap_or_default());
    let bytes = key.as_bytes();
    1 << ((bytes.len() + 7 * byte(bytes.first()) + 3 * byte(bytes.last())) % 64)
}

/// The keys of an object that are looked at.
#[derive(Debug)]
pub(super) struct Judged {
    names: &'static [&'static str],
    /// A bit for each of their lengths: most keys beside them have another.
    lengths: u64,
}

impl Judged {
    /// Of names in lower case, shorter than 64 bytes.
    pub(super) const fn new(names: &'static [&'static str]) -> Self {
        let (mut lengths, mut at) = (0, 0);
        while at < names.len() {
            lengths |= 1 << names[at].len();
            at += 1;
        }
        Judged { names, lengths }
    }

    /// Whether a parser that does not look at case, such as Go's or .NET's, takes a key for one of these. Go folds by
    /// Unicode's table, by which `ſ` is an `s` and the Kelvin sign a `k`.
    #[inline]
    pub(super) fn takes(&self, key: &str) -> bool {
        let length = key.len();
        let may_be = length < 64 && self.lengths >> length & 1 == 1;
        (may_be && self.names.iter().any(|name| name.eq_ignore_ascii_case(key)))
            || (!key.is_ascii() && self.takes_folded(key))
    }

    #[cold]
    fn takes_folded(&self, key: &str) -> bool {
        self.names.iter().any(|name| same_folded(name, key))
    }
}

/// `name` is in lower case, and ASCII.
fn same_folded(name: &str, key: &str) -> bool {
    let folded = key.chars().map(|letter| match letter {
        'ſ' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    });
    folded.eq(name.chars())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_case_is_the_same_key_to_some() {
        let judged = Judged::new(&["messages", "tool_calls", "id"]);
        for key in
            ["Messages", "TOOL_CALLS", "iD", "me\u{17f}\u{17f}ages", "messages", "tool_call\u{17f}"]
        {
            assert!(judged.takes(key), "{key}");
        }
        let long = "x".repeat(64);
        for key in ["", "message", "tool-calls", "ids", "toolCalls", "\u{131}d", "i\u{307}d", &long]
        {
            assert!(!judged.takes(key), "{key}");
        }
    }
}
