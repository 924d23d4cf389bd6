//! Random events on the store in memory and on the one in Redis: they say the same, tell the same, and keep
//! the same.

use super::server::Server;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tigertally::ledger::digest::DigestKey;
use tigertally::ledger::event::{
    Admit, Advance, Alternative, Close, Decide, Effects, Ending, Event, ExchangeId, Millis, Names,
    Pair, Proposed, Replica, Run, Settle, Start,
};
use tigertally::ledger::rules::Rules;
use tigertally::store::memory::{Clock, MemoryStore};
use tigertally::store::redis::{Address, RedisStore, Settings};
use tigertally::store::{ConversationKey, Listener, Store};

const MOST: usize = 3;
const STEPS: u32 = 500;

#[tokio::test(flavor = "multi_thread")]
async fn redis_and_memory_agree_on_random_events() {
    let server = Server::start(&[]);
    for seed in 0..super::rounds("TIGERTALLY_AGREEMENT_SEEDS", 8) {
        let pair = Stores::open(&server.url(), seed).await;
        let mut random = StdRng::seed_from_u64(seed);
        for step in 0..STEPS {
            pair.step(&mut random, &format!("seed {seed}, step {step}")).await;
        }
    }
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

struct Stores {
    digests: DigestKey,
    memory: MemoryStore,
    redis: Arc<RedisStore>,
    told: [Arc<Told>; 2],
    time: Arc<AtomicU64>,
    rules: Arc<Rules>,
}

impl Stores {
    async fn open(url: &str, seed: u64) -> Self {
        let digests = DigestKey::new([seed as u8; 32]);
        let time = Arc::new(AtomicU64::new(1_000_000));
        let clock: Clock = {
            let time = Arc::clone(&time);
            Arc::new(move || Millis(time.load(Ordering::SeqCst)))
        };
        let told = [Arc::new(Told::default()), Arc::new(Told::default())];
        let memory = MemoryStore::new(digests.clone(), Arc::clone(&clock), told[0].clone(), MOST);
        let settings = Settings {
            prefix: format!("seed-{seed}"),
            digest_key: Some(digests.clone()),
            most_per_principal: MOST,
            clock: Some(clock),
            patience: Duration::from_secs(10),
            budget: Duration::from_secs(20),
            ..Settings::new(Address::parse(url).unwrap())
        };
        let redis = RedisStore::open(settings, told[1].clone()).await.unwrap();
        let rules = Rules { model_calls: Some(6), ttl: Millis(3_600_000), ..Rules::default() };
        Stores { digests, memory, redis, told, time, rules: Arc::new(rules) }
    }

    fn key(&self, n: u8) -> ConversationKey {
        // Four conversations of one principal, which may have three, and one of another.
        ConversationKey {
            principal: self.digests.bytes("principal", &[n / 4]),
            conversation: self.digests.bytes("conversation", &[n]),
        }
    }

    async fn step(&self, random: &mut StdRng, at: &str) {
        let key = self.key(random.random_range(0..5));
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
                let (one, two) = (self.memory.remove(&key).await, self.redis.remove(&key).await);
                assert_eq!(one, two, "{at}: remove");
            }
            _ => {
                let event = self.event(random);
                let one = self.memory.apply(&key, event.clone(), &self.rules).await;
                let two = self.redis.apply(&key, event.clone(), &self.rules).await;
                let parts = |applied: Result<tigertally::ledger::event::Transition, _>| {
                    applied.map(|transition| (transition.outcome, transition.effects))
                };
                assert_eq!(parts(one), parts(two), "{at}: {event:?}");
            }
        }
        for n in 0..5 {
            let key = self.key(n);
            let told = self.told.each_ref().map(|told| told.take(&key));
            assert_eq!(told[0], told[1], "{at}: told of {n}");
            let (one, two) = (self.memory.read(&key).await, self.redis.read(&key).await);
            assert_eq!(one, two, "{at}: kept of {n}");
        }
        assert_eq!(self.memory.conversations(), self.redis.conversations(), "{at}");
    }

    async fn sweep(&self) {
        self.memory.sweep(&self.rules).await.unwrap();
        self.redis.sweep(&self.rules).await.unwrap();
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
            names: Names::default(),
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

fn call(random: &mut StdRng) -> Box<str> {
    format!("call_{}", random.random_range(0..3)).into()
}
