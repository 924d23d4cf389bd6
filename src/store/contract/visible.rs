//! What one event decided the next one sees; other keys see nothing; an event that comes twice is one.

use super::bench::Bench;
use super::events::{admitted, advance, answer, check, code, delivered};
use crate::guard::fault::Code;
use crate::ledger::event::{Effects, Event, Fact, Outcome};

/// What one event decided, the next one sees, though it comes from another task.
pub(super) async fn an_outcome_is_visible_to_the_next_event(bench: Bench) {
    let key = bench.key("p", "c");
    for generation in 1..50_u64 {
        let exchange = u128::from(generation);
        let opening = bench.events().opening(exchange, generation);
        assert!(admitted(&bench.race(&key, vec![opening]).await[0]));
        assert_eq!(bench.race(&key, vec![check(exchange)]).await, [Outcome::Wanted]);
        let before = bench.race(&key, vec![answer(exchange - 1)]).await;
        assert_eq!(code(&before[0]), Some(Code::StaleAnswer));
        assert_eq!(bench.read(&key).await.lanes().highest(), generation);
    }
}

/// The same ids, lists and results on other keys: another principal's, or another conversation's.
pub(super) async fn keys_are_independent(bench: Bench) {
    let key = bench.key("p", "c");
    bench.with_call(&key, None).await;
    let before = bench.read(&key).await;
    let _ = bench.told(&key);
    for other in [bench.key("p", "other"), bench.key("other", "c")] {
        assert_eq!(bench.store.read(&other).await.unwrap(), None);
        bench.with_call(&other, None).await;
        let advanced = bench.apply(&other, advance(300, Some(9))).await;
        assert!(matches!(advanced, Outcome::Advanced { generation: 9, .. }));
        let stale = bench.apply(&other, bench.events().continuation(2, 1, "r")).await;
        assert_eq!(code(&stale), Some(Code::StaleGeneration));
        assert!(bench.store.remove(&other).await.unwrap());
        assert_eq!(bench.read(&key).await, before);
        assert_eq!(bench.told(&key), Effects::default());
    }
    assert!(admitted(&bench.apply(&key, bench.events().continuation(2, 1, "r")).await));
}

/// An event that comes twice (the first reply was lost) has its first outcome, and one effect.
pub(super) async fn events_are_idempotent(bench: Bench) {
    let key = bench.key("p", "c");
    let events = bench.events();
    let all = [
        events.opening(1, 1),
        events.proposal(1, Some(1000)),
        delivered(1),
        events.continuation(2, 1, "r"),
        check(2),
        answer(2),
        delivered(2),
        advance(300, None),
        Event::Tick,
    ];
    for event in all {
        let first = bench.apply(&key, event.clone()).await;
        let state = bench.read(&key).await;
        assert_eq!(bench.apply(&key, event.clone()).await, first, "{event:?}");
        assert_eq!(bench.race(&key, vec![event.clone(); 4]).await, vec![first; 4], "{event:?}");
        assert_eq!(bench.read(&key).await, state, "{event:?}");
    }
    let told = bench.told(&key);
    let registered = |fact: &&Fact| matches!(fact, Fact::CallRegistered { .. });
    assert_eq!(told.facts.iter().filter(registered).count(), 1);
    assert_eq!(told.open_calls, 0);
}
