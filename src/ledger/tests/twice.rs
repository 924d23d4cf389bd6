//! An event applied twice gives its first outcome, also when others came in between.

use super::*;

#[test]
fn an_admission_repeated_after_the_user_moved_on_begins_nothing() {
    let mut talk = Talk::new();
    let mut first = ask("u1").event;
    first.exchange = talk.id();
    let outcome = talk.apply(&Event::Admit(first.clone()));
    talk.up(ask("u1 a u2"));
    assert_eq!(talk.apply(&Event::Admit(first.clone())), outcome);
    assert_eq!(talk.admitted(ask("u1 a u2")).generation, 2);
    assert_eq!(talk.settle(first.exchange, ""), Outcome::Withheld(Code::StaleAnswer));
}

#[test]
fn a_continuation_repeated_accepts_its_results_once() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "c1(A)");
    let mut event = ask("u1 c1(A)=R").event;
    event.exchange = talk.id();
    let first = talk.apply(&Event::Admit(event.clone()));
    talk.close(event.exchange, Ending::UpstreamFailed);
    assert_eq!(talk.apply(&Event::Admit(event)), first);
    let decided = talk.facts.iter().filter(|f| matches!(f, Fact::ResultDecided { .. }));
    assert_eq!(decided.count(), 1);
}

#[test]
fn a_settling_repeated_after_the_user_moved_on_releases_nothing() {
    let mut talk = Talk::new();
    let a = talk.up(ask("u1"));
    assert_eq!(talk.settle(a, "c1(A)"), Outcome::Wanted);
    talk.up(ask("u1 a u2"));
    assert_eq!(talk.settle(a, "c1(A)"), Outcome::Withheld(Code::StaleAnswer));
    assert_eq!(talk.conversation.calls().iter().count(), 1);
}

#[test]
fn a_closing_repeated_is_done_once() {
    let mut talk = Talk::new();
    let a = talk.up(ask("u1"));
    talk.settle(a, "");
    talk.close(a, Ending::Delivered);
    talk.close(a, Ending::Delivered);
    assert_eq!(talk.tasks().len(), 1);
}
