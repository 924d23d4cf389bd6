//! What each store costs: the figures in `docs/stores.md` and `docs/redis.md`, in one run.
//!
//! ```text
//! cargo bench --bench stores
//! ```
//! Starts what it needs (`redis-server` must be on the path; the disk is that of the temporary directory, or
//! of `TIGERTALLY_BENCH_DATA`) and prints tables in markdown. Every kind of store is measured once in each
//! round, in turn, so that what else the machine does falls on all of them; a figure is the median of its
//! rounds (`TIGERTALLY_BENCH_ROUNDS`, 5 by default). The ratios count: absolute times are this machine's.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "it measures, and tells it")]

mod exchanges;
mod many;
mod operations;
#[expect(dead_code, reason = "tests kill and relaunch it, or have a Cluster")]
#[path = "../../tests/redis/server.rs"]
mod server;
mod tasks;

use server::Server;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tigertally::ledger::digest::DigestKey;
use tigertally::ledger::event::{Effects, Millis};
use tigertally::store::embedded::{Durability, EmbeddedStore, Options, SEGMENT_BYTES};
use tigertally::store::memory::{Clock, MemoryStore};
use tigertally::store::redis::{Address, RedisStore, Settings};
use tigertally::store::{ConversationKey, Listener, Store};

/// A kind of store that is compared with the others.
pub(crate) enum Kind {
    Memory,
    Disk(Durability),
    Redis(Server, &'static str),
}

impl Kind {
    pub(crate) fn name(&self) -> String {
        match self {
            Kind::Memory => "`memory`".to_owned(),
            Kind::Disk(durability) => format!("`embedded`, `{}`", durability.as_str()),
            Kind::Redis(_, how) => format!("`redis`, {how}"),
        }
    }
}

/// One of them, opened.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) redis: Option<Arc<RedisStore>>,
}

pub(crate) struct Deaf;

impl Listener for Deaf {
    fn committed(&self, _: &ConversationKey, _: &Effects) {}
}

pub(crate) fn clock() -> Clock {
    Arc::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Millis(u64::try_from(since.as_millis()).unwrap())
    })
}

pub(crate) fn options(path: PathBuf, durability: Durability) -> Options {
    Options {
        path,
        key_file: None,
        durability,
        most_per_principal: 10_000_000,
        segment_bytes: SEGMENT_BYTES,
    }
}

/// A directory on the disk that is measured.
pub(crate) fn scratch() -> tempfile::TempDir {
    let place =
        std::env::var_os("TIGERTALLY_BENCH_DATA").map_or_else(std::env::temp_dir, PathBuf::from);
    tempfile::tempdir_in(place).unwrap()
}

async fn open(kind: &Kind, scratch: &tempfile::TempDir, prefix: &str) -> Opened {
    match kind {
        Kind::Memory => {
            let key = DigestKey::new([7; 32]);
            let store = MemoryStore::new(key, clock(), Arc::new(Deaf), 10_000_000);
            Opened { store: Arc::new(store), redis: None }
        }
        Kind::Disk(durability) => {
            let options = options(scratch.path().join("data"), *durability);
            let store = EmbeddedStore::open(&options, clock(), Arc::new(Deaf)).unwrap();
            Opened { store: Arc::new(store), redis: None }
        }
        Kind::Redis(server, _) => {
            let settings = Settings {
                prefix: prefix.to_owned(),
                most_per_principal: 10_000_000,
                ..Settings::new(Address::parse(&server.url()).unwrap())
            };
            let store = RedisStore::open(settings, Arc::new(Deaf)).await.unwrap();
            // The first answer comes when the connection is made.
            store.ready().await.unwrap();
            Opened { store: store.clone(), redis: Some(store) }
        }
    }
}

fn rounds() -> usize {
    std::env::var("TIGERTALLY_BENCH_ROUNDS").map_or(5, |text| text.parse().unwrap())
}

/// The middle one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Two significant digits are all that a busy machine gives.
pub(crate) fn micros(value: f64) -> String {
    match value {
        value if value.abs() < 10.0 => format!("{value:.1} µs"),
        value if value.abs() < 1000.0 => format!("{value:.0} µs"),
        value => format!("{:.1} ms", value / 1000.0),
    }
}

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        println!("measures; run by `cargo bench --bench stores`");
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        many::print().await;
        let kinds = [
            Kind::Memory,
            Kind::Disk(Durability::Process),
            Kind::Disk(Durability::Machine),
            Kind::Redis(Server::start(&["--appendonly", "no"]), "`appendonly no`"),
            Kind::Redis(
                Server::start(&["--appendonly", "yes", "--appendfsync", "everysec"]),
                "`appendfsync everysec`",
            ),
            Kind::Redis(
                Server::start(&["--appendonly", "yes", "--appendfsync", "always"]),
                "`appendfsync always`",
            ),
        ];
        let cores = std::thread::available_parallelism().unwrap();
        println!("\n{} rounds on {cores} cores, Redis on the same machine\n", rounds());
        let mut operations = operations::Figures::new(&kinds);
        let mut exchanges = exchanges::Figures::new(&kinds);
        for round in 0..rounds() {
            for (at, kind) in kinds.iter().enumerate() {
                let scratch = scratch();
                let opened = open(kind, &scratch, &format!("operations-{round}")).await;
                operations.measure(at, opened).await;
                let scratch = crate::scratch();
                exchanges.measure(at, kind, &scratch, &format!("exchanges-{round}")).await;
            }
        }
        operations.print(&kinds);
        exchanges.print(&kinds);
        tasks::print_bytes(&kinds).await;
    });
}
