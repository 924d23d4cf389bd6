//! One continuation, fired at all gateways at once: one answer.

use super::fleet::{Fleet, continuation, opening};
use super::rounds;
use super::server::{Cluster, Server};
use std::sync::Arc;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

const GATEWAYS: usize = 4;
/// Conversations under way side by side.
const ABREAST: u64 = 8;

#[tokio::test(flavor = "multi_thread")]
async fn one_continuation_fired_at_all_gateways_is_answered_once() {
    let server = Server::start(&[]);
    fire(&server.url(), rounds("TIGERTALLY_FLEET_ROUNDS", 300)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_continuation_fired_at_all_gateways_of_a_cluster_is_answered_once() {
    let cluster = Cluster::start();
    fire(&cluster.url(), 40).await;
}

async fn fire(url: &str, rounds: u64) {
    let fleet = Arc::new(Fleet::start(url, GATEWAYS).await);
    let mut lanes = JoinSet::new();
    for lane in 0..ABREAST {
        let fleet = Arc::clone(&fleet);
        lanes.spawn(async move {
            let mut done = 0;
            for round in (lane..rounds).step_by(ABREAST as usize) {
                one_round(&fleet, round).await;
                done += 1;
            }
            done
        });
    }
    let done: u64 = lanes.join_all().await.into_iter().sum();
    assert_eq!(done, rounds);
    assert_eq!(*fleet.upstream.answered.lock(), rounds, "the model was asked once each");
}

async fn one_round(fleet: &Arc<Fleet>, round: u64) {
    let name = format!("c{round}");
    let opened = fleet.chat(round as usize % GATEWAYS, &name, &opening(&name, false)).await;
    assert_eq!(opened.status, 200, "{opened:?}");
    let start = Arc::new(Barrier::new(GATEWAYS));
    let mut racers = JoinSet::new();
    for gateway in 0..GATEWAYS {
        let (fleet, name, start) = (Arc::clone(fleet), name.clone(), Arc::clone(&start));
        racers.spawn(async move {
            start.wait().await;
            fleet.chat(gateway, &name, &continuation(&name)).await
        });
    }
    let answers = racers.join_all().await;
    let delivered = answers.iter().filter(|one| one.status == 200).count();
    let refused = answers.iter().filter(|one| (one.status, one.code()) == (422, "duplicate"));
    assert_eq!((delivered, refused.count()), (1, GATEWAYS - 1), "{round}: {answers:?}");
}
