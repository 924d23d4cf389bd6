//! Which proposal a run answers.
//!
//! Runs are matched from the last to the first, each against the newest proposal that a later run has
//! not taken: ids repeat (`functions.x:0`), and what a model uses again later cannot touch an earlier
//! call. A run that no proposal holds as a whole is judged pair by pair (`apart`). What the request's own
//! lane proposed comes before what another lane did: sub-agents under one conversation id use the same ids.

use super::apart::Claims;
use super::calls::Proposal;
use super::event::Run;
use super::results::{Judge, Judgement, calls_of};

impl<'a> Judge<'a> {
    /// Judges every run of a list. Nothing is changed: decisions are carried out only when the whole
    /// request is admitted.
    pub(super) fn list(&self, runs: &[Run]) -> Judgement {
        let mut out = Judgement::default();
        let mut claims = Claims::default();
        for (at, run) in runs.iter().enumerate().rev() {
            let last = at + 1 == runs.len();
            let found =
                if run.live { self.find_live(run) } else { self.find_history(run, &claims, last) };
            let Some(proposal) = found else {
                // All that it could be is taken by later runs: then it is a copy of one of them.
                let taken = || {
                    let held = self.register.holding(&run.pairs);
                    held.filter(|one| !run.live && claims.whole.contains(&one.seq))
                };
                let copied = taken().find(|one| same_calls(one, run)).or_else(|| taken().next());
                if let Some(of) = copied {
                    self.copy(of, run, &mut out);
                } else if !run.live {
                    self.history_apart(run, last, &mut claims, &mut out);
                } else if self.register.used {
                    self.live_apart(run, &mut out);
                }
                continue;
            };
            claims.take(proposal, run);
            if run.live {
                self.live(proposal, run, &mut out);
            } else {
                self.history(proposal, run, &mut out);
            }
        }
        out.substitutions.sort_by_key(|one| one.message);
        out
    }

    /// The newest proposal that holds all ids; before it, the newest open one that also has the same
    /// tools and arguments.
    fn find_live(&self, run: &Run) -> Option<&'a Proposal> {
        if let Some(seq) = self.repeat {
            // Of a merged run the exchange knows the newest proposal only.
            let one = self.register.get(seq);
            return one.filter(|one| one.choice_of(&run.pairs).is_some());
        }
        [true, false].into_iter().find_map(|own| {
            let mut held = self.holding(run, own);
            let same = self.holding(run, own).filter(|one| same_calls(one, run));
            same.filter(|one| one.open()).max_by_key(|one| one.seq).or_else(|| held.next())
        })
    }

    /// The proposal that a run of history answers. Its identity is ids, tools and arguments; of several,
    /// one whose results are these, then one not yet answered, then the newest. By ids and tools alone
    /// only when nothing else is there: clients prune old arguments.
    fn find_history(&self, run: &Run, claims: &Claims, last: bool) -> Option<&'a Proposal> {
        let free = |own| self.holding(run, own).filter(|one| claims.free(one, run));
        let whole = [true, false].into_iter().find_map(|own| {
            let same = || free(own).filter(|one| same_calls(one, run));
            same()
                .find(|one| same_results(one, run))
                .or_else(|| same().find(|one| one.open() && (own || last)))
                .or_else(|| same().find(|one| !one.open()))
        });
        // A second copy of a run that is taken is no pruned form of another one.
        let mut held = self.register.holding(&run.pairs);
        if whole.is_none()
            && held.any(|one| claims.whole.contains(&one.seq) && same_calls(one, run))
        {
            return None;
        }
        whole.or_else(|| {
            [true, false].into_iter().find_map(|own| {
                let pruned = || free(own).filter(|one| same_tools(one, run));
                pruned()
                    .find(|one| same_results(one, run))
                    .or_else(|| pruned().find(|one| last || !one.open()))
                    .or_else(|| free(own).find(|one| last && one.open()))
            })
        })
    }

    /// Proposals that hold all ids of the run, newest first: those of the request's own lane, or others.
    fn holding<'s>(
        &'s self,
        run: &'s Run,
        own: bool,
    ) -> impl Iterator<Item = &'a Proposal> + use<'a, 's> {
        let register = self.register;
        register.holding(&run.pairs).filter(move |one| (Some(one.lane) == self.lane) == own)
    }
}

fn same_calls(proposal: &Proposal, run: &Run) -> bool {
    calls_of(proposal, run).all(|(_, call, pair)| call.is(pair))
}

fn same_results(proposal: &Proposal, run: &Run) -> bool {
    calls_of(proposal, run).all(|(_, call, pair)| call.holds(pair.result))
}

fn same_tools(proposal: &Proposal, run: &Run) -> bool {
    calls_of(proposal, run).all(|(_, call, pair)| call.tool == pair.tool)
}
