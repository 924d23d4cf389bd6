//! Lists that note what became of them since they were last written, so that a store writes that and no more.
//!
//! An item can be changed, added or taken out through its list only, and the list marks it: no caller can
//! forget to. What is marked follows from how a list came to be, not from what it is, so marks count for
//! nothing in a comparison. They are bounded: of a list of which very much changed, nothing is known but that,
//! and it is written whole.
//!
//! A change is written as three lists: where items were taken out (a place, and how many there, one after the
//! other), which of the others changed (its place after that, and what of it ever changes: [`Moves`]), and what was
//! added at the end.

use super::control::Advanced;
use super::digest::Digest;
use super::sorted::Sorted;
use minicbor::encode::{self, Write};
use minicbor::{Decode, Decoder, Encode, Encoder, decode};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::fmt;
use std::hash::{Hash, Hasher};

/// Most marks of a kind.
const MOST: usize = 64;

/// An item of which not all changes.
pub(super) trait Moves {
    /// What does.
    type Moved;

    /// How that stands.
    fn moved(&self) -> Self::Moved;

    /// It stands so now. Gives whether it fits.
    fn move_to(&mut self, moved: Self::Moved) -> bool;
}

/// A list, the newest item last.
#[derive(Clone)]
pub(super) struct Marked<T> {
    items: VecDeque<T>,
    marks: Marks,
}

/// What became of a list since it was last written.
#[derive(Clone, Debug, Default)]
struct Marks {
    /// More than is worth noting.
    lost: bool,
    /// So many items at the end were added.
    added: u32,
    /// The places of others that changed.
    changed: SmallVec<[u32; 4]>,
    /// Where others were taken out, and how many there, one after the other.
    dropped: SmallVec<[(u32, u32); 2]>,
}

impl Marks {
    /// The item at `at`, of `length`, changes.
    fn change(&mut self, at: usize, length: usize) {
        let Ok(place) = u32::try_from(at) else { return self.lose() };
        if self.lost || at + self.added as usize >= length || self.changed.contains(&place) {
            return;
        }
        if self.changed.len() >= MOST {
            return self.lose();
        }
        self.changed.push(place);
    }

    /// The item at `at` is taken out, of what were `length`.
    fn remove(&mut self, at: usize, length: usize) {
        if self.lost {
            return;
        }
        if at + self.added as usize >= length {
            self.added -= 1;
            return;
        }
        let Ok(place) = u32::try_from(at) else { return self.lose() };
        self.changed.retain(|changed| *changed != place);
        for changed in self.changed.iter_mut().filter(|changed| **changed > place) {
            *changed -= 1;
        }
        let runs = self.dropped.len();
        match self.dropped.last_mut() {
            Some((last, times)) if *last == place => *times += 1,
            _ if runs >= MOST => self.lose(),
            _ => self.dropped.push((place, 1)),
        }
    }

    fn lose(&mut self) {
        *self = Marks { lost: true, ..Marks::default() };
    }
}

impl<T> Marked<T> {
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn get(&self, at: usize) -> Option<&T> {
        self.items.get(at)
    }

    /// The item there, to be changed.
    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.marks.change(at, self.items.len());
        self.items.get_mut(at)
    }

    pub(super) fn push(&mut self, item: T) {
        self.items.push_back(item);
        self.marks.added = self.marks.added.saturating_add(1);
    }

    pub(super) fn remove(&mut self, at: usize) -> Option<T> {
        let length = self.items.len();
        let gone = self.items.remove(at)?;
        self.marks.remove(at, length);
        Some(gone)
    }

    pub(super) fn iter(&self) -> std::collections::vec_deque::Iter<'_, T> {
        self.items.iter()
    }

    /// It was written as it is now.
    pub(super) fn written(&mut self) {
        self.marks = Marks::default();
    }

    /// Whether it is as it was written.
    pub(super) fn untouched(&self) -> bool {
        let Marks { lost, added, changed, dropped } = &self.marks;
        !lost && *added == 0 && changed.is_empty() && dropped.is_empty()
    }

    /// What became of it since. `None`: more than is worth noting.
    pub(super) fn change(&self) -> Option<Noted<'_, T>> {
        (!self.marks.lost).then_some(Noted(self))
    }
}

impl<T> Default for Marked<T> {
    fn default() -> Self {
        Marked { items: VecDeque::new(), marks: Marks::default() }
    }
}

impl<T: fmt::Debug> fmt::Debug for Marked<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.items.fmt(f)
    }
}

impl<T: PartialEq> PartialEq for Marked<T> {
    fn eq(&self, other: &Self) -> bool {
        self.items == other.items
    }
}

impl<T: Eq> Eq for Marked<T> {}

impl<T: Hash> Hash for Marked<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.items.hash(state);
    }
}

impl<C, T: Encode<C>> Encode<C> for Marked<T> {
    fn encode<W: Write>(
        &self,
        encoder: &mut Encoder<W>,
        context: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        self.items.encode(encoder, context)
    }
}

impl<'b, C, T: Decode<'b, C>> Decode<'b, C> for Marked<T> {
    fn decode(decoder: &mut Decoder<'b>, context: &mut C) -> Result<Self, decode::Error> {
        Ok(Marked { items: decoder.decode_with(context)?, marks: Marks::default() })
    }
}

/// What became of a list, as it is written.
pub(super) struct Noted<'a, T>(&'a Marked<T>);

impl<C, T: Encode<C> + Moves<Moved: Encode<C>>> Encode<C> for Noted<'_, T> {
    fn encode<W: Write>(
        &self,
        encoder: &mut Encoder<W>,
        context: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        let Marked { items, marks } = self.0;
        encoder.array(3)?.array(2 * marks.dropped.len() as u64)?;
        for (place, times) in &marks.dropped {
            encoder.u32(*place)?.u32(*times)?;
        }
        encoder.array(2 * marks.changed.len() as u64)?;
        for place in &marks.changed {
            encoder.u32(*place)?.encode_with(items[*place as usize].moved(), context)?;
        }
        encoder.array(marks.added.into())?;
        let mut added = items.iter().skip(items.len().saturating_sub(marks.added as usize));
        added.try_for_each(|item| item.encode(encoder, context))
    }
}

/// What became of a list, as it is read.
pub(super) struct Change<T: Moves> {
    dropped: Vec<(u32, u32)>,
    changed: Vec<(u32, T::Moved)>,
    added: Vec<T>,
}

impl<'b, C, T: Decode<'b, C> + Moves<Moved: Decode<'b, C>>> Decode<'b, C> for Change<T> {
    fn decode(decoder: &mut Decoder<'b>, context: &mut C) -> Result<Self, decode::Error> {
        let lists = length(decoder)?;
        let (mut dropped, mut changed) = (Vec::new(), Vec::new());
        for _ in 0..length(decoder)? / 2 {
            dropped.push((decoder.u32()?, decoder.u32()?));
        }
        for _ in 0..length(decoder)? / 2 {
            changed.push((decoder.u32()?, decoder.decode_with(context)?));
        }
        let change = Change { dropped, changed, added: decoder.decode_with(context)? };
        // What a later version says besides.
        (3..lists).try_for_each(|_| decoder.skip())?;
        Ok(change)
    }
}

fn length(decoder: &mut Decoder<'_>) -> Result<u64, decode::Error> {
    decoder.array()?.ok_or_else(|| decode::Error::message("a list without its length"))
}

/// What a change can be made to. Each step gives whether it fits.
pub(super) trait Takes<T: Moves> {
    /// The item there goes.
    fn drops(&mut self, at: usize) -> bool;
    /// The item there stands so now.
    fn moves(&mut self, at: usize, moved: T::Moved) -> bool;
    /// This one comes at the end.
    fn gets(&mut self, item: T) -> bool;
}

impl<T: Moves> Change<T> {
    /// Makes the change that was read.
    pub(super) fn make(self, to: &mut impl Takes<T>) -> Result<(), decode::Error> {
        let dropped = self.dropped.into_iter();
        let dropped = dropped.flat_map(|(place, times)| (0..times).map(move |_| place));
        let fits = dropped.map(|place| place as usize).all(|at| to.drops(at))
            && self.changed.into_iter().all(|(at, moved)| to.moves(at as usize, moved))
            && self.added.into_iter().all(|item| to.gets(item));
        let other = || decode::Error::message("a change of something else");
        if fits { Ok(()) } else { Err(other()) }
    }
}

impl<T: Moves> Takes<T> for Marked<T> {
    fn drops(&mut self, at: usize) -> bool {
        self.remove(at).is_some()
    }

    fn moves(&mut self, at: usize, moved: T::Moved) -> bool {
        self.get_mut(at).is_some_and(|item| item.move_to(moved))
    }

    fn gets(&mut self, item: T) -> bool {
        self.push(item);
        true
    }
}

/// What never changes once it is there.
macro_rules! stays {
    ($($item:ty),*) => {
        $(impl Moves for $item {
            type Moved = ();

            fn moved(&self) {}

            fn move_to(&mut self, (): ()) -> bool {
                false
            }
        })*
    };
}

stays!(Digest, (Digest, Digest), Advanced);

/// Things of which each is remembered once, the newest last.
#[derive(Clone)]
pub(super) struct Remembered<T> {
    list: Marked<T>,
    /// The same, to be found.
    all: Sorted<T>,
}

impl<T: Ord + Copy> Remembered<T> {
    pub(super) fn contains(&self, one: T) -> bool {
        self.all.contains(&one)
    }

    /// Remembers it, if it is not.
    pub(super) fn remember(&mut self, one: T) {
        if self.all.insert(one) {
            self.list.push(one);
        }
    }

    /// Forgets the oldest beyond `kept`.
    pub(super) fn bound(&mut self, kept: usize) {
        while self.list.len() > kept && self.forget(0) {}
    }

    fn forget(&mut self, at: usize) -> bool {
        self.list.remove(at).is_some_and(|gone| self.all.remove(&gone))
    }

    pub(super) fn written(&mut self) {
        self.list.written();
    }

    pub(super) fn change(&self) -> Option<Noted<'_, T>> {
        self.list.change()
    }
}

impl<T: Ord + Copy + Moves> Takes<T> for Remembered<T> {
    fn drops(&mut self, at: usize) -> bool {
        self.forget(at)
    }

    fn moves(&mut self, _: usize, _: T::Moved) -> bool {
        false
    }

    fn gets(&mut self, item: T) -> bool {
        let new = !self.contains(item);
        self.remember(item);
        new
    }
}

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Remembered { list: Marked::default(), all: Sorted::default() }
    }
}

impl<T: fmt::Debug> fmt::Debug for Remembered<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list.fmt(f)
    }
}

impl<T: PartialEq> PartialEq for Remembered<T> {
    fn eq(&self, other: &Self) -> bool {
        self.list == other.list
    }
}

impl<T: Eq> Eq for Remembered<T> {}

impl<T: Hash> Hash for Remembered<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.list.hash(state);
    }
}

impl<C, T: Encode<C>> Encode<C> for Remembered<T> {
    fn encode<W: Write>(
        &self,
        encoder: &mut Encoder<W>,
        context: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        self.list.encode(encoder, context)
    }
}

impl<'b, C, T: Decode<'b, C> + Ord + Copy> Decode<'b, C> for Remembered<T> {
    fn decode(decoder: &mut Decoder<'b>, context: &mut C) -> Result<Self, decode::Error> {
        let list: Marked<T> = decoder.decode_with(context)?;
        let all: Sorted<T> = list.iter().copied().collect();
        let twice = all.len() < list.len();
        if twice {
            Err(decode::Error::message("one thing twice"))
        } else {
            Ok(Remembered { list, all })
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use proptest::prelude::*;

    impl Moves for u8 {
        type Moved = u8;

        fn moved(&self) -> u8 {
            *self
        }

        fn move_to(&mut self, moved: u8) -> bool {
            *self = moved;
            true
        }
    }

    /// What happens to a list.
    #[derive(Clone, Copy, Debug)]
    enum Deed {
        Add(u8),
        Change(usize, u8),
        Drop(usize),
        Write,
    }

    fn deed() -> impl Strategy<Value = Deed> {
        prop_oneof![
            4 => any::<u8>().prop_map(Deed::Add),
            3 => (any::<usize>(), any::<u8>()).prop_map(|(at, to)| Deed::Change(at, to)),
            3 => any::<usize>().prop_map(Deed::Drop),
            2 => Just(Deed::Write),
        ]
    }

    /// What was written last, and the change since.
    fn follow(list: &Marked<u8>, written: &mut Marked<u8>) {
        match list.change() {
            Some(noted) => {
                let bytes = minicbor::to_vec(noted).unwrap();
                let change: Change<u8> = minicbor::decode(&bytes).unwrap();
                change.make(written).unwrap();
            }
            None => *written = list.clone(),
        }
        assert_eq!(list, written);
        assert_eq!(
            list.untouched(),
            minicbor::to_vec(list.change()).unwrap() == [0x83, 0x80, 0x80, 0x80]
        );
    }

    proptest! {
        #[test]
        fn a_list_is_what_was_written_and_its_changes(
            deeds in prop::collection::vec(deed(), 0..200),
        ) {
            let mut list = Marked::default();
            let mut written = Marked::default();
            for deed in deeds {
                let places = list.len().max(1);
                match deed {
                    Deed::Add(item) => list.push(item),
                    Deed::Change(at, to) => {
                        let _ = list.get_mut(at % places).map(|item| *item = to);
                    }
                    Deed::Drop(at) => drop(list.remove(at % places)),
                    Deed::Write => {
                        follow(&list, &mut written);
                        list.written();
                        assert!(list.untouched());
                    }
                }
            }
            follow(&list, &mut written);
        }
    }

    #[test]
    fn marks_are_bounded() {
        let mut list = Marked::default();
        (0..1000).for_each(|item| list.push((item % 256) as u8));
        list.written();
        (0..MOST).for_each(|at| *list.get_mut(2 * at).unwrap() = 0);
        assert!(list.change().is_some());
        *list.get_mut(999).unwrap() = 0;
        assert!(list.change().is_none() && !list.untouched());
        list.written();
        assert!((0..500).all(|_| list.remove(0).is_some()));
        assert!(list.change().is_some(), "one run");
    }

    #[test]
    fn a_change_of_something_else_is_refused() {
        for change in [
            Change { dropped: vec![(0, 3)], changed: vec![], added: vec![] },
            Change { dropped: vec![(2, 1)], changed: vec![], added: vec![] },
            Change { dropped: vec![], changed: vec![(2, 9)], added: vec![] },
        ] {
            let mut list = Marked::default();
            [1, 2].into_iter().for_each(|item| list.push(item));
            assert!(change.make(&mut list).is_err());
        }
        let mut once = Remembered::default();
        once.remember(1);
        assert!(
            Change { dropped: vec![], changed: vec![], added: vec![1] }.make(&mut once).is_err()
        );
        assert!(
            Change { dropped: vec![], changed: vec![(0, 1)], added: vec![] }
                .make(&mut once)
                .is_err()
        );
    }
}
