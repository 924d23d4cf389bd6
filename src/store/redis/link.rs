//! The connection as the store uses it: timed, counted, cut off when it fails, and mended by itself.
//!
//! ```text
//!            dialled, greeted
//! Mending ───────────────────► Up ── connection closed ──► Mending   questions wait for a moment
//!    │  ▲                      │
//!    │  └──────────────────────│─────────────┐
//!    │ GRACE is over           │ FAILURES in a row ran out of time
//!    ▼                         ▼             │ (each attempt to dial)
//!   Down: every question fails at once ◄─────┘
//! ```
//! A closed connection is common (a restart, a failover) and often mended at once, so questions wait for
//! it within their time. A server that does not answer is another matter: who waits for it holds an
//! exchange, so after a few the circuit opens and each question fails at once while we go on dialling.
//!
//! A question whose connection closed under it is asked again: each is idempotent (see `frame`).

use super::dial::{Dialer, Wire};
use super::script::{Reply, Script};
use crate::store::StoreError;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// That many questions in a row without an answer in time open the circuit.
const FAILURES: u32 = 3;
/// For so long after a connection broke do questions wait for the next.
const GRACE: Duration = Duration::from_secs(1);
/// Between attempts to dial: the first, and the longest.
const FIRST_WAIT: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// The connection, whatever state it is in.
pub(super) struct Link {
    state: watch::Sender<State>,
    failures: AtomicU32,
    /// Told when a question found the connection broken.
    broken: Notify,
    patience: Duration,
}

#[derive(Clone)]
enum State {
    Mending,
    Up(u64, Wire),
    Down(&'static str),
}

/// What an error means for the connection.
enum Trouble {
    /// It is gone: ask again on the next.
    Closed,
    /// No answer that could be used: ask no more for now.
    Silent(&'static str),
    /// The server answered, and will not do it.
    Refused(&'static str),
}

impl Link {
    pub(super) fn new(patience: Duration) -> Self {
        let state = watch::Sender::new(State::Mending);
        Link { state, failures: AtomicU32::new(0), broken: Notify::new(), patience }
    }

    /// Asks a script, until then at the latest. Gives the reply, and when it was sent and received.
    pub(super) async fn run(
        &self,
        script: &Script,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        until: Instant,
    ) -> Result<(Reply, Instant, Instant), StoreError> {
        let mut sent = Instant::now();
        let mut answer = self.ask(&script.by_hash(keys, arguments), until).await;
        if matches!(&answer, Ok(Err(error)) if is_unknown_script(error)) {
            sent = Instant::now();
            answer = self.ask(&script.by_text(keys, arguments), until).await;
        }
        let received = Instant::now();
        match answer? {
            Ok(value) => match Reply::of(value) {
                Some(reply) => Ok((reply, sent, received)),
                None => Err(StoreError::Unavailable("redis answered something else")),
            },
            Err(error) => Err(self.refused(&error)),
        }
    }

    /// Sends a command whose fate matters to nobody.
    pub(super) async fn tell(&self, command: &Cmd, until: Instant) {
        if let Ok(Err(error)) = self.ask(command, until).await {
            tracing::debug!(code = error.code(), "redis did not take a message");
        }
    }

    /// The inner error is an answer of the server's.
    async fn ask(
        &self,
        command: &Cmd,
        until: Instant,
    ) -> Result<Result<Value, RedisError>, StoreError> {
        loop {
            let (epoch, mut wire) = self.wire(until).await?;
            let soonest = until.min(Instant::now() + self.patience);
            let Ok(answer) = tokio::time::timeout_at(soonest, wire.ask(command)).await else {
                self.silent(epoch, "redis does not answer in time");
                return Err(StoreError::Unavailable("redis does not answer in time"));
            };
            let Err(error) = answer else {
                self.failures.store(0, Ordering::Relaxed);
                return Ok(answer);
            };
            match trouble(&error, wire.is_single()) {
                Trouble::Closed => self.mend(epoch),
                Trouble::Silent(why) => {
                    self.silent(epoch, why);
                    return Err(StoreError::Unavailable(why));
                }
                Trouble::Refused(_) => return Ok(Err(error)),
            }
        }
    }

    fn refused(&self, error: &RedisError) -> StoreError {
        match trouble(error, true) {
            Trouble::Refused(why) | Trouble::Silent(why) => StoreError::Unavailable(why),
            Trouble::Closed => StoreError::Unavailable("the connection to redis closed"),
        }
    }

    /// The connection in use; waits for the next one when it is being mended.
    async fn wire(&self, until: Instant) -> Result<(u64, Wire), StoreError> {
        let mut state = self.state.subscribe();
        let settled = state.wait_for(|state| !matches!(state, State::Mending));
        let waited = tokio::time::timeout_at(until, settled).await;
        match waited.as_ref().map(|state| state.as_deref()) {
            Ok(Ok(State::Up(epoch, wire))) => Ok((*epoch, wire.clone())),
            Ok(Ok(State::Down(why))) => Err(StoreError::Unavailable(why)),
            _ => Err(StoreError::Unavailable("there is no connection to redis")),
        }
    }

    /// What the server holds is not ours: no question more until a new connection shows otherwise.
    pub(super) fn distrust(&self, why: &'static str) {
        let left = self.state.send_if_modified(|state| {
            let up = matches!(state, State::Up(..));
            if up {
                *state = State::Down(why);
            }
            up
        });
        if left {
            self.broken.notify_one();
        }
    }

    fn silent(&self, epoch: u64, why: &'static str) {
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= FAILURES {
            self.leave(epoch, State::Down(why));
        }
    }

    fn mend(&self, epoch: u64) {
        self.leave(epoch, State::Mending);
    }

    /// Gives up the connection of that epoch; a newer one is none of its business.
    fn leave(&self, epoch: u64, next: State) {
        let left = self.state.send_if_modified(|state| {
            let ours = matches!(state, State::Up(current, _) if *current == epoch);
            if ours {
                *state = next;
            }
            ours
        });
        if left {
            self.broken.notify_one();
        }
    }

    /// Dials whenever there is no connection, for ever. `greet` makes a new one ready for use.
    pub(super) async fn keep<G>(
        self: Arc<Self>,
        dialer: Arc<Dialer>,
        mut greet: impl FnMut(Wire) -> G + Send,
    ) where
        G: Future<Output = Result<Wire, &'static str>> + Send,
    {
        let mut epoch = 0;
        loop {
            let (wire, closed) = self.redial(&dialer, &mut greet).await;
            epoch += 1;
            self.failures.store(0, Ordering::Relaxed);
            self.state.send_replace(State::Up(epoch, wire));
            tokio::select! {
                () = self.broken.notified() => {}
                () = closed.notified() => {}
            }
            self.state.send_if_modified(|state| {
                let up = matches!(state, State::Up(..));
                if up {
                    *state = State::Mending;
                }
                up
            });
        }
    }

    async fn redial<G>(
        &self,
        dialer: &Dialer,
        greet: &mut (impl FnMut(Wire) -> G + Send),
    ) -> (Wire, Arc<Notify>)
    where
        G: Future<Output = Result<Wire, &'static str>> + Send,
    {
        let began = Instant::now();
        let mut wait = FIRST_WAIT;
        let mut said = false;
        loop {
            let patience = dialer.connect_patience + dialer.patience;
            let made = tokio::time::timeout(patience, async {
                let (wire, closed) = dialer.dial().await.map_err(|error| why(&error))?;
                Ok((greet(wire).await?, closed))
            });
            let why = match made.await {
                Ok(Ok(made)) => {
                    if said {
                        tracing::info!("redis is back");
                    }
                    return made;
                }
                Ok(Err(why)) => why,
                Err(_) => "redis cannot be reached in time",
            };
            if began.elapsed() >= GRACE {
                self.state.send_replace(State::Down(why));
                if !said {
                    said = true;
                    tracing::warn!(why, "there is no connection to redis: trying on");
                }
            }
            tokio::time::sleep(wait.mul_f64(rand::random_range(0.5..1.0))).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }
}

fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Why dialling failed, in words that hold no address and no password.
pub(super) fn why(error: &RedisError) -> &'static str {
    match trouble(error, true) {
        Trouble::Closed => "redis cannot be reached",
        Trouble::Silent(why) | Trouble::Refused(why) => why,
    }
}

fn trouble(error: &RedisError, single: bool) -> Trouble {
    if error.is_timeout() {
        return Trouble::Silent("redis does not answer in time");
    }
    if error.is_connection_dropped() || error.is_connection_refusal() || error.is_io_error() {
        // A Cluster's client has already tried the other nodes.
        let why = "the connection to redis closed";
        return if single { Trouble::Closed } else { Trouble::Silent(why) };
    }
    match error.kind() {
        ErrorKind::AuthenticationFailed => return Trouble::Refused("redis refuses the login"),
        ErrorKind::ClusterConnectionNotFound => {
            return Trouble::Silent("the redis cluster cannot be reached");
        }
        ErrorKind::InvalidClientConfig => {
            return Trouble::Refused("the settings for redis cannot be used");
        }
        _ => {}
    }
    match code(error) {
        "READONLY" | "MASTERDOWN" if single => Trouble::Closed, // a failover: dial the new master
        "CLUSTERDOWN" | "MASTERDOWN" | "READONLY" | "TRYAGAIN" | "MOVED" | "ASK" => {
            Trouble::Silent("this part of the redis cluster is down")
        }
        "LOADING" => Trouble::Silent("redis is loading"),
        "NOPERM" => Trouble::Refused("redis does not permit what the store must do"),
        "OOM" => Trouble::Refused("redis is out of memory"),
        "MISCONF" => Trouble::Refused("redis cannot write to its disk"),
        "NOREPLICAS" => Trouble::Refused("redis has too few replicas to write"),
        "WRONGPASS" | "NOAUTH" => Trouble::Refused("redis refuses the login"),
        _ => Trouble::Refused("redis does not do it"),
    }
}

/// The code that an error answer bears. Before Redis 7 what a script's command fails with is told within
/// the script's own failure: `ERR Error running script (call to f_…): @user_script:9: … -OOM command …`.
fn code(error: &RedisError) -> &str {
    let code = error.code().unwrap_or_default();
    let within = error
        .detail()
        .filter(|detail| code == "ERR" && detail.starts_with("Error running script"))
        .and_then(|detail| detail.split_once(": -"))
        .and_then(|(_, within)| within.split(' ').next());
    within.unwrap_or(code)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn what_a_command_in_a_script_fails_with_is_known_in_every_version() {
        let script = "ERR Error running script (call to f_2cf5): @user_script:9: @user_script: 9:";
        let table = [
            ("OOM command not allowed when used memory > 'maxmemory'.", "out of memory"),
            ("MISCONF Redis is configured to save RDB snapshots", "its disk"),
            ("NOREPLICAS Not enough good replicas to write.", "too few replicas"),
            ("READONLY You can't write against a read only replica.", "closed"),
            ("ERR something else: - and more", "does not do it"),
        ];
        for (answer, expected) in table {
            for line in [format!("-{answer}\r\n"), format!("-{script} -{answer}\r\n")] {
                let value = redis::parse_redis_value(line.as_bytes()).unwrap();
                let error = value.extract_error().unwrap_err();
                let told = match trouble(&error, true) {
                    Trouble::Closed => "closed",
                    Trouble::Silent(why) | Trouble::Refused(why) => why,
                };
                assert!(told.contains(expected), "{line}: {told}");
            }
        }
    }
}
