//! How long the pure parts take: reading, pairing, judging, the ledger and its encoding.
//!
//! ```text
//! cargo bench --bench pure                    all
//! cargo bench --bench pure -- view/200k       those whose names hold this
//! ```
//! Times are this machine's, and others use it too: what CI holds is the number of instructions, in
//! `benches/instructions`.

#![expect(clippy::unwrap_used, reason = "it measures")]

mod bodies;
mod streams;
mod turns;
mod workloads;

use criterion::{BatchSize, Criterion, Throughput};
use std::time::Duration;

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(20)
        .configure_from_args();
    for workload in workloads::all() {
        let mut group = criterion.benchmark_group("pure");
        if let Some(bytes) = workload.bytes {
            group.throughput(Throughput::Bytes(bytes as u64));
        }
        group.bench_function(&workload.name, |bencher| {
            bencher.iter_batched(&workload.prepare, |run| run(), BatchSize::SmallInput);
        });
        group.finish();
    }
    criterion.final_summary();
}
