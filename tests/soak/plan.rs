//! What the upstream will do in one turn. The application writes it into its question, so that the
//! upstream needs no other word of it.

use rand::RngExt;
use rand::rngs::StdRng;

/// What a model call comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// A sound answer: a call in an opening, text in a continuation.
    Sound,
    /// Sound, but nothing comes for long.
    Silent,
    /// Sound, but it stops for long in the middle.
    Stalled,
    /// A call of a tool that was not offered.
    BadName,
    /// A call whose arguments are no JSON.
    BadArguments,
    /// A call that is cut off.
    Cut,
    /// An error in the middle of an answer.
    Error,
    /// An error instead of an answer.
    Status500,
}

const LETTERS: [(Act, char); 8] = [
    (Act::Sound, 's'),
    (Act::Silent, 'i'),
    (Act::Stalled, 't'),
    (Act::BadName, 'n'),
    (Act::BadArguments, 'a'),
    (Act::Cut, 'c'),
    (Act::Error, 'e'),
    (Act::Status500, '5'),
];

impl Act {
    /// Whether the client cannot get a sound answer.
    pub(crate) fn fails(self) -> bool {
        !matches!(self, Act::Sound | Act::Silent | Act::Stalled)
    }

    /// The codes that the client may be told of it.
    pub(crate) fn codes(self) -> &'static [&'static str] {
        match self {
            Act::Sound | Act::Silent | Act::Stalled => &[],
            Act::BadName => &["unknown_tool"],
            Act::BadArguments => &["arguments_malformed"],
            Act::Cut => &["truncated_call", "truncated_stream"],
            Act::Error | Act::Status500 => &["boom"],
        }
    }
}

/// One answer: its act, how many pieces of text, how far apart (ms), how long each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) act: Act,
    pub(crate) pieces: u64,
    pub(crate) gap: u64,
    pub(crate) size: usize,
}

impl Step {
    fn random(dice: &mut StdRng, failures: &[Act]) -> Self {
        let act = match dice.random_range(0..100) {
            0..14 => failures[dice.random_range(0..failures.len())],
            14..20 => Act::Silent,
            20..26 => Act::Stalled,
            _ => Act::Sound,
        };
        let size = if dice.random_bool(0.1) { 12_000 } else { dice.random_range(8..300) };
        let pieces = dice.random_range(1..12);
        Step { act, pieces, gap: dice.random_range(1..40), size }
    }

    fn write(self) -> String {
        let letter = LETTERS.iter().find(|(act, _)| *act == self.act).unwrap().1;
        format!("{letter},{},{},{}", self.pieces, self.gap, self.size)
    }

    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split(',');
        let letter = parts.next()?.chars().next()?;
        Some(Step {
            act: LETTERS.iter().find(|(_, known)| *known == letter)?.0,
            pieces: parts.next()?.parse().ok()?,
            gap: parts.next()?.parse().ok()?,
            size: parts.next()?.parse().ok()?,
        })
    }
}

/// Whether a request starts work or feeds results back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Opening,
    Continuation,
}

/// Both answers of a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) opening: Step,
    pub(crate) continuation: Step,
}

impl Plan {
    pub(crate) fn random(dice: &mut StdRng) -> Self {
        use Act::{BadArguments, BadName, Cut, Error, Status500};
        Plan {
            opening: Step::random(dice, &[BadName, BadArguments, Cut, Error, Status500]),
            continuation: Step::random(dice, &[BadName, Error, Status500]),
        }
    }

    /// The user's question about `order`.
    pub(crate) fn question(&self, order: &str) -> String {
        let (opening, continuation) = (self.opening.write(), self.continuation.write());
        format!("Where is {order} ? plan {opening} {continuation}")
    }

    /// The order and the answer to give, by the question.
    pub(crate) fn asked(question: &str, kind: Kind) -> Option<(String, Step)> {
        let mut words = question.strip_prefix("Where is ")?.split(' ');
        let order = words.next()?.to_owned();
        let mut steps = words.skip(2);
        let opening = Step::read(steps.next()?)?;
        let continuation = Step::read(steps.next()?)?;
        Some((order, if kind == Kind::Opening { opening } else { continuation }))
    }
}
