//! The board: conversations by when they last changed, each with its last exchanges and tasks.
//!
//! ```text
//!  rows:   conversation → Row { exchanges, tasks, … }      at most ROWS, the one longest unchanged goes first
//!  recent: number of the change → conversation             pages are read from the newest backwards
//!  order:  exchanges as they began, with their bytes       at most EXCHANGES and BYTES, the oldest goes first
//! ```
//! A page goes on *before* a change's number: a conversation that changes meanwhile moves to the front, and no other
//! is told twice or left out.

use super::exchange::Exchange;
use super::window::{Bucket, Window};
use crate::guard::fault::Code;
use crate::ledger::event::{ExchangeId, Fact, TaskOutcome};
use crate::store::ConversationKey;
use crate::telemetry::labels::{ExchangeOutcome, Route};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Most conversations.
const ROWS: usize = 10_000;
/// Most exchanges of all conversations together, and about how many bytes of them.
const EXCHANGES: usize = 20_000;
const BYTES: usize = 32 << 20;
/// Most exchanges and tasks of one conversation.
const EXCHANGES_EACH: usize = 96;
const TASKS_EACH: usize = 48;
/// Most rows of one page.
const PAGE: usize = 100;

/// A conversation's place on the board. `None` holds all exchanges that name no conversation.
type Place = Option<ConversationKey>;

/// Which rows are wanted.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// The conversation's name holds this.
    pub text: Option<String>,
    /// How it stands.
    pub standing: Option<Standing>,
    /// It was refused something for this.
    pub code: Option<Code>,
}

/// How a conversation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its newest task is under way.
    Open,
    /// Its newest task ended so.
    Ended(TaskOutcome),
    /// Something of it was refused or withheld, whatever became of it.
    Refused,
}

/// One look at the list.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// Which rows.
    pub filter: Filter,
    /// Only those whose last change has a lower number.
    pub before: Option<u64>,
    /// How many, at most.
    pub limit: usize,
}

/// What a look gives.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The rows, the one that changed last first.
    pub rows: Vec<Row>,
    /// Where to go on, when there may be more.
    pub next: Option<u64>,
}

/// A task that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskSeen {
    /// Its generation.
    pub generation: u64,
    /// How.
    pub outcome: TaskOutcome,
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// How long it took, in milliseconds.
    pub took: u64,
}

/// One conversation, in a line.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Where the store keeps it; `None`: all exchanges without a conversation.
    pub key: Option<ConversationKey>,
    /// What its client calls it; empty while only the ledger spoke of it.
    pub name: Box<str>,
    /// The number of its last change.
    pub number: u64,
    /// The highest generation seen.
    pub generation: Option<u64>,
    /// How the newest task ended; `None` while it is under way.
    pub ended: Option<TaskOutcome>,
    /// When it was first and last seen, in milliseconds since 1970.
    pub first_at: u64,
    /// See `first_at`.
    pub last_at: u64,
    /// How many exchanges ended.
    pub exchanges: u64,
    /// How many of them were refused or withheld.
    pub refused: u64,
    /// Under way now.
    pub under_way: usize,
    /// The code that it was last refused for.
    pub last_code: Option<Code>,
    codes: u64,
}

impl Row {
    fn stands(&self) -> Standing {
        self.ended.map_or(Standing::Open, Standing::Ended)
    }

    fn fits(&self, filter: &Filter) -> bool {
        let stands = match filter.standing {
            None => true,
            Some(Standing::Refused) => self.refused > 0 || self.codes != 0,
            Some(wanted) => self.key.is_some() && self.stands() == wanted,
        };
        stands
            && filter.code.is_none_or(|code| self.codes & bit(code) != 0)
            && filter.text.as_deref().is_none_or(|text| self.name.contains(text))
    }

    fn reaches(&mut self, generation: u64) {
        if self.generation.is_none_or(|known| known < generation) {
            self.generation = Some(generation);
            self.ended = None;
        }
    }
}

fn bit(code: Code) -> u64 {
    const { assert!(Code::ALL.len() <= 64, "a code is a bit of a row") };
    1 << (code as u8)
}

#[derive(Default)]
struct Entry {
    row: Row,
    exchanges: VecDeque<Exchange>,
    tasks: VecDeque<TaskSeen>,
    forgot: bool,
}

/// What the console reads.
#[derive(Default)]
pub struct Board {
    rows: HashMap<Place, Entry>,
    recent: BTreeMap<u64, Place>,
    order: VecDeque<(Place, ExchangeId, usize)>,
    bytes: usize,
    changes: u64,
    seen: u64,
    window: Window,
}

impl Board {
    /// The number of the last change.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// How many conversations were seen, forgotten ones counted again when they come back.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// How many rows are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.rows.len()
    }

    /// The last quarter of an hour, oldest first.
    pub fn buckets(&self) -> impl DoubleEndedIterator<Item = &Bucket> {
        self.window.buckets()
    }

    pub(super) fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    /// One page of the list.
    #[must_use]
    pub fn page(&self, look: &Look) -> Page {
        let limit = look.limit.clamp(1, PAGE);
        let mut page = Page::default();
        for (number, place) in self.recent.range(..look.before.unwrap_or(u64::MAX)).rev() {
            let Some(entry) = self.rows.get(place).filter(|entry| entry.row.fits(&look.filter))
            else {
                continue;
            };
            if page.rows.len() == limit {
                page.next = page.rows.last().map(|row| row.number).or(Some(*number));
                break;
            }
            page.rows.push(entry.row.clone());
        }
        page
    }

    /// Places that changed after that change, the newest first, at most so many.
    #[must_use]
    pub fn changed(&self, after: u64, most: usize) -> Vec<Option<ConversationKey>> {
        let range = self.recent.range(after.saturating_add(1)..);
        range.rev().take(most).map(|(_, place)| place.clone()).collect()
    }

    /// One conversation: its row, its exchanges and ended tasks, oldest first, and whether older ones were
    /// forgotten.
    #[must_use]
    pub fn one(
        &self,
        place: &Option<ConversationKey>,
    ) -> Option<(Row, Vec<Exchange>, Vec<TaskSeen>, bool)> {
        let entry = self.rows.get(place)?;
        let exchanges = entry.exchanges.iter().cloned().collect();
        Some((entry.row.clone(), exchanges, entry.tasks.iter().copied().collect(), entry.forgot))
    }

    /// An exchange began or ended.
    pub(super) fn exchange(&mut self, exchange: Exchange) {
        let at = exchange.end.map_or(exchange.began, |end| exchange.began + whole(end.took));
        if let Some(end) = exchange.end {
            let bucket = self.window.reach(at);
            if exchange.route == Route::Chat {
                bucket.exchange(end.outcome);
            }
            exchange.refused_for().for_each(|code| bucket.code(code));
        }
        let unremarkable = exchange.route != Route::Chat && exchange.asks.is_none();
        if unremarkable && exchange.faults.is_empty() {
            return;
        }
        let place = exchange.subject.as_ref().map(|subject| subject.key.clone());
        let entry = self.touch(&place, at);
        note(entry, &exchange);
        let (id, bytes) = (exchange.id, exchange.bytes());
        match entry.exchanges.iter_mut().rev().find(|known| known.id == id) {
            Some(known) => *known = exchange,
            None => {
                entry.exchanges.push_back(exchange);
                if entry.exchanges.len() > EXCHANGES_EACH {
                    entry.exchanges.pop_front();
                    entry.forgot = true;
                }
                self.order.push_back((place, id, bytes));
                self.bytes += bytes;
            }
        }
        self.bound();
    }

    /// The ledger committed these.
    pub(super) fn facts(&mut self, key: &ConversationKey, at: u64, facts: &[Fact]) {
        let place = Some(key.clone());
        for fact in facts {
            match fact {
                Fact::ResultDecided { code: None, .. } => self.window.reach(at).accepted += 1,
                Fact::ResultDecided { code: Some(_), .. } => self.window.reach(at).refused += 1,
                Fact::CallTimedOut { .. } => self.window.reach(at).timed_out += 1,
                Fact::TaskEnded { generation, outcome, took, .. } => {
                    self.window.reach(at).task(*outcome);
                    let entry = self.touch(&place, at);
                    entry.row.reaches(*generation);
                    if entry.row.generation == Some(*generation) {
                        entry.row.ended = Some(*outcome);
                    }
                    entry.tasks.push_back(TaskSeen {
                        generation: *generation,
                        outcome: *outcome,
                        at,
                        took: took.0,
                    });
                    if entry.tasks.len() > TASKS_EACH {
                        entry.tasks.pop_front();
                        entry.forgot = true;
                    }
                }
                _ => {}
            }
            self.touch(&place, at);
        }
        self.bound();
    }

    /// It changed: its entry, made if need be, is the newest now.
    fn touch(&mut self, place: &Place, at: u64) -> &mut Entry {
        self.changes += 1;
        let number = self.changes;
        let entry = self.rows.entry(place.clone()).or_insert_with(|| {
            self.seen += 1;
            let row = Row { key: place.clone(), first_at: at, ..Row::default() };
            Entry { row, ..Entry::default() }
        });
        self.recent.remove(&entry.row.number);
        self.recent.insert(number, place.clone());
        entry.row.number = number;
        entry.row.last_at = entry.row.last_at.max(at);
        entry
    }

    fn bound(&mut self) {
        while self.order.len() > EXCHANGES || self.bytes > BYTES {
            let Some((place, id, bytes)) = self.order.pop_front() else { break };
            self.bytes = self.bytes.saturating_sub(bytes);
            if let Some(entry) = self.rows.get_mut(&place)
                && entry.exchanges.front().is_some_and(|oldest| oldest.id == id)
            {
                entry.exchanges.pop_front();
                entry.forgot = true;
            }
        }
        while self.rows.len() > ROWS {
            let Some((_, place)) = self.recent.pop_first() else { break };
            self.rows.remove(&place);
        }
    }
}

/// What an exchange says of its conversation.
fn note(entry: &mut Entry, exchange: &Exchange) {
    let row = &mut entry.row;
    row.first_at = row.first_at.min(exchange.began);
    if let Some(subject) = &exchange.subject
        && row.name.is_empty()
    {
        row.name.clone_from(&subject.name);
    }
    // A refused request of an older task, or one that names a task to come, changes nothing.
    let admitted = exchange.attempt > 0 || exchange.asks.is_some();
    let refused = exchange.refused_for().next().is_some();
    if let Some(generation) = exchange.generation.filter(|_| admitted && !refused) {
        row.reaches(generation);
    }
    match exchange.end {
        None => row.under_way += 1,
        Some(end) => {
            row.exchanges += 1;
            if matches!(end.outcome, ExchangeOutcome::Refused | ExchangeOutcome::Withheld) {
                row.refused += 1;
            }
            let under_way = entry.exchanges.iter().rev().find(|known| known.id == exchange.id);
            if under_way.is_some_and(|known| known.end.is_none()) {
                row.under_way = row.under_way.saturating_sub(1);
            }
        }
    }
    for code in exchange.refused_for() {
        row.codes |= bit(code);
        row.last_code = Some(code);
    }
}

/// Whole milliseconds.
fn whole(millis: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let whole = millis as u64;
    whole
}

#[cfg(test)]
pub(super) mod tests;
