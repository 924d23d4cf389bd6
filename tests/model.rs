//! Model checking: every interleaving of a small story, not a sample of them.
//!
//! The story: a task (generation 1) is opened, tried twice, proposes two calls, and their results are fed
//! back: right, again, or another one; declared a retry or not; in time or after the deadline. At any
//! point the user moves on (generation 2, whose list holds the older run as history). Every exchange is
//! delivered or fails. `stateright` visits each state that any order of these can reach, and each must
//! satisfy I1 to I5 and I8; the happy endings must be reachable, so that the model is not empty.
//!
//! Beside the ledger each state holds the plain truth ([`Truth`]), kept from what was brought and
//! answered alone.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

use stateright::{Checker, Model, Property};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use tigertally::guard::fault::Code;
use tigertally::ledger::Conversation;
use tigertally::ledger::calls::CallState;
use tigertally::ledger::digest::DigestKey;
use tigertally::ledger::event::{
    Admit, Alternative, Close, Ending, Event, ExchangeId, Millis, Names, Outcome, Pair, Proposed,
    Replica, Run, Settle,
};
use tigertally::ledger::rules::Rules;

static KEY: LazyLock<DigestKey> = LazyLock::new(|| DigestKey::new([7; 32]));
static RULES: LazyLock<Rules> =
    LazyLock::new(|| Rules { lease: Millis(u64::MAX / 2), ..Rules::default() });

const CALLS: u8 = 2;

type Id = u8;

/// How one call is answered by a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Result_ {
    Right,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    /// The opening of a generation, once more.
    Open(u64),
    /// The model proposes two calls.
    Propose(Id),
    /// The model answers.
    Answer(Id),
    Close(Id, Closed),
    /// The results of that exchange's calls are fed back.
    Feed {
        of: Id,
        generation: u64,
        first: Result_,
        declared: bool,
    },
    /// Every deadline that runs passes.
    Deadline,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Closed {
    Delivered,
    Failed,
    Gone,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    ledger: Conversation,
    truth: Truth,
}

/// What truly happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Truth {
    /// Whether the deadline has passed.
    late: bool,
    current: u64,
    opened: [u8; 3],
    fed: u8,
    flights: BTreeMap<Id, Flight>,
    calls: BTreeMap<(Id, u8), Call>,
    /// What was broken, and what was achieved.
    seen: BTreeSet<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Flight {
    generation: u64,
    /// The exchange whose results it feeds back; `None`: an opening.
    of: Option<Id>,
    state: Flying,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Flying {
    Up,
    Settled,
    Delivered,
    Failed,
    Overtaken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Call {
    /// Registered after the deadline passed: nothing times it out any more.
    after: bool,
    answered: Option<Result_>,
    /// Its attempt was replaced, or its bytes never went out.
    withdrawn: bool,
}

impl Truth {
    fn must(&mut self, holds: bool, broken: &'static str) {
        if !holds {
            self.seen.insert(broken);
        }
    }

    fn in_time(&self, call: &Call) -> bool {
        !self.late || call.after
    }

    fn withdraw(&mut self, of: Id) {
        for ((exchange, _), call) in &mut self.calls {
            if *exchange == of && call.answered.is_none() && (!self.late || call.after) {
                call.withdrawn = true;
            }
        }
    }

    /// A newer attempt of the same work was admitted.
    fn overtake(&mut self, flight: Flight) {
        let older: Vec<Id> = self
            .flights
            .iter()
            .filter(|(_, one)| one.generation == flight.generation && one.of == flight.of)
            .map(|(id, _)| *id)
            .collect();
        for id in older {
            let one = self.flights.get_mut(&id).unwrap();
            if matches!(one.state, Flying::Up | Flying::Settled) {
                one.state = Flying::Overtaken;
            }
            self.withdraw(id);
        }
    }

    fn wanted(&self, id: Id) -> bool {
        let flight = self.flights[&id];
        let flying = matches!(flight.state, Flying::Up | Flying::Settled | Flying::Delivered);
        flying && flight.generation == self.current
    }
}

// ---- events ----

fn pairs(of: Id, first: Result_) -> Vec<Pair> {
    (0..CALLS)
        .map(|n| Pair {
            id: call_id(of, n),
            tool: "query_order".into(),
            arguments: KEY.arguments("{}"),
            message: usize::from(n) + 2,
            result: content(of, n, if n == 0 { first } else { Result_::Right }),
            closing: false,
            bare: true,
            name: None,
            echoes: Vec::new(),
            edits_allowed: false,
            attempt: None,
        })
        .collect()
}

fn call_id(of: Id, n: u8) -> Box<str> {
    format!("call_{of}_{n}").into()
}

fn content(of: Id, n: u8, result: Result_) -> tigertally::ledger::digest::Digest {
    KEY.bytes("content", format!("{of} {n} {result:?}").as_bytes())
}

fn admit(id: Id, generation: u64, list: &str, declared: bool, runs: Vec<Run>) -> Event {
    Event::Admit(Admit {
        exchange: ExchangeId(id.into()),
        replica: Replica(1),
        generation: Some(generation),
        lane: KEY.bytes("lane", b""),
        list: KEY.bytes("list", list.as_bytes()),
        declared_retry: declared,
        idempotency: None,
        runs,
        names: Names::default(),
    })
}

fn settle(id: Id, calls: u8) -> Event {
    let proposed = |n| Proposed {
        id: call_id(id, n),
        tool: "query_order".into(),
        arguments: KEY.arguments("{}"),
        echoes: Vec::new(),
        deadline: Some(Millis(50)),
        write: false,
    };
    let calls: Vec<_> = (0..calls).map(proposed).collect();
    let alternatives =
        if calls.is_empty() { Vec::new() } else { vec![Alternative { choice: 0, calls }] };
    Event::Settle(Settle { exchange: ExchangeId(id.into()), alternatives, forced: false })
}

impl State {
    fn apply(&mut self, event: &Event) -> Outcome {
        let before = self.ledger.clone();
        // Deadlines are 50 ms: the calls of before are over at 100, those of after never are.
        let now = Millis(if self.truth.late { 100 } else { 0 });
        let outcome = self.ledger.apply(event, &RULES, now).outcome;
        let mut again = self.ledger.clone();
        let repeated = again.apply(event, &RULES, now).outcome;
        self.truth.must(again == self.ledger && repeated == outcome, "idempotence");
        for (old, new) in before.calls().iter().zip(self.ledger.calls().iter()) {
            for (was, is) in old.calls.iter().zip(&new.calls) {
                self.truth.must(was.state == CallState::Open || was.state == is.state, "I2");
            }
        }
        if let (Event::Admit(admit), Outcome::Refused(_)) = (event, &outcome) {
            let mut ticked = before;
            let _ = ticked.apply(&Event::Tick, &RULES, now);
            let advances = admit.generation.unwrap() > self.truth.current;
            self.truth.must(advances || ticked == self.ledger, "I5");
            let entered = self.ledger.exchanges().get(admit.exchange).is_some();
            let accepted = |one: &Conversation| answers(one).count();
            let gained = accepted(&ticked) != accepted(&self.ledger);
            self.truth.must(!entered && !gained, "I5");
        }
        outcome
    }

    fn open(&mut self, generation: u64) {
        let attempt = self.truth.opened[generation as usize];
        self.truth.opened[generation as usize] += 1;
        let id = generation as Id * 10 + attempt;
        // The list of generation 2 holds the older task's run, in history.
        let older = self.truth.calls.keys().next().map(|(of, _)| *of);
        let older = older.filter(|of| generation == 2 && self.truth.flights[of].generation == 1);
        let runs = older.map(|of| Run { live: false, pairs: pairs(of, Result_::Right) });
        let list = format!("open {generation}");
        let event = admit(id, generation, &list, false, runs.into_iter().collect());
        match self.apply(&event) {
            Outcome::Admitted(admitted) => {
                self.truth.must(generation >= self.truth.current, "I3");
                self.truth.current = self.truth.current.max(generation);
                for n in older.iter().flat_map(|_| 0..CALLS) {
                    let unanswered = self.truth.calls[&(older.unwrap(), n)].answered.is_none();
                    let message = usize::from(n) + 2;
                    let replaced = admitted.substitutions.iter().any(|one| one.message == message);
                    self.truth.must(replaced == unanswered, "I1");
                }
                let flight = Flight { generation, of: None, state: Flying::Up };
                self.truth.overtake(flight);
                self.truth.flights.insert(id, flight);
            }
            // An opening is never refused, but for a header that is behind.
            _ => self.truth.must(generation < self.truth.current, "openings pass"),
        }
    }

    fn feed(&mut self, of: Id, generation: u64, first: Result_, declared: bool) {
        let id = 100 + self.truth.fed;
        self.truth.fed += 1;
        let list = format!("feed {of} {first:?}");
        let run = Run { live: true, pairs: pairs(of, first) };
        let outcome = self.apply(&admit(id, generation, &list, declared, vec![run]));
        let behind = generation < self.truth.current;
        if generation > self.truth.current {
            self.truth.current = generation;
        }
        let truth = &mut self.truth;
        let offered = |n: u8| if n == 0 { first } else { Result_::Right };
        let own = truth.flights[&of].generation;
        let before: Vec<Flying> =
            truth.flights.values().filter(|one| one.of == Some(of)).map(|one| one.state).collect();
        let running = before
            .iter()
            .any(|one| matches!(one, Flying::Up | Flying::Settled | Flying::Delivered));
        let each: Vec<Call> = (0..CALLS).map(|n| truth.calls[&(of, n)]).collect();
        let fits = each.iter().zip(0..).all(|(call, n)| match call.answered {
            Some(answered) => answered == offered(n),
            None => truth.in_time(call) && !call.withdrawn,
        });
        let sound = fits && !behind && own == truth.current && generation == own;
        match outcome {
            Outcome::Admitted(admitted) => {
                truth.must(sound && admitted.substitutions.is_empty(), "I1");
                truth.must(declared || !running, "I8");
                let flight = Flight { generation: own, of: Some(of), state: Flying::Up };
                truth.overtake(flight);
                truth.flights.insert(id, flight);
                for n in 0..CALLS {
                    let call = truth.calls.get_mut(&(of, n)).unwrap();
                    let again = call.answered.is_some_and(|answered| answered != offered(n));
                    call.answered = call.answered.or(Some(offered(n)));
                    truth.must(!again, "I2");
                }
                if admitted.attempt > 1 {
                    truth.seen.insert("a retry takes over");
                }
            }
            Outcome::Refused(refused) => {
                truth.must(!sound || (running && !declared), "sound results pass");
                if refused.faults.iter().any(|fault| fault.code == Code::Conflict) {
                    truth.seen.insert("a conflict is refused");
                }
            }
            _ => truth.must(false, "I5"),
        }
    }

    fn propose(&mut self, id: Id, calls: u8) {
        let wanted = self.truth.wanted(id);
        let outcome = self.apply(&settle(id, calls));
        let released = outcome == Outcome::Wanted;
        self.truth.must(!released || wanted, "I3");
        self.truth.must(released || !wanted, "wanted answers go down");
        let registered =
            self.ledger.calls().iter().find(|one| one.exchange == ExchangeId(id.into()));
        let held = registered.map_or(0, |one| one.calls.len());
        self.truth.must(held == if released { calls.into() } else { 0 }, "I4");
        if released {
            let after = self.truth.late;
            for n in 0..calls {
                let call = Call { after, answered: None, withdrawn: false };
                self.truth.calls.insert((id, n), call);
            }
            self.truth.flights.get_mut(&id).unwrap().state = Flying::Settled;
        } else {
            self.truth.seen.insert("a stale answer is withheld");
        }
    }

    fn close(&mut self, id: Id, closed: Closed) {
        let ending = match closed {
            Closed::Delivered => Ending::Delivered,
            Closed::Failed => Ending::UpstreamFailed,
            Closed::Gone => Ending::ClientGone { calls_sent: true },
        };
        let wanted = self.truth.wanted(id);
        let _ = self.apply(&Event::Close(Close { exchange: ExchangeId(id.into()), ending }));
        if !wanted {
            return;
        }
        let flight = self.truth.flights.get_mut(&id).unwrap();
        flight.state = if closed == Closed::Delivered { Flying::Delivered } else { Flying::Failed };
        let flight = *flight;
        if closed == Closed::Failed {
            self.truth.withdraw(id);
        }
        if closed == Closed::Delivered && flight.of.is_some() {
            self.truth.seen.insert(match flight.generation {
                1 => "task 1 is answered",
                _ => "task 2 is answered",
            });
        }
    }

    /// Each call's one result is what the truth has.
    fn agrees(&mut self) {
        for ((of, n), call) in self.truth.calls.clone() {
            let proposal =
                self.ledger.calls().iter().find(|one| one.exchange == ExchangeId(of.into()));
            let state = proposal.map(|one| one.calls[usize::from(n)].state);
            let expected = call.answered.map(|result| CallState::Accepted(content(of, n, result)));
            let accepted = state.filter(|one| matches!(one, CallState::Accepted(_)));
            self.truth.must(accepted == expected, "I2");
        }
    }
}

fn answers(ledger: &Conversation) -> impl Iterator<Item = &CallState> {
    let calls = ledger.calls().iter().flat_map(|one| &one.calls);
    calls.map(|call| &call.state).filter(|state| matches!(state, CallState::Accepted(_)))
}

// ---- the model ----

/// How large the story is.
struct Story {
    /// Attempts of the opening of each generation (there is no generation 0).
    openings: [u8; 3],
    /// Requests that feed results back, in all.
    feeds: u8,
}

impl Model for Story {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State { ledger: Conversation::default(), truth: Truth::default() }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let truth = &state.truth;
        for generation in [1, 2] {
            let opened = truth.opened[generation as usize];
            if opened < self.openings[generation as usize]
                && (generation == 1 || truth.opened[1] > 0)
            {
                actions.push(Action::Open(generation));
            }
        }
        if !truth.late && !truth.calls.is_empty() {
            actions.push(Action::Deadline);
        }
        for (id, flight) in &truth.flights {
            match flight.state {
                // An overtaken flight's answer comes as well, and is withheld.
                Flying::Up | Flying::Overtaken => {
                    let proposes = flight.of.is_none();
                    if !proposes {
                        actions.push(Action::Answer(*id));
                    } else if !truth.calls.contains_key(&(*id, 0)) {
                        actions.push(Action::Propose(*id));
                    }
                    if flight.state == Flying::Up {
                        actions.push(Action::Close(*id, Closed::Failed));
                    }
                }
                Flying::Settled => {
                    actions.push(Action::Close(*id, Closed::Delivered));
                    actions.push(Action::Close(*id, Closed::Gone));
                }
                Flying::Delivered | Flying::Failed => {}
            }
        }
        if truth.fed < self.feeds {
            for (of, _) in truth.calls.keys().filter(|(_, n)| *n == 0) {
                let (right, other) = (Result_::Right, Result_::Other);
                for (first, declared) in [(right, false), (right, true), (other, false)] {
                    let generation = truth.flights[of].generation;
                    actions.push(Action::Feed { of: *of, generation, first, declared });
                }
                if truth.flights[of].generation == 1 {
                    // The older task's result, under the newer task's header.
                    let (generation, first, declared) = (2, Result_::Right, false);
                    actions.push(Action::Feed { of: *of, generation, first, declared });
                }
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Open(generation) => next.open(generation),
            Action::Propose(id) => next.propose(id, CALLS),
            Action::Answer(id) => next.propose(id, 0),
            Action::Close(id, closed) => next.close(id, closed),
            Action::Feed { of, generation, first, declared } => {
                next.feed(of, generation, first, declared);
            }
            Action::Deadline => {
                next.truth.late = true;
                let _ = next.apply(&Event::Tick);
            }
        }
        next.agrees();
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn intact(state: &State, name: &str) -> bool {
            !state.truth.seen.contains(name)
        }
        let mut all = vec![
            Property::always("I1", |_, state| intact(state, "I1")),
            Property::always("I2", |_, state| intact(state, "I2")),
            Property::always("I3", |_, state| intact(state, "I3")),
            Property::always("I4", |_, state| intact(state, "I4")),
            Property::always("I5", |_, state| intact(state, "I5")),
            Property::always("I8", |_, state| intact(state, "I8")),
            Property::always("idempotence", |_, state| intact(state, "idempotence")),
            Property::always("openings pass", |_, state| intact(state, "openings pass")),
            Property::always("sound results pass", |_, state| intact(state, "sound results pass")),
            Property::always("wanted answers go down", |_, state| {
                intact(state, "wanted answers go down")
            }),
            Property::sometimes("task 1 is answered", |_, state| {
                !intact(state, "task 1 is answered")
            }),
            Property::sometimes("task 2 is answered", |_, state| {
                !intact(state, "task 2 is answered")
            }),
            Property::sometimes("a stale answer is withheld", |_, state| {
                !intact(state, "a stale answer is withheld")
            }),
        ];
        let two_feeds = [
            Property::sometimes("a retry takes over", |_, state| {
                !intact(state, "a retry takes over")
            }),
            Property::sometimes("a conflict is refused", |_, state| {
                !intact(state, "a conflict is refused")
            }),
        ];
        all.extend(two_feeds.into_iter().filter(|_| self.feeds > 1));
        all
    }
}

fn visit(story: Story) {
    let checker = story.checker().threads(2).spawn_bfs().join();
    println!(
        "{} states, {} of them distinct, depth {}",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth()
    );
    assert!(checker.is_done(), "not all states were visited");
    checker.assert_properties();
}

/// Two tasks, each opened once: what the older one leaves never reaches the newer one.
#[test]
fn every_interleaving_of_two_tasks() {
    visit(Story { openings: [0, 1, 1], feeds: 2 });
}

/// One task, opened twice and answered twice, and the next: attempts take over from each other.
#[test]
fn every_interleaving_of_two_attempts() {
    visit(Story { openings: [0, 2, 1], feeds: 1 });
}

/// The same with one request more: minutes, so it is asked for (`--release -- --ignored`).
#[test]
#[ignore = "takes minutes"]
fn every_interleaving_at_length() {
    visit(Story { openings: [0, 2, 1], feeds: 3 });
}
