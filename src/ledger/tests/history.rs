//! Runs that are followed by other messages.

use super::*;
use crate::ledger::rules::AtEnd;

#[test]
fn call_result_user_is_accepted_where_it_was_registered_and_then_advances() {
    for list in ["u1 c1(A)=R u2", "u1 c1(A)=R a u2", "u1 c1(A)=R a u2 a u3"] {
        let mut talk = Talk::new();
        talk.round(ask("u1"), "c1(A)");
        let opening = talk.admitted(ask(list));
        assert_eq!((opening.generation, talk.call("c1")), (2, accepted("R")), "{list}");
        assert!(opening.substitutions.is_empty() && opening.notes.is_empty(), "{list}");
        let later = talk.admitted(ask(&format!("{list} a u4")));
        assert!(later.substitutions.is_empty() && later.notes.is_empty(), "carried: {list}");
    }
}

#[test]
fn with_the_header_the_client_says_which_task_it_is() {
    let mut talk = Talk::new();
    talk.round(ask("u1").generation(41), "c1(A)");
    let mut next = talk.clone();
    let same = talk.admitted(ask("u1 c1(A)=R u2").generation(41));
    assert_eq!((same.generation, talk.call("c1")), (41, accepted("R")));
    let moved = talk.admitted(ask("u1 c1(A)=R u2 a u3").generation(42));
    assert!(moved.substitutions.is_empty(), "carried into the next task");

    let moved = next.admitted(ask("u1 c1(A)=R u2").generation(42));
    assert_eq!(replaced(&moved), [(1, Notice::Superseded)]);
    assert_eq!(next.call("c1"), CallState::Superseded);
}

#[test]
fn call_result_user_is_judged_like_a_live_run() {
    let mut talk = Talk::new();
    talk.round_within(ask("u1"), "c1(A)", 10);
    assert_eq!(talk.refused(ask("u1 c1(WRONG)=R u2")), [Code::Mismatch]);
    assert_eq!(talk.call("c1"), CallState::Open);
    talk.pass(10);
    let late = talk.admitted(ask("u1 c1(A)=R u2"));
    assert_eq!((late.generation, replaced(&late)), (2, vec![(1, Notice::Timeout)]));
}

#[test]
fn client_s_own_closing_is_taken_and_its_later_result_only_noted_in_history() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "c1(A)");
    talk.round(ask("u1 c1(A)=! u2"), "");
    assert_eq!(talk.call("c1"), CallState::Closed(digest("!")));
    let changed = talk.admitted(ask("u1 c1(A)=R u2 a u3"));
    assert_eq!(notes(&changed), [Code::HistoryChanged]);
    assert_eq!(talk.refused(ask("u1 c1(A)=R")), [Code::Conflict]);
}

#[test]
fn history_may_be_trimmed_pruned_and_changed() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "c1(A)");
    talk.round(ask("u1 c1(A)=R"), "");
    for (list, noted) in [
        ("u1 c1(A)=R a u2", false),
        ("u-summary u3", false),
        ("u1 c1(A)=pruned a u4", true),
        ("u1 c1(pruned)=R a u5", false),
        ("u1 c1(A)=! a u6", false),
        ("u1 cX(A)=R a u7", false),
    ] {
        let admitted = talk.admitted(ask(list));
        let expected = if noted { vec![Code::HistoryChanged] } else { Vec::new() };
        assert_eq!(notes(&admitted), expected, "{list}");
    }
    talk.rules.actions = talk.rules.actions.clone().with(Code::HistoryChanged, Action::Refuse);
    assert_eq!(talk.refused(ask("u1 c1(A)=pruned a u8")), [Code::Conflict]);
    talk.up(ask("u1 c1(A)=R a u8"));
}

#[test]
fn a_superseded_call_s_content_never_goes_up_again() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "c1(A)");
    talk.up(ask("u1 a u2"));
    for list in ["u1 c1(A)=R u2", "u1 c1(A)=R u2 a u3", "u1 c1(pruned)=R u2 a u3 a u4"] {
        let admitted = talk.admitted(ask(list));
        assert_eq!(replaced(&admitted), [(1, Notice::Superseded)], "{list}");
        assert_eq!(notes(&admitted), [Code::Substituted], "{list}");
    }
    assert!(talk.admitted(ask("u1 c1(A)=! u2 a u3")).substitutions.is_empty());
    talk.rules.history = AtEnd::Refuse;
    assert_eq!(talk.refused(ask("u1 c1(A)=R u2 a u9")), [Code::Stale]);
    talk.up(ask("u1 c1(A)=! u2 a u9"));
}

#[test]
fn repeated_ids_in_history_are_matched_from_last_to_first() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "f:0(A)");
    talk.round(ask("u1 f:0(A)=R1"), "f:0(A)");
    talk.round(ask("u1 f:0(A)=R1 a f:0(A)=R2"), "");
    let settled = talk.admitted(ask("u1 f:0(A)=R1 a f:0(A)=R2 a u2"));
    assert!(settled.notes.is_empty());
    let flight = talk.up(ask("u1 f:0(A)=R1 a f:0(A)=R2 a u2"));
    talk.answer(flight, "f:0(A)");
    talk.up(ask("u1 f:0(A)=R1 a f:0(A)=R2 a u2 a u3"));
    assert_eq!(talk.call("f:0"), CallState::Superseded);
    let late = "u1 f:0(A)=R1 a f:0(A)=R2 a u2 f:0(A)=R3 u3 a u4";
    assert_eq!(replaced(&talk.admitted(ask(late))), [(6, Notice::Superseded)]);
}

#[test]
fn pruned_arguments_do_not_hide_a_barred_call_behind_a_newer_open_one() {
    let mut talk = Talk::new();
    talk.round(ask("u1").generation(1), "f:0(A)");
    talk.round(ask("u2").generation(2), "f:0(B)");
    let list = "u1 f:0(pruned)=LATE a u3";
    assert_eq!(
        talk.refused(ask(list).generation(2)),
        [Code::Mismatch],
        "as the last run: an offer"
    );
    let list = "u1 f:0(pruned)=LATE u2 f:0(B)=R";
    let admitted = talk.admitted(ask(list).generation(2));
    assert_eq!(replaced(&admitted), [(1, Notice::Superseded)]);
    assert_eq!(talk.call("f:0"), accepted("R"));
}

#[test]
fn an_alternative_not_chosen_is_noted_in_history() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "c1(A) | c2(B)");
    talk.round(ask("u1 c1(A)=R"), "");
    assert_eq!(notes(&talk.admitted(ask("u1 c2(B)=R a u2"))), [Code::HistoryChanged]);
}
