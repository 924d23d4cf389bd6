//! The user moves on at one gateway while another streams: the stream ends, soon, and nothing that it held
//! is let go afterwards.

use super::fleet::{Feed, Fleet, opening};
use super::history::client::{Reply, outcome};
use super::history::{Action, Outcome, Recorder};
use super::rounds;
use super::server::{Cluster, Server};
use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// What the design promises when a push is lost, and time for a busy machine.
const AT_WORST: Duration = Duration::from_secs(3);
/// Streams under way side by side.
const ABREAST: u64 = 4;
/// What a push must do.
const PUSHED: Duration = Duration::from_millis(100);

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_at_one_gateway_ends_the_stream_at_another() {
    let server = Server::start(&[]);
    switch(&server.url(), rounds("TIGERTALLY_SWITCH_ROUNDS", 60)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_at_one_gateway_of_a_cluster_ends_the_stream_at_another() {
    let cluster = Cluster::start();
    switch(&cluster.url(), 20).await;
}

async fn switch(url: &str, rounds: u64) {
    let fleet = Arc::new(Fleet::start(url, 2).await);
    let recorder = Arc::new(Recorder::default());
    let mut lanes = JoinSet::new();
    for lane in 0..ABREAST {
        let (fleet, recorder) = (Arc::clone(&fleet), Arc::clone(&recorder));
        lanes.spawn(async move {
            let mut cuts = Vec::new();
            for round in (lane..rounds).step_by(ABREAST as usize) {
                cuts.push((round, one_round(&fleet, &recorder, round).await));
            }
            cuts
        });
    }
    let (mut took, mut released, mut stale) = (Vec::new(), 0, Vec::new());
    for (round, cut) in lanes.join_all().await.into_iter().flatten() {
        took.push(cut.took);
        released += u64::from(cut.released);
        if cut.stale {
            stale.push(round);
        }
    }
    println!("{released} released before the switch, {} after it, of {rounds}", stale.len());
    assert_eq!(stale, [0; 0], "released after the switch was acknowledged");
    let explained = recorder.check();
    println!("operations, and those without an answer: {explained:?}");
    took.sort_unstable();
    let at = |percent: usize| took[(took.len() - 1) * percent / 100];
    println!("cut after: p50 {:?} p99 {:?} max {:?} of {rounds}", at(50), at(99), at(100));
    assert!(at(50) < PUSHED, "the push came: {:?}", at(50));
    assert!(at(100) < AT_WORST, "{:?}", at(100));
    if rounds >= 1000 {
        assert!(at(99) < PUSHED, "{:?}", at(99));
    }
}

/// How one stream ended.
struct Cut {
    /// From the acknowledged switch to the end of the stream.
    took: Duration,
    /// Whether its call was let go.
    released: bool,
    /// Whether that was after the switch.
    stale: bool,
}

async fn one_round(fleet: &Fleet, recorder: &Recorder, round: u64) -> Cut {
    let name = format!("c{round}");
    let asked = recorder.asks(&name, Action::Open { generation: 1, question: name.clone() });
    let feed = fleet.upstream.feeds(&name);
    let mut response = fleet.request(0, &name, &opening(&name, true)).send().await.unwrap();
    let feed = feed.await.unwrap();
    assert_eq!(response.status(), 200);
    feed.send(event(r#"{"content":"A is"}"#, "null")).unwrap();
    let mut got = response.chunk().await.unwrap().unwrap().to_vec();
    // Every other answer is about to end in a call, somewhere around the switch.
    let (feed, ending) = if round % 2 == 1 {
        (None, Some(tokio::spawn(finish(feed, name.clone(), round))))
    } else {
        (Some(feed), None)
    };
    if round % 2 == 1 {
        // So that about as many end before the switch as after it.
        tokio::time::sleep(Duration::from_micros(round * 53 % 4000)).await;
    }
    let moves_on = Action::Advance { generation: None };
    let moving = recorder.asks(&name, moves_on.clone());
    let advanced = fleet.advance(1, &name).await;
    let reply = Reply { status: advanced.status, body: advanced.body.clone() };
    recorder.told(&moving, outcome(&moves_on, &reply));
    let acknowledged = Instant::now();
    assert_eq!(advanced.status, 200, "{advanced:?}");
    while let Some(bytes) = response.chunk().await.unwrap() {
        got.extend_from_slice(&bytes);
    }
    let took = acknowledged.elapsed();
    drop(feed);
    if let Some(ending) = ending {
        ending.await.unwrap();
    }
    let text = String::from_utf8(got).unwrap();
    let withheld = text.contains(r#""code":"stale_answer""#);
    let let_go = text.contains("tool_calls");
    recorder.told(
        &asked,
        if let_go {
            Outcome::Proposed(vec![format!("call_{name}")])
        } else {
            Outcome::Refused("stale_answer".to_owned())
        },
    );
    // A call that was registered before the switch is told as superseded by it; one that was not may not
    // be let go after it.
    let superseded = advanced.body["superseded_calls"].as_array().unwrap().len();
    assert!(withheld || let_go, "{round}: {text}");
    assert_eq!(withheld, !text.contains("[DONE]"), "{round}: {text}");
    Cut { took, released: let_go, stale: let_go && superseded != 1 }
}

async fn finish(feed: Feed, name: String, round: u64) {
    tokio::time::sleep(Duration::from_micros(round * 97 % 3000)).await;
    let call = format!(
        r#"{{"tool_calls":[{{"index":0,"id":"call_{name}","type":"function","function":{{"name":"get_order","arguments":"{{}}"}}}}]}}"#
    );
    let _ = feed.send(event(&call, "null"));
    let _ = feed.send(event("{}", "\"tool_calls\""));
    let _ = feed.send(Bytes::from_static(b"data: [DONE]\n\n"));
}

fn event(delta: &str, finish: &str) -> Bytes {
    format!(
        "data: {{\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
    )
    .into()
}
