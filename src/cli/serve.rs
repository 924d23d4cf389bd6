//! `tigertally serve`: the proxy until a signal says otherwise.

mod announcement;

use super::tell;
use crate::control;
use crate::ledger::digest::DigestKey;
use crate::ledger::event::{Effects, Millis};
use crate::policy::{self, Loose, Policy, RecordTo, Sources, StoreKind, Watch};
use crate::proxy::{Flights, Gateway, Running, StartError};
use crate::store::embedded::{EmbeddedStore, OpenError, Options, SEGMENT_BYTES};
use crate::store::memory::{Clock, MemoryStore};
use crate::store::redis::{self, RedisStore};
use crate::store::{ConversationKey, Listener, Store};
use crate::telemetry::{Metrics, Recorder, Telemetry, logs};
use announcement::Announcement;
use http::Uri;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::TcpStream;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;

/// How long the end of the process waits for the last lines of the task record.
const LAST_LINES: Duration = Duration::from_secs(2);
/// How long a start waits to say that nobody answers at the upstream.
const DIAL: Duration = Duration::from_secs(3);
/// How often the files of the configuration are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Serves until SIGTERM or SIGINT, then goes down in good order. On SIGHUP, and when a file that was read has
/// changed, `sources`, which gave `policy`, are read again.
#[must_use]
pub fn run(policy: Policy, sources: &Sources) -> ExitCode {
    if let Err(error) = logs::init(policy.log_format) {
        tell(&format_args!("tigertally: logs cannot be written: {error}"));
        return ExitCode::FAILURE;
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "the runtime cannot start");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(serve(policy, sources)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            tracing::warn!("exchanges were cut off: limits.drain_timeout, or a second signal");
            ExitCode::SUCCESS
        }
        Err(error) => {
            tracing::error!(%error, "the proxy cannot start");
            ExitCode::FAILURE
        }
    }
}

async fn serve(policy: Policy, sources: &Sources) -> Result<bool, StartError> {
    // Before the ports open, so that no signal is missed. Each is heard until the process ends.
    let listened = |kind| signal(kind).map_err(StartError::Signals);
    let mut hangup = listened(SignalKind::hangup())?;
    let mut ends = [listened(SignalKind::terminate())?, listened(SignalKind::interrupt())?];
    let mut watch = Watch::new(&policy.files);
    warn_of_loose(&policy);
    let running = start(policy).await?;
    {
        let settings = running.gateway().settings();
        let (client, admin) = (running.client_addr, running.admin_addr);
        let announcement = Announcement::of(&settings.policy, client, admin);
        if io::stderr().is_terminal() {
            tell(&announcement);
        }
        announcement.log();
    }
    let upstream = running.gateway().settings().policy.upstream.url.clone();
    let mut dialled = std::pin::pin!(upstream_is_there(&upstream));
    let mut asked = false;
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let why = tokio::select! {
            () = any(&mut ends) => break,
            there = &mut dialled, if !asked => {
                asked = true;
                if !there {
                    tracing::warn!(%upstream, "nobody answers at the upstream yet: requests get 502 until it does");
                }
                continue;
            }
            _ = hangup.recv() => "SIGHUP",
            _ = look.tick() => if watch.has_changed() { "a file has changed" } else { continue },
        };
        watch = reload(running.gateway(), sources, why);
    }
    tracing::info!("draining");
    let gateway = Arc::clone(running.gateway());
    let drained = running.shutdown_unless(any(&mut ends)).await;
    if !tokio::task::block_in_place(|| gateway.recorder().flush(LAST_LINES)) {
        tracing::warn!("the last lines of the task record could not be written");
    }
    tracing::info!(drained, "stopped");
    Ok(drained)
}

/// Says which files of secrets others can read or change.
fn warn_of_loose(policy: &Policy) {
    for loose in Loose::among(&policy.private_files) {
        tracing::warn!(file = %loose, "a file of secrets is open to others");
    }
}

/// Waits for one of both.
async fn any([one, other]: &mut [Signal; 2]) {
    tokio::select! {
        _ = one.recv() => {}
        _ = other.recv() => {}
    }
}

/// Reads the configuration again and puts it in force, or says why not. Gives the watch on what was read,
/// so that a bad file is told once, and tried again when it or a file that it names has changed. Reads files:
/// on the thread that waits for signals, which serves nobody.
fn reload(gateway: &Gateway, sources: &Sources, why: &str) -> Watch {
    match policy::load(sources.clone()) {
        Err(problems) => {
            for problem in problems.iter() {
                tracing::error!(%problem, why, "the configuration stays as it was");
            }
            Watch::new(problems.files())
        }
        Ok(policy) => {
            let watch = Watch::new(&policy.files);
            warn_of_loose(&policy);
            match gateway.reload(policy) {
                Err(problem) => {
                    tracing::error!(%problem, why, "the configuration stays as it was");
                }
                Ok(kept) => {
                    if !kept.is_empty() {
                        let keys = kept.join(" ");
                        tracing::warn!(keys, "these need a restart and stay as they were");
                    }
                    tracing::info!(why, "the configuration was read again");
                }
            }
            watch
        }
    }
}

/// Starts the whole product in this process, on the runtime that calls it: for `serve`, the demo and tests.
///
/// # Errors
/// When a port cannot be opened or the configuration cannot be used.
pub async fn start(policy: Policy) -> Result<Running, StartError> {
    let flights = Arc::new(Flights::default());
    let metrics =
        Metrics::new(&policy.tools).map_err(|error| StartError::Metrics(error.to_string()))?;
    let recorder = Recorder::start(&policy.record, metrics.clone())
        .map_err(|error| StartError::Record(named(&policy, error)))?;
    let telemetry = Telemetry { metrics, recorder };
    let listener =
        Arc::new(Listeners { flights: Arc::clone(&flights), telemetry: telemetry.clone() });
    let store = open_store(&policy, listener).await?;
    control::start(policy, store, flights, telemetry).await
}

async fn open_store(
    policy: &Policy,
    listener: Arc<dyn Listener>,
) -> Result<Arc<dyn Store>, StartError> {
    let (clock, most_per_principal) = (system_clock(), policy.max_conversations);
    match &policy.store {
        StoreKind::Memory => {
            let key = DigestKey::new(rand::random());
            Ok(Arc::new(MemoryStore::new(key, clock, listener, most_per_principal)))
        }
        StoreKind::Embedded { path, key_file, durability } => {
            let options = Options {
                path: path.clone(),
                key_file: key_file.clone(),
                durability: *durability,
                most_per_principal,
                segment_bytes: SEGMENT_BYTES,
            };
            let opened = EmbeddedStore::open(&options, clock, listener);
            Ok(Arc::new(opened.map_err(|error| StartError::Store(embedded_way_out(&error)))?))
        }
        StoreKind::Redis { address, prefix, key_file } => {
            let failed = |error: String| StartError::Store(error);
            let digest_key = key_file.as_deref().map(redis::read_key).transpose();
            let settings = redis::Settings {
                prefix: prefix.clone(),
                digest_key: digest_key.map_err(failed)?,
                most_per_principal,
                ..redis::Settings::new((**address).clone())
            };
            tracing::info!(%address, "asking Redis for the store");
            let opened = RedisStore::open(settings, listener).await;
            let told = |error| match error {
                redis::OpenError::Unreachable(_) => format!(
                    "{error} ({address}); see that it runs, and that store.url or --store is right"
                ),
                redis::OpenError::OtherKey => error.to_string(),
            };
            Ok(opened.map_err(|error| StartError::Store(told(error)))?)
        }
    }
}

/// An error of the task record, with the file that it is about.
fn named(policy: &Policy, error: io::Error) -> io::Error {
    match &policy.record.to {
        RecordTo::File(path) => {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        }
        RecordTo::Nothing | RecordTo::Stdout => error,
    }
}

fn embedded_way_out(error: &OpenError) -> String {
    match error {
        OpenError::Io { .. } => format!(
            "{error}; name a directory that this user may write (store.path, or --store embedded:DIRECTORY)"
        ),
        _ => error.to_string(),
    }
}

/// Whether anybody answers at the upstream's port. Not whether it is ready: `/readyz` asks it.
async fn upstream_is_there(url: &Uri) -> bool {
    let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("https") { 443 } else { 80 });
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let dialled = tokio::time::timeout(DIAL, TcpStream::connect((host, port))).await;
    matches!(dialled, Ok(Ok(_)))
}

/// All that learn of what is committed: exchanges in flight, the metrics and the task record.
struct Listeners {
    flights: Arc<Flights>,
    telemetry: Telemetry,
}

impl Listener for Listeners {
    fn committed(&self, key: &ConversationKey, effects: &Effects) {
        self.flights.committed(key, effects);
        self.telemetry.metrics.committed(effects);
        self.telemetry.recorder.stories(key, &effects.stories);
        self.telemetry.metrics.feed().committed(key, effects);
    }
}

fn system_clock() -> Clock {
    Arc::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    })
}
