//! What the rules make of faults: pass, note or refuse.

use super::fault::{Code, Fault};

/// What is done about a fault of some code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Not looked at.
    Off,
    /// Let through and recorded.
    Note,
    /// Refused.
    Refuse,
}

/// The action for every code: a profile with single rules set on top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    actions: [Action; Code::ALL.len()],
}

impl Rules {
    /// Rules that take `action` for every code.
    #[must_use]
    pub fn all(action: Action) -> Self {
        Rules { actions: [action; Code::ALL.len()] }
    }

    /// What is done about a fault of this code.
    #[must_use]
    pub fn action(&self, code: Code) -> Action {
        self.actions[code as usize]
    }

    /// The same rules with one set otherwise.
    #[must_use]
    pub fn with(mut self, code: Code, action: Action) -> Self {
        self.actions[code as usize] = action;
        self
    }

    /// Sorts faults into what is refused and what is only noted.
    #[must_use]
    pub fn judge(&self, faults: Vec<Fault>) -> Verdict {
        let mut verdict = Verdict::default();
        for fault in faults {
            match self.action(fault.code) {
                Action::Off => {}
                Action::Note => verdict.notes.push(fault),
                Action::Refuse => verdict.refused.push(fault),
            }
        }
        verdict
    }
}

/// Faults, sorted by what is made of them. Refused when `refused` is not empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Faults that refuse.
    pub refused: Vec<Fault>,
    /// Faults that are let through and recorded.
    pub notes: Vec<Fault>,
}
