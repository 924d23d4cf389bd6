//! What one event is applied with, and what is found on the way.

use super::event::{Effects, Fact, Millis, TaskOutcome};
use super::lanes::Lane;
use super::rules::Rules;
use super::story::Story;
use crate::guard::fault::{Code, Fault};
use crate::guard::verdict::Action;

/// One event being applied: by which rules, when, and what must happen outside because of it.
pub(super) struct Step<'a> {
    /// The operator's settings.
    pub(super) rules: &'a Rules,
    /// The store's time.
    pub(super) now: Millis,
    /// What must happen outside.
    pub(super) effects: Effects,
}

impl<'a> Step<'a> {
    pub(super) fn new(rules: &'a Rules, now: Millis) -> Self {
        Step { rules, now, effects: Effects::default() }
    }

    /// Whether a fault of this code refuses.
    pub(super) fn refuses(&self, code: Code) -> bool {
        self.rules.actions.action(code) == Action::Refuse
    }

    /// A task ended this way. Each task that called a model is counted once, whatever comes after.
    pub(super) fn report(&mut self, lane: &mut Lane, outcome: TaskOutcome) {
        let task = &mut lane.task;
        if task.model_calls > 0 && !task.counted {
            task.counted = true;
            self.effects.facts.push(Fact::TaskEnded {
                generation: task.generation,
                outcome,
                limit: task.limit,
                took: self.now.since(task.started),
            });
            if self.rules.told {
                self.effects.stories.push(Story::of_task(lane, outcome, self.now));
            }
        }
    }
}

/// What is wrong with a request: what refuses it, and what is only recorded.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// What refuses.
    pub(super) faults: Vec<Fault>,
    /// What is let through and recorded.
    pub(super) notes: Vec<Fault>,
}

impl Findings {
    /// Puts a fault where the rules want it; gives what they say.
    pub(super) fn weigh(&mut self, fault: Fault, rules: &Rules) -> Action {
        let action = rules.actions.action(fault.code);
        match action {
            Action::Refuse => self.faults.push(fault),
            Action::Note => self.notes.push(fault),
            Action::Off => {}
        }
        action
    }
}
