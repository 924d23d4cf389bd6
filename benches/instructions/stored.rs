//! Turns through the embedded store: what an event costs with all that is written, at several ages.

use crate::turns::{Agent, Tasks};
use crate::workloads::{Run, Workload};
use std::cell::RefCell;
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use tigertally::ledger::event::{Effects, Millis, Outcome};
use tigertally::ledger::rules::Rules;
use tigertally::store::embedded::{Durability, EmbeddedStore, Options, SEGMENT_BYTES};
use tigertally::store::{ConversationKey, Listener, Store};

/// Turns in one run: an event is mostly a change, and now and then the whole conversation.
const TURNS: u64 = 10;
/// From that age on a conversation is at its bound, and a run goes on where the last one ended.
const BOUND: u64 = 1000;

/// The workload at some age.
pub(crate) fn name(kind: &str, age: u64) -> String {
    format!("{TURNS} turns stored/{kind}, {age} before")
}

/// All of them.
pub(crate) fn all() -> Vec<Workload> {
    let mut all = Vec::new();
    let disk = Rc::new(Disk::new());
    for (kind, tasks) in [("tasks", Tasks::Each), ("one task", Tasks::One)] {
        for age in [1, 10, 100, BOUND] {
            let (disk, old) = (Rc::clone(&disk), RefCell::new(None));
            let prepare = move || -> Run {
                let kept = old.borrow().clone();
                let talk = kept.unwrap_or_else(|| {
                    let talk = Rc::new(RefCell::new(Talk::new(&disk, tasks)));
                    talk.borrow_mut().turns(age);
                    talk
                });
                if age >= BOUND {
                    *old.borrow_mut() = Some(Rc::clone(&talk));
                }
                Box::new(move || {
                    talk.borrow_mut().turns(TURNS);
                    Box::new(talk)
                })
            };
            all.push(Workload { name: name(kind, age), bytes: None, prepare: Box::new(prepare) });
        }
    }
    all
}

/// A store in a directory that goes with it.
struct Disk {
    path: PathBuf,
    store: Option<EmbeddedStore>,
    time: Arc<AtomicU64>,
    talks: AtomicU64,
}

struct Deaf;

impl Listener for Deaf {
    fn committed(&self, _: &ConversationKey, _: &Effects) {}
}

impl Disk {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("tigertally-stored-{}", std::process::id()));
        let options = Options {
            path: path.clone(),
            key_file: None,
            durability: Durability::Process,
            most_per_principal: 1000,
            segment_bytes: SEGMENT_BYTES,
        };
        let time = Arc::new(AtomicU64::new(0));
        let clock = Arc::clone(&time);
        let clock = Arc::new(move || Millis(clock.load(Ordering::Relaxed)));
        let store = Some(EmbeddedStore::open(&options, clock, Arc::new(Deaf)).unwrap());
        Disk { path, store, time, talks: AtomicU64::new(0) }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.store = None;
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// One conversation there.
struct Talk {
    disk: Rc<Disk>,
    agent: Agent,
    key: ConversationKey,
    rules: Arc<Rules>,
    turn: u64,
}

impl Talk {
    fn new(disk: &Rc<Disk>, tasks: Tasks) -> Self {
        let store = disk.store.as_ref().unwrap();
        let number = disk.talks.fetch_add(1, Ordering::Relaxed).to_le_bytes();
        let [principal, conversation] =
            ["principal", "conversation"].map(|domain| store.digest_key().bytes(domain, &number));
        Talk {
            disk: Rc::clone(disk),
            agent: Agent::of_age(0, tasks),
            key: ConversationKey { principal, conversation },
            rules: Arc::new(Rules::default()),
            turn: 0,
        }
    }

    fn turns(&mut self, turns: u64) {
        let store = self.disk.store.as_ref().unwrap();
        for _ in 0..turns {
            self.turn += 1;
            for (at, event) in (0..).zip(self.agent.next_turn(0)) {
                let now = 1_800_000_000_000 + self.turn * 20_000 + at * 1000;
                self.disk.time.store(now, Ordering::Relaxed);
                let told = pin!(store.apply(&self.key, event, &self.rules));
                let Poll::Ready(told) = told.poll(&mut Context::from_waker(Waker::noop())) else {
                    panic!("it waits for nothing")
                };
                let outcome = told.unwrap().outcome;
                assert!(!matches!(outcome, Outcome::Refused(_) | Outcome::Withheld(_)));
            }
        }
    }
}
