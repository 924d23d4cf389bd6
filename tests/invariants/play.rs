//! A play: steps become events on a ledger and on the observer beside it, on one virtual clock. After each
//! event everything is checked that can be seen from outside; a breach is a finding with its trace.

use crate::client::{Client, reply};
use crate::observer::{self, Observer};
use crate::steps::{self, End, Generation, Step, What};
use crate::talk::{self, Asked, Message, NOTICES, Sent, brief};
use crate::talk_tools;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use tigertally::guard::fault::Code;
use tigertally::guard::verdict::Action;
use tigertally::ledger::Conversation;
use tigertally::ledger::calls::CallState;
use tigertally::ledger::digest::DigestKey;
use tigertally::ledger::event::{
    Advance, Alternative, Close, Decide, Effects, Ending, Event, ExchangeId, Millis, Outcome,
    Proposed, Refused, Settle,
};
use tigertally::ledger::exchanges::Exchange;
use tigertally::ledger::lanes::LaneKey;
use tigertally::ledger::rules::{AtEnd, Rules};

/// How a play is set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// Whether the client counts generations (by header), or the ledger does, by threads.
    pub(crate) header: bool,
    /// Whether the model uses the same ids again and again.
    pub(crate) recycled: bool,
    /// Model calls per generation.
    pub(crate) budget: Option<u32>,
    /// Attempts.
    pub(crate) attempts: u32,
    /// Whether late and superseded results are replaced at the end of a list too.
    pub(crate) substitute: bool,
}

impl Setting {
    pub(crate) fn rules(&self) -> Rules {
        let at_end = if self.substitute { AtEnd::Substitute } else { AtEnd::Refuse };
        Rules {
            model_calls: self.budget,
            attempts: self.attempts,
            late: at_end,
            superseded: at_end,
            lease: Millis(1000),
            ..Rules::default()
        }
    }
}

pub(crate) struct Play {
    pub(crate) setting: Setting,
    pub(crate) rules: Rules,
    pub(crate) key: DigestKey,
    pub(crate) conversation: Conversation,
    pub(crate) observer: Observer,
    pub(crate) client: Client,
    pub(crate) now: Millis,
    sent: Vec<Sent>,
    /// All that the ledger answered.
    pub(crate) told: Vec<(Outcome, Effects)>,
    pub(crate) events: Vec<(Millis, Event)>,
    settled: BTreeMap<u128, Settle>,
    open_calls: i64,
    minted: u128,
}

impl Play {
    pub(crate) fn new(setting: Setting, key: DigestKey) -> Self {
        Play {
            setting,
            rules: setting.rules(),
            key,
            conversation: Conversation::default(),
            observer: Observer::new(setting.header),
            client: Client::new(3),
            now: Millis(1_000_000),
            sent: Vec::new(),
            told: Vec::new(),
            events: Vec::new(),
            settled: BTreeMap::new(),
            open_calls: 0,
            minted: 0,
        }
    }

    pub(crate) fn step(&mut self, step: &Step) {
        self.now = self.now.after(Millis(step.wait));
        match &step.what {
            What::Send(send) => self.send(send),
            What::Settle { exchange, proposal } => {
                if let Some(id) = self.recent_exchange(*exchange) {
                    self.settle(id, proposal);
                }
            }
            What::Close { exchange, ending } => {
                if let Some(id) = self.recent_exchange(*exchange) {
                    self.close(id, *ending);
                }
            }
            What::Check { exchange } => {
                if let Some(id) = self.recent_exchange(*exchange) {
                    let (outcome, _) = self.apply(Event::Check(ExchangeId(id)));
                    self.observer.check(id, &outcome, &self.rules, self.now);
                }
            }
            What::Advance(by) => self.advance(*by),
            What::Decide { call, how, older, key } => self.decide(*call, *how, *older, *key),
            What::Tick => {
                self.apply(Event::Tick);
            }
        }
        self.compare();
    }

    /// The n-th newest exchange, those under way before the others.
    fn recent_exchange(&self, n: usize) -> Option<u128> {
        let all = &self.observer.exchanges;
        let (running, over): (Vec<_>, Vec<_>) = all.iter().rev().partition(|one| one.under_way());
        running.into_iter().chain(over).map(|one| one.id).nth(n)
    }

    // ---- events ----

    fn send(&mut self, send: &steps::Send) {
        let list = self.client.edited(send.list, &send.edits);
        let current = self.observer.current();
        let generation = match send.generation {
            _ if !self.setting.header => None,
            Generation::Absent if !self.observer.lanes.is_empty() => None,
            Generation::Current | Generation::Absent => Some(current),
            Generation::Next => Some(current + 1),
            Generation::Older => Some(current.saturating_sub(1)),
        };
        self.minted += 1;
        let sent = Sent {
            exchange: self.minted,
            generation,
            declared: send.declared,
            idempotency: send.idempotency,
            list,
        };
        self.sent.push(sent.clone());
        let before = self.conversation.clone();
        let event = Event::Admit(talk::admit(&sent, &self.key));
        let (outcome, _) = self.apply(event);
        self.observer.admit(&sent, &outcome, &self.rules, self.now);
        match &outcome {
            Outcome::Refused(refused) => {
                self.no_trace(&sent, before, refused);
                self.not_stuck(&sent, refused);
            }
            _ => self.client.lists.push(sent.list),
        }
    }

    fn settle(&mut self, id: u128, proposal: &[Vec<steps::Call>]) {
        // A response settles once; the same event may come again.
        let known = self.settled.get(&id).cloned();
        let first = self.observer.calls.len();
        let calls = if known.is_some() { Vec::new() } else { self.proposed(id, proposal) };
        let event = known.clone().unwrap_or_else(|| self.settle_event(id, &calls));
        let registered = calls.len();
        let (outcome, _) = self.apply(Event::Settle(event.clone()));
        let observed = self.observer.settle(id, calls, &outcome, &self.rules);
        self.registered(id, observed.is_some(), &event, known.is_some(), &outcome);
        if outcome == Outcome::Wanted && known.is_none() {
            self.settled.insert(id, event);
            let at = self.observer.exchange(id).unwrap_or_default();
            self.receive(at, first..first + registered);
        }
    }

    /// The client holds the list with the answer now: one list for each choice.
    fn receive(&mut self, exchange: usize, calls: std::ops::Range<usize>) {
        let list = self.observer.exchanges[exchange].list.clone();
        if calls.is_empty() {
            let text = Message::Text(exchange as u32);
            self.client.lists.push([&list[..], &[text]].concat());
        }
        for choice in (0..2).rev() {
            let asked: Vec<Asked> = calls
                .clone()
                .filter(|at| self.observer.calls[*at].choice == choice)
                .map(|at| {
                    let call = &self.observer.calls[at];
                    let (id, tool, arguments) = (call.id.clone(), call.tool, call.arguments);
                    Asked { id, tool, arguments, truth: Some(at) }
                })
                .collect();
            if !asked.is_empty() {
                self.client.lists.push([&list[..], &[Message::Calls(asked)]].concat());
            }
        }
    }

    fn proposed(&self, exchange: u128, proposal: &[Vec<steps::Call>]) -> Vec<observer::Call> {
        let mut out = Vec::new();
        for (choice, calls) in proposal.iter().enumerate() {
            for (at, call) in calls.iter().enumerate() {
                let tool = talk_tools()[call.tool];
                out.push(observer::Call {
                    id: if self.setting.recycled {
                        format!("functions.{tool}:{at}")
                    } else {
                        format!("call_{exchange}_{choice}_{at}")
                    },
                    tool,
                    arguments: call.arguments,
                    choice: choice as u64,
                    deadline: call.deadline.map(|span| self.now.0 + span),
                    proposal: 0,
                    answered: None,
                    gone: None,
                    decided_by: None,
                    blurred: false,
                    went_up: BTreeSet::new(),
                });
            }
        }
        out
    }

    fn settle_event(&self, id: u128, calls: &[observer::Call]) -> Settle {
        let proposed = |call: &observer::Call| Proposed {
            id: call.id.as_str().into(),
            tool: call.tool.into(),
            arguments: talk::digest(&self.key, "arguments", call.arguments),
            echoes: talk::echoes(
                (call.tool == talk_tools()[0]).then_some(call.arguments),
                &self.key,
            ),
            deadline: call.deadline.map(|at| Millis(at - self.now.0)),
            write: false,
        };
        let alternatives = (0..3)
            .map(|choice| Alternative {
                choice,
                calls: calls.iter().filter(|one| one.choice == choice).map(proposed).collect(),
            })
            .filter(|one| !one.calls.is_empty())
            .collect();
        Settle { exchange: ExchangeId(id), alternatives, forced: false }
    }

    fn close(&mut self, id: u128, ending: End) {
        let ending = match ending {
            End::Delivered => Ending::Delivered,
            End::UpstreamFailed => Ending::UpstreamFailed,
            End::OutputRefused => Ending::OutputRefused,
            End::Gone => Ending::ClientGone { calls_sent: true },
            End::GoneBeforeCalls => Ending::ClientGone { calls_sent: false },
            End::Withheld => Ending::Withheld,
        };
        self.apply(Event::Close(Close { exchange: ExchangeId(id), ending }));
        self.observer.close(id, ending);
    }

    fn advance(&mut self, by: Option<i8>) {
        let highest = self.conversation.lanes().highest();
        let to = by.map(|by| highest.saturating_add_signed(by.into()));
        self.minted += 1;
        let (outcome, _) = self.apply(Event::Advance(Advance {
            exchange: ExchangeId(self.minted),
            generation: to,
            idempotency: None,
        }));
        self.observer.advance(to, &outcome);
    }

    fn decide(&mut self, call: usize, how: steps::How, older: bool, key: Option<u32>) {
        let Some(truth) = self.observer.calls.len().checked_sub(call + 1) else { return };
        let call = self.observer.calls[truth].clone();
        let asked = Asked {
            id: call.id.clone(),
            tool: call.tool,
            arguments: call.arguments,
            truth: Some(truth),
        };
        let reply = reply(&asked, how);
        let generation = self.observer.proposals[call.proposal].generation;
        let generation = generation.saturating_sub(u64::from(older));
        self.minted += 1;
        let event = Event::Decide(Decide {
            exchange: ExchangeId(self.minted),
            generation,
            id: call.id.as_str().into(),
            name: reply.name.map(Into::into),
            result: talk::digest(&self.key, "content", reply.content),
            closing: reply.content < NOTICES,
            echoes: talk::echoes(reply.echo, &self.key),
            attempt: reply.attempt,
            idempotency: key.map(|key| talk::digest(&self.key, "idempotency", key)),
        });
        let (outcome, _) = self.apply(event);
        self.observer.decide(&call.id, generation, &reply, key, &outcome);
    }

    /// Applies an event to the ledger, and checks what holds for every event.
    fn apply(&mut self, event: Event) -> (Outcome, Effects) {
        let before = self.conversation.clone();
        let told = self.conversation.apply(&event, &self.rules, self.now);
        self.observer.time(self.now);
        self.open_calls += told.effects.open_calls;
        self.twice(&event, &told.outcome);
        self.final_stays_final(&before);
        self.lanes_apart(&event, &before);
        self.told.push((told.outcome.clone(), told.effects.clone()));
        self.events.push((self.now, event));
        (told.outcome, told.effects)
    }

    // ---- what holds ----

    /// An event applied twice gives its first outcome, and changes nothing more.
    fn twice(&mut self, event: &Event, first: &Outcome) {
        let mut again = self.conversation.clone();
        let second = again.apply(event, &self.rules, self.now);
        let same = alike(&second.outcome, first) && again == self.conversation;
        let quiet = second.effects.cancel.is_empty() && second.effects.open_calls == 0;
        self.observer.must("idempotence", same && quiet, || {
            format!("again: {:?} {:?}", second.outcome, second.effects)
        });
    }

    fn final_stays_final(&mut self, before: &Conversation) {
        for old in before.calls().iter() {
            let Some(new) = self.conversation.calls().get(old.seq) else { continue };
            for (was, is) in old.calls.iter().zip(&new.calls) {
                let stays = was.state == CallState::Open || was.state == is.state;
                self.observer.must("I2", stays, || format!("{was:?} became {is:?}"));
            }
        }
    }

    /// What one lane does leaves the others' generations, calls and exchanges alone. A result may be
    /// accepted for another lane's call, if the list holds that call.
    fn lanes_apart(&mut self, event: &Event, before: &Conversation) {
        let mut before = before.clone();
        let _ = before.apply(&Event::Tick, &self.rules, self.now);
        let lane_of = |id: &ExchangeId| {
            self.conversation
                .exchanges()
                .get(*id)
                .or(before.exchanges().get(*id))
                .map(|one| one.lane)
        };
        let (own, ids): (Vec<u32>, _) = match event {
            Event::Advance(_) | Event::Start(_) | Event::Decide(_) | Event::Resolve(_) => return,
            Event::Admit(admit) => {
                let live = admit.runs.last().filter(|run| run.live);
                let proposal = live.and_then(|run| before.calls().holding(&run.pairs).next());
                let thread = before.lanes().find(LaneKey::Thread(admit.lane));
                let thread = thread.filter(|_| proposal.is_none()).map(|lane| lane.number);
                let own = thread.into_iter().chain(proposal.map(|one| one.lane));
                let ids = admit.runs.iter().flat_map(|run| &run.pairs);
                (
                    own.chain(lane_of(&admit.exchange)).collect(),
                    ids.map(|pair| pair.id.clone()).collect(),
                )
            }
            Event::Settle(Settle { exchange, .. })
            | Event::Close(Close { exchange, .. })
            | Event::Check(exchange) => (lane_of(exchange).into_iter().collect(), BTreeSet::new()),
            Event::Tick => (Vec::new(), BTreeSet::new()),
        };
        if self.setting.header {
            return;
        }
        let others: Vec<u32> = before.lanes().iter().map(|lane| lane.number).collect();
        for lane in others.into_iter().filter(|lane| !own.contains(lane)) {
            self.lane_untouched(lane, &before, &ids);
        }
    }

    fn lane_untouched(&mut self, lane: u32, before: &Conversation, ids: &BTreeSet<Box<str>>) {
        let after = &self.conversation;
        let task = before.lanes().get(lane) == after.lanes().get(lane);
        let exchanges = |c: &Conversation| {
            let kept = |one: &&Exchange| {
                one.lane == lane && (one.under_way() || c.lanes().current(lane, one.generation))
            };
            c.exchanges().iter().filter(kept).cloned().collect::<Vec<_>>()
        };
        let exchanges = exchanges(before) == exchanges(after);
        let mut calls = true;
        for old in before.calls().iter().filter(|one| one.lane == lane) {
            let answered = old.calls.iter().any(|call| ids.contains(&call.id));
            let same = after.calls().get(old.seq).is_none_or(|new| new.calls == old.calls);
            calls &= answered || same;
        }
        self.observer.must("I6", task && exchanges && calls, || {
            format!(
                "lane {lane} changed: task {task} exchanges {exchanges} calls {calls} (true: same)"
            )
        });
    }

    /// Calls that go down are registered: all of them, as proposed, in this very step.
    fn registered(&mut self, id: u128, new: bool, event: &Settle, again: bool, outcome: &Outcome) {
        let registered: Vec<_> = self
            .conversation
            .calls()
            .iter()
            .filter(|one| one.exchange == ExchangeId(id))
            .flat_map(|one| &one.calls)
            .map(|call| (call.id.clone(), call.tool.clone(), call.arguments, call.choice))
            .collect();
        let proposed: Vec<_> = event
            .alternatives
            .iter()
            .flat_map(|one| one.calls.iter().map(move |call| (call, one.choice)))
            .map(|(call, choice)| (call.id.clone(), call.tool.clone(), call.arguments, choice))
            .collect();
        let released = *outcome == Outcome::Wanted;
        let adopted = self.observer.proposals.iter().any(|one| one.exchange == usize::MAX);
        if released {
            let held = proposed.iter().all(|call| registered.contains(call));
            self.observer.must("I4", held, || "calls were released that are not registered".into());
            let once = adopted || registered.len() == proposed.len();
            self.observer.must("I4", once, || "registered more than was released".into());
        } else if !again {
            let none = adopted || registered.is_empty();
            self.observer.must("I4", none && !new, || "withheld calls were registered".into());
        }
    }

    /// A refused request leaves what time and the header alone would have left.
    fn no_trace(&mut self, sent: &Sent, before: Conversation, refused: &Refused) {
        let budget = refused.faults.iter().any(|fault| fault.code == Code::BudgetExhausted);
        let mut expected = before;
        let _ = expected.apply(&Event::Tick, &self.rules, self.now);
        let stale = refused
            .faults
            .iter()
            .any(|fault| matches!(fault.code, Code::StaleGeneration | Code::GenerationRequired));
        if self.setting.header && !stale {
            // Another request with the same header, refused for nothing but an unknown call.
            let asked = Asked { id: "nobody".into(), tool: "none", arguments: 0, truth: None };
            let reply = reply(&asked, steps::How::Right);
            let nonsense = Sent {
                exchange: 1 << 100,
                list: vec![Message::Calls(vec![asked]), Message::Result(reply)],
                idempotency: None,
                declared: false,
                ..*sent
            };
            let mut strict = self.rules.clone();
            strict.actions = strict.actions.with(Code::Adopted, Action::Refuse);
            let event = Event::Admit(talk::admit(&nonsense, &self.key));
            let told = expected.apply(&event, &strict, self.now);
            let told = matches!(told.outcome, Outcome::Refused(_));
            self.observer.must("I5", told, || "an unknown call was not refused".into());
        }
        let same = if budget {
            expected.calls() == self.conversation.calls()
                && expected.exchanges() == self.conversation.exchanges()
        } else {
            expected == self.conversation
        };
        let after = &self.conversation;
        self.observer.must("I5", same, || {
            format!("a refused request left a trace:\n  {expected:?}\n  {after:?}")
        });
    }

    /// What was refused for its results passes once notices stand in their place and the task goes on.
    fn not_stuck(&mut self, sent: &Sent, refused: &Refused) {
        let results: Vec<usize> = refused
            .faults
            .iter()
            .filter(|fault| fault.tool_call_id.is_some())
            .filter_map(|fault| {
                fault.param.strip_prefix("messages[")?.split(']').next()?.parse().ok()
            })
            .collect();
        if results.is_empty() {
            return;
        }
        for goes_on in [true, false] {
            if !goes_on && !self.setting.header {
                continue;
            }
            let sent = Sent {
                exchange: 1 << 101,
                generation: sent.generation.map(|_| self.observer.current()),
                declared: false,
                idempotency: None,
                list: Client::recovered(&sent.list, &results, goes_on),
            };
            let mut later = self.conversation.clone();
            let event = Event::Admit(talk::admit(&sent, &self.key));
            let told = later.apply(&event, &self.rules, self.now).outcome;
            let passes = match &told {
                Outcome::Admitted(_) => true,
                // It is not the results: the budget is used up, or the answer was given or is coming.
                Outcome::Refused(again) => again.faults.iter().all(|fault| {
                    fault.code == Code::BudgetExhausted && self.setting.header
                        || fault.code == Code::Duplicate && fault.param == "messages" && !goes_on
                }),
                _ => false,
            };
            self.observer.must("I10", passes, || {
                format!("stuck: {} (goes on: {goes_on}) {told:?}", brief(&sent.list))
            });
        }
    }

    /// The sums agree, and what was cancelled is what stopped being wanted.
    fn compare(&mut self) {
        let ledger = self.conversation.calls().iter().flat_map(|one| &one.calls);
        let open = ledger.filter(|call| call.state == CallState::Open).count() as i64;
        let (told, observed) = (self.open_calls, self.observer.open_calls());
        let blurred = self.observer.calls.iter().any(|call| call.blurred);
        self.observer.must("open calls", told == open, || format!("told {told}, there are {open}"));
        self.observer.must("open calls", blurred || open == observed, || {
            format!("{open} open, the observer has {observed}")
        });
        let Some((_, effects)) = self.told.last() else { return };
        let mut cancelled: Vec<u128> = effects.cancel.iter().map(|(id, _)| id.0).collect();
        let mut expected = self.observer.cancelled.clone();
        cancelled.sort_unstable();
        expected.sort_unstable();
        self.observer.must("cancel", cancelled == expected, || {
            format!("cancelled {cancelled:?}, no longer wanted {expected:?}")
        });
        self.agree();
    }

    /// Each call's answer is what the ledger has for it.
    fn agree(&mut self) {
        let held: Vec<_> = self.conversation.calls().iter().map(|one| one.calls.clone()).collect();
        // Nothing is folded in a play this short: the n-th proposal is the observer's n-th.
        let proposals = self.observer.proposals.len();
        self.observer.must("I2", held.len() == proposals, || "proposals were lost".into());
        for (held, proposal) in held.into_iter().zip(self.observer.proposals.clone()) {
            for (held, call) in held.into_iter().zip(proposal.calls) {
                let (state, call) = (held.state, self.observer.calls[call].clone());
                let same = match state {
                    CallState::Accepted(digest) | CallState::Closed(digest) => call
                        .answered
                        .is_some_and(|own| talk::digest(&self.key, "content", own) == digest),
                    CallState::Open => call.open(),
                    CallState::TimedOut => call.gone == Some(observer::Gone::TimedOut),
                    CallState::Superseded => call.gone == Some(observer::Gone::Superseded),
                    CallState::Replaced => call.gone == Some(observer::Gone::Replaced),
                    CallState::Unchosen => call.gone == Some(observer::Gone::Unchosen),
                };
                self.observer
                    .must("I2", same || call.blurred, || format!("{state:?} for {call:?}"));
            }
        }
    }

    /// All that happened, for a failure.
    pub(crate) fn trace(&self) -> String {
        let mut out = String::new();
        for ((now, event), (outcome, effects)) in self.events.iter().zip(&self.told) {
            if let Event::Admit(admit) = event
                && let Some(sent) = self.sent.iter().find(|one| one.exchange == admit.exchange.0)
            {
                let _ = writeln!(out, "{} Admit {sent:?}", now.0);
            } else {
                let _ = writeln!(out, "{} {event:?}", now.0);
            }
            let _ = writeln!(out, "    -> {outcome:?} {effects:?}");
        }
        out
    }
}

/// The same answer. A refusal's words may differ, its codes and places may not.
fn alike(one: &Outcome, other: &Outcome) -> bool {
    match (one, other) {
        (Outcome::Refused(one), Outcome::Refused(other)) => {
            let faults = |refused: &Refused| {
                let faults = refused.faults.iter().map(|fault| (fault.code, fault.param.clone()));
                faults.collect::<Vec<_>>()
            };
            one.generation == other.generation && faults(one) == faults(other)
        }
        _ => one == other,
    }
}
