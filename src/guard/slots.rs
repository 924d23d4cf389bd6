//! The calls of one run by id, and how often each was answered.
//!
//! A few calls (nearly every run) are searched one by one; more of them by a hashed index, so that a
//! run of very many calls and results stays linear.

use std::borrow::Cow;
use std::collections::HashMap;

const FEW: usize = 16;

/// The ids of one assistant message.
#[derive(Debug, Default)]
pub(super) struct Slots<'a> {
    slots: Vec<Slot<'a>>,
    index: HashMap<Cow<'a, str>, usize>,
}

/// One id.
#[derive(Debug)]
pub(super) struct Slot<'a> {
    id: Cow<'a, str>,
    /// Position of the first call that has it.
    pub(super) call: usize,
    /// How many calls have it: 1, or something is wrong.
    pub(super) calls: usize,
    /// How many results name it.
    pub(super) answers: usize,
    /// The message of the first result.
    pub(super) answered_by: usize,
}

impl<'a> Slots<'a> {
    /// Adds a call.
    pub(super) fn insert(&mut self, id: Cow<'a, str>, call: usize) {
        if let Some(slot) = self.find(&id) {
            slot.calls += 1;
            return;
        }
        let at = self.slots.len();
        if at >= FEW {
            if self.index.is_empty() {
                let slots = self.slots.iter().enumerate();
                self.index = slots.map(|(at, slot)| (slot.id.clone(), at)).collect();
            }
            self.index.insert(id.clone(), at);
        }
        self.slots.push(Slot { id, call, calls: 1, answers: 0, answered_by: 0 });
    }

    /// The slot of an id.
    pub(super) fn find(&mut self, id: &str) -> Option<&mut Slot<'a>> {
        if self.index.is_empty() {
            return self.slots.iter_mut().find(|slot| slot.id == id);
        }
        self.index.get(id).and_then(|&at| self.slots.get_mut(at))
    }

    /// The ids without a result.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = &str> {
        self.slots.iter().filter(|slot| slot.answers == 0).map(|slot| &*slot.id)
    }
}
