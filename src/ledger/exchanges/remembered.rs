//! The exchanges that a conversation remembers, and how they are found: by id, by message list, by the proposal
//! that they answer, and those that are not at rest. Each event looks at the few that it is about, however many
//! there are. How they are found follows from the list: it is not written, and counts for nothing in a comparison.

use super::super::digest::Digest;
use super::super::event::ExchangeId;
use super::super::marked::{Change, Marked, Moves, Noted, Remembered, Takes};
use super::super::sorted::Sorted;
use super::{Exchange, Kind, Moved};
use minicbor::encode::{self, Write};
use minicbor::{Decode, Decoder, Encode, Encoder, decode};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::fmt;
use std::hash::{Hash, Hasher};

/// The exchanges that are remembered: those of current generations, and all that are not closed.
#[derive(Clone, Debug, Default)]
pub struct Exchanges {
    list: Marked<Exchange>,
    /// Message lists of older generations: a declared retry of one is stale.
    past: Remembered<Digest>,
    /// `idempotency-key`s seen, each with the message list that bore it.
    keys: Remembered<(Digest, Digest)>,
    index: Index,
}

/// Where exchanges are. Each has a number, which rises by one with each exchange that is added.
#[derive(Clone, Default)]
struct Index {
    next: u64,
    /// The number of each place in the list.
    numbers: VecDeque<u64>,
    by_id: Sorted<(ExchangeId, u64)>,
    by_list: Sorted<(Digest, u64)>,
    by_proposal: Sorted<(u64, u64)>,
    /// Those that are not at rest, oldest first, and perhaps some that were not: none leaves its rest.
    restless: SmallVec<[u64; 4]>,
}

impl Index {
    fn place(&self, number: u64) -> Option<usize> {
        self.numbers.binary_search(&number).ok()
    }

    fn add(&mut self, exchange: &Exchange) {
        let number = self.next;
        self.next += 1;
        self.numbers.push_back(number);
        self.by_id.insert((exchange.id, number));
        self.by_list.insert((exchange.list, number));
        if let Some(seq) = exchange.kind.proposal() {
            self.by_proposal.insert((seq, number));
        }
        if !exchange.rests() {
            self.restless.push(number);
        }
    }

    fn remove(&mut self, at: usize, exchange: &Exchange) {
        let Some(number) = self.numbers.remove(at) else { return };
        self.by_id.remove(&(exchange.id, number));
        self.by_list.remove(&(exchange.list, number));
        if let Some(seq) = exchange.kind.proposal() {
            self.by_proposal.remove(&(seq, number));
        }
        self.restless.retain(|one| *one != number);
    }
}

impl Exchanges {
    /// The exchange of that id.
    #[must_use]
    pub fn get(&self, id: ExchangeId) -> Option<&Exchange> {
        self.numbered(self.index.by_id.beside(id).next_back()?)
    }

    /// The exchange of that id, to be changed. Its id, list and kind stay.
    pub fn get_mut(&mut self, id: ExchangeId) -> Option<&mut Exchange> {
        let at = self.index.place(self.index.by_id.beside(id).next_back()?)?;
        self.list.get_mut(at)
    }

    /// All of them, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Exchange> {
        self.list.iter()
    }

    /// Those with that message list, the newest first.
    pub(in super::super) fn with_list(&self, list: Digest) -> impl Iterator<Item = &Exchange> {
        let numbers = self.index.by_list.beside(list).rev();
        numbers.filter_map(|number| self.numbered(number))
    }

    /// Those of that kind; openings only with that message list. The newest first.
    pub(in super::super) fn of_kind(
        &self,
        kind: Kind,
        list: Digest,
    ) -> impl Iterator<Item = &Exchange> {
        let openings = (kind == Kind::Opening).then(|| self.with_list(list));
        let others = kind.proposal().map(|seq| {
            let numbers = self.index.by_proposal.beside(seq).rev();
            numbers.filter_map(|number| self.numbered(number))
        });
        let all = openings.into_iter().flatten().chain(others.into_iter().flatten());
        all.filter(move |one| one.kind == kind)
    }

    /// Those that are not closed or still under way, oldest first.
    pub(in super::super) fn restless(&self) -> impl Iterator<Item = &Exchange> {
        let all = self.index.restless.iter().filter_map(|number| self.numbered(*number));
        all.filter(|one| !one.rests())
    }

    /// Changes those of them that `which` picks, oldest first.
    pub(in super::super) fn change_restless(
        &mut self,
        which: impl Fn(&Exchange) -> bool,
        mut change: impl FnMut(&mut Exchange),
    ) {
        for number in std::mem::take(&mut self.index.restless) {
            let Some(at) = self.index.place(number) else { continue };
            let Some(one) = self.list.get(at).filter(|one| !one.rests()) else { continue };
            if which(one)
                && let Some(one) = self.list.get_mut(at)
            {
                change(one);
            }
            if self.list.get(at).is_some_and(|one| !one.rests()) {
                self.index.restless.push(number);
            }
        }
    }

    /// Adds one.
    pub fn push(&mut self, exchange: Exchange) {
        let mut restless = std::mem::take(&mut self.index.restless);
        restless.retain(|number| self.numbered(*number).is_some_and(|one| !one.rests()));
        self.index.restless = restless;
        self.index.add(&exchange);
        self.list.push(exchange);
    }

    /// Whether an older generation had this list.
    #[must_use]
    pub fn is_past(&self, list: Digest) -> bool {
        self.past.contains(list)
    }

    /// Whether this key was seen with this list; remembers nothing. One key on another list repeats
    /// nothing: some clients give a whole job one key.
    #[must_use]
    pub fn key_seen(&self, key: Digest, list: Digest) -> bool {
        self.keys.contains((key, list))
    }

    /// Remembers a key and the list that bore it.
    pub fn remember_key(&mut self, key: Digest, list: Digest, kept: usize) {
        self.keys.remember((key, list));
        self.keys.bound(kept);
    }

    /// Moves what `current` no longer counts and no replica works on to the past.
    pub fn retire(&mut self, kept: usize, current: impl Fn(&Exchange) -> bool) {
        let mut at = 0;
        while let Some(one) = self.list.get(at) {
            if current(one) || !one.closed {
                at += 1;
            } else {
                self.past.remember(one.list);
                self.drops(at);
            }
        }
        self.past.bound(kept);
        self.bound(kept);
    }

    /// Drops the oldest closed exchanges beyond `kept`.
    pub fn bound(&mut self, kept: usize) {
        let mut at = 0;
        while self.list.len() > kept
            && let Some(one) = self.list.get(at)
        {
            if one.closed {
                self.drops(at);
            } else {
                at += 1;
            }
        }
    }

    fn numbered(&self, number: u64) -> Option<&Exchange> {
        self.list.get(self.index.place(number)?)
    }

    /// They were written as they are now.
    pub(in super::super) fn written(&mut self) {
        self.list.written();
        self.past.written();
        self.keys.written();
    }

    /// What became of them since. `None`: more than is worth noting.
    pub(in super::super) fn change(&self) -> Option<ExchangesNoted<'_>> {
        let (list, past, keys) = (self.list.change()?, self.past.change()?, self.keys.change()?);
        Some(ExchangesNoted { list, past, keys })
    }

    /// Makes the change that was read.
    pub(in super::super) fn make(&mut self, change: ExchangesChange) -> Result<(), decode::Error> {
        change.list.make(self)?;
        change.past.make(&mut self.past)?;
        change.keys.make(&mut self.keys)
    }
}

impl Takes<Exchange> for Exchanges {
    fn drops(&mut self, at: usize) -> bool {
        let gone = self.list.remove(at);
        gone.map(|gone| self.index.remove(at, &gone)).is_some()
    }

    fn moves(&mut self, at: usize, moved: Moved) -> bool {
        let Some(exchange) = self.list.get_mut(at) else { return false };
        let fits = exchange.move_to(moved);
        let restless = &mut self.index.restless;
        if !exchange.rests()
            && let Some(number) = self.index.numbers.get(at)
            && let Err(before) = restless.binary_search(number)
        {
            restless.insert(before, *number);
        }
        fits
    }

    fn gets(&mut self, exchange: Exchange) -> bool {
        self.push(exchange);
        true
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").finish_non_exhaustive()
    }
}

impl PartialEq for Exchanges {
    fn eq(&self, other: &Self) -> bool {
        let Exchanges { list, past, keys, .. } = self;
        (list, past, keys) == (&other.list, &other.past, &other.keys)
    }
}

impl Eq for Exchanges {}

impl Hash for Exchanges {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Exchanges { list, past, keys, .. } = self;
        (list, past, keys).hash(state);
    }
}

impl<C> Encode<C> for Exchanges {
    fn encode<W: Write>(
        &self,
        encoder: &mut Encoder<W>,
        context: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        let Exchanges { list, past, keys, .. } = self;
        encoder.array(3)?.encode_with(list, context)?;
        encoder.encode_with(past, context)?.encode_with(keys, context)?;
        Ok(())
    }
}

/// What is read of [`Exchanges`].
#[derive(Decode)]
struct Read {
    #[n(0)]
    list: Marked<Exchange>,
    #[n(1)]
    past: Remembered<Digest>,
    #[n(2)]
    keys: Remembered<(Digest, Digest)>,
}

impl<'b, C> Decode<'b, C> for Exchanges {
    fn decode(decoder: &mut Decoder<'b>, context: &mut C) -> Result<Self, decode::Error> {
        let Read { list, past, keys } = decoder.decode_with(context)?;
        let mut index = Index::default();
        list.iter().for_each(|exchange| index.add(exchange));
        Ok(Exchanges { list, past, keys, index })
    }
}

/// What became of [`Exchanges`], as it is written.
#[derive(Encode)]
pub(in super::super) struct ExchangesNoted<'a> {
    #[n(0)]
    list: Noted<'a, Exchange>,
    #[n(1)]
    past: Noted<'a, Digest>,
    #[n(2)]
    keys: Noted<'a, (Digest, Digest)>,
}

/// The same, as it is read.
#[derive(Decode)]
pub(in super::super) struct ExchangesChange {
    #[n(0)]
    list: Change<Exchange>,
    #[n(1)]
    past: Change<Digest>,
    #[n(2)]
    keys: Change<(Digest, Digest)>,
}
