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
fn its_late_result_lets_later_tasks_have_it_though_the_model_is_refused_it() {
    let mut talk = unknown();
    assert_eq!(talk.refused(ask("u1 w1/refund(WRONG)=R")), [Code::Stale]);
    assert_eq!(codes(&again(&mut talk)), [Code::WriteOutcomeUnknown], "not this write's result");
    assert_eq!(talk.refused(ask("u1 w1/refund(A)=R")), [Code::Stale]);
    assert_eq!(codes(&again(&mut talk)), [Code::WriteOutcomeUnknown], "in a task of that time");
    talk.pass(1);
    assert_eq!(again(&mut talk), Outcome::Wanted, "in a task that begins later");
}

#[test]
fn its_late_result_does_not_let_the_model_that_has_not_seen_it_write_again() {
    for (says, wanted) in [
        (None, Some(Code::WriteOutcomeUnknown)),
        (Some(true), Some(Code::WriteApplied)),
        (Some(false), None),
    ] {
        let mut talk = Talk::new();
        talk.round_within(ask("u1"), "w1/refund(A)", 10);
        talk.pass(10);
        assert_eq!(talk.refused(ask("u1 w1/refund(A)=R")), [Code::Late]);
        talk.pass(5);
        if let Some(applied) = says {
            assert_eq!(resolve(&mut talk, applied), Outcome::Done);
        }
        let told = talk.up(ask("u1 w1/refund(A)=!"));
        let settled = talk.settle(told, "w2/refund(A)");
        match wanted {
            Some(code) => assert_eq!(codes(&settled), [code], "{says:?}"),
            None => assert_eq!(settled, Outcome::Wanted),
        }
    }
}

#[test]
fn its_late_result_in_history_does_the_same() {
    let mut talk = unknown();
    let admitted = talk.admitted(ask("u1 w1/refund(A)=R u2 a u3"));
    assert_eq!(replaced(&admitted), [(1, Notice::Superseded)]);
    assert_eq!(codes(&again(&mut talk)), [Code::WriteOutcomeUnknown]);
    talk.pass(1);
    assert_eq!(again(&mut talk), Outcome::Wanted);
}

#[test]
fn an_application_resolves_it() {
    for applied in [true, false] {
        let mut talk = unknown();
        assert_eq!(resolve(&mut talk, applied), Outcome::Done);
        assert_eq!(resolve(&mut talk, applied), Outcome::Done);
        assert_eq!(codes(&resolve(&mut talk, !applied)), [Code::Conflict]);
        talk.pass(1);
        assert_eq!(again(&mut talk), Outcome::Wanted, "in a task that began later");
    }
    let mut talk = Talk::new();
    assert_eq!(codes(&resolve(&mut talk, true)), [Code::Unmatched]);
}

/// The refund timed out and was told so to the model, which then proposes it once more.
fn timed_out() -> (Talk, Ask) {
    let mut talk = Talk::new();
    talk.round_within(ask("u1"), "w1/refund(A)", 10);
    talk.pass(10);
    let told = ask("u1 w1/refund(A)=!");
    let id = talk.up(told.clone());
    assert_eq!(codes(&talk.settle(id, "w2/refund(A)")), [Code::WriteOutcomeUnknown]);
    talk.close(id, Ending::OutputRefused);
    (talk, told)
}

#[test]
fn an_applied_write_is_not_run_again_in_a_task_that_had_begun() {
    for applied in [true, false] {
        let (mut talk, told) = timed_out();
        let other = talk.up(ask("u-other"));
        talk.pass(5);
        assert_eq!(resolve(&mut talk, applied), Outcome::Done);
        talk.pass(5);
        let id = talk.up(told);
        let outcome = talk.settle(id, "w3/refund(A)");
        let beside = talk.settle(other, "w4/refund(A)");
        if !applied {
            // The second one waits for nobody, and is another write.
            assert_eq!((outcome, beside), (Outcome::Wanted, Outcome::Wanted));
            continue;
        }
        assert_eq!(codes(&outcome), [Code::WriteApplied]);
        assert_eq!(codes(&beside), [Code::WriteApplied], "nor in another one of that time");
        talk.close(id, Ending::OutputRefused);
        let free = talk.up(ask("u1 w1/refund(A)=!"));
        assert_eq!(talk.settle(free, "w5/refund(B)"), Outcome::Wanted, "another write is");
        talk.close(free, Ending::Delivered);
        let id = talk.up(ask("u1 w1/refund(A)=! a u-and-once-more"));
        assert_eq!(talk.settle(id, "w6/refund(A)"), Outcome::Wanted, "a task that began later");
    }
}

#[test]
fn under_observe_a_write_that_was_applied_is_noted() {
    let (mut talk, told) = timed_out();
    assert_eq!(resolve(&mut talk, true), Outcome::Done);
    talk.rules = Talk::observing().rules;
    let id = talk.up(told);
    assert_eq!(talk.settle(id, "w3/refund(A)"), Outcome::Noted(Code::WriteApplied));
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

/// The ordinals of the refunds of A that are remembered, oldest first.
fn ordinals(talk: &Talk) -> Vec<u32> {
    let all = talk.conversation.operations().map(|(operation, _)| operation);
    all.filter(|one| one.arguments == digest("A")).map(|one| one.ordinal).collect()
}

#[test]
fn a_forgotten_write_keeps_its_ordinal() {
    let mut talk = Talk::with(|rules| rules.kept = 4);
    talk.round(ask("u1").generation(1), "w0/refund(A)");
    let mut list = "u1 w0/refund(A)=R".to_owned();
    for turn in 0..12 {
        talk.round(ask(&list).generation(1), &format!("c{turn}(A)"));
        list = format!("{list} a c{turn}(A)=R");
    }
    assert_eq!(ordinals(&talk), [0; 0], "it is forgotten");
    talk.round(ask(&list).generation(1), "w1/refund(A) w2/refund(A)");
    assert_eq!(ordinals(&talk), [1, 2], "another write, another key");
    let list = format!("{list} a w1/refund(A)=R w2/refund(A)=R");
    talk.round(ask(&list).generation(1), "w3/refund(A)");
    let retry = talk.up(ask(&list).generation(1).declared());
    talk.answer(retry, "w4/refund(A)");
    assert_eq!(ordinals(&talk)[2..], [3, 3], "and a retry still proposes the same one");
}

#[test]
fn a_withdrawn_write_leaves_its_ordinal_once() {
    let mut talk = Talk::with(|rules| rules.kept = 4);
    talk.round(ask("u1").generation(1), "w0/refund(A)");
    let retry = talk.up(ask("u1").generation(1).declared());
    talk.answer(retry, "w1/refund(A)");
    let mut list = "u1 w1/refund(A)=R".to_owned();
    for turn in 0..8 {
        talk.round(ask(&list).generation(1), &format!("c{turn}(A)"));
        list = format!("{list} a c{turn}(A)=R");
    }
    // The one that was run is forgotten, the withdrawn one is not: nothing else would bar its result.
    assert_eq!(ordinals(&talk), [0]);
    talk.round(ask(&list).generation(1), "w2/refund(A)");
    assert_eq!(ordinals(&talk), [0, 1]);
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
