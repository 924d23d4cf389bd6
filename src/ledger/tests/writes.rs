//! Writes: a timeout does not mean that it did not happen.

use super::*;
use crate::ledger::event::Operation;

/// A refund whose outcome is unknown: it was superseded after it went out.
fn unknown() -> Talk {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "w1/refund(A)");
    talk.up(ask("u1 a u2"));
    talk
}

/// The model proposes the refund anew, in a task of its own.
fn again(talk: &mut Talk) -> Outcome {
    let lane = format!("u-anew{}", talk.ids);
    let id = talk.up(ask(&lane));
    talk.settle(id, "w9/refund(A)")
}

fn resolve(talk: &mut Talk, applied: bool) -> Outcome {
    let operation =
        Operation { generation: 1, tool: "refund".into(), arguments: digest("A"), ordinal: 0 };
    talk.apply(&Event::Resolve(Resolve { operation, applied }))
}

#[test]
fn an_unknown_write_is_not_proposed_anew() {
    let mut talk = unknown();
    assert_eq!(codes(&again(&mut talk)), [Code::WriteOutcomeUnknown]);
    assert!(!talk.conversation.idle());
    let other = talk.up(ask("u-other"));
    assert_eq!(talk.settle(other, "w2/refund(B)"), Outcome::Wanted, "another refund is");
    let read = talk.up(ask("u-read"));
    assert_eq!(talk.settle(read, "r1/get(A)"), Outcome::Wanted);
}

#[test]
fn a_timed_out_write_is_unknown_and_a_closing_does_not_settle_it() {
    let mut talk = Talk::new();
    talk.round_within(ask("u1"), "w1/refund(A)", 10);
    talk.pass(10);
    talk.round(ask("u1 w1/refund(A)=!"), "");
    assert_eq!(codes(&again(&mut talk)), [Code::WriteOutcomeUnknown]);
}

#[test]
fn its_late_result_settles_it_though_the_model_is_refused_it() {
    let mut talk = unknown();
    assert_eq!(talk.refused(ask("u1 w1/refund(WRONG)=R")), [Code::Stale]);
    assert_eq!(codes(&again(&mut talk)), [Code::WriteOutcomeUnknown], "not this write's result");
    assert_eq!(talk.refused(ask("u1 w1/refund(A)=R")), [Code::Stale]);
    assert_eq!(again(&mut talk), Outcome::Wanted);
}

#[test]
fn its_late_result_in_history_settles_it_too() {
    let mut talk = unknown();
    let admitted = talk.admitted(ask("u1 w1/refund(A)=R u2 a u3"));
    assert_eq!(replaced(&admitted), [(1, Notice::Superseded)]);
    assert_eq!(again(&mut talk), Outcome::Wanted);
}

#[test]
fn an_application_resolves_it() {
    for applied in [true, false] {
        let mut talk = unknown();
        assert_eq!(resolve(&mut talk, applied), Outcome::Done);
        assert_eq!(resolve(&mut talk, applied), Outcome::Done);
        assert_eq!(codes(&resolve(&mut talk, !applied)), [Code::Conflict]);
        assert_eq!(again(&mut talk), Outcome::Wanted);
    }
    let mut talk = Talk::new();
    assert_eq!(codes(&resolve(&mut talk, true)), [Code::Unmatched]);
}

#[test]
fn a_write_that_never_went_out_is_withdrawn() {
    let mut talk = Talk::new();
    let id = talk.up(ask("u1"));
    talk.settle(id, "w1/refund(A)");
    talk.advance(None);
    talk.close(id, Ending::Withheld);
    assert_eq!(again(&mut talk), Outcome::Wanted);
    let mut talk = Talk::new();
    let id = talk.up(ask("u1"));
    talk.settle(id, "w1/refund(A)");
    talk.close(id, Ending::ClientGone { calls_sent: false });
    assert_eq!(again(&mut talk), Outcome::Wanted);
}

#[test]
fn a_write_whose_attempt_a_declared_retry_replaced_is_withdrawn() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "w1/refund(A)");
    let retry = talk.up(ask("u1").declared());
    assert_eq!(talk.settle(retry, "w2/refund(A)"), Outcome::Wanted);
    let operations: Vec<_> =
        talk.conversation.operations().map(|(operation, _)| operation.ordinal).collect();
    assert_eq!(operations, [0, 0], "the same write in the same task");
    let mut talk = Talk::new();
    talk.round(ask("u1"), "w1/refund(A)");
    let reload = talk.up(ask("u1"));
    let outcome = talk.settle(reload, "w2/refund(A)");
    assert_eq!(codes(&outcome), [Code::WriteOutcomeUnknown], "nobody said that it was not run");
}

#[test]
fn an_accepted_write_is_known() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "w1/refund(A)");
    talk.round(ask("u1 w1/refund(A)=R"), "w2/refund(A) w3/refund(A)");
    let ordinals: Vec<_> =
        talk.conversation.operations().map(|(operation, _)| operation.ordinal).collect();
    assert_eq!(ordinals, [0, 1, 2], "equal writes of one task are told apart");
}

#[test]
fn unknown_writes_are_never_folded() {
    let mut talk = Talk::with(|rules| rules.kept = 2);
    talk.round(ask("u1"), "w1/refund(A)");
    for user in 0..20 {
        talk.round(ask(&format!("u1 a u{user}")), "c(A)");
    }
    assert_eq!(codes(&again(&mut talk)), [Code::WriteOutcomeUnknown]);
}

#[test]
fn under_observe_it_is_noted() {
    let mut talk = unknown();
    talk.rules = Talk::observing().rules;
    assert_eq!(again(&mut talk), Outcome::Noted(Code::WriteOutcomeUnknown));
}

#[test]
fn every_part_of_an_operation_is_in_its_key() {
    use crate::ledger::digest::DigestKey;
    let first =
        Operation { generation: 1, tool: "refund".into(), arguments: digest("A"), ordinal: 0 };
    let secret = DigestKey::new([1; 32]);
    let (who, whose) = (digest("alice"), digest("chat"));
    let key = first.key(&secret, &who, &whose);
    assert_eq!(first.clone().key(&secret.clone(), &who, &whose), key);
    let others = [
        Operation { generation: 2, ..first.clone() },
        Operation { tool: "refunds".into(), ..first.clone() },
        Operation { arguments: digest("B"), ..first.clone() },
        Operation { ordinal: 1, ..first.clone() },
    ];
    assert!(others.iter().all(|other| other.key(&secret, &who, &whose) != key));
    assert_ne!(first.key(&secret, &digest("bob"), &whose), key);
    assert_ne!(first.key(&secret, &who, &digest("other")), key);
    assert_ne!(first.key(&secret, &whose, &who), key);
    assert_ne!(first.key(&DigestKey::new([2; 32]), &who, &whose), key);
}
