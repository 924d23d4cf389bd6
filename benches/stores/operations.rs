//! One operation of a store (an event), alone and beside others.

use crate::tasks::task;
use crate::{Kind, Opened, median, micros};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Conversations, and the tasks of each, one after the other.
const CONVERSATIONS: u128 = 40;
const TASKS: u64 = 10;
const ABREAST: u128 = 64;
const FOR: Duration = Duration::from_secs(2);

/// Of one kind of store, a value per round.
#[derive(Default)]
struct Rounds {
    p50: Vec<f64>,
    p99: Vec<f64>,
    abreast: Vec<f64>,
    abreast_p99: Vec<f64>,
    round_trips: Vec<f64>,
}

pub(crate) struct Figures(Vec<Rounds>);

impl Figures {
    pub(crate) fn new(kinds: &[Kind]) -> Self {
        Figures(kinds.iter().map(|_| Rounds::default()).collect())
    }

    pub(crate) async fn measure(&mut self, at: usize, opened: Opened) {
        let Opened { store, redis } = opened;
        let rounds = &mut self.0[at];
        // The scripts are loaded, the files are there.
        task(&*store, 1 << 50, 1, &mut Vec::new()).await;
        let asked = || redis.as_ref().map_or(0, |redis| redis.round_trips());
        let (before, mut spans) = (asked(), Vec::new());
        for generation in 1..=TASKS {
            for n in 0..CONVERSATIONS {
                task(&*store, n, generation, &mut spans).await;
            }
        }
        let exchanges = CONVERSATIONS as f64 * TASKS as f64 * 2.0;
        rounds.round_trips.push((asked() - before) as f64 / exchanges);
        let (p50, p99) = percentiles(spans);
        rounds.p50.push(p50);
        rounds.p99.push(p99);
        let began = Instant::now();
        let mut workers = JoinSet::new();
        for worker in 1..=ABREAST {
            let store = Arc::clone(&store);
            workers.spawn(async move {
                let mut spans = Vec::new();
                for n in 0.. {
                    if began.elapsed() >= FOR {
                        break;
                    }
                    // Ten tasks in each conversation.
                    let conversation = worker << 64 | u128::from(n / TASKS);
                    task(&*store, conversation, 1 + n % TASKS, &mut spans).await;
                }
                spans
            });
        }
        let spans: Vec<Duration> = workers.join_all().await.into_iter().flatten().collect();
        rounds.abreast.push(spans.len() as f64 / began.elapsed().as_secs_f64());
        rounds.abreast_p99.push(percentiles(spans).1);
    }

    pub(crate) fn print(self, kinds: &[Kind]) {
        println!(
            "| one operation of the store | p50 | p99 | {ABREAST} at once: a second | p99 of those | \
             round trips per exchange |"
        );
        println!("| --- | --- | --- | --- | --- | --- |");
        for (kind, rounds) in kinds.iter().zip(self.0) {
            println!(
                "| {} | {} | {} | {:.0} | {} | {:.1} |",
                kind.name(),
                micros(median(rounds.p50)),
                micros(median(rounds.p99)),
                median(rounds.abreast),
                micros(median(rounds.abreast_p99)),
                median(rounds.round_trips)
            );
        }
        println!();
    }
}

/// p50 and p99 in microseconds.
pub(crate) fn percentiles(mut spans: Vec<Duration>) -> (f64, f64) {
    spans.sort_unstable();
    let at = |percent: usize| spans[(spans.len() - 1) * percent / 100].as_secs_f64() * 1e6;
    (at(50), at(99))
}
