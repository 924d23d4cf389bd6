//! While the operator only watches: what enforcing would have refused is told with each event.

use super::*;
use std::sync::Arc;

/// A talk that is watched, with what enforcing would do beside.
fn watched() -> Talk {
    let mut talk = Talk::observing();
    talk.rules.enforcing = Some(Arc::new(Rules::default()));
    talk
}

#[test]
fn an_early_end_hides_what_enforcing_would_never_have_looked_at() {
    let mut talk = watched();
    talk.round(ask("u1").generation(2), "c1(A)");
    let admitted = talk.admitted(ask("u1 c9(A)=R").generation(1));
    assert_eq!(notes(&admitted), [Code::StaleGeneration, Code::Unmatched]);
    assert_eq!(talk.would_refuse, [Code::StaleGeneration]);
}

#[test]
fn what_enforcing_would_have_replaced_is_not_counted_as_refused() {
    let mut talk = watched();
    talk.round(ask("u1").generation(1), "c1(A)");
    let admitted = talk.admitted(ask("u1 c1(A)=R a u2").generation(2));
    assert_eq!(notes(&admitted), [Code::Stale]);
    assert_eq!(talk.would_refuse, [], "a notice would have stood in its place");
}

#[test]
fn an_answer_that_nobody_waits_for_would_have_been_withheld() {
    let mut talk = watched();
    let a = talk.up(ask("u1"));
    talk.up(ask("u1 a u2"));
    assert_eq!(talk.would_refuse, []);
    assert_eq!(talk.settle(a, "c1(A)"), Outcome::Noted(Code::StaleAnswer));
    assert_eq!(talk.would_refuse, [Code::StaleAnswer]);
}

#[test]
fn where_rules_enforce_nothing_is_told_twice() {
    let mut talk = Talk::with(|_| {});
    talk.round(ask("u1"), "c1(A)");
    assert_eq!(talk.refused(ask("u1 c9(A)=R")), [Code::Unmatched]);
    assert_eq!(talk.would_refuse, []);
}
