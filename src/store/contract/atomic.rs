//! One conditional update per event: whoever races, one wins, and the others see it.

use super::bench::{Bench, RACERS};
use super::events::{admitted, advance, check, code, codes, states};
use crate::guard::fault::Code;
use crate::ledger::calls::CallState;
use crate::ledger::event::{ExchangeId, Outcome};

/// Different results for one call, brought at once: one is accepted, every other is a conflict.
pub(super) async fn one_result_wins(bench: Bench) {
    for round in 0..20 {
        let key = bench.key(&format!("p{round}"), "race");
        bench.with_call(&key, None).await;
        let racing = (0..RACERS)
            .map(|racer| bench.events().continuation(100 + racer, 1, &format!("result {racer}")));
        let outcomes = bench.race(&key, racing.collect()).await;
        let lost = RACERS as usize - 1;
        assert_eq!(codes(&outcomes), [(None, 1), (Some(Code::Conflict), lost)].into());
    }
}

/// The same result, brought at once by several requests: one continuation runs.
pub(super) async fn one_continuation_runs(bench: Bench) {
    for round in 0..20 {
        let key = bench.key(&format!("p{round}"), "race");
        bench.with_call(&key, None).await;
        let racing = (0..RACERS).map(|racer| bench.events().continuation(100 + racer, 1, "same"));
        let outcomes = bench.race(&key, racing.collect()).await;
        let lost = RACERS as usize - 1;
        assert_eq!(codes(&outcomes), [(None, 1), (Some(Code::Duplicate), lost)].into());
    }
}

/// Decisions by the control API race with each other: one result is accepted.
pub(super) async fn one_decision_wins(bench: Bench) {
    let key = bench.key("p", "race");
    bench.with_call(&key, None).await;
    let racing =
        (0..RACERS).map(|racer| bench.events().decision(500 + racer, &format!("result {racer}")));
    let outcomes = bench.race(&key, racing.collect()).await;
    let won = outcomes.iter().filter(|one| matches!(one, Outcome::Accepted { .. })).count();
    assert_eq!(won, 1);
    assert!(matches!(states(&bench.read(&key).await)[..], [CallState::Accepted(_)]));
}

/// Requests race for the last model calls of a budget: never more than it allows.
pub(super) async fn a_budget_is_spent_once(bench: Bench) {
    let key = bench.key("p", "race");
    let racing = (0..RACERS).map(|racer| bench.events().opening(1 + racer, 1));
    let outcomes = bench.race(&key, racing.collect()).await;
    assert_eq!(codes(&outcomes), [(None, 4), (Some(Code::BudgetExhausted), 4)].into());
}

/// Every advance to "the next" counts: none is lost, no number is given twice.
pub(super) async fn no_advance_is_lost(bench: Bench) {
    let key = bench.key("p", "race");
    let racing = (0..RACERS).map(|racer| advance(300 + racer, None)).collect();
    let mut numbers: Vec<u64> = Vec::new();
    for outcome in bench.race(&key, racing).await {
        if let Outcome::Advanced { generation, .. } = outcome {
            numbers.push(generation);
        }
    }
    numbers.sort_unstable();
    let first = numbers[0];
    let expected: Vec<u64> = (0..RACERS as u64).map(|n| first + n).collect();
    assert_eq!(numbers, expected);
    assert_eq!(bench.read(&key).await.lanes().highest(), first + RACERS as u64 - 1);
}

/// An answer asks to go down while the user moves on. Whoever is first: an answer that was let go is
/// told of as cancelled afterwards, one that came second is withheld. Never both wanted and forgotten.
pub(super) async fn an_answer_and_an_advance_are_in_some_order(bench: Bench) {
    for round in 0..40 {
        let key = bench.key(&format!("p{round}"), "race");
        assert!(admitted(&bench.apply(&key, bench.events().opening(1, 1)).await));
        let _ = bench.told(&key);
        let racing = vec![bench.events().proposal(1, None), advance(300, Some(2))];
        let outcomes = bench.race(&key, racing).await;
        let withheld = outcomes.iter().any(|one| code(one) == Some(Code::StaleAnswer));
        let wanted = outcomes.contains(&Outcome::Wanted);
        assert!(withheld != wanted, "{outcomes:?}");
        let told = bench.told(&key);
        assert_eq!(told.cancel, [(ExchangeId(1), Code::StaleAnswer)]);
        assert_eq!(told.open_calls, 0);
        let expected = if wanted { vec![CallState::Superseded] } else { Vec::new() };
        assert_eq!(states(&bench.read(&key).await), expected);
        let later = bench.apply(&key, check(1)).await;
        assert_eq!(code(&later), Some(Code::StaleAnswer));
    }
}
