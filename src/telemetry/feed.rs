//! What the operator's console shows: the last exchanges and what became of tasks, by conversation.
//!
//! An exchange that begins or ends leaves one message in a bounded queue and goes on; when the queue is full the
//! message is dropped and counted, and nobody waits. A task of its own takes the queue to a [`Board`] ten times a
//! second. While nobody reads the board, sound exchanges are taken up to a rate only, so that a page that is closed
//! costs a busy proxy next to nothing; what was refused, noted or broke off is always taken. The board is bounded in conversations, in exchanges and in bytes, whatever clients send, and it is of
//! this process only: what another replica served, or what happened before the start, the ledger tells or nobody.
//!
//! As everywhere here: ids, names, places and codes, and never an argument, a result, a prompt or a key.

mod board;
mod exchange;
mod window;

pub use board::{Board, Filter, Look, Page, Row, Standing, TaskSeen};
pub use exchange::{End, Exchange, FaultSeen, Faults, Subject};
pub use window::{Bucket, SECONDS};

use crate::ledger::event::{Effects, Fact};
use crate::store::ConversationKey;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::MissedTickBehavior;

/// Messages that wait for the board; what comes on top is dropped.
const QUEUE: usize = 16_384;
/// How often they are taken to the board. Nobody is woken by a message.
const TAKE_EVERY: Duration = Duration::from_millis(100);
/// Sound exchanges that are taken between two ticks while nobody reads.
const UNREAD: usize = 256;
/// A board that was read so long ago may be read again.
const READ_LATELY: Duration = Duration::from_secs(60);
/// Messages taken under one lock, so that a reader need not wait for all of them.
const BATCH: usize = 256;

/// One thing that the board is told.
enum Told {
    /// An exchange began or ended.
    Exchange(Box<Exchange>),
    /// The ledger committed these, at that time.
    Facts(ConversationKey, u64, Box<[Fact]>),
}

struct Parts {
    queue: Sender<Told>,
    waiting: Mutex<Option<Receiver<Told>>>,
    dropped: AtomicU64,
    /// How many more sound exchanges are taken before the next tick.
    room: AtomicUsize,
    /// When the board was last read, in milliseconds since 1970.
    read: AtomicU64,
    board: Mutex<Board>,
}

/// Where exchanges and facts are told, and read again. Clones are the same feed.
#[derive(Clone)]
pub struct Feed(Arc<Parts>);

impl Default for Feed {
    fn default() -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        Feed(Arc::new(Parts {
            queue,
            waiting: Mutex::new(Some(waiting)),
            dropped: AtomicU64::new(0),
            room: AtomicUsize::new(UNREAD),
            read: AtomicU64::new(0),
            board: Mutex::new(Board::default()),
        }))
    }
}

impl Feed {
    /// Whether one more sound exchange is taken. One whose beginning was told is to be told to its end.
    #[must_use]
    pub fn takes_one_more(&self) -> bool {
        let less = |room: usize| room.checked_sub(1);
        let taken = self.0.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok();
        if !taken {
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }

    /// An exchange began, or ended. Never waits.
    pub fn exchange(&self, exchange: Exchange) {
        self.tell(Told::Exchange(Box::new(exchange)));
    }

    /// The ledger committed these effects. Never waits.
    pub fn committed(&self, key: &ConversationKey, effects: &Effects) {
        let shown = |fact: &&Fact| !matches!(fact, Fact::CallRegistered { .. });
        let facts: Box<[Fact]> = effects.facts.iter().filter(shown).cloned().collect();
        if !facts.is_empty() {
            self.tell(Told::Facts(key.clone(), millis(SystemTime::now()), facts));
        }
    }

    fn tell(&self, told: Told) {
        if self.0.queue.try_send(told).is_err() {
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many messages found the queue full, or nobody who reads.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    /// Reads the board. What is told meanwhile waits in the queue.
    pub fn read<T>(&self, read: impl FnOnce(&Board) -> T) -> T {
        self.0.read.store(millis(SystemTime::now()), Ordering::Relaxed);
        self.make_room();
        read(&self.0.board.lock())
    }

    fn make_room(&self) {
        let read = Duration::from_millis(self.0.read.load(Ordering::Relaxed)) + READ_LATELY;
        let is_read = read.as_millis() >= u128::from(millis(SystemTime::now()));
        self.0.room.store(if is_read { QUEUE } else { UNREAD }, Ordering::Relaxed);
    }

    /// Takes what is told to the board, for as long as this is polled. A second one at the same time ends at once.
    pub async fn run(self) {
        let Some(mut waiting) = self.0.waiting.lock().take() else { return };
        let mut tick = tokio::time::interval(TAKE_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            self.make_room();
            while self.take(&mut waiting) == BATCH {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Takes at most a batch to the board; gives how many.
    fn take(&self, waiting: &mut Receiver<Told>) -> usize {
        let mut board = self.0.board.lock();
        board.window_mut().reach(millis(SystemTime::now()));
        for taken in 0..BATCH {
            match waiting.try_recv() {
                Ok(Told::Exchange(exchange)) => board.exchange(*exchange),
                Ok(Told::Facts(key, at, facts)) => board.facts(&key, at, &facts),
                Err(_) => return taken,
            }
        }
        BATCH
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").field("dropped", &self.dropped()).finish_non_exhaustive()
    }
}

/// Milliseconds since 1970.
#[must_use]
pub fn millis(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::board::tests::exchange;
    use super::*;

    #[test]
    fn sound_exchanges_are_taken_at_a_rate_until_somebody_reads() {
        let feed = Feed::default();
        let taken = |tries: usize| (0..tries).filter(|_| feed.takes_one_more()).count();
        assert_eq!(taken(UNREAD + 5), UNREAD);
        assert_eq!(feed.dropped(), 5);
        feed.make_room();
        assert_eq!(taken(UNREAD + 1), UNREAD);
        feed.read(|_| ());
        assert_eq!(taken(2 * UNREAD), 2 * UNREAD);
    }

    #[test]
    fn a_full_queue_drops_and_counts_and_nobody_waits() {
        let feed = Feed::default();
        for n in 0..u64::try_from(QUEUE).unwrap() + 5 {
            feed.exchange(exchange("chat", n, 1));
        }
        assert_eq!(feed.dropped(), 5);
        let mut waiting = feed.0.waiting.lock().take().unwrap();
        let mut taken = 0;
        while feed.take(&mut waiting) == BATCH {
            taken += BATCH;
        }
        assert_eq!(taken, QUEUE);
        feed.exchange(exchange("chat", 99_999, 1));
        assert_eq!((feed.dropped(), feed.take(&mut waiting)), (5, 1));
    }
}
