//! Whether the files that a configuration was read from have changed since.
//!
//! They are looked at once a second, by what the system tells of them: device, inode, size and times. No
//! notification of the kernel is waited for, on purpose. Editors and deployments replace a file by renaming
//! another over it; Kubernetes swaps a symbolic link two levels above it; a network file system tells nobody
//! anything. A watch on the file goes blind at the first of these and a watch on its directory at the second,
//! while the name, followed to its end, always leads to the file that a reload would read. The price is a few
//! `stat` calls a second and up to two seconds of delay.
//!
//! - A file that is just being written looks different at each look: a change counts when it has stayed the
//!   same for a whole look. (A writer that pauses longer in the middle is read half. So write beside it and
//!   rename: half a file may be a valid one that guards less.)
//! - A file is stamped before it is read. What changes while it is read is seen at the next look.
//! - A file that is not there has a stamp too: when it comes, that is a change.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file that a configuration was read from, and how it was just before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    path: PathBuf,
    stamp: Stamp,
}

impl Watched {
    /// To be taken before the file is read.
    #[must_use]
    pub fn now(path: &Path) -> Self {
        Watched { path: path.to_owned(), stamp: Stamp::of(path) }
    }

    /// The file, as it was named.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// What tells one state of a file from another. All zero: it cannot be looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    /// When its content changed, in seconds and nanoseconds.
    modified: (i64, i64),
    /// When anything about it changed: a copy that keeps the time of its content is told by this.
    changed: (i64, i64),
}

impl Stamp {
    /// Of the file that this name leads to, through all links.
    fn of(path: &Path) -> Self {
        std::fs::metadata(path).map_or_else(
            |_| Stamp::default(),
            |of| Stamp {
                device: of.dev(),
                inode: of.ino(),
                size: of.size(),
                modified: (of.mtime(), of.mtime_nsec()),
                changed: (of.ctime(), of.ctime_nsec()),
            },
        )
    }
}

/// Looks at files again and again.
#[derive(Debug, Default)]
pub struct Watch {
    read: Vec<Watched>,
    /// What was seen at the last look, if it was not what was read.
    seen: Option<Vec<Watched>>,
}

impl Watch {
    /// For changes since these were read.
    #[must_use]
    pub fn new(read: &[Watched]) -> Self {
        Watch { read: read.to_vec(), seen: None }
    }

    /// Whether something has changed and has stayed the same since the last look. Tells it once.
    pub fn has_changed(&mut self) -> bool {
        let now: Vec<Watched> = self.read.iter().map(|one| Watched::now(&one.path)).collect();
        if now == self.read {
            self.seen = None;
            return false;
        }
        if self.seen.as_ref() != Some(&now) {
            self.seen = Some(now);
            return false;
        }
        self.read = now;
        self.seen = None;
        true
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn looks(watch: &mut Watch) -> [bool; 3] {
        [watch.has_changed(), watch.has_changed(), watch.has_changed()]
    }

    /// Seen at the first look, told at the second, not told again.
    const TOLD_ONCE: [bool; 3] = [false, true, false];

    #[test]
    fn every_way_to_replace_a_file_is_told_once() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("one")).unwrap();
        fs::create_dir(at("two")).unwrap();
        fs::write(at("one/t.toml"), "a").unwrap();
        fs::write(at("two/t.toml"), "a").unwrap();
        symlink("one", at("..data")).unwrap();
        symlink("..data/t.toml", at("t.toml")).unwrap();
        let mut watch = Watch::new(&[Watched::now(&at("t.toml"))]);
        assert_eq!(looks(&mut watch), [false; 3], "nothing has changed");

        symlink("two", at("..new")).unwrap();
        fs::rename(at("..new"), at("..data")).unwrap();
        assert_eq!(looks(&mut watch), TOLD_ONCE, "as Kubernetes swaps a ConfigMap");

        fs::write(at("two/t.toml"), "longer").unwrap();
        assert_eq!(looks(&mut watch), TOLD_ONCE, "written in place");

        fs::write(at("other"), "longer").unwrap();
        fs::rename(at("other"), at("two/t.toml")).unwrap();
        assert_eq!(looks(&mut watch), TOLD_ONCE, "renamed over it");

        fs::remove_file(at("two/t.toml")).unwrap();
        assert_eq!(looks(&mut watch), TOLD_ONCE, "gone");
        fs::write(at("two/t.toml"), "longer").unwrap();
        assert_eq!(looks(&mut watch), TOLD_ONCE, "back again");
    }

    #[test]
    fn a_file_that_is_being_written_is_left_alone_until_it_rests() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("t.toml");
        fs::write(&file, "").unwrap();
        let mut watch = Watch::new(&[Watched::now(&file)]);
        for length in 1..20 {
            fs::write(&file, "x".repeat(length)).unwrap();
            assert!(!watch.has_changed(), "at {length}");
        }
        assert!(watch.has_changed());
    }

    #[test]
    fn what_changes_back_has_not_changed() {
        let directory = tempfile::tempdir().unwrap();
        let (here, there) = (directory.path().join("a"), directory.path().join("b"));
        let watched = Watched::now(&here);
        fs::write(&there, "x").unwrap();
        let mut watch = Watch::new(&[watched]);
        fs::write(&here, "x").unwrap();
        assert!(!watch.has_changed());
        fs::remove_file(&here).unwrap();
        assert_eq!(looks(&mut watch), [false; 3]);
    }
}
