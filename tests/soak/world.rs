//! What the upstream and the applications know in common: who was asked what, what was sent, what went wrong.

use crate::plan::{Act, Kind};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A tool call as the upstream sent it or a client got it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

/// One request at the upstream.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) order: String,
    pub(crate) kind: Kind,
    /// Events sent so far.
    pub(crate) sent: u64,
    /// A sound call, once its last piece was sent.
    pub(crate) call: Option<Call>,
    /// Everything was sent.
    pub(crate) complete: bool,
    /// The proxy asked for its abortion.
    pub(crate) aborted: bool,
}

macro_rules! counts {
    ($($name:ident),+) => {
        /// How often things happened.
        #[derive(Debug, Default)]
        pub(crate) struct Counts { $(pub(crate) $name: AtomicU64,)+ }

        impl Counts {
            fn each(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Relaxed)),)+]
            }
        }
    };
}

counts!(
    exchanges,
    turns,
    switches,
    control_advances,
    disconnects,
    retries_declared,
    retries_undeclared,
    answers_delivered,
    calls_delivered,
    stale_answers_withheld,
    overtaken_withheld,
    duplicates_refused,
    late_refused,
    notices_in_history,
    bad_outputs_refused,
    upstream_errors,
    decided_by_control,
    forgotten,
    at_upstream,
    aborts,
    aborts_before_request
);

pub(crate) struct World {
    epoch: Instant,
    next: AtomicU64,
    pub(crate) work: Mutex<HashMap<u64, Work>>,
    /// What was done about each order and kind, in order of arrival.
    seen: Mutex<HashMap<(String, Kind), Vec<Act>>>,
    arrived: Notify,
    /// Requests that the upstream works on.
    pub(crate) open: AtomicU64,
    pub(crate) counts: Counts,
    pub(crate) violations: Mutex<Vec<String>>,
}

impl World {
    pub(crate) fn new() -> Self {
        World {
            epoch: Instant::now(),
            next: AtomicU64::new(1),
            work: Mutex::default(),
            seen: Mutex::default(),
            arrived: Notify::new(),
            open: AtomicU64::new(0),
            counts: Counts::default(),
            violations: Mutex::default(),
        }
    }

    /// Nanoseconds since the beginning, never 0.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    pub(crate) fn violation(&self, what: String) {
        self.violations.lock().push(what);
    }

    pub(crate) fn holds(&self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.violation(otherwise());
        }
    }

    /// A request has arrived: what the upstream does about it, and its number. Only the first try of anything fails.
    pub(crate) fn arrives(&self, order: &str, kind: Kind, planned: Act) -> (u64, Act) {
        let mut seen = self.seen.lock();
        let acts = seen.entry((order.to_owned(), kind)).or_default();
        let act = if acts.is_empty() { planned } else { Act::Sound };
        acts.push(act);
        drop(seen);
        let number = self.next.fetch_add(1, Relaxed);
        let work = Work {
            order: order.to_owned(),
            kind,
            sent: 0,
            call: None,
            complete: false,
            aborted: false,
        };
        self.work.lock().insert(number, work);
        self.open.fetch_add(1, Relaxed);
        self.counts.at_upstream.fetch_add(1, Relaxed);
        self.arrived.notify_waiters();
        (number, act)
    }

    pub(crate) fn change<T>(&self, number: u64, change: impl FnOnce(&mut Work) -> T) -> Option<T> {
        self.work.lock().get_mut(&number).map(change)
    }

    /// What the upstream did about this order and kind so far.
    pub(crate) fn acts(&self, order: &str, kind: Kind) -> Vec<Act> {
        self.seen.lock().get(&(order.to_owned(), kind)).cloned().unwrap_or_default()
    }

    /// Waits until the upstream has seen more than `before` requests of this order and kind.
    pub(crate) async fn saw_more(&self, order: &str, kind: Kind, before: usize) {
        loop {
            let arrived = self.arrived.notified();
            let mut arrived = std::pin::pin!(arrived);
            arrived.as_mut().enable();
            if self.acts(order, kind).len() > before {
                return;
            }
            arrived.await;
        }
    }

    /// Waits until it is so; a violation when it is not within so many seconds.
    pub(crate) async fn until(&self, otherwise: &str, seconds: u64, so: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(seconds);
        while !so() {
            if Instant::now() > end {
                self.violation(otherwise.to_owned());
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) fn report(&self) {
        for (name, count) in self.counts.each() {
            eprintln!("{count:>8} {}", name.replace('_', " "));
        }
    }

    /// A run in which one of these did not happen shows nothing about it.
    pub(crate) fn every_kind_happened(&self) {
        for (name, count) in self.counts.each() {
            if name != "aborts_before_request" {
                self.holds(count > 0, || format!("there were no {name}"));
            }
        }
    }
}
