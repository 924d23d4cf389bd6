//! Runs that no proposal holds as a whole: their pairs are judged one by one.
//!
//! Clients merge assistant messages, rename tools and mix calls of several sources into one message. What
//! is barred stays barred in every such shape, and a merged run of which each pair is right may be
//! answered.

use super::admit::unmatched_fact;
use super::calls::{Call, CallState, Proposal};
use super::event::{Pair, Run};
use super::results::{Judge, Judgement, Matched, Offer, calls_of};
use super::words;
use crate::guard::fault::Code;
use crate::guard::verdict::Action;

/// What later runs of the list have taken.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Proposals that a run answers as a whole.
    pub(super) whole: Vec<u64>,
    /// Calls: the proposal, and the place in it.
    calls: Vec<(u64, usize)>,
}

impl Claims {
    /// A run answers this proposal as a whole.
    pub(super) fn take(&mut self, of: &Proposal, run: &Run) {
        self.whole.push(of.seq);
        self.calls.extend(calls_of(of, run).map(|(at, ..)| (of.seq, at)));
    }

    /// Whether the run may still be this proposal's.
    pub(super) fn free(&self, of: &Proposal, run: &Run) -> bool {
        !self.whole.contains(&of.seq)
            && calls_of(of, run).all(|(at, ..)| !self.calls.contains(&(of.seq, at)))
    }
}

/// A remembered call of some id.
#[derive(Clone, Copy)]
struct Place<'a> {
    of: &'a Proposal,
    at: usize,
    call: &'a Call,
    /// Whether it is of the request's own lane.
    own: bool,
}

impl Place<'_> {
    fn open(&self) -> bool {
        self.call.state == CallState::Open
    }
}

/// Which choice of each proposal a run answers: the first that it names.
#[derive(Default)]
struct Choices(Vec<(u64, u64)>);

impl Choices {
    fn admits(&mut self, place: Place<'_>) -> bool {
        let (seq, choice) = (place.of.seq, place.call.choice);
        let known = self.0.iter().find(|(of, _)| *of == seq).map(|(_, choice)| *choice);
        if known.is_none() {
            self.0.push((seq, choice));
        }
        known.is_none_or(|known| known == choice)
    }
}

impl<'a> Judge<'a> {
    /// Judges a run of history, pair by pair.
    pub(super) fn history_apart(
        &self,
        run: &Run,
        last: bool,
        claims: &mut Claims,
        out: &mut Judgement,
    ) {
        let mut choices = Choices::default();
        for pair in &run.pairs {
            let Some(place) = self.place_in_history(pair, last, claims) else { continue };
            if place.open() && !choices.admits(place) {
                continue;
            }
            claims.calls.push((place.of.seq, place.at));
            if self.past(&self.offer(place, pair), out) {
                out.offered.push(place.of.seq);
            }
        }
    }

    /// The call that a pair of history is judged by. `None`: it is unknown, or nothing is to be said.
    fn place_in_history(&self, pair: &Pair, last: bool, claims: &Claims) -> Option<Place<'a>> {
        let (taken, free): (Vec<Place<'a>>, Vec<Place<'a>>) = self
            .places(&pair.id)
            .into_iter()
            .partition(|one| claims.calls.contains(&(one.of.seq, one.at)));
        let same = |all: &[Place<'a>], which: &dyn Fn(&Place<'a>) -> bool| {
            all.iter().find(|one| one.call.is(pair) && which(one)).copied()
        };
        free.iter()
            .find(|one| one.call.holds(pair.result))
            .copied()
            .or_else(|| same(&free, &|one| one.open() && (one.own || last)))
            .or_else(|| same(&free, &|one| !one.open()))
            .or_else(|| same(&taken, &|one| one.call.holds(pair.result)))
            .or_else(|| same(&taken, &|one| one.call.barred()))
            .or_else(|| self.place_by_id(pair, last, &free))
    }

    /// Neither this result nor this call is known, but the id is. Ids repeat: where a call of that id was
    /// answered, this may be an older one that nobody here knows.
    fn place_by_id(&self, pair: &Pair, last: bool, free: &[Place<'a>]) -> Option<Place<'a>> {
        let all = self.places(&pair.id);
        if all.iter().any(|one| one.call.answered()) {
            return None;
        }
        if let Some(open) = free.iter().find(|one| one.open() && one.own && last) {
            return Some(*open);
        }
        let barred = || all.iter().find(|one| one.call.barred()).copied();
        (!all.iter().any(Place::open)).then(barred).flatten()
    }

    /// Whether nothing but a closing may bear this id: all its calls ended unanswered.
    pub(super) fn only_barred(&self, id: &str) -> bool {
        self.places(id).iter().all(|one| !one.call.answered() && !one.open())
    }

    /// Judges a live run that mixes calls of several proposals, or known calls with unknown ones. It
    /// continues the newest proposal among them. Where no call is known, nothing is judged.
    pub(super) fn live_apart(&self, run: &Run, out: &mut Judgement) {
        let places: Vec<_> =
            run.pairs.iter().map(|pair| (pair, self.place_at_the_end(pair))).collect();
        let found = places.iter().filter_map(|(_, place)| place.map(|place| place.of));
        let newest = found.max_by_key(|of| {
            let current = self.lanes.current(of.lane, of.generation);
            (current, Some(of.lane) == self.lane, of.seq)
        });
        let repeated = self.repeat.and_then(|seq| self.register.get(seq));
        let Some(home) = repeated.or(newest) else { return };
        let (mut recovers, mut choices) = (false, Choices::default());
        for (pair, place) in places {
            let Some(place) = place else {
                if !pair.closing && self.repeat.is_none() {
                    self.unmatched(pair, out);
                }
                continue;
            };
            let offer = self.offer(place, pair);
            let elsewhere = place.of.lane != home.lane && offer.current;
            if elsewhere || (place.open() && !choices.admits(place)) {
                // One request continues one thread, with one choice of each message: a closing of
                // anything else decides nothing.
                if !pair.closing && self.repeat.is_none() {
                    self.force_unless_refused(Code::Unmatched, &offer, out);
                }
                continue;
            }
            recovers |= self.fed(&offer, out);
            if self.repeat.is_none() {
                out.offered.push(place.of.seq);
            }
        }
        out.matched = Some(Matched { seq: home.seq, recovers });
    }

    /// The call that a live pair is judged by: one that it may answer, else this very call, else the
    /// newest of that id. A list that was admitted before means no call that is newer than its own.
    fn place_at_the_end(&self, pair: &Pair) -> Option<Place<'a>> {
        let mut all = self.places(&pair.id);
        all.retain(|one| self.repeat.is_none_or(|seq| one.of.seq <= seq));
        let current = |one: &&Place<'a>| self.lanes.current(one.of.lane, one.of.generation);
        let same = || all.iter().filter(|one| one.call.is(pair));
        same()
            .filter(current)
            .find(|one| one.open())
            .or_else(|| same().filter(current).find(|one| one.call.holds(pair.result)))
            .or_else(|| same().next())
            .or(all.first())
            .copied()
    }

    /// A live result whose call nobody knows.
    fn unmatched(&self, pair: &Pair, out: &mut Judgement) {
        let fault = words::about(Code::Unmatched, pair);
        if out.findings.weigh(fault, self.rules) == Action::Refuse {
            out.refused.push(unmatched_fact(&pair.tool));
        }
    }

    /// All remembered calls of that id, newest first; those of the request's own lane before others.
    fn places(&self, id: &str) -> Vec<Place<'a>> {
        let register: &'a _ = self.register;
        let mut all = Vec::new();
        for of in register.with_id(id) {
            let own = Some(of.lane) == self.lane;
            let calls = of.calls.iter().enumerate().filter(|(_, call)| *call.id == *id);
            all.extend(calls.map(|(at, call)| Place { of, at, call, own }));
        }
        all.sort_by_key(|one| !one.own);
        all
    }

    fn offer<'p>(&self, place: Place<'p>, pair: &'p Pair) -> Offer<'p> {
        let Place { of, at, call, .. } = place;
        Offer { of, at, call, pair, current: self.lanes.current(of.lane, of.generation) }
    }
}
