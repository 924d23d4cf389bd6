//! Reads one section of the settings: each key as what it must be, and in the end whatever nobody asked for.
//!
//! Every key that is asked for is known from then on. So the keys are named in one place only (where they
//! are resolved), and an unknown one can be told with the known one that it resembles.

use super::findings::Findings;
use super::problem::{Origin, nearest};
use super::raw::{self, Located, Table, Value};
use super::units;
use std::time::Duration;

/// A value that was read, its full key, and where it stands.
#[derive(Clone)]
pub(super) struct Found<T> {
    pub(super) value: T,
    pub(super) key: String,
    pub(super) origin: Origin,
}

/// One section while it is read.
pub(super) struct Section<'f> {
    path: String,
    entries: Table,
    /// Where the section begins.
    origin: Origin,
    known: Vec<&'static str>,
    findings: &'f Findings,
}

impl<'f> Section<'f> {
    /// The whole tree.
    pub(super) fn root(entries: Table, findings: &'f Findings) -> Self {
        Section {
            path: String::new(),
            entries,
            origin: Origin::Default,
            known: Vec::new(),
            findings,
        }
    }

    /// A section within; empty when it is not set.
    pub(super) fn section(&mut self, key: &'static str) -> Section<'f> {
        let entry = self.take(key);
        self.inner(key, entry)
    }

    /// All sections within that have not been asked for, by name.
    pub(super) fn sections(&mut self) -> Vec<(String, Section<'f>)> {
        std::mem::take(&mut self.entries)
            .into_iter()
            .map(|(name, entry)| (name.clone(), self.inner(&name, Some(entry))))
            .collect()
    }

    fn inner(&self, key: &str, entry: Option<Located>) -> Section<'f> {
        let path = self.full(key);
        let origin = entry.as_ref().map_or(Origin::Default, |entry| entry.origin.clone());
        let entries = match entry {
            None => Table::new(),
            Some(Located { value: Value::Table(table), .. }) => table,
            Some(Located { value, origin }) => {
                let message = format!("must be a table, not {}", value.kind());
                self.findings.tell(&origin, &path, message);
                Table::new()
            }
        };
        Section { path, entries, origin, known: Vec::new(), findings: self.findings }
    }

    /// All entries that have not been asked for, each a text that should be one of a few words.
    pub(super) fn choices<T>(&mut self, options: &[(&str, T)]) -> Vec<(String, Found<String>)> {
        std::mem::take(&mut self.entries)
            .into_iter()
            .filter_map(|(name, entry)| Some((name.clone(), self.word(&name, entry, options)?)))
            .collect()
    }

    /// A text. What is none is told with the words that would do.
    fn word<T>(&self, key: &str, entry: Located, options: &[(&str, T)]) -> Option<Found<String>> {
        let key = self.full(key);
        if let Ok(value) = text(&entry.value) {
            return Some(Found { value, key, origin: entry.origin });
        }
        let message = format!("must be {}, not {}", one_of(options), entry.value.kind());
        self.findings.tell(&entry.origin, &key, message);
        None
    }

    /// The key's value as `read` takes it, with its place. `None` when not set, or told as wrong.
    pub(super) fn found<T>(&mut self, key: &'static str, read: Read<T>) -> Option<Found<T>> {
        let entry = self.take(key)?;
        self.convert(key, entry, read)
    }

    /// As [`Self::found`], without the place.
    pub(super) fn read<T>(&mut self, key: &'static str, read: Read<T>) -> Option<T> {
        self.found(key, read).map(|found| found.value)
    }

    /// The key's value into `slot`, which holds the default.
    pub(super) fn set<T>(&mut self, key: &'static str, slot: &mut T, read: Read<T>) {
        if let Some(value) = self.read(key, read) {
            *slot = value;
        }
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        options: &[(&str, T)],
    ) -> Option<T> {
        let entry = self.take(key)?;
        let found = self.word(key, entry, options)?;
        choose(&found, options, self.findings)
    }

    /// A list of texts, each with its place. From a variable: divided by commas, or in TOML's brackets.
    pub(super) fn list(&mut self, key: &'static str) -> Option<Vec<Found<String>>> {
        let Located { value, origin } = self.take(key)?;
        let items = match value {
            Value::List(items) => Ok(items),
            Value::Untyped(text) => divide(&text, &origin),
            other => Err(format!(
                "must be a list of strings such as [\"a\", \"b\"], not {}",
                other.kind()
            )),
        };
        match items {
            Ok(items) => {
                Some(items.into_iter().filter_map(|item| self.convert(key, item, text)).collect())
            }
            Err(message) => {
                self.findings.tell(&origin, &self.full(key), message);
                None
            }
        }
    }

    /// As [`Self::list`], where an empty one makes no sense.
    pub(super) fn filled_list(&mut self, key: &'static str) -> Option<Vec<Found<String>>> {
        let entry = self.entries.get(key);
        if let Some(Located { value: Value::List(items), origin }) = entry
            && items.is_empty()
        {
            let message = "must not be empty; remove the key for the default";
            self.findings.tell(origin, &self.full(key), message);
        }
        self.list(key)
    }

    /// The tables of a list of tables, each with its place.
    pub(super) fn tables(&mut self, key: &'static str) -> Vec<(Origin, Section<'f>)> {
        let Some(entry) = self.take(key) else { return Vec::new() };
        let Value::List(items) = entry.value else {
            let message = format!("must be a list of tables, not {}", entry.value.kind());
            self.findings.tell(&entry.origin, &self.full(key), message);
            return Vec::new();
        };
        items.into_iter().map(|item| (item.origin.clone(), self.inner(key, Some(item)))).collect()
    }

    /// Tells of each of these keys that is not set. Call it before they are asked for.
    pub(super) fn require(&self, keys: &[&'static str]) {
        for key in keys.iter().filter(|key| !self.entries.contains_key(**key)) {
            self.findings.tell(&self.origin, &self.full(key), "is missing");
        }
    }

    /// Keys that make no sense here: told when set, with the reason.
    pub(super) fn belongs_to(&mut self, keys: &[&'static str], reason: &str) {
        for key in keys {
            if let Some(entry) = self.take(key) {
                self.findings.tell(&entry.origin, &self.full(key), reason);
            }
        }
    }

    /// Keys whose feature is not built: told when set, so that nobody believes they work.
    pub(super) fn unavailable(&mut self, keys: &[&'static str]) {
        for key in keys {
            if let Some(entry) = self.take(key) {
                let message = "not available in this version; remove it";
                self.findings.tell(&entry.origin, &self.full(key), message);
            }
        }
    }

    /// The full name of a key of this section.
    pub(super) fn full(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Tells of every key that nobody asked for.
    pub(super) fn finish(self) {
        for (key, entry) in &self.entries {
            let full = self.full(key);
            self.findings.tell(&entry.origin, &full, self.unknown(key, entry));
        }
    }

    fn unknown(&self, key: &str, entry: &Located) -> String {
        if let Origin::Env(variable) = &entry.origin {
            // One underscore in place of two, `TIGERTALLY_GUARD_PROFILE`, is near as well.
            let known: Vec<String> =
                self.findings.known().iter().map(|full| raw::variable(full)).collect();
            return match nearest(variable, known.iter().map(String::as_str)) {
                Some(near) => format!("unknown setting; did you mean {near}?"),
                None => "unknown setting; variables are TIGERTALLY_<SECTION>__<KEY>".to_owned(),
            };
        }
        let kind = if matches!(entry.value, Value::Table(_)) { "section" } else { "key" };
        match nearest(key, self.known.iter().copied()) {
            Some(near) => format!("unknown {kind}; did you mean \"{near}\"?"),
            None => format!("unknown {kind}; known here: {}", self.known.join(", ")),
        }
    }

    fn take(&mut self, key: &'static str) -> Option<Located> {
        self.known.push(key);
        self.findings.knows(self.full(key));
        self.entries.remove(key)
    }

    fn convert<T>(&self, key: &str, entry: Located, read: Read<T>) -> Option<Found<T>> {
        let key = self.full(key);
        match read(&entry.value) {
            Ok(value) => Some(Found { value, key, origin: entry.origin }),
            Err(message) => {
                self.findings.tell(&entry.origin, &key, message);
                None
            }
        }
    }
}

/// One of a few words, or a problem that names them.
pub(super) fn choose<T: Copy>(
    found: &Found<String>,
    options: &[(&str, T)],
    findings: &Findings,
) -> Option<T> {
    if let Some((_, chosen)) = options.iter().find(|(name, _)| *name == found.value) {
        return Some(*chosen);
    }
    let mut message = format!("must be {}, not \"{}\"", one_of(options), found.value);
    if let Some(near) = nearest(&found.value, options.iter().map(|(name, _)| *name)) {
        message.push_str(&format!("; did you mean \"{near}\"?"));
    }
    findings.tell(&found.origin, &found.key, message);
    None
}

/// `one of "a", "b"`
fn one_of<T>(options: &[(&str, T)]) -> String {
    let names: Vec<String> = options.iter().map(|(name, _)| format!("\"{name}\"")).collect();
    format!("one of {}", names.join(", "))
}

/// Items of a list that a variable holds.
fn divide(text: &str, origin: &Origin) -> Result<Vec<Located>, String> {
    let item = |text: &str| Located { value: Value::Text(text.to_owned()), origin: origin.clone() };
    if !text.trim_start().starts_with('[') {
        return Ok(text.split(',').map(|text| item(text.trim())).collect());
    }
    let bracketed = || -> Option<Vec<Located>> {
        let table: toml::Table = toml::from_str(&format!("items = {text}")).ok()?;
        let items = table.get("items").filter(|_| table.len() == 1)?.as_array()?;
        items.iter().map(|it| it.as_str().map(item)).collect()
    };
    bracketed().ok_or_else(|| "is no list of strings in TOML's brackets".to_owned())
}

/// Takes a value as what a key wants, or says what is wrong with it.
pub(super) type Read<T> = fn(&Value) -> Result<T, String>;

/// A text.
pub(super) fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::Text(text) | Value::Untyped(text) => Ok(text.clone()),
        other => Err(format!("must be a string, not {}", other.kind())),
    }
}

/// A text that is not blank.
pub(super) fn words(value: &Value) -> Result<String, String> {
    let text = text(value)?;
    if text.trim().is_empty() { Err("must not be empty".to_owned()) } else { Ok(text) }
}

/// `true` or `false`.
pub(super) fn flag(value: &Value) -> Result<bool, String> {
    match value {
        Value::Bool(value) => Ok(*value),
        Value::Untyped(text) if text == "true" => Ok(true),
        Value::Untyped(text) if text == "false" => Ok(false),
        other => Err(format!("must be true or false, not {}", other.kind())),
    }
}

/// A whole number from 1.
pub(super) fn count(value: &Value) -> Result<usize, String> {
    let number = match value {
        Value::Integer(number) => usize::try_from(*number).ok(),
        Value::Untyped(text) => text.trim().parse().ok(),
        other => return Err(format!("must be a whole number from 1, not {}", other.kind())),
    };
    number.filter(|number| *number > 0).ok_or_else(|| "must be a whole number from 1".to_owned())
}

/// A size in bytes, more than nothing.
pub(super) fn size(value: &Value) -> Result<usize, String> {
    let bytes = match value {
        Value::Integer(number) => {
            usize::try_from(*number).map_err(|_| "must not be negative".to_owned())?
        }
        Value::Text(text) | Value::Untyped(text) => units::size(text)?,
        other => return Err(format!("must be a size such as \"64 MiB\", not {}", other.kind())),
    };
    if bytes == 0 { Err("must be more than 0 bytes".to_owned()) } else { Ok(bytes) }
}

/// A time, zero allowed.
pub(super) fn time(value: &Value) -> Result<Duration, String> {
    match value {
        Value::Text(text) | Value::Untyped(text) => units::duration(text),
        Value::Integer(number) => {
            Err(format!("needs a unit; write \"{number}s\" for seconds, \"{number}ms\" for less"))
        }
        other => Err(format!("must be a time such as \"30s\", not {}", other.kind())),
    }
}

/// A time longer than zero.
pub(super) fn span(value: &Value) -> Result<Duration, String> {
    let time = time(value)?;
    if time.is_zero() { Err("must be longer than 0".to_owned()) } else { Ok(time) }
}
