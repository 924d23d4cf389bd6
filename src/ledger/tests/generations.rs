//! The generation header, and advances by the control API.

use super::*;

#[test]
fn lower_refuses_equal_goes_on_higher_advances() {
    let mut talk = Talk::new();
    talk.round(ask("u1").generation(41), "c1(A)");
    assert_eq!(talk.refused(ask("u0").generation(40)), [Code::StaleGeneration]);
    talk.up(ask("u1 c1(A)=R").generation(41));
    let b = talk.admitted(ask("u2").generation(42));
    assert_eq!((b.generation, b.first_call), (42, true));
    assert_eq!(talk.refused(ask("u1 c1(A)=R").generation(41)), [Code::StaleGeneration]);
    let zero = Talk::new().admitted(ask("u1").generation(0));
    assert_eq!(zero.generation, 0);
}

#[test]
fn a_higher_header_advances_even_when_the_request_is_refused_for_its_results() {
    let mut talk = Talk::new();
    let first = talk.round(ask("u1").generation(41), "c1(A)");
    let flight = talk.up(ask("u9").generation(41));
    assert_eq!(talk.refused(ask("u1 c1(A)=R").generation(42)), [Code::Stale]);
    assert_eq!(talk.call("c1"), CallState::Superseded);
    assert_eq!(talk.cancelled, [(flight, Code::StaleAnswer)]);
    assert_eq!(talk.refused(ask("u1").generation(41)), [Code::StaleGeneration]);
    assert_ne!(first, flight);
}

#[test]
fn a_conversation_that_used_the_header_refuses_requests_without_it() {
    let mut talk = Talk::new();
    talk.up(ask("u1").generation(1));
    assert_eq!(talk.refused(ask("u2")), [Code::GenerationRequired]);
    let mut never = Talk::with(|rules| rules.automatic = false);
    assert_eq!(never.refused(ask("u1")), [Code::GenerationRequired]);
    never.up(ask("u1").generation(1));
}

#[test]
fn first_use_of_the_header_ends_the_threads() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "c1(A)");
    talk.up(ask("u1").generation(1));
    assert_eq!(talk.call("c1"), CallState::Superseded);
    assert_eq!(talk.refused(ask("u1 c1(A)=R").generation(1)), [Code::Stale]);
    assert_eq!(talk.refused(ask("u1 c1(A)=R")), [Code::GenerationRequired]);
}

#[test]
fn the_article_s_order() {
    let mut talk = Talk::new();
    talk.round(ask("u-a").generation(41), "call_order_a(ORDER-A)");
    talk.round(ask("u-b").generation(42), "call_order_b(ORDER-B)");
    assert_eq!(talk.refused(ask("u-a call_order_a(ORDER-A)=R").generation(42)), [Code::Stale]);
    talk.round(ask("u-b call_order_b(ORDER-B)=R").generation(42), "");
    assert_eq!(
        talk.tasks(),
        [(41, TaskOutcome::Superseded), (42, TaskOutcome::Completed)],
        "only B counts as done"
    );
    assert_eq!(talk.recorded(), [Code::Stale]);
}

#[test]
fn with_the_header_an_identical_opening_after_delivery_is_a_new_one() {
    let mut talk = Talk::new();
    talk.round(ask("u1").generation(1), "");
    let again = talk.admitted(ask("u1").generation(1));
    assert_eq!((again.attempt, again.first_call), (1, false));
    let retry = talk.admitted(ask("u1").generation(1));
    assert_eq!(retry.attempt, 2, "while it is in flight it is an attempt");
}

#[test]
fn with_the_header_an_opening_again_closes_the_calls_that_nobody_answered() {
    let mut talk = Talk::new();
    talk.round(ask("u1").generation(1), "f:0(A)");
    assert_eq!(talk.admitted(ask("u1").generation(1)).attempt, 2);
    assert_eq!(talk.call("f:0"), CallState::Replaced);
}

#[test]
fn the_control_api_advances_too() {
    let mut talk = Talk::new();
    let flight = talk.round(ask("u1"), "c1(A)");
    let again = talk.up(ask("u9"));
    let Outcome::Advanced { generation, superseded, cancelled } = talk.advance(None) else {
        panic!()
    };
    assert_eq!((generation, &*superseded[0], cancelled), (2, "c1", 1));
    assert_eq!(talk.cancelled, [(again, Code::StaleAnswer)]);
    assert_eq!(talk.admitted(ask("u1 a u2")).generation, 2, "the next opening joins it");
    assert_eq!(talk.admitted(ask("u1 a u3")).generation, 3, "it was not a use of the header");
    assert_eq!(talk.admitted(ask("u-new")).generation, 2);
    assert_ne!(flight, again);
}

#[test]
fn advancing_to_the_current_number_is_fine_and_to_a_lower_one_is_not() {
    let mut talk = Talk::new();
    talk.round(ask("u1").generation(41), "c1(A)");
    let same = talk.advance(Some(41));
    assert_eq!(same, Outcome::Advanced { generation: 41, superseded: Vec::new(), cancelled: 0 });
    assert_eq!(talk.call("c1"), CallState::Open);
    assert_eq!(codes(&talk.advance(Some(40))), [Code::StaleGeneration]);
    talk.advance(Some(42));
    assert_eq!(talk.refused(ask("u1 c1(A)=R").generation(41)), [Code::StaleGeneration]);
    assert_eq!(talk.admitted(ask("u2").generation(42)).generation, 42);
}

#[test]
fn an_advance_before_the_first_request_is_kept() {
    let mut talk = Talk::new();
    talk.advance(Some(5));
    assert_eq!(talk.admitted(ask("u1")).generation, 5);
    let mut talk = Talk::new();
    talk.advance(Some(5));
    assert_eq!(talk.refused(ask("u1").generation(4)), [Code::StaleGeneration]);
    assert_eq!(talk.admitted(ask("u1").generation(5)).generation, 5);
}
