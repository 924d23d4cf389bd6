//! Cases from public reports of faults in agent clients, as they come out in a tracked conversation.

use super::*;

#[test]
fn pairs_folded_into_a_summary_are_no_fault() {
    let mut talk = Talk::new();
    talk.round(ask("u-a1 c1(A)=R u-a2 c2(B)=R"), "");
    let summarised = talk.admitted(ask("u-summary u-a2 c2(B)=R u-thanks"));
    assert!(summarised.notes.is_empty());
}

#[test]
fn an_sdk_that_repeats_after_a_503_is_served() {
    let mut talk = Talk::new();
    let first = talk.up(ask("u1 c1(A)=R"));
    talk.close(first, Ending::UpstreamFailed);
    let second = talk.up(ask("u1 c1(A)=R").declared());
    talk.close(second, Ending::UpstreamFailed);
    talk.round(ask("u1 c1(A)=R"), "");
}

#[test]
fn a_task_run_again_after_its_refund_was_answered_is_not_held_up() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "c1/refund(A)");
    let lost = talk.up(ask("u1 c1/refund(A)=R"));
    talk.close(lost, Ending::UpstreamFailed);
    let again = talk.up(ask("u1"));
    assert_eq!(talk.settle(again, "c9/refund(A)"), Outcome::Wanted, "its outcome is known");
    let ordinals: Vec<_> =
        talk.conversation.operations().map(|(operation, _)| operation.ordinal).collect();
    assert_eq!(ordinals, [0, 1], "the business service can tell the second from the first");
}

#[test]
fn a_tool_run_again_after_a_lost_answer_conflicts() {
    let mut talk = Talk::new();
    let lost = talk.up(ask("u1 c1(A)=R1"));
    talk.close(lost, Ending::UpstreamFailed);
    assert_eq!(talk.refused(ask("u1 c1(A)=R2")), [Code::Conflict]);
    talk.round(ask("u1 c1(A)=R1"), "");
}

#[test]
fn the_same_text_for_another_call_is_no_fault() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "c1(A)");
    talk.round(ask("u1 c1(A)=R"), "");
    talk.round(ask("u1 c1(A)=R a u2"), "c2(B)");
    assert!(talk.admitted(ask("u1 c1(A)=R a u2 c2(B)=R")).notes.is_empty());
}

#[test]
fn a_cancelled_call_whose_real_output_overwrites_the_notice_is_noted() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "c1/refund(A)");
    talk.round(ask("u1 c1/refund(A)=! u2"), "");
    let overwritten = talk.admitted(ask("u1 c1/refund(A)=R u2 a u3"));
    assert_eq!(notes(&overwritten), [Code::HistoryChanged]);
}
