//! The task record: one JSON line for each generation when it ends, and for what else can be asked about later.
//!
//! What the ledger committed comes as [`Story`]s to the store's listener, and what the proxy did with one
//! exchange as [`ExchangeFacts`]. Each becomes its line where it is told (`lines`): that costs less than to hand a copy
//! over and to free it elsewhere. The lines of some milliseconds are written at once by a thread of our own (`sink`).
//! Nobody who serves an exchange ever waits for it: what a slow sink or a full disk keeps out is dropped, and counted.
//! `docs/task-record.md` describes the lines, and `docs/task-record.schema.json` is their schema.

mod lines;
mod sink;

pub use sink::rotated;

use super::labels::{ExchangeOutcome, Route};
use super::metrics::Metrics;
use crate::guard::fault::{Code, Fault};
use crate::ledger::event::{ExchangeId, Held, Story};
use crate::policy::Record;
use crate::store::ConversationKey;
use parking_lot::{Condvar, Mutex};
use serde::Serialize;
use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Most bytes that wait to be written.
const MOST_WAITING: usize = 16 << 20;
/// For how long lines are gathered after some were written: each write, and waking the thread for it, costs as much
/// as a line.
const GATHER: Duration = Duration::from_millis(20);
/// How often age is looked at when nothing is written.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Room that is kept for the next line.
const USUAL_LINE: usize = 16 << 10;

thread_local! {
    /// Where each thread writes its lines.
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Takes what is to be recorded. A clone records to the same place; the default one records nothing.
#[derive(Clone, Default)]
pub struct Recorder(Option<Arc<Desk>>);

/// Closes the tray when the last recorder is gone.
struct Desk {
    tray: Arc<Tray>,
    metrics: Metrics,
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.tray.change(|waiting| waiting.closed = true);
    }
}

/// Where lines wait for the thread.
#[derive(Default)]
struct Tray {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    lines: Vec<u8>,
    /// Who wants to hear when all of it is written.
    asked: Vec<Sender<()>>,
    closed: bool,
}

impl Waiting {
    /// Whether nothing may be gathered any more.
    fn is_urgent(&self) -> bool {
        self.closed || !self.asked.is_empty()
    }
}

impl Tray {
    fn change<T>(&self, change: impl FnOnce(&mut Waiting) -> T) -> T {
        let changed = change(&mut self.waiting.lock());
        self.changed.notify_one();
        changed
    }
}

/// What the proxy did with one exchange that the ledger's record cannot tell of: it was refused, something was
/// noted, or nothing of it is remembered.
#[derive(Debug)]
pub struct ExchangeFacts {
    /// The id that the client knows.
    pub request_id: String,
    /// The id that we minted.
    pub exchange: ExchangeId,
    /// The id that the upstream knows, if it is ours.
    pub rid: Option<String>,
    /// Whose conversation, if it named one.
    pub key: Option<ConversationKey>,
    /// The generation: its own, or the one that was current when it was refused.
    pub generation: Option<u64>,
    /// The ledger's count of attempts; 0 when nothing of it is remembered.
    pub attempt: u32,
    /// What was asked for.
    pub route: Route,
    /// Whether the answer was a stream.
    pub stream: bool,
    /// How it ended.
    pub outcome: ExchangeOutcome,
    /// The status that the client got.
    pub status: Option<u16>,
    /// How long it took.
    pub took: Duration,
    /// What it was refused for.
    pub faults: Vec<Fault>,
    /// What was let through and noted.
    pub notes: Vec<Fault>,
    /// What enforcing would have refused it for, where the operator only watches.
    pub would_refuse: Vec<Code>,
    /// The calls that the faults are about, as the ledger held them.
    pub held: Vec<Held>,
}

impl Recorder {
    /// Begins to record as configured; where no file is, nothing is recorded.
    ///
    /// # Errors
    /// When the file cannot be written or the thread cannot start.
    pub fn start(record: &Record, metrics: Metrics) -> io::Result<Recorder> {
        let Some(mut sink) = sink::Sink::open(record, SystemTime::now())? else {
            return Ok(Recorder::default());
        };
        let tray = Arc::new(Tray::default());
        let writer = Writer { tray: Arc::clone(&tray), metrics: metrics.clone() };
        std::thread::Builder::new()
            .name("task-record".to_owned())
            .spawn(move || writer.write_all(&mut sink))?;
        Ok(Recorder(Some(Arc::new(Desk { tray, metrics }))))
    }

    /// Whether anything is recorded: who has work with what he would tell may ask.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// The ledger committed these. Does not wait for the file.
    pub fn stories(&self, key: &ConversationKey, stories: &[Story]) {
        if let Some(desk) = &self.0 {
            for story in stories {
                desk.write(&lines::of_story(key, story));
            }
        }
    }

    /// An exchange ended just now. Does not wait for the file.
    pub fn exchange(&self, facts: &ExchangeFacts) {
        if let Some(desk) = &self.0 {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let at = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
            desk.write(&lines::of_exchange(at, facts));
        }
    }

    /// Waits until all that was told is written, or `patience` is over. Whether it was.
    #[must_use]
    pub fn flush(&self, patience: Duration) -> bool {
        let Some(desk) = &self.0 else { return true };
        let (done, wait) = channel();
        desk.tray.change(|waiting| waiting.asked.push(done));
        wait.recv_timeout(patience).is_ok()
    }
}

impl Desk {
    fn write(&self, told: &impl Serialize) {
        LINE.with_borrow_mut(|line| {
            line.clear();
            // Values of ours always have a text, and a vector takes it.
            if serde_json::to_writer(&mut *line, told).is_ok() {
                line.push(b'\n');
                self.put(line);
            }
            line.shrink_to(USUAL_LINE);
        });
    }

    fn put(&self, line: &[u8]) {
        let mut waiting = self.tray.waiting.lock();
        let fits = waiting.lines.len() + line.len() <= MOST_WAITING;
        let first = waiting.lines.is_empty();
        if fits {
            waiting.lines.extend_from_slice(line);
        }
        drop(waiting);
        if !fits {
            self.metrics.record_dropped(1);
        } else if first {
            self.tray.changed.notify_one();
        }
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Recorder").field(&self.is_on()).finish()
    }
}

/// The thread that writes the lines.
struct Writer {
    tray: Arc<Tray>,
    metrics: Metrics,
}

impl Writer {
    /// Until nobody can tell anything any more.
    fn write_all(&self, sink: &mut sink::Sink) {
        let mut lines = Vec::new();
        loop {
            let (asked, closed) = self.next(sink, &mut lines);
            self.put_down(sink, &lines);
            lines.clear();
            for done in asked {
                let _ = done.send(());
            }
            if closed {
                return;
            }
            self.gather();
        }
    }

    /// Waits until something is to be done, and takes it.
    fn next(&self, sink: &mut sink::Sink, lines: &mut Vec<u8>) -> (Vec<Sender<()>>, bool) {
        let mut waiting = self.tray.waiting.lock();
        while waiting.lines.is_empty() && !waiting.is_urgent() {
            let slept = self.tray.changed.wait_for(&mut waiting, LOOK_EVERY);
            if slept.timed_out() {
                parking_lot::MutexGuard::unlocked(&mut waiting, || sink.look(SystemTime::now()));
            }
        }
        std::mem::swap(lines, &mut waiting.lines);
        (std::mem::take(&mut waiting.asked), waiting.closed)
    }

    /// Lets lines come together, unless somebody waits for them.
    fn gather(&self) {
        let until = Instant::now() + GATHER;
        let mut waiting = self.tray.waiting.lock();
        while !waiting.is_urgent() {
            if self.tray.changed.wait_until(&mut waiting, until).timed_out() {
                return;
            }
        }
    }

    fn put_down(&self, sink: &mut sink::Sink, lines: &[u8]) {
        let mut rest = lines;
        while !rest.is_empty() {
            let (some, others) = rest.split_at(sink.takes(rest));
            if let Err(error) = sink.write(some, SystemTime::now()) {
                let lines = memchr::memchr_iter(b'\n', some).count() as u64;
                self.metrics.record_dropped(lines);
                tracing::warn!(%error, lines, "the task record cannot be written");
            }
            rest = others;
        }
    }
}
