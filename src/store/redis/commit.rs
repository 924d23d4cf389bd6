//! One event on one conversation: read, let the state machine decide, write if nobody wrote in between.
//!
//! ```text
//! last seen here, or read ──► decide ──► write, if the version is still that ──► told, done
//!        ▲                                     │
//!        └──── the newer state, in the reply ──┘ somebody wrote
//! ```
//! Events of one conversation take turns on a replica, so that only replicas can collide. The work runs in
//! a task of its own to its end, though whoever asked goes away or stops polling: a write whose effects
//! nobody tells, or a turn that nobody gives up, would be worse than an answer that nobody hears.

use super::agenda::Agenda;
use super::cache::Cache;
use super::clock::{ServerClock, TOLERANCE};
use super::frame::{Seen, Stand, Version};
use super::gathering::Wanted;
use super::link::Link;
use super::names::Names;
use super::push;
use super::script::{Reply, Script, Scripts, expected};
use crate::ledger::Conversation;
use crate::ledger::event::{Effects, Event, Millis, Transition};
use crate::ledger::rules::Rules;
use crate::store::encoding::EncodingError;
use crate::store::memory::Clock;
use crate::store::{ConversationKey, Listener, StoreError};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

/// Turns: two conversations that share one wait for each other, which costs time and nothing else.
const TURNS: usize = 4096;
/// A key outlives its conversation by this, so that the sweep of a replica finds it and tells its end.
const AFTERLIFE: Millis = Millis(120_000);

/// All that the store's work needs.
pub(super) struct Core {
    pub(super) link: Arc<Link>,
    pub(super) scripts: Scripts,
    pub(super) names: Names,
    pub(super) server_clock: ServerClock,
    /// In place of the server's clock, for tests.
    pub(super) clock: Option<Clock>,
    pub(super) cache: Cache,
    pub(super) agenda: Agenda,
    pub(super) wanted: Wanted,
    pub(super) turns: Turns,
    pub(super) listener: Arc<dyn Listener>,
    pub(super) origin: u64,
    pub(super) most_per_principal: usize,
    pub(super) budget: Duration,
    /// `PUBLISH` or `SPUBLISH`, once we know.
    pub(super) publish: Arc<OnceLock<&'static str>>,
    pub(super) tasks: TaskTracker,
    pub(super) round_trips: AtomicU64,
}

/// One event at a time per conversation, on this replica.
pub(super) struct Turns(Vec<Mutex<()>>, RandomState);

impl Default for Turns {
    fn default() -> Self {
        Turns((0..TURNS).map(|_| Mutex::default()).collect(), RandomState::new())
    }
}

impl Turns {
    pub(super) async fn take(
        &self,
        key: &ConversationKey,
        until: Instant,
    ) -> Result<MutexGuard<'_, ()>, StoreError> {
        let turn = &self.0[self.1.hash_one(key) as usize % TURNS];
        let taken = tokio::time::timeout_at(until, turn.lock()).await;
        taken.map_err(|_| StoreError::Unavailable("redis is too slow"))
    }
}

/// What became of a write.
#[derive(Debug)]
pub(super) enum Written {
    Done,
    /// Somebody wrote: this is there now.
    Newer(Seen),
    /// Our clock was off; it has been set.
    Again,
}

/// The time of one attempt.
#[derive(Clone, Copy)]
pub(super) struct Time {
    /// As the clock says: the server refuses it when it is off.
    pub(super) clock: Millis,
    /// As the event takes it: never before the conversation's last.
    pub(super) now: Millis,
}

/// How far one attempt came.
enum Attempt {
    Decided(Transition),
    /// Begin again; with that, if it is known.
    Again(Option<Seen>),
}

impl Core {
    /// Applies an event.
    pub(super) async fn apply(
        self: Arc<Self>,
        key: ConversationKey,
        event: Event,
        rules: Arc<Rules>,
    ) -> Result<Transition, StoreError> {
        let until = Instant::now() + self.budget;
        let _turn = self.turns.take(&key, until).await?;
        let mut seen = self.cache.take(&key);
        let mut tries = 0;
        loop {
            let state = match seen.take() {
                Some(state) => state,
                None => self.read(&key, until).await?,
            };
            match self.attempt(&key, &event, &rules, state, until).await? {
                Attempt::Decided(transition) => return Ok(transition),
                Attempt::Again(newer) => seen = newer,
            }
            tries += 1;
            pause(tries, until).await?;
        }
    }

    async fn attempt(
        self: &Arc<Self>,
        key: &ConversationKey,
        event: &Event,
        rules: &Rules,
        mut state: Seen,
        until: Instant,
    ) -> Result<Attempt, StoreError> {
        let time = self.time_of(&state);
        let now = time.now;
        if state.version.is_some() && state.used.after(rules.ttl) <= now {
            return self.expire(key, state, time, until).await.map(Attempt::Again);
        }
        let (is_tick, there) = (matches!(event, Event::Tick), state.stand());
        let before = is_tick.then(|| Conversation::clone(&state.conversation));
        let transition = Arc::make_mut(&mut state.conversation).apply(event, rules, now);
        if before.is_some_and(|before| before == *state.conversation) {
            self.look_again(key, &state, rules);
            // That there is none is not remembered: another replica may begin it.
            if there.version.is_some() {
                self.cache.put(key, state);
            }
            return Ok(Attempt::Decided(transition));
        }
        let begins = matches!(event, Event::Admit(_) | Event::Advance(_));
        let is_empty = *state.conversation == Conversation::default();
        if there.version.is_none() && (is_empty || !begins) {
            // There is nothing, as we have just read, and nothing comes of it.
            self.tell(key, &transition.effects);
            return Ok(Attempt::Decided(transition));
        }
        let version = Version::after(there.version, rand::random());
        state.version = (!is_empty).then_some(version);
        (state.stamp, state.used) = (now, if is_tick { state.used } else { now });
        match self.commit(key, there, state, rules, time, until).await? {
            Written::Done => {}
            Written::Newer(newer) => return Ok(Attempt::Again(Some(newer))),
            Written::Again => return Ok(Attempt::Again(None)),
        }
        self.tell(key, &transition.effects);
        self.publish(key, &transition.effects);
        Ok(Attempt::Decided(transition))
    }

    /// Writes what an event made of a conversation, if what was `there` still is.
    async fn commit(
        self: &Arc<Self>,
        key: &ConversationKey,
        there: Stand,
        mut next: Seen,
        rules: &Rules,
        time: Time,
        until: Instant,
    ) -> Result<Written, StoreError> {
        let placed_until = match there.version {
            None => Some(self.hold_place(key, next.used, rules, until).await?),
            Some(_) => None,
        };
        let conversation = Arc::clone(&next.conversation);
        let (listed, written) = tokio::join!(
            self.list_deadline(key, &conversation, rules),
            self.write(key, there, &mut next, rules, time, until),
        );
        drop(conversation);
        let written = written?;
        if !matches!(written, Written::Done) {
            return Ok(written);
        }
        if listed.is_some() {
            // When it is not in the agenda yet, it is listed once more.
            let _ = self.agenda.listed(key, listed, time.now);
        }
        if next.version.is_none() {
            self.ended(key, until).await;
        } else {
            next.written();
            self.lives(key, next, placed_until, rules);
        }
        Ok(written)
    }

    /// Takes out what nobody used for too long; gives what is there then.
    async fn expire(
        self: &Arc<Self>,
        key: &ConversationKey,
        state: Seen,
        time: Time,
        until: Instant,
    ) -> Result<Option<Seen>, StoreError> {
        Ok(match self.take_out(key, &state, time, until).await? {
            Written::Done => Some(Seen::default()),
            Written::Newer(newer) => Some(newer),
            Written::Again => Some(state),
        })
    }

    /// What is there now.
    pub(super) async fn read(
        &self,
        key: &ConversationKey,
        until: Instant,
    ) -> Result<Seen, StoreError> {
        let name = self.names.conversation(key);
        let reply = self.ask(&self.scripts.read, &[&name], &[], until).await?;
        seen(reply.bytes())
    }

    /// Writes `next` if what was `there` still is. A `next` without a version deletes.
    pub(super) async fn write(
        &self,
        key: &ConversationKey,
        there: Stand,
        next: &mut Seen,
        rules: &Rules,
        time: Time,
        until: Instant,
    ) -> Result<Written, StoreError> {
        let writing = next.writing(there).map_err(|error| unwritable(&error))?;
        let name = self.names.conversation(key);
        let life = next.used.after(rules.ttl).after(AFTERLIFE).since(time.now).0.max(1);
        // No more than Redis can add to its time.
        let life = life.min(i64::MAX as u64 / 4).to_string();
        let ours = if self.clock.is_some() { 0 } else { time.clock.0 }.to_string();
        let tolerance = TOLERANCE.0.to_string();
        let arguments = [
            expected(there.version.as_ref()),
            &writing.value,
            life.as_bytes(),
            ours.as_bytes(),
            tolerance.as_bytes(),
            &writing.change,
        ];
        let reply = self.ask(&self.scripts.write, &[&name], &arguments, until).await;
        let reply = reply.inspect_err(|_| self.cache.forget(key))?;
        match reply.number() {
            Some(1) => Ok(Written::Done),
            Some(0) => {
                self.cache.forget(key);
                Ok(Written::Newer(seen(reply.bytes())?))
            }
            Some(2) => Ok(Written::Again),
            _ => Err(StoreError::Unavailable("redis answered something else")),
        }
    }

    /// Asks a script, and learns the server's time from its reply.
    pub(super) async fn ask(
        &self,
        script: &Script,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        until: Instant,
    ) -> Result<Reply, StoreError> {
        self.round_trips.fetch_add(1, Ordering::Relaxed);
        let (reply, sent, received) = self.link.run(script, keys, arguments, until).await?;
        self.server_clock.observe(reply.now, sent.into_std(), received.into_std());
        Ok(reply)
    }

    /// What time it is by the store's clock.
    pub(super) fn now(&self) -> Millis {
        match &self.clock {
            Some(clock) => clock(),
            None => self.server_clock.now(Instant::now().into_std()),
        }
    }

    pub(super) fn time_of(&self, state: &Seen) -> Time {
        let clock = self.now();
        Time { clock, now: clock.max(state.stamp) }
    }

    fn lives(
        self: &Arc<Self>,
        key: &ConversationKey,
        next: Seen,
        placed_until: Option<Millis>,
        rules: &Rules,
    ) {
        let (used, stamp) = (next.used, next.stamp);
        let known = self.look_again(key, &next, rules);
        self.cache.put(key, next);
        if let Some(until) = placed_until {
            self.agenda.placed(key, until);
        } else if known < used.after(rules.ttl) {
            self.renew_place(key, used.max(stamp), rules);
        }
    }

    pub(super) async fn ended(self: &Arc<Self>, key: &ConversationKey, until: Instant) {
        self.cache.forget(key);
        self.gone(key);
        self.give_up_place(key, until).await;
    }

    pub(super) fn tell(&self, key: &ConversationKey, effects: &Effects) {
        if *effects != Effects::default() {
            self.listener.committed(key, effects);
        }
    }

    /// Tells the other replicas what to cut.
    pub(super) fn publish(self: &Arc<Self>, key: &ConversationKey, effects: &Effects) {
        let Some(publish) = self.publish.get().filter(|_| !effects.cancel.is_empty()) else {
            return;
        };
        let mut command = redis::cmd(publish);
        command.arg(self.names.channel.as_str());
        command.arg(push::write(self.origin, key, &effects.cancel));
        let core = Arc::clone(self);
        self.tasks.spawn(async move {
            core.link.tell(&command, Instant::now() + core.budget).await;
        });
    }
}

/// After a lost race, for a moment: longer each time, and not as long as the others.
pub(super) async fn pause(tries: u32, until: Instant) -> Result<(), StoreError> {
    if Instant::now() >= until {
        return Err(StoreError::Unavailable("too many write to this conversation"));
    }
    if tries > 1 {
        let most = 200_u64 << tries.min(8);
        tokio::time::sleep(Duration::from_micros(rand::random_range(0..most))).await;
    }
    Ok(())
}

fn unwritable(error: &EncodingError) -> StoreError {
    tracing::error!(%error, "a conversation cannot be encoded");
    StoreError::Unavailable("the conversation cannot be encoded")
}

pub(super) fn seen(bytes: &[u8]) -> Result<Seen, StoreError> {
    Seen::from_bytes(bytes).map_err(|error| {
        tracing::error!(%error, "a conversation in redis cannot be read");
        match error {
            EncodingError::Newer(_) => {
                StoreError::Unavailable("a newer version of this program wrote the conversation")
            }
            EncodingError::Damaged(_) => StoreError::Unavailable("the conversation is damaged"),
        }
    })
}
