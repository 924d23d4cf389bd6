//! What the process does on signals, and when a file of its configuration changes: reads it again, drains,
//! and drains no longer.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[expect(dead_code, reason = "what other tests need")]
mod rig;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use rig::{Upstream, ask, client, error, event, next, send, text};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The program on a configuration file; ended when dropped.
struct Process {
    child: Child,
    scratch: tempfile::TempDir,
    listen: String,
}

impl Process {
    async fn start(config: &str) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let (listen, admin) = (free_address(), free_address());
        std::fs::write(scratch.path().join("t.toml"), config).unwrap();
        let log = File::create(scratch.path().join("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_tigertally"))
            .args(["serve", "--config", "t.toml", "--listen", &listen, "--admin-listen", &admin])
            .args(["--store", "memory:"])
            .current_dir(scratch.path())
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let process = Process { child, scratch, listen };
        process.logs("listening").await;
        process
    }

    fn config(&self) -> PathBuf {
        self.scratch.path().join("t.toml")
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.scratch.path().join("log")).unwrap()
    }

    async fn logs(&self, words: &str) {
        let end = Instant::now() + Duration::from_secs(20);
        while !self.log().contains(words) {
            assert!(Instant::now() < end, "no {words:?} in:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn opens(&self, path: &str) {
        let end = Instant::now() + Duration::from_secs(20);
        while !is_open(self, path).await {
            assert!(Instant::now() < end, "{path} stays closed:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn ended(&mut self) -> ExitStatus {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "it does not end:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn post(&self, path: &str, body: String) -> Response<Incoming> {
        let request = Request::post(format!("http://{}{path}", self.listen))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        send(&client(), request).await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn config(upstream: &Upstream, more: &str) -> String {
    format!("{more}\n[upstream]\nurl = \"http://{}\"\n", upstream.addr)
}

#[tokio::test]
async fn hangup_reads_the_file_again_and_a_bad_file_changes_nothing() {
    let upstream = Upstream::start().await;
    let process = Process::start(&config(&upstream, "")).await;
    let embeddings = || process.post("/v1/embeddings", "{}".to_owned());
    assert_eq!(embeddings().await.status(), 403);
    let feed = upstream.will_stream();
    let mut stream = process.post(rig::CHAT, ask(true)).await.into_body();

    let open = "[routes]\npass = [\"/v1/embeddings\"]\n[limits]\nexchanges = 7";
    std::fs::write(process.config(), config(&upstream, open)).unwrap();
    process.signal("HUP");
    process.logs("the configuration was read again").await;
    assert_eq!(embeddings().await.status(), 200);
    assert!(process.log().contains("limits.exchanges"), "{}", process.log());

    let bad = "[routes]\npass = []\n[guard]\nprofile = \"lax\"\n[limits]\ndepth = 0";
    std::fs::write(process.config(), config(&upstream, bad)).unwrap();
    process.signal("HUP");
    process.logs("t.toml:6: limits.depth").await;
    assert!(process.log().contains("t.toml:4: guard.profile"), "{}", process.log());
    assert_eq!(embeddings().await.status(), 200);

    // The exchange that was in flight all the while ends as it began.
    let answer = event("{\"content\":\"hi\"}", Some("stop"));
    feed.send(Bytes::from(answer.clone())).unwrap();
    drop(feed);
    assert_eq!(next(&mut stream).await.unwrap(), answer);
    assert_eq!(next(&mut stream).await, None);
}

/// A configuration with one path open.
fn opened(upstream: &Upstream, path: &str) -> String {
    config(upstream, &format!("[routes]\npass = [\"{path}\"]"))
}

async fn is_open(process: &Process, path: &str) -> bool {
    process.post(path, "{}".to_owned()).await.status() == 200
}

#[tokio::test]
async fn a_file_that_is_renamed_over_the_old_one_is_taken_over() {
    let upstream = Upstream::start().await;
    let process = Process::start(&opened(&upstream, "/v1/one")).await;
    let feed = upstream.will_stream();
    let mut stream = process.post(rig::CHAT, ask(true)).await.into_body();
    let beside = process.scratch.path().join("t.toml.new");
    let strict = format!("{}[tools]\nallow = []\n", opened(&upstream, "/v1/two"));
    std::fs::write(&beside, strict).unwrap();
    std::fs::rename(&beside, process.config()).unwrap();
    process.logs("a file has changed").await;
    assert!(is_open(&process, "/v1/two").await);
    assert!(!is_open(&process, "/v1/one").await, "all of it or nothing");
    // What was in flight keeps the policy that it began with: its tool is still allowed.
    let call = rig::fragment(Some("c1"), Some("get_order"), "{\"order_id\":\"A\"}");
    let sent = call + &event("{}", Some("tool_calls"));
    feed.send(Bytes::from(sent.clone())).unwrap();
    drop(feed);
    let mut got = String::new();
    while let Some(bytes) = next(&mut stream).await {
        got.push_str(std::str::from_utf8(&bytes).unwrap());
    }
    assert_eq!(got, sent);
}

#[tokio::test]
async fn a_config_map_that_is_swapped_is_taken_over() {
    use std::os::unix::fs::symlink;
    let upstream = Upstream::start().await;
    let process = Process::start(&opened(&upstream, "/v1/one")).await;
    // From a plain file to what a mounted ConfigMap looks like, and then the swap of its data.
    let at = |name: &str| process.scratch.path().join(name);
    for (version, path) in [("..v1", "/v1/two"), ("..v2", "/v1/three")] {
        std::fs::create_dir(at(version)).unwrap();
        std::fs::write(at(version).join("t.toml"), opened(&upstream, path)).unwrap();
    }
    symlink("..v1", at("..data")).unwrap();
    symlink("..data/t.toml", at("link")).unwrap();
    std::fs::rename(at("link"), process.config()).unwrap();
    process.opens("/v1/two").await;
    symlink("..v2", at("..data_tmp")).unwrap();
    std::fs::rename(at("..data_tmp"), at("..data")).unwrap();
    process.opens("/v1/three").await;
    assert!(!is_open(&process, "/v1/two").await);
}

#[tokio::test]
async fn a_bad_file_is_told_once_and_a_file_that_it_names_can_mend_it() {
    let upstream = Upstream::start().await;
    let process = Process::start(&opened(&upstream, "/v1/one")).await;
    // Half of a file, and one that names a schema which is not there yet.
    let whole = opened(&upstream, "/v1/two") + "[tools.get_order]\nschema = \"s.json\"\n";
    std::fs::write(process.config(), &whole[..whole.len() - 3]).unwrap();
    process.logs("not valid TOML").await;
    std::fs::write(process.config(), &whole).unwrap();
    process.logs("tools.get_order.schema").await;
    assert!(is_open(&process, "/v1/one").await && !is_open(&process, "/v1/two").await);
    std::fs::write(process.scratch.path().join("s.json"), "{\"type\":\"object\"}").unwrap();
    process.opens("/v1/two").await;
    let log = process.log();
    let told = |words: &str| log.lines().filter(|line| line.contains(words)).count();
    assert_eq!(told("tools.get_order.schema"), 1, "{log}");
    assert_eq!(told("was read again"), 1, "{log}");
}

#[tokio::test]
async fn a_key_that_is_replaced_in_its_file_is_used_and_never_logged() {
    let mut upstream = Upstream::start().await;
    let process = Process::start(&config(&upstream, "")).await;
    let key = process.scratch.path().join("key");
    std::fs::write(&key, "hunter2-old").unwrap();
    let text = config(&upstream, "") + "api_key_file = \"key\"\n";
    std::fs::write(process.config(), text).unwrap();
    process.logs("a file has changed").await;
    for (name, next) in [("hunter2-old", "hunter2-new"), ("hunter2-new", "two words")] {
        upstream.will(rig::json("{\"choices\":[]}"));
        assert_eq!(process.post(rig::CHAT, ask(false)).await.status(), 200);
        let (_, headers, _) = upstream.saw_request().await;
        assert_eq!(headers["authorization"], format!("Bearer {name}"));
        std::fs::write(&key, next).unwrap();
        let told = if next.contains(' ') { "must hold one secret" } else { "was read again" };
        let before = process.log().matches("was read again").count();
        let end = Instant::now() + Duration::from_secs(20);
        while !process.log().contains("must hold one secret")
            && process.log().matches("was read again").count() == before
        {
            assert!(Instant::now() < end, "no {told:?} in:\n{}", process.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(process.log().contains(told), "{}", process.log());
    }
    assert!(!process.log().contains("hunter2"), "{}", process.log());
    assert!(!process.log().contains("two words"), "{}", process.log());
}

#[tokio::test]
async fn a_second_signal_ends_the_drain_at_once() {
    let upstream = Upstream::start().await;
    let mut process = Process::start(&config(&upstream, "[limits]\ndrain_timeout = \"10m\"")).await;
    let _feed = upstream.will_stream();
    let stream = process.post(rig::CHAT, ask(true)).await;
    process.signal("TERM");
    process.logs("draining").await;
    process.signal("HUP");
    process.signal("INT");
    let got = text(stream).await;
    assert_eq!(error(got.strip_prefix("data: ").unwrap())["code"], "draining");
    assert!(process.ended().await.success());
    assert!(process.log().contains("withheld"), "{}", process.log());
}

#[tokio::test]
async fn an_upstream_that_refuses_connections_is_told_with_the_cause() {
    let upstream = Upstream::start().await;
    let gone = free_address();
    let process = Process::start(&format!("[upstream]\nurl = \"http://{gone}\"")).await;
    assert_eq!(process.post(rig::CHAT, ask(false)).await.status(), 502);
    process.logs("the upstream cannot be reached").await;
    assert!(process.log().contains("Connection refused"), "{}", process.log());
    drop(upstream);
}
