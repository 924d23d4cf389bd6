//! A sink that takes nothing delays nobody, and what it keeps out is counted.

use crate::lines::{has_task, of_kind, proposal, question, text, until};
use crate::story::World;
use std::process::Command;
use std::time::{Duration, Instant};

const RECORD_FILE: &str = "TIGERTALLY_TELEMETRY__RECORD_FILE";

#[tokio::test]
async fn a_full_disk_delays_nobody_and_is_counted() {
    let world = World::with(&[(RECORD_FILE, "/dev/full")]).await;
    assert_eq!(world.exchange(1, "r", &question("A"), text()).await, 200);
    world.gateway.counts("record_dropped_total").await;
    assert_eq!(world.exchange(2, "r", &question("A"), text()).await, 200);
}

/// Nobody reads the pipe: its writer waits for ever. More is told than may wait.
#[tokio::test]
async fn a_pipe_that_nobody_reads_delays_nobody_and_is_counted() {
    let scratch = tempfile::tempdir().unwrap();
    let pipe = scratch.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let world = World::with(&[(RECORD_FILE, pipe.to_str().unwrap())]).await;
    // A request with many faults weighs as much as many lines: each result here has no call.
    let stray = r#"{"role":"tool","tool_call_id":"x","content":""},"#.repeat(256);
    let body = format!(r#"{{"messages":[{stray}{{"role":"user","content":"?"}}]}}"#);
    let began = Instant::now();
    for _ in 0..300 {
        assert_eq!(world.gateway.chat(body.as_bytes(), &[]).await.status, 400);
    }
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    world.gateway.counts("record_dropped_total").await;
}

#[tokio::test]
async fn a_small_file_is_rotated_and_nothing_is_lost() {
    let world = World::with(&[("TIGERTALLY_TELEMETRY__RECORD_MAX_BYTES", "2 kB")]).await;
    for generation in 1..=12 {
        let says = proposal("A", &format!("call_{generation}"));
        assert_eq!(world.exchange(generation, "r", &question("A"), says).await, 200);
    }
    let lines = until(&[&world.file], |lines| has_task(lines, 11)).await;
    assert_eq!(of_kind(&lines, "task").len(), 11, "each but the last was left for the next");
    let files = tigertally::telemetry::record::rotated(&world.file).unwrap();
    assert!(files.len() >= 3, "{files:?}");
}
