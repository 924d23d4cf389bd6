//! The contract, on a server and on a Cluster of three: see [`crate::store::contract`]. And what only a
//! store over a network has to show: that it fails in time, mends by itself, and loses nothing that Redis
//! kept.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::server::{Cluster, Server, cli, signal};
use super::*;
use crate::guard::fault::Code;
use crate::ledger::event::{
    Admit, Advance, Close, Effects, Ending, ExchangeId, Millis, Outcome, Replica,
};
use crate::ledger::exchanges::FlightState;
use crate::store::encoding;
use parking_lot::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A store of its own on the server of this process.
pub(in crate::store) fn on_a_server(
    clock: Clock,
    listener: Arc<dyn Listener>,
    most: usize,
) -> Arc<dyn Store> {
    static SERVER: OnceLock<Server> = OnceLock::new();
    open(&SERVER.get_or_init(|| Server::start(&[])).url(), clock, listener, most)
}

/// A store of its own on the Cluster of this process.
pub(in crate::store) fn on_a_cluster(
    clock: Clock,
    listener: Arc<dyn Listener>,
    most: usize,
) -> Arc<dyn Store> {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    open(&CLUSTER.get_or_init(Cluster::start).url(), clock, listener, most)
}

fn open(url: &str, clock: Clock, listener: Arc<dyn Listener>, most: usize) -> Arc<dyn Store> {
    let settings = Settings {
        prefix: format!("test-{:016x}", rand::random::<u64>()),
        most_per_principal: most,
        clock: Some(clock),
        patience: Duration::from_secs(10),
        budget: Duration::from_secs(20),
        start_patience: Duration::from_secs(20),
        ..Settings::new(Address::parse(url).unwrap())
    };
    tokio::task::block_in_place(|| {
        let opened =
            tokio::runtime::Handle::current().block_on(RedisStore::open(settings, listener));
        opened.unwrap()
    })
}

/// Keeps what it is told.
#[derive(Default)]
struct Told(Mutex<Vec<(ExchangeId, Code)>>);

impl Listener for Told {
    fn committed(&self, _: &ConversationKey, effects: &Effects) {
        self.0.lock().extend(effects.cancel.iter().copied());
    }
}

struct Member {
    store: Arc<RedisStore>,
    told: Arc<Told>,
    rules: Arc<Rules>,
}

impl Member {
    async fn open(url: &str) -> Self {
        Self::with(Settings::new(Address::parse(url).unwrap())).await.unwrap()
    }

    async fn with(settings: Settings) -> Result<Self, OpenError> {
        let told = Arc::new(Told::default());
        let quick = Duration::from_millis(500);
        let settings = Settings { patience: quick, budget: 2 * quick, ..settings };
        let store = RedisStore::open(settings, told.clone()).await?;
        Ok(Member { store, told, rules: Arc::default() })
    }

    fn key(&self, name: &str) -> ConversationKey {
        let digest = |domain| self.store.digest_key().bytes(domain, name.as_bytes());
        ConversationKey { principal: digest("principal"), conversation: digest("conversation") }
    }

    async fn opening(
        &self,
        name: &str,
        exchange: u128,
        generation: u64,
    ) -> Result<Outcome, StoreError> {
        let key = self.store.digest_key();
        let event = Event::Admit(Admit {
            exchange: ExchangeId(exchange),
            replica: Replica(1),
            generation: Some(generation),
            lane: key.bytes("lane", b""),
            list: key.bytes("list", &exchange.to_le_bytes()),
            declared_retry: false,
            idempotency: None,
            runs: Vec::new(),
            names: crate::ledger::event::Names::default(),
        });
        let applied = self.store.apply(&self.key(name), event, &self.rules).await;
        applied.map(|transition| transition.outcome)
    }

    async fn advance(&self, name: &str, generation: u64) -> Outcome {
        let exchange = ExchangeId(rand::random());
        let event = Advance { exchange, generation: Some(generation), idempotency: None };
        let key = self.key(name);
        self.store.apply(&key, Event::Advance(event), &self.rules).await.unwrap().outcome
    }

    /// Waits until it is ready again, by itself.
    async fn recovers(&self) {
        let end = Instant::now() + Duration::from_secs(30);
        while self.store.ready().await.is_err() {
            assert!(Instant::now() < end, "it does not recover");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_the_digests_the_ledger_and_the_news() {
    let cluster = Cluster::start();
    let server = Server::start(&[]);
    for url in [server.url(), cluster.url()] {
        let (one, two) = (Member::open(&url).await, Member::open(&url).await);
        assert_eq!(one.key("c"), two.key("c"));
        assert_eq!(one.store.ready().await, Ok(()), "it is connected, and hears");
        assert_eq!(two.store.ready().await, Ok(()));
        assert!(matches!(one.opening("c", 1, 1).await, Ok(Outcome::Admitted(_))));
        let advanced = two.advance("c", 2).await;
        assert!(matches!(advanced, Outcome::Advanced { generation: 2, cancelled: 1, .. }));
        let cut = [(ExchangeId(1), Code::StaleAnswer)];
        assert_eq!(*two.told.0.lock(), cut, "by its own event, once");
        let end = Instant::now() + Duration::from_secs(10);
        while one.told.0.lock().is_empty() {
            assert!(Instant::now() < end, "the push does not come");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(*one.told.0.lock(), cut);
        let Ok(Outcome::Refused(refused)) = one.opening("c", 3, 1).await else { panic!("stale") };
        assert_eq!(refused.faults[0].code, Code::StaleGeneration);
    }
}

impl Member {
    /// What stands under the conversation's key.
    async fn value(&self, name: &str) -> Vec<u8> {
        let core = &self.store.core;
        let (key, until) = (core.names.conversation(&self.key(name)), Instant::now() + core.budget);
        core.ask(&core.scripts.read, &[&key], &[], until).await.unwrap().bytes().to_vec()
    }
}

/// An event sends what it changed, however long the value is; it is sent whole now and then, and any replica reads it.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_goes_by_what_changes() {
    let server = Server::start(&[]);
    let (one, two) = (Member::open(&server.url()).await, Member::open(&server.url()).await);
    let received = || -> usize {
        let told = asked(&server, &["info", "stats"]);
        let told = told.lines().find_map(|line| line.strip_prefix("total_net_input_bytes:"));
        told.unwrap().trim().parse().unwrap()
    };
    let (mut wholes, mut longest, mut last) = (0, 0, 0);
    for exchange in 1..=400 {
        if exchange == 201 {
            last = received();
        }
        assert!(matches!(one.opening("c", exchange, 1).await, Ok(Outcome::Admitted(_))));
        let value = one.value("c").await;
        let (_, whole) = encoding::decode_in_parts(&value[24..]).unwrap();
        wholes += usize::from(whole + 24 == value.len());
        longest = longest.max(value.len());
        assert!(value.len() < 2 * whole.max(512) + 700, "{} of {whole}", value.len());
    }
    assert!((5..60).contains(&wholes), "{wholes} times whole");
    let an_event = (received() - last) / 200;
    assert!(an_event < 1200 && longest > 20_000, "{an_event} bytes an event, of up to {longest}");
    let read = two.store.read(&two.key("c")).await.unwrap().unwrap();
    assert_eq!(read.exchanges().iter().count(), 400);
    assert!(matches!(two.advance("c", 2).await, Outcome::Advanced { cancelled: 400, .. }));
    assert!(matches!(one.opening("c", 500, 2).await, Ok(Outcome::Admitted(_))));
    assert!(matches!(two.opening("c", 501, 1).await, Ok(Outcome::Refused(_))));
}

/// A look at a conversation that is not there tells nothing of the next one: another replica may have begun it.
#[tokio::test(flavor = "multi_thread")]
async fn that_there_was_none_is_not_remembered() {
    let server = Server::start(&[]);
    let (one, two) = (Member::open(&server.url()).await, Member::open(&server.url()).await);
    let key = one.key("c");
    let looked = one.store.apply(&key, Event::Tick, &one.rules).await.unwrap();
    assert_eq!(looked.outcome, Outcome::Done);
    assert!(matches!(two.opening("c", 1, 1).await, Ok(Outcome::Admitted(_))));
    let wanted = one.store.apply(&key, Event::Check(ExchangeId(1)), &one.rules).await.unwrap();
    assert_eq!(wanted.outcome, Outcome::Wanted);
}

/// A value that a version may read that knows of no changes is written whole.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_appended_to_the_first_format() {
    let server = Server::start(&[]);
    let (one, two) = (Member::open(&server.url()).await, Member::open(&server.url()).await);
    assert!(matches!(one.opening("c", 1, 1).await, Ok(Outcome::Admitted(_))));
    let mut value = one.value("c").await;
    value[24] = 1;
    let core = &one.store.core;
    let arguments: [&[u8]; 6] = [&value[..16], &value, b"60000", b"0", b"0", b""];
    let (key, until) = (core.names.conversation(&one.key("c")), Instant::now() + core.budget);
    let written = core.ask(&core.scripts.write, &[&key], &arguments, until).await.unwrap();
    assert_eq!(written.number(), Some(1));
    assert!(matches!(two.opening("c", 2, 1).await, Ok(Outcome::Admitted(_))));
    let value = one.value("c").await;
    let (kept, whole) = encoding::decode_in_parts(&value[24..]).unwrap();
    assert_eq!((value[24], whole + 24), (encoding::FORMAT, value.len()));
    assert_eq!(kept.conversation.exchanges().iter().count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_is_missed_at_once_and_nothing_it_kept_is_lost() {
    let server = Server::start(&["--appendonly", "yes", "--appendfsync", "everysec"]);
    let one = Member::open(&server.url()).await;
    assert!(matches!(one.advance("c", 7).await, Outcome::Advanced { .. }));
    signal(server.process, "-KILL");
    let began = Instant::now();
    for exchange in 0..20 {
        let failed = one.opening("c", exchange, 8).await;
        assert!(matches!(failed, Err(StoreError::Unavailable(_))), "{failed:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(one.store.ready().await.is_err());
    let server = server.relaunch();
    one.recovers().await;
    let Ok(Outcome::Refused(refused)) = one.opening("c", 30, 6).await else { panic!("stale") };
    assert_eq!(refused.faults[0].code, Code::StaleGeneration, "7 is not lost with the process");
    assert!(matches!(one.opening("c", 31, 8).await, Ok(Outcome::Admitted(_))));
    drop(server);
}

/// A server that is stopped answers nothing and refuses nothing: only a timeout tells.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_server_opens_the_circuit_and_commits_nothing_late() {
    let server = Server::start(&[]);
    let one = Member::open(&server.url()).await;
    assert!(matches!(one.opening("c", 1, 1).await, Ok(Outcome::Admitted(_))));
    signal(server.process, "-STOP");
    let mut slowest = Vec::new();
    let stopped = Instant::now();
    while stopped.elapsed() < Duration::from_secs(4) {
        let began = Instant::now();
        assert!(one.opening("c", 2, 2).await.is_err());
        slowest.push(began.elapsed());
    }
    assert!(slowest.iter().all(|took| *took < Duration::from_secs(2)), "{slowest:?}");
    let fast = slowest.iter().rev().take(10).all(|took| *took < Duration::from_millis(100));
    assert!(fast, "the circuit is open: {:?}", slowest.last());
    signal(server.process, "-CONT");
    one.recovers().await;
    // What was sent before the stop is carried out now, more than the tolerance late: and so refused.
    let state = one.store.read(&one.key("c")).await.unwrap().unwrap();
    assert_eq!(state.lanes().highest(), 1);
    assert!(matches!(one.opening("c", 3, 1).await, Ok(Outcome::Admitted(_))));
}

/// A replica that was stopped between deciding and writing decides anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_decision_that_was_held_up_is_not_carried_out() {
    let server = Server::start(&[]);
    let one = Member::open(&server.url()).await;
    assert!(matches!(one.opening("c", 1, 1).await, Ok(Outcome::Admitted(_))));
    let (core, key) = (&one.store.core, one.key("c"));
    let until = Instant::now() + Duration::from_secs(5);
    let state = core.read(&key, until).await.unwrap();
    let now = core.now();
    for (off, carried_out) in [(1500, false), (500, true)] {
        let time = commit::Time { clock: Millis(now.0 - off), now };
        let written = core.take_out(&key, &state, time, until).await.unwrap();
        assert_eq!(matches!(written, commit::Written::Done), carried_out, "{off} ms: {written:?}");
    }
}

/// The Cluster mends, with a node that comes back empty, and so does the store.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_a_cluster_that_comes_back_is_used_again() {
    let mut cluster = Cluster::start();
    let one = Member::open(&cluster.url()).await;
    let last = cluster.nodes.pop().unwrap();
    signal(last.process, "-KILL");
    let mut failed = 0;
    for n in 0..12 {
        let began = Instant::now();
        failed += u32::from(one.opening(&format!("a{n}"), 1, 1).await.is_err());
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    }
    assert!(failed > 0, "a third of the slots is gone");
    cluster.nodes.push(last.relaunch());
    let end = Instant::now() + Duration::from_secs(60);
    for n in 0..12 {
        while one.opening(&format!("b{n}"), 1, 1).await.is_err() {
            assert!(Instant::now() < end, "conversation {n} stays lost");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    one.recovers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgets_its_scripts_is_taught_them_again() {
    let server = Server::start(&[]);
    let one = Member::open(&server.url()).await;
    assert!(matches!(one.opening("c", 1, 1).await, Ok(Outcome::Admitted(_))));
    let _ = cli(&server.port.to_string(), &["script", "flush"]);
    assert!(matches!(one.opening("c", 2, 1).await, Ok(Outcome::Admitted(_))));
}

/// An event costs one round trip; the first of a conversation, a read and a place more.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_one_round_trip() {
    let server = Server::start(&[]);
    let one = Member::open(&server.url()).await;
    let began = one.store.round_trips();
    assert!(matches!(one.opening("c", 1, 1).await, Ok(Outcome::Admitted(_))));
    assert_eq!(one.store.round_trips() - began, 3);
    for exchange in 2..10 {
        assert!(matches!(one.opening("c", exchange, 1).await, Ok(Outcome::Admitted(_))));
    }
    assert_eq!(one.store.round_trips() - began, 11);
}

/// Entries in all lists of what falls due.
fn listed(server: &Server) -> usize {
    let lists = (0..watch::LISTS).map(|list| format!("tigertally:due:{{{list}}}"));
    lists.map(|list| asked(server, &["zcard", &list]).trim().parse::<usize>().unwrap()).sum()
}

/// Exchanges in flight of a replica that died: another one finds that they have failed, and leaves no entry.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_replicas_leases_lapse_in_one_that_lives() {
    let server = Server::start(&[]);
    let time = Arc::new(AtomicU64::new(1_000_000));
    let now = Arc::clone(&time);
    let clock: Clock = Arc::new(move || Millis(now.load(Ordering::SeqCst)));
    let settings =
        Settings { clock: Some(clock), ..Settings::new(Address::parse(&server.url()).unwrap()) };
    let dead = Member::with(settings.clone()).await.unwrap();
    let left = Member::with(settings).await.unwrap();
    let names: Vec<String> = (0..40_u8).map(|n| format!("c{n}")).collect();
    for (name, exchange) in names.iter().zip(1..) {
        assert!(matches!(dead.opening(name, exchange, 1).await, Ok(Outcome::Admitted(_))));
    }
    until("they are listed", || listed(&server) == names.len()).await;
    drop(dead);
    let state = async |name: &String| {
        let conversation = left.store.read(&left.key(name)).await.unwrap().unwrap();
        conversation.exchanges().iter().next().unwrap().state
    };
    // At the end of the lease it might still be alive, and would look itself.
    time.fetch_add(15_000, Ordering::SeqCst);
    left.store.sweep(&left.rules).await.unwrap();
    assert_eq!(state(&names[0]).await, FlightState::Flight);
    time.fetch_add(2_000, Ordering::SeqCst);
    left.store.sweep(&left.rules).await.unwrap();
    for name in &names {
        assert_eq!(state(name).await, FlightState::Failed, "{name}");
    }
    assert_eq!((listed(&server), left.store.conversations()), (0, names.len()));
}

/// What a replica that lives has listed follows what is due, and is looked after by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_living_replicas_entries_follow_what_is_due() {
    let server = Server::start(&[]);
    let time = Arc::new(AtomicU64::new(1_000_000));
    let now = Arc::clone(&time);
    let clock: Clock = Arc::new(move || Millis(now.load(Ordering::SeqCst)));
    let settings =
        Settings { clock: Some(clock), ..Settings::new(Address::parse(&server.url()).unwrap()) };
    let one = Member::with(settings).await.unwrap();
    assert!(matches!(one.opening("c", 1, 1).await, Ok(Outcome::Admitted(_))));
    let listed_at = |time: &str| {
        let list = format!("tigertally:due:{{{}}}", watch::list_of(&one.key("c")));
        asked(&server, &["zcount", &list, time, time]).trim() == "1"
    };
    until("it is listed", || listed_at("1015000")).await;
    time.fetch_add(10_000, Ordering::SeqCst);
    let check = |exchange| Event::Check(ExchangeId(exchange));
    one.store.apply(&one.key("c"), check(1), &one.rules).await.unwrap();
    time.fetch_add(10_000, Ordering::SeqCst);
    one.store.apply(&one.key("c"), check(1), &one.rules).await.unwrap();
    one.store.sweep(&one.rules).await.unwrap();
    // What is due is reckoned when it would be, by the lease of the time before.
    until("it has moved", || listed_at("1025000")).await;
    let close = Close { exchange: ExchangeId(1), ending: Ending::UpstreamFailed };
    one.store.apply(&one.key("c"), Event::Close(close), &one.rules).await.unwrap();
    until("it is taken off", || listed(&server) == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_refuses_and_loses_nothing() {
    let server = Server::start(&["--maxmemory-policy", "noeviction"]);
    let one = Member::open(&server.url()).await;
    assert!(matches!(one.opening("c", 1, 1).await, Ok(Outcome::Admitted(_))));
    let port = server.port.to_string();
    let _ = cli(&port, &["config", "set", "maxmemory", "1"]);
    let full = one.opening("c", 2, 2).await;
    assert_eq!(full, Err(StoreError::Unavailable("redis is out of memory")));
    assert!(one.store.ready().await.is_err(), "it cannot be written");
    let _ = cli(&port, &["config", "set", "maxmemory", "0"]);
    assert!(matches!(one.opening("c", 3, 2).await, Ok(Outcome::Admitted(_))));
}

/// The start says when the server may drop conversations.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_evicts_is_told_of() {
    for (policy, told) in [("noeviction", None), ("allkeys-lru", Some("allkeys-lru"))] {
        let server = Server::start(&["--maxmemory-policy", policy]);
        let one = Member::open(&server.url()).await;
        assert_eq!(one.store.evicts(), told);
    }
    let cluster = Cluster::start();
    assert_eq!(Member::open(&cluster.url()).await.store.evicts(), None);
    let port = cluster.nodes[1].port.to_string();
    let _ = cli(&port, &["config", "set", "maxmemory-policy", "volatile-lru"]);
    assert_eq!(Member::open(&cluster.url()).await.store.evicts(), Some("volatile-lru"));
}

/// What cannot be read can be deleted; what only a newer version can read cannot.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_conversation_can_be_deleted() {
    let server = Server::start(&[]);
    let one = Member::open(&server.url()).await;
    let port = server.port.to_string();
    let name = String::from_utf8(one.store.core.names.conversation(&one.key("c"))).unwrap();
    let damage = |value: &str| {
        assert!(cli(&port, &["set", &name, value]).stdout.starts_with(b"OK"));
        one.store.core.cache.forget(&one.key("c"));
    };
    for value in ["x", "sixteen bytes...", &format!("{:24}\u{1}garbage", "head")] {
        damage(value);
        let refused = one.opening("c", 1, 1).await;
        assert_eq!(refused, Err(StoreError::Unavailable("the conversation is damaged")), "{value}");
        assert!(one.store.read(&one.key("c")).await.is_err());
        assert_eq!(one.store.remove(&one.key("c")).await, Ok(true), "{value}");
        assert_eq!(one.store.read(&one.key("c")).await, Ok(None));
        assert!(matches!(one.opening("c", 1, 1).await, Ok(Outcome::Admitted(_))), "anew");
    }
    damage(&format!("{:24}\u{14}", "head"));
    let newer = one.store.remove(&one.key("c")).await.unwrap_err();
    assert!(newer.to_string().contains("newer version"), "{newer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_digest_key_is_not_served_beside_ours() {
    let server = Server::start(&[]);
    let one = Member::open(&server.url()).await;
    let own = Settings {
        digest_key: Some(DigestKey::new([7; 32])),
        ..Settings::new(Address::parse(&server.url()).unwrap())
    };
    assert_eq!(Member::with(own.clone()).await.err(), Some(OpenError::OtherKey));
    // Flushed, and taken over by a deployment with a key of its own: ours must not go on.
    let port = server.port.to_string();
    let _ = cli(&port, &["flushall"]);
    let two = Member::with(own).await.unwrap();
    assert!(one.store.ready().await.is_err());
    assert!(one.opening("c", 1, 1).await.is_err());
    assert!(matches!(two.opening("c", 1, 1).await, Ok(Outcome::Admitted(_))));
    let _ = cli(&port, &["flushall"]);
    one.recovers().await;
    assert!(matches!(one.opening("c", 1, 1).await, Ok(Outcome::Admitted(_))));
}

/// A user that may do what we do, on our keys and our channel, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_few_rights_is_enough_and_a_wrong_password_is_told() {
    let server = Server::start(&[]);
    let port = server.port.to_string();
    let rights = [
        "acl",
        "setuser",
        "tally",
        "on",
        ">p@ss",
        "~tigertally:*",
        // Before Redis 7 a new user may hear every channel.
        "resetchannels",
        "&tigertally:*",
        "-@all",
        "+eval",
        "+evalsha",
        "+get",
        "+getrange",
        "+set",
        "+setrange",
        "+strlen",
        "+del",
        "+time",
        "+zadd",
        "+zrem",
        "+zscore",
        "+zcard",
        "+zremrangebyscore",
        "+zrangebyscore",
        "+pexpire",
        "+pttl",
        "+publish",
        "+subscribe",
        "+ping",
    ];
    assert!(cli(&port, &rights).stdout.starts_with(b"OK"));
    let one = Member::open(&format!("redis://tally:p%40ss@127.0.0.1:{port}")).await;
    for exchange in 1..9 {
        let opened = one.opening("c", exchange, 1).await;
        assert!(matches!(opened, Ok(Outcome::Admitted(_))));
    }
    assert!(one.store.remove(&one.key("c")).await.unwrap());
    let wrong = Address::parse(&format!("redis://tally:no@127.0.0.1:{port}")).unwrap();
    let quick = Settings { start_patience: Duration::from_millis(300), ..Settings::new(wrong) };
    let refused = Member::with(quick).await.err();
    assert_eq!(refused, Some(OpenError::Unreachable("redis refuses the login")));
}

/// Waits until it is so.
async fn until(what: &str, so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !so() {
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn asked(server: &Server, command: &[&str]) -> String {
    String::from_utf8(cli(&server.port.to_string(), command).stdout).unwrap()
}

/// A Sentinel that watches the server on that port, alone, and is quick to think it dead.
fn sentinel(watched: u16, directory: &std::path::Path) -> Server {
    let file = directory.join("sentinel.conf");
    let text = format!(
        "sentinel monitor main 127.0.0.1 {watched} 1\n\
         sentinel down-after-milliseconds main 300\n\
         sentinel failover-timeout main 3000\n"
    );
    std::fs::write(&file, text).unwrap();
    Server::start(&[file.to_str().unwrap(), "--sentinel"])
}

/// The master dies, and the store goes on with the one that the Sentinel names then.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_by_sentinel_needs_no_restart() {
    let master = Server::start(&[]);
    let replica = Server::start(&["--replicaof", "127.0.0.1", &master.port.to_string()]);
    until("the replica joins", || {
        asked(&replica, &["info", "replication"]).contains("master_link_status:up")
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let sentinel = sentinel(master.port, directory.path());
    until("the sentinel knows the replica", || {
        asked(&sentinel, &["sentinel", "replicas", "main"]).contains("127.0.0.1")
    })
    .await;
    let url = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port);
    let one = Member::open(&url).await;
    assert!(matches!(one.advance("c", 7).await, Outcome::Advanced { .. }));
    let size = asked(&master, &["dbsize"]);
    until("the replica has it", || asked(&replica, &["dbsize"]) == size).await;
    signal(master.process, "-KILL");
    one.recovers().await;
    let Ok(Outcome::Refused(refused)) = one.opening("c", 1, 6).await else { panic!("stale") };
    assert_eq!(refused.faults[0].code, Code::StaleGeneration, "what was copied is not lost");
    assert!(matches!(one.opening("c", 2, 8).await, Ok(Outcome::Admitted(_))));
    assert!(asked(&replica, &["role"]).contains("master"));
}

/// Certificates that only a test would trust.
fn certify(directory: &std::path::Path) {
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    let openssl = |arguments: &[&str]| {
        let mut command = std::process::Command::new("openssl");
        let made = command.args(arguments).current_dir(directory).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    };
    std::fs::write(directory.join("names"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    let authority =
        ["req", "-x509", "-days", "2", "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.pem"];
    openssl(&[&authority[..], &key].concat());
    let request = ["req", "-subj", "/CN=server", "-keyout", "server.key", "-out", "server.csr"];
    openssl(&[&request[..], &key].concat());
    openssl(&[
        "x509",
        "-req",
        "-in",
        "server.csr",
        "-CA",
        "ca.pem",
        "-CAkey",
        "ca.key",
        "-CAcreateserial",
        "-days",
        "2",
        "-extfile",
        "names",
        "-out",
        "server.pem",
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_spoken_with_a_server_whose_roots_are_named_and_with_no_other() {
    let directory = tempfile::tempdir().unwrap();
    certify(directory.path());
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    let (key, certificate, roots) = (file("server.key"), file("server.pem"), file("ca.pem"));
    let options = [
        "--tls-port",
        &port,
        "--tls-auth-clients",
        "no",
        "--tls-key-file",
        &key,
        "--tls-cert-file",
        &certificate,
        "--tls-ca-cert-file",
        &roots,
    ];
    let _server = Server::start(&options);
    let one = Member::open(&format!("rediss://127.0.0.1:{port}?ca_file={roots}")).await;
    assert!(matches!(one.opening("c", 1, 1).await, Ok(Outcome::Admitted(_))));
    for url in
        [format!("rediss://127.0.0.1:{port}"), format!("rediss://localhost:{port}?ca_file={roots}")]
    {
        let settings = Settings::new(Address::parse(&url).unwrap());
        let quick = Settings { start_patience: Duration::from_millis(300), ..settings };
        let refused = Member::with(quick).await.err();
        assert!(matches!(refused, Some(OpenError::Unreachable(_))), "{url}: {refused:?}");
    }
}

#[test]
fn no_name_of_ours_differs_in_slot_from_what_it_is_used_with() {
    let names = Names::new("p");
    let tag = |name: &[u8]| {
        let name = String::from_utf8(name.to_vec()).unwrap();
        name.split_once('{').and_then(|(_, rest)| rest.split_once('}')).unwrap().0.to_owned()
    };
    assert_eq!(tag(names.identity.as_bytes()), tag(names.alive.as_bytes()));
    let key = |n: u8| agenda::unflat(&[n; 32]);
    assert_ne!(tag(&names.conversation(&key(1))), tag(&names.conversation(&key(2))));
    assert_ne!(tag(&names.places(&key(1))), tag(&names.places(&key(2))));
}
