//! The threads of the log: one syncs (`durability = "machine"`), one keeps the log short.
//!
//! **Group commit**: all that was appended while a sync ran goes with the next one.
//!
//! **Cleaning** is oldest first. Conversations of which anything stands in the oldest segment are appended anew,
//! whole, then the segment is deleted. What a conversation's changes follow is older than they are, so these are the
//! conversations whose whole record is there. As nothing is older, marks of removed conversations need not be
//! kept. It begins when the log is more than twice as long as what is in it, and four segments: so a conversation is
//! copied once for each time that the log doubles, and disk use is bounded.

use super::chain::{Chain, Position};
use super::frame::{self, HEAD, Kind, Record};
use super::log::{Log, Segment};
use crate::store::slots::Slots;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often a log that changed is brought to the disk, whatever the durability.
const EVERY: Duration = Duration::from_secs(1);

/// Syncs whenever somebody waits for it.
pub(super) fn sync_when_asked(log: &Log) {
    loop {
        {
            let mut wanted = log.wanted.lock();
            while !wanted.sync && !wanted.stop {
                log.wake.wait(&mut wanted);
            }
            if wanted.stop {
                return;
            }
            wanted.sync = false;
        }
        if let Err(error) = log.sync() {
            tracing::error!(%error, "the store's disk does not confirm what is written");
        }
    }
}

/// Once a second, or when a segment is full.
pub(super) fn keep_up(log: &Log, slots: &Weak<Slots<Arc<Log>>>) {
    let mut marked = Position::default();
    loop {
        let stop = {
            let mut wanted = log.wanted.lock();
            if !wanted.upkeep && !wanted.stop {
                let _ = log.wake.wait_for(&mut wanted, EVERY);
            }
            wanted.upkeep = false;
            wanted.stop
        };
        if let Err(error) = round(log, slots, &mut marked) {
            tracing::warn!(%error, "the store's files cannot be kept up");
        }
        if stop {
            return;
        }
    }
}

fn round(log: &Log, slots: &Weak<Slots<Arc<Log>>>, marked: &mut Position) -> io::Result<()> {
    if log.failed.load(Ordering::Acquire) {
        return Ok(());
    }
    if log.active.lock().end.offset > log.segment_bytes {
        log.roll()?;
    }
    // After a record that did not go out this one tells whether there is space again. Cleaning goes on
    // meanwhile: it may make some.
    let marking = mark(log, marked);
    while let (Some(slots), Some(oldest)) = (slots.upgrade(), log.superfluous()) {
        log.clean(oldest, &slots)?;
    }
    marking
}

/// Says in the log up to where it is on the disk, if it went on since.
fn mark(log: &Log, marked: &mut Position) -> io::Result<()> {
    if log.active.lock().end == *marked && !log.refusing.load(Ordering::Acquire) {
        return Ok(());
    }
    let payload = log.sync()?.bytes();
    let record = Record { kind: Kind::Synced, key: &[0; 32], payload: &payload };
    *marked = log.append(&record)?.end();
    Ok(())
}

impl Log {
    /// Goes on in a new segment.
    pub(super) fn roll(&self) -> io::Result<()> {
        let number = self.active.lock().end.segment + 1;
        let file = Arc::new(self.directory.create(number, &frame::head(number, &self.key))?);
        let begin = Position { segment: number, offset: HEAD as u64 };
        let mut segments = self.segments.write();
        let mut active = self.active.lock();
        if active.torn {
            active.file.set_len(active.end.offset)?;
            active.torn = false;
        }
        if let Some(before) = segments.get_mut(&active.end.segment) {
            before.end = Some(active.end.offset);
        }
        segments.insert(number, Segment { file: Arc::clone(&file), end: None });
        let before = std::mem::replace(&mut active.file, file);
        active.unsynced.push(before);
        active.end = begin;
        Ok(())
    }

    /// The oldest segment, when the log is longer than it need be.
    pub(super) fn superfluous(&self) -> Option<u64> {
        let segments = self.segments.read();
        let sealed: u64 = segments.values().filter_map(|one| one.end).sum();
        let allowed = 2 * self.live.load(Ordering::Relaxed) + 4 * self.segment_bytes;
        let (oldest, segment) = segments.first_key_value()?;
        (sealed > allowed && segment.end.is_some()).then_some(*oldest)
    }

    /// Moves what is still needed of the oldest segment to the end of the log, and deletes it.
    fn clean(&self, number: u64, slots: &Slots<Arc<Log>>) -> io::Result<()> {
        let segment = self.segments.read().get(&number).map(|one| (Arc::clone(&one.file), one.end));
        let Some((file, Some(end))) = segment else { return Ok(()) };
        let mut bytes = vec![0; usize::try_from(end).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, 0)?;
        let mut at = HEAD;
        while at < bytes.len() {
            let broken = || io::Error::other(format!("segment {number} is damaged at byte {at}"));
            let record = frame::unchecked(&bytes, at).map_err(|_| broken())?;
            let position = Position { segment: number, offset: at as u64 };
            if record.kind == Kind::State {
                let key = frame::key_of(record.key);
                let there = |chain: Chain| chain.whole == position;
                let moved = slots.rewrite(&key, there, |used, conversation, before| {
                    self.put_whole(&key, used, conversation, Some(before))
                });
                moved.map_err(io::Error::other)?;
            }
            at += record.size();
        }
        self.sync()?;
        self.segments.write().remove(&number);
        self.directory.delete(number)
    }
}
