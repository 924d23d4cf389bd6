//! The invariants of the ledger (DESIGN, section 5), each as a property over random sequences of events
//! on one conversation, in virtual time.
//!
//! A reference observer ([`observer`]) stands beside the ledger and keeps the truth about every call by
//! itself. Each test below runs the same kind of plays and looks at one invariant's findings, so that a
//! breach is named by what it breaks. `PROPTEST_RNG_SEED` and `PROPTEST_CASES` widen the search. [`stores`]
//! brings such plays to every store.

#![expect(clippy::panic, clippy::unwrap_used, reason = "tests")]

mod client;
mod observer;
mod play;
mod steps;
mod stores;
mod talk;

use play::{Play, Setting};
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestCaseError, TestError, TestRunner};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use steps::Step;
use tigertally::ledger::digest::DigestKey;
use tigertally::ledger::event::{Effects, Millis, Outcome};
use tigertally::store::memory::MemoryStore;
use tigertally::store::{ConversationKey, Listener, Store, encoding};

/// The tools that calls name. The first one's results may echo its arguments.
pub(crate) fn talk_tools() -> [&'static str; 3] {
    ["query_order", "get_weather", "cancel_order"]
}

const CASES: u32 = 500;
const LONGEST: usize = 60;

fn setting() -> impl Strategy<Value = Setting> {
    let budget = prop_oneof![3 => Just(None), 1 => (1..4_u32).prop_map(Some)];
    let attempts = prop_oneof![3 => Just(8), 1 => 2..4_u32];
    (any::<bool>(), prop::bool::weighted(0.4), budget, attempts, prop::bool::weighted(0.3))
        .prop_map(|(header, recycled, budget, attempts, substitute)| Setting {
            header,
            recycled,
            budget,
            attempts,
            substitute,
        })
}

fn config() -> ProptestConfig {
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = CASES;
    }
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(20_260);
    }
    if std::env::var_os("PROPTEST_MAX_SHRINK_ITERS").is_none() {
        config.max_shrink_iters = 20_000;
    }
    config
}

fn plays(test: impl Fn(Setting, Vec<Step>) -> Result<(), TestCaseError>) {
    let mut runner = TestRunner::new(config());
    let strategy = (setting(), steps::steps(LONGEST));
    match runner.run(&strategy, |(setting, steps)| test(setting, steps)) {
        Ok(()) => {}
        Err(TestError::Fail(why, (setting, steps))) => panic!("{why}\n{setting:?}\n{steps:#?}"),
        Err(error) => panic!("{error}"),
    }
}

/// Plays, and fails at the first finding of `invariant`.
fn holds(invariant: &'static str) {
    plays(|setting, steps| {
        let mut play = Play::new(setting, DigestKey::new([7; 32]));
        for step in &steps {
            play.step(step);
            let found = play.observer.findings.iter().find(|(name, _)| *name == invariant);
            if let Some((_, text)) = found {
                let trace = play.trace();
                return Err(TestCaseError::fail(format!("{invariant}: {text}\n\n{trace}\n")));
            }
        }
        Ok(())
    });
}

#[test]
fn i1_only_the_current_tasks_own_results_go_up() {
    holds("I1");
}

#[test]
fn i2_a_call_has_one_result_for_ever() {
    holds("I2");
}

#[test]
fn i3_nothing_of_an_older_generation_goes_down() {
    holds("I3");
}

#[test]
fn i4_calls_are_registered_before_they_go_down() {
    holds("I4");
}

#[test]
fn i5_a_refused_request_leaves_no_trace() {
    holds("I5");
}

#[test]
fn i6_lanes_leave_each_other_alone() {
    holds("I6");
}

#[test]
fn i8_one_answer_is_delivered() {
    holds("I8");
}

#[test]
fn i9_budgets_are_kept() {
    holds("I9");
}

#[test]
fn i10_nothing_is_stuck() {
    holds("I10");
}

#[test]
fn sound_traffic_passes() {
    holds("legitimate");
}

#[test]
fn events_are_idempotent() {
    holds("idempotence");
}

#[test]
fn open_calls_add_up() {
    holds("open calls");
}

#[test]
fn what_is_cancelled_was_under_way() {
    holds("cancel");
}

/// Contents under another key have other digests, and nothing else may depend on them.
#[test]
fn i7_contents_are_not_judged() {
    plays(|setting, steps| {
        let mut one = Play::new(setting, DigestKey::new([7; 32]));
        let mut other = Play::new(setting, DigestKey::new([8; 32]));
        for step in &steps {
            one.step(step);
            other.step(step);
            let [told, too] = [&one, &other].map(|play| play.told.last().map(without_digests));
            prop_assert_eq!(told, too, "{}", one.trace());
        }
        Ok(())
    });
}

/// The same, but for the digests that the record keeps: those differ by the key.
fn without_digests((outcome, effects): &(Outcome, Effects)) -> (Outcome, Effects, String) {
    let (mut outcome, mut effects) = (outcome.clone(), effects.clone());
    let mut record = String::new();
    for story in std::mem::take(&mut effects.stories) {
        let states = story.exchanges.iter().map(|one| (one.id, one.state, &one.marks));
        let calls = story.proposals.iter().flat_map(|one| &one.calls);
        let calls = calls.map(|call| (&call.id, call.state.as_str(), call.registered, call.ended));
        let told = (story.lane, story.generation, story.at);
        let _ = write!(record, "{told:?}{:?}", states.collect::<Vec<_>>());
        let _ = writeln!(record, "{:?}", calls.collect::<Vec<_>>());
    }
    if let Outcome::Refused(refused) = &mut outcome {
        for held in std::mem::take(&mut refused.held) {
            let call = (held.call.id, held.call.state.as_str());
            let _ = writeln!(record, "{:?}{call:?}", (held.generation, held.current));
        }
    }
    (outcome, effects, record)
}

/// Whatever state a conversation is in, it is the same when it was written and read.
#[test]
fn what_is_kept_reads_the_same() {
    plays(|setting, steps| {
        let mut play = Play::new(setting, DigestKey::new([7; 32]));
        for step in &steps {
            play.step(step);
            let bytes = encoding::encode(play.now, &play.conversation).unwrap();
            let kept = encoding::decode(&bytes).unwrap();
            prop_assert_eq!(&kept.conversation, &play.conversation, "{}", play.trace());
            prop_assert_eq!(kept.used, play.now);
            let cut = bytes.len() * steps.len() / (LONGEST + 1);
            prop_assert!(encoding::decode(&bytes[..cut]).is_err());
        }
        Ok(())
    });
}

/// A conversation is what was written of it whole, and the changes behind that, whenever each was written.
#[test]
fn what_was_written_and_its_changes_are_what_is_kept() {
    let strategy =
        (setting(), steps::steps(LONGEST), any::<u64>(), prop_oneof![Just(4), Just(512)]);
    let mut runner = TestRunner::new(config());
    let outcome = runner.run(&strategy, |(setting, steps, writes, kept)| {
        let mut play = Play::new(setting, DigestKey::new([7; 32]));
        play.rules.kept = kept;
        let mut log = Vec::new();
        for (at, step) in (0..).zip(&steps) {
            play.step(step);
            let mut bytes = log.clone();
            match play.conversation.change().filter(|_| !log.is_empty()) {
                Some(change) => encoding::encode_change_to(&mut bytes, play.now, &change).unwrap(),
                None => bytes = encoding::encode(play.now, &play.conversation).unwrap(),
            }
            let read = encoding::decode(&bytes).unwrap();
            prop_assert_eq!(&read.conversation, &play.conversation, "{}", play.trace());
            prop_assert_eq!(read.used, play.now);
            if writes >> (at % 64) & 1 == 1 {
                play.conversation.written();
                log = bytes;
            }
        }
        Ok(())
    });
    assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
}

/// Two conversations in one store, under keys that differ by the principal or by the conversation alone,
/// with the same ids, lists and results: each goes as it would have gone alone.
#[test]
fn i6_conversations_leave_each_other_alone() {
    let strategy = (setting(), steps::steps(LONGEST), steps::steps(LONGEST), any::<bool>());
    let mut runner = TestRunner::new(config());
    let outcome = runner.run(&strategy, |(setting, one, other, principals)| {
        let plays = [one, other].map(|steps| {
            let mut play = Play::new(setting, DigestKey::new([7; 32]));
            steps.iter().for_each(|step| play.step(step));
            play
        });
        side_by_side(&plays, principals)
    });
    assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
}

struct Deaf;

impl Listener for Deaf {
    fn committed(&self, _: &ConversationKey, _: &Effects) {}
}

/// Brings the events of both plays to one store, in the order of time, and compares what each is told.
fn side_by_side(plays: &[Play; 2], principals: bool) -> Result<(), TestCaseError> {
    let time = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&time);
    let key = DigestKey::new([7; 32]);
    let keys = [1_u8, 2].map(|n| ConversationKey {
        principal: key.bytes("principal", &[if principals { n } else { 0 }]),
        conversation: key.bytes("conversation", &[if principals { 0 } else { n }]),
    });
    let clock = Arc::new(move || Millis(clock.load(Ordering::SeqCst)));
    let store = MemoryStore::new(key, clock, Arc::new(Deaf), 10);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut turns: Vec<(Millis, usize, usize)> = Vec::new();
    for (play, of) in plays.iter().zip(0..) {
        turns.extend(play.events.iter().enumerate().map(|(at, (now, _))| (*now, at, of)));
    }
    turns.sort_unstable();
    for (now, at, of) in turns {
        time.store(now.0, Ordering::SeqCst);
        let (play, rules) = (&plays[of], Arc::new(plays[of].rules.clone()));
        let event = play.events[at].1.clone();
        let told = runtime.block_on(store.apply(&keys[of], event, &rules)).unwrap();
        let told = (told.outcome, told.effects);
        prop_assert_eq!(&told, &play.told[at], "event {} of {}\n{}", at, of, play.trace());
    }
    for (play, key) in plays.iter().zip(&keys) {
        let state = runtime.block_on(store.read(key)).unwrap().unwrap_or_default();
        prop_assert_eq!(&state, &play.conversation);
    }
    Ok(())
}
