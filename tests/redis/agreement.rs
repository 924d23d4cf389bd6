//! Random events on every store at once: in memory, on the disk with either durability, and in Redis. After
//! each they have said the same, told the same, and keep the same. Between any two events the stores on the
//! disk may be closed and opened again, when nothing is in flight (what is in flight fails with its process).

use super::server::Server;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tigertally::ledger::digest::DigestKey;
use tigertally::ledger::event::{
    Admit, Advance, Alternative, Close, Decide, Effects, Ending, Event, ExchangeId, Millis, Pair,
    Proposed, Replica, Run, Settle, Start,
};
use tigertally::ledger::rules::Rules;
use tigertally::store::embedded::{Durability, EmbeddedStore, Options};
use tigertally::store::memory::{Clock, MemoryStore};
use tigertally::store::redis::{Address, RedisStore, Settings};
use tigertally::store::{ConversationKey, Listener, Store};

const MOST: usize = 3;
const STEPS: u32 = 500;
const KEYS: u8 = 5;

#[tokio::test(flavor = "multi_thread")]
async fn all_stores_agree_on_random_events() {
    let server = Server::start(&[]);
    let mut restarts = 0;
    for seed in 0..super::rounds("TIGERTALLY_AGREEMENT_SEEDS", 8) {
        let mut stores = Stores::open(&server.url(), seed).await;
        let mut random = StdRng::seed_from_u64(seed);
        for step in 0..STEPS {
            stores.step(&mut random, &format!("seed {seed}, step {step}")).await;
        }
        restarts += stores.restarts;
    }
    assert!(restarts > 0, "none was ever closed and opened");
}

#[derive(Default)]
struct Told(Mutex<Vec<(ConversationKey, Effects)>>);

impl Listener for Told {
    fn committed(&self, key: &ConversationKey, effects: &Effects) {
        if *effects != Effects::default() {
            self.0.lock().push((key.clone(), effects.clone()));
        }
    }
}

impl Told {
    fn take(&self, key: &ConversationKey) -> Vec<Effects> {
        let mut of_key = Vec::new();
        self.0.lock().retain(|(whose, effects)| {
            if whose == key {
                of_key.push(effects.clone());
            }
            whose != key
        });
        of_key
    }
}

/// One of the stores.
struct One {
    name: &'static str,
    store: Arc<dyn Store>,
    told: Arc<Told>,
    /// How it is opened again, when it is on the disk.
    options: Option<Options>,
}

struct Stores {
    digests: DigestKey,
    /// The one in memory first: the others are compared with it.
    all: Vec<One>,
    clock: Clock,
    time: Arc<AtomicU64>,
    rules: Arc<Rules>,
    restarts: u32,
    _directory: tempfile::TempDir,
}

impl Stores {
    async fn open(url: &str, seed: u64) -> Self {
        let digests = DigestKey::new([seed as u8; 32]);
        let time = Arc::new(AtomicU64::new(1_000_000));
        let clock: Clock = {
            let time = Arc::clone(&time);
            Arc::new(move || Millis(time.load(Ordering::SeqCst)))
        };
        let told = Arc::new(Told::default());
        let memory = MemoryStore::new(digests.clone(), Arc::clone(&clock), told.clone(), MOST);
        let mut all = vec![One { name: "memory", store: Arc::new(memory), told, options: None }];
        let directory = tempfile::tempdir().unwrap();
        let key_file = directory.path().join("key");
        let digits = format!("{:02x}", seed as u8).repeat(32);
        std::fs::write(&key_file, digits).unwrap();
        for durability in [Durability::Process, Durability::Machine] {
            let name = durability.as_str();
            let options = Options {
                path: directory.path().join(name),
                key_file: Some(key_file.clone()),
                durability,
                most_per_principal: MOST,
                segment_bytes: 16 << 10,
            };
            let told = Arc::new(Told::default());
            let store = EmbeddedStore::open(&options, Arc::clone(&clock), told.clone()).unwrap();
            all.push(One { name, store: Arc::new(store), told, options: Some(options) });
        }
        let settings = Settings {
            prefix: format!("seed-{seed}"),
            digest_key: Some(digests.clone()),
            most_per_principal: MOST,
            clock: Some(Arc::clone(&clock)),
            patience: Duration::from_secs(10),
            budget: Duration::from_secs(20),
            ..Settings::new(Address::parse(url).unwrap())
        };
        let told = Arc::new(Told::default());
        let store = RedisStore::open(settings, told.clone()).await.unwrap();
        all.push(One { name: "redis", store, told, options: None });
        let rules = Rules { model_calls: Some(6), ttl: Millis(3_600_000), ..Rules::default() };
        let (rules, _directory) = (Arc::new(rules), directory);
        Stores { digests, all, clock, time, rules, restarts: 0, _directory }
    }

    fn key(&self, n: u8) -> ConversationKey {
        // Four conversations of one principal, which may have three, and one of another.
        ConversationKey {
            principal: self.digests.bytes("principal", &[n / 4]),
            conversation: self.digests.bytes("conversation", &[n]),
        }
    }

    async fn step(&mut self, random: &mut StdRng, at: &str) {
        let key = self.key(random.random_range(0..KEYS));
        match random.random_range(0..100) {
            0 => {
                self.time.fetch_add(self.rules.ttl.0 + 61_000, Ordering::SeqCst);
                self.sweep().await;
            }
            1..4 => {
                self.time.fetch_add(20_000, Ordering::SeqCst);
            }
            4..16 => {
                self.time.fetch_add(random.random_range(0..800), Ordering::SeqCst);
            }
            16..22 => self.sweep().await,
            22..24 => {
                let expected = self.all[0].store.remove(&key).await;
                for one in &self.all[1..] {
                    assert_eq!(
                        one.store.remove(&key).await,
                        expected,
                        "{at}: {} removes",
                        one.name
                    );
                }
            }
            24..26 => self.restart(at).await,
            _ => self.apply(&key, self.event(random), at).await,
        }
        self.compare(at).await;
    }

    async fn apply(&self, key: &ConversationKey, event: Event, at: &str) {
        let parts = |applied: Result<tigertally::ledger::event::Transition, _>| {
            applied.map(|transition| (transition.outcome, transition.effects))
        };
        let expected = parts(self.all[0].store.apply(key, event.clone(), &self.rules).await);
        for one in &self.all[1..] {
            let said = parts(one.store.apply(key, event.clone(), &self.rules).await);
            assert_eq!(said, expected, "{at}: {} on {event:?}", one.name);
        }
    }

    async fn compare(&self, at: &str) {
        for n in 0..KEYS {
            let key = self.key(n);
            let told = self.all[0].told.take(&key);
            let kept = self.all[0].store.read(&key).await;
            for one in &self.all[1..] {
                assert_eq!(one.told.take(&key), told, "{at}: {} told of {n}", one.name);
                assert_eq!(one.store.read(&key).await, kept, "{at}: {} kept of {n}", one.name);
            }
        }
        let held = self.all[0].store.conversations();
        for one in &self.all[1..] {
            assert_eq!(one.store.conversations(), held, "{at}: {}", one.name);
        }
    }

    async fn sweep(&self) {
        for one in &self.all {
            one.store.sweep(&self.rules).await.unwrap();
        }
    }

    /// Ends what is in flight, everywhere, and opens the stores on the disk anew.
    async fn restart(&mut self, at: &str) {
        for n in 0..KEYS {
            let key = self.key(n);
            let state = self.all[0].store.read(&key).await.unwrap().unwrap_or_default();
            for exchange in state.exchanges().iter().filter(|one| !one.closed) {
                let close = Close { exchange: exchange.id, ending: Ending::Delivered };
                self.apply(&key, Event::Close(close), at).await;
            }
        }
        self.compare(at).await;
        for one in &mut self.all {
            let Some(options) = &one.options else { continue };
            // Dropped, it lets its directory go.
            one.store = closed(&self.digests);
            let clock = Arc::clone(&self.clock);
            let opened = EmbeddedStore::open(options, clock, one.told.clone()).unwrap();
            one.store = Arc::new(opened);
            // It has told how many calls are open.
            one.told.0.lock().clear();
        }
        self.restarts += 1;
    }

    fn event(&self, random: &mut StdRng) -> Event {
        let exchange = ExchangeId(random.random_range(1..30));
        let generation = random.random_range(0..4);
        match random.random_range(0..9) {
            0..3 => Event::Admit(self.admit(random, exchange, generation)),
            3 => Event::Settle(self.settle(random, exchange)),
            4 => {
                let sent = random.random_bool(0.5);
                let endings = [
                    Ending::Delivered,
                    Ending::Delivered,
                    Ending::UpstreamFailed,
                    Ending::OutputRefused,
                    Ending::ClientGone { calls_sent: sent },
                    Ending::Withheld,
                ];
                let ending = endings[random.random_range(0..endings.len())];
                Event::Close(Close { exchange, ending })
            }
            5 => Event::Check(exchange),
            6 => {
                let generation = random.random_bool(0.7).then_some(generation);
                Event::Advance(Advance { exchange, generation, idempotency: None })
            }
            7 => Event::Start(Start { exchange, generation, id: call(random) }),
            _ => Event::Decide(Decide {
                exchange,
                generation,
                id: call(random),
                name: None,
                result: self.digests.bytes("result", &[random.random_range(0..2)]),
                closing: random.random_bool(0.1),
                echoes: Vec::new(),
                attempt: None,
                idempotency: None,
            }),
        }
    }

    fn admit(&self, random: &mut StdRng, exchange: ExchangeId, generation: u64) -> Admit {
        let result = random.random_range(0..2);
        let pair = Pair {
            id: call(random),
            tool: "query_order".into(),
            arguments: self.digests.arguments("{}"),
            message: 2,
            result: self.digests.bytes("result", &[result]),
            closing: false,
            name: None,
            echoes: Vec::new(),
            edits_allowed: false,
            attempt: None,
        };
        let live = random.random_bool(0.8);
        let runs = if random.random_bool(0.6) {
            vec![Run { live, pairs: vec![pair] }]
        } else {
            Vec::new()
        };
        Admit {
            exchange,
            replica: Replica(1),
            generation: random.random_bool(0.8).then_some(generation),
            lane: self.digests.bytes("lane", &[random.random_range(0..2)]),
            list: self.digests.bytes("list", &[result, u8::from(runs.is_empty())]),
            declared_retry: random.random_bool(0.2),
            idempotency: None,
            runs,
        }
    }

    fn settle(&self, random: &mut StdRng, exchange: ExchangeId) -> Settle {
        let proposed = Proposed {
            id: call(random),
            tool: "query_order".into(),
            arguments: self.digests.arguments("{}"),
            echoes: Vec::new(),
            deadline: random.random_bool(0.5).then_some(Millis(1500)),
            write: random.random_bool(0.2),
        };
        let proposes = random.random_bool(0.7);
        let alternative = Alternative { choice: 0, calls: vec![proposed] };
        let alternatives = if proposes { vec![alternative] } else { Vec::new() };
        Settle { exchange, alternatives, forced: false }
    }
}

/// Stands where a store was.
fn closed(digests: &DigestKey) -> Arc<dyn Store> {
    let clock: Clock = Arc::new(|| Millis(0));
    Arc::new(MemoryStore::new(digests.clone(), clock, Arc::new(Told::default()), 0))
}

fn call(random: &mut StdRng) -> Box<str> {
    format!("call_{}", random.random_range(0..3)).into()
}
