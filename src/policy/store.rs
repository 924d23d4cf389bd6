//! The store's section: which store, and where it keeps what.
//!
//! Where nothing is said, conversations are kept on the disk: a restart must not turn every pending call
//! into `unmatched`. The directory is the one that the system gives a service (`STATE_DIRECTORY`, set by
//! systemd's `StateDirectory=`), or else the user's place for such (`XDG_STATE_HOME`, `~/.local/state`),
//! and only without all of these one in the working directory: a proxy started twice from two places
//! must find the same conversations.

use super::findings::Findings;
use super::section::{Found, Section, text, words};
use super::{OnError, StoreKind};
use crate::store::embedded::Durability;
use crate::store::redis::Address;
use std::path::PathBuf;

/// Reads the section. `env` says where the system keeps such things.
pub(super) fn resolve(
    mut section: Section<'_>,
    env: &[(String, String)],
    findings: &Findings,
) -> (StoreKind, OnError) {
    let kind = section.found("kind", text);
    let path = section.found("path", text);
    let key_file = section.found("key_file", text);
    let levels = [("process", Durability::Process), ("machine", Durability::Machine)];
    let durability = section.choice("durability", &levels);
    let on_error =
        section.choice("on_error", &[("closed", OnError::Closed), ("open", OnError::Open)]);
    let url = section.found("url", text);
    let prefix = section.found("prefix", words);
    section.finish();
    let written = kind.as_ref().map_or("embedded", |kind| kind.value.as_str());
    // The flag is a URL: `memory:`, `embedded:PATH`. What stands behind a scheme may hold a password.
    let (name, behind) = written.split_once(':').unwrap_or((written, ""));
    let store = match name {
        "memory" if behind.is_empty() => StoreKind::Memory,
        "embedded" => {
            let behind = (!behind.is_empty()).then(|| PathBuf::from(behind));
            StoreKind::Embedded {
                path: behind
                    .or_else(|| not_empty(path, findings))
                    .unwrap_or_else(|| default_path(env)),
                key_file: not_empty(key_file, findings),
                durability: durability.unwrap_or(Durability::Process),
            }
        }
        "redis" | "rediss" | "redis+sentinel" | "rediss+sentinel" | "redis+cluster"
        | "rediss+cluster" => {
            let written = if behind.is_empty() { url.as_ref() } else { kind.as_ref() };
            redis(written, kind.as_ref(), prefix, not_empty(key_file, findings), findings)
        }
        _ => {
            if let Some(kind) = &kind {
                let message = match name {
                    "memory" => "takes nothing behind \"memory:\"",
                    _ => "is unknown; \"embedded\", \"memory\" and \"redis\" are available",
                };
                findings.tell(&kind.origin, &kind.key, message);
            }
            StoreKind::Memory
        }
    };
    (store, on_error.unwrap_or(OnError::Closed))
}

/// A Redis, at the URL that is `written`. What is wrong with one is told without quoting it.
fn redis(
    written: Option<&Found<String>>,
    kind: Option<&Found<String>>,
    prefix: Option<Found<String>>,
    key_file: Option<PathBuf>,
    findings: &Findings,
) -> StoreKind {
    let Some(written) = written else {
        if let Some(kind) = kind {
            findings.tell(&kind.origin, &kind.key, "\"redis\" needs store.url");
        }
        return StoreKind::Memory;
    };
    match Address::parse(&written.value) {
        Ok(address) => StoreKind::Redis {
            address: Box::new(address),
            prefix: prefix.map_or_else(|| "tigertally".to_owned(), |prefix| prefix.value),
            key_file,
        },
        Err(error) => {
            findings.tell(&written.origin, &written.key, error.to_string());
            StoreKind::Memory
        }
    }
}

fn not_empty(found: Option<Found<String>>, findings: &Findings) -> Option<PathBuf> {
    let found = found?;
    if found.value.trim().is_empty() {
        findings.tell(&found.origin, &found.key, "is empty");
        return None;
    }
    Some(PathBuf::from(found.value))
}

/// Where conversations are kept when nothing is said.
fn default_path(env: &[(String, String)]) -> PathBuf {
    let variable = |name: &str| {
        let found = env.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        found.filter(|value| value.starts_with('/'))
    };
    // Of several directories systemd names the first is meant for the service itself.
    let state = variable("STATE_DIRECTORY").and_then(|all| all.split(':').next());
    if let Some(state) = state {
        return PathBuf::from(state);
    }
    if let Some(home) = variable("XDG_STATE_HOME") {
        return PathBuf::from(home).join("tigertally");
    }
    match variable("HOME") {
        Some(home) => PathBuf::from(home).join(".local/state/tigertally"),
        None => PathBuf::from(".tigertally"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_path_is_the_systems_place_for_state() {
        let path = |env: &[(&str, &str)]| {
            let env: Vec<_> =
                env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            default_path(&env)
        };
        let all = [("STATE_DIRECTORY", "/var/lib/t:/var/lib/u"), ("HOME", "/home/u")];
        assert_eq!(path(&all), PathBuf::from("/var/lib/t"));
        let xdg = [("XDG_STATE_HOME", "/s"), ("HOME", "/home/u")];
        assert_eq!(path(&xdg), PathBuf::from("/s/tigertally"));
        let relative = [("XDG_STATE_HOME", "s"), ("HOME", "/home/u")];
        assert_eq!(path(&relative), PathBuf::from("/home/u/.local/state/tigertally"));
        assert_eq!(path(&[]), PathBuf::from(".tigertally"));
    }
}
