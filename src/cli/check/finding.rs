//! One thing that is told: a fault with its place in the file, its rule and its way out.

use super::judge::Found;
use super::part::{Document, Part};
use crate::cli::rules;
use serde::Serialize;
use std::borrow::Cow;

/// Which half of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Half {
    Request,
    Response,
}

/// A fault as it is told. The names are those of the JSON document (docs/check.md).
#[derive(Clone, Debug, Serialize)]
pub(super) struct Finding {
    pub(super) code: &'static str,
    pub(super) level: Level,
    pub(super) half: Half,
    pub(super) line: usize,
    pub(super) column: usize,
    /// The event of the stream, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) event: Option<usize>,
    /// Where in the body, as one path from the file's root.
    pub(super) path: String,
    /// Where in the body, in the spelling that the proxy sends.
    pub(super) param: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_call_id: Option<String>,
    pub(super) message: String,
    pub(super) rule: &'static str,
    pub(super) recovery: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hint: Option<Cow<'static, str>>,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// The proxy refuses the exchange.
    Fault,
    /// It lets it through and notes it.
    Note,
}

impl Finding {
    /// Of what was found in a part of a document, the path to which is `path`.
    pub(super) fn of(
        found: Found,
        half: Half,
        part: &Part<'_>,
        document: Document<'_>,
        path: &str,
    ) -> Self {
        let Found { fault, note, at, event, hint } = found;
        let (line, column) = document.position(part.offset(at));
        Finding {
            code: fault.code.as_str(),
            level: if note { Level::Note } else { Level::Fault },
            half,
            line,
            column,
            event,
            path: joined(path, &fault.param),
            tool_call_id: fault.tool_call_id,
            message: fault.message,
            rule: rules::of(fault.code),
            recovery: fault.recovery,
            hint,
            param: fault.param,
        }
    }
}

/// One path of two; OpenAI's `messages.[3]` as everybody else writes it.
pub(super) fn joined(outer: &str, inner: &str) -> String {
    let inner = inner.replace(".[", "[");
    match (outer, inner.as_str()) {
        ("", _) => inner,
        (_, "") => outer.to_owned(),
        (_, begins) if begins.starts_with('[') => format!("{outer}{inner}"),
        _ => format!("{outer}.{inner}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_join() {
        for (outer, inner, whole) in [
            ("", "messages.[3].role", "messages[3].role"),
            ("request.body", "messages[3]", "request.body.messages[3]"),
            ("request", "", "request"),
            ("", "", ""),
            ("messages", "[3].role", "messages[3].role"),
        ] {
            assert_eq!(joined(outer, inner), whole);
        }
    }
}
