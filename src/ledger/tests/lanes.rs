//! Without the header: lanes that count by themselves.

use super::*;

#[test]
fn a_new_user_message_advances_and_the_same_opening_does_not() {
    let mut talk = Talk::new();
    assert_eq!(talk.admitted(ask("u1")).generation, 1);
    assert_eq!(talk.admitted(ask("u1")).generation, 1);
    assert_eq!(talk.admitted(ask("u1 a1 u2")).generation, 2);
    assert_eq!(talk.admitted(ask("u1 a1 u3")).generation, 3, "an edited message is a new one");
}

#[test]
fn other_beginnings_are_lanes_of_their_own() {
    let mut talk = Talk::new();
    let main = talk.up(ask("u1"));
    let title = talk.round(ask("s-title u1"), "");
    assert_ne!(main, title);
    assert!(talk.cancelled.is_empty());
    talk.answer(main, "c1(A)");
    talk.round(ask("s-title u9"), "c9(A)");
    assert_eq!(talk.call("c1"), CallState::Open, "a sub-agent touches nothing else");
    talk.up(ask("s-title u9 a u10"));
    assert_eq!((talk.call("c1"), talk.call("c9")), (CallState::Open, CallState::Superseded));
}

#[test]
fn a_continuation_belongs_to_the_lane_that_registered_its_calls() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "");
    talk.round(ask("u1 a u2"), "c1(A)");
    let compacted = talk.admitted(ask("u-summary c1(A)=R"));
    assert_eq!(compacted.generation, 2);
    assert_eq!(talk.call("c1"), accepted("R"));
    assert_eq!(talk.admitted(ask("u-summary c1(A)=R").declared()).attempt, 2);
}

#[test]
fn sub_agents_may_use_the_same_ids() {
    for (first, second) in [("f:0(A)", "f:0(B)"), ("f:0(A)", "f:0(A)")] {
        let mut talk = Talk::new();
        talk.round(ask("u1"), first);
        talk.round(ask("u2"), second);
        let of = |lane: &str, call: &str, result: &str| ask(&format!("{lane} {call}={result}"));
        talk.round(of("u1", first, "R1"), "");
        assert_eq!(talk.call("f:0"), CallState::Open, "the other lane's call is untouched");
        talk.round(of("u2", second, "R2"), "");
        assert_eq!(talk.call("f:0"), accepted("R2"));
    }
}

#[test]
fn a_sub_agent_s_late_result_is_not_taken_for_another_s() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "f:0(A)");
    talk.up(ask("u1 a u3"));
    talk.round(ask("u2"), "f:0(A)");
    assert_eq!(talk.refused(ask("u1 f:0(A)=R")), [Code::Stale]);
    assert_eq!(talk.call("f:0"), CallState::Open);
}

#[test]
fn history_of_one_lane_does_not_answer_another() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "f:0(A)");
    talk.round(ask("u1 f:0(A)=R1"), "");
    talk.round(ask("u2"), "f:0(A)");
    talk.up(ask("u1 f:0(A)=pruned a u3"));
    assert_eq!(talk.call("f:0"), CallState::Open);
}

#[test]
fn a_declared_retry_of_an_older_generation_is_stale_and_never_advances() {
    let mut talk = Talk::new();
    talk.up(ask("u1").key("k1"));
    talk.up(ask("u1 a u2").key("k2"));
    assert_eq!(talk.refused(ask("u1").declared()), [Code::Stale]);
    assert_eq!(talk.refused(ask("u1").key("k1")), [Code::Stale]);
    assert_eq!(talk.admitted(ask("u1 a u2").declared()).generation, 2);
    assert_eq!(talk.admitted(ask("u1 a u3").declared()).generation, 3, "repeats nothing we know");
    assert_eq!(talk.admitted(ask("u1")).generation, 4, "not declared: the user went back");
}

#[test]
fn a_declared_retry_of_an_older_continuation_is_stale() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "c1(A)");
    talk.round(ask("u1 c1(A)=R"), "");
    talk.up(ask("u1 c1(A)=R a u2"));
    assert_eq!(talk.refused(ask("u1 c1(A)=R").declared()), [Code::Stale]);
    assert_eq!(talk.refused(ask("u1 c1(A)=R")), [Code::Duplicate]);
    assert_eq!(talk.refused(ask("u1 c1(A)=other")), [Code::Conflict]);
}

#[test]
fn an_identical_opening_after_its_generation_ended_begins_a_new_one() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "");
    assert_eq!(talk.admitted(ask("u1")).generation, 2);

    let mut talk = Talk::with(|rules| rules.model_calls = Some(1));
    let only = talk.up(ask("u1"));
    assert_eq!(talk.settle(only, "c1(A)"), Outcome::Withheld(Code::BudgetExhausted));
    assert_eq!(talk.admitted(ask("u1")).generation, 2);
}

#[test]
fn the_lane_used_last_is_folded_last() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "");
    for title in 0..200 {
        talk.round(ask(&format!("u-title{title}")), "");
        talk.round(ask(&format!("u1 a{title} u2")), "");
    }
    assert_eq!(talk.admitted(ask("u1 a u-end")).generation, 202);
    assert!(talk.conversation.lanes().iter().count() <= 64);
}

#[test]
fn a_lane_that_was_folded_leaves_its_calls_stale() {
    let mut talk = Talk::with(|rules| rules.kept = 2);
    talk.round(ask("u1"), "c1(A)");
    talk.up(ask("u1 a u2"));
    let flight = talk.up(ask("u1 a u2"));
    talk.answer(flight, "");
    for other in 0..4 {
        talk.round(ask(&format!("u-o{other}")), "");
    }
    assert_eq!(talk.refused(ask("u1 c1(A)=R")), [Code::Stale]);
    assert!(talk.admitted(ask("u1 c1(A)=!")).generation >= 1);
}
