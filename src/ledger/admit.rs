//! A request asks to go up: which generation it belongs to, whether it repeats an earlier one, and what
//! its results come to. First a plan is made that changes nothing; only when nothing refuses it is the
//! plan carried out.

use super::Conversation;
use super::calls::{CallState, Origin};
use super::digest::Digest;
use super::event::{
    Admit, Admitted, Effects, ExchangeId, Fact, Millis, Outcome, Refused, Run, TaskOutcome,
};
use super::exchanges::{AdmittedOnce, Exchange, FlightState, Kind};
use super::lanes::{Lane, LaneKey};
use super::results::{Judge, Judgement};
use super::rules::Rules;
use super::words;
use crate::guard::fault::{Code, Fault};
use crate::guard::verdict::Action;

/// What an admitted request will be.
struct Plan {
    /// Its lane; `None`: a new thread.
    lane: Option<u32>,
    /// Whether it begins a new generation there.
    advances: bool,
    /// What it does. `None`: it continues a run that is adopted.
    kind: Option<Kind>,
    /// The attempt before this one.
    previous: Option<ExchangeId>,
}

/// What a request is found to be, before its budget is looked at.
struct Found {
    plan: Plan,
    faults: Vec<Fault>,
    notes: Vec<Fault>,
}

impl Conversation {
    pub(super) fn admit(
        &mut self,
        admit: &Admit,
        rules: &Rules,
        now: Millis,
        effects: &mut Effects,
    ) -> Outcome {
        if let Some(known) = self.exchanges.get(admit.exchange) {
            return Outcome::Admitted(known.admitted.0.clone());
        }
        let exhausted = |lane: &&Lane| lane.task.exhausted_by == Some(admit.exchange);
        if let Some(lane) = self.lanes.iter().find(exhausted) {
            let faults = vec![words::budget_exhausted("its budget or its time is used up")];
            return self.refused(faults, Vec::new(), Some(lane.number));
        }
        let mut notes = Vec::new();
        let header = match self.enter(admit, rules, now, effects, &mut notes) {
            Ok(header) => header,
            Err(fault) => return self.refused(vec![fault], notes, None),
        };
        let declared = admit.declared_retry
            || admit.idempotency.is_some_and(|key| self.exchanges.key_seen(key));
        let live = admit.runs.last().filter(|run| run.live);
        let repeat = live.and_then(|_| self.same_list(admit.list, true));
        let judge =
            Judge { register: &self.calls, lanes: &self.lanes, rules, repeat: repeat.is_some() };
        let mut judged = judge.list(&admit.runs);
        let Found { plan, faults, notes: found } = match live {
            Some(run) => self.continuation(admit, run, &judged, header, declared, repeat, rules),
            None => self.opening(admit, header, declared, rules),
        };
        notes.append(&mut judged.notes);
        notes.extend(found);
        judged.faults.extend(faults);
        if !judged.faults.is_empty() {
            effects.facts.append(&mut judged.refused);
            if judged.faults.iter().any(|fault| fault.code == Code::Unmatched) {
                let pairs = live.iter().flat_map(|run| &run.pairs);
                effects.facts.extend(pairs.map(|pair| unmatched_fact(&pair.tool)));
            }
            return self.refused(judged.faults, notes, plan.lane);
        }
        if let Some(why) = self.over_budget(&plan, rules) {
            if let Some(lane) = plan.lane {
                self.end_task(lane, TaskOutcome::Incomplete, now, effects);
                if let Some(lane) = self.lanes.get_mut(lane) {
                    lane.task.exhausted_by = Some(admit.exchange);
                }
            }
            return self.refused(vec![words::budget_exhausted(why)], notes, plan.lane);
        }
        self.carry_out(admit, plan, judged, notes, rules, now, effects)
    }

    /// The generation header is looked at first: it may refuse, and it may advance. Gives the header's
    /// lane, or `None` for threads.
    fn enter(
        &mut self,
        admit: &Admit,
        rules: &Rules,
        now: Millis,
        effects: &mut Effects,
        notes: &mut Vec<Fault>,
    ) -> Result<Option<u32>, Fault> {
        let known =
            self.lanes.find(LaneKey::Header).map(|lane| (lane.number, lane.task.generation));
        let Some(asked) = admit.generation else {
            if !self.uses_header && rules.automatic {
                return Ok(None);
            }
            refuse_or_note(words::generation_required(), rules, notes)?;
            return Ok(known.map(|(lane, _)| lane));
        };
        let current = known.map_or(self.lanes.floor, |(_, generation)| generation);
        if asked < current {
            refuse_or_note(words::stale_generation(asked, current), rules, notes)?;
        }
        let asked = asked.max(current);
        if !self.uses_header {
            // Threads that counted by themselves are over: from here on the client counts.
            self.uses_header = true;
            let threads: Vec<_> =
                self.lanes.iter().map(|lane| (lane.number, lane.task.generation)).collect();
            for (lane, generation) in threads {
                self.move_lane(lane, generation + 1, rules, now, effects);
            }
        }
        Ok(Some(match known {
            None => self.lanes.add(LaneKey::Header, asked, now),
            Some((lane, _)) => {
                if asked > current {
                    self.move_lane(lane, asked, rules, now, effects);
                }
                lane
            }
        }))
    }

    /// The newest exchange of a current generation with this very list.
    fn same_list(&self, list: Digest, continuation: bool) -> Option<&Exchange> {
        self.exchanges.iter().rev().find(|one| {
            one.list == list
                && matches!(one.kind, Kind::Continuation(_)) == continuation
                && self.lanes.current(one.lane, one.generation)
        })
    }

    fn opening(&self, admit: &Admit, header: Option<u32>, declared: bool, rules: &Rules) -> Found {
        let mut found = Found {
            plan: Plan { lane: header, advances: false, kind: Some(Kind::Opening), previous: None },
            faults: Vec::new(),
            notes: Vec::new(),
        };
        let same = self.same_list(admit.list, false);
        if header.is_some() {
            found.plan.previous =
                same.filter(|one| one.state != FlightState::Delivered).map(|one| one.id);
            return found;
        }
        let Some(lane) = self.lanes.find(LaneKey::Thread(admit.lane)) else {
            return self.unless_past(admit, declared, rules, found);
        };
        found.plan.lane = Some(lane.number);
        match same {
            Some(one) if lane.task.ended.is_none() => found.plan.previous = Some(one.id),
            Some(_) => found.plan.advances = true,
            None => {
                found.plan.advances = lane.task.model_calls > 0;
                found = self.unless_past(admit, declared, rules, found);
            }
        }
        found
    }

    /// A declared retry of an exchange of an older generation never begins anything.
    fn unless_past(&self, admit: &Admit, declared: bool, rules: &Rules, mut found: Found) -> Found {
        if declared && self.exchanges.is_past(admit.list) {
            let Found { faults, notes, plan } = &mut found;
            if record(words::stale_retry(), rules, faults, notes) != Action::Refuse {
                plan.advances = false;
            }
        }
        found
    }

    #[expect(clippy::too_many_arguments, reason = "each is one fact about the request")]
    fn continuation(
        &self,
        admit: &Admit,
        run: &Run,
        judged: &Judgement,
        header: Option<u32>,
        declared: bool,
        repeat: Option<&Exchange>,
        rules: &Rules,
    ) -> Found {
        let thread = || self.lanes.find(LaneKey::Thread(admit.lane)).map(|lane| lane.number);
        let mut found = Found {
            plan: Plan {
                lane: header.or_else(thread),
                advances: false,
                kind: None,
                previous: None,
            },
            faults: Vec::new(),
            notes: Vec::new(),
        };
        let previous = match (repeat, judged.matched) {
            (Some(one), _) => {
                found.plan.lane = Some(one.lane);
                found.plan.kind = Some(one.kind);
                // The newest attempt may have come with a list that says the same otherwise.
                let same = |other: &&Exchange| {
                    (other.lane, other.generation, other.kind)
                        == (one.lane, one.generation, one.kind)
                };
                self.exchanges.iter().rev().find(same)
            }
            (None, Some(matched)) => {
                let kind = Kind::Continuation(matched.seq);
                found.plan.kind = Some(kind);
                if let Some(proposal) = self.calls.get(matched.seq)
                    && header.is_none()
                {
                    found.plan.lane = Some(proposal.lane);
                }
                let current = |one: &&Exchange| self.lanes.current(one.lane, one.generation);
                let before = self.exchanges.iter().rev().filter(current);
                before.filter(|_| matched.ended).find(|one| one.kind == kind)
            }
            (None, None) => {
                self.unknown(run, rules, &mut found);
                None
            }
        };
        if let Some(one) = previous {
            let answered = one.under_way() || one.state == FlightState::Delivered;
            if answered && !declared && !rules.repeat_allowed {
                let Found { faults, notes, .. } = &mut found;
                record(words::duplicate(one.under_way()), rules, faults, notes);
            }
            found.plan.previous = Some(one.id);
        }
        found
    }

    /// A live run whose calls the ledger does not hold.
    fn unknown(&self, run: &Run, rules: &Rules, found: &mut Found) {
        if run.pairs.iter().all(|pair| pair.closing) {
            // Notices bring nothing in, and are the way out of `unmatched`.
            found.notes.extend(run.pairs.iter().map(|pair| words::about(Code::Adopted, pair)));
            return;
        }
        let adopts = !self.calls.used && rules.actions.action(Code::Adopted) != Action::Refuse;
        let code = if adopts { Code::Adopted } else { Code::Unmatched };
        for pair in &run.pairs {
            record(words::about(code, pair), rules, &mut found.faults, &mut found.notes);
        }
    }

    /// Why the plan would go beyond its budget.
    fn over_budget(&self, plan: &Plan, rules: &Rules) -> Option<&'static str> {
        if rules.actions.action(Code::BudgetExhausted) != Action::Refuse || plan.advances {
            return None;
        }
        let task = &self.lanes.get(plan.lane?)?.task;
        if task.ended == Some(TaskOutcome::Incomplete) {
            return Some("its budget or its time is used up");
        }
        match plan.previous.and_then(|id| self.exchanges.get(id)) {
            Some(previous) => {
                (reached_with(previous) >= rules.attempts).then_some("it was tried too often")
            }
            None => rules
                .model_calls
                .is_some_and(|most| task.model_calls >= most)
                .then_some("its model calls are used up"),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the plan and what it was made from")]
    fn carry_out(
        &mut self,
        admit: &Admit,
        plan: Plan,
        judged: Judgement,
        notes: Vec<Fault>,
        rules: &Rules,
        now: Millis,
        effects: &mut Effects,
    ) -> Outcome {
        self.decide_all(&judged, now, effects);
        let lane = self.lane_for(admit, &plan, rules, now, effects);
        let generation = self.lanes.get(lane).map_or(0, |lane| lane.task.generation);
        let kind = plan.kind.unwrap_or_else(|| {
            let origin = Origin { exchange: admit.exchange, lane, generation, forced: false };
            let pairs = admit.runs.last().map_or(&[][..], |run| &run.pairs);
            Kind::Continuation(self.calls.adopt(origin, pairs, now))
        });
        let (attempt, reached, last_allowed) = match plan.previous {
            Some(previous) => self.take_over(previous, rules, now, effects),
            None => (1, 0, false),
        };
        let fresh = plan.previous.is_none();
        let mut first_call = false;
        let mut last_allowed = last_allowed;
        if let Some(lane) = self.lanes.get_mut(lane) {
            let task = &mut lane.task;
            if task.ended.is_some() && fresh {
                task.ended = None;
                task.started = now;
            }
            if fresh {
                first_call = task.model_calls == 0;
                task.model_calls += 1;
                last_allowed = rules.model_calls.is_some_and(|most| task.model_calls >= most);
            }
            if kind == Kind::Opening && task.opening.is_none() {
                task.opening = Some(admit.list);
            }
            task.failed = false;
        }
        let admitted = Admitted {
            generation,
            attempt,
            first_call,
            substitutions: judged.substitutions,
            notes,
        };
        if let Some(key) = admit.idempotency {
            self.exchanges.remember_key(key, rules.kept);
        }
        self.exchanges.push(Exchange {
            id: admit.exchange,
            replica: admit.replica,
            lane,
            generation,
            kind,
            list: admit.list,
            attempt,
            reached,
            last_allowed,
            proposed: false,
            state: FlightState::Flight,
            unreached: false,
            lease: now.after(rules.lease),
            admitted: Box::new(AdmittedOnce(admitted.clone())),
        });
        self.keep_bounds(rules, now, effects);
        Outcome::Admitted(admitted)
    }

    /// Makes the results final, and closes what the runs left out.
    fn decide_all(&mut self, judged: &Judgement, now: Millis, effects: &mut Effects) {
        for decision in &judged.decisions {
            if let Some(fact) = decision.carry_out(&mut self.calls, now) {
                effects.open_calls -= 1;
                effects.facts.push(fact);
            }
        }
        for (seq, _) in &judged.offered {
            let open = &mut effects.open_calls;
            self.calls.end(
                CallState::Unchosen,
                now,
                |proposal, _| proposal.seq == *seq,
                |_| *open -= 1,
            );
        }
    }

    fn lane_for(
        &mut self,
        admit: &Admit,
        plan: &Plan,
        rules: &Rules,
        now: Millis,
        effects: &mut Effects,
    ) -> u32 {
        match plan.lane {
            None => {
                let first = self.lanes.floor.max(1);
                self.lanes.add(LaneKey::Thread(admit.lane), first, now)
            }
            Some(lane) => {
                if plan.advances {
                    let next = self.lanes.get(lane).map_or(1, |lane| lane.task.generation + 1);
                    self.move_lane(lane, next, rules, now, effects);
                }
                lane
            }
        }
    }

    /// The attempt before this one is over: what it may still bring is withheld, and the calls that its
    /// kind proposed and nobody answered are closed.
    fn take_over(
        &mut self,
        previous: ExchangeId,
        rules: &Rules,
        now: Millis,
        effects: &mut Effects,
    ) -> (u32, u32, bool) {
        let Some(before) = self.exchanges.get(previous).cloned() else { return (1, 0, false) };
        let same = |one: &Exchange| {
            one.lane == before.lane
                && one.generation == before.generation
                && one.kind == before.kind
                && (one.kind != Kind::Opening || one.list == before.list)
        };
        let mut attempts = Vec::new();
        let cancels = rules.actions.action(Code::Overtaken) == Action::Refuse;
        for exchange in self.exchanges.iter_mut().filter(|one| same(one)) {
            attempts.push(exchange.id);
            if exchange.under_way() {
                exchange.state = FlightState::Withheld(Code::Overtaken);
                if cancels {
                    effects.cancel.push((exchange.id, Code::Overtaken));
                }
            }
        }
        let open = &mut effects.open_calls;
        self.calls.end(
            CallState::Replaced,
            now,
            |proposal, _| attempts.contains(&proposal.exchange),
            |_| *open -= 1,
        );
        (before.attempt + 1, reached_with(&before), before.last_allowed)
    }

    fn refused(&self, faults: Vec<Fault>, notes: Vec<Fault>, lane: Option<u32>) -> Outcome {
        let header = self.lanes.find(LaneKey::Header).map(|lane| lane.task.generation);
        let lane = lane.and_then(|lane| self.lanes.get(lane)).map(|lane| lane.task.generation);
        Outcome::Refused(Refused { generation: lane.or(header), faults, notes })
    }

    /// Old calls, exchanges and lanes beyond the bound are folded.
    fn keep_bounds(&mut self, rules: &Rules, now: Millis, effects: &mut Effects) {
        self.calls.fold(rules.kept);
        self.exchanges.bound(rules.kept);
        let (calls, exchanges) = (&self.calls, &self.exchanges);
        let gone = self.lanes.fold(rules.kept.min(64), |lane| {
            lane.key != LaneKey::Header
                && !exchanges.iter().any(|one| one.lane == lane.number && one.under_way())
                && !calls.iter().any(|proposal| proposal.lane == lane.number && proposal.open())
        });
        for lane in gone.iter().filter(|lane| lane.task.ended.is_none()) {
            super::report_end(&lane.task, TaskOutcome::Expired, now, effects);
        }
        self.reckon_due(rules);
    }
}

fn reached_with(exchange: &Exchange) -> u32 {
    exchange.reached + u32::from(!exchange.unreached)
}

fn refuse_or_note(fault: Fault, rules: &Rules, notes: &mut Vec<Fault>) -> Result<(), Fault> {
    match rules.actions.action(fault.code) {
        Action::Refuse => return Err(fault),
        Action::Note => notes.push(fault),
        Action::Off => {}
    }
    Ok(())
}

fn record(fault: Fault, rules: &Rules, faults: &mut Vec<Fault>, notes: &mut Vec<Fault>) -> Action {
    let action = rules.actions.action(fault.code);
    match action {
        Action::Refuse => faults.push(fault),
        Action::Note => notes.push(fault),
        Action::Off => {}
    }
    action
}

/// What `Fact` tells of a result that the ledger does not hold.
#[must_use]
pub(super) fn unmatched_fact(tool: &str) -> Fact {
    Fact::ResultDecided { tool: tool.into(), code: Some(Code::Unmatched), waited: None }
}
