//! The keys seen in one object, to find one that stands twice.
//!
//! A handful of plain keys (nearly every object) are compared as they are and cost no allocation; more
//! keys, or escaped ones, go into a hashed set, so that no body makes this quadratic.

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
