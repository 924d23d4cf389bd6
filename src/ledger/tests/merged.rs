//! Runs that are no proposal's own shape: merged, mixed with foreign calls, renamed.

use super::*;
use crate::ledger::rules::AtEnd;

/// `a` was answered; `b`, of a later message, was superseded by a second task.
fn superseded(header: bool) -> Talk {
    let mut talk = Talk::new();
    let of = |list: &str| if header { ask(list).generation(1) } else { ask(list) };
    talk.round(of("u1"), "a(A)");
    talk.round(of("u1 a(A)=R"), "b(B)");
    let next = ask("u1 a(A)=R b(B)=! u2");
    talk.advance(None);
    talk.round(if header { next.generation(2) } else { next }, "");
    assert_eq!(talk.call("b"), CallState::Superseded);
    talk
}

#[test]
fn what_is_barred_stays_barred_in_every_shape_of_history() {
    for (list, at) in [
        ("u1 a(A)=R b(B)=STALE u3", 2),
        ("u1 b(B)=STALE a(A)=R u3", 1),
        ("u1 b(B)=STALE zz(Z)=R u3", 1),
        ("u1 b/put(B)=STALE u3", 1),
        ("u1 b(other)=STALE zz(Z)=R u3", 1),
        ("u1 b/put(other)=STALE zz(Z)=R x u3", 1),
        ("u1 b/put(other)=STALE x b(B)=! u3", 1),
        ("u1 zz(Z)=R b(B)=STALE x b(B)=! u3", 2),
    ] {
        for header in [false, true] {
            let mut talk = superseded(header);
            let of = |list: &str| if header { ask(list).generation(2) } else { ask(list) };
            let told = talk.admitted(of(list));
            assert_eq!(replaced(&told), [(at, Notice::Superseded)], "{list}");
            let told = talk.admitted(of(&format!("{list} x u4")));
            assert_eq!(replaced(&told), [(at, Notice::Superseded)], "{list}, later");
            talk.rules.history = AtEnd::Refuse;
            assert_eq!(talk.refused(of(&format!("{list} x u5"))), [Code::Stale], "{list}");
            let closed = list.replace("STALE", "!");
            let told = talk.admitted(of(&format!("{closed} x u5")));
            assert!(told.substitutions.is_empty(), "{closed}");
        }
    }
}

#[test]
fn a_timed_out_call_stays_so_in_a_merged_run() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "a(A)");
    talk.round_within(ask("u1 a(A)=R"), "b(B)", 10);
    talk.pass(10);
    assert_eq!(talk.refused(ask("u1 a(A)=R b(B)=LATE")), [Code::Late], "at the end");
    let told = talk.admitted(ask("u1 a(A)=R b(B)=LATE u2"));
    assert_eq!(replaced(&told), [(2, Notice::Timeout)]);
}

#[test]
fn merged_history_of_answered_and_foreign_calls_is_left_alone() {
    let mut talk = superseded(false);
    for list in ["u1 a(A)=R zz(Z)=R u3", "u1 a/put(other)=R zz(Z)=R u4", "u1 a(A)=R b(B)=! u5"] {
        let told = talk.admitted(ask(list));
        assert!(told.substitutions.is_empty() && told.notes.is_empty(), "{list}: {told:?}");
    }
    let told = talk.admitted(ask("u1 a(A)=changed zz(Z)=R u6"));
    assert_eq!(notes(&told), [Code::HistoryChanged]);
}

#[test]
fn a_recycled_id_with_an_answered_call_leaves_unknown_older_runs_alone() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "f:0(A)");
    talk.round(ask("u1 f:0(A)=R"), "f:0(B)");
    talk.round(ask("u1 f:0(A)=R x f:0(B)=! u2"), "");
    talk.advance(None);
    let told = talk.admitted(ask("u1 f:0(older)=OLD zz(Z)=R u3"));
    assert!(told.substitutions.is_empty(), "{told:?}");
    let told = talk.admitted(ask("u1 f:0/put(older)=OLD u4"));
    assert!(told.substitutions.is_empty(), "{told:?}");
}

#[test]
fn an_open_call_first_offered_in_a_merged_run_is_judged_as_in_its_own() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "a(A)");
    talk.round(ask("u1 a(A)=R"), "b(B) c(C)");
    for list in ["u1 a(A)=R b(other)=S u2", "u1 b(other)=S zz(Z)=R u2", "u1 b/put(B)=S zz(Z)=R u2"]
    {
        assert_eq!(talk.refused(ask(list)), [Code::Mismatch], "{list}");
    }
    let told = talk.admitted(ask("u1 a(A)=R b(B)=S u2"));
    assert_eq!((told.generation, talk.call("b")), (2, accepted("S")));
    assert_eq!(talk.call("c"), CallState::Unchosen);
    assert!(talk.admitted(ask("u1 a(A)=R b(B)=S u2 x u3")).notes.is_empty());
}

#[test]
fn a_client_that_merges_messages_goes_on() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "a(A)");
    talk.round(ask("u1 a(A)=R"), "b(B)");
    let told = talk.admitted(ask("u1 a(A)=R b(B)=S"));
    assert_eq!((told.generation, told.attempt), (1, 1));
    assert_eq!(talk.call("b"), accepted("S"));
    assert_eq!(talk.refused(ask("u1 x a(A)=R b(B)=S")), [Code::Duplicate], "in flight");
    assert_eq!(talk.refused(ask("u1 x b(B)=S")), [Code::Duplicate], "the same continuation");
    let again = talk.ids;
    let retry = talk.up(ask("u1 a(A)=R b(B)=S").declared());
    assert_eq!(talk.cancelled, [(ExchangeId(again - 2), Code::Overtaken)]);
    talk.answer(retry, "c(C)");
    talk.round(ask("u1 a(A)=R b(B)=S c(C)=T"), "");
    assert_eq!(talk.refused(ask("u1 a(A)=R b(B)=S c(C)=T")), [Code::Duplicate]);
    assert_eq!(talk.refused(ask("u1 a(A)=other b(B)=S c(C)=T")), [Code::Conflict]);
}

#[test]
fn a_merged_live_run_passes_only_if_every_pair_is_right() {
    let mut talk = superseded(true);
    let of = |list: &str| ask(list).generation(2);
    assert_eq!(talk.refused(of("u1 a(A)=R b(B)=STALE")), [Code::Duplicate, Code::Stale]);
    assert_eq!(talk.refused(of("u1 b(B)=STALE zz(Z)=R")), [Code::Stale, Code::Unmatched]);
    talk.up(of("u1 b(B)=! zz(Z)=!"));
}

#[test]
fn what_was_replaced_in_a_merged_live_run_is_replaced_again() {
    let mut talk = Talk::with(|rules| rules.late = AtEnd::Substitute);
    talk.round(ask("u1"), "f:0(A)");
    talk.round_within(ask("u1 f:0(A)=R"), "b(B)", 10);
    talk.pass(10);
    let list = "u1 f:0(A)=R b(B)=LATE";
    let first = talk.up(ask(list));
    talk.answer(first, "b(C)");
    let again = talk.admitted(ask(list).declared());
    assert_eq!(replaced(&again), [(2, Notice::Timeout)]);
    assert_eq!(talk.refused(ask("u1 f:0(A)=S b(B)=LATE")), [Code::Conflict]);
}
