//! Many conversations at once, whose users change their minds: at the end nothing stale was delivered,
//! and nothing is left over.
//!
//! The built program runs in a process of its own between 64 simulated applications and an upstream that
//! stamps every piece of an answer with what it was asked for and when it sent it. Half of the
//! applications send the generation header, half leave the counting to the proxy. They switch orders,
//! leave in the middle, come back (declared or not), and try to bring in results that are too late; each
//! checks every byte it gets. What it costs is read from the process afterwards.
//!
//! It takes 8 s; `TIGERTALLY_SOAK_SECONDS=60` makes it a minute.

#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod application;
mod exchange;
mod plan;
mod process;
#[path = "../program/mod.rs"]
mod program;
mod reading;
mod upstream;
mod world;

use application::{Application, Known};
use process::{Process, Sample};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use upstream::Upstream;
use world::World;

const CONVERSATIONS: usize = 64;

/// Most bytes of the store's files, however long it ran: four segments, the one that is written, and twice what lives.
const MOST_STORED: u64 = 6 * (16 << 20);

/// What the proxy may have grown by between the first quarter and the end: the ledgers of the
/// conversations grow with what is remembered of them, until their bounds.
fn allowed(resident: u64) -> u64 {
    resident + resident / 5 + (8 << 20)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_stale_is_delivered_and_nothing_is_left_over() {
    let seconds = std::env::var("TIGERTALLY_SOAK_SECONDS").map_or(8, |text| text.parse().unwrap());
    let span = Duration::from_secs(seconds);
    let world = Arc::new(World::new());
    let upstream = Upstream::start(&world).await;
    let proxy = Process::start(&upstream.url).await;
    proxy.warm_up().await;
    let idle = proxy.idle().await;

    let (quarter, busy, known) = soak(&world, &proxy, span).await;
    let gone = Instant::now();
    world.until("the upstream still works for nobody", 2, || world.open.load(Relaxed) == 0).await;
    let upstream_idle_after = gone.elapsed();
    let compared = check_records(&world, &proxy, &known).await;
    upstream.close();
    let left = idle_again(&world, &proxy, &idle).await;

    world.report();
    eprintln!("{compared:>8} calls in the ledger as their applications know them");
    eprintln!("       idle before {idle}");
    eprintln!("         at 25 %   {quarter}");
    eprintln!("         at 100 %  {busy}");
    eprintln!("       idle after  {left}");
    eprintln!("upstream idle {} ms after the last client", upstream_idle_after.as_millis());
    world.every_kind_happened();
    let violations = world.violations.lock().clone();
    let first: Vec<_> = violations.iter().take(20).cloned().collect();
    if !first.is_empty() {
        proxy.keep_log();
    }
    assert!(first.is_empty(), "{} violations:\n{}", violations.len(), first.join("\n"));
    assert!(compared > 0, "nothing was compared");
    assert!(busy.resident <= allowed(quarter.resident), "memory grew: {quarter} → {busy}");
    assert!(busy.stored <= MOST_STORED, "files grew: {quarter} → {busy}");
}

/// All applications for so long; samples of the proxy after a quarter of it and at the end, and what each application
/// knows.
async fn soak(world: &Arc<World>, proxy: &Process, span: Duration) -> (Sample, Sample, Vec<Known>) {
    let mut applications = JoinSet::new();
    let end = Instant::now() + span;
    for number in 0..CONVERSATIONS {
        let application = Application::new(number, world, proxy.url());
        applications.spawn(application.run(end));
    }
    tokio::time::sleep(span / 4).await;
    let quarter = proxy.sample().await;
    tokio::time::sleep(end - Instant::now()).await;
    let busy = proxy.sample().await;
    let mut known: Vec<(usize, Known)> = applications.join_all().await;
    known.sort_by_key(|(number, _)| *number);
    (quarter, busy, known.into_iter().map(|(_, known)| known).collect())
}

/// The gauge of open calls is the sum of what the records say, and what the records say is what must be:
/// no exchange is under way once every client is gone, however it went; an application with an even
/// number has moved on, so no call of it is open. Gives how many calls were compared with what applications know.
async fn check_records(world: &World, proxy: &Process, known: &[Known]) -> usize {
    let quiet = proxy.settles(5, |sample| sample.in_flight == 0 && sample.held == 0).await;
    world.holds(quiet.is_ok(), || format!("exchanges are left in flight: {quiet:?}"));
    let (mut open, mut compared) = (0, 0);
    for (number, known) in known.iter().enumerate() {
        let name = application::name(number);
        let record = proxy.settled_record(&name).await;
        compared += known.check(world, &name, &record);
        let under_way = record.under_way;
        world.holds(under_way == 0, || format!("{number} has {under_way} exchanges under way"));
        let mine = record.open_calls;
        world.holds(mine == 0 || number % 2 == 1, || format!("{number} has {mine} calls open"));
        open += mine;
    }
    let gauge = proxy.sample().await.open_calls;
    world.holds(gauge == open, || format!("open_calls is {gauge}, the records say {open}"));
    for number in 0..CONVERSATIONS {
        proxy.advance(&application::name(number)).await;
    }
    let gauge = proxy.sample().await.open_calls;
    world.holds(gauge == 0, || format!("open_calls is {gauge} when nothing is open"));
    compared
}

/// Sockets and tasks are as many as before, held bytes and exchanges none.
async fn idle_again(world: &World, proxy: &Process, idle: &Sample) -> Sample {
    let left = proxy
        .settles(5, |left| left.sockets <= idle.sockets && left.runtime_tasks <= idle.runtime_tasks)
        .await;
    world.holds(left.is_ok(), || format!("not idle again: before {idle}, now {left:?}"));
    left.unwrap_or_else(|last| last)
}
