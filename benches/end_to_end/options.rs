//! The command line of the benchmark.

use crate::contenders::{Contender, Places};
use crate::workloads::{self, Workload};
use clap::{Parser, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Measures the proxy beside nginx, plain pass-throughs and its peers
#[derive(Parser)]
#[command(name = "scripts/bench", args_conflicts_with_subcommands = true)]
pub(crate) struct CommandLine {
    /// Short rounds, and no peers: for work on the code
    #[arg(long)]
    pub(crate) quick: bool,
    /// How cost and memory grow with a conversation's length, with conversations, and with streams
    #[arg(long)]
    pub(crate) scale: bool,
    /// Rounds [default: 5, or 3 when quick]
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Contenders: direct, nginx, hyper, axum-reqwest, tigertally, tigertally-untracked, tigertally-observed,
    /// tigertally-redis, sglang-router, litellm, portkey
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<String>,
    /// Workloads: 1k, 200k, 4m, stream, burst, latency
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    sizes: Vec<String>,
    /// Seconds that each workload goes to each contender in a round [default: 3, or 1.5 when quick]
    #[arg(long)]
    seconds: Option<f64>,
    /// Streams that are open at once when memory is read; 0: none [default: 10000, or 0 when quick]
    #[arg(long)]
    streams: Option<usize>,
    /// Where the report goes [default: docs/benchmarks, or target/bench/quick when quick]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// What else this program is.
    #[command(subcommand)]
    pub(crate) role: Option<Role>,
}

/// What else this program is.
#[derive(Subcommand)]
pub(crate) enum Role {
    /// A server of the benchmark; it starts them itself
    #[command(hide = true)]
    Role {
        /// upstream, hyper or axum-reqwest
        name: String,
        /// Where it listens
        listen: SocketAddr,
        /// Where it forwards to
        upstream: Option<SocketAddr>,
    },
}

impl CommandLine {
    pub(crate) fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 3 } else { 5 }).max(1)
    }

    pub(crate) fn contenders(&self) -> Result<Vec<Contender>, String> {
        let all: &[Contender] = if self.quick { &Contender::QUICK } else { &Contender::ALL };
        if self.only.is_empty() {
            return Ok(all.to_vec());
        }
        let find = |name: &String| {
            let found = Contender::ALL.into_iter().find(|contender| contender.key() == name);
            found.ok_or_else(|| format!("--only: no contender {name}"))
        };
        self.only.iter().map(find).collect()
    }

    pub(crate) fn workloads(&self) -> Result<Vec<Workload>, String> {
        let find = |name: &String| {
            let found = workloads::ALL.into_iter().find(|workload| workload.key == name);
            found.ok_or_else(|| format!("--sizes: no workload {name}"))
        };
        if self.sizes.is_empty() {
            return Ok(workloads::ALL.to_vec());
        }
        self.sizes.iter().map(find).collect()
    }

    pub(crate) fn span(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.unwrap_or(if self.quick { 1.5 } else { 3.0 }))
    }

    /// How many streams, of those that the descriptors allow: a proxy needs two for each.
    pub(crate) fn streams(&self) -> usize {
        let asked = self.streams.unwrap_or(if self.quick { 0 } else { 10_000 });
        asked.min((descriptors() as usize).saturating_sub(200) / 2)
    }

    pub(crate) fn out(&self) -> PathBuf {
        let usual = if self.quick { "target/bench/quick" } else { "docs/benchmarks" };
        self.out.clone().unwrap_or_else(|| usual.into())
    }
}

/// How many files a process may have open.
pub(crate) fn descriptors() -> u64 {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(1024)
}

/// Where `scripts/bench` says that things are.
pub(crate) fn places(upstream: SocketAddr) -> Result<Places, String> {
    let of = |name: &str| {
        let value = std::env::var_os(name).map(PathBuf::from);
        value.ok_or_else(|| format!("{name} is not set: run scripts/bench"))
    };
    Ok(Places {
        scratch: of("BENCH_SCRATCH")?,
        peers: of("BENCH_PEERS")?,
        tigertally: of("BENCH_TIGERTALLY")?,
        upstream,
        descriptors: descriptors(),
    })
}
