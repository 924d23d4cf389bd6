//! What is asked of each contender.

use crate::chat::Answer;
use std::time::Duration;

/// One kind of load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    /// What `--sizes` takes.
    pub(crate) key: &'static str,
    pub(crate) title: &'static str,
    /// About how large requests are.
    pub(crate) bytes: usize,
    pub(crate) answer: Answer,
    pub(crate) connections: usize,
    /// What a client waits between two requests.
    pub(crate) pause: Duration,
}

const WHOLE: Answer = Answer::Whole { bytes: 300 };

const fn whole(key: &'static str, title: &'static str, bytes: usize) -> Workload {
    Workload { key, title, bytes, answer: WHOLE, connections: 64, pause: Duration::ZERO }
}

pub(crate) const ALL: [Workload; 6] = [
    whole("1k", "1 KB request", 1_000),
    whole("200k", "200 KB request", 200_000),
    whole("4m", "4 MB request", 4_000_000),
    Workload {
        key: "stream",
        title: "stream, a chunk each 5 ms",
        bytes: 1_000,
        answer: Answer::Stream { chunks: 100, pace: 5_000 },
        connections: 64,
        pause: Duration::ZERO,
    },
    Workload {
        key: "burst",
        title: "stream, as fast as it comes",
        bytes: 1_000,
        answer: Answer::Stream { chunks: 100, pace: 0 },
        connections: 64,
        pause: Duration::ZERO,
    },
    Workload {
        key: "latency",
        title: "1 KB request, light load",
        bytes: 1_000,
        answer: WHOLE,
        connections: 8,
        pause: Duration::from_millis(20),
    },
];
