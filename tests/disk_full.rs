//! The disk fills up under the running program: it refuses what it cannot keep, loses nothing, and goes on by
//! itself when there is room. The limit is the kernel's own on the size of a file, which any user may set on a
//! process of theirs: a write beyond it goes out in part, and then fails, as on a full file system.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tigertally::cli::scripted_upstream::{Script, serve};

/// Started so that the limit fails a write instead of ending the process.
const IGNORING: &str = r#"trap '' XFSZ; exec "$0" "$@""#;

struct Proxy {
    listen: String,
    admin: String,
    scratch: tempfile::TempDir,
    upstream: String,
    client: reqwest::Client,
    child: Child,
}

impl Proxy {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(serve(listener, Script::default()));
        let scratch = tempfile::tempdir().unwrap();
        let (listen, admin) = (free_address(), free_address());
        let child = spawn(&listen, &admin, &upstream, &scratch);
        let client = reqwest::Client::builder().timeout(Duration::from_secs(20)).build().unwrap();
        let mut proxy = Proxy { listen, admin, scratch, upstream, client, child };
        proxy.answers().await;
        proxy
    }

    async fn answers(&mut self) {
        self.until("it answers", async |proxy| proxy.ready().await == 200).await;
    }

    async fn restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = spawn(&self.listen, &self.admin, &self.upstream, &self.scratch);
        self.answers().await;
    }

    async fn until(&self, what: &str, mut so: impl AsyncFnMut(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(30);
        while !so(self).await {
            assert!(Instant::now() < end, "{what}: not in time");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn ready(&self) -> u16 {
        let answer = self.client.get(format!("http://{}/readyz", self.admin)).send().await;
        answer.map_or(0, |answer| answer.status().as_u16())
    }

    async fn post(&self, path: &str, conversation: &str, body: &Value) -> (u16, Value) {
        let mut request = self.client.post(format!("http://{}{path}", self.listen)).json(body);
        if !conversation.is_empty() {
            request = request.header("x-conversation-id", conversation).header("x-generation", 1);
        }
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    async fn open(&self, conversation: &str) -> (u16, Value) {
        let parameters = json!({"type": "object", "properties": {"order_id": {"type": "string"}}});
        let function = json!({"name": "get_order_status", "parameters": parameters});
        let body = json!({
            "model": "scripted",
            "messages": [{"role": "user", "content": "Where is ORDER-1?"}],
            "tools": [{"type": "function", "function": function}],
        });
        self.post("/v1/chat/completions", conversation, &body).await
    }

    async fn decide(&self, id: &Value, content: &str) -> (u16, Value) {
        let body = json!({"generation": 1, "tool_call_id": id, "content": content});
        self.post("/guard/v1/conversations/c/results", "", &body).await
    }

    fn log(&self) -> u64 {
        let path: PathBuf = self.scratch.path().join("data/0000000000000001.log");
        std::fs::metadata(path).unwrap().len()
    }

    /// No file of the process may grow beyond that.
    fn limit(&self, bytes: &str) {
        let pid = self.child.id().to_string();
        let limit = format!("--fsize={bytes}:");
        let set = Command::new("prlimit").args(["--pid", &pid, &limit]).status().unwrap();
        assert!(set.success());
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(listen: &str, admin: &str, upstream: &str, scratch: &tempfile::TempDir) -> Child {
    let store = format!("embedded:{}", scratch.path().join("data").display());
    let mut command = Command::new("sh");
    command
        .args(["-c", IGNORING, env!("CARGO_BIN_EXE_tigertally"), "serve"])
        .args(["--upstream", upstream, "--store", &store])
        .args(["--listen", listen, "--admin-listen", admin])
        .current_dir(scratch.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIGERTALLY_") {
            command.env_remove(name);
        }
    }
    command.spawn().unwrap()
}

fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

fn code((_, body): &(u16, Value)) -> &str {
    body["error"]["code"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_loses_nothing_and_recovers() {
    let mut proxy = Proxy::start().await;
    let opened = proxy.open("c").await;
    assert_eq!(opened.0, 200, "{opened:?}");
    let id = opened.1["choices"][0]["message"]["tool_calls"][0]["id"].clone();
    // Full to the byte; then with room for a part of a record.
    for room in [0, 40] {
        // Once a second the log says up to where it is on the disk: until that is said, it grows by itself.
        let mut full = 0;
        proxy
            .until("it is full", async |proxy| {
                proxy.limit(&(proxy.log() + room).to_string());
                full = proxy.log();
                let refused = proxy.open("new").await;
                (refused.0, code(&refused)) == (503, "store_unavailable")
            })
            .await;
        for n in 0..5 {
            let new = proxy.open(&format!("new {n}").replace(' ', "-")).await;
            assert_eq!((new.0, code(&new)), (503, "store_unavailable"), "{new:?}");
            let result = proxy.decide(&id, "shipped").await;
            assert_eq!((result.0, code(&result)), (503, "store_unavailable"), "{result:?}");
            assert_eq!(proxy.open("").await.0, 200, "untracked ones go on");
        }
        assert_eq!(proxy.ready().await, 503);
        assert_eq!(proxy.log(), full, "no part of a record stays");
        proxy.limit("unlimited");
        proxy.until("it recovers", async |proxy| proxy.ready().await == 200).await;
    }
    let accepted = proxy.decide(&id, "shipped").await;
    assert_eq!(accepted.0, 200, "none of the refused ones counted: {accepted:?}");
    proxy.restart().await;
    let other = proxy.decide(&id, "lost").await;
    assert_eq!((other.0, code(&other)), (422, "conflict"), "{other:?}");
    assert_eq!(code(&proxy.decide(&id, "shipped").await), "duplicate");
    assert_eq!(proxy.open("new-0").await.0, 200);
}
