//! The store that a fleet shares: Redis (6.2 or newer) or Valkey; one server, Sentinels or a Cluster.
//!
//! One key per conversation. An event is decided here, by the pure state machine, and written there only
//! if nobody wrote in between: a compare-and-set by version in one round trip. The last state seen is
//! kept, so that the read before it is mostly saved; a write that comes too late gets the newer state in
//! its reply and begins again. No question scans, none touches two hash slots.
//!
//! | room | what is in it |
//! | --- | --- |
//! | `address` | the URL |
//! | `dial`, `link` | the connection; timeouts, the circuit, and how it mends |
//! | `script` | what is asked of the server |
//! | `names` | what things are called there |
//! | `identity` | which digest key it is recorded with |
//! | `frame`, `cache` | a conversation there, and as it was last seen here |
//! | `clock` | the server's time |
//! | `eviction` | whether the server may drop conversations |
//! | `commit` | one event on one conversation |
//! | `removal` | the end of a conversation |
//! | `places` | the bound per principal |
//! | `agenda` | deadlines, leases and expiry of what this replica touched |
//! | `watch` | the same, listed for the others should this replica die |
//! | `push` | cuts, told to the other replicas at once |
//!
//! The trade-off: durability and order are Redis's own. `appendfsync everysec` loses up to two seconds on a
//! power failure or a kill during a sync, and an asynchronous failover loses what the new master had not got.
//! What each invariant is worth then is told in `docs/redis.md`.

mod address;
mod agenda;
mod cache;
mod clock;
mod commit;
mod dial;
mod eviction;
mod frame;
mod gathering;
mod identity;
mod link;
mod names;
mod places;
mod push;
mod removal;
mod script;
mod watch;

#[cfg(test)]
#[path = "../../tests/redis/server.rs"]
mod server;
#[cfg(test)]
pub(in crate::store) mod tests;

pub use address::{Address, AddressError};
pub use identity::read_key;

use super::memory::Clock;
use super::{Answer, ConversationKey, Listener, Store, StoreError};
use crate::ledger::Conversation;
use crate::ledger::digest::DigestKey;
use crate::ledger::event::{Event, Transition};
use crate::ledger::rules::Rules;
use agenda::Agenda;
use cache::Cache;
use commit::{Core, Turns};
use dial::{Dialer, Wire};
use identity::Identity;
use link::Link;
use names::Names;
use push::Ear;
use script::{Reply, Scripts};

use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// Most conversations looked at in one sweep, and at once.
const SWEPT: usize = 8192;
const AT_ONCE: usize = 64;

const OTHER_KEY: &str = "redis holds the conversations of another digest key";

/// How the store is to be opened.
#[derive(Clone)]
pub struct Settings {
    /// Where it is.
    pub address: Address,
    /// What all its keys begin with: two deployments on one Redis differ in it.
    pub prefix: String,
    /// The secret of the digests, when it is kept elsewhere. Else it is made at the first start and kept in
    /// Redis.
    pub digest_key: Option<DigestKey>,
    /// Most conversations of one principal.
    pub most_per_principal: usize,
    /// How long one question to Redis may take.
    pub patience: Duration,
    /// How long one event may take, with all its questions.
    pub budget: Duration,
    /// How long a connection may take to be made.
    pub connect_patience: Duration,
    /// How long a start waits for Redis.
    pub start_patience: Duration,
    /// About how many bytes of conversations are kept as last seen.
    pub cached_bytes: usize,
    /// In place of the server's clock: for tests and simulations.
    pub clock: Option<Clock>,
}

impl Settings {
    /// The defaults, for a server there.
    #[must_use]
    pub fn new(address: Address) -> Self {
        Settings {
            address,
            prefix: "tigertally".to_owned(),
            digest_key: None,
            most_per_principal: 100_000,
            patience: Duration::from_secs(1),
            budget: Duration::from_secs(3),
            connect_patience: Duration::from_secs(2),
            start_patience: Duration::from_secs(10),
            cached_bytes: 32 << 20,
            clock: None,
        }
    }
}

/// Why the store cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Redis was not to be had in time.
    #[error("redis cannot be used: {0}")]
    Unreachable(&'static str),
    /// Digests there were made with another key.
    #[error(
        "the conversations in redis were recorded with another digest key: give the store its own \
         prefix, or the key_file that was in use"
    )]
    OtherKey,
}

/// Keeps ledgers in Redis.
pub struct RedisStore {
    core: Arc<Core>,
    identity: Identity,
    key: DigestKey,
    /// How the server makes room, if that is a danger.
    evicts: Option<String>,
    _keeper: DropGuard,
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStore").field("conversations", &self.core.agenda.len()).finish()
    }
}

impl RedisStore {
    /// Opens it: dials, and reads or makes the digest key. Must be called on a runtime, which then keeps
    /// the connection. `listener` learns of what is committed here, and of exchanges of this replica that
    /// another one has ended.
    ///
    /// # Errors
    /// When Redis cannot be used in time, or holds conversations of another digest key.
    pub async fn open(
        settings: Settings,
        listener: Arc<dyn Listener>,
    ) -> Result<Arc<Self>, OpenError> {
        let origin = rand::random();
        let ear = Arc::new(Ear { origin, listener: Arc::clone(&listener) });
        let dialer = Arc::new(Dialer {
            address: settings.address.clone(),
            ear,
            patience: settings.patience,
            connect_patience: settings.connect_patience,
        });
        let names = Names::new(&settings.prefix);
        let scripts = Scripts::default();
        let mut identity = Identity::of(settings.digest_key.as_ref());
        let reached = introduce(&dialer, &scripts, &names, &identity, settings.start_patience);
        let (found, evicts) = reached.await.map_err(OpenError::Unreachable)?;
        let key = identity.settle(&found, settings.digest_key).ok_or(OpenError::OtherKey)?;
        if let Some(policy) = &evicts {
            tracing::warn!(
                policy,
                "redis may drop conversations to make room: set its maxmemory-policy to noeviction"
            );
        }
        let core = Arc::new(Core {
            link: Arc::new(Link::new(settings.patience)),
            scripts,
            names,
            server_clock: clock::ServerClock::default(),
            clock: settings.clock,
            cache: Cache::new(settings.cached_bytes),
            agenda: Agenda::default(),
            wanted: gathering::Wanted::default(),
            turns: Turns::default(),
            listener,
            origin,
            most_per_principal: settings.most_per_principal,
            budget: settings.budget,
            publish: Arc::new(OnceLock::new()),
            tasks: TaskTracker::new(),
            round_trips: std::sync::atomic::AtomicU64::new(0),
        });
        let stop = CancellationToken::new();
        let keeping = keep(Arc::clone(&core), dialer, identity.clone());
        let until_stopped = stop.clone();
        core.tasks.spawn(async move {
            tokio::select! {
                () = until_stopped.cancelled() => {}
                () = keeping => {}
            }
        });
        Ok(Arc::new(RedisStore { core, identity, key, evicts, _keeper: stop.drop_guard() }))
    }

    /// Questions sent to Redis so far.
    #[must_use]
    pub fn round_trips(&self) -> u64 {
        self.core.round_trips.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// The server's `maxmemory-policy` as it was at the start, when it lets the server drop conversations.
    /// `None` as well when the server does not tell.
    #[must_use]
    pub fn evicts(&self) -> Option<&str> {
        self.evicts.as_deref()
    }

    async fn probe(&self) -> Result<(), StoreError> {
        let core = &self.core;
        let keys = [core.names.identity.as_bytes(), core.names.alive.as_bytes()];
        let until = Instant::now() + core.budget;
        let reply = core.ask(&core.scripts.probe, &keys, &[self.identity.bytes()], until).await?;
        if reply.bytes() == self.identity.bytes() {
            return Ok(());
        }
        // What is there was recorded with another key, and so would never be found.
        core.link.distrust(OTHER_KEY);
        Err(StoreError::Unavailable(OTHER_KEY))
    }

    /// Runs to its end whoever waits for it.
    fn work<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Answer<'_, T> {
        Box::pin(async move {
            let done = self.core.tasks.spawn(work).await;
            done.unwrap_or(Err(StoreError::Unavailable("the store was cut off")))
        })
    }
}

/// Asks for the identity, until it is answered or patience is over; and how the server makes room.
async fn introduce(
    dialer: &Dialer,
    scripts: &Scripts,
    names: &Names,
    identity: &Identity,
    patience: Duration,
) -> Result<(Vec<u8>, Option<String>), &'static str> {
    let end = Instant::now() + patience;
    let mut last = "redis cannot be reached in time";
    loop {
        let asked = tokio::time::timeout_at(end, async {
            let (mut wire, _) = dialer.dial().await.map_err(|error| link::why(&error))?;
            let found = greeting(&mut wire, scripts, names, identity).await?.bytes().to_vec();
            Ok((found, eviction::policy(&mut wire).await))
        });
        match asked.await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(why)) => last = why,
            Err(_) => return Err(last),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        if Instant::now() >= end {
            return Err(last);
        }
    }
}

/// Asks for the identity.
async fn greeting(
    wire: &mut Wire,
    scripts: &Scripts,
    names: &Names,
    identity: &Identity,
) -> Result<Reply, &'static str> {
    let keys = [names.identity.as_bytes(), names.alive.as_bytes()];
    let command = scripts.probe.by_text(&keys, &[identity.bytes()]);
    let value = wire.ask(&command).await.map_err(|error| link::why(&error))?;
    Reply::of(value).ok_or("redis answered something else")
}

/// Keeps the connection for as long as the store lives.
async fn keep(core: Arc<Core>, dialer: Arc<Dialer>, identity: Identity) {
    let link = Arc::clone(&core.link);
    let greet = move |mut wire: Wire| {
        let (core, identity) = (Arc::clone(&core), identity.clone());
        async move {
            let sent = Instant::now();
            let reply = greeting(&mut wire, &core.scripts, &core.names, &identity).await?;
            core.server_clock.observe(reply.now, sent.into_std(), Instant::now().into_std());
            if reply.bytes() != identity.bytes() {
                return Err(OTHER_KEY);
            }
            let hear = wire.hear(&core.names.channel).await.map_err(|error| link::why(&error))?;
            let _ = core.publish.set(hear);
            Ok(wire)
        }
    };
    link.keep(dialer, greet).await;
}

impl Store for RedisStore {
    fn digest_key(&self) -> &DigestKey {
        &self.key
    }

    fn apply<'a>(
        &'a self,
        key: &'a ConversationKey,
        event: Event,
        rules: &'a Arc<Rules>,
    ) -> Answer<'a, Transition> {
        self.work(Arc::clone(&self.core).apply(key.clone(), event, Arc::clone(rules)))
    }

    fn remove<'a>(&'a self, key: &'a ConversationKey) -> Answer<'a, bool> {
        self.work(Arc::clone(&self.core).remove(key.clone()))
    }

    fn read<'a>(&'a self, key: &'a ConversationKey) -> Answer<'a, Option<Conversation>> {
        Box::pin(async move {
            let seen = self.core.read(key, Instant::now() + self.core.budget).await?;
            Ok(seen.version.map(|_| Arc::unwrap_or_clone(seen.conversation)))
        })
    }

    fn sweep<'a>(&'a self, rules: &'a Arc<Rules>) -> Answer<'a, ()> {
        Box::pin(async move {
            self.probe().await?;
            let mut looks = JoinSet::new();
            for key in self.core.agenda.due(self.core.now(), SWEPT) {
                if looks.len() >= AT_ONCE
                    && let Some(Ok(Err(error))) = looks.join_next().await
                {
                    return Err(error);
                }
                looks.spawn(Arc::clone(&self.core).apply(key, Event::Tick, Arc::clone(rules)));
            }
            while let Some(look) = looks.join_next().await {
                if let Ok(Err(error)) = look {
                    return Err(error);
                }
            }
            self.core.look_after_others(rules).await
        })
    }

    fn ready(&self) -> Answer<'_, ()> {
        Box::pin(self.probe())
    }

    /// Those that this replica touched: Redis is not asked to count.
    fn conversations(&self) -> usize {
        self.core.agenda.len()
    }
}
