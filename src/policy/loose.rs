//! Files of secrets that others on this machine can read, or replace by their own.
//!
//! A warning, not a refusal to start: a file that a cluster mounts has the mode that the cluster gives it.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A file that is open to more than its owner and its group's readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loose {
    path: PathBuf,
    mode: u32,
}

impl Loose {
    /// Of those, in their order. What is not there is not loose.
    #[must_use]
    pub fn among(paths: &[PathBuf]) -> Vec<Loose> {
        let mode = |path: &Path| std::fs::metadata(path).map(|of| of.permissions().mode() & 0o777);
        let loose = |path: &PathBuf| {
            let mode = mode(path).ok().filter(|mode| is_loose(*mode))?;
            Some(Loose { path: path.clone(), mode })
        };
        paths.iter().filter_map(loose).collect()
    }
}

/// Others may read it, or anybody but the owner may write it.
fn is_loose(mode: u32) -> bool {
    mode & 0o026 != 0
}

impl fmt::Display for Loose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.mode & 0o022 != 0 { "change" } else { "read" };
        let Loose { path, mode } = self;
        let path = path.display();
        write!(
            f,
            "{path} holds secrets and others can {what} it (mode {mode:03o}): chmod 600 {path}"
        )
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_mode_is_loose_when_others_read_or_more_than_the_owner_writes() {
        for (mode, loose) in [
            (0o600, false),
            (0o400, false),
            (0o640, false),
            (0o440, false),
            (0o644, true),
            (0o444, true),
            (0o660, true),
            (0o620, true),
            (0o602, true),
        ] {
            assert_eq!(is_loose(mode), loose, "{mode:o}");
        }
    }

    #[test]
    fn a_loose_file_is_told_with_what_to_do() {
        let scratch = tempfile::tempdir().unwrap();
        let paths = ["tight", "open", "gone"].map(|name| scratch.path().join(name));
        for (path, mode) in paths.iter().zip([0o600, 0o644]) {
            std::fs::write(path, "").unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let told: Vec<String> = Loose::among(&paths).iter().map(ToString::to_string).collect();
        let open = paths[1].display();
        assert_eq!(
            told,
            [format!("{open} holds secrets and others can read it (mode 644): chmod 600 {open}")]
        );
    }
}
