//! The data directory: one process at a time, its key, its segments.
//!
//! ```text
//! lock                      held by the process that uses the directory
//! key                       64 hexadecimal digits, made at the first start, readable by its owner only
//! 0000000000000001.log …    segments, the oldest first
//! ```

use super::OpenError;
use super::frame::HEAD;
use crate::ledger::digest::DigestKey;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A data directory that is ours while this lives.
pub(super) struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Makes the directory if it is not there, and takes it.
    pub(super) fn take(path: &Path) -> Result<Self, OpenError> {
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(OpenError::io(path))?;
        let lock_path = path.join("lock");
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let lock = options.open(&lock_path).map_err(OpenError::io(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Directory { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(OpenError::Locked { path: path.to_owned() }),
            Err(TryLockError::Error(error)) => Err(OpenError::io(&lock_path)(error)),
        }
    }

    /// The numbers of the segments, the oldest first.
    pub(super) fn segments(&self) -> Result<Vec<u64>, OpenError> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(OpenError::io(&self.path))? {
            let name = entry.map_err(OpenError::io(&self.path))?.file_name();
            let name = name.to_string_lossy();
            numbers.extend(name.strip_suffix(".log").and_then(|stem| stem.parse::<u64>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The path of a segment.
    pub(super) fn segment(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number:016}.log"))
    }

    /// Makes a segment that begins with `head`.
    pub(super) fn create(&self, number: u64, head: &[u8; HEAD]) -> io::Result<File> {
        let path = self.segment(number);
        let mut options = OpenOptions::new();
        let mut file = options.create_new(true).read(true).write(true).mode(0o600).open(&path)?;
        let written = file.write_all(head).and_then(|()| file.sync_all());
        if written.is_err() {
            let _ = fs::remove_file(&path);
        }
        written.and_then(|()| self.sync()).map(|()| file)
    }

    /// Removes a segment.
    pub(super) fn delete(&self, number: u64) -> io::Result<()> {
        fs::remove_file(self.segment(number))?;
        self.sync()
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    /// The key of the digests: in `file`, or in the directory itself. Only a directory without segments
    /// is given a new one.
    pub(super) fn key(
        &self,
        file: Option<&Path>,
        fresh: [u8; 32],
        used: bool,
    ) -> Result<DigestKey, OpenError> {
        let path = file.map_or_else(|| self.path.join("key"), Path::to_owned);
        match fs::read_to_string(&path) {
            Ok(text) => parse(text.trim()).map(DigestKey::new).ok_or(OpenError::KeyForm { path }),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !used => {
                self.write_key(&path, fresh).map_err(OpenError::io(&path))?;
                Ok(DigestKey::new(fresh))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(OpenError::KeyMissing { path })
            }
            Err(error) => Err(OpenError::io(&path)(error)),
        }
    }

    /// Whole or not at all, also when the power fails: written beside, then named.
    fn write_key(&self, path: &Path, key: [u8; 32]) -> io::Result<()> {
        let beside = path.with_extension("new");
        let mut options = OpenOptions::new();
        let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(&beside)?;
        let text: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        file.write_all(text.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        self.sync()
    }
}

fn parse(text: &str) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(key)
}
