//! Each committed effect is told, once.

use super::bench::Bench;
use super::events::{admitted, advance, states};
use crate::guard::fault::Code;
use crate::ledger::calls::CallState;
use crate::ledger::event::{Effects, Event, ExchangeId, Fact};

/// Each effect is told once, on the key it happened on, whoever caused it; what changes nothing tells
/// nothing.
pub(super) async fn each_effect_is_told_once(bench: Bench) {
    let key = bench.key("p", "c");
    bench.with_call(&key, Some(1000)).await;
    assert_eq!(bench.told(&key).open_calls, 1);
    assert!(admitted(&bench.apply(&key, bench.events().opening(2, 1)).await));
    assert_eq!(bench.told(&key), Effects::default());
    let _ = bench.apply(&key, advance(301, Some(2))).await;
    let told = bench.told(&key);
    assert_eq!(told.cancel, [(ExchangeId(2), Code::StaleAnswer)]);
    assert_eq!(told.open_calls, -1);
    let ended = |fact: &&Fact| matches!(fact, Fact::TaskEnded { .. });
    assert_eq!(told.facts.iter().filter(ended).count(), 1);
    let _ = bench.apply(&key, advance(302, Some(2))).await;
    bench.pass(5000);
    bench.sweep().await;
    let again = bench.told(&key);
    assert_eq!((again.cancel.len(), again.facts.len(), again.open_calls), (0, 0, 0));
}

/// What is told is committed: a listener that hears of a withheld exchange finds it withheld.
pub(super) async fn the_sums_agree_after_a_storm(bench: Bench) {
    let keys: Vec<_> = (0..4).map(|n| bench.key(&format!("p{n}"), "storm")).collect();
    for key in &keys {
        bench.with_call(key, None).await;
        let mut storm = vec![advance(300, None), bench.events().decision(500, "one"), Event::Tick];
        storm.extend((2..6).map(|n| bench.events().opening(n, 1)));
        storm.extend((2..6).map(|n| bench.events().proposal(n, None)));
        let _ = bench.race(key, storm).await;
        let open =
            states(&bench.read(key).await).iter().filter(|one| **one == CallState::Open).count();
        assert_eq!(bench.told(key).open_calls, open as i64);
    }
}
