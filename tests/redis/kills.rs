//! Two replicas of the built program over one Redis, under a load of tracked conversations: a replica is
//! killed, or stopped for a moment, or Redis is killed, at random moments. Whatever clients were told is
//! explained by one order of single steps, through all of it.
//!
//! `TIGERTALLY_TEST_KILLS` sets how often (10 by default).
//!
//! Redis must keep what it answered, or what was told cannot stay true. With `appendfsync always` it does, so
//! there it is killed at any moment. With `everysec` it makes one exception itself: while a sync is under way
//! it answers first and writes when the sync is done, two seconds later at most. A kill in that moment loses
//! what was answered in it, as a loss of power does (docs/redis.md says so). So there it is killed between
//! its syncs, and outside of that no loss is an excuse.

use super::history::client::Client;
use super::history::load::{Conversation, kinds, under};
use super::lives::{Replica, kills};
use super::server::{Server, signal};
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tigertally::cli::scripted_upstream::{Script, serve};

const KILLS: usize = 10;
const CONVERSATIONS: usize = 6;

/// Replicas, and clients of conversations.
struct World {
    replicas: Vec<Replica>,
    urls: Vec<String>,
    client: Client,
    conversations: Vec<Arc<Conversation>>,
}

/// An upstream in this process, which outlives every replica.
pub(crate) async fn upstream() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(serve(listener, Script::default()));
    url
}

/// That many replicas over one Redis, started.
pub(crate) async fn replicas(redis: &str, count: usize) -> Vec<Replica> {
    let upstream = upstream().await;
    let mut replicas = Vec::new();
    for _ in 0..count {
        let env = [("TIGERTALLY_STORE__KIND", "redis"), ("TIGERTALLY_STORE__URL", redis)];
        let env = env.map(|(name, value)| (name, value.to_owned())).to_vec();
        let mut replica = Replica::new(&upstream, env);
        replica.start().await;
        replicas.push(replica);
    }
    replicas
}

impl World {
    async fn start(redis: &str) -> Self {
        let replicas = replicas(redis, 2).await;
        let urls = replicas.iter().map(|replica| replica.url.clone()).collect();
        let conversations =
            (0..CONVERSATIONS).map(|n| Conversation::new(format!("c{n}"))).collect();
        World { replicas, urls, client: Client::new(&Arc::default()), conversations }
    }

    /// What was told before is still so, at either replica.
    async fn look(&self) {
        for conversation in &self.conversations {
            let url = &self.urls[rand::random_range(0..self.urls.len())];
            conversation.look(&self.client, url).await;
        }
    }

    fn check(&self, what: &str) {
        let kinds = kinds(&self.client);
        let (operations, lost) = self.client.recorder.check();
        let calls: usize = self.conversations.iter().map(|one| one.calls()).sum();
        println!("{what}: {operations} operations, {lost} lost, {calls} calls; {kinds:?}");
        let missing = kinds.iter().filter(|(kind, seen)| *seen == 0 && *kind != "lost").count();
        assert_eq!(missing, 0, "no such load: {kinds:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_survives_kills_of_a_replica() {
    let server = Server::start(&[]);
    let mut world = World::start(&server.url()).await;
    let kills = kills(KILLS);
    for _ in 0..kills {
        // One of the two, or both.
        let (first, count) = [(0, 1), (1, 1), (0, 2)][rand::random_range(0..3)];
        let World { replicas, urls, client, conversations } = &mut world;
        let struck = &mut replicas[first..first + count];
        under(client, urls, conversations, async || {
            struck.iter_mut().for_each(Replica::kill);
            // The other goes on alone for a while.
            tokio::time::sleep(Duration::from_millis(rand::random_range(0..50))).await;
        })
        .await;
        for replica in struck {
            replica.start().await;
        }
        world.look().await;
    }
    world.check(&format!("{kills} kills of replicas"));
}

/// Stops Redis at a moment at which all that it answered is written: no sync is under way, and none begins.
/// It begins one with a write, at most once in a second of its clock; so after a sync and a write in the same
/// second there is none before the next. Redis from 7.2 on counts a second from the last sync instead, and can
/// be asked to say when one is done.
async fn stop_between_syncs(server: &Server) {
    const ASKED: [&str; 5] = [
        "SET moment 1",
        "WAITAOF 1 0 5000",
        "INFO persistence",
        // Had the sync of this second not begun yet, it begins with this.
        "SET moment 2",
        "INFO persistence",
    ];
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < end, "the disk is so slow that a sync is always under way");
        let (port, process, second) = (server.port, server.process, second());
        let told = tokio::task::spawn_blocking(move || tell(port, &ASKED)).await.unwrap();
        let quiet = told.matches("aof_pending_bio_fsync:0").count() == 2;
        let by_the_clock = told.contains("unknown command");
        if quiet && !(by_the_clock && second.1 < EDGE) {
            signal(process, "-STOP");
            let (now, part) = self::second();
            if !by_the_clock || (now == second.0 && part < 1_000 - EDGE) {
                return;
            }
            signal(process, "-CONT");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Tells the server on that port several commands over one connection, and gives what it says.
fn tell(port: u16, commands: &[&str]) -> String {
    let mut command = Command::new("redis-cli");
    command.args(["-p", &port.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(commands.join("\n").as_bytes()).unwrap();
    String::from_utf8_lossy(&child.wait_with_output().unwrap().stdout).into_owned()
}

/// By so many milliseconds the second of Redis may begin later than ours: it looks at the clock ten times
/// a second.
const EDGE: u32 = 150;

/// The second of the clock, and milliseconds of the next.
fn second() -> (u64, u32) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    (now.as_secs(), now.subsec_millis())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_survives_kills_of_redis_between_its_syncs() {
    survives_kills_of_redis("everysec", stop_between_syncs).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_survives_kills_of_redis_at_any_moment() {
    survives_kills_of_redis("always", async |_| ()).await;
}

async fn survives_kills_of_redis(syncs: &str, its_moment: impl AsyncFn(&Server)) {
    let options = ["--appendonly", "yes", "--appendfsync", syncs];
    let mut server = Some(Server::start(&options));
    let world = World::start(&server.as_ref().unwrap().url()).await;
    let kills = kills(KILLS);
    for _ in 0..kills {
        under(&world.client, &world.urls, &world.conversations, async || {
            let running = server.take().unwrap();
            its_moment(&running).await;
            signal(running.process, "-KILL");
            // Often it is back before anybody gives up, at times not.
            let away = if rand::random_ratio(1, 4) { 1_000..2_500 } else { 0..50 };
            tokio::time::sleep(Duration::from_millis(rand::random_range(away))).await;
            server = Some(tokio::task::spawn_blocking(|| running.relaunch()).await.unwrap());
        })
        .await;
        for replica in &world.replicas {
            replica.is_ready().await;
        }
        world.look().await;
    }
    world.check(&format!("{kills} kills of Redis, {syncs}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_stays_true_when_a_replica_stops_for_a_moment() {
    let server = Server::start(&[]);
    let world = World::start(&server.url()).await;
    let stops = kills(KILLS);
    for _ in 0..stops {
        let stopped = &world.replicas[rand::random_range(0..2)];
        under(&world.client, &world.urls, &world.conversations, async || {
            stopped.signal("-STOP");
            // Around what a late write is allowed: see `a_decision_that_was_held_up_is_not_carried_out`.
            let pause = Duration::from_millis(rand::random_range(10..2_000));
            tokio::time::sleep(pause).await;
            stopped.signal("-CONT");
            tokio::time::sleep(Duration::from_millis(50)).await;
        })
        .await;
        world.look().await;
    }
    world.check(&format!("{stops} stops of replicas"));
}
