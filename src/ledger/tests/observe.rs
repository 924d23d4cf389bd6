//! What was forwarded happened.

use super::*;

#[test]
fn results_let_in_are_accepted_and_marked_forced() {
    let mut talk = Talk::observing();
    talk.round(ask("u1"), "c1(A)");
    let admitted = talk.admitted(ask("u1 c1(WRONG)=R"));
    assert_eq!(notes(&admitted), [Code::Mismatch]);
    let call = &talk.conversation.calls().with_id("c1").next().unwrap().calls[0];
    assert_eq!((call.state, call.forced), (accepted("R"), Some(digest("R"))));
    let later = talk.admitted(ask("u1 c1(WRONG)=R a u2"));
    assert!(later.notes.is_empty(), "later rules treat it as sound: {later:?}");
}

#[test]
fn nothing_is_replaced_for_what_was_let_in_late() {
    let mut talk = Talk::observing();
    talk.round_within(ask("u1"), "c1(A)", 10);
    talk.pass(10);
    let late = talk.admitted(ask("u1 c1(A)=R"));
    assert_eq!((notes(&late), late.substitutions.len()), (vec![Code::Late], 0));
    assert_eq!(talk.call("c1"), CallState::TimedOut, "the timeout stays final");
    let later = talk.admitted(ask("u1 c1(A)=R a u2"));
    assert!(later.notes.is_empty() && later.substitutions.is_empty());
}

#[test]
fn a_conflicting_result_that_was_let_in_is_sound_later() {
    let mut talk = Talk::observing();
    talk.round(ask("u1"), "c1(A)");
    talk.round(ask("u1 c1(A)=R"), "");
    let conflict = talk.admitted(ask("u1 c1(A)=S"));
    assert_eq!(notes(&conflict), [Code::Conflict]);
    assert_eq!(talk.call("c1"), accepted("R"));
    assert!(talk.admitted(ask("u1 c1(A)=S a u2")).notes.is_empty());
}

#[test]
fn stale_answers_that_went_out_are_registered_but_nobody_waits_for_their_calls() {
    let mut talk = Talk::observing();
    let a = talk.up(ask("u1"));
    talk.up(ask("u1 a u2"));
    assert!(talk.cancelled.is_empty(), "observe holds nothing back");
    assert_eq!(talk.settle(a, "c1(A)"), Outcome::Noted(Code::StaleAnswer));
    talk.close(a, Ending::Delivered);
    assert_eq!(talk.call("c1"), CallState::Superseded);
    assert!(talk.conversation.calls().with_id("c1").all(|one| one.forced));
    assert_eq!(notes(&talk.admitted(ask("u1 c1(A)=R"))), [Code::Stale]);
}

#[test]
fn stale_answers_noted_alone_do_not_let_their_results_in() {
    let mut talk = Talk::with(|rules| {
        rules.actions = rules.actions.clone().with(Code::StaleAnswer, Action::Note);
    });
    let a = talk.up(ask("u1"));
    talk.up(ask("u1 a u2"));
    talk.settle(a, "c1(A)");
    assert_eq!(talk.refused(ask("u1 c1(A)=R")), [Code::Stale]);
    let history = talk.admitted(ask("u1 c1(A)=R u3"));
    assert_eq!(replaced(&history), [(1, Notice::Superseded)]);
}

#[test]
fn overtaken_answers_that_went_out_are_registered_and_may_be_answered() {
    let mut talk = Talk::observing();
    let first = talk.up(ask("u1"));
    talk.up(ask("u1"));
    assert_eq!(talk.settle(first, "c1(A)"), Outcome::Noted(Code::Overtaken));
    assert!(notes(&talk.admitted(ask("u1 c1(A)=R"))).is_empty());
}

#[test]
fn a_lapsed_or_unknown_exchange_is_not_held_back() {
    let mut talk = Talk::observing();
    let a = talk.up(ask("u1"));
    talk.pass(15_000);
    assert_eq!(talk.settle(a, ""), Outcome::Noted(Code::Overtaken));
    assert_eq!(talk.apply(&Event::Check(a)), Outcome::Wanted);
    let unknown = talk.id();
    assert_eq!(talk.settle(unknown, "c1(A)"), Outcome::Noted(Code::StaleAnswer));
}

#[test]
fn an_unmatched_run_that_was_let_in_is_remembered() {
    let mut talk = Talk::observing();
    talk.round(ask("u1"), "c1(A)");
    assert_eq!(notes(&talk.admitted(ask("u1 cX(A)=R"))), [Code::Unmatched]);
    let proposal = talk.conversation.calls().with_id("cX").next().unwrap();
    assert_eq!(proposal.calls[0].forced, Some(digest("R")));
}

#[test]
fn rules_set_off_say_nothing() {
    let mut talk = Talk::with(|rules| {
        rules.actions = rules.actions.clone().with(Code::Mismatch, Action::Off);
    });
    talk.round(ask("u1"), "c1(A)");
    assert!(talk.admitted(ask("u1 c1(WRONG)=R")).notes.is_empty());
    assert_eq!(talk.call("c1"), accepted("R"));
}

#[test]
fn a_lower_generation_that_is_only_noted_joins_the_current_one() {
    let mut talk = Talk::observing();
    talk.up(ask("u1").generation(41));
    let lower = talk.admitted(ask("u2").generation(40));
    assert_eq!((lower.generation, notes(&lower)), (41, vec![Code::StaleGeneration]));
    let without = talk.admitted(ask("u3"));
    assert_eq!((without.generation, notes(&without)), (41, vec![Code::GenerationRequired]));
}

#[test]
fn a_proposal_forced_by_the_output_rules_is_registered_like_any_other() {
    let mut talk = Talk::new();
    let exchange = talk.up(ask("u1"));
    let settle = Settle { exchange, alternatives: proposal("c1(A)"), forced: true };
    assert_eq!(talk.apply(&Event::Settle(settle)), Outcome::Wanted);
    talk.up(ask("u1 c1(A)=R"));
}
