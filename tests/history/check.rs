//! Looks for an order of the operations that the [`super::spec`] explains (Wing and Gong's search; states
//! that were seen are not looked at again, as Lowe does).
//!
//! Two things keep it small. A step that changes nothing and is right now is taken at once: if any order
//! explains the rest, so does the one in which this step comes first (but for what died before it, which
//! comes before it or never). And an operation without an answer
//! whose generation is over is dropped.

use super::spec::State;
use super::{Op, Outcome};
use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};

/// More states than this are not looked at.
const MOST: usize = 200_000;

/// What goes beyond the promises.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rules {
    /// Replicas were stopped for longer than a lease: an exchange may be given up by the others that
    /// later asks to go down and is refused.
    pub(crate) leases_lapse: bool,
}

/// Whether some order explains what was told; if none does, how far the best one gets.
pub(crate) fn explain(ops: &[Op], rules: Rules) -> Result<(), String> {
    let mut ops = ops.to_vec();
    ops.sort_by_key(|op| op.asked);
    let mut seen = HashSet::new();
    let mut best = Node::default();
    let mut open = vec![Node::default()];
    while let Some(node) = open.pop() {
        if node.is_done(&ops) {
            return Ok(());
        }
        if !seen.insert(node.print()) {
            continue;
        }
        if seen.len() > MOST {
            return Err(format!("not decided after {MOST} states, at {}", best.tell(&ops)));
        }
        if node.steps > best.steps {
            best = node.clone();
        }
        node.follow(&ops, rules, &mut open);
    }
    Err(format!("no order explains it; the best one stops at {}", best.tell(&ops)))
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
        let left = |op: &usize| ops[*op].outcome != Outcome::Lost && !self.is_over(ops, *op);
        !(self.from..ops.len()).any(|op| left(&op))
    }

    /// Everything that may come next.
    fn follow(&self, ops: &[Op], rules: Rules, open: &mut Vec<Node>) {
        let mut soonest = u64::MAX;
        let mut next = Vec::new();
        for me in self.from..ops.len() {
            let op = &ops[me];
            if op.asked > soonest {
                break;
            }
            if self.is_over(ops, me) {
                continue;
            }
            let lost = op.outcome == Outcome::Lost;
            if !lost {
                soonest = soonest.min(op.until.unwrap_or(u64::MAX));
            }
            let Some(state) = self.state.step(ops, me, self.taken(me), rules) else { continue };
            let unchanged = state == self.state;
            if unchanged && lost {
                continue;
            }
            if unchanged {
                // What had to be over before this is asked must be tried first.
                next.retain(|(before, _): &(usize, State)| {
                    ops[*before].until.is_some_and(|until| until < op.asked)
                });
            }
            next.push((me, state));
            if unchanged {
                break;
            }
        }
        // Those that could only come later than something that had to be over are no candidates.
        let in_time = |me: usize| ops[me].until.is_none_or(|until| until > self.latest(ops));
        next.retain(|(me, _)| in_time(*me));
        // The last is looked at first: what nobody was told of is tried when nothing else goes on.
        next.sort_by_key(|(me, _)| (ops[*me].outcome != Outcome::Lost, usize::MAX - me));
        open.extend(next.into_iter().map(|(me, state)| self.after(ops, me, state)));
    }

    /// The latest question that was already taken up: what had to be over before it comes too late.
    fn latest(&self, ops: &[Op]) -> u64 {
        let begun = |op: &usize| self.taken(*op) > 0;
        let before = self.from.checked_sub(1).map_or(0, |last| ops[last].asked);
        let here = (self.from..ops.len()).filter(begun).map(|op| ops[op].asked).max();
        here.unwrap_or(0).max(before)
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
        let state = format!("{:?}", self.state);
        let state = state.get(state.len().saturating_sub(2000)..).unwrap_or(&state);
        format!("{} of {}:\n{}\nin …{state}", self.from, ops.len(), stuck.join("\n"))
    }
}
