//! The report: raw figures as JSON, plots, and a page with tables of medians and spread.

use crate::contenders::Contender;
use crate::figures::{Figures, Instance, Sample, Spread};
use crate::plots::{self, cost, instances};
use crate::svg::short;
use crate::workloads;
use std::fmt::Write as _;
use std::path::Path;

/// What the proxy should stay under, relative to nginx.
const GOALS: [(&str, f64); 4] = [("1k", 1.6), ("200k", 1.7), ("4m", 1.3), ("stream", 1.25)];
const MB: f64 = 1e6;

/// Writes it all, and prints the page.
pub(crate) fn write(figures: &Figures, out: &Path) -> Result<(), String> {
    let raw = serde_json::to_string_pretty(figures).map_err(|error| error.to_string())?;
    let page = page(figures);
    let written = std::fs::write(out.join("raw.json"), raw)
        .and_then(|()| std::fs::write(out.join("README.md"), &page))
        .and_then(|()| plots::write(figures, out));
    written.map_err(|error| format!("{}: {error}", out.display()))?;
    println!("\n{page}\nwritten to {}", out.display());
    Ok(())
}

fn page(figures: &Figures) -> String {
    let mut page = String::from("# Benchmarks\n\n");
    let about = &figures.about;
    let _ = write!(
        page,
        "What the proxy costs, beside nginx, plain pass-throughs and other gateways on the same machine in one run. \
         This page was written by `scripts/bench`; [raw.json](raw.json) has every round.\n\n\
         - commit {}, {}\n- {}; {} open files\n- {} rounds, {} s for each figure in each; 64 connections; 2 threads \
         or workers each (Portkey has one)\n- {}\n\n\
         A figure is the median of the rounds, with the least and the most in brackets. How it grows with \
         conversations and streams is in [scale.md](scale.md).\n",
        about.commit,
        about.date,
        about.machine,
        about.descriptors,
        about.rounds,
        about.seconds,
        about.versions.join("; "),
    );
    cpu(&mut page, figures);
    rates(&mut page, figures);
    latency(&mut page, figures);
    memory(&mut page, figures);
    doubts(&mut page, figures);
    page.push_str(HOW);
    page
}

const HOW: &str = "\n## How it is measured\n\n\
- The upstream, every contender and the load generator are processes of their own on one machine. All contenders \
run throughout a round; each workload goes to one after the other, in an order that is another in each round.\n\
- Processor time is `utime + stime` of all processes of a contender, between two moments with nothing in flight.\n\
- Requests are chats of an order desk with tools: settled runs of calls and results fill them up to their size. A \
task is two exchanges: the model's answer calls a tool, then the result goes up. Tracked, each of the 64 clients \
holds one conversation after another, of 8 tasks each, with `x-conversation-id` and `x-generation`: each call \
is registered and each result decided on.\n\
- A stream has 100 chunks of text; every second one has a tool call behind them. Each chunk bears the time at which the \
upstream wrote it.\n\
- nginx: `proxy_pass` with kept connections both ways, buffering of requests and answers off, 256 KB to read a body into. \
Tigertally: defaults, \
embedded store, metrics on. Peers: defaults, with logs off and their bounds raised where the load meets them.\n\
- Memory is the sum of `VmRSS` over a contender's processes.\n";

fn cpu(page: &mut String, figures: &Figures) {
    let columns: Vec<(&str, &str)> =
        workloads::ALL.iter().filter(|w| w.key != "latency").map(|w| (w.key, w.title)).collect();
    page.push_str(
        "\n## Processor time, relative to nginx\n\n\
         Of a request, or of a chunk of a stream.\n\n![Processor time](cpu.svg)\n\n",
    );
    head(page, columns.iter().map(|(_, title)| *title));
    let keys = || columns.iter().map(|(key, _)| *key);
    rows(page, figures, |who| {
        let ratio =
            |key| figures.against("nginx", who.key(), key, cost, |value, base| value / base);
        keys().map(|key| ratio(key).map_or_else(none, ratio_cell)).collect()
    });
    let goals = keys().map(|key| {
        let goal = GOALS.iter().find(|(of, _)| *of == key);
        goal.map_or_else(none, |(_, most)| format!("≤ {most}"))
    });
    row(page, "*goal for Tigertally, tracked*", goals);
    row(
        page,
        "*nginx, µs*",
        keys().map(|key| figures.spread("nginx", key, cost).map_or_else(none, cell)),
    );
}

fn rates(page: &mut String, figures: &Figures) {
    let keys = ["1k", "200k", "4m", "burst"];
    page.push_str("\n## Requests per second, relative to nginx\n\n");
    head(page, ["1 KB", "200 KB", "4 MB", "streams of 100 chunks"].into_iter());
    rows(page, figures, |who| {
        let ratio = |key| {
            figures.against("nginx", who.key(), key, Sample::per_second, |value, base| value / base)
        };
        keys.into_iter().map(|key| ratio(key).map_or_else(none, ratio_cell)).collect()
    });
    row(
        page,
        "*goal for Tigertally, tracked*",
        ["≥ 0.7", "–", "–", "–"].map(str::to_owned).into_iter(),
    );
    row(
        page,
        "*nginx, per second*",
        keys.into_iter()
            .map(|key| figures.spread("nginx", key, Sample::per_second).map_or_else(none, cell)),
    );
    told(page, figures, &keys);
}

/// What it costs to tell all that can be told.
fn told(page: &mut String, figures: &Figures, keys: &[&str]) {
    let (without, with) = (Contender::Tracked.key(), Contender::Observed.key());
    let own = || figures.instances.iter().filter(|one| one.contender == with);
    let spans: f64 = own().filter_map(|one| one.spans).sum();
    let untold: f64 = own().map(|one| one.untold).sum();
    if own().next().is_none() {
        return;
    }
    let ratio = |key: &&str| {
        figures.against(without, with, key, Sample::per_second, |value, base| value / base)
    };
    let cells: Vec<String> =
        keys.iter().map(|key| ratio(key).map_or_else(none, ratio_cell)).collect();
    let _ = write!(
        page,
        "\nWith task records to a file and traces to a collector, requests per second relative to without: {} (1 KB, \
         200 KB, 4 MB, streams; the goal is 0.95). {spans} spans were made; {untold} spans or record lines did not \
         get to where they go.\n",
        cells.join(", ")
    );
}

fn latency(page: &mut String, figures: &Figures) {
    type Of = fn(&Sample) -> Option<f64>;
    let columns: [(&str, &str, Of); 8] = [
        ("request p50", "latency", |s| (s.done > 0).then_some(s.whole.p50)),
        ("p99", "latency", |s| (s.done > 0).then_some(s.whole.p99)),
        ("first token p50", "stream", |s| (s.done > 0).then_some(s.first.p50)),
        ("p99", "stream", |s| (s.done > 0).then_some(s.first.p99)),
        ("chunk's way p50", "stream", |s| (s.done > 0).then_some(s.transit.p50)),
        ("p99", "stream", |s| (s.done > 0).then_some(s.transit.p99)),
        ("between chunks p50", "stream", |s| (s.done > 0).then_some(s.gap.p50)),
        ("p99", "stream", |s| (s.done > 0).then_some(s.gap.p99)),
    ];
    page.push_str(
        "\n## Latency added, µs\n\n\
         Against no proxy in the same round. Requests of 1 KB under light load (8 clients with pauses of 20 ms); 64 \
         streams at once, a chunk each 5 ms.\n\n![Latency](latency.svg)\n\n",
    );
    head(page, columns.iter().map(|(title, ..)| *title));
    rows(page, figures, |who| {
        let added = |(_, key, value): &(&str, &str, Of)| {
            figures.against("direct", who.key(), key, value, |value, base| value - base)
        };
        columns.iter().map(|column| added(column).map_or_else(none, cell)).collect()
    });
    let direct = columns
        .iter()
        .map(|(_, key, value)| figures.spread("direct", key, value).map_or_else(none, cell));
    row(page, "*no proxy, µs*", direct);
}

fn memory(page: &mut String, figures: &Figures) {
    page.push_str("\n## Memory and start\n\n![Memory and start](memory.svg)\n\n");
    head(
        page,
        [
            "start to first answer, ms",
            "idle, MB",
            "after load, MB",
            "many streams, MB",
            "of them open",
        ]
        .into_iter(),
    );
    rows(page, figures, |who| {
        let of = |value: fn(&Instance) -> Option<f64>| {
            instances(figures, who, value).map_or_else(none, cell)
        };
        let asked = |one: &Instance| one.streams_asked > 0;
        let bytes =
            instances(figures, who, |one| asked(one).then_some(one.streams_bytes as f64 / MB));
        let open = instances(figures, who, |one| asked(one).then_some(one.streams_open as f64));
        vec![
            of(|one| Some(one.start_ms)),
            of(|one| Some(one.idle_bytes as f64 / MB)),
            of(|one| Some(one.loaded_bytes as f64 / MB)),
            bytes.map_or_else(none, cell),
            open.map_or_else(none, cell),
        ]
    });
    let goals = ["≤ 50", "≤ 12", "–", "≤ 400", "–"].map(str::to_owned);
    row(page, "*goal for Tigertally, tracked*", goals.into_iter());
}

/// Who is missing, what failed, and that the ledger did its work.
fn doubts(page: &mut String, figures: &Figures) {
    page.push_str("\n## What else was seen\n\n");
    let whole = figures.samples.iter().all(|sample| sample.failed == 0 && sample.noted == 0);
    if whole {
        page.push_str("- Every request was answered, none with a note.\n");
    }
    for missing in &figures.missing {
        let _ = writeln!(page, "- NOT MEASURED: {}: {}", missing.contender, missing.why);
    }
    let tracked = Contender::ALL.into_iter().filter(|who| who.is_tracked());
    for who in tracked {
        let own = || figures.instances.iter().filter(|one| one.contender == who.key());
        if own().next().is_none() {
            continue;
        }
        let registered: f64 = own().filter_map(|one| one.registered).sum();
        let accepted: f64 = own().filter_map(|one| one.accepted).sum();
        let _ = writeln!(
            page,
            "- {}: the ledger registered {registered} calls and accepted {accepted} results.",
            who.title()
        );
    }
    for who in Contender::ALL {
        for workload in &workloads::ALL {
            let samples = || figures.samples_of(who.key(), workload.key);
            let (failed, noted): (u64, u64) =
                samples().fold((0, 0), |(failed, noted), s| (failed + s.failed, noted + s.noted));
            let done: u64 = samples().map(|sample| sample.done).sum();
            if failed > 0 {
                let why = samples().find_map(|sample| sample.failure.clone()).unwrap_or_default();
                let why: String = why.chars().filter(|c| !c.is_control()).take(160).collect();
                let _ = writeln!(
                    page,
                    "- {}, {}: {failed} of {} failed, the first with `{why}`",
                    who.title(),
                    workload.title,
                    done + failed
                );
            }
            if noted > 0 {
                let _ = writeln!(
                    page,
                    "- {}, {}: {noted} answers bore notes",
                    who.title(),
                    workload.title
                );
            }
        }
    }
}

fn rows(page: &mut String, figures: &Figures, cells: impl Fn(Contender) -> Vec<String>) {
    for who in Contender::ALL {
        if who == Contender::Direct || figures.samples.iter().all(|s| s.contender != who.key()) {
            continue;
        }
        let strong = if who == Contender::Tracked { "**" } else { "" };
        let title = format!("{strong}{}{strong}", who.title());
        row(page, &title, cells(who).into_iter());
    }
}

fn head<'a>(page: &mut String, columns: impl Iterator<Item = &'a str>) {
    let columns: Vec<&str> = columns.collect();
    row(page, "", columns.iter().map(|column| (*column).to_owned()));
    row(page, "---", columns.iter().map(|_| "---".to_owned()));
}

fn row(page: &mut String, title: &str, cells: impl Iterator<Item = String>) {
    let cells: Vec<String> = cells.collect();
    let _ = writeln!(page, "| {title} | {} |", cells.join(" | "));
}

fn none() -> String {
    "–".to_owned()
}

fn cell(spread: Spread) -> String {
    let Spread { median, least, most } = spread;
    format!("{} ({}–{})", short(median), short(least), short(most))
}

/// Always two digits behind the point, but for what is far away.
fn ratio_cell(spread: Spread) -> String {
    let digits = |value: f64| {
        if value < 20.0 { format!("{value:.2}") } else { format!("{value:.0}") }
    };
    format!("{} ({}–{})", digits(spread.median), digits(spread.least), digits(spread.most))
}
