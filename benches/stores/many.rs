//! Many conversations in the embedded store: what each takes in memory, and how long a start is.

use crate::tasks::task;
use crate::{Deaf, clock, options, scratch};
use std::sync::Arc;
use std::time::Instant;
use tigertally::store::Store;
use tigertally::store::embedded::{Durability, EmbeddedStore};

const KEPT: u128 = 100_000;

pub(crate) async fn print() {
    let scratch = scratch();
    let options = options(scratch.path().join("many"), Durability::Process);
    let open = || Arc::new(EmbeddedStore::open(&options, clock(), Arc::new(Deaf)).unwrap());
    let (before, store) = (resident(), open());
    let mut spans = Vec::new();
    for n in 0..KEPT {
        spans.clear();
        task(&*store, n, 1, &mut spans).await;
    }
    let each = resident().saturating_sub(before) / u64::try_from(KEPT).unwrap();
    println!("{each} bytes of memory for a conversation in use");
    drop(store);
    let began = Instant::now();
    let store = open();
    println!(
        "opened {} conversations, {} MB of log, in {:.2} s",
        store.conversations(),
        bytes(&options.path) >> 20,
        began.elapsed().as_secs_f64()
    );
}

fn bytes(path: &std::path::Path) -> u64 {
    let files = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    files.flat_map(std::fs::metadata).map(|found| found.len()).sum()
}

/// Resident memory in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
