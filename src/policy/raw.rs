//! Settings as they were written: a tree of values, each knowing where it stands.
//!
//! Not serde's derived types: those stop at the first thing they do not know, and a configuration has to
//! tell all that is wrong with it at once. The layers (file, environment, flags) are laid over one
//! another here, so that what reads the tree ([`super::section`]) knows one kind of input only.

use super::findings::Findings;
use super::problem::{Origin, Problem};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use toml::de::{DeTable, DeValue};

/// What every variable of ours begins with.
const PREFIX: &str = "TIGERTALLY_";

/// Read by the command line itself, not a setting.
const CONFIG_VARIABLE: &str = "TIGERTALLY_CONFIG";

/// The one section key whose variable may be written with a single underscore: it is what most set.
const UPSTREAM_URL_VARIABLE: &str = "UPSTREAM_URL";

/// Most syntax errors that are told: a file that is no TOML at all has one in each line.
const MOST_ERRORS: usize = 64;

/// A value and where it stands.
#[derive(Clone)]
pub(super) struct Located {
    pub(super) value: Value,
    pub(super) origin: Origin,
}

/// A value as it was written.
#[derive(Clone)]
pub(super) enum Value {
    Text(String),
    Integer(i64),
    Bool(bool),
    List(Vec<Located>),
    Table(Table),
    /// From a variable or a flag: text that is read as whatever the key wants.
    Untyped(String),
    /// A kind of value that no key takes; its name.
    Other(&'static str),
}

impl Value {
    /// Its kind, with an article, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::Text(_) | Value::Untyped(_) => "a string",
            Value::Integer(_) => "an integer",
            Value::Bool(_) => "a boolean",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
            Value::Other(kind) => kind,
        }
    }
}

/// Keys and their values, by name.
pub(super) type Table = BTreeMap<String, Located>;

/// Reads a TOML text. What stands around a syntax error is still read, to tell all at once.
pub(super) fn parse(text: &str, path: &Path, problems: &mut Vec<Problem>) -> Table {
    let file = File::of(path, text);
    let (table, errors) = DeTable::parse_recoverable(text);
    let more = errors.len().saturating_sub(MOST_ERRORS);
    problems.extend(errors.into_iter().take(MOST_ERRORS).map(|error| Problem {
        origin: file.at(error.span().map_or(0, |span| span.start)),
        key: String::new(),
        // Only the parser's own words: its full display quotes the line, which may hold anything.
        message: format!(
            "not valid TOML: {}{}",
            error.message(),
            error.span().map_or_else(String::new, |span| file.column(span.start))
        ),
    }));
    if more > 0 {
        let message = format!("not valid TOML at {more} further places: is this the right file?");
        problems.push(Problem { origin: file.at(text.len()), key: String::new(), message });
    }
    file.table(table.get_ref())
}

struct File<'t> {
    path: Arc<Path>,
    text: &'t str,
    /// Where each line ends: every value is asked for its line.
    line_ends: Vec<usize>,
}

impl<'t> File<'t> {
    fn of(path: &Path, text: &'t str) -> Self {
        File {
            path: path.into(),
            text,
            line_ends: memchr::memchr_iter(b'\n', text.as_bytes()).collect(),
        }
    }

    fn at(&self, offset: usize) -> Origin {
        let line = 1 + self.line_ends.partition_point(|end| *end < offset);
        Origin::File { path: Arc::clone(&self.path), line }
    }

    /// Where in its line, in characters from 1.
    fn column(&self, offset: usize) -> String {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line = before.rsplit('\n').next().unwrap_or(before);
        format!(" (column {})", line.chars().count() + 1)
    }

    fn table(&self, table: &DeTable<'_>) -> Table {
        let entry = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
            let key: &toml::Spanned<toml::de::DeString<'_>> = key;
            let origin = self.at(key.span().start);
            (key.get_ref().to_string(), Located { value: self.value(value.get_ref()), origin })
        };
        table.iter().map(entry).collect()
    }

    fn value(&self, value: &DeValue<'_>) -> Value {
        match value {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .map_or(Value::Other("an integer out of range"), Value::Integer),
            DeValue::Boolean(value) => Value::Bool(*value),
            DeValue::Array(items) => Value::List(
                items
                    .iter()
                    .map(|item| Located {
                        value: self.value(item.get_ref()),
                        origin: self.at(item.span().start),
                    })
                    .collect(),
            ),
            DeValue::Table(table) => Value::Table(self.table(table)),
            DeValue::Float(_) => Value::Other("a float"),
            DeValue::Datetime(_) => Value::Other("a date"),
        }
    }
}

/// Lays the environment over the settings: `TIGERTALLY_<SECTION>__<KEY>`.
pub(super) fn overlay_env(
    settings: &mut Table,
    variables: &[(String, String)],
    findings: &Findings,
) {
    for (variable, text) in variables {
        let Some(name) = variable.strip_prefix(PREFIX) else { continue };
        if variable == CONFIG_VARIABLE || is_service_link(name) {
            continue;
        }
        let origin = Origin::Env(variable.clone());
        if text.is_empty() {
            findings.tell(&origin, "", "is empty; unset it, or give it a value");
            continue;
        }
        let name = if name == UPSTREAM_URL_VARIABLE { "UPSTREAM__URL" } else { name };
        let path: Vec<String> = name.split("__").map(str::to_ascii_lowercase).collect();
        let value = Located { value: Value::Untyped(text.clone()), origin: origin.clone() };
        if let Err(message) = put(settings, &path, value) {
            findings.tell(&origin, &path.join("."), message);
        }
    }
}

/// The variable that sets a key, given as `guard.profile`.
pub(super) fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "__").replace('-', "_").to_ascii_uppercase())
}

/// Lays one flag over the settings.
pub(super) fn overlay_flag(settings: &mut Table, path: &[&str], flag: &'static str, text: String) {
    let path: Vec<String> = path.iter().map(|segment| (*segment).to_owned()).collect();
    let value = Located { value: Value::Untyped(text), origin: Origin::Flag(flag) };
    // Flags name keys of ours; where a file has put something else than a table on the way, that is
    // told when the section is read.
    let _ = put(settings, &path, value);
}

/// Sets the value at `path`. A variable's name has lost the case and the dashes of the key it means, so
/// a key that is there already is recognised without them.
fn put(table: &mut Table, path: &[String], value: Located) -> Result<(), String> {
    let Some((first, rest)) = path.split_first() else { return Ok(()) };
    let mut alike = table.keys().filter(|key| same_name(key, first)).cloned();
    let key = match (alike.next(), alike.next()) {
        (Some(one), Some(other)) => {
            return Err(format!(
                "may mean \"{one}\" or \"{other}\", which differ only in case or dashes; set it in the file"
            ));
        }
        (Some(one), None) => one,
        (None, _) => first.clone(),
    };
    if rest.is_empty() {
        table.insert(key, value);
        return Ok(());
    }
    let origin = value.origin.clone();
    let inner = table.entry(key).or_insert(Located { value: Value::Table(Table::new()), origin });
    match &mut inner.value {
        Value::Table(inner) => put(inner, rest, value),
        _ => Err(format!("\"{first}\" is set to a single value elsewhere, not to a table")),
    }
}

fn same_name(key: &str, segment: &str) -> bool {
    key.len() == segment.len()
        && key
            .bytes()
            .zip(segment.bytes())
            .all(|(a, b)| if a == b'-' { b == b'_' } else { a.eq_ignore_ascii_case(&b) })
}

/// What Kubernetes sets in every pod when a service is called `tigertally`: no settings of ours.
/// <https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables>
fn is_service_link(name: &str) -> bool {
    if name.contains("__") {
        return false;
    }
    let numbered_port = |rest: &str| {
        let number = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        number.len() < rest.len()
            && ["_TCP", "_UDP", "_SCTP"].iter().any(|protocol| number.starts_with(protocol))
    };
    let service = |end: &str| {
        end == "SERVICE_HOST" || end == "SERVICE_PORT" || end.starts_with("SERVICE_PORT_")
    };
    let port = |end: &str| end == "PORT" || end.strip_prefix("PORT_").is_some_and(numbered_port);
    std::iter::once(0)
        .chain(name.match_indices('_').map(|(at, _)| at + 1))
        .any(|at| service(&name[at..]) || port(&name[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kubernetes_sets_for_a_service_is_no_setting() {
        for name in [
            "SERVICE_HOST",
            "SERVICE_PORT",
            "SERVICE_PORT_HTTP",
            "PORT",
            "PORT_8090_TCP",
            "PORT_8090_TCP_ADDR",
            "ADMIN_SERVICE_HOST",
            "ADMIN_PORT_9464_TCP_PROTO",
        ] {
            assert!(is_service_link(name), "{name}");
        }
        for name in ["LISTEN", "GUARD_PROFILE", "ADMIN__LISTEN", "PORT_X_TCP", "TOOLS__A__PORT"] {
            assert!(!is_service_link(name), "{name}");
        }
    }
}
