//! On the way out: settle, close, check.

use super::*;

#[test]
fn an_answer_of_an_older_generation_is_withheld() {
    let mut talk = Talk::new();
    let a = talk.up(ask("u1"));
    assert_eq!(talk.apply(&Event::Check(a)), Outcome::Wanted);
    talk.up(ask("u1 a u2"));
    assert_eq!(talk.cancelled, [(a, Code::StaleAnswer)]);
    assert_eq!(talk.apply(&Event::Check(a)), Outcome::Withheld(Code::StaleAnswer));
    assert_eq!(talk.settle(a, "c1(A)"), Outcome::Withheld(Code::StaleAnswer));
    assert_eq!(talk.conversation.calls().iter().count(), 0, "nothing is registered");
    talk.close(a, Ending::Withheld);
    assert_eq!(talk.settle(a, ""), Outcome::Withheld(Code::StaleAnswer));
}

#[test]
fn every_release_and_the_end_pass_through_the_ledger() {
    let mut talk = Talk::new();
    let a = talk.up(ask("u1"));
    assert_eq!(talk.settle(a, "c1(A)"), Outcome::Wanted);
    talk.advance(None);
    assert_eq!(talk.settle(a, ""), Outcome::Withheld(Code::StaleAnswer), "the end of the stream");
    talk.close(a, Ending::Withheld);
    assert_eq!(talk.tasks(), [(1, TaskOutcome::Superseded)]);
}

#[test]
fn overtaken_first_and_moved_later_is_overtaken() {
    let mut talk = Talk::new();
    let first = talk.up(ask("u1"));
    talk.up(ask("u1"));
    talk.up(ask("u1 a u2"));
    assert_eq!(talk.settle(first, ""), Outcome::Withheld(Code::Overtaken));
    assert_eq!(talk.apply(&Event::Check(first)), Outcome::Withheld(Code::Overtaken));
    talk.pass(20_000);
    talk.apply(&Event::Tick);
    assert_eq!(talk.conversation.due(), None, "nobody waits for it for ever");
}

#[test]
fn calls_that_never_went_out_are_withdrawn() {
    let endings = [Ending::ClientGone { calls_sent: false }, Ending::OutputRefused];
    for ending in endings {
        let mut talk = Talk::new();
        let a = talk.up(ask("u1"));
        talk.settle(a, "c1(A)");
        talk.close(a, ending);
        assert_eq!(talk.call("c1"), CallState::Replaced);
        assert_eq!(talk.refused(ask("u1 c1(A)=R")), [Code::Stale]);
    }
    let mut talk = Talk::new();
    let a = talk.up(ask("u1"));
    talk.settle(a, "c1(A)");
    talk.close(a, Ending::ClientGone { calls_sent: true });
    talk.up(ask("u1 c1(A)=R"));
}

#[test]
fn a_refused_output_is_a_failed_attempt() {
    let mut talk = Talk::new();
    let a = talk.up(ask("u1"));
    talk.close(a, Ending::OutputRefused);
    assert_eq!(talk.admitted(ask("u1")).attempt, 2);
    assert_eq!(talk.settle(a, ""), Outcome::Withheld(Code::Overtaken));
}

#[test]
fn an_exchange_that_nobody_knows_is_not_wanted() {
    let mut talk = Talk::new();
    let unknown = talk.id();
    assert_eq!(talk.settle(unknown, "c1(A)"), Outcome::Withheld(Code::StaleAnswer));
    assert_eq!(talk.apply(&Event::Check(unknown)), Outcome::Withheld(Code::StaleAnswer));
    talk.close(unknown, Ending::Delivered);
    assert_eq!(talk.conversation, Conversation::default());
}

#[test]
fn a_task_is_completed_by_a_delivered_answer_without_calls() {
    let mut talk = Talk::new();
    let a = talk.up(ask("u1"));
    talk.settle(a, "");
    assert!(talk.tasks().is_empty(), "settled is not delivered");
    talk.close(a, Ending::Delivered);
    assert_eq!(talk.tasks(), [(1, TaskOutcome::Completed)]);
    talk.up(ask("u1 a u2"));
    assert_eq!(talk.tasks().len(), 1, "each task is counted once");
    let end = talk.conversation.forget(talk.now);
    assert!(end.facts.iter().all(|fact| matches!(
        fact,
        Fact::TaskEnded { generation: 2, outcome: TaskOutcome::Expired, .. }
    )));
    assert_eq!(end.cancel.len(), 1);
}

#[test]
fn a_delivery_that_comes_after_the_user_moved_on_completes_nothing() {
    let mut talk = Talk::new();
    let a = talk.up(ask("u1"));
    talk.settle(a, "");
    talk.advance(None);
    talk.close(a, Ending::Delivered);
    assert_eq!(talk.tasks(), [(1, TaskOutcome::Superseded)]);
}

#[test]
fn a_task_picked_up_again_after_its_answer_is_counted_once() {
    let mut talk = Talk::new();
    talk.round(ask("u1").generation(1), "");
    talk.round(ask("u1 a u2").generation(1), "");
    talk.up(ask("u3").generation(2));
    assert_eq!(talk.tasks(), [(1, TaskOutcome::Completed)]);
}

#[test]
fn a_task_whose_last_attempt_failed_is_failed() {
    for ending in [Ending::UpstreamFailed, Ending::OutputRefused] {
        let mut talk = Talk::new();
        let a = talk.up(ask("u1"));
        talk.close(a, ending);
        let end = talk.conversation.forget(talk.now);
        let failed =
            |fact: &Fact| matches!(fact, Fact::TaskEnded { outcome: TaskOutcome::Failed, .. });
        assert!(end.facts.iter().any(failed));
        talk.up(ask("u1 a u2"));
        assert_eq!(talk.tasks(), [(1, TaskOutcome::Failed)]);
    }
    let mut talk = Talk::new();
    let a = talk.up(ask("u1"));
    talk.close(a, Ending::UpstreamFailed);
    talk.round(ask("u1"), "");
    assert_eq!(talk.tasks(), [(1, TaskOutcome::Completed)], "a further attempt made it good");
    let mut talk = Talk::new();
    let a = talk.up(ask("u1"));
    talk.close(a, Ending::ClientGone { calls_sent: false });
    talk.up(ask("u1 a u2"));
    assert_eq!(talk.tasks(), [(1, TaskOutcome::Superseded)], "the user stopped it");
}

#[test]
fn forgetting_takes_open_calls_and_flights_with_it() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "c1(A) c2(B)");
    let flight = talk.up(ask("u9"));
    let end = talk.conversation.forget(talk.now);
    assert_eq!((end.open_calls, end.cancel), (-2, vec![(flight, Code::StaleAnswer)]));
}
