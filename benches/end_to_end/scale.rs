//! How it grows: cost against the length of a conversation's life, cost and memory against the number of
//! conversations, and against the number of open streams.
//!
//! Each point on the proxy is measured beside the same load on nginx, so that the machine's mood falls on both.

use crate::chat::{Answer, Flow, Life, Script};
use crate::contenders::{Contender, Places};
use crate::figures::About;
use crate::load::{self, Client, Until};
use crate::options::CommandLine;
use crate::process::Process;
use crate::rounds::{self, Ready};
use crate::streams;
use crate::svg::{self, Lines, short};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

const WHOLE: Answer = Answer::Whole { bytes: 300 };
const CLIENTS: usize = 64;
/// Larger than 1 KB, so that reading counts as well, and the same at every turn.
const BODY: usize = 8_000;
const ENDLESS: u64 = 1_000_000_000;

/// All that was measured.
#[derive(Serialize)]
pub(crate) struct Growth {
    about: About,
    life: Vec<Point>,
    conversations: Vec<Point>,
    streams: Vec<Point>,
}

/// One contender at one size of whatever grows.
#[derive(Clone, Serialize)]
struct Point {
    contender: &'static str,
    /// Turn, conversations or streams.
    size: usize,
    /// Of a request or a chunk.
    cpu_micros: f64,
    resident_bytes: u64,
    failed: u64,
    /// Of the embedded store on the disk.
    stored_bytes: u64,
}

/// All three.
pub(crate) async fn measure(line: &CommandLine) -> Result<Growth, String> {
    let (_upstream, places) = rounds::upstream().await?;
    let about = About::read(1, line.span().as_secs_f64());
    let (turns, sizes): (usize, &[usize]) = if line.quick {
        (100, &[1_000, 3_000, 10_000])
    } else {
        (500, &[1_000, 3_000, 10_000, 30_000, 100_000])
    };
    let life = life(&places, turns).await?;
    let conversations = conversations(&places, sizes, line.span()).await?;
    let most = line.streams().max(1_000);
    let mut counts = vec![100, 1_000, 3_000, most];
    counts.dedup();
    let streams = many_streams(&places, &counts).await?;
    Ok(Growth { about, life, conversations, streams })
}

fn clients(ready: &Ready, each: usize, life: Life) -> Vec<Client> {
    let script = Script::of_size(BODY);
    let flows = || (0..each).map(|_| Flow::new(&script, life)).collect();
    (0..CLIENTS).map(|_| Client::new(&ready.target, flows())).collect()
}

/// Runs to the end and gives the point.
async fn point(ready: &Ready, clients: &mut Vec<Client>, size: usize, until: Until) -> Point {
    let cpu = || ready.started.process.as_ref().map_or(0.0, Process::cpu_seconds);
    let before = cpu();
    let tally = load::all(clients, WHOLE, until, Duration::ZERO).await;
    let point = Point {
        contender: ready.contender.key(),
        size,
        cpu_micros: (cpu() - before) * 1e6 / tally.done.max(1) as f64,
        resident_bytes: ready.started.process.as_ref().map_or(0, Process::resident_bytes),
        failed: tally.failed,
        stored_bytes: 0,
    };
    println!(
        "{:>12} {:>7}  {:7.1} µs/request  {:6.1} MB  {} failed {}",
        point.contender,
        size,
        point.cpu_micros,
        point.resident_bytes as f64 / 1e6,
        point.failed,
        tally.failure.unwrap_or_default()
    );
    point
}

/// 256 conversations grow old together; their clients trim what they send to a constant size.
async fn life(places: &Places, turns: usize) -> Result<Vec<Point>, String> {
    const EACH: usize = 4;
    println!("turns of a conversation");
    let mut points = Vec::new();
    let mut both = pair(places).await?;
    let old = Life { tasks: ENDLESS, kept: 2 };
    let mut loads: Vec<_> = both.iter().map(|one| clients(one, EACH, old)).collect();
    let bucket = (turns / 10).max(1);
    for at in 1..=10 {
        for (ready, clients) in both.iter_mut().zip(&mut loads) {
            let exchanges = Until::Exchanges((EACH * bucket * 2) as u64);
            points.push(point(ready, clients, at * bucket, exchanges).await);
        }
    }
    Ok(points)
}

/// More and more conversations are opened, and at each size all of them go on in turn.
async fn conversations(
    places: &Places,
    sizes: &[usize],
    span: Duration,
) -> Result<Vec<Point>, String> {
    println!("conversations");
    let mut points = Vec::new();
    let mut both = pair(places).await?;
    let old = Life { tasks: ENDLESS, kept: 2 };
    let script = Script::of_size(BODY);
    let mut loads: Vec<_> = both.iter().map(|one| clients(one, 0, old)).collect();
    for &size in sizes {
        for (ready, clients) in both.iter_mut().zip(&mut loads) {
            let each = size / CLIENTS;
            let more = each.saturating_sub(clients[0].flows.len());
            for client in clients.iter_mut() {
                client.begin_with((0..more).map(|_| Flow::new(&script, old)));
            }
            // Each new one opens with a task of two exchanges.
            let opening = Until::Exchanges(2 * more as u64);
            load::all(clients, WHOLE, opening, Duration::ZERO).await;
            let until = Until::Time(Instant::now() + span);
            let mut point = point(ready, clients, size, until).await;
            if ready.contender == Contender::Tracked {
                point.stored_bytes = bytes_below(&places.scratch.join("tigertally/store"));
            }
            points.push(point);
        }
    }
    Ok(points)
}

/// Streams are opened, and when all are, the processor time of their chunks is read: 4,000 chunks a second in all,
/// however many streams bring them.
async fn many_streams(places: &Places, counts: &[usize]) -> Result<Vec<Point>, String> {
    const PER_SECOND: usize = 4_000;
    const WATCHED: Duration = Duration::from_secs(4);
    println!("streams");
    let mut points = Vec::new();
    for contender in [Contender::Tracked, Contender::Nginx, Contender::Hyper] {
        let ready = rounds::start(contender, places).await?;
        let Some(process) = &ready.started.process else { continue };
        for &count in counts {
            let pace = (count * 1_000_000 / PER_SECOND) as u64;
            let answer = Answer::Stream { chunks: 120_000_000 / pace as usize, pace };
            let watched = streams::open(&ready.target, count, answer).await.watch();
            let open = watched.count();
            tokio::time::sleep(Duration::from_secs(1)).await;
            let (cpu, chunks) = (process.cpu_seconds(), watched.chunks());
            tokio::time::sleep(WATCHED).await;
            let (cpu, chunks) = (process.cpu_seconds() - cpu, watched.chunks() - chunks);
            let point = Point {
                contender: contender.key(),
                size: count,
                cpu_micros: cpu * 1e6 / chunks.max(1) as f64,
                resident_bytes: process.resident_bytes(),
                failed: (count - open) as u64,
                stored_bytes: 0,
            };
            println!(
                "{:>12} {count:>7}  {:7.1} µs/chunk  {:6.1} MB  {chunks} chunks, {} failed",
                point.contender,
                point.cpu_micros,
                point.resident_bytes as f64 / 1e6,
                point.failed
            );
            points.push(point);
        }
    }
    Ok(points)
}

/// The proxy and nginx.
async fn pair(places: &Places) -> Result<[Ready; 2], String> {
    let tracked = rounds::start(Contender::Tracked, places).await?;
    Ok([tracked, rounds::start(Contender::Nginx, places).await?])
}

fn bytes_below(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let of = |entry: std::io::Result<std::fs::DirEntry>| {
        let data = entry.ok()?.metadata().ok()?;
        data.is_file().then_some(data.len())
    };
    entries.filter_map(of).sum()
}

/// Writes page, raw figures and plot.
pub(crate) fn write(growth: &Growth, out: &Path) -> Result<(), String> {
    let raw = serde_json::to_string_pretty(growth).map_err(|error| error.to_string())?;
    let page = page(growth);
    let written = std::fs::write(out.join("scale.json"), raw)
        .and_then(|()| std::fs::write(out.join("scale.svg"), plot(growth)))
        .and_then(|()| std::fs::write(out.join("scale.md"), &page));
    written.map_err(|error| format!("{}: {error}", out.display()))?;
    println!("\n{page}\nwritten to {}", out.display());
    Ok(())
}

const MICROS: fn(&Point) -> f64 = |point| point.cpu_micros;
const MEGABYTES: fn(&Point) -> f64 = |point| point.resident_bytes as f64 / 1e6;

const COST: &str = "µs per request";
const MB: &str = "MB resident";

fn plot(growth: &Growth) -> String {
    let panel = |title: &str, x_unit, y_unit, points: &[Point], y: fn(&Point) -> f64| {
        let names = [Contender::Tracked, Contender::Nginx, Contender::Hyper];
        let series = names.into_iter().filter_map(|who| {
            let own = points.iter().filter(|point| point.contender == who.key());
            let line: Vec<(f64, f64)> = own.map(|point| (point.size as f64, y(point))).collect();
            (!line.is_empty()).then(|| (who.key().to_owned(), line))
        });
        let by_factors = x_unit != "turn" && y_unit != MB;
        Lines { title: title.to_owned(), x_unit, y_unit, by_factors, series: series.collect() }
    };
    let panels = [
        panel("A conversation's life", "turn", COST, &growth.life, MICROS),
        panel("Memory of 256 that live so long", "turn", MB, &growth.life, MEGABYTES),
        panel("Many conversations", "conversations", COST, &growth.conversations, MICROS),
        panel("Their memory", "conversations", MB, &growth.conversations, MEGABYTES),
        panel("Many open streams", "streams", "µs per chunk", &growth.streams, MICROS),
        panel("Their memory", "streams", MB, &growth.streams, MEGABYTES),
    ];
    svg::lines(
        "How cost and memory grow",
        "Processor time and memory of the proxy's processes. Requests of 8 KB at every turn; 4,000 chunks a second in all.",
        &panels,
    )
}

fn page(growth: &Growth) -> String {
    let about = &growth.about;
    let mut page = format!(
        "# How it grows\n\nWritten by `scripts/bench --scale`: commit {}, {}; {}. Raw figures: \
         [scale.json](scale.json).\n\n![How cost and memory grow](scale.svg)\n",
        about.commit, about.date, about.machine
    );
    let _ = write!(
        page,
        "\n## The length of a conversation's life\n\n256 conversations, requests of 8 KB at every turn: the client \
         sends the latest two tasks.\n\n"
    );
    table(&mut page, "up to turn", &growth.life, "µs per request");
    page.push_str("\n## Tracked conversations\n\nAll of them go on in turn.\n\n");
    table(&mut page, "conversations", &growth.conversations, "µs per request");
    let own = || growth.conversations.iter().filter(|p| p.contender == Contender::Tracked.key());
    if let (Some(first), Some(last)) = (own().next(), own().next_back()) {
        let more = (last.size.saturating_sub(first.size)).max(1) as f64;
        let each = (last.resident_bytes as f64 - first.resident_bytes as f64) / more;
        let _ = writeln!(
            page,
            "\nFrom {} to {} conversations memory grew by {} bytes for each. The store's files have {:.0} MB.",
            first.size,
            last.size,
            short(each),
            last.stored_bytes as f64 / 1e6
        );
    }
    let _ = write!(
        page,
        "\n## Open streams\n\nEach on a connection and in a conversation of its own. A proxy needs two descriptors for \
         a stream; {} may be open here.\n\n",
        about.descriptors
    );
    table(&mut page, "streams", &growth.streams, "µs per chunk");
    page
}

fn table(page: &mut String, what: &str, points: &[Point], unit: &str) {
    let _ = writeln!(
        page,
        "| {what} | | {unit} | resident, MB | failed |\n| --- | --- | --- | --- | --- |"
    );
    for point in points {
        let (size, who) = (point.size, point.contender);
        let (cost, memory) = (short(point.cpu_micros), short(MEGABYTES(point)));
        let _ = writeln!(page, "| {size} | {who} | {cost} | {memory} | {} |", point.failed);
    }
}
