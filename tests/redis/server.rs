//! Real servers for the tests: one, or a Cluster of three, on free ports, in a directory that goes.
//! `TIGERTALLY_TEST_REDIS_SERVER` names another program than the `redis-server` on the path: another
//! version, or Valkey.
//!
//! A server must not outlive the test process, however that ends, and nor must its directory: a server in a
//! `static` is never dropped. So a shell holds both: when the pipe to the shell breaks, the shell ends the
//! one and removes the other.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::time::{Duration, Instant};

const HOLDER: &str = r#"
    trap '' INT TERM; directory=$1; shift
    "$@" >>log 2>&1 & echo $!
    last=$(cat); kill -9 $!; wait
    [ "$last" = keep ] || rm -rf -- "$directory"
"#;
/// For how long we wait for a server.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server.
pub(crate) struct Server {
    pub(crate) port: u16,
    pub(crate) process: u32,
    directory: PathBuf,
    options: Vec<String>,
    holder: Holder,
}

struct Holder {
    child: Child,
    pipe: Option<ChildStdin>,
}

impl Server {
    /// Starts one with these further options, and waits until it answers.
    pub(crate) fn start(options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap().keep();
        let quiet: &[&str] = if options.contains(&"--sentinel") { &[] } else { &["--save", ""] };
        let options = options.iter().chain(quiet);
        let options: Vec<String> = options.map(|one| (*one).to_owned()).collect();
        // A port that was free may be taken in between; then the server ends at once.
        for _ in 0..10 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            // A Cluster's nodes talk on the port 10000 above.
            if port > 50_000 {
                continue;
            }
            if let Some((process, holder)) = launch(&directory, port, &options) {
                return Server { port, process, directory, options, holder };
            }
        }
        panic!("no server starts: {}", log(&directory));
    }

    /// The URL that a store is given.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Ends it as a power failure would, and starts it again on the same port with what it had written.
    pub(crate) fn relaunch(self) -> Self {
        let Server { port, directory, options, holder, .. } = self;
        holder.leave();
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some((process, holder)) = launch(&directory, port, &options) {
                return Server { port, process, directory, options, holder };
            }
        }
        panic!("it does not come back: {}", log(&directory));
    }
}

fn launch(directory: &Path, port: u16, options: &[String]) -> Option<(u32, Holder)> {
    let port = port.to_string();
    let ours = ["--bind", "127.0.0.1", "--dir", ".", "--protected-mode", "no"];
    let mut child = Command::new("sh")
        .args(["-c", HOLDER, "sh"])
        .arg(directory)
        .arg(std::env::var_os("TIGERTALLY_TEST_REDIS_SERVER").unwrap_or("redis-server".into()))
        .args(options)
        .args(["--port", &port])
        .args(ours)
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let process: u32 = line.trim().parse().unwrap();
    let pipe = child.stdin.take();
    let holder = Holder { child, pipe };
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        let answer = cli(&port, &["ping"]);
        if answer.stdout.starts_with(b"PONG") {
            return Some((process, holder));
        }
        if log(directory).contains("Failed listening on port") {
            std::fs::write(directory.join("log"), "").unwrap();
            holder.leave();
            return None;
        }
        pause();
    }
    panic!("it does not answer: {}", log(directory));
}

#[expect(clippy::disallowed_methods, reason = "a test waits for a process")]
fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

/// Asks the server on that port by its own client.
pub(crate) fn cli(port: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new("redis-cli");
    command.args(["-p", port]).args(arguments).stdin(Stdio::null());
    command.output().expect("redis-cli: apt-get install redis-server")
}

/// Sends a signal to a process.
pub(crate) fn signal(process: u32, signal: &str) {
    let sent = Command::new("kill").args([signal, &process.to_string()]).status();
    assert!(sent.unwrap().success());
}

fn log(directory: &Path) -> String {
    std::fs::read_to_string(directory.join("log")).unwrap_or_default()
}

impl Holder {
    /// Ends the server, and leaves its directory.
    fn leave(mut self) {
        let told = self.pipe.take().unwrap().write_all(b"keep");
        told.unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.pipe = None;
        let _ = self.child.wait();
    }
}

/// Three nodes that share the slots.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Server>,
}

impl Cluster {
    /// Starts one, and waits until it is whole.
    pub(crate) fn start() -> Self {
        let nodes: Vec<Server> = (0..3)
            .map(|_| Server::start(&["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"]))
            .collect();
        let addresses: Vec<String> =
            nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        let first = nodes[0].port.to_string();
        let mut arguments = vec!["--cluster", "create"];
        arguments.extend(addresses.iter().map(String::as_str));
        arguments.extend(["--cluster-replicas", "0", "--cluster-yes"]);
        let made = cli(&first, &arguments);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
        let end = Instant::now() + PATIENCE;
        let whole = |node: &Server| {
            let info = cli(&node.port.to_string(), &["cluster", "info"]);
            String::from_utf8_lossy(&info.stdout).contains("cluster_state:ok")
        };
        while !nodes.iter().all(whole) {
            assert!(Instant::now() < end, "the cluster does not become whole");
            pause();
        }
        Cluster { nodes }
    }

    /// The URL that a store is given.
    pub(crate) fn url(&self) -> String {
        let hosts: Vec<String> =
            self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }
}
