//! What only this store has: a disk that fills up, is torn or damaged, and must not grow for ever. The
//! contract ([`super::super::contract`]) holds for it as for any store.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::*;
use crate::ledger::calls::CallState;
use crate::ledger::event::{
    Admit, Alternative, Close, Decide, Effects, Ending, ExchangeId, Millis, Names, Outcome,
    Proposed, Replica, Settle,
};
use crate::store::encoding;
use parking_lot::Mutex;
use std::fs;
use std::sync::atomic::AtomicU64;
use tempfile::TempDir;

const SMALL_SEGMENTS: u64 = 16 << 10;

impl EmbeddedStore {
    /// A store in a directory that goes with it.
    pub(in crate::store) fn scratch(
        durability: Durability,
        clock: Clock,
        listener: Arc<dyn Listener>,
        most_per_principal: usize,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = Options {
            path: directory.path().join("data"),
            key_file: None,
            durability,
            most_per_principal,
            segment_bytes: SMALL_SEGMENTS,
        };
        let mut store = EmbeddedStore::open(&options, clock, listener).unwrap();
        store.scratch = Some(directory);
        store
    }
}

#[derive(Default)]
struct Told(Mutex<Effects>);

impl Listener for Told {
    fn committed(&self, _: &ConversationKey, effects: &Effects) {
        let mut sum = self.0.lock();
        sum.open_calls += effects.open_calls;
        sum.cancel.extend(effects.cancel.iter().copied());
    }
}

/// A directory, and the process that uses it now.
struct Host {
    directory: TempDir,
    options: Options,
    time: Arc<AtomicU64>,
    rules: Arc<Rules>,
    store: Option<EmbeddedStore>,
    told: Arc<Told>,
}

impl Host {
    fn new(durability: Durability) -> Self {
        Host::with_segments(durability, SMALL_SEGMENTS)
    }

    fn with_segments(durability: Durability, segment_bytes: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = Options {
            path: directory.path().join("data"),
            key_file: None,
            durability,
            most_per_principal: 10_000,
            segment_bytes,
        };
        let time = Arc::new(AtomicU64::new(1_000_000));
        let rules = Arc::new(Rules { ttl: Millis(3_600_000), ..Rules::default() });
        let told = Arc::new(Told::default());
        let mut host = Host { directory, options, time, rules, store: None, told };
        host.start().unwrap();
        host
    }

    fn start(&mut self) -> Result<(), OpenError> {
        let time = Arc::clone(&self.time);
        let clock: Clock = Arc::new(move || Millis(time.load(Ordering::SeqCst)));
        self.told = Arc::default();
        self.store = Some(EmbeddedStore::open(&self.options, clock, self.told.clone())?);
        Ok(())
    }

    fn stop(&mut self) {
        self.store = None;
    }

    fn restart(&mut self) {
        self.stop();
        self.start().unwrap();
    }

    fn store(&self) -> &EmbeddedStore {
        self.store.as_ref().unwrap()
    }

    fn key(&self, name: &str) -> ConversationKey {
        let digest = |domain| self.store().digest_key().bytes(domain, name.as_bytes());
        ConversationKey { principal: digest("principal"), conversation: digest("conversation") }
    }

    fn try_apply(&self, name: &str, event: Event) -> Result<Outcome, StoreError> {
        let key = self.key(name);
        let applied = wait(self.store().apply(&key, event, &self.rules));
        applied.map(|transition| transition.outcome)
    }

    fn apply(&self, name: &str, event: Event) -> Outcome {
        self.try_apply(name, event).unwrap()
    }

    fn read(&self, name: &str) -> Option<Conversation> {
        wait(self.store().read(&self.key(name))).unwrap()
    }

    /// A call proposed and delivered in generation 1.
    fn with_call(&self, name: &str) {
        assert!(matches!(self.apply(name, opening(1)), Outcome::Admitted(_)));
        assert_eq!(self.apply(name, self.proposal(1)), Outcome::Wanted);
        assert_eq!(self.apply(name, delivered(1)), Outcome::Done);
    }

    fn proposal(&self, exchange: u128) -> Event {
        let call = Proposed {
            id: "call_1".into(),
            tool: "query_order".into(),
            arguments: self.store().digest_key().arguments("{}"),
            echoes: Vec::new(),
            deadline: None,
            write: false,
        };
        let alternatives = vec![Alternative { choice: 0, calls: vec![call] }];
        Event::Settle(Settle { exchange: ExchangeId(exchange), alternatives, forced: false })
    }

    fn result(&self, by: u128, content: &str) -> Event {
        Event::Decide(Decide {
            exchange: ExchangeId(by),
            generation: 1,
            id: "call_1".into(),
            name: None,
            result: self.store().digest_key().bytes("result", content.as_bytes()),
            closing: false,
            echoes: Vec::new(),
            attempt: None,
            idempotency: None,
        })
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.options.path).unwrap().map(|entry| entry.unwrap().path());
        let mut logs: Vec<_> =
            entries.filter(|path| path.extension().is_some_and(|one| one == "log")).collect();
        logs.sort();
        logs
    }

    fn bytes(&self) -> u64 {
        // One may be deleted just now.
        self.files().iter().flat_map(fs::metadata).map(|found| found.len()).sum()
    }

    /// The start fails, says this, and changes nothing.
    fn refuses(&mut self, says: &str) {
        self.stop();
        let contents = |host: &Host| -> Vec<_> {
            host.files().iter().map(|path| fs::read(path).unwrap()).collect()
        };
        let before = contents(self);
        let error = self.start().unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        assert_eq!(contents(self), before);
    }
}

fn wait<T>(answer: Answer<'_, T>) -> Result<T, StoreError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(answer)
}

fn opening(exchange: u128) -> Event {
    let key = DigestKey::new([1; 32]);
    Event::Admit(Admit {
        exchange: ExchangeId(exchange),
        replica: Replica(1),
        generation: Some(1),
        lane: key.bytes("lane", b""),
        list: key.bytes("list", b""),
        declared_retry: false,
        idempotency: None,
        runs: Vec::new(),
        names: Names::default(),
    })
}

fn delivered(exchange: u128) -> Event {
    Event::Close(Close { exchange: ExchangeId(exchange), ending: Ending::Delivered })
}

#[test]
fn a_restart_knows_every_call_and_keeps_the_key() {
    for durability in [Durability::Process, Durability::Machine] {
        let mut host = Host::new(durability);
        let digest = |host: &Host| host.store().digest_key().bytes("test", b"value");
        let before = digest(&host);
        host.with_call("open");
        host.with_call("decided");
        assert!(matches!(host.apply("decided", host.result(9, "R")), Outcome::Accepted { .. }));
        host.with_call("removed");
        assert!(wait(host.store().remove(&host.key("removed"))).unwrap());
        let states = ["open", "decided"].map(|name| host.read(name));
        host.restart();
        assert_eq!(digest(&host), before);
        assert_eq!(host.store().conversations(), 2);
        assert_eq!(host.told.0.lock().open_calls, 1);
        assert_eq!(["open", "decided"].map(|name| host.read(name)), states);
        assert_eq!(host.read("removed"), None);
        assert!(matches!(host.apply("open", host.result(10, "R")), Outcome::Accepted { .. }));
        assert!(matches!(host.apply("decided", host.result(11, "S")), Outcome::Refused(_)));
    }
}

/// The process that had it in flight is dead: a retry goes up at once, and is the next attempt.
#[test]
fn what_a_dead_process_had_in_flight_has_failed() {
    let mut host = Host::new(Durability::Process);
    assert!(matches!(host.apply("c", opening(1)), Outcome::Admitted(_)));
    host.restart();
    wait(host.store().sweep(&host.rules)).unwrap();
    let conversation = host.read("c").unwrap();
    assert!(conversation.exchanges().iter().all(|one| one.closed && !one.under_way()));
    let Outcome::Admitted(again) = host.apply("c", opening(2)) else { panic!("refused") };
    assert_eq!(again.attempt, 2);
}

#[test]
fn a_full_disk_refuses_undoes_and_recovers() {
    let mut host = Host::new(Durability::Process);
    host.with_call("c");
    let before = host.read("c");
    for space in [0, 1, 47, 60] {
        host.store().log().space.store(space, Ordering::SeqCst);
        let refused = host.try_apply("c", host.result(20, "R")).unwrap_err();
        assert_eq!(refused, StoreError::Unavailable("its disk is full"));
        assert!(wait(host.store().ready()).is_err());
        let new = host.try_apply("new", opening(30)).unwrap_err();
        assert_eq!(new, StoreError::Unavailable("its disk is full"));
        assert_eq!(host.store().conversations(), 1);
        assert_eq!(host.read("c"), before);
        assert!(host.told.0.lock().open_calls == 1, "nothing untrue was told");
    }
    host.store().log().space.store(u64::MAX, Ordering::SeqCst);
    assert!(matches!(host.apply("c", host.result(21, "S")), Outcome::Accepted { .. }));
    assert_eq!(wait(host.store().ready()), Ok(()));
    let after = host.read("c");
    host.restart();
    assert_eq!(host.read("c"), after);
}

/// A conversation whose bytes went bad on the disk, while it was not in memory: it can be deleted, by hand or
/// by its age, and takes nothing else with it.
#[test]
fn a_damaged_conversation_can_be_forgotten() {
    for by_hand in [true, false] {
        let host = Host::new(Durability::Process);
        ["damaged", "other"].iter().for_each(|name| host.with_call(name));
        let place =
            host.store().slots.cell(&host.key("damaged")).unwrap().lock().place.unwrap().last;
        // Long unused, they leave memory.
        host.time.fetch_add(700_000, Ordering::SeqCst);
        wait(host.store().sweep(&host.rules)).unwrap();
        let file = host.files()[0].clone();
        let mut bytes = fs::read(&file).unwrap();
        bytes[usize::try_from(place.at.offset).unwrap() + frame::RECORD + 9] ^= 0xff;
        fs::write(&file, &bytes).unwrap();
        assert!(wait(host.store().read(&host.key("damaged"))).is_err());
        assert!(host.try_apply("damaged", opening(5)).is_err());
        if by_hand {
            assert_eq!(wait(host.store().remove(&host.key("damaged"))), Ok(true));
            assert!(host.read("other").is_some());
        } else {
            host.time.fetch_add(4_000_000, Ordering::SeqCst);
            wait(host.store().sweep(&host.rules)).unwrap();
            assert_eq!(host.store().conversations(), 0, "the sweep gets by it");
        }
        assert_eq!(host.read("damaged"), None);
        host.with_call("damaged");
    }
}

/// A record cut anywhere is as if it had never been written; what came before it stands.
#[test]
fn a_torn_end_is_cut_off() {
    let mut host = Host::new(Durability::Process);
    host.with_call("c");
    let before = host.read("c");
    let start = host.store().log().active.lock().end.offset;
    host.apply("c", host.result(20, "R"));
    let end = host.store().log().active.lock().end.offset;
    let whole = fs::read(&host.files()[0]).unwrap();
    host.stop();
    for cut in (start..end).step_by(7).chain([end - 1]) {
        fs::write(&host.files()[0], &whole[..usize::try_from(cut).unwrap()]).unwrap();
        host.start().unwrap();
        assert_eq!(host.read("c"), before, "cut at {cut}");
        assert!(matches!(host.apply("c", host.result(21, "S")), Outcome::Accepted { .. }));
        host.stop();
    }
}

/// Bytes at the end that look like a newer version's record, and are not whole, are a tear like any other.
#[test]
fn a_torn_record_of_an_unknown_kind_is_a_tear() {
    let mut host = Host::new(Durability::Process);
    host.with_call("c");
    let before = host.read("c");
    host.stop();
    let mut bytes = fs::read(&host.files()[0]).unwrap();
    let mut torn = record_of_kind(9);
    torn[20] ^= 1;
    bytes.extend(torn);
    fs::write(&host.files()[0], &bytes).unwrap();
    host.start().unwrap();
    assert_eq!(host.read("c"), before);
}

#[test]
fn damage_behind_what_was_synced_stops_the_start() {
    let mut host = Host::new(Durability::Process);
    host.with_call("c");
    host.with_call("d");
    // The last round of a stop syncs, and says so in the log.
    host.stop();
    let path = host.files()[0].clone();
    let whole = fs::read(&path).unwrap();
    let last = whole.len() - frame::RECORD - 16;
    for at in [frame::HEAD, frame::HEAD + 20, whole.len() / 2, last - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(&path, &bytes).unwrap();
        host.refuses("is damaged at byte");
    }
    fs::write(&path, &whole).unwrap();
    host.start().unwrap();
}

#[test]
fn what_is_not_ours_stops_the_start() {
    let mut host = Host::new(Durability::Process);
    host.with_call("c");
    host.stop();
    let path = host.files()[0].clone();
    let whole = fs::read(&path).unwrap();
    let mut with = |change: &dyn Fn(&mut Vec<u8>), says: &str| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        fs::write(&path, &bytes).unwrap();
        host.refuses(says);
        fs::write(&path, &whole).unwrap();
    };
    with(&|bytes| bytes[0] = b'x', "is no segment of this store");
    with(&|bytes| bytes[8] = 2, "a newer version wrote it");
    with(&|bytes| bytes.extend(record_of_kind(9)), "a newer version wrote it");
    with(&|bytes| bytes.extend(state(&[encoding::FORMAT + 1])), "a newer version wrote it");
    with(&|bytes| bytes.extend(state(&[encoding::FORMAT, 0xff])), "no conversation");
    let key = host.options.path.join("key");
    let text = fs::read_to_string(&key).unwrap();
    fs::write(&key, "ab".repeat(32)).unwrap();
    host.refuses("was written with another key");
    fs::write(&key, "abc").unwrap();
    host.refuses("64 hexadecimal digits");
    fs::remove_file(&key).unwrap();
    host.refuses("is missing");
    fs::write(&key, text).unwrap();
    host.start().unwrap();
}

fn state(payload: &[u8]) -> Vec<u8> {
    frame::Record { kind: frame::Kind::State, key: &[7; 32], payload }.bytes().unwrap()
}

/// A whole record of a kind that no version has yet.
fn record_of_kind(kind: u8) -> Vec<u8> {
    let mut bytes = state(b"");
    bytes[2] = kind;
    let check = xxhash_rust::xxh3::xxh3_64_with_seed(&[7; 32], u64::from(kind) << 32);
    bytes[8..16].copy_from_slice(&check.to_le_bytes());
    bytes
}

#[test]
fn a_missing_segment_stops_the_start() {
    let mut host = Host::new(Durability::Process);
    grow(&host, 3);
    host.stop();
    fs::remove_file(&host.files()[1]).unwrap();
    host.refuses("is missing");
}

#[test]
fn a_directory_has_one_process() {
    let host = Host::new(Durability::Process);
    let clock: Clock = Arc::new(|| Millis(0));
    let second = EmbeddedStore::open(&host.options, clock, Arc::new(Told::default()));
    assert!(second.unwrap_err().to_string().contains("is used by another process"));
}

#[test]
fn only_its_owner_reads_it() {
    use std::os::unix::fs::PermissionsExt;
    let host = Host::new(Durability::Process);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&host.options.path), 0o700);
    assert_eq!(mode(&host.options.path.join("key")), 0o600);
    assert_eq!(mode(&host.files()[0]), 0o600);
    assert!(host.directory.path().exists());
}

/// Fills segments until there are as many.
fn grow(host: &Host, segments: usize) {
    for n in 0.. {
        if host.files().len() >= segments {
            return;
        }
        host.with_call(&format!("c{n}"));
        settle_upkeep(host.store());
    }
}

/// Steady traffic on few conversations, and on ever new ones that expire: the log stays near its bound.
#[test]
fn the_log_does_not_grow_without_bound() {
    let mut host = Host::new(Durability::Process);
    let mut most = 0;
    for round in 0..40_u128 {
        for n in 0..20 {
            host.with_call(&format!("r{round} c{n}"));
            host.apply("steady", opening(1000 + round * 100 + n));
            host.apply("steady", delivered(1000 + round * 100 + n));
        }
        // An expiry walk is due once a minute; what the last round left has expired by now.
        host.time.fetch_add(4_000_000, Ordering::SeqCst);
        wait(host.store().sweep(&host.rules)).unwrap();
        settle_upkeep(host.store());
        most = most.max(host.bytes());
    }
    // Twice what lives, four segments, and what one round writes.
    assert!(most < 12 * SMALL_SEGMENTS, "{most} bytes on the disk");
    assert!(host.files()[0].file_name().unwrap() != "0000000000000001.log");
    host.restart();
    assert!(host.store().conversations() <= 21);
}

/// Lets the upkeep come to its rest: it has nothing to roll and nothing to clean.
fn settle_upkeep(store: &EmbeddedStore) {
    let log = store.log();
    while log.active.lock().end.offset > log.segment_bytes || log.superfluous().is_some() {
        log.ask(|wanted| wanted.upkeep = true);
        std::thread::yield_now();
    }
}

/// Cleaning moves what is still needed, whatever was written meanwhile.
#[test]
fn cleaning_loses_nothing() {
    let mut host = Host::new(Durability::Process);
    host.with_call("old");
    let old = host.read("old");
    for n in 0..3000_u128 {
        host.apply("busy", opening(100 + n));
        host.apply("busy", delivered(100 + n));
        if n % 100 == 0 {
            settle_upkeep(host.store());
        }
    }
    settle_upkeep(host.store());
    assert!(host.files()[0].file_name().unwrap() != "0000000000000001.log");
    assert_eq!(host.read("old"), old);
    let busy = host.read("busy");
    host.restart();
    assert_eq!(host.read("old"), old);
    assert_eq!(host.read("busy").is_some(), busy.is_some());
    assert!(matches!(host.apply("old", host.result(1, "R")), Outcome::Accepted { .. }));
}

/// What nobody used for a while leaves memory, and comes back as it was.
#[test]
fn cold_conversations_leave_memory_and_come_back() {
    let mut host = Host::new(Durability::Process);
    host.with_call("c");
    let before = host.read("c");
    host.time.fetch_add(700_000, Ordering::SeqCst);
    wait(host.store().sweep(&host.rules)).unwrap();
    assert!(host.store().slots.is_cold(&host.key("c")));
    assert_eq!(host.read("c"), before);
    assert!(!host.store().slots.is_cold(&host.key("c")));
    host.restart();
    assert!(host.store().slots.is_cold(&host.key("c")), "read at the first use only");
    assert!(matches!(host.apply("c", host.result(1, "R")), Outcome::Accepted { .. }));
    let calls = host.read("c").unwrap();
    let states: Vec<_> =
        calls.calls().iter().flat_map(|one| &one.calls).map(|one| one.state).collect();
    assert!(matches!(states[..], [CallState::Accepted(_)]));
}

/// Power may go between any two instants: what was told by then was synced before.
#[test]
fn a_machine_tells_nothing_before_it_is_synced() {
    let host = Host::new(Durability::Machine);
    host.with_call("c");
    let log = host.store().log();
    assert!(*log.synced.borrow() >= place_of(&host, "c").end());
    assert_eq!(host.told.0.lock().open_calls, 1);
    // The disk fails to confirm: nothing is told any more, and nothing is taken.
    log.failed.store(true, Ordering::SeqCst);
    assert!(host.try_apply("c", host.result(20, "R")).is_err());
    assert_eq!(host.told.0.lock().open_calls, 1);
    assert!(wait(host.store().ready()).is_err());
}

fn place_of(host: &Host, name: &str) -> Place {
    chain_of(host, name).last
}

fn chain_of(host: &Host, name: &str) -> Chain {
    host.store().slots.cell(&host.key(name)).unwrap().lock().place.unwrap()
}

/// An event appends what it changed, and now and then the whole conversation: never more than twice what it is.
#[test]
fn what_is_written_goes_by_what_changes() {
    // One segment holds it all: cleaning would write conversations whole at times of its own.
    let mut host = Host::with_segments(Durability::Process, 1 << 20);
    let (mut wholes, mut largest) = (0, 0);
    for n in 0..400_u128 {
        host.apply("c", opening(100 + n));
        let before = chain_of(&host, "c");
        host.apply("c", delivered(100 + n));
        let chain = chain_of(&host, "c");
        let limit = chain.whole_bytes() as u64;
        assert!(chain.bytes() < 2 * limit.max(1024) + 512, "{chain:?}");
        if chain.whole != before.whole {
            wholes += 1;
        } else if n > 100 {
            largest = largest.max(chain.last.size);
        }
    }
    assert!((3..60).contains(&wholes), "{wholes} times whole");
    assert!(largest < 512, "a change of {largest} bytes");
    let live = host.store().log().live.load(Ordering::SeqCst);
    assert_eq!(live, chain_of(&host, "c").bytes());
    let (state, chain) = (host.read("c"), chain_of(&host, "c"));
    host.restart();
    // What was in flight has failed, but nothing is.
    assert_eq!(host.read("c"), state);
    assert_eq!(chain_of(&host, "c"), chain);
    assert_eq!(host.store().log().live.load(Ordering::SeqCst), live);
}

/// Power went, and an earlier segment lacks its end while a later one is there: what follows what is lost is lost
/// with it, and the conversation goes on from what is left.
#[test]
fn changes_of_what_was_torn_off_are_gone_with_it() {
    let mut host = Host::new(Durability::Process);
    host.with_call("c");
    let before = host.read("c");
    let torn = place_of(&host, "c").end().offset;
    host.apply("c", host.result(20, "R"));
    host.store().log().roll().unwrap();
    host.apply("c", opening(2));
    host.apply("c", delivered(2));
    assert_eq!(chain_of(&host, "c").whole.segment, 1, "all are changes");
    host.stop();
    // Nothing was synced: no record says so.
    let files = host.files();
    let first = fs::read(&files[0]).unwrap();
    let second = unsynced(&fs::read(&files[1]).unwrap());
    for cut in [torn, torn + 9] {
        fs::write(&files[0], &first[..usize::try_from(cut).unwrap()]).unwrap();
        fs::write(&files[1], &second).unwrap();
        host.start().unwrap();
        assert_eq!(host.read("c"), before, "cut at {cut}");
        assert!(matches!(host.apply("c", host.result(21, "S")), Outcome::Accepted { .. }));
        let after = host.read("c");
        host.restart();
        assert_eq!(host.read("c"), after, "what stands apart does not come back");
        host.stop();
    }
}

/// A segment up to the first record that says what is synced.
fn unsynced(segment: &[u8]) -> Vec<u8> {
    let mut at = frame::HEAD;
    while let Ok(record) = frame::record(segment, at) {
        if record.kind == frame::Kind::Synced {
            break;
        }
        at += record.size();
    }
    segment[..at].to_vec()
}

/// A change that follows nothing, though nothing was torn off and nothing cleaned away.
#[test]
fn a_change_of_what_is_not_there_stops_the_start() {
    let mut host = Host::new(Durability::Process);
    host.with_call("c");
    let key = frame::key_bytes(&host.key("c"));
    let (whole, last) = (chain_of(&host, "c").whole, place_of(&host, "c"));
    host.stop();
    let path = host.files()[0].clone();
    let bytes = fs::read(&path).unwrap();
    let change = |follows: Place| {
        let payload = [&follows.bytes()[..], &[encoding::FORMAT, 0x82, 0x00, 0xa0]].concat();
        frame::Record { kind: frame::Kind::Change, key: &key, payload: &payload }.bytes().unwrap()
    };
    let other = Place { at: whole, size: last.size };
    for follows in [other, Place { size: last.size + 1, ..last }] {
        fs::write(&path, [bytes.clone(), change(follows)].concat()).unwrap();
        host.refuses("what a change of a conversation follows is gone");
    }
    fs::write(&path, [bytes.clone(), change(last)].concat()).unwrap();
    host.start().unwrap();
}

/// The oldest segment is gone, though a conversation begins there.
#[test]
fn the_oldest_segment_is_missed() {
    let mut host = Host::new(Durability::Process);
    host.with_call("c");
    host.store().log().roll().unwrap();
    host.apply("c", host.result(20, "R"));
    host.stop();
    fs::remove_file(&host.files()[0]).unwrap();
    host.refuses("what a change of a conversation follows is gone");
}
