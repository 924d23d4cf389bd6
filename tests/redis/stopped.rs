//! A replica is stopped (SIGSTOP) in the middle of exchanges, for longer than its lease; the retries go to
//! the other. When it wakes up it must withhold what it has: nothing is answered twice.
//!
//! The lease is the true one, 15 s, so this test takes as long; all its conversations share the wait.

use super::history::client::{Client, Reply};
use super::history::{Action, check};
use super::kills::replicas;
use super::server::Server;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LEASE: Duration = Duration::from_secs(15);
const ABREAST: usize = 6;

/// What becomes of an exchange at a replica that stopped.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// The client says that it tries again, and is answered at once.
    TakenOver,
    /// The user moves on.
    Superseded,
    /// The client tries until the lease has lapsed.
    Lapsed,
    /// Nobody tries again.
    Left,
}

const FATES: [Fate; 4] = [Fate::TakenOver, Fate::Superseded, Fate::Lapsed, Fate::Left];

/// One conversation, whose continuation is under way at the replica that stops.
struct Talk {
    name: String,
    question: String,
    message: Value,
    call: String,
}

impl Talk {
    async fn begin(client: &Client, url: &str, name: String) -> Self {
        // The model is quick with the call, and slow with the answer.
        let question = "Where is ORDER-1? [[delay:0,2000]]".to_owned();
        let opened = client.open(url, &name, 1, &question).await.unwrap();
        assert_eq!(opened.status, 200, "{opened:?}");
        let call = opened.calls()[0].clone();
        Talk { name, question, message: opened.message().clone(), call }
    }

    async fn goes_on(&self, client: &Client, url: &str, declared: bool) -> Reply {
        let content = r#"{"order_id":"ORDER-1","status":"shipped"}"#.to_owned();
        let action = Action::Continue { generation: 1, call: self.call.clone(), content, declared };
        let of = (self.question.as_str(), &self.message);
        client.goes_on(url, &self.name, of, action).await.unwrap()
    }

    /// Whether the exchange that goes on is under way, by the record.
    async fn is_under_way(&self, client: &Client, url: &str) -> bool {
        let reply = client.ask(url, &self.name, Action::Read).await.unwrap();
        let mut exchanges = reply.body["exchanges"].as_array().unwrap().iter();
        exchanges.any(|one| one["kind"] == "continuation" && one["state"] == "in_flight")
    }

    /// What the client does at the other replica while the first is stopped.
    async fn retry(&self, client: &Client, url: &str, fate: Fate) {
        match fate {
            Fate::Left => {}
            Fate::TakenOver => {
                let answered = self.goes_on(client, url, true).await;
                assert_eq!(answered.status, 200, "{fate:?}: {answered:?}");
            }
            Fate::Superseded => {
                let to = Action::Advance { generation: Some(2) };
                let moved = client.ask(url, &self.name, to).await.unwrap();
                assert_eq!(moved.status, 200, "{fate:?}: {moved:?}");
            }
            Fate::Lapsed => {
                let began = Instant::now();
                let mut answered = self.goes_on(client, url, false).await;
                assert_eq!(answered.code(), "duplicate", "its lease holds: {answered:?}");
                while answered.code() == "duplicate" {
                    assert!(began.elapsed() < LEASE * 3, "the lease does not lapse");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    answered = self.goes_on(client, url, false).await;
                }
                assert_eq!(answered.status, 200, "{fate:?}: {answered:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_was_stopped_beyond_its_lease_withholds_what_it_has() {
    let server = Server::start(&[]);
    let replicas = replicas(&server.url(), 2).await;
    let [stopped, other] = &replicas[..] else { panic!("two of them") };
    let recorder = Arc::default();
    let client = Client { patience: LEASE * 5, ..Client::new(&recorder) };
    let mut talks = Vec::new();
    for (n, fate) in (0..ABREAST).flat_map(|n| FATES.map(|fate| (n, fate))) {
        let talk = Talk::begin(&client, &stopped.url, format!("{fate:?}{n}")).await;
        talks.push((Arc::new(talk), fate));
    }
    let first: Vec<_> = talks
        .iter()
        .map(|(talk, fate)| {
            let (talk, client, url) = (Arc::clone(talk), client.clone(), stopped.url.clone());
            (*fate, tokio::spawn(async move { talk.goes_on(&client, &url, false).await }))
        })
        .collect();
    for (talk, _) in &talks {
        while !talk.is_under_way(&client, &other.url).await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    stopped.signal("-STOP");
    let began = Instant::now();
    let retries = talks.iter().map(|(talk, fate)| {
        let (talk, client) = (Arc::clone(talk), client.clone());
        let (url, fate) = (other.url.clone(), *fate);
        tokio::spawn(async move { talk.retry(&client, &url, fate).await })
    });
    for retry in retries.collect::<Vec<_>>() {
        retry.await.unwrap();
    }
    tokio::time::sleep((LEASE + Duration::from_secs(2)).saturating_sub(began.elapsed())).await;
    stopped.signal("-CONT");
    println!("stopped for {:?}", began.elapsed());
    for (fate, first) in first {
        let answer = first.await.unwrap();
        let withheld = match fate {
            Fate::Superseded => "stale_answer",
            Fate::TakenOver | Fate::Lapsed | Fate::Left => "overtaken",
        };
        assert_eq!((answer.status, answer.code()), (422, withheld), "{fate:?}: {answer:?}");
    }
    // What nobody tried again can be tried now.
    let left = talks.iter().filter(|(_, fate)| *fate == Fate::Left).map(|(talk, _)| {
        let (talk, client, url) = (Arc::clone(talk), client.clone(), stopped.url.clone());
        tokio::spawn(async move { talk.goes_on(&client, &url, false).await })
    });
    for answered in left.collect::<Vec<_>>() {
        let answered = answered.await.unwrap();
        assert_eq!(answered.status, 200, "{answered:?}");
    }
    let explained = recorder.check_with(check::Rules { leases_lapse: true });
    println!("operations, and those without an answer: {explained:?}");
}
