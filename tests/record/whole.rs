//! Each generation is told once and whole, whichever processes served it.

use crate::gateway::Upstream;
use crate::lines::{answered, has_task, of_kind, proposal, question, text, until};
use crate::lives::Replica;
use crate::server::Server;
use std::path::PathBuf;

const FILE: &str = "tasks.jsonl";

fn replica(upstream: &Upstream, store: &[(&'static str, &str)]) -> Replica {
    let record = [("TIGERTALLY_TELEMETRY__RECORD_FILE", FILE)];
    let env = store.iter().chain(&record).map(|(name, value)| (*name, (*value).to_owned()));
    Replica::new(&upstream.url, env.collect())
}

fn file(replica: &Replica) -> PathBuf {
    replica.scratch.path().join(FILE)
}

async fn chat(replica: &Replica, generation: u64, body: Vec<u8>) -> u16 {
    let request = reqwest::Client::new()
        .post(format!("{}/v1/chat/completions", replica.url))
        .header("content-type", "application/json")
        .header("x-conversation-id", "c")
        .header("x-generation", generation.to_string());
    let answer = request.body(body).send().await.unwrap();
    let status = answer.status().as_u16();
    answer.bytes().await.unwrap();
    status
}

#[tokio::test]
async fn two_replicas_tell_each_generation_once() {
    const TASKS: u64 = 12;
    let redis = Server::start(&[]);
    let upstream = Upstream::start().await;
    let url = redis.url();
    let store = [("TIGERTALLY_STORE__KIND", "redis"), ("TIGERTALLY_STORE__URL", url.as_str())];
    let mut replicas = [replica(&upstream, &store), replica(&upstream, &store)];
    for replica in &mut replicas {
        replica.start().await;
        replica.is_ready().await;
    }
    for generation in 1..=TASKS {
        // One asks and the other answers, in turns; each third task is left.
        let (one, other) = if generation % 2 == 0 { (0, 1) } else { (1, 0) };
        let id = format!("call_{generation}");
        upstream.reply_with(proposal("A", &id));
        assert_eq!(chat(&replicas[one], generation, question("A")).await, 200);
        if generation % 3 != 0 || generation == TASKS {
            upstream.reply_with(text());
            assert_eq!(chat(&replicas[other], generation, answered("A", &id, "found")).await, 200);
        }
    }
    let files = [file(&replicas[0]), file(&replicas[1])];
    let files = [files[0].as_path(), files[1].as_path()];
    let enough = |lines: &[serde_json::Value]| (1..=TASKS).all(|one| has_task(lines, one));
    let lines = until(&files, enough).await;
    let mut told: Vec<u64> =
        of_kind(&lines, "task").iter().map(|one| one["generation"].as_u64().unwrap()).collect();
    told.sort_unstable();
    assert_eq!(told, (1..=TASKS).collect::<Vec<_>>());
    for task in of_kind(&lines, "task") {
        let left = task["generation"].as_u64().unwrap() % 3 == 0 && task["generation"] != TASKS;
        let exchanges = task["exchanges"].as_array().unwrap().len();
        let expected = if left { ("superseded", 1) } else { ("completed", 2) };
        assert_eq!((task["outcome"].as_str().unwrap(), exchanges), expected, "{task}");
        assert_eq!(task["calls"].as_array().unwrap().len(), 1, "{task}");
    }
    for file in files {
        assert!(!of_kind(&crate::lines::read(&[file]), "task").is_empty(), "both had a part");
    }
}

#[tokio::test]
async fn a_task_that_goes_on_after_a_kill_is_told_whole() {
    let upstream = Upstream::start().await;
    let store = [("TIGERTALLY_STORE__KIND", "embedded"), ("TIGERTALLY_STORE__PATH", "data")];
    let mut replica = replica(&upstream, &store);
    replica.start().await;
    upstream.reply_with(proposal("A", "call_a"));
    assert_eq!(chat(&replica, 1, question("A")).await, 200);
    replica.kill();
    replica.start().await;
    upstream.reply_with(text());
    assert_eq!(chat(&replica, 1, answered("A", "call_a", "found")).await, 200);
    let file = file(&replica);
    let lines = until(&[&file], |lines| has_task(lines, 1)).await;
    let tasks = of_kind(&lines, "task");
    assert_eq!(tasks.len(), 1);
    let outcomes: Vec<_> = tasks[0]["exchanges"].as_array().unwrap().iter().collect();
    assert_eq!(outcomes.len(), 2, "{tasks:#?}");
    for exchange in outcomes {
        assert_eq!(exchange["outcome"], "delivered");
        assert!(exchange["began_at"].is_string() && exchange["ended_at"].is_string());
    }
    assert_eq!(tasks[0]["calls"][0]["verdict"], "accepted");
}

/// SIGTERM: what was told before is written before the process ends.
#[tokio::test]
async fn the_last_lines_are_written_at_the_end() {
    let upstream = Upstream::start().await;
    let mut replica = replica(&upstream, &[("TIGERTALLY_STORE__KIND", "memory")]);
    replica.start().await;
    for generation in 1..=50 {
        upstream.reply_with(text());
        assert_eq!(chat(&replica, generation, question("A")).await, 200);
    }
    replica.signal("-TERM");
    let file = file(&replica);
    let lines = until(&[&file], |lines| of_kind(lines, "task").len() == 50).await;
    assert!(of_kind(&lines, "task").iter().all(|task| task["outcome"] == "completed"));
}
