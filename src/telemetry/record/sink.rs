//! Where the lines go: a file that is rotated by size and age, standard output, or something that is no
//! regular file (a pipe, a device), which is written as it is.
//!
//! A rotated file is the old one under a name that ends in the moment of rotation: `tasks.jsonl` becomes
//! `tasks.jsonl.20251130T181200Z`. Only files of that form are ever deleted. Lines are whole: after a failed write
//! the file is cut back to the last whole line, and a line that a killed process left half written is ended
//! before the next one begins.

use crate::policy::{Record, RecordTo};
use crate::wire::moment;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often old files are looked for.
const PRUNE_EVERY: Duration = Duration::from_secs(60);

/// Where lines are written.
pub(super) struct Sink {
    path: Option<PathBuf>,
    most_bytes: u64,
    most_age: Duration,
    retention: Duration,
    out: Option<Out>,
    pruned: Option<SystemTime>,
}

/// What is open.
struct Out {
    file: File,
    /// `None`: it is no regular file.
    size: Option<Size>,
}

struct Size {
    bytes: u64,
    /// When its first line was written, as far as that is known.
    since: SystemTime,
}

impl Sink {
    /// Opens what is configured; `None`: nothing is. A pipe is opened at the first write only, as that may wait
    /// for a reader.
    ///
    /// # Errors
    /// When a regular file cannot be opened for writing.
    pub(super) fn open(record: &Record, now: SystemTime) -> io::Result<Option<Sink>> {
        let path = match &record.to {
            RecordTo::Nothing => return Ok(None),
            RecordTo::Stdout => None,
            RecordTo::File(path) => Some(path.clone()),
        };
        let mut sink = Sink {
            path,
            most_bytes: record.max_bytes as u64,
            most_age: record.max_age,
            retention: record.retention,
            out: None,
            pruned: None,
        };
        if let Some(path) = &sink.path
            && fs::metadata(path).map_or(true, |found| found.is_file())
        {
            sink.out = Some(open(path, now)?);
            sink.look(now);
        }
        Ok(Some(sink))
    }

    /// How many bytes of these lines are written at once: whole lines, as many as the file takes, and one at least.
    pub(super) fn takes(&self, lines: &[u8]) -> usize {
        let first = memchr::memchr(b'\n', lines).map_or(lines.len(), |end| end + 1);
        let size = self.out.as_ref().and_then(|out| out.size.as_ref()).map_or(0, |size| size.bytes);
        let left = self.most_bytes.saturating_sub(size);
        // What does not fit goes into the next file.
        let room = if left < first as u64 { self.most_bytes } else { left };
        let room = usize::try_from(room).unwrap_or(usize::MAX).min(lines.len());
        memchr::memrchr(b'\n', &lines[..room]).map_or(first, |end| (end + 1).max(first))
    }

    /// Writes whole lines.
    ///
    /// # Errors
    /// When they could not be written; none of them is then in a regular file.
    pub(super) fn write(&mut self, lines: &[u8], now: SystemTime) -> io::Result<()> {
        let Some(path) = self.path.clone() else {
            let mut out = io::stdout().lock();
            return out.write_all(lines).and_then(|()| out.flush());
        };
        self.tend(&path, lines.len() as u64, now);
        let out = match &mut self.out {
            Some(out) => out,
            none => none.insert(open(&path, now)?),
        };
        let written = out.file.write_all(lines);
        match (&written, &mut out.size) {
            (Ok(()), Some(size)) => size.bytes += lines.len() as u64,
            (Ok(()), None) => {}
            (Err(_), size) => {
                if let Some(size) = size {
                    let _ = out.file.set_len(size.bytes);
                }
                self.out = None;
            }
        }
        written
    }

    /// Time passes: rotates by age, and deletes what is older than it is to be kept.
    pub(super) fn look(&mut self, now: SystemTime) {
        if let Some(path) = self.path.clone() {
            self.tend(&path, 0, now);
        }
    }

    /// Rotates and deletes what is due. Where that fails, lines go on into the file that is there.
    fn tend(&mut self, path: &Path, more: u64, now: SystemTime) {
        if let Err(error) = self.rotate_if_due(path, more, now) {
            tracing::warn!(%error, "the task record's file cannot be rotated");
        }
        let due = self.pruned.is_none_or(|last| age(last, now) >= PRUNE_EVERY);
        if due && self.out.as_ref().is_none_or(|out| out.size.is_some()) {
            self.pruned = Some(now);
            if let Err(error) = prune(path, self.retention, now) {
                tracing::warn!(%error, "old files of the task record cannot be deleted");
            }
        }
    }

    fn rotate_if_due(&mut self, path: &Path, more: u64, now: SystemTime) -> io::Result<()> {
        let Some(size) = self.out.as_ref().and_then(|out| out.size.as_ref()) else { return Ok(()) };
        let full = size.bytes + more > self.most_bytes;
        if size.bytes > 0 && (full || age(size.since, now) >= self.most_age) {
            self.out = None;
            fs::rename(path, free_name(path, now))?;
            self.out = Some(open(path, now)?);
        }
        Ok(())
    }
}

/// Opens the file to add to it, readable by its owner only.
fn open(path: &Path, now: SystemTime) -> io::Result<Out> {
    let found = fs::metadata(path).ok();
    if found.as_ref().is_some_and(|found| !found.is_file()) {
        let file = OpenOptions::new().write(true).open(path)?;
        return Ok(Out { file, size: None });
    }
    let mut options = OpenOptions::new();
    let mut file = options.read(true).append(true).create(true).mode(0o600).open(path)?;
    let mut bytes = file.metadata()?.len();
    if bytes > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
            bytes += 1;
        }
    }
    let since = found.filter(|_| bytes > 0).map_or(now, |found| begun(&found, now));
    Ok(Out { file, size: Some(Size { bytes, since }) })
}

/// When a file that was there already was begun.
fn begun(found: &Metadata, now: SystemTime) -> SystemTime {
    found.created().or_else(|_| found.modified()).unwrap_or(now)
}

fn age(since: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(since).unwrap_or_default()
}

/// A name for the rotated file that no other bears.
fn free_name(path: &Path, now: SystemTime) -> PathBuf {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let stamp: String = moment::rfc3339(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
        .chars()
        .take(19)
        .filter(|one| !matches!(one, '-' | ':'))
        .collect();
    let named = |end: String| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{stamp}Z{end}"));
        PathBuf::from(name)
    };
    let mut name = named(String::new());
    let mut count = 1;
    while name.exists() {
        name = named(format!("-{count}"));
        count += 1;
    }
    name
}

/// Deletes rotated files of `path` that were last written longer ago than `retention`.
fn prune(path: &Path, retention: Duration, now: SystemTime) -> io::Result<()> {
    for rotated in rotated(path)? {
        let written = fs::metadata(&rotated).and_then(|found| found.modified());
        if written.is_ok_and(|written| age(written, now) > retention) {
            fs::remove_file(&rotated)?;
        }
    }
    Ok(())
}

/// The rotated files of `path`, oldest first.
///
/// # Errors
/// When their directory cannot be read.
pub fn rotated(path: &Path) -> io::Result<Vec<PathBuf>> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let Some(name) = path.file_name() else { return Ok(Vec::new()) };
    let prefix = format!("{}.", name.to_string_lossy());
    let mut found = Vec::new();
    for entry in fs::read_dir(parent.unwrap_or(Path::new(".")))? {
        let entry = entry?;
        let is = entry
            .file_name()
            .to_str()
            .and_then(|name| name.strip_prefix(&prefix))
            .is_some_and(is_stamp);
        if is && entry.file_type()?.is_file() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// `20251130T181200Z`, or with `-1` and so on after it.
fn is_stamp(text: &str) -> bool {
    let (stamp, count) = text.split_once('-').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = stamp.strip_suffix('Z').and_then(|stamp| stamp.split_once('T'));
    digits(count)
        && parts.is_some_and(|(day, time)| {
            day.len() == 8 && time.len() == 6 && digits(day) && digits(time)
        })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::now() + Duration::from_secs(seconds)
    }

    fn record(path: &Path) -> Record {
        Record {
            to: RecordTo::File(path.to_owned()),
            max_bytes: 20,
            max_age: Duration::from_secs(3600),
            retention: Duration::from_secs(86_400),
        }
    }

    fn open_at(record: &Record) -> Sink {
        Sink::open(record, at(0)).unwrap().unwrap()
    }

    #[test]
    fn a_full_file_is_rotated_and_no_line_is_cut_or_lost() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("tasks.jsonl");
        let mut sink = open_at(&record(&path));
        for n in 0..7 {
            sink.write(format!("line {n}\n").as_bytes(), at(0)).unwrap();
        }
        let mut files = rotated(&path).unwrap();
        assert_eq!(files.len(), 3, "two lines of seven bytes fit in twenty");
        files.push(path);
        let text: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
        assert_eq!(text, "line 0\nline 1\nline 2\nline 3\nline 4\nline 5\nline 6\n");
    }

    #[test]
    fn what_is_written_at_once_fits_into_a_file() {
        let scratch = tempfile::tempdir().unwrap();
        let mut sink = open_at(&record(&scratch.path().join("tasks.jsonl")));
        let lines = b"line 0\nline 1\nline 2\n";
        assert_eq!(sink.takes(lines), 14, "two lines of seven bytes fit in twenty");
        sink.write(b"line\n", at(0)).unwrap();
        assert_eq!(sink.takes(lines), 14);
        sink.write(b"line 0\n", at(0)).unwrap();
        assert_eq!(sink.takes(lines), 7);
        sink.write(b"line 1\n", at(0)).unwrap();
        assert_eq!(sink.takes(lines), 14, "of the next file");
        assert_eq!(sink.takes(&[b'x'; 50]), 50);
        assert_eq!(sink.takes(&[&[b'x'; 50][..], b"\nx\n"].concat()), 51);
    }

    #[test]
    fn a_line_longer_than_a_file_is_written_all_the_same() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("tasks.jsonl");
        let mut sink = open_at(&record(&path));
        let long = "x".repeat(50) + "\n";
        sink.write(long.as_bytes(), at(0)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), long);
        assert!(rotated(&path).unwrap().is_empty());
    }

    #[test]
    fn an_old_file_is_rotated_by_itself_and_goes_when_it_need_not_be_kept() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("tasks.jsonl");
        let strangers = ["tasks.jsonl.bak", "tasks.jsonl.2025", "other.jsonl.20251130T181200Z"];
        for name in strangers {
            fs::write(scratch.path().join(name), "x").unwrap();
        }
        let mut sink = open_at(&record(&path));
        sink.write(b"line\n", at(0)).unwrap();
        sink.look(at(3500));
        assert!(rotated(&path).unwrap().is_empty());
        sink.look(at(3700));
        assert_eq!(rotated(&path).unwrap().len(), 1);
        sink.look(at(7400));
        assert_eq!(rotated(&path).unwrap().len(), 1, "an empty file is not rotated");
        sink.look(at(86_500));
        assert!(rotated(&path).unwrap().is_empty());
        for name in strangers {
            assert!(scratch.path().join(name).exists(), "{name}");
        }
    }

    #[test]
    fn a_line_that_a_killed_process_left_is_ended() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("tasks.jsonl");
        fs::write(&path, "half").unwrap();
        open_at(&record(&path)).write(b"whole\n", at(0)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "half\nwhole\n");
    }

    #[test]
    fn a_full_disk_is_an_error_each_time_and_none_that_lasts() {
        let full = record(Path::new("/dev/full"));
        let mut sink = open_at(&full);
        assert!(sink.write(b"line\n", at(0)).is_err());
        assert!(sink.write(b"line\n", at(0)).is_err());
    }

    /// Lines that come all the time leave no pause, and old files are deleted all the same.
    #[test]
    fn old_files_go_while_lines_come() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("tasks.jsonl");
        let old = scratch.path().join("tasks.jsonl.20200101T000000Z");
        fs::write(&old, "x").unwrap();
        let mut sink = open_at(&record(&path));
        sink.write(b"line\n", at(0)).unwrap();
        assert!(old.exists());
        sink.write(b"line\n", at(86_500)).unwrap();
        assert!(!old.exists());
    }

    #[test]
    fn a_file_that_cannot_be_made_is_told_at_once() {
        assert!(Sink::open(&record(Path::new("/nowhere/tasks.jsonl")), at(0)).is_err());
    }
}
