//! `tigertally config keys`: every key that can be set, with its default and what it is.
//!
//! The tables of `docs/configuration.md` are made of its JSON document.

use super::{UNUSABLE, say, tell};
use crate::policy::reference::{DefaultValue, Key, keys};
use serde_json::json;
use std::fmt::Write;
use std::process::ExitCode;

/// Prints all keys, or one, or those of a section.
#[must_use]
pub fn run(under: Option<&str>, as_json: bool) -> ExitCode {
    let mut told = keys();
    if let Some(under) = under {
        told.retain(|(key, _)| is_under(key.name, under));
        if told.is_empty() {
            tell(&format_args!(
                "tigertally: no key and no section is called \"{under}\"; `tigertally config keys` lists all"
            ));
            return ExitCode::from(UNUSABLE);
        }
    }
    say(&if as_json { document(&told) } else { text(&told) });
    ExitCode::SUCCESS
}

fn is_under(name: &str, under: &str) -> bool {
    name.strip_prefix(under).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// For tools: a list, in the order of the reference.
fn document(keys: &[(Key, DefaultValue)]) -> String {
    let keys = keys.iter().map(|(key, default)| {
        let (value, words) = match default {
            DefaultValue::Value(value) => (Some(value), None),
            DefaultValue::Words(words) => (None, Some(words)),
        };
        json!({
            "key": key.name,
            "default": value,
            "default_in_words": words,
            "restart": key.restart,
            "what": key.what,
        })
    });
    format!("{:#}\n", keys.collect::<serde_json::Value>())
}

/// For people: sections apart, each key with what it is below it.
fn text(keys: &[(Key, DefaultValue)]) -> String {
    let mut page = String::new();
    let mut before = None;
    for (key, default) in keys {
        let section = key.name.rsplit_once('.').map(|(section, _)| section);
        if before.is_some_and(|before| before != section) {
            page.push('\n');
        }
        before = Some(section);
        // Writing to a string cannot fail.
        let _ = match default {
            DefaultValue::Value(value) => writeln!(page, "{} = {value}", key.name),
            DefaultValue::Words(words) => writeln!(page, "{}  ({})", key.name, plain(words)),
        };
        let restart = if key.restart { " (a change needs a restart)" } else { "" };
        let _ = writeln!(page, "    {}{restart}", plain(key.what));
    }
    page
}

/// Markdown without its marks: code as it is, of a link its text.
fn plain(markdown: &str) -> String {
    let mut text = String::with_capacity(markdown.len());
    let mut rest = markdown;
    while let Some((before, link)) = rest.split_once('[') {
        text.push_str(before);
        match link.split_once("](").and_then(|(words, to)| Some((words, to.split_once(')')?.1))) {
            Some((words, after)) if !words.contains(']') => {
                text.push_str(words);
                rest = after;
            }
            _ => {
                text.push('[');
                rest = link;
            }
        }
    }
    text.push_str(rest);
    text.replace('`', "")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_section_is_no_other_that_begins_alike() {
        assert!(is_under("tools.NAME.echo", "tools"));
        assert!(is_under("tools.allow", "tools.allow"));
        assert!(!is_under("tools.allow", "tool"));
        assert!(!is_under("listen", "admin.listen"));
    }

    #[test]
    fn people_see_no_markdown_and_tools_see_every_key() {
        assert_eq!(
            plain("the [task record](task-record.md) goes to `-`"),
            "the task record goes to -"
        );
        assert_eq!(plain("`[]` allows none, [x] too [a](b"), "[] allows none, [x] too [a](b");
        let all = keys();
        let page = text(&all);
        assert!(
            page.starts_with("listen = \"127.0.0.1:8090\"\n    where clients connect (a change")
        );
        assert!(page.contains("\n\nadmin.listen = "), "sections stand apart");
        assert!(!page.contains("](") && !page.contains('`'));
        let document: serde_json::Value = serde_json::from_str(&document(&all)).unwrap();
        assert_eq!(document.as_array().unwrap().len(), all.len());
    }
}
