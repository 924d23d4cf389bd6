//! The reference observer: it stands beside the ledger, sees what goes in and what comes out, and keeps
//! the truth about each call by itself. It never reads the ledger's state.
//!
//! It is told outcomes, and checks that each was allowed; where the design leaves no choice it also
//! checks that what had to be let through was. A breach is kept as a finding under its invariant's name.

use crate::talk::{
    Asked, Content, Message, NOTICES, Offered, Reply, Sent, brief, runs, thread_name,
};
use std::collections::{BTreeMap, BTreeSet};
use tigertally::guard::fault::Code;
use tigertally::ledger::event::{Admitted, Ending, Millis, Outcome, Refused};
use tigertally::ledger::rules::Rules;

/// A call, as it truly stands.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) tool: &'static str,
    pub(crate) arguments: u32,
    pub(crate) choice: u64,
    pub(crate) deadline: Option<u64>,
    pub(crate) proposal: usize,
    pub(crate) answered: Option<Content>,
    pub(crate) gone: Option<Gone>,
    /// `idempotency-key` of the decision on it.
    pub(crate) decided_by: Option<u32>,
    /// Offered in history in a way that another call could have been offered as well.
    pub(crate) blurred: bool,
    /// Results, notices aside, that went up for it in a live run.
    pub(crate) went_up: BTreeSet<Content>,
}

/// Why a call ended without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    Superseded,
    TimedOut,
    Replaced,
    Unchosen,
}

impl Call {
    pub(crate) fn open(&self) -> bool {
        self.answered.is_none() && self.gone.is_none()
    }

    fn is(&self, asked: &Asked) -> bool {
        self.tool == asked.tool && self.arguments == asked.arguments
    }

    /// Whether the result is this very call's, by all that may be judged.
    fn fits(&self, asked: &Asked, reply: &Reply) -> bool {
        let echoes = self.tool == crate::talk_tools()[0];
        self.is(asked)
            && reply.name.is_none_or(|name| name == self.tool)
            && (!echoes || reply.echo.is_none_or(|echo| echo == self.arguments))
            && reply.attempt.is_none()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Proposal {
    pub(crate) exchange: usize,
    pub(crate) lane: usize,
    pub(crate) generation: u64,
    pub(crate) calls: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Opening(String),
    Continuation(usize),
    /// Goes on with notices in place of results that were accepted before.
    Recovery(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Flight,
    Settled,
    Delivered,
    Failed,
    Withheld(Code),
}

#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) id: u128,
    pub(crate) list: Vec<Message>,
    pub(crate) spelled: String,
    pub(crate) lane: usize,
    pub(crate) generation: u64,
    pub(crate) kind: Kind,
    pub(crate) state: State,
    pub(crate) unreached: bool,
    pub(crate) lease: u64,
    /// Which model call of its generation.
    pub(crate) ordinal: u32,
    pub(crate) proposal: Option<usize>,
}

impl Exchange {
    pub(crate) fn under_way(&self) -> bool {
        matches!(self.state, State::Flight | State::Settled)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Lane {
    pub(crate) current: u64,
    pub(crate) model_calls: u32,
}

pub(crate) struct Observer {
    header: bool,
    pub(crate) calls: Vec<Call>,
    pub(crate) proposals: Vec<Proposal>,
    pub(crate) exchanges: Vec<Exchange>,
    pub(crate) lanes: Vec<Lane>,
    threads: BTreeMap<String, usize>,
    floor: u64,
    /// Keys, each with the list that bore it.
    keys: BTreeSet<(u32, String)>,
    proposed: bool,
    /// Exchanges whose answer became unwanted in this event.
    pub(crate) cancelled: Vec<u128>,
    pub(crate) findings: Vec<(&'static str, String)>,
}

impl Observer {
    pub(crate) fn new(header: bool) -> Self {
        Observer {
            header,
            calls: Vec::new(),
            proposals: Vec::new(),
            exchanges: Vec::new(),
            lanes: Vec::new(),
            threads: BTreeMap::new(),
            floor: 0,
            keys: BTreeSet::new(),
            proposed: false,
            cancelled: Vec::new(),
            findings: Vec::new(),
        }
    }

    pub(crate) fn must(
        &mut self,
        invariant: &'static str,
        holds: bool,
        text: impl FnOnce() -> String,
    ) {
        if !holds {
            self.findings.push((invariant, text()));
        }
    }

    /// The generation that a client would name in its header now.
    pub(crate) fn current(&self) -> u64 {
        self.lanes.first().map_or(self.floor, |lane| lane.current)
    }

    pub(crate) fn open_calls(&self) -> i64 {
        self.calls.iter().filter(|call| call.open()).count() as i64
    }

    pub(crate) fn exchange(&self, id: u128) -> Option<usize> {
        self.exchanges.iter().position(|one| one.id == id)
    }

    /// Time passes, before every event.
    pub(crate) fn time(&mut self, now: Millis) {
        self.cancelled.clear();
        for call in &mut self.calls {
            if call.open() && call.deadline.is_some_and(|at| at <= now.0) {
                call.gone = Some(Gone::TimedOut);
            }
        }
        for one in &mut self.exchanges {
            if one.under_way() && one.lease <= now.0 {
                one.state = State::Failed;
            }
        }
    }

    fn move_lane(&mut self, lane: usize, generation: u64) {
        for call in &mut self.calls {
            if call.open() && self.proposals[call.proposal].lane == lane {
                call.gone = Some(Gone::Superseded);
            }
        }
        for one in &mut self.exchanges {
            if one.lane == lane && one.under_way() {
                one.state = State::Withheld(Code::StaleAnswer);
                self.cancelled.push(one.id);
            }
        }
        self.lanes[lane] = Lane { current: generation, model_calls: 0 };
    }

    // ---- a request ----

    pub(crate) fn admit(&mut self, sent: &Sent, outcome: &Outcome, rules: &Rules, now: Millis) {
        if let Some(asked) = sent.generation {
            let current = self.current();
            if asked < current {
                self.must("I3", refused_with(outcome, Code::StaleGeneration), || {
                    format!("a request of generation {asked} was let in at {current}: {outcome:?}")
                });
                return;
            }
            if self.lanes.is_empty() {
                self.lanes.push(Lane { current: asked, model_calls: 0 });
            } else if asked > current {
                self.move_lane(0, asked);
            }
        } else if self.header {
            self.must("I3", refused_with(outcome, Code::GenerationRequired), || {
                format!("no header where it is required: {outcome:?}")
            });
            return;
        }
        match outcome {
            Outcome::Admitted(admitted) => self.admitted(sent, admitted, rules, now),
            Outcome::Refused(refused) => self.refused(sent, refused, rules),
            other => self.must("I5", false, || format!("not an answer to Admit: {other:?}")),
        }
    }

    fn admitted(&mut self, sent: &Sent, admitted: &Admitted, rules: &Rules, now: Millis) {
        let runs = runs(&sent.list);
        let live = runs.last().filter(|run| run.live);
        let declared = self.declared(sent);
        let same = self.same_list(sent, live.is_some());
        let adopted = live.is_some_and(|run| {
            same.is_none()
                && self.holding(&run.pairs).is_empty()
                && self.merged(run, self.thread(sent)).is_none()
        });
        let notices = |run: &Offered| run.pairs.iter().all(|(_, reply, _)| reply.content < NOTICES);
        if adopted && !live.is_some_and(notices) {
            let proposed = self.proposed;
            self.must("I1", !proposed, || "a call that nobody registered was continued".into());
        }
        let (kind, lane) = self.kind_and_lane(sent, live, same);
        let thread = self.thread(sent);
        for (at, run) in runs.iter().enumerate().rev() {
            let substituted =
                |message: usize| admitted.substitutions.iter().any(|one| one.message == message);
            if run.live {
                if let Some(Kind::Continuation(proposal) | Kind::Recovery(proposal)) = kind {
                    // A list that was admitted before decides nothing anew.
                    self.live(proposal, run, &substituted);
                }
            } else {
                self.history(run, &substituted, at + 1 == runs.len(), thread);
            }
        }
        let lane = self.enter(lane, sent, admitted);
        let generation = admitted.generation;
        let kind = kind.unwrap_or_else(|| Kind::Continuation(self.adopt(live, lane, generation)));
        let ordinal = self.attempt(admitted, &kind, lane, declared, rules);
        if let Some(key) = sent.idempotency {
            self.keys.insert((key, brief(&sent.list)));
        }
        self.exchanges.push(Exchange {
            id: sent.exchange,
            list: sent.list.clone(),
            spelled: brief(&sent.list),
            lane,
            generation,
            kind,
            state: State::Flight,
            unreached: false,
            lease: now.0 + rules.lease.0,
            ordinal,
            proposal: None,
        });
    }

    fn declared(&self, sent: &Sent) -> bool {
        sent.declared
            || sent.idempotency.is_some_and(|key| self.keys.contains(&(key, brief(&sent.list))))
    }

    /// The newest exchange of a current generation with this very list.
    fn same_list(&self, sent: &Sent, continuation: bool) -> Option<usize> {
        let spelled = brief(&sent.list);
        self.exchanges.iter().rposition(|one| {
            one.spelled == spelled
                && !matches!(one.kind, Kind::Opening(_)) == continuation
                && self.lanes[one.lane].current == one.generation
        })
    }

    /// The lane of the list's beginning, if it is known.
    fn thread(&self, sent: &Sent) -> Option<usize> {
        if self.header { Some(0) } else { self.threads.get(&thread_name(&sent.list)).copied() }
    }

    fn kind_and_lane(
        &self,
        sent: &Sent,
        live: Option<&Offered>,
        same: Option<usize>,
    ) -> (Option<Kind>, Option<usize>) {
        let thread = || self.thread(sent);
        match (live, same) {
            (None, _) => (Some(Kind::Opening(brief(&sent.list))), thread()),
            (Some(_), Some(same)) => {
                let same = &self.exchanges[same];
                (Some(same.kind.clone()), Some(same.lane))
            }
            (Some(run), None) => {
                match self.answers(run, thread()).or_else(|| self.merged(run, thread())) {
                    None => (None, thread()),
                    Some(proposal) => {
                        let lane = if self.header { 0 } else { self.proposals[proposal].lane };
                        let recovers = self.fed(proposal, run).iter().any(|(call, _, reply, _)| {
                            let answered = self.calls[*call].answered;
                            reply.content < NOTICES
                                && answered.is_some_and(|own| own != reply.content)
                        });
                        let kind = if recovers { Kind::Recovery } else { Kind::Continuation };
                        (Some(kind(proposal)), Some(lane))
                    }
                }
            }
        }
    }

    fn enter(&mut self, lane: Option<usize>, sent: &Sent, admitted: &Admitted) -> usize {
        let generation = admitted.generation;
        let Some(lane) = lane else {
            self.lanes.push(Lane { current: generation, model_calls: 0 });
            self.threads.insert(thread_name(&sent.list), self.lanes.len() - 1);
            let first = self.floor.max(1);
            self.must("I6", generation == first, || {
                format!("a new thread began at {generation}, not {first}")
            });
            return self.lanes.len() - 1;
        };
        let current = self.lanes[lane].current;
        self.must("I3", generation >= current, || {
            format!("admitted in generation {generation}, but {current} is current")
        });
        if generation > current {
            let opening = runs(&sent.list).last().is_none_or(|run| !run.live);
            self.must("I3", opening && !self.header, || {
                format!("went from {current} to {generation} by what cannot begin a task")
            });
            self.move_lane(lane, generation);
        }
        lane
    }

    fn adopt(&mut self, live: Option<&Offered>, lane: usize, generation: u64) -> usize {
        let proposal = self.proposals.len();
        let mut calls = Vec::new();
        for (asked, reply, _) in live.iter().flat_map(|run| &run.pairs) {
            calls.push(self.calls.len());
            self.calls.push(Call {
                id: asked.id.clone(),
                tool: asked.tool,
                arguments: asked.arguments,
                choice: 0,
                deadline: None,
                proposal,
                answered: Some(reply.content),
                gone: None,
                decided_by: None,
                blurred: false,
                went_up: BTreeSet::new(),
            });
        }
        self.proposals.push(Proposal { exchange: usize::MAX, lane, generation, calls });
        proposal
    }

    /// Takes over from earlier attempts, and counts. Gives which model call of its generation it is.
    fn attempt(
        &mut self,
        admitted: &Admitted,
        kind: &Kind,
        lane: usize,
        declared: bool,
        rules: &Rules,
    ) -> u32 {
        let generation = admitted.generation;
        let before: Vec<usize> = (0..self.exchanges.len())
            .filter(|at| {
                let one = &self.exchanges[*at];
                one.lane == lane && one.generation == generation && one.kind == *kind
            })
            .collect();
        let running = before.iter().any(|at| self.exchanges[*at].under_way());
        let delivered = before.iter().any(|at| self.exchanges[*at].state == State::Delivered);
        if !matches!(kind, Kind::Opening(_)) && !declared && !rules.repeat_allowed {
            self.must("I8", !running && !delivered, || {
                "results were fed back anew, while or after they were answered".into()
            });
        }
        if admitted.attempt == 1 {
            self.must("I8", !running, || "a further attempt was taken for the first".into());
            let count = &mut self.lanes[lane].model_calls;
            let (first, ordinal) = (*count == 0, *count + 1);
            *count = ordinal;
            self.must("I9", rules.model_calls.is_none_or(|most| ordinal <= most), || {
                format!("model call {ordinal} of generation {generation}")
            });
            self.must("I9", admitted.first_call == first, || {
                format!("first_call is {} for model call {ordinal}", admitted.first_call)
            });
            return ordinal;
        }
        self.must("I8", !before.is_empty(), || "an attempt after none".into());
        let reached = before.iter().filter(|at| !self.exchanges[**at].unreached).count();
        let restarts = self.header && matches!(kind, Kind::Opening(_));
        self.must("I9", restarts || reached < rules.attempts as usize, || {
            format!("attempt after {reached} that reached the model")
        });
        let mut ordinal = 1;
        for at in before {
            let one = &mut self.exchanges[at];
            ordinal = one.ordinal;
            if one.under_way() {
                one.state = State::Withheld(Code::Overtaken);
                self.cancelled.push(one.id);
            }
            self.replace_calls_of(at);
        }
        ordinal
    }

    fn replace_calls_of(&mut self, exchange: usize) {
        for call in &mut self.calls {
            if call.open() && self.proposals[call.proposal].exchange == exchange {
                call.gone = Some(Gone::Replaced);
            }
        }
    }

    // ---- results ----

    /// Proposals that hold all ids of a run in one choice, oldest first.
    fn holding(&self, pairs: &[(Asked, Reply, usize)]) -> Vec<usize> {
        (0..self.proposals.len()).filter(|at| self.choice(*at, pairs).is_some()).collect()
    }

    /// The proposal that a live run answers: the newest that holds all its ids; those of the request's
    /// own lane come first, and among them open ones with the same calls.
    fn answers(&self, run: &Offered, lane: Option<usize>) -> Option<usize> {
        let held = self.holding(&run.pairs);
        let own = |at: &usize| Some(self.proposals[*at].lane) == lane;
        let (own, others): (Vec<usize>, Vec<usize>) = held.into_iter().partition(own);
        let open = |at: &usize| {
            let of = &self.proposals[*at].calls;
            of.iter().any(|call| self.calls[*call].open())
                && self
                    .calls_of(*at, run)
                    .iter()
                    .all(|(call, asked, ..)| self.calls[*call].is(asked))
        };
        [own, others]
            .into_iter()
            .find_map(|held| held.iter().rev().find(|at| open(at)).or_else(|| held.last()).copied())
    }

    /// The choice that a run answers: the one whose calls these are, else the first with these ids.
    fn choice(&self, proposal: usize, pairs: &[(Asked, Reply, usize)]) -> Option<u64> {
        let holds = |choice: u64, same: bool| {
            !pairs.is_empty()
                && pairs.iter().all(|(asked, _, _)| {
                    self.in_choice(proposal, choice, &asked.id)
                        .is_some_and(|call| !same || self.calls[call].is(asked))
                })
        };
        (0..3).find(|choice| holds(*choice, true)).or_else(|| (0..3).find(|c| holds(*c, false)))
    }

    fn in_choice(&self, proposal: usize, choice: u64, id: &str) -> Option<usize> {
        self.proposals[proposal]
            .calls
            .iter()
            .copied()
            .find(|call| self.calls[*call].choice == choice && self.calls[*call].id == id)
    }

    fn calls_of<'a>(
        &self,
        proposal: usize,
        run: &'a Offered,
    ) -> Vec<(usize, &'a Asked, &'a Reply, usize)> {
        let choice = self.choice(proposal, &run.pairs).unwrap_or_default();
        run.pairs
            .iter()
            .filter_map(|(asked, reply, at)| {
                Some((self.in_choice(proposal, choice, &asked.id)?, asked, reply, *at))
            })
            .collect()
    }

    fn current_call(&self, call: usize) -> bool {
        let proposal = &self.proposals[self.calls[call].proposal];
        self.lanes[proposal.lane].current == proposal.generation
    }

    fn live(&mut self, proposal: usize, run: &Offered, substituted: &dyn Fn(usize) -> bool) {
        let whole = self.choice(proposal, &run.pairs).is_some();
        let fed = self.fed(proposal, run);
        let known = fed.len() == run.pairs.len();
        let closed = run.pairs.iter().all(|(asked, reply, _)| {
            reply.content < NOTICES || fed.iter().any(|(_, of, ..)| of.id == asked.id)
        });
        self.must("I1", known || closed, || format!("went up beside known calls: {run:?}"));
        for (at, asked, reply, message) in fed.clone() {
            if !substituted(message) && reply.content >= NOTICES {
                let call = &self.calls[at];
                let standing = format!("{call:?} offered {asked:?} {reply:?}");
                let same = call.answered == Some(reply.content);
                let (open, fits) = (call.open(), call.fits(asked, reply));
                let current = self.current_call(at);
                self.must("I1", current, || format!("not of the current generation: {standing}"));
                self.must("I1", same || open, || format!("its call had ended: {standing}"));
                self.must("I1", same || fits, || format!("not that call's: {standing}"));
                let went_up = &mut self.calls[at].went_up;
                went_up.insert(reply.content);
                let results = went_up.len();
                self.must("I2", results <= 1, || format!("two results went up: {standing}"));
            }
            self.answer(at, reply.content, substituted(message));
        }
        self.leave_out(proposal, whole);
        for (at, ..) in fed {
            self.leave_out(self.calls[at].proposal, true);
        }
    }

    /// The one call of that id. Of adopted ones, which may come twice, the newest.
    fn by_id(&self, id: &str) -> Option<usize> {
        self.calls.iter().rposition(|call| call.id == id)
    }

    /// The proposal that a live run continues which no proposal holds as a whole: the newest of those
    /// whose calls it mixes; current ones and those of the request's own lane come first.
    fn merged(&self, run: &Offered, lane: Option<usize>) -> Option<usize> {
        let known = run.pairs.iter().filter_map(|(asked, ..)| self.by_id(&asked.id));
        let newest = known.max_by_key(|call| {
            let proposal = self.calls[*call].proposal;
            let own = Some(self.proposals[proposal].lane) == lane;
            (self.current_call(*call), own, proposal)
        });
        newest.filter(|_| self.proposed).map(|call| self.calls[call].proposal)
    }

    /// The calls that a live run feeds, of one lane and one choice of each message.
    fn fed<'a>(
        &self,
        proposal: usize,
        run: &'a Offered,
    ) -> Vec<(usize, &'a Asked, &'a Reply, usize)> {
        if self.choice(proposal, &run.pairs).is_some() {
            return self.calls_of(proposal, run);
        }
        let mut choices = BTreeMap::new();
        let mut fed = Vec::new();
        for (asked, reply, message) in &run.pairs {
            let Some(at) = self.by_id(&asked.id) else { continue };
            let call = &self.calls[at];
            let lane = self.proposals[call.proposal].lane;
            let elsewhere = lane != self.proposals[proposal].lane && self.current_call(at);
            let choice = |choices: &mut BTreeMap<usize, u64>| {
                *choices.entry(call.proposal).or_insert(call.choice) == call.choice
            };
            if !elsewhere && (!call.open() || choice(&mut choices)) {
                fed.push((at, asked, reply, *message));
            }
        }
        fed
    }

    /// Judges a run of history by its calls, where no proposal holds it as a whole.
    fn history_apart(
        &mut self,
        run: &Offered,
        substituted: &dyn Fn(usize) -> bool,
        last: bool,
        own: Option<usize>,
    ) {
        let mut chosen = Vec::new();
        let mut choices = BTreeMap::new();
        for (asked, reply, message) in &run.pairs {
            let same: Vec<usize> =
                (0..self.calls.len()).filter(|at| self.calls[*at].id == asked.id).collect();
            let [at] = same[..] else {
                same.into_iter().for_each(|at| self.calls[at].blurred = true);
                continue;
            };
            let truth = &self.calls[at];
            let elsewhere = Some(self.proposals[truth.proposal].lane) != own;
            let is = truth.is(asked);
            if truth.open() {
                let another = if is { elsewhere && !last } else { elsewhere || !last };
                let first = *choices.entry(truth.proposal).or_insert(truth.choice);
                if another || first != truth.choice {
                    continue;
                }
            }
            if !substituted(*message) && reply.content >= NOTICES && !truth.blurred {
                let standing = format!("{truth:?} offered {asked:?} {reply:?}");
                let (open, fits, gone) = (truth.open(), truth.fits(asked, reply), truth.gone);
                let current = self.current_call(at);
                self.must("I1", matches!(gone, None | Some(Gone::Unchosen)), || {
                    format!("content of a call that is gone went up in another shape: {standing}")
                });
                self.must("I1", !open || (fits && current), || {
                    format!("first offered in another shape, and not that call's: {standing}")
                });
            }
            if self.answer(at, reply.content, substituted(*message)) {
                chosen.push(self.calls[at].proposal);
            }
        }
        chosen.into_iter().for_each(|proposal| self.leave_out(proposal, true));
    }

    fn history(
        &mut self,
        run: &Offered,
        substituted: &dyn Fn(usize) -> bool,
        last: bool,
        own: Option<usize>,
    ) {
        let candidates = self.holding(&run.pairs);
        let exact: Vec<usize> = candidates
            .iter()
            .copied()
            .filter(|one| {
                self.calls_of(*one, run).iter().all(|(call, asked, ..)| self.calls[*call].is(asked))
            })
            .collect();
        let proposal = match (&candidates[..], &exact[..]) {
            ([], _) => return self.history_apart(run, substituted, last, own),
            ([one], _) | (_, [one]) => *one,
            _ => {
                for one in candidates {
                    for call in self.proposals[one].calls.clone() {
                        self.calls[call].blurred = true;
                    }
                }
                return;
            }
        };
        let open = self.proposals[proposal].calls.iter().any(|call| self.calls[*call].open());
        let elsewhere = Some(self.proposals[proposal].lane) != own;
        let tools = self
            .calls_of(proposal, run)
            .iter()
            .all(|(call, asked, ..)| self.calls[*call].tool == asked.tool);
        if !(tools || last && open) {
            return self.history_apart(run, substituted, last, own);
        }
        if !last && open && (exact.is_empty() || elsewhere) {
            // Other arguments than the open call's, or another thread's, and other work after it: it is
            // another call's run.
            return;
        }
        let mut chosen = false;
        for (call, asked, reply, message) in self.calls_of(proposal, run) {
            let truth = &self.calls[call];
            let standing = format!("{truth:?} offered {asked:?} {reply:?}");
            if !substituted(message) && reply.content >= NOTICES && !truth.blurred {
                let (open, fits, gone) = (truth.open(), truth.fits(asked, reply), truth.gone);
                let current = self.current_call(call);
                self.must("I1", matches!(gone, None | Some(Gone::Unchosen)), || {
                    format!("content of a call that is gone went up: {standing}")
                });
                self.must("I1", !open || (fits && current), || {
                    format!("first offered, and not that call's: {standing}")
                });
            }
            chosen |= self.answer(call, reply.content, substituted(message));
        }
        self.leave_out(proposal, chosen);
    }

    fn answer(&mut self, call: usize, content: Content, substituted: bool) -> bool {
        let call = &mut self.calls[call];
        let opens = call.open() && !substituted;
        if opens {
            call.answered = Some(content);
        }
        opens
    }

    /// What the run left out is closed.
    fn leave_out(&mut self, proposal: usize, chosen: bool) {
        for call in self.proposals[proposal].calls.clone() {
            let call = &mut self.calls[call];
            if chosen && call.open() {
                call.gone = Some(Gone::Unchosen);
            }
        }
    }

    // ---- refusals ----

    /// Legitimate traffic must pass.
    fn refused(&mut self, sent: &Sent, refused: &Refused, rules: &Rules) {
        let faults = &refused.faults;
        self.must("I5", !faults.is_empty(), || "refused for nothing".into());
        if faults.iter().any(|fault| fault.code == Code::BudgetExhausted) {
            let bounded =
                rules.model_calls.is_some() || self.exchanges.len() >= rules.attempts as usize;
            self.must("I9", bounded, || "no budget, and yet exhausted".into());
            return;
        }
        if !self.declared(sent) && self.sound(sent, rules) {
            self.must("legitimate", false, || format!("refused sound traffic: {faults:?}"));
        }
    }

    /// Whether nothing is wrong with the list: each result is its call's own, in time, and not answered.
    fn sound(&self, sent: &Sent, rules: &Rules) -> bool {
        let runs = runs(&sent.list);
        let repeats = self.same_list(sent, runs.last().is_some_and(|run| run.live)).is_some();
        let mut taken = BTreeSet::new();
        runs.iter().rev().all(|run| {
            let candidates = self.holding(&run.pairs);
            let Some(proposal) = self.answers(run, self.thread(sent)) else {
                return self.sound_apart(sent, run, rules, &mut taken);
            };
            if candidates.len() > 1 && !run.live || !taken.insert(proposal) || run.live && repeats {
                return false;
            }
            let calls = self.calls_of(proposal, run);
            let each = calls.iter().all(|(at, asked, reply, _)| {
                let call = &self.calls[*at];
                let own = call.fits(asked, reply) || reply.content < NOTICES;
                let same = call.answered == Some(reply.content);
                let current = self.current_call(*at);
                !call.blurred
                    && if run.live { current && own && (call.open() || same) } else { own }
            });
            let lane = self.proposals[proposal].lane;
            each && (!run.live || !self.continued(proposal, lane, rules))
        })
    }

    fn sound_apart(
        &self,
        sent: &Sent,
        run: &Offered,
        rules: &Rules,
        taken: &mut BTreeSet<usize>,
    ) -> bool {
        let home = self.merged(run, self.thread(sent));
        let known: Vec<_> = run
            .pairs
            .iter()
            .filter_map(|(asked, reply, _)| Some((self.by_id(&asked.id)?, asked, reply)))
            .collect();
        let each = known.iter().all(|(at, asked, reply)| {
            let call = &self.calls[*at];
            let own = call.fits(asked, reply) || reply.content < NOTICES;
            let same = call.answered == Some(reply.content);
            !call.blurred && own && (!run.live || self.current_call(*at) && (call.open() || same))
        });
        let mut proposals: Vec<usize> =
            known.iter().map(|(at, ..)| self.calls[*at].proposal).collect();
        proposals.sort_unstable();
        proposals.dedup();
        let first = proposals.into_iter().all(|one| taken.insert(one));
        let Some(home) = home.filter(|_| run.live) else { return !run.live && each && first };
        let lane = self.proposals[home].lane;
        let whole = self.fed(home, run).len() == run.pairs.len();
        each && first && whole && !self.continued(home, lane, rules)
    }

    fn continued(&self, proposal: usize, lane: usize, rules: &Rules) -> bool {
        !rules.repeat_allowed
            && self.exchanges.iter().any(|one| {
                one.lane == lane
                    && one.kind == Kind::Continuation(proposal)
                    && (one.under_way() || one.state == State::Delivered)
            })
    }

    // ---- the way out ----

    /// Whether the exchange's answer may go down.
    pub(crate) fn wanted(&self, at: usize) -> bool {
        let one = &self.exchanges[at];
        self.lanes[one.lane].current == one.generation
            && matches!(one.state, State::Flight | State::Settled | State::Delivered)
    }

    pub(crate) fn settle(
        &mut self,
        id: u128,
        calls: Vec<Call>,
        outcome: &Outcome,
        rules: &Rules,
    ) -> Option<usize> {
        let Some(at) = self.exchange(id) else {
            let withheld = matches!(outcome, Outcome::Withheld(_));
            self.must("I3", withheld, || format!("an unknown exchange is wanted: {outcome:?}"));
            return None;
        };
        let proposes = !calls.is_empty();
        let repeated = proposes && self.exchanges[at].proposal.is_some();
        let last = rules.model_calls.is_some_and(|most| self.exchanges[at].ordinal >= most);
        if *outcome == Outcome::Withheld(Code::BudgetExhausted) {
            let state = self.exchanges[at].state;
            let before = state == State::Withheld(Code::BudgetExhausted);
            self.must("I9", before || (last && proposes), || "withheld within the budget".into());
            self.exchanges[at].state = State::Withheld(Code::BudgetExhausted);
            return None;
        }
        let wanted = self.wanted(at);
        let released = *outcome == Outcome::Wanted;
        let brief = self.brief(at);
        self.must("I3", wanted || !released, || format!("released though not wanted: {brief}"));
        self.must("legitimate", !wanted || released, || {
            format!("withheld though wanted: {brief} {outcome:?}")
        });
        if !released {
            return None;
        }
        self.must("I9", !proposes || !last || repeated, || "calls on the last model call".into());
        if self.exchanges[at].state == State::Flight {
            self.exchanges[at].state = State::Settled;
        }
        if !proposes || repeated {
            return None;
        }
        let proposal = self.proposals.len();
        self.exchanges[at].proposal = Some(proposal);
        self.proposed = true;
        let first = self.calls.len();
        let (lane, generation) = (self.exchanges[at].lane, self.exchanges[at].generation);
        self.calls.extend(calls.into_iter().map(|call| Call { proposal, ..call }));
        let calls = (first..self.calls.len()).collect();
        self.proposals.push(Proposal { exchange: at, lane, generation, calls });
        Some(proposal)
    }

    fn brief(&self, at: usize) -> String {
        let one = &self.exchanges[at];
        format!("{:032x} lane {} generation {} {:?}", one.id, one.lane, one.generation, one.state)
    }

    pub(crate) fn check(&mut self, id: u128, outcome: &Outcome, rules: &Rules, now: Millis) {
        let at = self.exchange(id);
        let wanted = at.is_some_and(|at| self.wanted(at));
        let answer = *outcome == Outcome::Wanted;
        self.must("I3", !answer || wanted, || format!("check of {id:x}: still wanted"));
        self.must("legitimate", answer || !wanted, || format!("check of {id:x}: {outcome:?}"));
        if let Some(at) = at.filter(|_| answer) {
            self.exchanges[at].lease = now.0 + rules.lease.0;
        }
    }

    pub(crate) fn close(&mut self, id: u128, ending: Ending) {
        let Some(at) = self.exchange(id).filter(|at| self.exchanges[*at].under_way()) else {
            return;
        };
        if ending == Ending::Delivered && self.exchanges[at].state == State::Settled {
            self.exchanges[at].state = State::Delivered;
            let kind = self.exchanges[at].kind.clone();
            let (lane, generation) = (self.exchanges[at].lane, self.exchanges[at].generation);
            let newer = self.exchanges[at + 1..]
                .iter()
                .any(|one| one.lane == lane && one.generation == generation && one.kind == kind);
            self.must("I8", !newer, || "an overtaken attempt was delivered".into());
            return;
        }
        self.exchanges[at].state = State::Failed;
        self.exchanges[at].unreached = ending == Ending::UpstreamFailed;
        if !matches!(ending, Ending::Delivered | Ending::ClientGone { calls_sent: true }) {
            self.replace_calls_of(at);
        }
    }

    // ---- the control API ----

    pub(crate) fn advance(&mut self, asked: Option<u64>, outcome: &Outcome) {
        let highest = self.lanes.iter().map(|lane| lane.current).fold(self.floor, u64::max);
        let asked = asked.unwrap_or(highest + 1);
        if asked < highest {
            self.must("I3", refused_with(outcome, Code::StaleGeneration), || {
                format!("went back from {highest} to {asked}")
            });
            return;
        }
        let mut open: Vec<Box<str>> = Vec::new();
        if asked > highest {
            open = self.calls.iter().filter(|c| c.open()).map(|c| c.id.as_str().into()).collect();
            self.floor = asked;
            for lane in 0..self.lanes.len() {
                self.move_lane(lane, asked);
            }
        }
        let cancelled = self.cancelled.len();
        let mut told = outcome.clone();
        if let Outcome::Advanced { superseded, .. } = &mut told {
            superseded.sort();
        }
        open.sort();
        if self.calls.iter().any(|call| call.blurred) {
            // Which of two like calls is open cannot be told from outside.
            return;
        }
        let expected = Outcome::Advanced { generation: asked, superseded: open, cancelled };
        self.must("I3", told == expected, || format!("told {told:?}, expected {expected:?}"));
    }

    pub(crate) fn decide(
        &mut self,
        id: &str,
        generation: u64,
        reply: &Reply,
        key: Option<u32>,
        outcome: &Outcome,
    ) {
        let all: Vec<usize> = (0..self.proposals.len())
            .rev()
            .filter_map(|proposal| {
                let mut calls = self.proposals[proposal].calls.iter().copied();
                calls.find(|call| self.calls[*call].id == id)
            })
            .collect();
        let of =
            |call: &&usize| self.proposals[self.calls[**call].proposal].generation == generation;
        let here = |call: &&usize| of(call) && self.current_call(**call);
        let newest = all
            .iter()
            .find(|call| here(call) && self.calls[**call].open())
            .or_else(|| all.iter().find(here))
            .or_else(|| all.iter().find(of))
            .or(all.first())
            .copied();
        let Outcome::Accepted { .. } = outcome else { return };
        let Some(at) = newest else {
            return self.must("I1", false, || format!("decided on {id}, which nobody registered"));
        };
        let call = &self.calls[at];
        let standing = format!("{call:?} decided {reply:?}");
        let closing = reply.content < NOTICES;
        if call.answered.is_some() {
            let again =
                key.is_some() && call.decided_by == key && call.answered == Some(reply.content);
            return self.must("I2", again, || format!("a second result: {standing}"));
        }
        if closing && call.gone == Some(Gone::TimedOut) {
            // A notice for a call that timed out is right, and changes nothing.
            return;
        }
        let asked =
            Asked { id: id.into(), tool: call.tool, arguments: call.arguments, truth: None };
        let sound = call.open()
            && (closing || call.fits(&asked, reply))
            && (self.current_call(at) && self.proposals[call.proposal].generation == generation);
        self.must("I1", sound, || format!("accepted by decision: {standing}"));
        self.calls[at].answered = Some(reply.content);
        self.calls[at].decided_by = key;
    }
}

fn refused_with(outcome: &Outcome, code: Code) -> bool {
    matches!(outcome, Outcome::Refused(refused) if refused.faults.iter().any(|f| f.code == code))
}
