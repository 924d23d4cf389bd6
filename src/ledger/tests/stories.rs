//! What is written down: each task whole at its end, and what comes after.

use super::*;
use crate::ledger::exchanges::{Failure, FlightState};

/// The story of that generation's task.
fn task(talk: &Talk, generation: u64) -> &Story {
    let mut all = talk.stories.iter().filter(|one| matches!(one.part, Part::Task(_)));
    all.find(|one| one.generation == generation).unwrap()
}

/// Its exchanges: attempt, state, and the spans to the settling and the end.
fn exchanges(story: &Story) -> Vec<(u32, FlightState, Option<Millis>, Option<Millis>)> {
    let all = story.exchanges.iter();
    all.map(|one| (one.attempt, one.state, one.marks.settled, one.marks.ended)).collect()
}

fn states(story: &Story) -> Vec<CallState> {
    story.proposals.iter().flat_map(|one| &one.calls).map(|call| call.state).collect()
}

#[test]
fn an_answered_task_is_told_with_all_its_times() {
    let mut talk = Talk::new();
    let first = talk.up(ask("u1"));
    talk.pass(300);
    assert_eq!(talk.settle(first, "c1(A)"), Outcome::Wanted);
    talk.pass(2);
    talk.close(first, Ending::Delivered);
    talk.pass(1_000);
    let second = talk.up(ask("u1 c1(A)=R"));
    talk.pass(200);
    assert_eq!(talk.settle(second, ""), Outcome::Wanted);
    talk.pass(5);
    talk.close(second, Ending::Delivered);
    let story = task(&talk, 1);
    assert_eq!(story.part, Part::Task(TaskOutcome::Completed));
    let delivered = FlightState::Delivered;
    assert_eq!(
        exchanges(story),
        [
            (1, delivered, Some(Millis(300)), Some(Millis(302))),
            (1, delivered, Some(Millis(200)), Some(Millis(205))),
        ]
    );
    assert_eq!(states(story), [accepted("R")]);
}

#[test]
fn a_task_that_is_left_is_told_with_its_superseded_calls_and_withheld_answer() {
    let mut talk = Talk::new();
    talk.round(ask("u1").generation(41), "c1(A)");
    let flight = talk.up(ask("u1 c1(A)=R").generation(41));
    talk.pass(70);
    talk.up(ask("u2").generation(42));
    let story = task(&talk, 41);
    assert_eq!(story.part, Part::Task(TaskOutcome::Superseded));
    assert_eq!(states(story), [accepted("R")], "its query was accepted, its answer was not");
    let withheld = FlightState::Withheld(Code::StaleAnswer);
    assert_eq!(exchanges(story)[1], (1, withheld, None, Some(Millis(70))));
    talk.close(flight, Ending::Withheld);
    assert_eq!(talk.stories.len(), 1, "that it closes tells nothing new");
}

#[test]
fn a_stale_result_is_told_whether_the_header_or_the_rules_refuse_it() {
    let mut talk = Talk::new();
    talk.round(ask("u1").generation(41), "c1(A)");
    talk.up(ask("u2").generation(42));
    for (ask, code) in [
        (ask("u1 c1(A)=R").generation(41), Code::StaleGeneration),
        (ask("u1 c1(A)=R").generation(42), Code::Stale),
    ] {
        assert_eq!(talk.refused(ask), [code]);
        let last = talk.stories.last().unwrap();
        assert_eq!((last.generation, states(last)), (41, vec![CallState::Superseded]));
        let Part::Result { id, code: told, result, .. } = &last.part else { panic!("{last:?}") };
        assert_eq!((&**id, *told, *result), ("c1", code, digest("R")));
    }
    let count = talk.stories.len();
    assert_eq!(talk.refused(ask("u1 c1(A)=!").generation(41)), [Code::StaleGeneration]);
    assert_eq!(talk.refused(ask("u1 cX(A)=R").generation(41)), [Code::StaleGeneration]);
    assert_eq!(
        talk.stories.len(),
        count,
        "a closing is no result, and of an unknown call nothing is known"
    );
}

#[test]
fn what_goes_on_after_the_answer_is_told_apart() {
    let mut talk = Talk::new();
    talk.round(ask("u1").generation(1), "");
    talk.round(ask("u1 a u2").generation(1), "c1(A)");
    talk.round(ask("u1 a u2 c1(A)=R").generation(1), "");
    let parts: Vec<&Part> = talk.stories.iter().map(|one| &one.part).collect();
    assert_eq!(parts, [&Part::Task(TaskOutcome::Completed), &Part::After, &Part::After]);
    assert_eq!(states(&talk.stories[1]), [CallState::Open]);
    assert_eq!(states(&talk.stories[2]), [accepted("R")]);
}

#[test]
fn how_an_attempt_failed_is_told() {
    let mut talk = Talk::new();
    let (gone, output) = (Ending::ClientGone { calls_sent: false }, Ending::OutputRefused);
    for ending in [Ending::UpstreamFailed, output, gone] {
        let id = talk.up(ask("u1"));
        talk.close(id, ending);
    }
    talk.up(ask("u1"));
    talk.pass(20_000);
    talk.round(ask("u1"), "");
    let failures: Vec<_> = task(&talk, 1).exchanges.iter().map(|one| one.marks.failure).collect();
    let failed = [Failure::Upstream, Failure::Output, Failure::Client, Failure::Replica];
    assert_eq!(failures, failed.map(Some).into_iter().chain([None]).collect::<Vec<_>>());
}

#[test]
fn an_expired_conversation_tells_what_it_held() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "c1(A)");
    let effects = talk.conversation.forget(talk.now);
    let [story] = &effects.stories[..] else { panic!("{effects:?}") };
    assert_eq!(story.part, Part::Task(TaskOutcome::Expired));
    assert_eq!((story.exchanges.len(), states(story)), (1, vec![CallState::Open]));
}

#[test]
fn a_refusal_says_what_the_ledger_held() {
    let mut talk = Talk::new();
    talk.round(ask("u1").generation(41), "c1(A)");
    talk.up(ask("u2").generation(42));
    let (_, outcome) = talk.ask(ask("u1 c1(A)=R").generation(42));
    let Outcome::Refused(refused) = outcome else { panic!("{outcome:?}") };
    assert_eq!(refused.held.len(), 1);
    assert_eq!((refused.held[0].generation, refused.held[0].current), (41, false));
}
