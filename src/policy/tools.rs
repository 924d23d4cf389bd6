//! The `[tools]` section: what holds for every tool, and a table for each that has settings of its own.

use super::findings::Findings;
use super::section::{Found, Section, count, span, words};
use super::upstream::beside;
use super::{Tool, Tools};
use crate::guard::schema::Schema;
use std::collections::HashSet;
use std::sync::Arc;

/// Largest schema file that is read.
const SCHEMA_BYTES: usize = 256 << 10;

pub(super) fn resolve(mut section: Section<'_>, findings: &Findings) -> Tools {
    let mut tools = Tools {
        allow: section.list("allow").map(|names| named(names, findings)),
        max_calls: section.read("max_calls", count),
        deadline: section.read("deadline", span),
        ..Tools::default()
    };
    for (name, section) in section.sections() {
        tools.each.insert(name, tool(section, findings));
    }
    section.finish();
    tools
}

fn tool(mut section: Section<'_>, findings: &Findings) -> Tool {
    let owned = section.list("server_owned").unwrap_or_default();
    let echo = section.list("echo").unwrap_or_default();
    let tool = Tool {
        write: section.choice("effect", &[("read", false), ("write", true)]).unwrap_or_default(),
        deadline: section.read("deadline", span),
        server_owned: named(owned, findings),
        echo: named(echo, findings),
        edits_allowed: section
            .choice("edits", &[("refuse", false), ("note", true)])
            .unwrap_or_default(),
        schema: section.found("schema", words).and_then(|file| schema(&file, findings)),
    };
    section.finish();
    tool
}

/// A list of names, none empty, none twice.
fn named(list: Vec<Found<String>>, findings: &Findings) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(list.len());
    let mut known = HashSet::new();
    for name in list {
        if name.value.is_empty() {
            findings.tell(&name.origin, &name.key, "holds an empty name");
        } else if !known.insert(name.value.clone()) {
            findings.tell(&name.origin, &name.key, format!("names \"{}\" twice", name.value));
        } else {
            names.push(name.value);
        }
    }
    names
}

/// Reads the operator's JSON Schema from its file, which stands beside the configuration.
fn schema(file: &Found<String>, findings: &Findings) -> Option<Arc<str>> {
    let path = beside(&file.origin, &file.value);
    findings.reads(&path);
    let text = std::fs::read_to_string(&path).map_err(|error| format!("cannot be read: {error}"));
    match text.and_then(|text| sound_schema(&text).map(|()| Arc::from(text))) {
        Ok(schema) => Some(schema),
        Err(message) => {
            findings.tell(&file.origin, &file.key, format!("{}: {message}", path.display()));
            None
        }
    }
}

fn sound_schema(text: &str) -> Result<(), String> {
    if text.len() > SCHEMA_BYTES {
        return Err(format!("is larger than {} KiB", SCHEMA_BYTES >> 10));
    }
    match serde_json::from_str::<serde_json::Value>(text) {
        Ok(serde_json::Value::Object(_)) => Schema::compile(text)
            .map(|_| ())
            .map_err(|unusable| format!("is no usable JSON Schema: {}", unusable.0)),
        Ok(_) => Err("holds JSON, but no JSON Schema; it must be an object".to_owned()),
        Err(error) => {
            Err(format!("is not JSON (line {}, column {})", error.line(), error.column()))
        }
    }
}
