//! The durable store of one process: the working set in memory, a log on the disk.
//!
//! What became of a conversation is appended to the log, or all of it, under its lock and before anybody is told.
//! With [`Durability::Process`] that is one `write`: it survives the end of the process, however it comes.
//! With [`Durability::Machine`] the outcome, and every effect outside, also waits for a sync that it
//! shares with all others that wait: it survives the loss of power. Syncs and disk reads never run on the
//! runtime's threads.
//!
//! Why a log of our own and no general engine, with measurements: `docs/stores.md`.

mod chain;
mod directory;
mod frame;
mod log;
mod recovery;
mod upkeep;

#[cfg(test)]
mod tests;

use super::encoding::EncodingError;
use super::slots::{Clock, Slots};
use super::{Answer, ConversationKey, Listener, Store, StoreError};
use crate::ledger::Conversation;
use crate::ledger::digest::DigestKey;
use crate::ledger::event::{Event, Transition};
use crate::ledger::rules::Rules;
use chain::{Chain, Place, Position, Unrecalled};
use directory::Directory;
use log::{Log, Segment};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

/// What an outcome survives once it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The end of the process.
    Process,
    /// The loss of power.
    Machine,
}

impl Durability {
    /// Its name in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Durability::Process => "process",
            Durability::Machine => "machine",
        }
    }
}

/// Where and how it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The data directory; made if it is not there.
    pub path: PathBuf,
    /// Where the key of the digests is kept; `None`: in the data directory.
    pub key_file: Option<PathBuf>,
    /// What an outcome survives.
    pub durability: Durability,
    /// Most conversations per principal.
    pub most_per_principal: usize,
    /// When the log goes on in another file.
    pub segment_bytes: u64,
}

/// A usual size of one file of the log.
pub const SEGMENT_BYTES: u64 = 16 << 20;

/// Why a store cannot be opened. Nothing was changed on the disk.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Something cannot be read or made.
    #[error("{path}: {source}")]
    Io {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process uses it.
    #[error(
        "{path} is used by another process: give each proxy a directory of its own, or let them share a Redis"
    )]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// There are conversations and no key.
    #[error(
        "{path} is missing: the conversations beside it cannot be compared without this key. Bring it back, or move the data directory away to begin anew"
    )]
    KeyMissing {
        /// The key's file.
        path: PathBuf,
    },
    /// The key's file holds something else.
    #[error("{path} must hold 64 hexadecimal digits and nothing else")]
    KeyForm {
        /// The key's file.
        path: PathBuf,
    },
    /// The conversations were kept under another key.
    #[error(
        "{path} was written with another key: set store.key_file to the one it was written with"
    )]
    OtherKey {
        /// The segment.
        path: PathBuf,
    },
    /// A newer version wrote it.
    #[error(
        "{path} holds {format}: a newer version wrote it. Run that version, or move the data directory away to begin anew"
    )]
    Newer {
        /// The segment.
        path: PathBuf,
        /// What is newer.
        format: String,
    },
    /// A part of it is gone.
    #[error(
        "{path} is missing. Bring it back from where it went, or move the data directory away to begin anew"
    )]
    Missing {
        /// The segment.
        path: PathBuf,
    },
    /// It is damaged.
    #[error(
        "{path} is damaged at byte {offset}: {why}. Nothing was changed. Bring it back from a copy, or move the data directory away to begin anew"
    )]
    Damaged {
        /// The segment.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong.
        why: String,
    },
}

impl OpenError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> OpenError {
        let path = path.to_owned();
        move |source| OpenError::Io { path, source }
    }
}

/// Keeps ledgers in memory and on the disk.
pub struct EmbeddedStore {
    slots: Arc<Slots<Arc<Log>>>,
    threads: Vec<JoinHandle<()>>,
    /// Deleted when all else is gone.
    #[cfg(test)]
    scratch: Option<tempfile::TempDir>,
}

impl std::fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedStore").field("conversations", &self.conversations()).finish()
    }
}

impl EmbeddedStore {
    /// Opens a store, or makes one. Reads everything: it blocks for about a second per gigabyte.
    ///
    /// # Errors
    /// When the directory cannot be used, or what is in it cannot be understood.
    pub fn open(
        options: &Options,
        clock: Clock,
        listener: Arc<dyn Listener>,
    ) -> Result<Self, OpenError> {
        let directory = Directory::take(&options.path)?;
        let used = !directory.segments()?.is_empty();
        let key = directory.key(options.key_file.as_deref(), rand::random(), used)?;
        let found = recovery::recover(&directory, &key)?;
        if found.cut > 0 {
            tracing::warn!(bytes = found.cut, "the store's last record was not whole; it is gone");
        }
        let mut segments = found.segments;
        let (file, end) = match found.last {
            Some(last) => last,
            None => {
                let end = Position { segment: 1, offset: frame::HEAD as u64 };
                let head = frame::head(end.segment, &key);
                let path = directory.segment(end.segment);
                let file = directory.create(end.segment, &head).map_err(OpenError::io(&path))?;
                let file = Arc::new(file);
                segments.insert(end.segment, Segment { file: Arc::clone(&file), end: None });
                (file, end)
            }
        };
        let (durability, segment_bytes) = (options.durability, options.segment_bytes);
        let log =
            Log::new(directory, key.clone(), durability, segment_bytes, segments, (file, end));
        let log = Arc::new(log);
        let most = options.most_per_principal;
        let slots = Arc::new(Slots::new(key, clock, listener, most, Arc::clone(&log)));
        let mut states: Vec<_> = found.states.into_iter().collect();
        states.sort_unstable_by_key(|(_, place)| *place);
        for (key, chain) in states {
            adopt(&log, &slots, &key, chain)?;
        }
        let threads = start_threads(&log, &slots).map_err(OpenError::io(&options.path))?;
        Ok(EmbeddedStore {
            slots,
            threads,
            #[cfg(test)]
            scratch: None,
        })
    }

    fn log(&self) -> &Log {
        &self.slots.backing
    }

    /// A conversation that left memory comes back, without blocking the runtime.
    async fn warm(&self, key: &ConversationKey) -> Result<(), StoreError> {
        if !self.slots.is_cold(key) {
            return Ok(());
        }
        let (slots, key) = (Arc::clone(&self.slots), key.clone());
        let read = tokio::task::spawn_blocking(move || slots.warm(&key)).await;
        read.map_err(|_| StoreError::Unavailable("a read of its disk was given up"))?
    }
}

/// Takes in what stands there.
fn adopt(
    log: &Log,
    slots: &Slots<Arc<Log>>,
    key: &[u8; 32],
    chain: Chain,
) -> Result<(), OpenError> {
    let damaged = |place: Place, why: String| {
        let path = log.directory.segment(place.at.segment);
        OpenError::Damaged { path, offset: place.at.offset, why }
    };
    match log.recall(key, chain) {
        Ok(kept) => {
            log.live.fetch_add(chain.bytes(), Ordering::Relaxed);
            slots.adopt(frame::key_of(key), chain, kept);
            Ok(())
        }
        Err(Unrecalled::Io(error)) => {
            Err(OpenError::io(&log.directory.segment(chain.last.at.segment))(error))
        }
        Err(Unrecalled::Broken(place)) => Err(damaged(place, "it changed meanwhile".to_owned())),
        Err(Unrecalled::Encoding(newer @ EncodingError::Newer(_))) => {
            let path = log.directory.segment(chain.last.at.segment);
            Err(OpenError::Newer { path, format: format!("a conversation {newer}") })
        }
        Err(Unrecalled::Encoding(EncodingError::Damaged(why))) => {
            Err(damaged(chain.last, format!("no conversation: {why}")))
        }
    }
}

fn start_threads(log: &Arc<Log>, slots: &Arc<Slots<Arc<Log>>>) -> io::Result<Vec<JoinHandle<()>>> {
    let mut threads = Vec::new();
    let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
    if log.durability == Durability::Machine {
        let log = Arc::clone(log);
        threads.push(named("store-sync").spawn(move || upkeep::sync_when_asked(&log))?);
    }
    let (log, slots) = (Arc::clone(log), Arc::downgrade(slots));
    threads.push(named("store-upkeep").spawn(move || upkeep::keep_up(&log, &slots))?);
    Ok(threads)
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.log().ask(|wanted| wanted.stop = true);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Store for EmbeddedStore {
    fn digest_key(&self) -> &DigestKey {
        &self.slots.key
    }

    fn apply<'a>(
        &'a self,
        key: &'a ConversationKey,
        event: Event,
        rules: &'a Arc<Rules>,
    ) -> Answer<'a, Transition> {
        Box::pin(async move {
            self.log().usable()?;
            self.warm(key).await?;
            let (transition, place) = self.slots.apply(key, &event, rules)?;
            self.log().durable(place).await?;
            Ok(transition)
        })
    }

    fn remove<'a>(&'a self, key: &'a ConversationKey) -> Answer<'a, bool> {
        Box::pin(async move {
            // One that cannot be read can be forgotten all the same.
            let _ = self.warm(key).await;
            let (there, place) = self.slots.remove(key)?;
            self.log().durable(place).await?;
            Ok(there)
        })
    }

    fn read<'a>(&'a self, key: &'a ConversationKey) -> Answer<'a, Option<Conversation>> {
        Box::pin(async move {
            self.warm(key).await?;
            let (conversation, place) = self.slots.read(key)?;
            self.log().durable(place).await?;
            Ok(conversation)
        })
    }

    fn sweep<'a>(&'a self, rules: &'a Arc<Rules>) -> Answer<'a, ()> {
        Box::pin(async move {
            let place = self.slots.sweep(rules)?;
            self.log().durable(place).await
        })
    }

    fn ready(&self) -> Answer<'_, ()> {
        let refusing = self.log().refusing.load(Ordering::Acquire);
        let ready = self.log().usable().and(if refusing {
            Err(StoreError::Unavailable("its disk cannot be written"))
        } else {
            Ok(())
        });
        Box::pin(std::future::ready(ready))
    }

    fn conversations(&self) -> usize {
        self.slots.slots.len()
    }
}
