//! The runs of a list, judged: which results are accepted, which are refused, which are replaced.
//!
//! Runs are matched from the last to the first, each against the newest proposal that a later run has
//! not taken: ids repeat (`functions.x:0`), and what a model uses again later cannot touch an earlier
//! call. Nothing is changed here; decisions are carried out only when the whole request is admitted.

use super::calls::{Call, CallState, Proposal, Register};
use super::digest::Digest;
use super::event::{Fact, Millis, Notice, Pair, Run, Substitution};
use super::lanes::Lanes;
use super::rules::{AtEnd, Rules};
use super::words;
use crate::guard::fault::{Code, Fault};
use crate::guard::verdict::Action;

/// One result that becomes its call's.
#[derive(Clone, Copy, Debug)]
pub struct Decision {
    /// The proposal.
    pub seq: u64,
    /// The call's place in it.
    pub call: usize,
    /// The result.
    pub result: Digest,
    /// What the call becomes.
    pub how: How,
}

/// What a decision makes of its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Accepted.
    Accept,
    /// Closed by the client's own notice.
    Close,
    /// Let in although a rule would have refused it.
    Force,
}

/// The proposal that a live run answers.
#[derive(Clone, Copy, Debug)]
pub struct Matched {
    /// The proposal.
    pub seq: u64,
    /// The choice whose calls it answers.
    pub choice: u64,
    /// Whether nothing is decided by it: every call had ended before.
    pub ended: bool,
}

/// What the runs of a list come to.
#[derive(Debug, Default)]
pub struct Judgement {
    /// What refuses the request.
    pub faults: Vec<Fault>,
    /// What is let through and recorded.
    pub notes: Vec<Fault>,
    /// Results to be replaced by a notice.
    pub substitutions: Vec<Substitution>,
    /// Results to be made final.
    pub decisions: Vec<Decision>,
    /// The proposals whose runs are offered here for the first time, with the choice taken.
    pub offered: Vec<(u64, u64)>,
    /// The live run's proposal, if the ledger holds it.
    pub matched: Option<Matched>,
    /// What was refused of which tool, for metrics.
    pub refused: Vec<Fact>,
}

/// What the runs are judged against.
pub struct Judge<'a> {
    /// All calls.
    pub register: &'a Register,
    /// All generations.
    pub lanes: &'a Lanes,
    /// The operator's settings.
    pub rules: &'a Rules,
    /// Whether the list is one that is known and current: its live results are not judged anew.
    pub repeat: bool,
}

impl<'a> Judge<'a> {
    /// Judges every run of a list.
    #[must_use]
    pub fn list(&self, runs: &[Run]) -> Judgement {
        let mut out = Judgement::default();
        let mut claimed: Vec<u64> = Vec::new();
        for (at, run) in runs.iter().enumerate().rev() {
            let found = if run.live {
                self.register.holding(&run.pairs).next()
            } else {
                self.find_history(run, &claimed, at + 1 == runs.len())
            };
            let Some(proposal) = found else {
                self.copy(run, &mut out);
                continue;
            };
            claimed.push(proposal.seq);
            let choice = proposal.choice_of(&run.pairs).unwrap_or_default();
            if run.live {
                self.live(proposal, choice, run, &mut out);
            } else {
                self.history(proposal, choice, run, &mut out);
            }
        }
        out.substitutions.sort_by_key(|one| one.message);
        out
    }

    /// The proposal that a run of history answers. Its identity is ids, tools and arguments; of several,
    /// one whose results are these, then one not yet answered, then the newest. By ids and tools alone
    /// only when nothing else is there: clients prune old arguments.
    fn find_history(&self, run: &Run, claimed: &[u64], last: bool) -> Option<&'a Proposal> {
        let candidates = || {
            self.register.holding(&run.pairs).filter(|proposal| !claimed.contains(&proposal.seq))
        };
        let whole = |proposal: &&Proposal, test: &dyn Fn(&Call, &Pair) -> bool| {
            calls_of(proposal, run).all(|(_, call, pair)| test(call, pair))
        };
        let same = |proposal: &&Proposal| whole(proposal, &Call::is);
        candidates()
            .filter(same)
            .find(|proposal| whole(proposal, &|call, pair| call.holds(pair.result)))
            .or_else(|| candidates().filter(same).find(|proposal| proposal.open()))
            .or_else(|| candidates().find(same))
            .or_else(|| {
                candidates()
                    .find(|proposal| whole(proposal, &|call, pair| call.tool == pair.tool))
                    .filter(|proposal| last || !proposal.open())
            })
            .or_else(|| candidates().next().filter(|proposal| last && proposal.open()))
    }

    /// A run of history whose proposals later runs have taken: a second copy, or one from before our
    /// time. It decides nothing, but what is barred stays barred in every copy.
    fn copy(&self, run: &Run, out: &mut Judgement) {
        let same = |proposal: &&Proposal| {
            calls_of(proposal, run).all(|(_, call, pair)| call.tool == pair.tool)
        };
        let copied = self.register.holding(&run.pairs).filter(|_| !run.live).find(same);
        for (proposal, (at, call, pair)) in
            copied.into_iter().flat_map(|one| calls_of(one, run).map(move |each| (one, each)))
        {
            if call.barred() && !pair.closing {
                self.barred(proposal, at, pair, out);
            }
        }
    }

    fn live(&self, proposal: &Proposal, choice: u64, run: &Run, out: &mut Judgement) {
        let current = self.lanes.current(proposal.lane, proposal.generation);
        let mut ended = true;
        for (at, call, pair) in calls_of(proposal, run) {
            if self.repeat {
                self.repeated(call, pair, out);
            } else if call.answered() {
                self.answered(proposal, at, pair, current, out);
            } else if call.state == CallState::Open {
                ended = false;
                self.open(proposal, at, pair, current, out);
            } else {
                self.gone(proposal, at, pair, out);
            }
        }
        if !self.repeat {
            // What the run leaves out closes, even when nothing in the run itself was still open.
            out.offered.push((proposal.seq, choice));
        }
        out.matched = Some(Matched { seq: proposal.seq, choice, ended });
    }

    /// A list that was admitted before: only what had to be replaced then must be replaced again.
    fn repeated(&self, call: &Call, pair: &Pair, out: &mut Judgement) {
        if call.barred() && !pair.closing {
            let (code, notice) = barred_as(call);
            if self.rules.actions.action(code) == Action::Refuse {
                substitute(pair, notice, out);
            }
        }
    }

    fn answered(&self, of: &Proposal, at: usize, pair: &Pair, current: bool, out: &mut Judgement) {
        let call = &of.calls[at];
        if !call.holds(pair.result) && !pair.closing {
            self.finding(Code::Conflict, call, pair, out);
        } else if !current && !pair.closing {
            let code = if of.delivered { Code::Duplicate } else { Code::Stale };
            self.finding(code, call, pair, out);
        }
    }

    fn open(&self, of: &Proposal, at: usize, pair: &Pair, current: bool, out: &mut Judgement) {
        let call = &of.calls[at];
        let decision = |how| Decision { seq: of.seq, call: at, result: pair.result, how };
        let fault = if pair.closing {
            out.decisions.push(decision(How::Close));
            return;
        } else if !current {
            Some(Code::Stale)
        } else if mismatched(call, pair) {
            Some(Code::Mismatch)
        } else {
            None
        };
        match fault {
            None => out.decisions.push(decision(How::Accept)),
            Some(code) => {
                if self.finding(code, call, pair, out) != Action::Refuse {
                    out.decisions.push(decision(How::Accept));
                }
            }
        }
    }

    /// A live result of a call that ended without one.
    fn gone(&self, of: &Proposal, at: usize, pair: &Pair, out: &mut Judgement) {
        if pair.closing {
            return;
        }
        let call = &of.calls[at];
        let (code, at_end) = match call.state {
            CallState::Unchosen => (Code::Duplicate, AtEnd::Refuse),
            CallState::TimedOut => (Code::Late, self.rules.late),
            CallState::Superseded => (Code::Stale, self.rules.superseded),
            _ => (Code::Stale, AtEnd::Refuse),
        };
        if self.rules.actions.action(code) == Action::Refuse && at_end == AtEnd::Substitute {
            substitute(pair, barred_as(call).1, out);
        } else if self.finding(code, call, pair, out) != Action::Refuse {
            out.decisions.push(force(of, at, pair));
        }
    }

    fn history(&self, proposal: &Proposal, choice: u64, run: &Run, out: &mut Judgement) {
        let current = self.lanes.current(proposal.lane, proposal.generation);
        let mut offered = false;
        for (at, call, pair) in calls_of(proposal, run) {
            if call.answered() {
                if !call.holds(pair.result) && !pair.closing {
                    self.changed(call, pair, out);
                }
            } else if call.state == CallState::Open {
                offered = true;
                self.open(proposal, at, pair, current, out);
            } else if call.barred() && !pair.closing {
                self.barred(proposal, at, pair, out);
            }
        }
        if offered {
            out.offered.push((proposal.seq, choice));
        }
    }

    fn changed(&self, call: &Call, pair: &Pair, out: &mut Judgement) {
        match self.rules.actions.action(Code::HistoryChanged) {
            Action::Off => {}
            Action::Note => out.notes.push(words::about(Code::HistoryChanged, pair)),
            Action::Refuse => {
                self.finding(Code::Conflict, call, pair, out);
            }
        }
    }

    /// History may hold only a closing for a call that was superseded or timed out unanswered.
    fn barred(&self, of: &Proposal, at: usize, pair: &Pair, out: &mut Judgement) {
        let call = &of.calls[at];
        let (code, notice) = barred_as(call);
        if self.rules.actions.action(code) == Action::Refuse
            && self.rules.history == AtEnd::Substitute
        {
            substitute(pair, notice, out);
        } else if self.finding(code, call, pair, out) != Action::Refuse {
            out.decisions.push(force(of, at, pair));
        }
    }

    fn finding(&self, code: Code, call: &Call, pair: &Pair, out: &mut Judgement) -> Action {
        let action = self.rules.actions.action(code);
        match action {
            Action::Off => {}
            Action::Note => out.notes.push(words::about(code, pair)),
            Action::Refuse => {
                out.faults.push(words::about(code, pair));
                out.refused.push(Fact::ResultDecided {
                    tool: call.tool.clone(),
                    code: Some(code),
                    waited: None,
                });
            }
        }
        action
    }
}

/// Whether a result does not belong to the call that bears its id: another tool, other arguments, an
/// attempt that was never started, or a declared field that echoes another value.
#[must_use]
pub fn mismatched(call: &Call, pair: &Pair) -> bool {
    let renamed = pair.name.as_ref().is_some_and(|name| *name != call.tool);
    let unstarted = pair.attempt.is_some_and(|attempt| attempt == 0 || attempt > call.started);
    !call.is(pair) || renamed || unstarted || !echoes_agree(call, &pair.echoes)
}

/// Whether every field that both the call and its result hold has the same value.
#[must_use]
pub fn echoes_agree(call: &Call, echoes: &[(Box<str>, Digest)]) -> bool {
    echoes.iter().all(|(field, value)| {
        call.echoes.iter().all(|(known, asked)| known != field || asked == value)
    })
}

fn calls_of<'a>(
    proposal: &'a Proposal,
    run: &'a Run,
) -> impl Iterator<Item = (usize, &'a Call, &'a Pair)> {
    let choice = proposal.choice_of(&run.pairs);
    run.pairs.iter().filter_map(move |pair| {
        let at = proposal.call(&pair.id, choice)?;
        Some((at, &proposal.calls[at], pair))
    })
}

fn barred_as(call: &Call) -> (Code, Notice) {
    match call.state {
        CallState::TimedOut => (Code::Late, Notice::Timeout),
        _ => (Code::Stale, Notice::Superseded),
    }
}

fn force(of: &Proposal, at: usize, pair: &Pair) -> Decision {
    Decision { seq: of.seq, call: at, result: pair.result, how: How::Force }
}

fn substitute(pair: &Pair, notice: Notice, out: &mut Judgement) {
    out.substitutions.push(Substitution { message: pair.message, notice });
    out.notes.push(words::about(Code::Substituted, pair));
}

impl Decision {
    /// Carries it out.
    pub fn carry_out(&self, register: &mut Register, now: Millis) -> Option<Fact> {
        let call = register.get_mut(self.seq)?.calls.get_mut(self.call)?;
        match self.how {
            How::Accept if call.state == CallState::Open => {
                call.state = CallState::Accepted(self.result);
            }
            How::Close if call.state == CallState::Open => {
                call.state = CallState::Closed(self.result);
            }
            _ => {
                call.forced = Some(self.result);
                return None;
            }
        }
        call.ended = Some(now);
        Some(Fact::ResultDecided {
            tool: call.tool.clone(),
            code: None,
            waited: Some(now.since(call.registered)),
        })
    }
}
