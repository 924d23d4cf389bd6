//! The rounds: everyone is started, every workload goes to each in turn, everyone is ended.

use crate::chat::{Answer, Flow, Life, Script};
use crate::contenders::{self, Contender, Places, Started};
use crate::figures::{About, Figures, Instance, Missing, Sample};
use crate::load::{self, Client, Target, Until};
use crate::options::{self, CommandLine};
use crate::process::Process;
use crate::streams;
use crate::workloads::Workload;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a contender may take to its first answer.
const START: Duration = Duration::from_secs(240);
const ONCE: Answer = Answer::Whole { bytes: 300 };
/// A stream that stays open until it is dropped.
const ENDLESS: Answer = Answer::Stream { chunks: 3, pace: 120_000_000 };

/// A contender that answers.
pub(crate) struct Ready {
    pub(crate) contender: Contender,
    pub(crate) started: Started,
    pub(crate) target: Target,
    pub(crate) instance: Instance,
}

/// The whole benchmark.
pub(crate) async fn measure(line: &CommandLine) -> Result<Figures, String> {
    let (contenders, workloads) = (line.contenders()?, line.workloads()?);
    let (_upstream, places) = upstream().await?;
    let about = About::read(line.rounds(), line.span().as_secs_f64());
    let mut figures =
        Figures { about, samples: Vec::new(), instances: Vec::new(), missing: Vec::new() };
    for round in 1..=line.rounds() {
        let mut order = contenders.clone();
        order.rotate_left((round - 1) % contenders.len().max(1));
        order.retain(|who| figures.missing.iter().all(|missing| missing.contender != who.key()));
        let mut ready = start_all(round, &order, &places, &mut figures.missing).await;
        for (place, workload) in workloads.iter().enumerate() {
            let count = ready.len().max(1);
            ready.rotate_left(place.min(1) % count);
            for one in &ready {
                // Whoever answered nothing in time will not in another round.
                let key = one.contender.key();
                if figures.samples_of(key, workload.key).any(|sample| sample.done == 0) {
                    continue;
                }
                let sample = drive(round, one, workload, line.span()).await;
                tell(&sample);
                figures.samples.push(sample);
            }
        }
        for one in &mut ready {
            finish(one, line.streams()).await;
        }
        figures.instances.extend(ready.into_iter().map(|one| one.instance));
    }
    Ok(figures)
}

/// Starts the upstream.
pub(crate) async fn upstream() -> Result<(Process, Places), String> {
    let listen = contenders::free_port();
    let places = options::places(listen)?;
    std::fs::create_dir_all(&places.scratch).map_err(|error| error.to_string())?;
    let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
    command.args(["role", "upstream", &listen.to_string()]);
    let mut process = Process::start(&mut command, &places.scratch.join("upstream.log"))?;
    let target = Target { addr: listen, headers: [].into(), tracked: false };
    first_answer(&target, &mut Some(&mut process)).await?;
    Ok((process, places))
}

async fn start_all(
    round: usize,
    order: &[Contender],
    places: &Places,
    missing: &mut Vec<Missing>,
) -> Vec<Ready> {
    let mut ready = Vec::new();
    for &contender in order {
        match start(contender, places).await {
            Ok(mut one) => {
                one.instance.round = round;
                ready.push(one);
            }
            Err(why) => {
                println!("NOT MEASURED: {}: {why}", contender.title());
                missing.push(Missing { contender: contender.key(), why });
            }
        }
    }
    ready
}

/// Starts one and waits for its first answer.
pub(crate) async fn start(contender: Contender, places: &Places) -> Result<Ready, String> {
    let begun = Instant::now();
    let mut started = contenders::start(contender, places)?;
    let target = Target {
        addr: started.listen,
        headers: Arc::from(std::mem::take(&mut started.headers)),
        tracked: contender.is_tracked(),
    };
    first_answer(&target, &mut started.process.as_mut()).await?;
    let start_ms = begun.elapsed().as_secs_f64() * 1e3;
    let idle_bytes = started.process.as_ref().map_or(0, Process::resident_bytes);
    let instance =
        Instance { contender: contender.key(), start_ms, idle_bytes, ..Instance::default() };
    Ok(Ready { contender, started, target, instance })
}

/// Asks until there is an answer, on a new connection each time.
async fn first_answer(target: &Target, process: &mut Option<&mut Process>) -> Result<(), String> {
    let script = Script::of_size(1_000);
    let untracked = Target { tracked: false, ..target.clone() };
    let end = Instant::now() + START;
    loop {
        let flows = vec![Flow::new(&script, Life::USUAL)];
        let mut client = Client::new(&untracked, flows);
        let tally = client.run(ONCE, Until::Exchanges(1), Duration::ZERO).await;
        if tally.done == 1 {
            return Ok(());
        }
        if process.as_mut().is_some_and(|process| !process.lives()) {
            return Err("it ended before its first answer".to_owned());
        }
        if Instant::now() > end {
            let why = tally.failure.unwrap_or_default();
            return Err(format!("no answer within {} s: {why}", START.as_secs()));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// One workload on one contender: a part of the time to warm up, then the measurement, from a state with
/// nothing in flight to one.
async fn drive(round: usize, one: &Ready, workload: &Workload, span: Duration) -> Sample {
    let script = Script::of_size(workload.bytes);
    let client = || Client::new(&one.target, vec![Flow::new(&script, Life::USUAL)]);
    let mut clients: Vec<Client> = (0..workload.connections).map(|_| client()).collect();
    let warm = Until::Time(Instant::now() + span / 5);
    load::all(&mut clients, workload.answer, warm, workload.pause).await;
    let cpu = || one.started.process.as_ref().map_or(0.0, Process::cpu_seconds);
    let (before, begun) = (cpu(), Instant::now());
    let until = Until::Time(begun + span);
    let tally = load::all(&mut clients, workload.answer, until, workload.pause).await;
    let times = (begun.elapsed().as_secs_f64(), cpu() - before);
    Sample::new(round, one.contender.key(), workload.key, times, tally)
}

/// What is read when the load is over: memory, the ledger's own count, memory under many streams.
async fn finish(one: &mut Ready, streams: usize) {
    let Some(process) = &one.started.process else { return };
    one.instance.loaded_bytes = process.resident_bytes();
    if let Some(admin) = one.started.admin {
        let metrics = metrics(admin).await.unwrap_or_default();
        let sum = |name: &str, label: &str| sum_of(&metrics, name, label);
        one.instance.accepted = sum("tigertally_results_total", "verdict=\"accepted\"");
        one.instance.registered = sum("tigertally_calls_total", "verdict=\"pass\"");
        one.instance.spans = sum("tigertally_spans_total", "");
        one.instance.untold = [
            sum("tigertally_spans_total", "outcome=\"dropped\""),
            sum("tigertally_spans_total", "outcome=\"failed\""),
            sum("tigertally_record_dropped_total", ""),
        ]
        .iter()
        .flatten()
        .sum();
    }
    if streams == 0 {
        return;
    }
    let open = streams::open(&one.target, streams, ENDLESS).await;
    one.instance.streams_asked = streams;
    one.instance.streams_open = open.count();
    one.instance.streams_bytes = process.resident_bytes();
    println!(
        "{:>22}  {} streams open, {:.0} MB",
        one.contender.key(),
        open.count(),
        one.instance.streams_bytes as f64 / 1e6
    );
}

/// The text at `/metrics`.
pub(crate) async fn metrics(admin: std::net::SocketAddr) -> Option<String> {
    let response = reqwest::get(format!("http://{admin}/metrics")).await.ok()?;
    response.text().await.ok()
}

/// The sum of a counter's series that have this label, or of all.
fn sum_of(metrics: &str, name: &str, label: &str) -> Option<f64> {
    let lines = metrics.lines().filter(|line| line.starts_with(name) && line.contains(label));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

fn tell(sample: &Sample) {
    let cost = match sample.cpu_per_chunks() {
        Some(chunk) => format!("{chunk:8.2} µs/chunk"),
        None => format!("{:8.1} µs/request", sample.cpu_per_request().unwrap_or(f64::NAN)),
    };
    let failure = sample.failure.as_deref().unwrap_or("");
    println!(
        "{} {:>22} {:>8}  {cost}  {:9.1}/s  p50 {:8.0} p99 {:8.0} µs  {} failed, {} noted {failure}",
        sample.round,
        sample.contender,
        sample.workload,
        sample.per_second().unwrap_or(0.0),
        sample.whole.p50,
        sample.whole.p99,
        sample.failed,
        sample.noted,
    );
}
