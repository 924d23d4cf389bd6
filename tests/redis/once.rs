//! One continuation, fired at all gateways at once: one answer.

use super::fleet::{Answer, Fleet, continuation, opening};
use super::history::client::{Reply, outcome};
use super::history::{Action, Recorder};
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
    let recorder = Arc::new(Recorder::default());
    let mut lanes = JoinSet::new();
    for lane in 0..ABREAST {
        let (fleet, recorder) = (Arc::clone(&fleet), Arc::clone(&recorder));
        lanes.spawn(async move {
            let mut done = 0;
            for round in (lane..rounds).step_by(ABREAST as usize) {
                one_round(&fleet, &recorder, round).await;
                done += 1;
            }
            done
        });
    }
    let done: u64 = lanes.join_all().await.into_iter().sum();
    assert_eq!(done, rounds);
    assert_eq!(*fleet.upstream.answered.lock(), rounds, "the model was asked once each");
    let explained = recorder.check();
    println!("{rounds} rounds; operations, and those without an answer: {explained:?}");
}

/// What one client does, recorded.
async fn ask(
    fleet: &Fleet,
    recorder: &Recorder,
    gateway: usize,
    name: &str,
    goes_on: bool,
) -> Answer {
    let (action, body) = if goes_on {
        let (call, content) = (format!("call_{name}"), "shipped".to_owned());
        let action = Action::Continue { generation: 1, call, content, declared: false };
        (action, continuation(name))
    } else {
        (Action::Open { generation: 1, question: name.to_owned() }, opening(name, false))
    };
    let ticket = recorder.asks(name, action.clone());
    let answer = fleet.chat(gateway, name, &body).await;
    let reply = Reply { status: answer.status, body: answer.body.clone() };
    recorder.told(&ticket, outcome(&action, &reply));
    answer
}

async fn one_round(fleet: &Arc<Fleet>, recorder: &Arc<Recorder>, round: u64) {
    let name = format!("c{round}");
    let opened = ask(fleet, recorder, round as usize % GATEWAYS, &name, false).await;
    assert_eq!(opened.status, 200, "{opened:?}");
    let start = Arc::new(Barrier::new(GATEWAYS));
    let mut racers = JoinSet::new();
    for gateway in 0..GATEWAYS {
        let (fleet, name, start) = (Arc::clone(fleet), name.clone(), Arc::clone(&start));
        let recorder = Arc::clone(recorder);
        racers.spawn(async move {
            start.wait().await;
            ask(&fleet, &recorder, gateway, &name, true).await
        });
    }
    let answers = racers.join_all().await;
    let delivered = answers.iter().filter(|one| one.status == 200).count();
    let refused = answers.iter().filter(|one| (one.status, one.code()) == (422, "duplicate"));
    assert_eq!((delivered, refused.count()), (1, GATEWAYS - 1), "{round}: {answers:?}");
}
