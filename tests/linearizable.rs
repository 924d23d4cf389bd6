//! The checker of histories itself: it passes what one sound store may answer, and catches each way in
//! which a store can be unsound. At last a store with a race planted in it, behind the real gateway: the
//! same load over HTTP on it and on a sound one, and only what clients saw to tell them apart.

#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod history;

use history::check::{Rules, explain};
use history::client::Client;
use history::load::{Conversation, kinds, under};
use history::{Action, Op, Outcome, Record, Recorder};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tigertally::cli::scripted_upstream::{Script, serve};
use tigertally::ledger::Conversation as Ledger;
use tigertally::ledger::digest::DigestKey;
use tigertally::ledger::event::{Effects, Event, Millis};
use tigertally::ledger::rules::Rules as LedgerRules;
use tigertally::policy::Policy;
use tigertally::proxy::{Flights, Running};
use tigertally::store::{Answer, ConversationKey, Listener, Store};
use tigertally::telemetry::Metrics;

// --- histories by hand ------------------------------------------------------------------------------

fn open(generation: u64) -> Action {
    Action::Open { generation, question: format!("q{generation}") }
}

fn goes_on(generation: u64, call: &str, content: &str, declared: bool) -> Action {
    Action::Continue { generation, call: call.into(), content: content.into(), declared }
}

fn decide(generation: u64, call: &str, content: &str) -> Action {
    Action::Decide { generation, call: call.into(), content: content.into() }
}

fn start(generation: u64, call: &str) -> Action {
    Action::Start { generation, call: call.into() }
}

fn to(generation: u64) -> Action {
    Action::Advance { generation: Some(generation) }
}

fn proposed(call: &str) -> Outcome {
    Outcome::Proposed(vec![call.into()])
}

fn moved(generation: u64, superseded: &[&str]) -> Outcome {
    let superseded = superseded.iter().map(|call| (*call).to_owned()).collect();
    Outcome::Advanced { generation, superseded }
}

fn refused(code: &str) -> Outcome {
    Outcome::Refused(code.into())
}

fn record(generation: u64, calls: &[(&str, u64, &str)]) -> Outcome {
    let call = |(id, of, state): &(&str, u64, &str)| ((*id).into(), (*of, (*state).into()));
    Outcome::Record(Record {
        generation: Some(generation),
        calls: calls.iter().map(call).collect(),
    })
}

/// One after the other.
fn row(steps: &[(Action, Outcome)]) -> Vec<Op> {
    let at = |(n, (action, outcome)): (usize, &(Action, Outcome))| {
        let asked = 10 * n as u64;
        op(asked, asked + 5, action.clone(), outcome.clone())
    };
    steps.iter().enumerate().map(at).collect()
}

fn op(asked: u64, until: u64, action: Action, outcome: Outcome) -> Op {
    let until = (outcome != Outcome::Lost).then_some(until);
    Op { asked, until, action, outcome }
}

fn is_legal(ops: &[Op]) -> bool {
    explain(ops, Rules::default()).is_ok()
}

#[test]
fn what_a_sound_store_answers_one_by_one_passes() {
    assert!(is_legal(&[]));
    assert!(is_legal(&row(&[
        (Action::Read, Outcome::Record(Record { generation: None, calls: [].into() })),
        (open(1), proposed("a")),
        (Action::Read, record(1, &[("a", 1, "open")])),
        (start(1, "a"), Outcome::Started(1)),
        (start(1, "a"), Outcome::Started(2)),
        (decide(1, "a", "x"), Outcome::Accepted),
        (start(1, "a"), refused("duplicate")),
        (decide(1, "a", "x"), refused("duplicate")),
        (decide(1, "a", "y"), refused("conflict")),
        (goes_on(1, "a", "y", false), refused("conflict")),
        (goes_on(1, "a", "x", false), Outcome::Answered),
        (goes_on(1, "a", "x", false), refused("duplicate")),
        (goes_on(1, "a", "x", true), Outcome::Answered),
        (open(2), proposed("b")),
        (Action::Advance { generation: None }, moved(3, &["b"])),
        (to(3), moved(3, &[])),
        (to(2), refused("stale_generation")),
        (open(2), refused("stale_generation")),
        (goes_on(2, "b", "x", false), refused("stale_generation")),
        (decide(2, "b", "x"), refused("stale")),
        (start(2, "b"), refused("stale")),
        (decide(1, "a", "z"), refused("conflict")),
        (decide(3, "nobody", "z"), refused("unmatched")),
        (open(3), proposed("c")),
        (open(3), proposed("d")),
        (decide(3, "c", "x"), refused("stale")),
        (
            Action::Read,
            record(
                3,
                &[
                    ("a", 1, "accepted"),
                    ("b", 2, "superseded"),
                    ("c", 3, "replaced"),
                    ("d", 3, "open"),
                ]
            ),
        ),
    ])));
}

#[test]
fn what_is_abreast_may_come_in_either_order() {
    let before = op(0, 5, open(1), proposed("a"));
    // Two results at once: either is the first.
    for (one, two) in [("x", "y"), ("y", "x")] {
        let ops = [
            before.clone(),
            op(10, 20, decide(1, "a", one), Outcome::Accepted),
            op(11, 19, decide(1, "a", two), refused("conflict")),
        ];
        assert!(is_legal(&ops), "{one}");
    }
    // The answer came while the user moved on: it went down before, or is withheld after.
    for (outcome, superseded) in [(proposed("b"), &["b"][..]), (refused("stale_answer"), &[])] {
        let ops = [op(10, 20, open(2), outcome), op(12, 15, to(3), moved(3, superseded))];
        assert!(is_legal(&ops));
    }
    // It was registered, and withheld before it was let go.
    assert!(is_legal(&[
        op(10, 20, open(2), refused("stale_answer")),
        op(12, 15, to(3), moved(3, &["b"])),
    ]));
    // A newer attempt took over, and the generation moved on before the older one knew.
    assert!(is_legal(&[
        op(0, 30, open(1), refused("overtaken")),
        op(10, 20, open(1), proposed("a")),
        op(22, 25, to(2), moved(2, &["a"])),
    ]));
}

#[test]
fn what_was_not_answered_happened_or_did_not() {
    let lost = |action| op(10, 0, action, Outcome::Lost);
    let opened = || op(0, 5, open(1), proposed("a"));
    for told in [Outcome::Accepted, refused("duplicate")] {
        assert!(is_legal(&[
            opened(),
            lost(decide(1, "a", "x")),
            op(20, 25, decide(1, "a", "x"), told),
        ]));
    }
    // It takes effect long after.
    assert!(is_legal(&[
        opened(),
        lost(to(2)),
        op(20, 25, Action::Read, record(1, &[("a", 1, "open")])),
        op(30, 35, Action::Read, record(2, &[("a", 1, "superseded")])),
    ]));
    for told in [Outcome::Answered, refused("duplicate")] {
        assert!(is_legal(&[
            opened(),
            lost(goes_on(1, "a", "x", false)),
            op(20, 25, goes_on(1, "a", "x", false), told),
        ]));
    }
    // A call that nobody was told of.
    assert!(is_legal(&[lost(open(1)), op(20, 25, to(2), moved(2, &["b"]))]));
    // But not after the process that had it died.
    let mut dead = lost(to(2));
    dead.until = Some(15);
    let reads = |generation, state| {
        [opened(), dead.clone(), op(20, 25, Action::Read, record(generation, &[("a", 1, state)]))]
    };
    assert!(is_legal(&reads(1, "open")) && is_legal(&reads(2, "superseded")));
    // It had not happened when it could no longer happen.
    let back = op(17, 18, Action::Read, record(1, &[("a", 1, "open")]));
    let [opened, dead, read] = reads(2, "superseded");
    assert!(!is_legal(&[opened, dead, back, read]));
}

/// An outage leaves hundreds of questions without an answer. Which of them took effect is found in a few
/// states, and where none explains what is seen after it, that is decided too.
#[test]
fn what_was_not_answered_is_not_tried_in_every_order() {
    let mut ops = vec![op(0, 5, open(1), proposed("a"))];
    for n in 0..20 {
        let again = [start(1, "a"), goes_on(1, "a", "x", n % 2 == 0), decide(1, "a", "y"), open(1)];
        let on = [open(2 + n), to(2 + n)];
        let asked = again.into_iter().chain(on).chain([decide(1, "a", "x")]);
        ops.extend(asked.map(|action| op(10 + n, 0, action, Outcome::Lost)));
    }
    let after = |told: &[(Action, Outcome)]| {
        let mut ops = ops.clone();
        let told = told.iter().enumerate();
        ops.extend(told.map(|(n, (action, outcome))| {
            let asked = 1000 + 10 * n as u64;
            op(asked, asked + 5, action.clone(), outcome.clone())
        }));
        explain(&ops, Rules::default())
    };
    let eighth = (start(1, "a"), Outcome::Started(8));
    let accepted = (Action::Read, record(1, &[("a", 1, "accepted")]));
    let moved_on = (to(21), moved(21, &[]));
    let found = after(&[eighth.clone(), accepted.clone(), moved_on.clone()]);
    assert!(found.as_ref().is_ok_and(|states| *states < 5_000), "{found:?}");
    // There were 20 attempts, a finished call does not open again, and nobody asked for that generation.
    let (most, open) = ((start(1, "a"), Outcome::Started(22)), record(1, &[("a", 1, "open")]));
    for wrong in [
        vec![most],
        vec![accepted, (Action::Read, open)],
        vec![eighth, (Action::Read, record(22, &[("a", 1, "superseded")]))],
        vec![moved_on, (to(20), moved(20, &[]))],
    ] {
        let why = after(&wrong).unwrap_err();
        assert!(why.starts_with("no order explains it"), "{why}");
    }
}

/// Ten thousand tasks take as many states, and the last is looked at as closely as the first.
#[test]
fn a_long_history_is_looked_at_in_one_go() {
    let task = |n: u64| {
        let call = format!("call-{n}");
        let (asks, says) = (open(n), proposed(&call));
        [(asks, says), (decide(n, &call, "x"), Outcome::Accepted)]
    };
    let tasks: Vec<_> = (1..=10_000).flat_map(task).collect();
    let end = |code: &str| {
        let mut steps = tasks.clone();
        steps.push((decide(1, "call-1", "y"), refused(code)));
        explain(&row(&steps), Rules::default())
    };
    assert!(end("conflict").is_ok_and(|states| states < 50_000));
    assert!(end("stale").is_err());
}

#[test]
fn each_way_to_be_unsound_is_caught() {
    let opened = (open(1), proposed("a"));
    let accepted = (decide(1, "a", "x"), Outcome::Accepted);
    let cases: &[(&str, &[(Action, Outcome)])] = &[
        (
            "a generation goes back",
            &[opened.clone(), (to(3), moved(3, &["a"])), (to(2), moved(2, &[]))],
        ),
        ("an older task opens", &[(to(3), moved(3, &[])), (open(2), proposed("b"))]),
        (
            "an older result is accepted",
            &[opened.clone(), (to(2), moved(2, &["a"])), (decide(1, "a", "x"), Outcome::Accepted)],
        ),
        ("a result is accepted again", &[opened.clone(), accepted.clone(), accepted.clone()]),
        (
            "another result is accepted",
            &[opened.clone(), accepted.clone(), (decide(1, "a", "y"), Outcome::Accepted)],
        ),
        (
            "another result goes up",
            &[opened.clone(), accepted.clone(), (goes_on(1, "a", "y", false), Outcome::Answered)],
        ),
        (
            "a registered call is unknown",
            &[opened.clone(), (decide(1, "a", "x"), refused("unmatched"))],
        ),
        (
            "a call nobody proposed goes up",
            &[opened.clone(), (goes_on(1, "z", "x", false), Outcome::Answered)],
        ),
        (
            "one continuation is answered twice",
            &[
                opened.clone(),
                (goes_on(1, "a", "x", false), Outcome::Answered),
                (goes_on(1, "a", "x", false), Outcome::Answered),
            ],
        ),
        (
            "a first continuation is a duplicate",
            &[opened.clone(), (goes_on(1, "a", "x", false), refused("duplicate"))],
        ),
        ("a conflict with nothing", &[opened.clone(), (decide(1, "a", "x"), refused("conflict"))]),
        ("a current call is stale", &[opened.clone(), (decide(1, "a", "x"), refused("stale"))]),
        ("a current task is stale", &[opened.clone(), (open(1), refused("stale_generation"))]),
        ("nothing took over", &[opened.clone(), (open(1), refused("overtaken"))]),
        ("nothing moved on", &[opened.clone(), (open(1), refused("stale_answer"))]),
        ("a switch forgets a call", &[opened.clone(), (to(2), moved(2, &[]))]),
        ("a switch tells of another call", &[opened.clone(), (to(2), moved(2, &["a", "z"]))]),
        ("a switch goes elsewhere", &[opened.clone(), (to(2), moved(3, &["a"]))]),
        ("the record forgets a call", &[opened.clone(), (Action::Read, record(1, &[]))]),
        (
            "the record is behind",
            &[opened.clone(), accepted.clone(), (Action::Read, record(1, &[("a", 1, "open")]))],
        ),
        (
            "the record knows nothing",
            &[
                opened.clone(),
                (Action::Read, Outcome::Record(Record { generation: None, calls: [].into() })),
            ],
        ),
        (
            "an attempt's number comes twice",
            &[
                opened.clone(),
                (start(1, "a"), Outcome::Started(1)),
                (start(1, "a"), Outcome::Started(1)),
            ],
        ),
        (
            "a finished call starts",
            &[opened.clone(), accepted.clone(), (start(1, "a"), Outcome::Started(1))],
        ),
        ("an id is proposed twice", &[opened.clone(), (open(2), proposed("a"))]),
        ("a code that is no answer here", &[opened.clone(), (open(2), refused("late"))]),
    ];
    for (what, steps) in cases {
        assert!(!is_legal(&row(steps)), "{what}");
        assert!(is_legal(&row(&steps[..steps.len() - 1])) || steps.len() < 2, "{what}: before");
    }
}

#[test]
fn races_are_caught_where_no_order_explains_them() {
    let opened = op(0, 5, open(1), proposed("a"));
    // Both answers to one continuation.
    assert!(!is_legal(&[
        opened.clone(),
        op(10, 20, goes_on(1, "a", "x", false), Outcome::Answered),
        op(11, 21, goes_on(1, "a", "x", false), Outcome::Answered),
    ]));
    // Both of two results.
    assert!(!is_legal(&[
        opened.clone(),
        op(10, 20, decide(1, "a", "x"), Outcome::Accepted),
        op(11, 21, decide(1, "a", "y"), Outcome::Accepted),
    ]));
    // Released, though the switch that was acknowledged does not know of the call.
    assert!(!is_legal(&[op(10, 40, open(1), proposed("a")), op(15, 20, to(2), moved(2, &[])),]));
    // Both attempts at an opening, and both are open.
    assert!(!is_legal(&[
        op(10, 40, open(1), proposed("a")),
        op(15, 35, open(1), proposed("b")),
        op(50, 55, Action::Read, record(1, &[("a", 1, "open"), ("b", 1, "open")])),
    ]));
    // Two who move on, and one step is gone.
    let next = Action::Advance { generation: None };
    assert!(!is_legal(&[
        opened.clone(),
        op(10, 20, next.clone(), moved(2, &["a"])),
        op(11, 21, next, moved(2, &[])),
    ]));
    // What was seen is not seen any more.
    assert!(!is_legal(&[
        opened,
        op(10, 40, to(2), moved(2, &["a"])),
        op(15, 20, Action::Read, record(2, &[("a", 1, "superseded")])),
        op(25, 30, Action::Read, record(1, &[("a", 1, "open")])),
    ]));
}

/// A gateway that slept beyond its lease gives way; that is told only where leases lapse.
#[test]
fn a_lapsed_lease_explains_a_retry_and_never_a_second_answer() {
    let opened = op(0, 5, open(1), proposed("a"));
    let ops = |slept: Outcome| {
        let again = op(20, 25, goes_on(1, "a", "x", false), Outcome::Answered);
        [opened.clone(), op(10, 40, goes_on(1, "a", "x", false), slept), again]
    };
    let lapse = Rules { leases_lapse: true };
    assert!(explain(&ops(refused("overtaken")), lapse).is_ok());
    assert!(explain(&ops(Outcome::Answered), lapse).is_err());
    assert!(explain(&[opened.clone(), ops(Outcome::Answered)[1].clone()], lapse).is_ok());
}

// --- a planted race ---------------------------------------------------------------------------------

/// Reads, lets others come in between, and writes. A sound one begins again when somebody wrote; the other
/// does not look.
struct Toy {
    looks: bool,
    key: DigestKey,
    listener: Arc<dyn Listener>,
    kept: Mutex<HashMap<ConversationKey, (u64, Ledger)>>,
}

impl Toy {
    async fn turn(
        &self,
        key: &ConversationKey,
        event: &Event,
        rules: &LedgerRules,
    ) -> tigertally::ledger::event::Transition {
        loop {
            let (version, mut ledger) = self.kept.lock().get(key).cloned().unwrap_or_default();
            let transition = ledger.apply(event, rules, now());
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            let mut kept = self.kept.lock();
            let current = kept.get(key).map_or(0, |(version, _)| *version);
            if self.looks && current != version {
                continue;
            }
            kept.insert(key.clone(), (current + 1, ledger));
            self.listener.committed(key, &transition.effects);
            return transition;
        }
    }
}

impl Store for Toy {
    fn digest_key(&self) -> &DigestKey {
        &self.key
    }

    fn apply<'a>(
        &'a self,
        key: &'a ConversationKey,
        event: Event,
        rules: &'a Arc<LedgerRules>,
    ) -> Answer<'a, tigertally::ledger::event::Transition> {
        Box::pin(async move { Ok(self.turn(key, &event, rules).await) })
    }

    fn remove<'a>(&'a self, key: &'a ConversationKey) -> Answer<'a, bool> {
        let gone = self.kept.lock().remove(key).is_some();
        Box::pin(async move { Ok(gone) })
    }

    fn read<'a>(&'a self, key: &'a ConversationKey) -> Answer<'a, Option<Ledger>> {
        let read = self.kept.lock().get(key).map(|(_, ledger)| ledger.clone());
        Box::pin(async move { Ok(read) })
    }

    fn sweep<'a>(&'a self, _: &'a Arc<LedgerRules>) -> Answer<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn ready(&self) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn conversations(&self) -> usize {
        self.kept.lock().len()
    }
}

fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Millis(u64::try_from(since.as_millis()).unwrap())
}

struct Told(Arc<Flights>);

impl Listener for Told {
    fn committed(&self, key: &ConversationKey, effects: &Effects) {
        self.0.committed(key, effects);
    }
}

async fn gateway(looks: bool) -> Running {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = listener.local_addr().unwrap();
    #[expect(clippy::disallowed_methods, reason = "ends with the test's runtime")]
    tokio::spawn(serve(listener, Script::default()));
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut policy = Policy { listen: loopback, ..Policy::default() };
    policy.admin.listen = loopback;
    policy.upstream.url = format!("http://{upstream}").parse().unwrap();
    let flights = Arc::new(Flights::default());
    let listener = Arc::new(Told(Arc::clone(&flights)));
    let key = DigestKey::new([7; 32]);
    let store = Arc::new(Toy { looks, key, listener, kept: Mutex::default() });
    let metrics = Metrics::new(&policy.tools).unwrap();
    tigertally::control::start(policy, store, flights, metrics).await.unwrap()
}

/// How many of the conversations no order explains.
async fn unexplained(looks: bool) -> usize {
    let running = gateway(looks).await;
    let urls = [format!("http://{}", running.client_addr)];
    let recorder = Arc::new(Recorder::default());
    let client = Client::new(&recorder);
    let conversations: Vec<_> = (0..6).map(|n| Conversation::new(format!("c{n}"))).collect();
    // Load runs for a while; what it brings in that time is enough on any machine.
    let for_a_while = || tokio::time::sleep(Duration::from_secs(3));
    under(&client, &urls, &conversations, async || for_a_while().await).await;
    let histories = recorder.histories();
    let mut caught = 0;
    for (name, ops) in &histories {
        if let Err(why) = explain(ops, Rules::default()) {
            caught += 1;
            assert!(!looks, "the sound one: {name}: {why}");
        }
    }
    let kinds = kinds(&client);
    println!("looks: {looks}: {caught} of {}: {kinds:?}", histories.len());
    assert!(kinds.iter().all(|(kind, seen)| *seen > 0 || *kind == "lost"), "{kinds:?}");
    caught
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_with_a_planted_race_is_caught_and_a_sound_one_passes() {
    assert_eq!(unexplained(true).await, 0);
    assert!(unexplained(false).await > 0, "the race");
}
