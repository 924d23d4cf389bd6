//! Which plots the report has.

use crate::contenders::Contender;
use crate::figures::{Figures, Instance, Sample, Spread};
use crate::svg::{self, Bars};
use std::path::Path;

/// The workloads whose processor time counts.
const COST: [(&str, &str); 5] = [
    ("1k", "1 KB request"),
    ("200k", "200 KB request"),
    ("4m", "4 MB request"),
    ("stream", "stream, paced"),
    ("burst", "stream, burst"),
];

/// Processor time of a request, or of a chunk where there are chunks.
pub(crate) fn cost(sample: &Sample) -> Option<f64> {
    sample.cpu_per_chunks().or_else(|| sample.cpu_per_request())
}

/// Writes them beside the report.
pub(crate) fn write(figures: &Figures, out: &Path) -> std::io::Result<()> {
    let seen = |who: &Contender| figures.samples.iter().any(|s| s.contender == who.key());
    let who: Vec<Contender> = Contender::ALL.into_iter().filter(seen).collect();
    let proxies: Vec<Contender> =
        who.iter().copied().filter(|who| *who != Contender::Direct).collect();
    std::fs::write(out.join("cpu.svg"), cpu(figures, &proxies))?;
    std::fs::write(out.join("latency.svg"), latency(figures, &proxies))?;
    std::fs::write(out.join("memory.svg"), memory(figures, &proxies))
}

fn labels(who: &[Contender]) -> Vec<(String, &'static str)> {
    let class = |who: &Contender| match who {
        Contender::Tracked => "ours",
        who if who.is_ours() => "like",
        who if who.is_peer() => "peer",
        Contender::Nginx => "base",
        _ => "floor",
    };
    who.iter().map(|who| (who.title().to_owned(), class(who))).collect()
}

fn cpu(figures: &Figures, who: &[Contender]) -> String {
    let panel = |(workload, title): (&str, &str)| {
        let of = |who: &Contender| {
            figures.against("nginx", who.key(), workload, cost, |value, base| value / base)
        };
        let values: Vec<_> = who.iter().map(of).collect();
        let any = values.iter().any(Option::is_some);
        any.then(|| Bars {
            title: title.to_owned(),
            unit: "× nginx",
            most: 4.0,
            mark: Some(1.0),
            values,
        })
    };
    let panels: Vec<Bars> = COST.into_iter().filter_map(panel).collect();
    svg::bars(
        "Processor time of the proxy, relative to nginx in the same round",
        "Bar: median of the rounds; line: least to most. Requests: time per request; streams: time per chunk. Bars are cut at 4.",
        &labels(who),
        &panels,
    )
}

fn latency(figures: &Figures, who: &[Contender]) -> String {
    type Of = fn(&Sample) -> Option<f64>;
    let panels: [(&str, &str, Of); 4] = [
        ("request, p50", "latency", |s| (s.done > 0).then_some(s.whole.p50 / 1000.0)),
        ("request, p99", "latency", |s| (s.done > 0).then_some(s.whole.p99 / 1000.0)),
        ("first token, p50", "stream", |s| (s.done > 0).then_some(s.first.p50 / 1000.0)),
        ("a chunk's way, p99", "stream", |s| (s.done > 0).then_some(s.transit.p99 / 1000.0)),
    ];
    let panel = |(title, workload, value): (&str, &str, Of)| {
        let of = |who: &Contender| {
            figures.against("direct", who.key(), workload, value, |value, base| value - base)
        };
        let values: Vec<_> = who.iter().map(of).collect();
        bars(title, "ms added", who, values)
    };
    let panels: Vec<Bars> = panels.into_iter().filter_map(panel).collect();
    svg::bars(
        "Latency added, against no proxy in the same round",
        "Requests: 1 KB, 8 clients with pauses. Streams: 64 at once, a chunk each 5 ms. Bars of peers are cut.",
        &labels(who),
        &panels,
    )
}

/// Cut a bit behind the longest bar of those that are no peers.
fn bars(
    title: &str,
    unit: &'static str,
    who: &[Contender],
    values: Vec<Option<Spread>>,
) -> Option<Bars> {
    let pairs = values.iter().zip(who).filter(|(_, who)| !who.is_peer());
    let most = pairs.filter_map(|(value, _)| Some(value.as_ref()?.median)).fold(0.0, f64::max);
    (most > 0.0).then(|| Bars {
        title: title.to_owned(),
        unit,
        most: most * 1.3,
        mark: None,
        values,
    })
}

fn memory(figures: &Figures, who: &[Contender]) -> String {
    type Of = fn(&Instance) -> Option<f64>;
    let panels: [(&str, &'static str, Of); 4] = [
        ("resident, idle", "MB", |one| Some(one.idle_bytes as f64 / 1e6)),
        ("resident, after load", "MB", |one| Some(one.loaded_bytes as f64 / 1e6)),
        ("resident, many streams", "MB", |one| {
            let whole = one.streams_asked > 0 && one.streams_open == one.streams_asked;
            whole.then_some(one.streams_bytes as f64 / 1e6)
        }),
        ("start to first answer", "ms", |one| Some(one.start_ms)),
    ];
    let panel = |(title, unit, value): (&str, &'static str, Of)| {
        let values: Vec<_> = who.iter().map(|who| instances(figures, *who, value)).collect();
        bars(title, unit, who, values)
    };
    let panels: Vec<Bars> = panels.into_iter().filter_map(panel).collect();
    let streams = figures.instances.iter().map(|one| one.streams_asked).max().unwrap_or(0);
    svg::bars(
        "Memory and start",
        &format!("Many streams: {streams} open at once. Bars of peers are cut."),
        &labels(who),
        &panels,
    )
}

/// Over the processes of one contender.
pub(crate) fn instances(
    figures: &Figures,
    who: Contender,
    value: impl Fn(&Instance) -> Option<f64>,
) -> Option<Spread> {
    let own = figures.instances.iter().filter(|one| one.contender == who.key());
    Spread::of(own.filter_map(value))
}
