//! The walk over one value of any kind, without recursion: for skipping, and for whoever must see every
//! key on the way.

use super::{Scanner, Span};
use crate::wire::json::{BodyFault, Kind, Text};
use smallvec::SmallVec;

/// What a walk over a value is told. Each has a default that does nothing.
pub trait Observer<'a> {
    /// A string that is a value, at an offset.
    #[inline]
    fn string(&mut self, text: Text<'a>, at: usize) {
        let _ = (text, at);
    }

    /// An object begins, at an offset.
    fn object(&mut self, at: usize) {
        let _ = at;
    }

    /// A key of the innermost open object, at an offset.
    ///
    /// # Errors
    /// To stop the walk.
    fn key(&mut self, key: Text<'a>, at: usize) -> Result<(), BodyFault> {
        let _ = (key, at);
        Ok(())
    }

    /// The innermost object ends, right before an offset.
    fn end_object(&mut self, end: usize) {
        let _ = end;
    }
}

/// Sees nothing: the walk only skips.
pub(super) struct Blind;

impl Observer<'_> for Blind {}

impl<'a> Scanner<'a> {
    /// Skips one value and tells `observer` of the objects and keys in it, without recursion.
    ///
    /// # Errors
    /// When no whole value stands here, or `observer` stops the walk.
    pub fn walk(&mut self, observer: &mut impl Observer<'a>) -> Result<Span<'a>, BodyFault> {
        self.space();
        let at = self.at;
        let mut open = Levels::default();
        loop {
            let entered = match self.kind()? {
                Kind::Object => self.begin(true, observer, &mut open)?,
                Kind::Array => self.begin(false, observer, &mut open)?,
                Kind::String => {
                    let at = self.at;
                    observer.string(self.text()?, at);
                    false
                }
                Kind::Number => self.number().map(|_| false)?,
                Kind::Null => self.literal("null").map(|()| false)?,
                Kind::Bool if self.peek() == Some(b't') => self.literal("true").map(|()| false)?,
                Kind::Bool => self.literal("false").map(|()| false)?,
            };
            if entered {
                continue;
            }
            // A value is complete; so are the containers that end right after it.
            while let Some(is_object) = open.innermost() {
                if self.continues(if is_object { b'}' } else { b']' })? {
                    if is_object {
                        self.observe_key(observer)?;
                    }
                    break;
                }
                if is_object {
                    observer.end_object(self.at);
                }
                open.pop();
            }
            if open.innermost().is_none() {
                return Ok(Span { at, raw: &self.text[at..self.at] });
            }
        }
    }

    /// Opens a container in a walk; says whether a value of it comes next (it is not empty).
    fn begin(
        &mut self,
        is_object: bool,
        observer: &mut impl Observer<'a>,
        open: &mut Levels,
    ) -> Result<bool, BodyFault> {
        if is_object {
            observer.object(self.at);
        }
        self.at += 1;
        self.enter()?;
        if self.closes(if is_object { b'}' } else { b']' }) {
            if is_object {
                observer.end_object(self.at);
            }
            return Ok(false);
        }
        open.push(is_object);
        if is_object {
            self.observe_key(observer)?;
        }
        Ok(true)
    }

    fn observe_key(&mut self, observer: &mut impl Observer<'a>) -> Result<(), BodyFault> {
        self.space();
        let at = self.at;
        let key = self.key()?;
        observer.key(key, at)
    }
}

/// The containers open in a walk, one bit each: set for an object.
#[derive(Default)]
struct Levels {
    words: SmallVec<[u64; 4]>,
    count: usize,
}

impl Levels {
    fn push(&mut self, is_object: bool) {
        let (word, bit) = (self.count / 64, self.count % 64);
        if word == self.words.len() {
            self.words.push(0);
        }
        self.words[word] = self.words[word] & !(1 << bit) | u64::from(is_object) << bit;
        self.count += 1;
    }

    fn pop(&mut self) {
        self.count = self.count.saturating_sub(1);
    }

    #[inline]
    fn innermost(&self) -> Option<bool> {
        let last = self.count.checked_sub(1)?;
        Some(self.words[last / 64] >> (last % 64) & 1 == 1)
    }
}
