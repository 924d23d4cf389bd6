//! The calls of a conversation, as the machine of [`super::spec`] knows them: those of the current
//! generation, and those before it, which nothing changes any more. A search copies its state at each step.
//! So what is before is shared between the copies and compared by a print of it, and a step costs the same
//! after ten thousand calls as after ten.

use super::Record;
use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

/// How many of the newest calls the record must hold: a ledger folds old ones.
const KEPT: usize = 200;

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Calls {
    /// Of the current generation.
    current: BTreeMap<String, Call>,
    before: Option<Rc<Before>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    pub(crate) question: Question,
    pub(crate) state: CallState,
    /// How often it was started; counts while it is open.
    pub(crate) started: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CallState {
    Open,
    Accepted(String),
    Superseded,
    Replaced,
}

/// What an exchange answers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Question {
    Opening(String),
    Result(String),
}

/// The calls of one generation that is over, and of all before it.
struct Before {
    generation: u64,
    calls: BTreeMap<String, CallState>,
    earlier: Option<Rc<Before>>,
    print: u64,
}

impl Calls {
    /// Those of the current generation.
    pub(crate) fn current(&self) -> impl Iterator<Item = (&String, &Call)> {
        self.current.iter()
    }

    /// One of the current generation.
    pub(crate) fn current_one(&self, id: &str) -> Option<&Call> {
        self.current.get(id)
    }

    /// One of the current generation, if it is open.
    pub(crate) fn open(&mut self, id: &str) -> Option<&mut Call> {
        self.current.get_mut(id).filter(|call| call.state == CallState::Open)
    }

    /// Those that are open.
    pub(crate) fn all_open(&mut self) -> impl Iterator<Item = &mut Call> {
        self.current.values_mut().filter(|call| call.state == CallState::Open)
    }

    /// Of any generation: its own, unless it is the current one, and its state.
    pub(crate) fn find(&self, id: &str) -> Option<(Option<u64>, &CallState)> {
        if let Some(call) = self.current.get(id) {
            return Some((None, &call.state));
        }
        let mut each = self.generations_before();
        each.find_map(|before| before.calls.get(id).map(|state| (Some(before.generation), state)))
    }

    /// A new one of the current generation; `false` if it has one with that id.
    pub(crate) fn register(&mut self, id: &str, question: &Question) -> bool {
        let (question, state) = (question.clone(), CallState::Open);
        self.current.insert(id.to_owned(), Call { question, state, started: 0 }).is_none()
    }

    /// The current generation, which is this, is over.
    pub(crate) fn supersede(&mut self, generation: u64) {
        if self.current.is_empty() {
            return;
        }
        let over = |(id, call): (String, Call)| match call.state {
            CallState::Open => (id, CallState::Superseded),
            state => (id, state),
        };
        let calls: BTreeMap<_, _> =
            std::mem::take(&mut self.current).into_iter().map(over).collect();
        let earlier = self.before.take();
        let mut hasher = DefaultHasher::new();
        (generation, &calls, earlier.as_ref().map(|earlier| earlier.print)).hash(&mut hasher);
        let print = hasher.finish();
        self.before = Some(Rc::new(Before { generation, calls, earlier, print }));
    }

    /// Whether the record tells the truth; `unknown`: there may be calls that nobody was told of.
    pub(crate) fn are_recorded(
        &self,
        generation: Option<u64>,
        record: &Record,
        unknown: impl Fn() -> bool,
    ) -> bool {
        let current = self.current.iter().rev().map(|(id, call)| (generation, id, &call.state));
        let before = self.generations_before().flat_map(|before| {
            let told = move |(id, state)| (Some(before.generation), id, state);
            before.calls.iter().rev().map(told)
        });
        // Newest first.
        let mut found = 0;
        for (at, (generation, id, state)) in current.chain(before).enumerate() {
            if at >= KEPT && found == record.calls.len() {
                return true;
            }
            match record.calls.get(id) {
                None if at < KEPT => return false,
                None => {}
                Some((of, word)) if Some(*of) == generation && *word == state.word() => found += 1,
                Some(_) => return false,
            }
        }
        found == record.calls.len() || unknown()
    }

    fn generations_before(&self) -> impl Iterator<Item = &Before> {
        std::iter::successors(self.before.as_deref(), |before| before.earlier.as_deref())
    }
}

impl Call {
    /// It is open no more.
    pub(crate) fn finish(&mut self, state: CallState) {
        *self = Call { state, started: 0, question: self.question.clone() };
    }
}

impl CallState {
    fn word(&self) -> &'static str {
        match self {
            CallState::Open => "open",
            CallState::Accepted(_) => "accepted",
            CallState::Superseded => "superseded",
            CallState::Replaced => "replaced",
        }
    }
}

impl PartialEq for Before {
    fn eq(&self, other: &Self) -> bool {
        self.print == other.print
    }
}

impl Eq for Before {}

impl Hash for Before {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.print.hash(hasher);
    }
}

/// Only this generation.
impl fmt::Debug for Before {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}, …", self.generation, self.calls)
    }
}

/// One after the other: a long row would be too deep for the stack.
impl Drop for Before {
    fn drop(&mut self) {
        let mut next = self.earlier.take();
        while let Some(mut last) = next.and_then(Rc::into_inner) {
            next = last.earlier.take();
        }
    }
}
