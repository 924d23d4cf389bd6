//! What is read more strictly because it is judged and kept: names, keys like those that are judged, and lists
//! whose entries cost memory.

use super::Scanner;
use crate::wire::json::{BodyFault, Field};
use crate::wire::keys::Judged;

/// Most entries, in one request, of the lists that are kept: messages, tools, calls. Three bytes make an entry, and
/// keeping it takes a hundred times as many.
pub const MOST_ENTRIES: usize = 1 << 17;
/// Most choices and calls of one answer, or of one event of a stream.
pub const MOST_ENTRIES_OF_ANSWER: usize = 1 << 13;

impl<'a> Scanner<'a> {
    /// A scanner at the beginning of an answer.
    pub(in crate::wire) fn of_answer(text: &'a str, max_depth: usize) -> Self {
        Scanner { most: MOST_ENTRIES_OF_ANSWER, ..Scanner::new(text, max_depth) }
    }

    /// The same, in a body of which so many entries are kept already.
    pub(in crate::wire) fn beyond(self, kept: usize) -> Self {
        Scanner { kept, ..self }
    }

    /// How many entries of lists were kept.
    pub(in crate::wire) fn kept(&self) -> usize {
        self.kept
    }

    /// Reads a member by which things are told apart: as [`Scanner::field`], but a string must be one that
    /// all parsers read alike.
    ///
    /// # Errors
    /// When no whole value stands here, or a string holds half of a surrogate pair.
    #[inline]
    pub fn name(&mut self) -> Result<Field<'a>, BodyFault> {
        let at = self.mark();
        let field = self.field()?;
        match field {
            Field::Text(text) if text.has_lone_surrogate() => Err(half_a_pair(at)),
            _ => Ok(field),
        }
    }

    /// Skips the value of a key that is none of the `judged`.
    ///
    /// # Errors
    /// When no whole value stands here, or [as told](Scanner::apart).
    #[inline]
    pub(in crate::wire) fn beside(&mut self, judged: &Judged, key: &str) -> Result<(), BodyFault> {
        self.apart(judged, key)?;
        self.skip().map(drop)
    }

    /// Makes sure that a key is none of the `judged`, for parsers that do not look at the case of keys either.
    ///
    /// # Errors
    /// When such a parser would take it for one.
    #[inline]
    pub(in crate::wire) fn apart(&self, judged: &Judged, key: &str) -> Result<(), BodyFault> {
        if judged.takes(key) {
            let reason = "a key that some parsers read as another one";
            return Err(BodyFault::shape(self.at, reason));
        }
        Ok(())
    }

    /// Reads the entries of a list, each of which is kept, as [`Scanner::array`] does.
    ///
    /// # Errors
    /// As there, and when more are kept than may be.
    #[inline]
    pub fn kept_array<V>(&mut self, mut visit: V) -> Result<(), BodyFault>
    where
        V: FnMut(&mut Self, usize) -> Result<(), BodyFault>,
    {
        self.array(|value, index| {
            value.kept += 1;
            if value.kept > value.most {
                return Err(BodyFault::shape(value.at, "more entries than a body may hold"));
            }
            visit(value, index)
        })
    }
}

/// The fault of a string that names something, and holds half of a surrogate pair.
#[cold]
pub fn half_a_pair(at: usize) -> BodyFault {
    BodyFault::shape(at, "half of a surrogate pair, which parsers read differently")
}
