//! What reading a configuration brings to light beside its values: all that is wrong with it, the keys that
//! there are, and the files that it rests on.

use super::problem::{Origin, Problem};
use super::watch::Watched;
use std::cell::RefCell;
use std::path::{Path, PathBuf};

/// Problems found so far, and keys known so far.
#[derive(Default)]
pub(super) struct Findings {
    problems: RefCell<Vec<Problem>>,
    known: RefCell<Vec<String>>,
    files: RefCell<Vec<Watched>>,
    secrets: RefCell<Vec<PathBuf>>,
}

impl Findings {
    pub(super) fn new(problems: Vec<Problem>, files: Vec<Watched>) -> Self {
        Findings {
            problems: RefCell::new(problems),
            known: RefCell::default(),
            files: RefCell::new(files),
            secrets: RefCell::default(),
        }
    }

    /// This file is about to be read: from then on its change is a reason to read the configuration again.
    pub(super) fn reads(&self, path: &Path) {
        self.files.borrow_mut().push(Watched::now(path));
    }

    /// The same of a file that nobody else should read or change.
    pub(super) fn reads_secret(&self, path: &Path) {
        self.reads(path);
        self.secrets.borrow_mut().push(path.to_owned());
    }

    /// Those files.
    pub(super) fn secrets(&self) -> Vec<PathBuf> {
        self.secrets.borrow().clone()
    }

    pub(super) fn tell(&self, origin: &Origin, key: &str, message: impl Into<String>) {
        self.problems.borrow_mut().push(Problem {
            origin: origin.clone(),
            key: key.to_owned(),
            message: message.into(),
        });
    }

    /// This key was asked for.
    pub(super) fn knows(&self, key: String) {
        self.known.borrow_mut().push(key);
    }

    /// All keys that were asked for, in that order.
    pub(super) fn known(&self) -> Vec<String> {
        self.known.borrow().clone()
    }

    /// The problems, and the files that were read.
    pub(super) fn into_parts(self) -> (Vec<Problem>, Vec<Watched>) {
        (self.problems.into_inner(), self.files.into_inner())
    }
}
