//! The invariants on every store: what happens in a play is brought to the store as it happens, and all of
//! them are looked at in what *it* says. It must also keep, after each event, what the ledger alone would.
//! The stores on the disk are closed and opened between any two events at which nothing is in flight (what is
//! in flight fails with its process).

#[expect(dead_code, reason = "other tests kill and relaunch it, or have a Cluster")]
#[path = "../redis/server.rs"]
mod server;

use crate::play::{Play, Setting};
use crate::steps::{self, Step};
use crate::{Deaf, LONGEST, config, setting};
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tigertally::ledger::digest::DigestKey;
use tigertally::ledger::event::{Event, Millis};
use tigertally::store::embedded::{Durability, EmbeddedStore, Options};
use tigertally::store::memory::{Clock, MemoryStore};
use tigertally::store::redis::{Address, RedisStore, Settings};
use tigertally::store::{ConversationKey, Store};
use tokio::runtime::Runtime;

/// A store under test.
struct Bench {
    runtime: Runtime,
    time: Arc<AtomicU64>,
    store: Option<Arc<dyn Store>>,
    /// How it is opened again, when it can be closed.
    disk: Option<Options>,
    cases: u64,
    _directory: Option<tempfile::TempDir>,
}

const KEY: [u8; 32] = [7; 32];

impl Bench {
    fn new(directory: Option<tempfile::TempDir>) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        Bench {
            runtime: runtime.worker_threads(1).enable_all().build().unwrap(),
            time: Arc::default(),
            store: None,
            disk: None,
            cases: 0,
            _directory: directory,
        }
    }

    fn memory() -> Self {
        let mut bench = Bench::new(None);
        let key = DigestKey::new(KEY);
        bench.store = Some(Arc::new(MemoryStore::new(key, bench.clock(), Arc::new(Deaf), 9)));
        bench
    }

    fn disk(durability: Durability) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let key_file = directory.path().join("key");
        std::fs::write(&key_file, "07".repeat(32)).unwrap();
        let options = Options {
            path: directory.path().join("data"),
            key_file: Some(key_file),
            durability,
            most_per_principal: 9,
            segment_bytes: 4096,
        };
        let mut bench = Bench::new(Some(directory));
        bench.disk = Some(options);
        bench.reopen();
        bench
    }

    fn redis(url: &str) -> Self {
        let mut bench = Bench::new(None);
        let settings = Settings {
            digest_key: Some(DigestKey::new(KEY)),
            clock: Some(bench.clock()),
            ..Settings::new(Address::parse(url).unwrap())
        };
        let opened = bench.runtime.block_on(RedisStore::open(settings, Arc::new(Deaf)));
        bench.store = Some(opened.unwrap());
        bench
    }

    fn clock(&self) -> Clock {
        let time = Arc::clone(&self.time);
        Arc::new(move || Millis(time.load(Ordering::SeqCst)))
    }

    /// Closes it and opens it again, if that is a thing that it can.
    fn reopen(&mut self) {
        if let Some(options) = &self.disk {
            self.store = None;
            let opened = EmbeddedStore::open(options, self.clock(), Arc::new(Deaf)).unwrap();
            self.store = Some(Arc::new(opened));
        }
    }

    fn store(&self) -> &Arc<dyn Store> {
        self.store.as_ref().unwrap()
    }

    /// Plays on a conversation of its own. The store is closed and opened where `restarts` has a bit.
    fn play(
        &mut self,
        setting: Setting,
        steps: &[Step],
        restarts: u64,
    ) -> Result<(), TestCaseError> {
        self.cases += 1;
        let mut play = Play::new(setting, DigestKey::new(KEY));
        let digest = play.key.bytes("case", &self.cases.to_le_bytes());
        let key = ConversationKey { principal: digest, conversation: digest };
        let rules = Arc::new(play.rules.clone());
        let mut brought = 0;
        for step in steps {
            play.step(step);
            if let Some((invariant, text)) = play.observer.findings.first() {
                return Err(TestCaseError::fail(format!("{invariant}: {text}\n{}", play.trace())));
            }
            for at in brought..play.events.len() {
                let (now, event) = &play.events[at];
                self.time.store(now.0, Ordering::SeqCst);
                let applied = self.store().apply(&key, event.clone(), &rules);
                let told = self.runtime.block_on(applied).unwrap();
                let told = (told.outcome, told.effects);
                prop_assert_eq!(&told, &play.told[at], "event {}\n{}", at, play.trace());
            }
            let last = play.events.last().map(|(_, event)| event.clone());
            brought = play.events.len();
            let state = self.runtime.block_on(self.store().read(&key)).unwrap();
            let state = state.unwrap_or_default();
            prop_assert_eq!(&state, &play.conversation, "{}", play.trace());
            // A renewed lease is not written: it does not outlive its process.
            let written = !matches!(last, Some(Event::Check(_)));
            let rests = state.exchanges().iter().all(|one| one.closed);
            if written && rests && restarts >> (brought % 64) & 1 == 1 {
                self.reopen();
            }
        }
        Ok(())
    }
}

fn hold(bench: Bench, most: u32) {
    let mut config = config();
    config.cases = config.cases.min(most);
    config.max_shrink_iters = config.max_shrink_iters.min(500);
    let bench = RefCell::new(bench);
    let strategy = (setting(), steps::steps(LONGEST), any::<u64>());
    let outcome = TestRunner::new(config).run(&strategy, |(setting, steps, restarts)| {
        bench.borrow_mut().play(setting, &steps, restarts)
    });
    assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
}

#[test]
fn they_hold_in_memory() {
    hold(Bench::memory(), 200);
}

#[test]
fn they_hold_on_the_disk_across_restarts() {
    hold(Bench::disk(Durability::Process), 60);
}

#[test]
fn they_hold_on_the_disk_itself_across_restarts() {
    hold(Bench::disk(Durability::Machine), 20);
}

#[test]
fn they_hold_in_redis() {
    let server = server::Server::start(&[]);
    hold(Bench::redis(&server.url()), 60);
}
