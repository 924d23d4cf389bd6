//! Redis is killed, or stops, under a running gateway: it says so, withholds what it cannot settle, and
//! comes back by itself.

use super::fleet::{ANSWER, Answer, Fleet, continuation, opening};
use super::server::{Server, signal};
use std::time::{Duration, Instant};
use tigertally::policy::OnError;

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_a_tracked_exchange_is_refused_and_an_untracked_one_is_not() {
    let server = Server::start(&["--appendonly", "yes", "--appendfsync", "everysec"]);
    let fleet = Fleet::start(&server.url(), 2).await;
    let opened = fleet.chat(0, "c", &opening("one", false)).await;
    assert_eq!(opened.status, 200, "{opened:?}");
    assert_eq!(fleet.ready(0).await, 200);
    signal(server.process, "-KILL");
    for gateway in [0, 1, 0, 1] {
        unavailable(&fleet.chat(gateway, "c", &continuation("one")).await);
        unavailable(&fleet.advance(gateway, "c").await);
        assert_eq!(fleet.chat(gateway, "", &opening("two", false)).await.status, 200);
        assert_eq!(fleet.ready(gateway).await, 503);
    }
    let server = server.relaunch();
    recovered(&fleet).await;
    // The call is still known, and its result still counts once, at either gateway.
    let answered = fleet.chat(1, "c", &continuation("one")).await;
    assert_eq!(
        (answered.status, answered.body.to_string().len() > 10),
        (200, true),
        "{answered:?}"
    );
    assert_eq!(answered.body, serde_json::from_str::<serde_json::Value>(ANSWER).unwrap());
    assert_eq!(fleet.chat(0, "c", &continuation("one")).await.code(), "duplicate");
    drop(server);
}

/// The model has answered, but nobody can say whether the answer is still wanted.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_cannot_be_settled_is_withheld() {
    let server = Server::start(&[]);
    let fleet = Fleet::start(&server.url(), 1).await;
    let question = opening("hold", false);
    let (answer, ()) = tokio::join!(fleet.chat(0, "c", &question), async {
        fleet.upstream.holding.acquire().await.unwrap().forget();
        signal(server.process, "-STOP");
        fleet.upstream.held.add_permits(1);
    });
    unavailable(&answer);
    assert!(!answer.body.to_string().contains("get_order"), "{answer:?}");
    signal(server.process, "-CONT");
    recovered(&fleet).await;
    fleet.upstream.held.add_permits(1);
    let again = fleet.chat(0, "c", &question).await;
    assert_eq!(again.status, 200, "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_redis_costs_each_exchange_a_moment_and_no_more() {
    let server = Server::start(&[]);
    let fleet = Fleet::start(&server.url(), 1).await;
    assert_eq!(fleet.chat(0, "c", &opening("one", false)).await.status, 200);
    signal(server.process, "-STOP");
    for round in 0..8 {
        let began = Instant::now();
        unavailable(&fleet.chat(0, &format!("c{round}"), &opening("one", false)).await);
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
        assert_eq!(fleet.chat(0, "", &opening("two", false)).await.status, 200);
    }
    signal(server.process, "-CONT");
    recovered(&fleet).await;
    assert_eq!(fleet.chat(0, "c", &continuation("one")).await.status, 200);
}

/// `on_error = "open"`: the exchange goes on, and says that nobody looked.
#[tokio::test(flavor = "multi_thread")]
async fn where_the_operator_says_so_exchanges_go_on_and_are_marked() {
    let server = Server::start(&[]);
    let fleet = Fleet::with(&server.url(), 1, OnError::Open).await;
    let opened = fleet.chat(0, "c", &opening("one", false)).await;
    assert_eq!((opened.status, opened.notes.as_str()), (200, ""));
    signal(server.process, "-STOP");
    let answered = fleet.chat(0, "c", &continuation("one")).await;
    assert_eq!(answered.status, 200, "{answered:?}");
    assert!(answered.notes.starts_with("store_unavailable"), "{answered:?}");
    let broken = fleet.chat(0, "c", &continuation("one").replacen("call_one", "", 1)).await;
    assert_eq!(broken.status, 400, "the untracked rules hold: {broken:?}");
    signal(server.process, "-CONT");
    recovered(&fleet).await;
    // Admitted before the outage, and answered in it.
    let question = opening("hold", false);
    let (answer, ()) = tokio::join!(fleet.chat(0, "d", &question), async {
        fleet.upstream.holding.acquire().await.unwrap().forget();
        signal(server.process, "-STOP");
        fleet.upstream.held.add_permits(1);
    });
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.notes.starts_with("store_unavailable"), "{answer:?}");
    signal(server.process, "-CONT");
    recovered(&fleet).await;
    let stale = fleet.chat(0, "c", &continuation("one")).await;
    assert_eq!((stale.status, stale.notes.as_str()), (200, ""), "{stale:?}");
}

/// SDKs try again after such an answer.
fn unavailable(answer: &Answer) {
    let what = (answer.status, answer.code(), answer.retry_after);
    assert_eq!(what, (503, "store_unavailable", true), "{answer:?}");
}

async fn recovered(fleet: &Fleet) {
    let end = Instant::now() + Duration::from_secs(30);
    for gateway in 0..fleet.gateways.len() {
        while fleet.ready(gateway).await != 200 {
            assert!(Instant::now() < end, "gateway {gateway} does not recover");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
