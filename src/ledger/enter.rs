//! The generation header of a request, looked at before all else: it may refuse, and it may advance.

use super::Conversation;
use super::event::Admit;
use super::lanes::{LAST_GENERATION, LaneKey};
use super::step::{Findings, Step};
use super::words;

/// The header refuses the request.
pub(super) struct Barred;

impl Conversation {
    /// Gives the header's lane, or `None` where threads count by themselves. An advance stays, even when
    /// the request is refused for something else.
    pub(super) fn enter(
        &mut self,
        admit: &Admit,
        step: &mut Step<'_>,
        found: &mut Findings,
    ) -> Result<Option<u32>, Barred> {
        let known =
            self.lanes.find(LaneKey::Header).map(|lane| (lane.number, lane.task.generation));
        let Some(asked) = admit.generation else {
            if self.uses_header || !step.rules.automatic {
                found.weigh(words::generation_required(), step.rules);
            }
            return barred_or(known.map(|(lane, _)| lane), found);
        };
        let current = known.map_or(self.lanes.floor, |(_, generation)| generation);
        if asked < current {
            found.weigh(words::stale_generation(asked, current), step.rules);
            barred_or((), found)?;
        }
        let asked = asked.max(current);
        if asked > LAST_GENERATION || !self.threads_can_end() {
            found.faults.push(words::no_such_generation());
            return Err(Barred);
        }
        self.first_use(step);
        Ok(Some(match known {
            None => self.lanes.add(LaneKey::Header, asked, step.now),
            Some((lane, _)) => {
                if asked > current {
                    let _ = self.move_lane(lane, asked, step);
                }
                lane
            }
        }))
    }

    /// Whether every thread that counts by itself has a next generation to be over in.
    fn threads_can_end(&self) -> bool {
        self.uses_header
            || self.lanes.highest_task().is_none_or(|highest| highest < LAST_GENERATION)
    }

    /// Threads that counted by themselves are over: from here on the client counts.
    fn first_use(&mut self, step: &mut Step<'_>) {
        if self.uses_header {
            return;
        }
        self.uses_header = true;
        let threads: Vec<_> =
            self.lanes.iter().map(|lane| (lane.number, lane.task.generation)).collect();
        for (lane, generation) in threads {
            let _ = self.move_lane(lane, generation.saturating_add(1), step);
        }
    }
}

fn barred_or<T>(otherwise: T, found: &Findings) -> Result<T, Barred> {
    if found.faults.is_empty() { Ok(otherwise) } else { Err(Barred) }
}
