//! Is it a repeat? At most one answer per opening or continuation is delivered.

use super::*;

/// A conversation whose continuation `u1 c1(A)=R` is in flight.
fn continued() -> (Talk, ExchangeId) {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "c1(A)");
    let flight = talk.up(ask("u1 c1(A)=R"));
    (talk, flight)
}

#[test]
fn a_continuation_after_a_failure_or_a_client_that_left_is_the_next_attempt() {
    let endings = [
        Ending::UpstreamFailed,
        Ending::OutputRefused,
        Ending::ClientGone { calls_sent: false },
        Ending::ClientGone { calls_sent: true },
    ];
    for ending in endings {
        let (mut talk, flight) = continued();
        talk.close(flight, ending);
        let again = talk.admitted(ask("u1 c1(A)=R"));
        assert_eq!((again.attempt, again.generation), (2, 1));
        let trimmed = talk.refused(ask("u1 s-trimmed c1(A)=R"));
        assert_eq!(trimmed, [Code::Duplicate], "the same continuation, however it is told");
    }
}

#[test]
fn a_continuation_in_flight_is_a_duplicate_unless_declared() {
    let (mut talk, flight) = continued();
    assert_eq!(talk.refused(ask("u1 c1(A)=R")), [Code::Duplicate]);
    let newer = talk.up(ask("u1 c1(A)=R").declared());
    assert_eq!(talk.cancelled, [(flight, Code::Overtaken)]);
    assert_eq!(talk.settle(flight, ""), Outcome::Withheld(Code::Overtaken));
    talk.answer(newer, "");
}

#[test]
fn a_delivered_continuation_is_a_duplicate_unless_declared() {
    let (mut talk, flight) = continued();
    talk.answer(flight, "");
    assert_eq!(talk.refused(ask("u1 c1(A)=R")), [Code::Duplicate]);
    assert_eq!(talk.refused(ask("u1 s-trimmed c1(A)=R")), [Code::Duplicate]);
    let retry = talk.up(ask("u1 c1(A)=R").declared());
    talk.close(retry, Ending::UpstreamFailed);
    assert_eq!(talk.refused(ask("u1 c1(A)=R")), [Code::Duplicate], "one answer was delivered");
}

#[test]
fn a_repeated_idempotency_key_declares_a_retry() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "c1(A)");
    talk.round(ask("u1 c1(A)=R").key("k"), "");
    assert_eq!(talk.refused(ask("u1 c1(A)=R").key("other")), [Code::Duplicate]);
    assert_eq!(talk.admitted(ask("u1 c1(A)=R").key("k")).attempt, 2);
}

#[test]
fn one_key_for_a_whole_job_declares_nothing_of_other_lists() {
    let mut talk = Talk::new();
    talk.round(ask("u1").key("job"), "c1(A)");
    talk.round(ask("u1 c1(A)=R").key("job"), "");
    let trimmed = ask("u1 s-trimmed c1(A)=R").key("job");
    assert_eq!(talk.refused(trimmed.clone()), [Code::Duplicate]);
    assert_eq!(talk.refused(trimmed), [Code::Duplicate], "what was refused was not remembered");
    assert_eq!(talk.admitted(ask("u1 c1(A)=R").key("job")).attempt, 2, "the exchange that bore it");
    talk.round(ask("u2").key("job"), "");
    assert_eq!(talk.refused(ask("u1 s-trimmed c1(A)=R").key("job")), [Code::Duplicate]);
}

#[test]
fn repeats_may_be_allowed_always() {
    let mut talk = Talk::with(|rules| rules.repeat_allowed = true);
    talk.round(ask("u1"), "c1(A)");
    let first = talk.up(ask("u1 c1(A)=R"));
    let second = talk.up(ask("u1 c1(A)=R"));
    assert_eq!(talk.cancelled, [(first, Code::Overtaken)]);
    talk.answer(second, "");
    assert_eq!(talk.admitted(ask("u1 c1(A)=R")).attempt, 3);
}

#[test]
fn an_opening_again_is_never_refused_and_closes_what_nobody_answered() {
    let mut talk = Talk::new();
    let first = talk.up(ask("u1"));
    let second = talk.up(ask("u1"));
    assert_eq!(talk.settle(first, "c0(A)"), Outcome::Withheld(Code::Overtaken));
    talk.answer(second, "c1(A)");
    let third = talk.admitted(ask("u1"));
    assert_eq!((third.attempt, third.first_call), (3, true));
    assert_eq!(talk.call("c1"), CallState::Replaced);
    assert_eq!(talk.refused(ask("u1 c1(A)=R")), [Code::Stale]);
    talk.up(ask("u1 c1(A)=!"));
}

#[test]
fn the_same_ids_minted_again_are_the_newest_calls() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "get:0(A)");
    talk.round(ask("u1"), "get:0(A)");
    talk.round(ask("u1 get:0(A)=R1"), "get:0(A)");
    assert_eq!(talk.call("get:0"), CallState::Open);
    talk.round(ask("u1 get:0(A)=R1 a get:0(A)=R2"), "");
    assert_eq!(talk.call("get:0"), accepted("R2"));
    let states: Vec<_> = talk.conversation.calls().iter().map(|one| one.calls[0].state).collect();
    assert_eq!(states, [CallState::Replaced, accepted("R1"), accepted("R2")]);
}

#[test]
fn a_retry_of_an_earlier_continuation_leaves_later_calls_with_its_ids_alone() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "f:0(A)");
    talk.round(ask("u1 f:0(A)=R1"), "f:0(A)");
    let retry = talk.admitted(ask("u1 f:0(A)=R1").declared());
    assert_eq!(retry.attempt, 2);
    assert_eq!(talk.call("f:0"), CallState::Replaced, "the attempt that proposed it is replaced");
}

#[test]
fn a_lapsed_lease_is_a_failure_and_its_settling_is_withheld() {
    let (mut talk, flight) = continued();
    talk.pass(14_999);
    assert_eq!(talk.refused(ask("u1 c1(A)=R")), [Code::Duplicate]);
    assert_eq!(talk.apply(&Event::Check(flight)), Outcome::Wanted);
    talk.pass(14_999);
    assert_eq!(talk.refused(ask("u1 c1(A)=R")), [Code::Duplicate], "the sign renewed it");
    talk.pass(1);
    assert_eq!(talk.admitted(ask("u1 c1(A)=R")).attempt, 2);
    assert_eq!(talk.settle(flight, ""), Outcome::Withheld(Code::Overtaken));
    assert_eq!(talk.apply(&Event::Check(flight)), Outcome::Withheld(Code::Overtaken));
}

#[test]
fn what_was_replaced_at_the_end_is_replaced_in_every_attempt() {
    let mut talk = Talk::with(|rules| rules.late = crate::ledger::rules::AtEnd::Substitute);
    talk.round_within(ask("u1"), "c1(A) c2(B)", 10);
    talk.pass(10);
    let first = talk.admitted(ask("u1 c1(A)=R c2(B)=!"));
    assert_eq!(replaced(&first), [(1, Notice::Timeout)]);
    assert_eq!(notes(&first), [Code::Substituted]);
    let again = talk.admitted(ask("u1 c1(A)=R c2(B)=!").declared());
    assert_eq!(replaced(&again), [(1, Notice::Timeout)]);
    let later = talk.admitted(ask("u1 c1(A)=R c2(B)=! a u2"));
    assert_eq!(replaced(&later), [(1, Notice::Timeout)]);
    let later = talk.admitted(ask("u1 c1(A)=R c2(B)=! a u2 a u3"));
    assert_eq!(replaced(&later), [(1, Notice::Timeout)], "the same notice in later generations");
}
