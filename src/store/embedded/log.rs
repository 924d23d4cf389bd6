//! The log: where records are appended, and where they are read again.
//!
//! One file at a time is written, at an offset that only a whole record moves. A record that did not go
//! out whole (no space left) is cut off again before anything else is written, so the log goes on by
//! itself once there is space. A failed *sync* is another matter: nobody can say what is on the disk then,
//! so the log takes nothing more, and a restart reads what is really there.

use super::super::encoding::{self, Kept};
use super::super::slots::Backing;
use super::super::{ConversationKey, Listener, StoreError};
use super::Durability;
use super::chain::{Chain, Place, Position, Unrecalled};
use super::directory::Directory;
use super::frame::{self, Kind, RECORD, Record};
use crate::ledger::Conversation;
use crate::ledger::digest::DigestKey;
use crate::ledger::event::{Effects, Millis};
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::watch;

/// By how much an event lets a conversation grow, as a rule: what is written is then gathered without moving it.
const GROWTH: usize = 512;

/// The segment that is written.
pub(super) struct Active {
    pub(super) file: Arc<File>,
    pub(super) end: Position,
    /// Something of a record that failed stands behind `end`.
    pub(super) torn: bool,
    /// Earlier segments whose last bytes may not be on the disk yet.
    pub(super) unsynced: Vec<Arc<File>>,
}

/// One file of the log.
pub(super) struct Segment {
    pub(super) file: Arc<File>,
    /// Where its records end. `None`: it is the one being written.
    pub(super) end: Option<u64>,
}

/// Effects that wait until what caused them is on the disk.
struct Untold {
    after: Position,
    listener: Arc<dyn Listener>,
    key: ConversationKey,
    effects: Effects,
}

#[derive(Default)]
struct Telling {
    /// What was caused before this has been told.
    told: Position,
    waiting: Vec<Untold>,
}

/// What the threads are asked to do.
#[derive(Default)]
pub(super) struct Wanted {
    pub(super) sync: bool,
    pub(super) upkeep: bool,
    pub(super) stop: bool,
}

/// The log.
pub(super) struct Log {
    pub(super) directory: Directory,
    pub(super) key: DigestKey,
    pub(super) durability: Durability,
    pub(super) segment_bytes: u64,
    pub(super) active: Mutex<Active>,
    pub(super) segments: RwLock<BTreeMap<u64, Segment>>,
    /// Bytes of records that are not overtaken by later ones.
    pub(super) live: AtomicU64,
    pub(super) wanted: Mutex<Wanted>,
    pub(super) wake: Condvar,
    pub(super) synced: watch::Sender<Position>,
    /// A sync failed: nothing more is taken.
    pub(super) failed: AtomicBool,
    /// The last record did not go out.
    pub(super) refusing: AtomicBool,
    telling: Mutex<Telling>,
    syncing: Mutex<()>,
    /// How many bytes may still be written before there is no space left.
    #[cfg(test)]
    pub(super) space: AtomicU64,
}

impl Log {
    pub(super) fn new(
        directory: Directory,
        key: DigestKey,
        durability: Durability,
        segment_bytes: u64,
        segments: BTreeMap<u64, Segment>,
        active: (Arc<File>, Position),
    ) -> Self {
        let (file, end) = active;
        Log {
            directory,
            key,
            durability,
            segment_bytes,
            active: Mutex::new(Active { file, end, torn: false, unsynced: Vec::new() }),
            segments: RwLock::new(segments),
            live: AtomicU64::new(0),
            wanted: Mutex::default(),
            wake: Condvar::new(),
            synced: watch::Sender::new(end),
            failed: AtomicBool::new(false),
            refusing: AtomicBool::new(false),
            telling: Mutex::new(Telling { told: end, waiting: Vec::new() }),
            syncing: Mutex::default(),
            #[cfg(test)]
            space: AtomicU64::new(u64::MAX),
        }
    }

    /// Appends a record; gives where it is.
    pub(super) fn append(&self, record: &Record<'_>) -> io::Result<Place> {
        self.append_bytes(record.bytes())
    }

    /// Appends the bytes of a record; `None`: it is too large.
    fn append_bytes(&self, bytes: Option<Vec<u8>>) -> io::Result<Place> {
        let bytes = bytes.ok_or(io::ErrorKind::FileTooLarge)?;
        let size = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let mut active = self.active.lock();
        let written = self.write_whole(&mut active, &bytes);
        self.refusing.store(written.is_err(), Ordering::Release);
        written?;
        let place = Place { at: active.end, size };
        active.end = place.end();
        let full = active.end.offset > self.segment_bytes;
        drop(active);
        if full {
            self.ask(|wanted| wanted.upkeep = true);
        }
        Ok(place)
    }

    /// Writes at the end, or leaves nothing there.
    fn write_whole(&self, active: &mut Active, bytes: &[u8]) -> io::Result<()> {
        if active.torn {
            active.file.set_len(active.end.offset)?;
            active.torn = false;
        }
        let written = self.write(&active.file, bytes, active.end.offset);
        if written.is_err() {
            active.torn = active.file.set_len(active.end.offset).is_err();
        }
        written
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "under test the log knows how much space is left")]
    fn write(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        file.write_all_at(bytes, at)
    }

    #[cfg(test)]
    fn write(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        let space = self.space.load(Ordering::SeqCst);
        let fits = bytes.len().min(usize::try_from(space).unwrap_or(usize::MAX));
        file.write_all_at(&bytes[..fits], at)?;
        if fits < bytes.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let _ =
            self.space.fetch_sub(if space == u64::MAX { 0 } else { fits as u64 }, Ordering::SeqCst);
        Ok(())
    }

    pub(super) fn ask(&self, what: impl FnOnce(&mut Wanted)) {
        what(&mut self.wanted.lock());
        self.wake.notify_all();
    }

    /// The bytes of the record at `place`.
    pub(super) fn read(&self, place: Place) -> io::Result<Vec<u8>> {
        let file = self.segments.read().get(&place.at.segment).map(|one| Arc::clone(&one.file));
        let file = file.ok_or(io::ErrorKind::NotFound)?;
        let mut bytes = vec![0; place.size as usize];
        file.read_exact_at(&mut bytes, place.at.offset)?;
        Ok(bytes)
    }

    /// Whether it takes anything.
    pub(super) fn usable(&self) -> Result<(), StoreError> {
        if self.failed.load(Ordering::Acquire) {
            return Err(StoreError::Unavailable(
                "its disk did not confirm what was written; a restart reads what is there",
            ));
        }
        Ok(())
    }

    /// Waits until what was written at `place` is as durable as configured.
    pub(super) async fn durable(&self, place: Option<Chain>) -> Result<(), StoreError> {
        let (Durability::Machine, Some(place)) = (self.durability, place) else { return Ok(()) };
        let place = place.last;
        let mut synced = self.synced.subscribe();
        if *synced.borrow_and_update() < place.end() {
            self.ask(|wanted| wanted.sync = true);
            let done =
                |synced: &Position| *synced >= place.end() || self.failed.load(Ordering::Acquire);
            let _ = synced.wait_for(done).await;
        }
        let reached = *self.synced.borrow() >= place.end();
        if reached { Ok(()) } else { self.usable() }
    }

    /// Brings all that was appended so far to the disk itself; gives up to where. Called by the threads of
    /// the log only: it takes milliseconds. Appending goes on meanwhile.
    pub(super) fn sync(&self) -> io::Result<Position> {
        let _one_at_a_time = self.syncing.lock();
        let (earlier, file, end) = {
            let active = self.active.lock();
            (active.unsynced.clone(), Arc::clone(&active.file), active.end)
        };
        for file in earlier.iter().chain([&file]) {
            if let Err(error) = file.sync_data() {
                self.sync_failed();
                return Err(error);
            }
        }
        let done = |one: &Arc<File>| earlier.iter().any(|file| Arc::ptr_eq(one, file));
        self.active.lock().unsynced.retain(|one| !done(one));
        self.tell_up_to(end);
        self.synced.send_if_modified(|synced| {
            let on = *synced < end;
            *synced = end.max(*synced);
            on
        });
        Ok(end)
    }

    /// What a process may lose at most is what it keeps by promise of the system; a machine's promise is
    /// broken.
    fn sync_failed(&self) {
        if self.durability == Durability::Machine {
            self.failed.store(true, Ordering::Release);
            self.synced.send_modify(|_| {});
        }
    }

    fn tell_up_to(&self, end: Position) {
        let ready: Vec<Untold> = {
            let mut telling = self.telling.lock();
            telling.told = end.max(telling.told);
            telling.waiting.extract_if(.., |one| one.after <= end).collect()
        };
        for one in ready {
            one.listener.committed(&one.key, &one.effects);
        }
    }

    fn not_written(error: &io::Error) -> StoreError {
        let full = matches!(
            error.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        );
        StoreError::Unavailable(if full {
            "its disk is full"
        } else {
            "its disk cannot be written"
        })
    }

    fn freed(&self, before: Option<Chain>) {
        let size = before.map_or(0, Chain::bytes);
        let _ = self.live.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |live| {
            Some(live.saturating_sub(size))
        });
    }

    /// Appends a conversation, whole: what stood at `before` is of no use any more.
    pub(super) fn put_whole(
        &self,
        key: &ConversationKey,
        used: Millis,
        conversation: &Conversation,
        before: Option<Chain>,
    ) -> Result<Chain, StoreError> {
        let about = before.map_or(RECORD, Chain::room) + GROWTH;
        let mut bytes = frame::begin(Kind::State, &frame::key_bytes(key), about);
        encoding::encode_to(&mut bytes, used, conversation).map_err(|_| UNWRITABLE)?;
        let place =
            self.append_bytes(frame::seal(bytes)).map_err(|error| Log::not_written(&error))?;
        self.live.fetch_add(place.size.into(), Ordering::Relaxed);
        self.freed(before);
        Ok(Chain::of(place))
    }

    /// Appends what became of a conversation since it stood at `before`. `None`: it is to be written whole.
    fn put_change(
        &self,
        key: &ConversationKey,
        used: Millis,
        conversation: &Conversation,
        before: Chain,
    ) -> Result<Option<Chain>, StoreError> {
        let Some(change) = conversation.change().filter(|_| before.has_room()) else {
            return Ok(None);
        };
        let mut bytes = frame::begin(Kind::Change, &frame::key_bytes(key), RECORD + GROWTH);
        bytes.extend_from_slice(&before.last.bytes());
        encoding::encode_change_to(&mut bytes, used, &change).map_err(|_| UNWRITABLE)?;
        let place =
            self.append_bytes(frame::seal(bytes)).map_err(|error| Log::not_written(&error))?;
        self.live.fetch_add(place.size.into(), Ordering::Relaxed);
        Ok(Some(before.with(place)))
    }
}

const UNWRITABLE: StoreError = StoreError::Unavailable("a conversation cannot be written");

impl Backing for Arc<Log> {
    type Place = Chain;

    fn load(&self, key: &ConversationKey, chain: Chain) -> Result<Kept, StoreError> {
        self.recall(&frame::key_bytes(key), chain).map_err(|error| {
            StoreError::Unavailable(match error {
                Unrecalled::Io(_) => "its disk cannot be read",
                _ => "a conversation on its disk is damaged",
            })
        })
    }

    fn put(
        &self,
        key: &ConversationKey,
        used: Millis,
        conversation: &Conversation,
        before: Option<Chain>,
    ) -> Result<Chain, StoreError> {
        self.usable()?;
        if let Some(before) = before
            && let Some(chain) = self.put_change(key, used, conversation, before)?
        {
            return Ok(chain);
        }
        self.put_whole(key, used, conversation, before)
    }

    fn remove(&self, key: &ConversationKey, before: Chain) -> Result<Chain, StoreError> {
        self.usable()?;
        let key = &frame::key_bytes(key);
        let record = Record { kind: Kind::Gone, key, payload: &[] };
        let place = self.append(&record).map_err(|error| Log::not_written(&error))?;
        self.freed(Some(before));
        Ok(Chain::of(place))
    }

    fn tell(
        &self,
        place: Option<Chain>,
        listener: &Arc<dyn Listener>,
        key: &ConversationKey,
        effects: &Effects,
    ) {
        let after = place.map(|place| place.last.end()).unwrap_or_default();
        if self.durability == Durability::Machine {
            let mut telling = self.telling.lock();
            if telling.told < after {
                let (listener, key, effects) = (Arc::clone(listener), key.clone(), effects.clone());
                telling.waiting.push(Untold { after, listener, key, effects });
                drop(telling);
                self.ask(|wanted| wanted.sync = true);
                return;
            }
        }
        listener.committed(key, effects);
    }

    fn reads(&self) -> bool {
        true
    }
}
