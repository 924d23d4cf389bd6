//! What an application knows that the ledger must say of its calls: a reference of its own, made of answers only.

use crate::process::Record;
use crate::world::{Call, World};
use std::collections::HashMap;

/// States in which a call may be.
pub(super) type States = &'static [&'static str];

/// Its result was let in.
pub(super) const ACCEPTED: States = &["accepted"];
/// Nothing was brought in time.
pub(super) const SUPERSEDED: States = &["superseded"];
/// Somebody closed it, or nobody could any more.
pub(super) const CLOSED: States = &["closed", "superseded"];
/// Its result came with the next question, if that was let in.
pub(super) const BROUGHT: States = &["accepted", "superseded"];
/// Nobody was told what became of it.
const ANY: States = &["accepted", "superseded", "replaced"];

/// The calls that an application got since its conversation began, or was last forgotten. An id may come again in a
/// later generation.
#[derive(Default)]
pub(crate) struct Known {
    calls: HashMap<(u64, String), States>,
    /// The generation, where the application names it itself.
    pub(super) generation: Option<u64>,
}

impl Known {
    /// A call came, with that generation.
    pub(super) fn came(&mut self, generation: Option<u64>, call: &Call) {
        self.is(generation, call, ANY);
    }

    /// It must be in one of these.
    pub(super) fn is(&mut self, generation: Option<u64>, call: &Call, states: States) {
        self.calls.insert((generation.unwrap_or(0), call.id.clone()), states);
    }

    pub(super) fn forget(&mut self) {
        self.calls.clear();
    }

    /// Holds the record against it: each call that is remembered so long must be there, as it must be, and nothing else
    /// has a result. How many were compared.
    pub(crate) fn check(&self, world: &World, name: &str, record: &Record) -> usize {
        let generation = self.generation.unwrap_or(record.generation);
        world.holds(generation == record.generation, || {
            format!("{name} is at generation {generation}, its record at {}", record.generation)
        });
        let there: HashMap<(u64, &str), &str> = record
            .calls
            .iter()
            .map(|call| ((call.generation, call.id.as_str()), call.state.as_str()))
            .collect();
        let oldest = record.calls.iter().map(|call| call.generation).min().unwrap_or(u64::MAX);
        let mut compared = 0;
        for ((generation, id), states) in &self.calls {
            let state = there.get(&(*generation, id.as_str())).copied();
            // Of the oldest generation a part may have been let go.
            if state.is_some() || *generation > oldest {
                compared += 1;
                // What only the next question ends is open until it comes.
                let open = *states != ACCEPTED && *generation == record.generation;
                let fits =
                    state.is_some_and(|state| states.contains(&state) || (open && state == "open"));
                world.holds(fits, || {
                    format!("{name}: {id} of generation {generation} is {state:?}, not {states:?}")
                });
            }
        }
        for ((generation, id), state) in there {
            let known = self.calls.contains_key(&(generation, id.to_owned()));
            world.holds(known || state != "accepted", || {
                format!("{name}: {id} of generation {generation} has a result that nobody brought")
            });
        }
        compared
    }
}
