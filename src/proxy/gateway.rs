//! What all exchanges of one running proxy share.
//!
//! Two kinds of things: what lives as long as the process (store, metrics, connections, bounds), and the
//! [`Settings`], which may be swapped at any time. An exchange takes the settings once, when it begins, so
//! that no rule changes between its request and its answer.

use super::abort::{self, Aborter};
use super::arrears::Arrears;
use super::cut::Cut;
use super::flights::Flights;
use super::identity::{self, Doorkeeper, KeySets};
use super::places::Places;
use super::pool::Pool;
use super::upstream::Patience;
use crate::guard::offer::ToolRules;
use crate::guard::schema::SchemaCache;
use crate::ledger::Conversation;
use crate::ledger::event::{Event, Replica, Transition};
use crate::ledger::rules::Rules;
use crate::policy::{Policy, RecordTo};
use crate::store::{ConversationKey, Store, StoreError};
use crate::telemetry::{Metrics, Recorder, StoreOp, Telemetry, Tracer};
use arc_swap::ArcSwap;
use http::uri::{self, PathAndQuery, Scheme};
use http::{HeaderName, HeaderValue, Uri};
use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

/// Tool lists whose compiled schemas are kept, and about how much memory for them.
const SCHEMA_LISTS: usize = 1024;
const SCHEMA_BYTES: usize = 64 << 20;

/// The configuration, with what is derived from it once. An exchange keeps the one it began with.
pub struct Settings {
    /// As configured.
    pub policy: Policy,
    /// What the rules on proposals need to know of the operator's tools.
    pub tool_rules: Arc<ToolRules>,
    /// Exact texts that count as closings.
    pub closings: HashSet<String>,
    /// `authorization` for the upstream, when we hold its key.
    pub authorization: Option<HeaderValue>,
    /// Clients' headers that never go up.
    pub(crate) kept_back: Vec<HeaderName>,
    /// Asks clients who they are.
    pub(crate) doorkeeper: Doorkeeper,
}

impl Settings {
    /// Derives them. `sets` keeps fetched key sets from one configuration to the next.
    ///
    /// # Errors
    /// When the upstream's key cannot stand in a header.
    pub(crate) fn new(mut policy: Policy, sets: &KeySets) -> Result<Self, StartError> {
        let told = policy.record.to != RecordTo::Nothing;
        if policy.ledger.told != told {
            Arc::make_mut(&mut policy.ledger).told = told;
        }
        let notices = &policy.notices;
        let closings = [notices.timeout.clone(), notices.superseded.clone()]
            .into_iter()
            .chain(notices.also.iter().cloned())
            .collect();
        let authorization = match &policy.upstream.api_key {
            None => None,
            Some(key) => {
                let mut value = HeaderValue::try_from(format!("Bearer {}", key.reveal().trim()))
                    .map_err(|_| StartError::UpstreamKey)?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let tool_rules = Arc::new(tool_rules(&policy).map_err(StartError::Tools)?);
        let doorkeeper = Doorkeeper::new(&policy.auth, sets);
        let mut kept_back = doorkeeper.keeps_back();
        if authorization.is_some() {
            kept_back.extend(identity::credentials());
        }
        Ok(Settings { policy, tool_rules, closings, authorization, kept_back, doorkeeper })
    }

    /// How long the upstream may take.
    #[must_use]
    pub fn patience(&self) -> Patience {
        Patience {
            first_byte: self.policy.upstream.first_byte_timeout,
            idle: self.policy.upstream.idle_timeout,
        }
    }

    /// Where aborts go.
    fn abort_target(&self) -> Result<abort::Target, StartError> {
        let uri = self.upstream_uri(&PathAndQuery::from_static("/abort_request"));
        let uri = uri.ok_or(StartError::UpstreamUrl)?;
        Ok(abort::Target { uri, authorization: self.authorization.clone() })
    }

    /// A path of the upstream.
    #[must_use]
    pub fn upstream_uri(&self, path: &PathAndQuery) -> Option<Uri> {
        let base = &self.policy.upstream.url;
        let prefix = base.path().trim_end_matches('/');
        let mut parts = uri::Parts::default();
        parts.scheme = Some(base.scheme().cloned().unwrap_or(Scheme::HTTP));
        parts.authority = Some(base.authority()?.clone());
        parts.path_and_query = Some(if prefix.is_empty() {
            path.clone()
        } else {
            PathAndQuery::try_from(format!("{prefix}{path}")).ok()?
        });
        Uri::from_parts(parts).ok()
    }
}

/// The operator's tools, as the rules on proposals need them.
fn tool_rules(policy: &Policy) -> Result<ToolRules, String> {
    let tools = &policy.tools;
    let rules = ToolRules::new(tools.allow.as_deref(), tools.max_calls, policy.limits.depth);
    tools.each.iter().try_fold(rules, |rules, (name, tool)| {
        rules.with_tool(name, &tool.server_owned, tool.schema.as_deref())
    })
}

/// Why a proxy cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A port cannot be opened.
    #[error("cannot listen on {address} ({source}); choose another address with {flag}")]
    Listen {
        /// Which.
        address: std::net::SocketAddr,
        /// The flag that sets it.
        flag: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// Nobody could tell the process to end or to read its configuration again.
    #[error("cannot wait for signals: {0}")]
    Signals(std::io::Error),
    /// A tool's settings are unusable.
    #[error("{0}")]
    Tools(String),
    /// The upstream's URL is unusable.
    #[error("upstream.url cannot be used")]
    UpstreamUrl,
    /// The upstream's key is unusable.
    #[error("the upstream's key cannot stand in a header: see upstream.api_key_file")]
    UpstreamKey,
    /// The store cannot be opened.
    #[error("the store cannot be opened: {0}")]
    Store(String),
    /// The task record cannot be written.
    #[error("the task record cannot be written ({0}); see telemetry.record_file")]
    Record(std::io::Error),
    /// Metrics cannot be made.
    #[error("metrics cannot be made: {0}")]
    Metrics(String),
}

/// One running proxy.
pub struct Gateway {
    pub(crate) settings: ArcSwap<Settings>,
    key_sets: KeySets,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) metrics: Metrics,
    pub(crate) recorder: Recorder,
    pub(crate) tracer: Tracer,
    pub(crate) flights: Arc<Flights>,
    arrears: Arrears,
    pub(crate) replica: Replica,
    pub(crate) pool: Pool,
    pub(crate) aborter: Arc<Aborter>,
    pub(crate) schemas: SchemaCache,
    pub(crate) places: Arc<Places>,
    /// One token per exchange; closed and awaited when draining.
    pub(crate) live: TaskTracker,
    /// Everything that is spawned.
    pub(crate) tasks: TaskTracker,
    /// The end of a drain: what is still in flight ends now, and says so.
    pub(crate) cut: Cut,
    runtime: Handle,
    draining: AtomicBool,
}

impl Gateway {
    /// Puts the parts together. Must be called on a runtime.
    ///
    /// # Errors
    /// When the configuration cannot be used.
    pub fn new(
        policy: Policy,
        store: Arc<dyn Store>,
        flights: Arc<Flights>,
        telemetry: Telemetry,
    ) -> Result<Arc<Self>, StartError> {
        let Telemetry { metrics, recorder } = telemetry;
        let runtime = Handle::current();
        let tasks = TaskTracker::new();
        let key_sets = KeySets::new(tasks.clone(), runtime.clone());
        let settings = Settings::new(policy, &key_sets)?;
        let pool = Pool::new(settings.policy.upstream.connect_timeout);
        let endpoint = settings.policy.otlp_endpoint.as_ref();
        let tracer = endpoint.map(|uri| Tracer::to(uri, metrics.clone())).unwrap_or_default();
        let aborter = Arc::new(Aborter::new(
            pool.clone(),
            settings.abort_target()?,
            tasks.clone(),
            runtime.clone(),
            metrics.clone(),
        ));
        let places = Places::new(settings.policy.limits.exchanges);
        Ok(Arc::new(Gateway {
            settings: ArcSwap::from_pointee(settings),
            key_sets,
            store,
            tracer,
            metrics,
            recorder,
            flights,
            arrears: Arrears::default(),
            replica: Replica(rand::random()),
            pool,
            aborter,
            schemas: SchemaCache::new(SCHEMA_LISTS, SCHEMA_BYTES),
            places,
            live: TaskTracker::new(),
            tasks,
            cut: Cut::default(),
            runtime,
            draining: AtomicBool::new(false),
        }))
    }

    /// The configuration in force, derived.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    /// Takes another configuration. Exchanges in flight keep the one they began with. (When the upstream
    /// changes, an abort of theirs goes to the new one, which does not know the id; the old one sees its
    /// connection close.) Gives the keys that need a restart and so keep their values.
    ///
    /// # Errors
    /// When it cannot be used; then nothing changes.
    pub fn reload(&self, mut policy: Policy) -> Result<Vec<&'static str>, StartError> {
        let kept = policy.keep_fixed(&self.settings().policy);
        let settings = Settings::new(policy, &self.key_sets)?;
        let target = settings.abort_target()?;
        self.metrics.set_tools(&settings.policy.tools);
        self.settings.store(Arc::new(settings));
        self.aborter.aim(target);
        Ok(kept)
    }

    /// Where ledgers live.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// What is measured.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The task record.
    #[must_use]
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// The pooled connections to the upstream.
    #[must_use]
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Applies an event to a conversation, and measures it.
    ///
    /// # Errors
    /// When the store did not do it.
    pub async fn apply(
        &self,
        key: &ConversationKey,
        event: Event,
        rules: &Arc<Rules>,
    ) -> Result<Transition, StoreError> {
        self.measured(StoreOp::of(&event), async {
            self.pay(key).await?;
            self.store.apply(key, event, rules).await
        })
        .await
    }

    /// Waits for what the store was asked, and measures it. That a principal holds too much is an answer,
    /// and no failure of the store.
    ///
    /// # Errors
    /// When the store did not do it.
    pub(crate) async fn measured<T>(
        &self,
        op: StoreOp,
        asked: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let began = Instant::now();
        let answer = asked.await;
        self.metrics.store(op, began.elapsed());
        if matches!(answer, Err(StoreError::Unavailable(_))) {
            self.metrics.store_error();
        }
        answer
    }

    /// The state of a conversation as last committed.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn read(
        &self,
        key: &ConversationKey,
    ) -> Result<Option<Conversation>, StoreError> {
        self.measured(StoreOp::Read, async {
            self.pay(key).await?;
            self.store.read(key).await
        })
        .await
    }

    /// Forgets a conversation. Whether there was one.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn remove(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        self.measured(StoreOp::Remove, self.arrears.remove(&*self.store, key)).await
    }

    /// The store did not answer, and this happened all the same: it is brought there later.
    pub(crate) fn owe(&self, key: &ConversationKey, event: Event, rules: &Rules) {
        self.given_up(self.arrears.owe(key, event, rules));
    }

    /// Brings to the store what it is owed, as far as it answers.
    pub(crate) async fn pay_all(&self) {
        for key in self.arrears.debtors() {
            // One conversation that cannot be read must not hold up the others.
            if self.pay(&key).await.is_err() && self.store.ready().await.is_err() {
                return;
            }
        }
    }

    async fn pay(&self, key: &ConversationKey) -> Result<(), StoreError> {
        self.given_up(self.arrears.pay(&*self.store, key).await?);
        Ok(())
    }

    fn given_up(&self, events: usize) {
        if events > 0 {
            (0..events).for_each(|_| self.metrics.store_error());
            tracing::warn!(events, "calls or results let through without the store are given up");
        }
    }

    /// Whether it takes no new work.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// From now on it takes no new work.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.live.close();
    }

    /// Spawns a task that the end of the process waits for. Works from a `Drop` on any thread.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn_on(task, &self.runtime);
    }
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("replica", &self.replica).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("policy", &self.policy).finish_non_exhaustive()
    }
}
