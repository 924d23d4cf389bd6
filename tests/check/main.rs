//! `tigertally check` as its users run it: the built program, files and pipes.
//!
//! It must say what the proxy says ([`agreement`]), of every way in which an exchange is saved ([`forms`]), in
//! words that help ([`words`]) or in a document that programs can rest on ([`document`]).

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod agreement;
mod document;
mod forms;
#[expect(dead_code, reason = "what other tests need")]
#[path = "../gateway/mod.rs"]
mod gateway;
#[expect(dead_code, reason = "what the soak needs")]
#[path = "../program/mod.rs"]
mod program;
mod words;

use serde_json::Value;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// What the program said and how it ended.
pub(crate) struct Said {
    pub(crate) out: String,
    pub(crate) code: i32,
}

impl Said {
    /// The document of `--json`.
    pub(crate) fn document(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }

    /// The codes of what the proxy would refuse for, in their order.
    pub(crate) fn faults(&self) -> Vec<String> {
        let document = self.document();
        let exchanges = document["exchanges"].as_array().unwrap().iter();
        let findings = exchanges.flat_map(|exchange| exchange["findings"].as_array().unwrap());
        let of = findings.filter(|finding| finding["level"] == "fault");
        of.map(|finding| finding["code"].as_str().unwrap().to_owned()).collect()
    }
}

/// `tigertally check ARGS` with that standard input.
pub(crate) fn check(args: &[&str], input: &[u8]) -> Said {
    check_in(Path::new("."), args, input)
}

/// The same, in a directory.
pub(crate) fn check_in(directory: &Path, args: &[&str], input: &[u8]) -> Said {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tigertally"))
        .arg("check")
        .args(args)
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    #[expect(clippy::disallowed_methods, reason = "joined below")]
    let writer = std::thread::spawn(move || {
        // Whoever has seen enough reads no further.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.is_empty(), "it also said: {err}");
    Said { out: String::from_utf8(output.stdout).unwrap(), code: output.status.code().unwrap() }
}
