//! The task record: one JSON line for each generation when it ends, and for what else can be asked about later.
//!
//! What the ledger committed comes as [`Story`]s to the store's listener, and what the proxy did with one
//! exchange as [`ExchangeFacts`]. Both are handed to a thread of our own over a queue whose memory is bounded;
//! the thread makes the lines (`lines`) and writes them (`sink`). Nobody who serves an exchange ever waits
//! for it: what a slow sink or a full disk keeps out is dropped, and counted. `docs/task-record.md` describes the
//! lines, and `docs/task-record.schema.json` is their schema.

mod lines;
mod sink;

pub use sink::rotated;

use super::labels::{ExchangeOutcome, Route};
use super::metrics::Metrics;
use crate::guard::fault::{Code, Fault};
use crate::ledger::event::{ExchangeId, Held, Story};
use crate::policy::Record;
use crate::store::ConversationKey;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Most that waits to be written, in exchanges, calls and faults: some tens of megabytes at worst.
const MOST_WAITING: usize = 65_536;
/// About how many bytes are written at once.
const BATCH: usize = 64 << 10;
/// How often age is looked at when nothing is written.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Takes what is to be recorded. A clone records to the same place; the default one records nothing.
#[derive(Clone, Default)]
pub struct Recorder(Option<Arc<Desk>>);

struct Desk {
    entries: Sender<Message>,
    waiting: Arc<AtomicUsize>,
    metrics: Metrics,
}

/// What goes over the queue.
enum Message {
    Entry(Box<Entry>),
    /// All before it is to be written, and that to be said.
    Flush(Sender<()>),
}

/// What becomes one line.
#[derive(Debug)]
pub(super) enum Entry {
    /// Of the ledger.
    Story(ConversationKey, Story),
    /// Of one exchange, with the moment it ended, in milliseconds.
    Exchange(u64, ExchangeFacts),
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

impl Entry {
    fn weight(&self) -> usize {
        match self {
            Entry::Story(_, story) => story.weight(),
            Entry::Exchange(_, facts) => 1 + facts.faults.len() + facts.notes.len(),
        }
    }
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
        let (entries, written) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let mut desk = Writer { waiting: Arc::clone(&waiting), metrics: metrics.clone() };
        std::thread::Builder::new()
            .name("task-record".to_owned())
            .spawn(move || desk.write_all(&mut sink, &written))?;
        Ok(Recorder(Some(Arc::new(Desk { entries, waiting, metrics }))))
    }

    /// Whether anything is recorded: who has work with what he would tell may ask.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// The ledger committed these. Does not block.
    pub fn stories(&self, key: &ConversationKey, stories: &[Story]) {
        if self.0.is_some() {
            for story in stories {
                self.put(Entry::Story(key.clone(), story.clone()));
            }
        }
    }

    /// An exchange ended just now. Does not block.
    pub fn exchange(&self, facts: ExchangeFacts) {
        if self.0.is_some() {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let at = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
            self.put(Entry::Exchange(at, facts));
        }
    }

    fn put(&self, entry: Entry) {
        let Some(desk) = &self.0 else { return };
        let weight = entry.weight();
        let before = desk.waiting.fetch_add(weight, Ordering::AcqRel);
        let fits = before + weight <= MOST_WAITING;
        if !fits || desk.entries.send(Message::Entry(Box::new(entry))).is_err() {
            desk.waiting.fetch_sub(weight, Ordering::AcqRel);
            desk.metrics.record_dropped(1);
        }
    }

    /// Waits until all that was told is written, or `patience` is over. Whether it was.
    #[must_use]
    pub fn flush(&self, patience: Duration) -> bool {
        let Some(desk) = &self.0 else { return true };
        let (done, wait) = channel();
        desk.entries.send(Message::Flush(done)).is_ok() && wait.recv_timeout(patience).is_ok()
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Recorder").field(&self.is_on()).finish()
    }
}

/// The thread that makes lines and writes them.
struct Writer {
    waiting: Arc<AtomicUsize>,
    metrics: Metrics,
}

impl Writer {
    /// Until nobody can tell anything any more.
    fn write_all(&mut self, sink: &mut sink::Sink, entries: &Receiver<Message>) {
        loop {
            match entries.recv_timeout(LOOK_EVERY) {
                Ok(first) => self.batch(sink, first, entries),
                Err(RecvTimeoutError::Timeout) => sink.look(SystemTime::now()),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Writes what waits, as far as it fits in one batch.
    fn batch(&mut self, sink: &mut sink::Sink, first: Message, entries: &Receiver<Message>) {
        let (mut bytes, mut count, mut weight) = (Vec::new(), 0, 0);
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Entry(entry) => {
                    lines::write(&entry, &mut bytes);
                    (count, weight) = (count + 1, weight + entry.weight());
                }
                Message::Flush(done) => {
                    self.put_down(sink, &mut bytes, std::mem::take(&mut count));
                    let _ = done.send(());
                }
            }
            next = (bytes.len() < BATCH).then(|| entries.try_recv().ok()).flatten();
        }
        self.put_down(sink, &mut bytes, count);
        self.waiting.fetch_sub(weight, Ordering::AcqRel);
    }

    fn put_down(&mut self, sink: &mut sink::Sink, bytes: &mut Vec<u8>, count: u64) {
        if bytes.is_empty() {
            return;
        }
        if let Err(error) = sink.write(bytes, SystemTime::now()) {
            self.metrics.record_dropped(count);
            tracing::warn!(%error, lines = count, "the task record cannot be written");
        }
        bytes.clear();
    }
}
