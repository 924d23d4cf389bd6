//! Redis is killed, or stops, under a running gateway: it says so, withholds what it cannot settle, and
//! comes back by itself.

use super::fleet::{ANSWER, Answer, Fleet, continuation, opening};
use super::server::{Server, cli, signal};
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
    // Both were delivered, and that is known now.
    let again = fleet.chat(0, "c", &continuation("one")).await;
    assert_eq!((again.status, again.code()), (422, "duplicate"), "{again:?}");
    fleet.upstream.held.add_permits(1);
    let answered = fleet.chat(0, "d", &continuation("hold")).await;
    assert_eq!((answered.status, answered.notes.as_str()), (200, ""), "{answered:?}");
}

/// What was forwarded in an outage happened: the ledger has it once Redis is back.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_let_through_in_an_outage_is_known_after_it() {
    let server = Server::start(&["--appendonly", "yes"]);
    let fleet = Fleet::with(&server.url(), 2, OnError::Open).await;
    assert_eq!(fleet.chat(0, "old", &opening("old", false)).await.status, 200);
    signal(server.process, "-KILL");
    // A call goes out, an answer to a result goes out, and a whole task.
    let in_outage = [
        ("call", opening("call", false)),
        ("old", continuation("old")),
        ("task", opening("task", false)),
        ("task", continuation("task")),
    ];
    for (conversation, body) in &in_outage {
        let answer = fleet.chat(0, conversation, body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.notes.starts_with("store_unavailable"), "{answer:?}");
    }
    let server = server.relaunch();
    recovered(&fleet).await;
    let other = |question: &str| continuation(question).replace("shipped", "lost");
    let accepted = fleet.chat(0, "call", &continuation("call")).await;
    assert_eq!((accepted.status, accepted.notes.as_str()), (200, ""), "{accepted:?}");
    for conversation in ["call", "old", "task"] {
        let second = fleet.chat(0, conversation, &other(conversation)).await;
        assert_eq!((second.status, second.code()), (422, "conflict"), "{second:?}");
        let again = fleet.chat(1, conversation, &continuation(conversation)).await;
        assert_eq!((again.status, again.code()), (422, "duplicate"), "everywhere: {again:?}");
    }
    drop(server);
}

/// Nobody has to ask about it first.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_let_through_in_an_outage_is_brought_back_without_being_asked_for() {
    let server = Server::start(&["--appendonly", "yes"]);
    let fleet = Fleet::with(&server.url(), 2, OnError::Open).await;
    signal(server.process, "-KILL");
    for n in 0..20 {
        let name = format!("c{n}");
        assert_eq!(fleet.chat(0, &name, &opening(&name, false)).await.status, 200);
    }
    let server = server.relaunch();
    recovered(&fleet).await;
    let conversations = || {
        let keys = cli(&server.port.to_string(), &["--scan", "--pattern", "*:c:*"]).stdout;
        String::from_utf8(keys).unwrap().lines().count()
    };
    let end = Instant::now() + Duration::from_secs(30);
    while conversations() < 20 {
        assert!(Instant::now() < end, "{} of 20 are there", conversations());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The last one may still be on its way.
    for n in 0..19 {
        let name = format!("c{n}");
        let settled = async || fleet.chat(1, &name, &continuation(&name)).await;
        let mut answer = settled().await;
        while answer.code() == "unmatched" && Instant::now() < end {
            answer = settled().await;
        }
        assert_eq!(answer.status, 200, "{name}: {answer:?}");
    }
}

/// The user moved on, elsewhere, while an older request's answer was let out here: it stays the past.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_outage_let_through_of_an_older_generation_does_not_come_back() {
    let server = Server::start(&["--appendonly", "yes"]);
    let fleet = Fleet::with(&server.url(), 1, OnError::Open).await;
    signal(server.process, "-KILL");
    assert_eq!(fleet.chat(0, "c", &opening("one", false)).await.status, 200);
    let server = server.relaunch();
    // Another replica comes up first, and the user asks there.
    let other = Fleet::with(&server.url(), 1, OnError::Open).await;
    let _ = other.advance(0, "c").await;
    let _ = other.advance(0, "c").await;
    recovered(&fleet).await;
    let stale = fleet.chat(0, "c", &continuation("one")).await;
    assert_eq!((stale.status, stale.code()), (422, "stale_generation"), "{stale:?}");
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
