//! Removal, and the bound per principal.

use super::bench::{Bench, PER_PRINCIPAL, RACERS};
use super::events::{admitted, answer, check, code, delivered};
use crate::guard::fault::Code;
use crate::ledger::event::{Effects, Event, ExchangeId};
use crate::store::StoreError;
use std::sync::Arc;

/// Removal forgets, says whether there was something, and withholds what is in flight.
pub(super) async fn removal_withholds_what_is_in_flight(bench: Bench) {
    let key = bench.key("p", "c");
    assert!(!bench.store.remove(&key).await.unwrap());
    bench.with_call(&key, None).await;
    assert!(admitted(&bench.apply(&key, bench.events().opening(2, 1)).await));
    let _ = bench.told(&key);
    assert!(bench.store.remove(&key).await.unwrap());
    let told = bench.told(&key);
    assert_eq!((told.cancel, told.open_calls), (vec![(ExchangeId(2), Code::StaleAnswer)], -1));
    assert_eq!(bench.store.read(&key).await.unwrap(), None);
    assert_eq!(bench.store.conversations(), 0);
    assert_eq!(code(&bench.apply(&key, answer(2)).await), Some(Code::StaleAnswer));
    assert!(!bench.store.remove(&key).await.unwrap());
    assert!(admitted(&bench.apply(&key, bench.events().opening(3, 0)).await), "it begins anew");
}

/// The bound holds for new conversations of that principal only, and ends when one goes.
pub(super) async fn the_bound_is_per_principal_and_recovers(bench: Bench) {
    let keys: Vec<_> = (0..=PER_PRINCIPAL).map(|n| bench.key("p", &format!("c{n}"))).collect();
    for key in &keys[..PER_PRINCIPAL] {
        bench.with_call(key, None).await;
    }
    let over = keys.last().unwrap();
    let opening = bench.events().opening(1, 1);
    let full = bench.store.apply(over, opening.clone(), &bench.rules).await;
    assert_eq!(full.unwrap_err(), StoreError::Full);
    assert_eq!(bench.store.read(over).await.unwrap(), None);
    assert_eq!(bench.told(over), Effects::default());
    // Those that run go on, and nothing but a new conversation is refused.
    assert!(admitted(&bench.apply(&keys[0], bench.events().continuation(2, 1, "r")).await));
    assert_eq!(code(&bench.apply(over, answer(9)).await), Some(Code::StaleAnswer));
    assert!(admitted(&bench.apply(&bench.key("other", "c"), opening.clone()).await));
    assert!(bench.store.remove(&keys[1]).await.unwrap());
    assert!(admitted(&bench.apply(over, opening).await));
    assert_eq!(bench.store.conversations(), PER_PRINCIPAL + 1);
}

/// Requests of one new conversation race for the last place: it is theirs, all of them.
pub(super) async fn the_last_place_is_one_conversations(bench: Bench) {
    for round in 0..100 {
        let principal = format!("p{round}");
        for n in 1..PER_PRINCIPAL {
            let key = bench.key(&principal, &format!("c{n}"));
            assert!(admitted(&bench.apply(&key, bench.events().opening(1, 1)).await));
        }
        let last = bench.key(&principal, "last");
        let racing = (0..4).map(|racer| bench.events().opening(1 + racer, 1)).collect();
        let outcomes = bench.race(&last, racing).await;
        assert!(outcomes.iter().all(admitted));
    }
}

/// New conversations race for the last places: never more than the bound.
pub(super) async fn the_bound_holds_in_a_race(bench: Bench) {
    let mut racers = tokio::task::JoinSet::new();
    let start = Arc::new(tokio::sync::Barrier::new(RACERS as usize));
    for racer in 0..RACERS {
        let key = bench.key("p", &format!("c{racer}"));
        let (store, rules) = (Arc::clone(&bench.store), Arc::clone(&bench.rules));
        let (opening, start) = (bench.events().opening(1, 1), Arc::clone(&start));
        racers.spawn(async move {
            start.wait().await;
            store.apply(&key, opening, &rules).await.is_ok()
        });
    }
    let made = racers.join_all().await.into_iter().filter(|made| *made).count();
    assert_eq!((made, bench.store.conversations()), (PER_PRINCIPAL, PER_PRINCIPAL));
}

/// A first event that is refused leaves nothing behind, and takes no place.
pub(super) async fn a_refused_first_event_leaves_nothing(bench: Bench) {
    let mut strict = (*bench.rules).clone();
    strict.actions = strict.actions.with(Code::Adopted, crate::guard::verdict::Action::Refuse);
    let strict = Arc::new(strict);
    for n in 0..2 * PER_PRINCIPAL {
        let key = bench.key("p", &format!("c{n}"));
        let mut event = bench.events().continuation(1, 1, "r");
        if let Event::Admit(admit) = &mut event {
            admit.generation = None;
        }
        let refused = bench.store.apply(&key, event, &strict).await.unwrap();
        assert_eq!(code(&refused.outcome), Some(Code::Unmatched));
        for event in
            [answer(1), check(1), delivered(1), Event::Tick, bench.events().decision(500, "r")]
        {
            let _ = bench.apply(&key, event).await;
        }
        assert_eq!(bench.store.read(&key).await.unwrap(), None);
    }
    assert_eq!(bench.store.conversations(), 0);
}

/// Conversations are made, used and removed at once, on few keys: nothing is lost, doubled or left.
pub(super) async fn creation_and_removal_race(bench: Bench) {
    let mut racers = tokio::task::JoinSet::new();
    for racer in 0..RACERS {
        let keys: Vec<_> = (0..3).map(|n| bench.key("p", &format!("c{n}"))).collect();
        let (store, rules) = (Arc::clone(&bench.store), Arc::clone(&bench.rules));
        let openings: Vec<_> =
            (0..100).map(|n| bench.events().opening(racer * 1000 + n, 1)).collect();
        racers.spawn(async move {
            for (n, opening) in openings.into_iter().enumerate() {
                let key = &keys[n % 3];
                let _ = store.apply(key, opening, &rules).await.unwrap();
                if n % 4 == racer as usize % 4 {
                    let _ = store.remove(key).await.unwrap();
                }
            }
        });
    }
    racers.join_all().await;
    for n in 0..3 {
        let _ = bench.store.remove(&bench.key("p", &format!("c{n}"))).await.unwrap();
    }
    assert_eq!(bench.store.conversations(), 0);
    // The bound counts none that is gone.
    for n in 0..PER_PRINCIPAL {
        let key = bench.key("p", &format!("new{n}"));
        assert!(admitted(&bench.apply(&key, bench.events().opening(1, 1)).await));
    }
}
