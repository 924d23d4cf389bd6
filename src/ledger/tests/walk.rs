//! Long random walks: whatever comes in whatever order, what [`Talk`] checks holds, and so do the
//! invariants that can be seen from outside.

use super::*;
use crate::ledger::exchanges::{FlightState, Kind};

/// A small generator of numbers, so that a walk can be walked again.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).unwrap()
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.roll(of.len())]
    }
}

const LISTS: [&str; 14] = [
    "u1",
    "u1 a u2",
    "u9",
    "u1 c1(A)=R",
    "u1 c1(A)=S",
    "u1 c1(A)=!",
    "u1 c1(B)=R",
    "u1 c1(A)=R c2(B)=R",
    "u1 c1(A)=R c2(B)=!",
    "u9 c1(A)=R",
    "u1 c1(A)=R u2",
    "u1 c1(A)=R a c1(A)=S",
    "u1 c1(A)=R a u2 c2(B)=R",
    "u1 w1/refund(A)=R",
];

const CALLS: [&str; 6] = ["", "c1(A)", "c1(A) c2(B)", "c1(A) | c2(B)", "w1/refund(A)", "c2(B)"];

fn walk(seed: u64, header: bool, change: impl FnOnce(&mut Rules)) {
    let mut talk = Talk::with(change);
    let mut dice = Dice(seed | 1);
    let mut flights: Vec<ExchangeId> = Vec::new();
    let mut delivered = Vec::new();
    for _ in 0..60 {
        match dice.roll(10) {
            0..=3 => {
                let mut request = ask(dice.pick(&LISTS));
                if header {
                    request = request.generation(1 + dice.roll(3) as u64);
                }
                if dice.roll(4) == 0 {
                    request = request.declared();
                }
                let (id, outcome) = talk.ask(request.clone());
                match outcome {
                    Outcome::Admitted(admitted) => {
                        flights.push(id);
                        check_live(&talk, &request, &admitted);
                    }
                    _ => check_way_out(&talk, request),
                }
            }
            4..=6 if !flights.is_empty() => {
                let id = dice.pick(&flights);
                let mut calls = proposal(dice.pick(&CALLS));
                if dice.roll(3) == 0 {
                    calls.iter_mut().flat_map(|one| &mut one.calls).for_each(|call| {
                        call.deadline = Some(Millis(50));
                    });
                }
                let settled = talk.settle_as(id, calls);
                let current =
                    talk.conversation.exchanges().get(id).is_some_and(|one| {
                        talk.conversation.lanes().current(one.lane, one.generation)
                    });
                assert!(settled != Outcome::Wanted || current, "an old answer was released");
            }
            7 if !flights.is_empty() => {
                let id = flights.swap_remove(dice.roll(flights.len()));
                end(&mut talk, id, &mut dice, &mut delivered);
            }
            8 => {
                talk.advance(None);
            }
            _ => {
                talk.pass(dice.pick(&[1, 49, 50, 15_000]));
                talk.apply(&Event::Tick);
            }
        }
    }
    let mut tasks = talk.tasks();
    tasks.sort_by_key(|(generation, _)| *generation);
    if header {
        tasks.dedup_by_key(|(generation, _)| *generation);
        assert_eq!(tasks.len(), talk.tasks().len(), "a task was counted twice");
    }
}

/// An exchange ends somehow. I8: of a continuation that nobody declared a retry, one answer is delivered.
fn end(talk: &mut Talk, id: ExchangeId, dice: &mut Dice, delivered: &mut Vec<(u32, u64, u64)>) {
    let ending = dice.pick(&[
        Ending::Delivered,
        Ending::Delivered,
        Ending::UpstreamFailed,
        Ending::ClientGone { calls_sent: true },
        Ending::ClientGone { calls_sent: false },
    ]);
    talk.close(id, ending);
    let one = talk.conversation.exchanges().get(id);
    let one = one.filter(|one| one.state == FlightState::Delivered);
    if let Some((one, Kind::Continuation(seq))) = one.map(|one| (one, one.kind)) {
        let this = (one.lane, one.generation, seq);
        assert!(!delivered.contains(&this) || talk.declared.contains(&id), "delivered twice");
        delivered.push(this);
    }
}

/// I1: whatever of a live run is not replaced is a closing, or is now the one result of its call, and of
/// the current generation.
fn check_live(talk: &Talk, request: &Ask, admitted: &Admitted) {
    let Some(run) = request.event.runs.last().filter(|run| run.live) else { return };
    let observes = talk.rules.actions.action(Code::Mismatch) == Action::Note;
    // A list that was admitted before goes up again, even when its calls were folded since.
    let folded = talk.rules.kept < 100 && admitted.attempt > 1;
    if observes || folded || notes(admitted).contains(&Code::Adopted) {
        return;
    }
    let replaced: Vec<usize> = admitted.substitutions.iter().map(|one| one.message).collect();
    for pair in run.pairs.iter().filter(|pair| !pair.closing && !replaced.contains(&pair.message)) {
        let conversation = &talk.conversation;
        let held = conversation.calls().with_id(&pair.id).any(|one| {
            conversation.lanes().current(one.lane, one.generation)
                && one.calls.iter().any(|call| call.is(pair) && call.state == accepted_as(pair))
        });
        assert!(held, "{pair:?} went up without its call");
    }
}

fn accepted_as(pair: &Pair) -> CallState {
    CallState::Accepted(pair.result)
}

/// I10: a list that is refused passes once closings stand in its results' places and the task goes on.
fn check_way_out(talk: &Talk, mut request: Ask) {
    let mut talk = talk.clone();
    for pair in request.event.runs.iter_mut().flat_map(|run| &mut run.pairs) {
        pair.closing = true;
        pair.result = digest("!");
    }
    for run in &mut request.event.runs {
        run.live = false;
    }
    request.event.list = digest(&format!("{} and goes on", talk.ids));
    request.event.declared_retry = false;
    if let Some(generation) = &mut request.event.generation {
        *generation = 99;
    }
    let (_, outcome) = talk.ask(request);
    assert!(matches!(outcome, Outcome::Admitted(_)), "stuck: {outcome:?}");
}

#[test]
fn random_walks_by_threads() {
    (1..100).for_each(|seed| walk(seed * 7919, false, |_| ()));
}

#[test]
fn random_walks_by_header() {
    (1..100).for_each(|seed| walk(seed * 104_729, true, |_| ()));
}

#[test]
fn random_walks_with_budgets() {
    (1..100).for_each(|seed| {
        walk(seed * 1_299_709, seed % 2 == 0, |rules| {
            rules.model_calls = Some(3);
            rules.task_deadline = Some(Millis(200));
            rules.attempts = 2;
            rules.kept = 4;
        });
    });
}

#[test]
fn random_walks_that_forget() {
    (1..300).for_each(|seed| walk(seed * 86_028_121, seed % 2 == 0, |rules| rules.kept = 4));
}

#[test]
fn random_walks_that_replace() {
    use crate::ledger::rules::AtEnd;
    (1..100).for_each(|seed| {
        walk(seed * 15_485_863, seed % 2 == 0, |rules| {
            rules.late = AtEnd::Substitute;
            rules.superseded = AtEnd::Substitute;
        });
    });
}

#[test]
fn random_walks_under_observe() {
    (1..100).for_each(|seed| {
        walk(seed * 32_452_843, seed % 2 == 0, |rules| *rules = Talk::observing().rules);
    });
}
