//! Arrows between the layers point towards `wire` only, and the pure layers know no runtime, no
//! framework, no log and no clock. The order is the one in the crate's documentation.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Each layer may use itself and those before it.
const LAYERS: [&str; 9] =
    ["wire", "guard", "ledger", "store", "policy", "telemetry", "proxy", "control", "cli"];

/// Layers that decide and act on nothing.
const PURE: [&str; 3] = ["wire", "guard", "ledger"];

/// What a pure layer must not name.
const IMPURE: [&str; 11] = [
    "tokio",
    "axum",
    "reqwest",
    "hyper",
    "tower",
    "tracing",
    "rand",
    "SystemTime",
    "Instant",
    "std::fs",
    "std::net",
];

#[test]
fn no_layer_uses_one_above_it() {
    let mut found = Vec::new();
    for (layer, path, code) in sources() {
        let own = rank(&layer).unwrap();
        for used in crate_paths(&code) {
            if rank(&used).is_some_and(|rank| rank > own) {
                found.push(format!("{} uses crate::{used}", path.display()));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn pure_layers_know_no_runtime_framework_log_or_clock() {
    let mut found = Vec::new();
    for (layer, path, code) in sources() {
        if PURE.contains(&layer.as_str()) {
            let names = IMPURE.into_iter().filter(|name| names(&code, name));
            found.extend(names.map(|name| format!("{} names {name}", path.display())));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_module_is_in_a_layer() {
    let root = source_root();
    let ours: BTreeSet<String> = LAYERS.map(str::to_owned).into();
    let there: BTreeSet<String> = fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| !path.ends_with("lib.rs") && !path.ends_with("main.rs"))
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(there, ours);
}

/// A checker that finds nothing anywhere would pass every test above.
#[test]
fn the_checker_sees_what_it_is_there_for() {
    let code = without_comments_and_tests(
        "use crate::guard::Code;\nuse crate::{wire::json, proxy::Relay};\n// crate::cli\n\
         fn f() { crate::control::x(); let s = \"a // b\"; tigertally::policy::y() }\n\
         #[cfg(test)]\nmod tests { use crate::cli; }\n",
    );
    let used: Vec<String> = crate_paths(&code).into_iter().collect();
    assert_eq!(used, ["control", "guard", "policy", "proxy", "wire"]);
    assert!(names("let t = Instant::now();", "Instant"));
    assert!(names("use std::net::IpAddr;", "std::net"));
    assert!(!names("struct InstantReply; my_tokio::x", "Instant"));
    assert!(!names("my_tokio::x", "tokio"));
}

fn rank(layer: &str) -> Option<usize> {
    LAYERS.iter().position(|known| *known == layer)
}

fn source_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// (layer, file, code) of every source file in a layer.
fn sources() -> Vec<(String, PathBuf, String)> {
    let root = source_root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let inside = path.strip_prefix(&root).unwrap();
            let first = Path::new(inside.components().next().unwrap().as_os_str());
            let layer = first.file_stem().unwrap().to_string_lossy().into_owned();
            if rank(&layer).is_some() && path.extension().is_some_and(|kind| kind == "rs") {
                let code = without_comments_and_tests(&fs::read_to_string(&path).unwrap());
                found.push((layer, path, code));
            }
        }
    }
    assert!(found.len() >= LAYERS.len(), "each layer has a file");
    found
}

/// The code itself: docs may point anywhere, and test modules stand last in our files.
fn without_comments_and_tests(text: &str) -> String {
    let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The modules named by `crate::x`, `tigertally::x` and inside `crate::{x::…, y::…}`.
fn crate_paths(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for root in ["crate::", "tigertally::"] {
        for (at, _) in code.match_indices(root) {
            let rest = &code[at + root.len()..];
            match rest.strip_prefix('{') {
                Some(group) => found.extend(group_heads(group)),
                None => found.extend(leading_name(rest)),
            }
        }
    }
    found
}

/// The first name of each path in a `{…}` group, whose opening brace is already read.
fn group_heads(group: &str) -> Vec<String> {
    let mut heads = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                heads.extend(leading_name(group[start..at].trim_start()));
                start = at + 1;
                if letter == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    heads
}

fn leading_name(text: &str) -> Option<String> {
    let name: String = text.chars().take_while(|letter| is_name(*letter)).collect();
    (!name.is_empty()).then_some(name)
}

fn is_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Whether `code` holds `name` as a whole path or word.
fn names(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + name.len()..].chars().next();
        !before.is_some_and(is_name) && !after.is_some_and(is_name)
    })
}
