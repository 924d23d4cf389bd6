//! Looks for an order of the operations that the [`super::spec`] explains (Wing and Gong's search; states
//! that were seen are not looked at again, as Lowe does).
//!
//! What keeps it small:
//! - A step that changes nothing and is right now is taken at once: if any order explains the rest, so does
//!   the one in which this step comes first (but for what died before it, which comes before it or never).
//! - An operation without an answer is tried when nothing else goes on, and dropped when it could change
//!   nothing any more.
//! - Of several without an answer that ask the same, the one that was asked first is tried first: wherever
//!   an order has a later one, it may have the earlier one.

use super::spec::State;
use super::{Op, Outcome};
use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash as _, Hasher as _};
use std::rc::Rc;

/// More states than this are not looked at. What our tests record takes about one for each operation.
const MOST: usize = 200_000;

/// What goes beyond the promises.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rules {
    /// Replicas were stopped for longer than a lease: an exchange may be given up by the others that
    /// later asks to go down and is refused.
    pub(crate) leases_lapse: bool,
}

/// Whether some order explains what was told, and in how many states that was found; if none does, how far
/// the best one gets.
pub(crate) fn explain(ops: &[Op], rules: Rules) -> Result<usize, String> {
    let history = History::new(ops, rules);
    if let Some(id) = history.proposed_twice() {
        return Err(format!("{id} was proposed twice"));
    }
    let mut seen = HashSet::new();
    let mut best = Rc::new(Node::default());
    let mut open = Vec::new();
    let mut next = Some(Node::default());
    loop {
        if let Some(node) = next.filter(|node| seen.insert(node.print())) {
            let node = Rc::new(node);
            if node.is_done(&history.ops) {
                return Ok(seen.len());
            }
            if seen.len() > MOST {
                let at = best.tell(&history.ops);
                return Err(format!("not decided after {MOST} states, at {at}"));
            }
            if node.steps > best.steps {
                best = Rc::clone(&node);
            }
            open.extend(node.candidates(&history).into_iter().map(|op| (Rc::clone(&node), op)));
        }
        let Some((node, op)) = open.pop() else { break };
        next = node.then(&history, op);
    }
    let (states, at) = (seen.len(), best.tell(&history.ops));
    Err(format!("no order explains it, in {states} states; the best one stops at {at}"))
}

/// What is to be explained.
struct History {
    /// In the order in which they were asked; without those that were never sent.
    ops: Vec<Op>,
    /// For each without an answer, the one before that is like it.
    twins: Vec<Option<usize>>,
    rules: Rules,
}

impl History {
    fn new(ops: &[Op], rules: Rules) -> Self {
        let sent = |op: &&Op| !op.is_lost() || op.until != Some(0);
        let mut ops: Vec<Op> = ops.iter().filter(sent).cloned().collect();
        ops.sort_by_key(|op| op.asked);
        let mut last = HashMap::new();
        let twin = |(me, op): (usize, &Op)| {
            let same = || (format!("{:?}", op.action), op.until);
            op.is_lost().then(|| last.insert(same(), me)).flatten()
        };
        let twins = ops.iter().enumerate().map(twin).collect();
        History { ops, twins, rules }
    }

    /// A call's id that clients were told of in two answers: no order explains that.
    fn proposed_twice(&self) -> Option<&String> {
        let mut seen = HashSet::new();
        let proposed = self.ops.iter().filter_map(|op| match &op.outcome {
            Outcome::Proposed(calls) => Some(calls),
            _ => None,
        });
        proposed.flatten().find(|id| !seen.insert(*id))
    }
}

/// How far one order got.
#[derive(Clone, Debug, Default)]
struct Node {
    /// All operations before this one are over.
    from: usize,
    /// Of those from there on: steps taken. Shorter than they are: none.
    taken: Vec<u8>,
    state: State,
    steps: usize,
}

impl Node {
    fn taken(&self, op: usize) -> u8 {
        self.taken.get(op - self.from).copied().unwrap_or(0)
    }

    fn is_over(&self, ops: &[Op], op: usize) -> bool {
        self.taken(op) >= ops[op].steps() || ops[op].is_spent(&self.state)
    }

    fn is_done(&self, ops: &[Op]) -> bool {
        !(self.from..ops.len()).any(|op| !ops[op].is_lost() && !self.is_over(ops, op))
    }

    /// Everything that may come next, the last first.
    fn candidates(&self, history: &History) -> Vec<usize> {
        let ops = &history.ops;
        let mut soonest = u64::MAX;
        let mut next = Vec::new();
        for me in self.from..ops.len() {
            let op = &ops[me];
            if op.asked > soonest {
                break;
            }
            let waits = |twin: usize| twin >= self.from && !self.is_over(ops, twin);
            if self.is_over(ops, me) || history.twins[me].is_some_and(waits) {
                continue;
            }
            if !op.is_lost() {
                soonest = soonest.min(op.until.unwrap_or(u64::MAX));
                let step = self.state.step(ops, me, self.taken(me), history.rules);
                let Some(state) = step else { continue };
                if state == self.state {
                    // What had to be over before this is asked must be tried first.
                    next.retain(|before: &usize| {
                        ops[*before].until.is_some_and(|until| until < op.asked)
                    });
                    next.push(me);
                    break;
                }
            }
            next.push(me);
        }
        // Those that could only come later than something that had to be over are no candidates.
        let latest = self.latest(ops);
        next.retain(|me| ops[*me].until.is_none_or(|until| until > latest));
        // What nobody was told of is tried when nothing else goes on.
        next.sort_by_key(|me| (!ops[*me].is_lost(), usize::MAX - me));
        next
    }

    /// The latest question that was already taken up: what had to be over before it comes too late.
    fn latest(&self, ops: &[Op]) -> u64 {
        let begun = self.taken.iter().enumerate().filter(|(_, taken)| **taken > 0);
        let last = begun.map(|(at, _)| self.from + at).max().or(self.from.checked_sub(1));
        last.map_or(0, |last| ops[last].asked)
    }

    /// With one more step; `None` when it cannot be, or changes nothing that anybody would see.
    fn then(&self, history: &History, me: usize) -> Option<Node> {
        let ops = &history.ops;
        let state = self.state.step(ops, me, self.taken(me), history.rules)?;
        if ops[me].is_lost() && state == self.state {
            return None;
        }
        Some(self.after(ops, me, state))
    }

    fn after(&self, ops: &[Op], me: usize, state: State) -> Node {
        let mut node = Node { state, steps: self.steps + 1, ..self.clone() };
        let at = me - node.from;
        if node.taken.len() <= at {
            node.taken.resize(at + 1, 0);
        }
        node.taken[at] += 1;
        while node.from < ops.len() && node.is_over(ops, node.from) {
            node.from += 1;
            if !node.taken.is_empty() {
                node.taken.remove(0);
            }
        }
        // What is over for good looks the same however it came to be.
        for at in 0..node.taken.len() {
            if ops[node.from + at].is_spent(&node.state) {
                node.taken[at] = 1;
            }
        }
        while node.taken.last() == Some(&0) {
            node.taken.pop();
        }
        node
    }

    fn print(&self) -> (u64, u64) {
        let print = |salt: u64| {
            let mut hasher = DefaultHasher::new();
            (salt, self.from, &self.taken, &self.state).hash(&mut hasher);
            hasher.finish()
        };
        (print(0), print(1))
    }

    fn tell(&self, ops: &[Op]) -> String {
        let stuck = (self.from..ops.len()).filter(|op| !self.is_over(ops, *op)).take(12);
        let stuck: Vec<String> =
            stuck.map(|op| format!("{op} ({} taken): {:?}", self.taken(op), ops[op])).collect();
        format!("{} of {}:\n{}\nin {:?}", self.from, ops.len(), stuck.join("\n"), self.state)
    }
}
