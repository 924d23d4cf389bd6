//! What is measured, as it goes into the file of raw figures, and the statistics over it.

use crate::load::Tally;
use serde::Serialize;

/// A run of the whole benchmark.
#[derive(Serialize)]
pub(crate) struct Figures {
    pub(crate) about: About,
    pub(crate) samples: Vec<Sample>,
    pub(crate) instances: Vec<Instance>,
    pub(crate) missing: Vec<Missing>,
}

/// Where and on what.
#[derive(Clone, Serialize)]
pub(crate) struct About {
    pub(crate) commit: String,
    pub(crate) date: String,
    pub(crate) machine: String,
    pub(crate) versions: Vec<String>,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    pub(crate) descriptors: u64,
}

impl About {
    /// From what `scripts/bench` found out.
    pub(crate) fn read(rounds: usize, seconds: f64) -> About {
        let of = |name: &str| std::env::var(name).unwrap_or_else(|_| "unknown".to_owned());
        About {
            commit: of("BENCH_COMMIT"),
            date: of("BENCH_DATE"),
            machine: of("BENCH_MACHINE"),
            versions: of("BENCH_VERSIONS").lines().map(str::to_owned).collect(),
            rounds,
            seconds,
            descriptors: crate::options::descriptors(),
        }
    }
}

/// One workload on one contender in one round. Times in microseconds unless the name says otherwise.
#[derive(Serialize)]
pub(crate) struct Sample {
    pub(crate) round: usize,
    pub(crate) contender: &'static str,
    pub(crate) workload: &'static str,
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) done: u64,
    pub(crate) failed: u64,
    pub(crate) failure: Option<String>,
    pub(crate) noted: u64,
    pub(crate) chunks: u64,
    pub(crate) whole: Percentiles,
    pub(crate) first: Percentiles,
    pub(crate) transit: Percentiles,
    pub(crate) gap: Percentiles,
}

impl Sample {
    pub(crate) fn cpu_per_request(&self) -> Option<f64> {
        (self.done > 0).then(|| self.cpu_seconds * 1e6 / self.done as f64)
    }

    /// Of a thousand chunks, in milliseconds.
    pub(crate) fn cpu_per_chunks(&self) -> Option<f64> {
        (self.chunks > 0).then(|| self.cpu_seconds * 1e6 / self.chunks as f64)
    }

    pub(crate) fn per_second(&self) -> Option<f64> {
        (self.done > 0).then(|| self.done as f64 / self.seconds)
    }
}

/// One process group that was started for a round.
#[derive(Default, Serialize)]
pub(crate) struct Instance {
    pub(crate) round: usize,
    pub(crate) contender: &'static str,
    pub(crate) start_ms: f64,
    pub(crate) idle_bytes: u64,
    pub(crate) loaded_bytes: u64,
    pub(crate) streams_asked: usize,
    pub(crate) streams_open: usize,
    pub(crate) streams_bytes: u64,
    /// Tool results that the ledger accepted, and calls that it registered.
    pub(crate) accepted: Option<f64>,
    pub(crate) registered: Option<f64>,
    /// Spans that it made, and what of them and of its records nobody got.
    pub(crate) spans: Option<f64>,
    pub(crate) untold: f64,
}

/// Who was not measured.
#[derive(Serialize)]
pub(crate) struct Missing {
    pub(crate) contender: &'static str,
    pub(crate) why: String,
}

/// Of many times.
#[derive(Clone, Copy, Default, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

impl Percentiles {
    pub(crate) fn of(values: &mut [f32]) -> Percentiles {
        values.sort_unstable_by(f32::total_cmp);
        let at = |part: f64| {
            let place = (values.len() as f64 * part) as usize;
            values.get(place.min(values.len().saturating_sub(1))).map_or(0.0, |v| f64::from(*v))
        };
        Percentiles { p50: at(0.50), p99: at(0.99) }
    }
}

impl Sample {
    pub(crate) fn new(
        round: usize,
        contender: &'static str,
        workload: &'static str,
        (seconds, cpu_seconds): (f64, f64),
        mut tally: Tally,
    ) -> Sample {
        Sample {
            round,
            contender,
            workload,
            seconds,
            cpu_seconds,
            done: tally.done,
            failed: tally.failed,
            failure: tally.failure,
            noted: tally.noted,
            chunks: tally.chunks,
            whole: Percentiles::of(&mut tally.whole),
            first: Percentiles::of(&mut tally.first),
            transit: Percentiles::of(&mut tally.transit),
            gap: Percentiles::of(&mut tally.gap),
        }
    }
}

/// The middle of several rounds, and their least and most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// `None` of nothing.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_unstable_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let odd = values.len() % 2 == 1;
        let median = if odd { values[half] } else { f64::midpoint(values[half - 1], values[half]) };
        Some(Spread { median, least, most })
    }
}

impl Figures {
    pub(crate) fn samples_of<'a>(
        &'a self,
        contender: &'a str,
        workload: &'a str,
    ) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |s| s.contender == contender && s.workload == workload)
    }

    /// Over the rounds of one workload and contender.
    pub(crate) fn spread(
        &self,
        contender: &str,
        workload: &str,
        value: impl Fn(&Sample) -> Option<f64>,
    ) -> Option<Spread> {
        Spread::of(self.samples_of(contender, workload).filter_map(value))
    }

    /// The same, each round's value with that of `base` in the same round.
    pub(crate) fn against(
        &self,
        base: &str,
        contender: &str,
        workload: &str,
        value: impl Fn(&Sample) -> Option<f64>,
        join: impl Fn(f64, f64) -> f64,
    ) -> Option<Spread> {
        let pairs = self.samples_of(contender, workload).filter_map(|sample| {
            let base = self.samples_of(base, workload).find(|base| base.round == sample.round)?;
            Some(join(value(sample)?, value(base)?))
        });
        Spread::of(pairs)
    }
}
