//! `tigertally keys`: the file of clients' keys.
//!
//! The file is replaced as a whole, never changed in place, so that a proxy that reads it meanwhile sees
//! the old one or the new one. Whoever changes it holds a lock on its directory; two at once lose nothing.

use super::args::{KeysCommand, NewKey};
use super::{UNUSABLE, say, tell};
use crate::policy;
use crate::policy::auth::keys::{Entry, Grant, KeyRing, check_name};
use crate::wire::moment;
use rand::RngExt;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// Who may read the file: its owner.
const MODE: u32 = 0o600;

/// Does what was asked.
#[must_use]
pub fn run(command: KeysCommand) -> ExitCode {
    let done = match command {
        KeysCommand::Add(new) => add(new),
        KeysCommand::List { file } => read(&file).map(|ring| list(&ring, now())),
        KeysCommand::Remove { file, id } => remove(&file, &id),
    };
    match done {
        Ok(text) => {
            say(&text);
            ExitCode::SUCCESS
        }
        Err(Failed { message, code }) => {
            tell(&message);
            ExitCode::from(code)
        }
    }
}

struct Failed {
    message: String,
    code: u8,
}

fn unusable(message: impl ToString) -> Failed {
    Failed { message: message.to_string(), code: UNUSABLE }
}

fn failed(path: &Path, error: &std::io::Error) -> Failed {
    Failed { message: format!("{}: {error}", path.display()), code: 1 }
}

fn add(new: NewKey) -> Result<String, Failed> {
    let file = new.file.clone();
    let grant = grant(new, now()).map_err(unusable)?;
    let _lock = lock(&file)?;
    let mut ring = match fs::metadata(&file) {
        Err(error) if error.kind() == ErrorKind::NotFound => KeyRing::default(),
        _ => read(&file)?,
    };
    let mut random = rand::rng();
    let key = loop {
        let (entry, key) = Entry::make(grant.clone(), &mut |below| random.random_range(0..below));
        if ring.insert(entry) {
            break key;
        }
    };
    replace(&file, &ring.write()).map_err(|error| failed(&file, &error))?;
    tell(&"This is the only time that the key is shown:");
    Ok(format!("{key}\n"))
}

fn grant(new: NewKey, now: u64) -> Result<Grant, String> {
    let NewKey { name, tenant, models, tools, expires, .. } = new;
    check_name(&name).map_err(|reason| format!("--name {reason}"))?;
    if let Some(tenant) = &tenant {
        check_name(tenant).map_err(|reason| format!("--tenant {reason}"))?;
    }
    let expires = expires.map(|when| end(&when, now)).transpose()?;
    let some = |list: Vec<String>| (!list.is_empty()).then_some(list);
    Ok(Grant { name, tenant, models: some(models), tools: some(tools), expires })
}

fn end(when: &str, now: u64) -> Result<u64, String> {
    let end = moment::parse(when).or_else(|| {
        let span = policy::duration(when).ok()?;
        now.checked_add(u64::try_from(span.as_millis()).ok()?)
    });
    match end {
        None => Err(format!(
            "--expires \"{when}\" is neither a time such as \"90d\" nor a point in time such as \"2027-06-30T00:00:00Z\""
        )),
        Some(end) if end <= now => Err(format!("--expires \"{when}\" is in the past")),
        Some(end) => Ok(end),
    }
}

fn list(ring: &KeyRing, now: u64) -> String {
    let names = |list: &Option<Vec<String>>| match list {
        None => "any".to_owned(),
        Some(list) if list.is_empty() => "none".to_owned(),
        Some(list) => list.join(","),
    };
    let mut page = String::from("ID\tNAME\tTENANT\tMODELS\tTOOLS\tEXPIRES\n");
    for entry in ring.iter() {
        let over = if entry.is_over(now) { " (expired)" } else { "" };
        let end = entry.expires.map_or_else(|| "never".to_owned(), moment::rfc3339);
        let (models, tools) = (names(&entry.models), names(&entry.tools));
        let tenant = entry.tenant.as_deref().unwrap_or("-");
        // Writing to a string cannot fail.
        let _ = writeln!(
            page,
            "{}\t{}\t{tenant}\t{models}\t{tools}\t{end}{over}",
            entry.id, entry.name
        );
    }
    page
}

fn remove(file: &Path, id: &str) -> Result<String, Failed> {
    let _lock = lock(file)?;
    let mut ring = read(file)?;
    let Some(entry) = ring.remove(id) else {
        return Err(unusable(format!("{}: no key has the id \"{id}\"", file.display())));
    };
    replace(file, &ring.write()).map_err(|error| failed(file, &error))?;
    Ok(format!("removed {id} ({})\n", entry.name))
}

fn read(file: &Path) -> Result<KeyRing, Failed> {
    KeyRing::read(file).map_err(unusable)
}

fn directory(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Waits until nobody else changes files of that directory; held until it is dropped.
fn lock(file: &Path) -> Result<File, Failed> {
    let directory = directory(file);
    let opened = File::open(&directory).and_then(|opened| opened.lock().map(|()| opened));
    opened.map_err(|error| failed(&directory, &error))
}

/// Puts a new file in the place of the old one, whose owner and mode it takes over: the proxy may run as
/// another user than whoever makes keys.
fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    let name = file.file_name().ok_or(ErrorKind::InvalidInput)?;
    let fresh = directory(file).join(format!(".{}.new", name.to_string_lossy()));
    // Left over from a run that was cut off: whoever is here holds the lock.
    let _ = fs::remove_file(&fresh);
    let mut out = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&fresh)?;
    if let Ok(old) = fs::metadata(file) {
        out.set_permissions(Permissions::from_mode(old.mode() & 0o777))?;
        // Only root may give a file away; for others it is theirs already.
        let _ = std::os::unix::fs::fchown(&out, Some(old.uid()), Some(old.gid()));
    }
    out.write_all(text.as_bytes())?;
    out.sync_all()?;
    fs::rename(&fresh, file)?;
    File::open(directory(file))?.sync_all()
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn an_end_is_a_span_or_a_point_in_time_and_not_past() {
        assert_eq!(end("90d", 1000), Ok(1000 + 90 * 86_400_000));
        assert_eq!(end("1970-01-01T00:00:02Z", 1000), Ok(2000));
        for wrong in ["1970-01-01T00:00:01Z", "0s", "soon", "", "30"] {
            assert!(end(wrong, 1000).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_is_made_for_its_owner_and_keeps_its_mode_when_replaced() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("keys.toml");
        let mode = || fs::metadata(&file).unwrap().mode() & 0o777;
        replace(&file, "a").unwrap();
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        fs::write(scratch.path().join(".keys.toml.new"), "left over").unwrap();
        replace(&file, "b").unwrap();
        assert_eq!((fs::read_to_string(&file).unwrap().as_str(), mode()), ("b", 0o640));
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    }
}
