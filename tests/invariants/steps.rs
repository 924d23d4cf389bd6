//! Random steps: what may happen to a conversation next. Steps point at things by how recent they are,
//! so that each means something in every state, and shrinks well.

use proptest::prelude::*;

/// The n-th newest of some things.
pub(crate) type Recent = usize;

/// One thing that happens, after `wait` milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) wait: u64,
    pub(crate) what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    /// A client sends one of its lists, changed.
    Send(Send),
    /// The model answers: with calls (one alternative per choice), or with text.
    Settle {
        exchange: Recent,
        proposal: Vec<Vec<Call>>,
    },
    Close {
        exchange: Recent,
        ending: End,
    },
    Check {
        exchange: Recent,
    },
    /// The control API: by that much over the current generation; `None`: to the next.
    Advance(Option<i8>),
    /// The control API: decide on that call's result now.
    Decide {
        call: Recent,
        how: How,
        older: bool,
        key: Option<u32>,
    },
    Tick,
}

#[derive(Clone, Debug)]
pub(crate) struct Send {
    pub(crate) list: Recent,
    pub(crate) edits: Vec<Edit>,
    pub(crate) generation: Generation,
    pub(crate) declared: bool,
    pub(crate) idempotency: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Generation {
    Current,
    Next,
    Older,
    Absent,
}

/// How a client changes a list before it sends it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Edit {
    /// Answers the calls at the end (or changes the answer): the first one so, the others right.
    Answer(How),
    User,
    Text,
    /// Keeps the beginning only, and asks something new.
    Restart,
    /// Drops the oldest run.
    Trim,
    /// Changes the arguments of the oldest run's first call.
    Prune,
    /// Puts another content in the oldest run's first result.
    Rewrite,
    /// Puts a notice in the place of every result.
    CloseAll,
    /// Strikes one of several calls at the end.
    Strike,
    /// Adds a call that no model made, answered.
    Invent,
    /// Adds the newest run of another list.
    Graft(Recent),
    /// Makes one assistant message of the newest two that have calls, with the results of both.
    Merge,
    /// Adds a call that no model made to the oldest run (or the newest), answered.
    Mix {
        newest: bool,
    },
    /// Changes the tool of the oldest run's first call.
    Retool,
    /// Puts another beginning in front: a compaction.
    Rebegin,
}

/// How a result is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Right,
    Other,
    TimeoutNotice,
    SupersededNotice,
    Named,
    WrongName,
    WrongArguments,
    Echoed,
    WrongEcho,
    WrongAttempt,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Delivered,
    UpstreamFailed,
    OutputRefused,
    Gone,
    GoneBeforeCalls,
    Withheld,
}

/// One proposed call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) tool: usize,
    pub(crate) arguments: u32,
    pub(crate) deadline: Option<u64>,
}

pub(crate) fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..most)
}

fn step() -> impl Strategy<Value = Step> {
    let wait = prop_oneof![10 => Just(0), 6 => 1..20_u64, 2 => 20..120_u64, 1 => 200..1200_u64];
    let what = prop_oneof![
        12 => send().prop_map(What::Send),
        9 => (recent(), proposal())
            .prop_map(|(exchange, proposal)| What::Settle { exchange, proposal }),
        7 => (recent(), end()).prop_map(|(exchange, ending)| What::Close { exchange, ending }),
        2 => recent().prop_map(|exchange| What::Check { exchange }),
        1 => prop_oneof![Just(None), (-1..3_i8).prop_map(Some)].prop_map(What::Advance),
        2 => (recent(), how(), prop::bool::weighted(0.1), key())
            .prop_map(|(call, how, older, key)| What::Decide { call, how, older, key }),
        1 => Just(What::Tick),
    ];
    (wait, what).prop_map(|(wait, what)| Step { wait, what })
}

fn recent() -> impl Strategy<Value = Recent> {
    prop_oneof![8 => Just(0_usize), 3 => Just(1), 2 => 2..6_usize]
}

fn key() -> impl Strategy<Value = Option<u32>> {
    prop_oneof![8 => Just(None), 1 => (0..3_u32).prop_map(Some)]
}

fn send() -> impl Strategy<Value = Send> {
    let generation = prop_oneof![
        12 => Just(Generation::Current),
        3 => Just(Generation::Next),
        1 => Just(Generation::Older),
        1 => Just(Generation::Absent),
    ];
    (recent(), edits(), generation, prop::bool::weighted(0.15), key()).prop_map(
        |(list, edits, generation, declared, idempotency)| Send {
            list,
            edits,
            generation,
            declared,
            idempotency,
        },
    )
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let one = prop_oneof![
        8 => how().prop_map(Edit::Answer),
        5 => Just(Edit::User),
        1 => Just(Edit::Text),
        2 => Just(Edit::Restart),
        1 => Just(Edit::Trim),
        1 => Just(Edit::Prune),
        1 => Just(Edit::Rewrite),
        1 => Just(Edit::CloseAll),
        1 => Just(Edit::Strike),
        1 => Just(Edit::Invent),
        1 => (0..6_usize).prop_map(Edit::Graft),
        2 => Just(Edit::Merge),
        1 => any::<bool>().prop_map(|newest| Edit::Mix { newest }),
        1 => Just(Edit::Retool),
        1 => Just(Edit::Rebegin),
    ];
    prop_oneof![
        3 => Just(Vec::new()),
        6 => prop::collection::vec(one.clone(), 1..=1),
        3 => prop::collection::vec(one, 2..=4),
    ]
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![
        12 => Just(How::Right),
        2 => Just(How::Other),
        2 => Just(How::TimeoutNotice),
        1 => Just(How::SupersededNotice),
        1 => Just(How::Named),
        1 => Just(How::WrongName),
        1 => Just(How::WrongArguments),
        1 => Just(How::Echoed),
        1 => Just(How::WrongEcho),
        1 => Just(How::WrongAttempt),
    ]
}

fn proposal() -> impl Strategy<Value = Vec<Vec<Call>>> {
    let call =
        (0..3_usize, 0..4_u32, prop_oneof![3 => Just(None), 1 => (5..100_u64).prop_map(Some)])
            .prop_map(|(tool, arguments, deadline)| Call { tool, arguments, deadline });
    let calls = prop::collection::vec(call, 1..=3);
    prop_oneof![
        3 => Just(Vec::new()),
        6 => prop::collection::vec(calls.clone(), 1..=1),
        1 => prop::collection::vec(calls, 2..=2),
    ]
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        10 => Just(End::Delivered),
        2 => Just(End::UpstreamFailed),
        1 => Just(End::OutputRefused),
        2 => Just(End::Gone),
        1 => Just(End::GoneBeforeCalls),
        1 => Just(End::Withheld),
    ]
}
