//! What an agent does to its conversation: a turn is a call, its result, and an answer. Two exchanges, six events.

use tigertally::ledger::Conversation;
use tigertally::ledger::digest::{Digest, DigestKey};
use tigertally::ledger::event::{
    Admit, Alternative, Close, Ending, Event, ExchangeId, Millis, Names, Outcome, Pair, Proposed,
    Replica, Run, Settle,
};
use tigertally::ledger::rules::Rules;

/// How long a turn takes.
const TURN: u64 = 20_000;

/// What turns belong to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tasks {
    /// Each turn is a task of its own: the client counts generations.
    Each,
    /// All turns are one task: each call follows from the result before it.
    One,
}

/// An agent at some age.
#[derive(Clone)]
pub(crate) struct Agent {
    key: DigestKey,
    rules: Rules,
    pub(crate) conversation: Conversation,
    tasks: Tasks,
    turns: u64,
}

impl Agent {
    pub(crate) fn of_age(turns: u64, tasks: Tasks) -> Self {
        let (key, rules) = (DigestKey::new([7; 32]), Rules::default());
        let mut agent =
            Agent { key, rules, conversation: Conversation::default(), tasks, turns: 0 };
        while agent.turns < turns {
            let events = agent.next_turn(0);
            agent.apply(&events);
        }
        agent
    }

    /// The events of the next turn; its list still shows `history` of the runs before.
    pub(crate) fn next_turn(&mut self, history: u64) -> Vec<Event> {
        self.turns += 1;
        let turn = self.turns;
        let mut runs: Vec<Run> =
            (turn.saturating_sub(history).max(1)..turn).map(|turn| self.run(turn, false)).collect();
        let mut events = Vec::new();
        let admit = |exchange, runs: &[Run]| {
            Event::Admit(Admit {
                exchange,
                replica: Replica(1),
                generation: Some(if self.tasks == Tasks::Each { turn } else { 1 }),
                lane: self.digest("lane", 0),
                list: self.digest("list", exchange.0 as u64),
                declared_retry: false,
                idempotency: None,
                runs: runs.to_vec(),
                names: Names::default(),
            })
        };
        let (first, second) =
            (ExchangeId(u128::from(turn) * 2), ExchangeId(u128::from(turn) * 2 + 1));
        let alternatives = vec![Alternative { choice: 0, calls: vec![self.call(turn)] }];
        let delivered = |exchange| Event::Close(Close { exchange, ending: Ending::Delivered });
        events.push(admit(first, &runs));
        events.push(Event::Settle(Settle { exchange: first, alternatives, forced: false }));
        events.push(delivered(first));
        runs.push(self.run(turn, true));
        events.push(admit(second, &runs));
        events.push(Event::Settle(Settle {
            exchange: second,
            alternatives: Vec::new(),
            forced: false,
        }));
        events.push(delivered(second));
        events
    }

    pub(crate) fn apply(&mut self, events: &[Event]) {
        for (at, event) in (0..).zip(events) {
            let now = Millis(1_800_000_000_000 + self.turns * TURN + at * 1000);
            let outcome = self.conversation.apply(event, &self.rules, now).outcome;
            assert!(!matches!(outcome, Outcome::Refused(_) | Outcome::Withheld(_)), "{outcome:?}");
        }
    }

    fn digest(&self, domain: &str, n: u64) -> Digest {
        self.key.bytes(domain, &n.to_le_bytes())
    }

    fn call(&self, turn: u64) -> Proposed {
        Proposed {
            id: format!("call_{turn:024x}").into(),
            tool: "query_order".into(),
            arguments: self.digest("arguments", turn),
            echoes: Vec::new(),
            deadline: Some(Millis(15_000)),
            write: false,
        }
    }

    fn run(&self, turn: u64, live: bool) -> Run {
        let call = self.call(turn);
        let pair = Pair {
            id: call.id,
            tool: call.tool,
            arguments: call.arguments,
            message: 2 + 4 * usize::try_from(turn).unwrap(),
            result: self.digest("result", turn),
            closing: false,
            bare: true,
            name: None,
            echoes: Vec::new(),
            edits_allowed: false,
            attempt: None,
        };
        Run { live, pairs: vec![pair] }
    }
}
