//! A configuration file: it is resolved, or everything that is wrong with it is told.

use super::bounds;
use tigertally::policy::{self, Sources};

/// Takes bytes as the text of a file.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // Sound texts name files, patterns and addresses, which take what they take.
    bounds::hold(data.len() * 8, || read(text));
}

/// Resolves a text.
pub fn read(text: &str) {
    match policy::load_built_in("fuzz.toml", text, Sources::default()) {
        Ok(policy) => drop(policy.show()),
        Err(problems) => assert!(problems.iter().count() > 0, "refused without a word"),
    }
}
