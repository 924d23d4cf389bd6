//! What is wrong with a configuration, and where: told all at once, so that one start shows everything.
//!
//! A problem names the place as the operator wrote it (file and line, variable, flag), the key, and the
//! way out. Values of secrets never get in here; other values only where they help.

use super::watch::Watched;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Where a setting comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// A line of the file. Line 0: the file as a whole.
    File {
        /// The file, as it was named.
        path: Arc<Path>,
        /// The line, from 1.
        line: usize,
    },
    /// An environment variable, by its name.
    Env(String),
    /// A command-line flag, such as `--listen`.
    Flag(&'static str),
}

/// One thing wrong with the configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Where it was set.
    pub origin: Origin,
    /// The key, dotted: `guard.profile`. Empty when no key is concerned.
    pub key: String,
    /// What is wrong, and what to do.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Default => {}
            Origin::File { path, line: 0 } => write!(f, "{}: ", path.display())?,
            Origin::File { path, line } => write!(f, "{}:{line}: ", path.display())?,
            Origin::Env(name) => write!(f, "environment {name}: ")?,
            Origin::Flag(name) => write!(f, "{name}: ")?,
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// Everything that is wrong with a configuration: at least one problem, in the order of the file, then
/// of the environment, then of the flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    list: Vec<Problem>,
    files: Vec<Watched>,
}

impl Problems {
    /// Sorted, and each told once. `None` when there is nothing to tell.
    #[must_use]
    pub fn new(mut problems: Vec<Problem>) -> Option<Self> {
        problems.sort();
        problems.dedup();
        (!problems.is_empty()).then_some(Problems { list: problems, files: Vec::new() })
    }

    /// Found in a configuration that was read from these files.
    #[must_use]
    pub(super) fn read_from(mut self, files: Vec<Watched>) -> Self {
        self.files = files;
        self
    }

    /// The files that the configuration was read from: it may be mended in any of them.
    #[must_use]
    pub fn files(&self) -> &[Watched] {
        &self.files
    }

    /// The only one.
    pub(super) fn one(problem: Problem) -> Self {
        Problems { list: vec![problem], files: Vec::new() }
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.list.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.list.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            fmt::Display::fmt(problem, f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// The candidate that `name` was most likely meant to be, if one is near.
pub(super) fn nearest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let bound = (name.chars().count() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= bound)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Letters to insert, drop, change or swap with a neighbour (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut next = vec![i];
        for j in 1..=b.len() {
            let changed = row[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = changed.min(row[j] + 1).min(next[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            next.push(best);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let known = ["profile", "rules", "listen", "headers"];
        for (name, meant) in [
            ("profil", Some("profile")),
            ("rlues", Some("rules")),
            ("header", Some("headers")),
            ("listne", Some("listen")),
            ("timeout", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, known), meant, "{name}");
        }
    }

    #[test]
    fn problems_come_in_the_order_of_the_lines_and_once() {
        let at = |line| Problem {
            origin: Origin::File { path: Path::new("a.toml").into(), line },
            key: "k".to_owned(),
            message: "m".to_owned(),
        };
        let flag =
            Problem { origin: Origin::Flag("--listen"), key: String::new(), message: "m".into() };
        let problems = Problems::new(vec![flag, at(10), at(2), at(10)]);
        let text = problems.map(|p| p.to_string());
        assert_eq!(text.as_deref(), Some("a.toml:2: k: m\na.toml:10: k: m\n--listen: m"));
        assert_eq!(Problems::new(Vec::new()), None);
    }
}
