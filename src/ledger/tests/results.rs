//! A live run at the end of the list, in the article's order.

use super::*;
use crate::ledger::rules::AtEnd;

fn called() -> Talk {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "c1(A) c2(B)");
    talk
}

#[test]
fn no_such_call_is_unmatched_and_told_only_of_what_is_unknown() {
    let mut talk = called();
    assert_eq!(talk.refused(ask("u1 c1(A)=R cX(A)=R")), [Code::Unmatched]);
    assert_eq!(talk.refused(ask("u1 cX(A)=R cY(A)=R")), [Code::Unmatched, Code::Unmatched]);
    talk.round(ask("u9"), "c9(A)");
    let scattered = talk.refused(ask("u1 c1(A)=R c9(A)=R"));
    assert_eq!(scattered, [Code::Unmatched], "a call of another thread");
    talk.up(ask("u1 c1(A)=R c2(B)=R"));
}

#[test]
fn closings_of_unknown_calls_pass() {
    let mut talk = called();
    assert_eq!(talk.refused(ask("u1 cX(A)=R cY(B)=!")), [Code::Unmatched]);
    let id = talk.up(ask("u1 cX(A)=! cY(B)=!"));
    talk.answer(id, "");
}

#[test]
fn before_any_proposal_a_run_is_adopted_and_remembered() {
    let mut talk = Talk::new();
    let adopted = talk.admitted(ask("u1 c1(A)=R"));
    assert_eq!((notes(&adopted), adopted.generation), (vec![Code::Adopted], 1));
    assert_eq!(talk.refused(ask("u1 c1(A)=R")), [Code::Duplicate]);
    assert_eq!(talk.refused(ask("u1 c1(A)=other")), [Code::Conflict]);
    assert_eq!(talk.admitted(ask("u1 c1(A)=R a u2 cZ(A)=R")).generation, 1, "still none proposed");

    let mut strict = Talk::with(|rules| {
        rules.actions = rules.actions.clone().with(Code::Adopted, Action::Refuse);
    });
    assert_eq!(strict.refused(ask("u1 c1(A)=R")), [Code::Unmatched]);
}

#[test]
fn a_different_result_is_a_conflict_and_the_first_stays_final() {
    let mut talk = called();
    let flight = talk.up(ask("u1 c1(A)=R c2(B)=R"));
    assert_eq!(talk.refused(ask("u1 c1(A)=S c2(B)=R")), [Code::Conflict]);
    assert_eq!(talk.recorded(), [Code::Conflict]);
    assert_eq!(talk.call("c1"), accepted("R"));
    assert!(talk.cancelled.is_empty());
    talk.close(flight, Ending::UpstreamFailed);
    let again = talk.up(ask("u1 c1(A)=R c2(B)=R"));
    assert_eq!(talk.refused(ask("u1 c1(A)=S c2(B)=R")), [Code::Conflict]);
    talk.answer(again, "");
    assert_eq!(talk.tasks(), [(1, TaskOutcome::Completed)]);
}

#[test]
fn after_a_conflict_closings_pass_and_leave_the_first_continuation_alone() {
    let mut talk = called();
    let flight = talk.up(ask("u1 c1(A)=R c2(B)=R"));
    assert_eq!(talk.refused(ask("u1 c1(A)=S c2(B)=R")), [Code::Conflict]);
    let recovery = talk.up(ask("u1 c1(A)=! c2(B)=R"));
    assert!(talk.cancelled.is_empty());
    talk.answer(flight, "");
    talk.answer(recovery, "");
    assert_eq!(talk.refused(ask("u1 c1(A)=! c2(B)=R")), [Code::Duplicate]);
    assert_eq!(talk.call("c1"), accepted("R"));
    talk.up(ask("u1 c1(A)=! c2(B)=R a u2"));
}

#[test]
fn results_of_another_generation_are_stale_before_all_that_follows() {
    let mut talk = called();
    talk.up(ask("u1 a u2"));
    let wrong = ask("u1 c1(A)=R c2(WRONG)=R");
    assert_eq!(talk.refused(wrong), [Code::Stale, Code::Stale]);
}

#[test]
fn a_timeout_stays_final() {
    let mut talk = Talk::new();
    talk.round_within(ask("u1"), "c1(A)", 1_000);
    talk.pass(999);
    let mut in_time = talk.clone();
    in_time.up(ask("u1 c1(A)=R"));
    talk.pass(1);
    assert_eq!(talk.refused(ask("u1 c1(A)=R")), [Code::Late]);
    assert_eq!(talk.call("c1"), CallState::TimedOut);
    assert_eq!(talk.refused(ask("u1 c1(A)=other")), [Code::Late], "not a conflict");
    assert_eq!(talk.refused(ask("u1 c1(WRONG)=R")), [Code::Late], "late before mismatch");
    let closed = talk.up(ask("u1 c1(A)=!"));
    talk.answer(closed, "");
    assert_eq!(talk.refused(ask("u1 c1(A)=R")), [Code::Late]);
    let fired = talk.facts.iter().filter(|fact| matches!(fact, Fact::CallTimedOut { .. }));
    assert_eq!(fired.count(), 1);
    talk.up(ask("u1 c1(A)=! a u2"));
    assert_eq!(talk.refused(ask("u1 c1(A)=R")), [Code::Stale], "stale before late");
}

#[test]
fn what_differs_from_the_proposal_is_a_mismatch() {
    type Change = fn(&mut Pair);
    let changes: [(&str, Change, bool); 9] = [
        ("as proposed", |_| (), true),
        ("its name", |pair| pair.name = Some("get".into()), true),
        ("another name", |pair| pair.name = Some("put".into()), false),
        ("another tool", |pair| pair.tool = "put".into(), false),
        ("other arguments", |pair| pair.arguments = digest("B"), false),
        ("an attempt never started", |pair| pair.attempt = Some(1), false),
        ("attempt 0", |pair| pair.attempt = Some(0), false),
        ("the echo", |pair| pair.echoes = vec![("order".into(), digest("1"))], true),
        ("another echo", |pair| pair.echoes = vec![("order".into(), digest("2"))], false),
    ];
    for (what, change, passes) in changes {
        let mut talk = Talk::new();
        let opening = talk.up(ask("u1"));
        let mut calls = proposal("c1(A)");
        calls[0].calls[0].echoes = vec![("order".into(), digest("1"))];
        talk.settle_as(opening, calls);
        let request = ask("u1 c1(A)=R").each(change);
        if passes {
            talk.up(request);
        } else {
            assert_eq!(talk.refused(request), [Code::Mismatch], "{what}");
            assert_eq!(talk.call("c1"), CallState::Open, "{what}");
            talk.up(ask("u1 c1(A)=R"));
        }
    }
}

#[test]
fn a_human_s_edit_passes_where_it_is_allowed_and_is_noted() {
    let mut talk = called();
    let edited = talk.admitted(ask("u1 c1(A9)=R c2(B9)=R").each(|pair| pair.edits_allowed = true));
    assert_eq!(notes(&edited), [Code::Mismatch, Code::Mismatch]);
    assert_eq!(talk.call("c1"), accepted("R"));
    let as_sent = called().admitted(ask("u1 c1(A)=R c2(B)=R").each(|p| p.edits_allowed = true));
    assert!(as_sent.notes.is_empty());
}

#[test]
fn the_same_result_under_other_arguments_is_a_mismatch_after_acceptance_too() {
    let mut talk = called();
    let flight = talk.up(ask("u1 c1(A)=R c2(B)=R"));
    talk.close(flight, Ending::UpstreamFailed);
    assert_eq!(talk.refused(ask("u1 c1(A)=R c2(WRONG)=R")), [Code::Mismatch]);
    talk.up(ask("u1 c1(A)=R c2(B)=R"));
}

#[test]
fn all_results_of_a_run_are_accepted_or_none() {
    let mut talk = called();
    assert_eq!(talk.refused(ask("u1 c1(A)=R c2(WRONG)=R")), [Code::Mismatch]);
    assert_eq!(talk.call("c1"), CallState::Open);
    assert_eq!(talk.refused(ask("u1 c1(WRONG)=R c2(WRONG)=R")).len(), 2, "every fault at once");
}

#[test]
fn results_may_come_in_any_order() {
    called().up(ask("u1 c2(B)=R c1(A)=R"));
}

#[test]
fn a_run_may_hold_fewer_calls_the_others_close() {
    let mut talk = called();
    talk.round(ask("u1 c1(A)=R"), "");
    assert_eq!(talk.call("c2"), CallState::Unchosen);
    assert_eq!(talk.refused(ask("u1 c2(B)=R")), [Code::Duplicate]);
}

#[test]
fn a_run_answers_one_choice_and_the_others_close() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "c1(A) c2(B) | c3(C)");
    let flight = talk.up(ask("u1 c3(C)=R"));
    let states = [talk.call("c1"), talk.call("c2"), talk.call("c3")];
    assert_eq!(states, [CallState::Unchosen, CallState::Unchosen, accepted("R")]);
    talk.close(flight, Ending::UpstreamFailed);
    assert_eq!(talk.refused(ask("u1 c1(A)=R c2(B)=R")), [Code::Duplicate, Code::Duplicate]);
    talk.up(ask("u1 c3(C)=R"));
    let mut talk = Talk::new();
    talk.round(ask("u1"), "c1(A) | c2(B)");
    assert_eq!(
        talk.refused(ask("u1 c1(A)=R c2(B)=R")),
        [Code::Unmatched],
        "one run cannot answer two choices"
    );
}

#[test]
fn late_and_superseded_results_may_be_replaced_at_the_end() {
    let mut talk = Talk::with(|rules| rules.superseded = AtEnd::Substitute);
    talk.round(ask("u1"), "c1(A)");
    talk.up(ask("u1 a u2"));
    let admitted = talk.admitted(ask("u1 c1(A)=R"));
    assert_eq!(replaced(&admitted), [(1, Notice::Superseded)]);
    assert_eq!(admitted.generation, 2, "it joins the current generation");
    assert_eq!(talk.call("c1"), CallState::Superseded);
}

#[test]
fn a_closing_of_a_call_that_is_gone_passes_and_joins_the_current_generation() {
    let mut talk = called();
    talk.up(ask("u1 a u2"));
    assert_eq!(talk.refused(ask("u1 c1(A)=R c2(B)=R")).len(), 2);
    assert_eq!(talk.refused(ask("u1 c1(A)=! c2(B)=R")), [Code::Stale]);
    assert_eq!(talk.admitted(ask("u1 c1(A)=! c2(B)=!")).generation, 2);
}

#[test]
fn an_id_used_again_cannot_touch_an_earlier_call() {
    let mut talk = Talk::new();
    talk.round(ask("u1").generation(41), "f:0(A)");
    talk.round(ask("u2").generation(42), "f:0(B)");
    assert_eq!(talk.refused(ask("u1 f:0(A)=R").generation(42)), [Code::Mismatch]);
    talk.up(ask("u2 f:0(B)=R").generation(42));
    let states: Vec<_> = talk.conversation.calls().iter().map(|one| one.calls[0].state).collect();
    assert_eq!(states, [CallState::Superseded, accepted("R")]);
}

#[test]
fn the_wrong_conversation_knows_nothing_of_the_call() {
    let mut other = Talk::new();
    other.round(ask("u1"), "c9(A)");
    assert_eq!(other.refused(ask("u1 c1(A)=R")), [Code::Unmatched]);
}
