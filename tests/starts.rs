//! What a start says: where it listens and what is open, or why it does not start and what to do next.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "tests; waits for a process to end"
)]

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn command(directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tigertally"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIGERTALLY_") {
            command.env_remove(name);
        }
    }
    command.args(args).current_dir(directory).env("XDG_STATE_HOME", directory);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What it said, and its exit code.
fn failed(directory: &Path, args: &[&str]) -> (String, i32) {
    let mut child = command(directory, args).spawn().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    let code = child.wait().unwrap().code();
    (said, code.expect("it ended by itself"))
}

/// `serve` that runs, and its log line by line.
struct Serving(Child);

impl Serving {
    fn start(directory: &Path, args: &[&str]) -> Self {
        let ports = ["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
        let all: Vec<&str> = ports.iter().chain(args).copied().collect();
        Serving(command(directory, &all).spawn().unwrap())
    }

    /// The line that holds this, the first to come.
    fn line(&mut self, wanted: &str) -> String {
        let lines = BufReader::new(self.0.stderr.take().unwrap()).lines();
        let mut seen = Vec::new();
        for line in lines {
            let line = line.unwrap();
            if line.contains(wanted) {
                return line;
            }
            seen.push(line);
        }
        unreachable!("no {wanted} in:\n{}", seen.join("\n"))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn write(directory: &Path, name: &str, text: &str) {
    std::fs::write(directory.join(name), text).unwrap();
}

#[test]
fn every_start_that_fails_says_what_to_do() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().to_string();
    write(directory, "a-file", "");
    write(directory, "typo.toml", "[guard]\nprofile = \"stric\"\n");
    write(directory, "keys.toml", "[auth]\nmode = \"keys\"\nkeys_file = \"none\"\n");
    write(directory, "record.toml", "[telemetry]\nrecord_file = \"nowhere/tasks.jsonl\"\n");
    let free = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    let serve = |args: &[&'static str]| [&["serve"], &free[..], args].concat();
    let taken = |flag| vec!["serve", flag, port.as_str()];
    let memory = |args: Vec<&'static str>| [args, vec!["--store", "memory:"]].concat();
    let table: [(Vec<&str>, i32, &[&str]); 12] = [
        (
            [taken("--listen"), vec!["--store", "memory:"]].concat(),
            1,
            &["cannot listen on", "with --listen"],
        ),
        (
            [taken("--admin-listen"), vec!["--listen", "127.0.0.1:0", "--store", "memory:"]]
                .concat(),
            1,
            &["cannot listen on", "with --admin-listen"],
        ),
        (vec!["scripted-upstream", "--listen", &port], 1, &["cannot listen on", "with --listen"]),
        (vec!["serve", "--listen", "8090"], 2, &["--listen", "such as \"127.0.0.1:8090\""]),
        (vec!["serve", "--listen", "0.0.0.0:0"], 2, &["set auth.mode", "--insecure"]),
        (serve(&["--config", "none.toml"]), 2, &["none.toml", "config/example.toml"]),
        (serve(&["--config", "typo.toml"]), 2, &["typo.toml:2", "did you mean \"strict\"?"]),
        (serve(&["--config", "keys.toml"]), 2, &["keys.toml:3", "`tigertally keys add`"]),
        (
            memory(serve(&["--config", "record.toml"])),
            1,
            &["nowhere/tasks.jsonl", "telemetry.record_file"],
        ),
        (serve(&["--store", "embedded:a-file"]), 1, &["a-file", "store.path", "--store"]),
        (
            serve(&["--store", "redis://127.0.0.1:1"]),
            1,
            &["127.0.0.1:1", "see that it runs", "--store"],
        ),
        (serve(&["--upstream", "127.0.0.1:30000"]), 2, &["--upstream", "must begin with http://"]),
    ];
    for (args, code, words) in table {
        let (said, ended) = failed(directory, &args);
        assert_eq!(ended, code, "{args:?}: {said}");
        for word in words {
            assert!(said.contains(word), "{args:?} does not say {word}: {said}");
        }
    }
}

/// Also when nobody reads the log of the first any more (its upstream is not there, which it says): it goes on.
#[test]
fn a_store_that_another_process_holds_is_told() {
    let scratch = tempfile::tempdir().unwrap();
    let args = ["--store", "embedded:state", "--upstream", "http://127.0.0.1:1"];
    let mut first = Serving::start(scratch.path(), &args);
    first.line("listening");
    let args = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--admin-listen",
        "127.0.0.1:0",
        "--store",
        "embedded:state",
    ];
    let (said, code) = failed(scratch.path(), &args);
    assert!(code == 1 && said.contains("a directory of its own"), "{said}");
}

#[test]
fn a_start_says_where_it_listens_what_it_guards_and_what_is_open() {
    let scratch = tempfile::tempdir().unwrap();
    write(
        scratch.path(),
        "t.toml",
        "[routes]\npass = [\"/v1/embeddings\"]\n[telemetry]\nlog_format = \"json\"\n",
    );
    let args = ["--config", "t.toml", "--store", "memory:", "--profile", "observe"];
    let line = Serving::start(scratch.path(), &args).line("listening");
    let said: serde_json::Value = serde_json::from_str(&line).unwrap();
    for (field, value) in [
        ("scheme", "http"),
        ("auth", "none"),
        ("upstream", "http://127.0.0.1:30000/"),
        ("kind", "sglang"),
        ("profile", "observe"),
        ("store", "memory"),
        ("guards", "/v1/chat/completions"),
        ("unguarded", "/v1/embeddings"),
    ] {
        assert_eq!(said[field], value, "{field}: {line}");
    }
    assert_eq!(said["observe"], true);
    assert!(said["listen"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
    assert!(said["admin"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
}

#[test]
fn an_upstream_that_is_not_there_is_told() {
    let scratch = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let args = ["--store", "memory:", "--upstream", &url];
    let line = Serving::start(scratch.path(), &args).line("nobody answers at the upstream");
    assert!(line.contains(&url), "{line}");
}

#[test]
fn a_file_of_keys_that_others_can_read_is_told() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path();
    let args = ["keys", "add", "--file", "keys", "--name", "me"];
    assert!(command(directory, &args).status().unwrap().success());
    write(directory, "t.toml", "[auth]\nmode = \"keys\"\nkeys_file = \"keys\"\n");
    let check = || command(directory, &["config", "check", "t.toml"]).output().unwrap();
    assert!(check().stderr.is_empty(), "as it is made, it is closed");
    let loose = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(directory.join("keys"), loose).unwrap();
    let said = String::from_utf8(check().stderr).unwrap();
    assert!(said.contains("chmod 600"), "{said}");
    let args = ["--config", "t.toml", "--store", "memory:"];
    let line = Serving::start(directory, &args).line("a file of secrets is open to others");
    assert!(line.contains("mode 644") && line.contains("chmod 600"), "{line}");
}

/// What shells and `man` are given.
#[test]
fn completions_and_pages_are_printed() {
    let scratch = tempfile::tempdir().unwrap();
    for (args, word) in [
        (&["completions", "bash"][..], "complete -F"),
        (&["completions", "zsh"], "#compdef tigertally"),
        (&["completions", "fish"], "complete -c tigertally"),
        (&["man"], ".TH tigertally 1"),
    ] {
        let output = command(scratch.path(), args).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && said.contains(word), "{args:?}: {said}");
        assert!(said.contains("check") && said.contains("serve"), "{args:?}: {said}");
    }
    assert!(command(scratch.path(), &["man", "--dir", "pages"]).status().unwrap().success());
    let page = std::fs::read_to_string(scratch.path().join("pages/tigertally-check.1")).unwrap();
    assert!(page.contains("request.json"), "{page}");
}
