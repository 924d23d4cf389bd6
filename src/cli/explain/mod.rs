//! `tigertally explain`: from the files of the task record, the story of one exchange in plain words.
//!
//! Reads only what the record holds, so it needs no running proxy, no store and no key: a file that was copied away
//! will do. Exit code 0 when the exchange was found, 1 when not, 2 when nothing can be read.

mod story;

use super::args::Explain;
use super::rules;
use super::{UNUSABLE, environment, say, tell};
use crate::policy::{self, FlagOverrides, RecordTo, Sources};
use crate::telemetry::record::rotated;
use serde_json::Value;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs the command.
#[must_use]
pub fn run(explain: &Explain) -> ExitCode {
    match find(explain) {
        Err(problem) => {
            tell(&format_args!("tigertally: {problem}"));
            ExitCode::from(UNUSABLE)
        }
        Ok(found) => {
            if found.unreadable > 0 {
                let count = found.unreadable;
                tell(&format_args!("tigertally: {count} lines are none of a task record's"));
            }
            match story::of(&explain.request_id, &found.lines) {
                Some(text) => {
                    say(&text);
                    ExitCode::SUCCESS
                }
                None => {
                    tell(&not_found(&explain.request_id));
                    ExitCode::FAILURE
                }
            }
        }
    }
}

fn not_found(id: &str) -> impl Display {
    format!(
        "tigertally: no exchange {id} in these files. A task's exchanges are written when the task ends: it \
         may be under way still, and the control API tells of it (GET /guard/v1/conversations/{{id}}). Or its \
         file was deleted, or is another replica's."
    )
}

/// Lines in which the id stands.
#[derive(Default)]
struct Found {
    lines: Vec<Value>,
    unreadable: usize,
}

fn find(explain: &Explain) -> Result<Found, String> {
    let named =
        if explain.record.is_empty() { configured(explain)? } else { explain.record.clone() };
    let mut sources = Vec::new();
    for file in named {
        if file.as_os_str() == "-" {
            let mut bytes = Vec::new();
            let read = io::stdin().lock().read_to_end(&mut bytes);
            read.map_err(|error| format!("standard input cannot be read: {error}"))?;
            sources.push(Source::Bytes(bytes));
        } else {
            sources.extend(parts(&file).into_iter().map(Source::File));
        }
    }
    let mut found = gather(&sources, &explain.request_id)?;
    // Results that it brought are told by the id that we minted.
    for id in story::exchanges(&explain.request_id, &found.lines) {
        if id != explain.request_id {
            let more = gather(&sources, &id)?.lines.into_iter();
            found.lines.extend(more.filter(|line| line["kind"] == "result"));
        }
    }
    Ok(found)
}

/// Where lines are.
enum Source {
    File(PathBuf),
    Bytes(Vec<u8>),
}

/// The file that the configuration names.
fn configured(explain: &Explain) -> Result<Vec<PathBuf>, String> {
    let (file, env) = (explain.config.clone(), environment());
    let flags = FlagOverrides::default();
    let policy = policy::load(Sources { file, env, flags }).map_err(|all| all.to_string())?;
    match policy.record.to {
        RecordTo::File(path) => Ok(vec![path]),
        RecordTo::Nothing | RecordTo::Stdout => Err(
            "the configuration names no file of the task record (telemetry.record_file); name one with --record"
                .to_owned(),
        ),
    }
}

/// A file with those that were rotated away from it, oldest first.
fn parts(file: &Path) -> Vec<PathBuf> {
    let mut parts = rotated(file).unwrap_or_default();
    // One that was just rotated has no successor yet.
    if parts.is_empty() || file.exists() {
        parts.push(file.to_owned());
    }
    parts
}

/// The lines in which the id stands.
fn gather(sources: &[Source], id: &str) -> Result<Found, String> {
    let mut found = Found::default();
    let quoted = Value::from(id).to_string();
    for source in sources {
        match source {
            Source::Bytes(bytes) => pick(&bytes[..], &quoted, &mut found).unwrap_or_default(),
            Source::File(path) => {
                let opened = File::open(path).map(BufReader::new);
                let read = opened.and_then(|lines| pick(lines, &quoted, &mut found));
                read.map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
            }
        }
    }
    Ok(found)
}

fn pick(lines: impl BufRead, quoted: &str, found: &mut Found) -> io::Result<()> {
    for line in lines.split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        if line.trim().is_empty() {
            continue;
        }
        // Only what may hold the id is read whole; a quick look tells the rest from strangers' lines.
        if !line.contains(quoted) {
            found.unreadable += usize::from(!line.starts_with('{'));
            continue;
        }
        match serde_json::from_str::<Value>(&line) {
            Ok(value) if value["v"].is_u64() && value["kind"].is_string() => {
                found.lines.push(value);
            }
            _ => found.unreadable += 1,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_file_is_read_with_what_was_rotated_from_it() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("tasks.jsonl");
        for (name, at) in [("tasks.jsonl.20251130T181200Z", 1), ("tasks.jsonl", 2)] {
            let line = serde_json::json!({ "v": 1, "kind": "exchange", "exchange": "x", "at": at });
            std::fs::write(scratch.path().join(name), format!("{line}\nhalf\n")).unwrap();
        }
        let explain = Explain { request_id: "x".to_owned(), record: vec![file], config: None };
        let found = find(&explain).unwrap();
        let order: Vec<_> = found.lines.iter().map(|line| line["at"].as_u64().unwrap()).collect();
        assert_eq!((order, found.unreadable), (vec![1, 2], 2));
    }

    #[test]
    fn a_file_that_is_not_there_is_told() {
        let record = vec![PathBuf::from("/nowhere/tasks.jsonl")];
        let explain = Explain { request_id: "x".to_owned(), record, config: None };
        assert!(find(&explain).is_err_and(|problem| problem.contains("/nowhere/tasks.jsonl")));
    }
}
