//! The script file: named things for the model to say.

use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

/// What the model says, by name. The default has no names: only the order desk answers.
#[derive(Clone, Debug, Default)]
pub struct Script {
    entries: HashMap<String, Entry>,
}

/// A script that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file cannot be read.
    #[error("cannot read the script {path}: {source}")]
    Read {
        /// Its path.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// It is not a JSON object of entries.
    #[error("the script is not a JSON object of entries: {0}")]
    Json(serde_json::Error),
    /// One entry is not what it should be.
    #[error("script entry {name:?}: {reason}")]
    Entry {
        /// Its name.
        name: String,
        /// What is wrong.
        reason: String,
    },
}

impl Script {
    /// Reads a script file.
    ///
    /// # Errors
    /// When it cannot be read, is not JSON, or holds an entry of another shape.
    pub fn load(path: &Path) -> Result<Self, ScriptError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ScriptError::Read { path: path.display().to_string(), source })?;
        Self::parse(&text)
    }

    /// Reads a script from its text: a JSON object of entries.
    ///
    /// # Errors
    /// When it is not JSON, or holds an entry of another shape.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let raw: HashMap<String, Value> = serde_json::from_str(text).map_err(ScriptError::Json)?;
        let mut entries = HashMap::with_capacity(raw.len());
        for (name, value) in raw {
            let entry = match value {
                Value::String(text) => Entry { text: Some(text), ..Entry::default() },
                value => serde_json::from_value(value)
                    .map_err(|error| error.to_string())
                    .and_then(Entry::checked)
                    .map_err(|reason| ScriptError::Entry { name: name.clone(), reason })?,
            };
            entries.insert(name, entry);
        }
        Ok(Script { entries })
    }

    /// The entry of that name.
    pub(super) fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }
}

/// One thing to say.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Entry {
    /// Text, cut into chunks of `chunk_chars`.
    pub(super) text: Option<String>,
    /// Text, in the chunks given; instead of `text`.
    pub(super) pieces: Option<Vec<String>>,
    /// Tool calls, after the text.
    pub(super) calls: Vec<ScriptedCall>,
    /// The finish reason, when it is not `stop` or `tool_calls`.
    pub(super) finish: Option<Finish>,
    /// Wait before each chunk.
    pub(super) delay_ms: u64,
    /// After so many chunks say nothing more until aborted.
    pub(super) stall_after: Option<usize>,
    /// After so many chunks fail as an overloaded or broken scheduler does.
    pub(super) abort: Option<Abort>,
    /// Answer at once with this status and an error body (or `raw`).
    pub(super) status: Option<u16>,
    /// These very bytes as the body, each segment one write.
    pub(super) raw: Option<Raw>,
    /// Content type of `raw`; by the request's `stream` unless given.
    pub(super) content_type: Option<String>,
    /// Characters to a chunk.
    pub(super) chunk_chars: Option<usize>,
}

impl Entry {
    fn checked(self) -> Result<Self, String> {
        if self.text.is_some() && self.pieces.is_some() {
            return Err("text and pieces exclude each other".to_owned());
        }
        if self.status.is_some_and(|status| !(200..=599).contains(&status)) {
            return Err("status must be 200 to 599".to_owned());
        }
        Ok(self)
    }
}

/// One scripted tool call.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptedCall {
    /// The tool.
    pub(super) name: String,
    /// A string is sent as it is; anything else as its JSON.
    #[serde(default)]
    pub(super) arguments: Value,
    /// The arguments in the fragments given; instead of `arguments`.
    #[serde(default)]
    pub(super) fragments: Option<Vec<String>>,
    /// The id; a fresh one unless given.
    #[serde(default)]
    pub(super) id: Option<String>,
}

impl ScriptedCall {
    /// The arguments as they stand in the answer.
    pub(super) fn arguments_text(&self) -> String {
        if let Some(fragments) = &self.fragments {
            return fragments.concat();
        }
        match &self.arguments {
            Value::String(text) => text.clone(),
            Value::Null => "{}".to_owned(),
            value => value.to_string(),
        }
    }
}

/// A finish reason: its name, or SGLang's internal object of which only `type` matters here.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Finish {
    /// `"length"`
    Name(String),
    /// `{"type":"length","length":9}`
    Object {
        /// The name.
        #[serde(rename = "type")]
        name: String,
    },
}

impl Finish {
    /// The reason's name.
    pub(super) fn name(&self) -> &str {
        match self {
            Finish::Name(name) | Finish::Object { name } => name,
        }
    }
}

/// A generation that fails in the middle.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Abort {
    /// After so many chunks.
    pub(super) after: usize,
    /// The status; without one it ends with `finish_reason: "abort"`.
    pub(super) status: Option<u16>,
    /// In words.
    pub(super) message: Option<String>,
}

/// Raw body text: whole, or in segments.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Raw {
    /// One write.
    Whole(String),
    /// One write each.
    Segments(Vec<String>),
}

impl Raw {
    /// The writes.
    pub(super) fn segments(&self) -> Vec<Vec<u8>> {
        match self {
            Raw::Whole(text) => vec![text.clone().into_bytes()],
            Raw::Segments(texts) => texts.iter().map(|text| text.clone().into_bytes()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::{Script, ScriptError};

    #[test]
    fn an_entry_is_a_string_or_an_object() {
        let script = Script::parse(
            r#"{"plain":"Hello.","cut":{"text":"ab","finish":{"type":"length","length":9}},
                "call":{"calls":[{"name":"t","arguments":{"a":1}},{"name":"t","arguments":"{"}]}}"#,
        )
        .unwrap();
        assert_eq!(script.entry("plain").unwrap().text.as_deref(), Some("Hello."));
        assert_eq!(script.entry("cut").unwrap().finish.as_ref().unwrap().name(), "length");
        let calls = &script.entry("call").unwrap().calls;
        assert_eq!(calls[0].arguments_text(), r#"{"a":1}"#);
        assert_eq!(calls[1].arguments_text(), "{");
        assert!(script.entry("other").is_none());
    }

    #[test]
    fn a_wrong_entry_is_named() {
        for text in [
            r#"{"bad":{"txet":"a"}}"#,
            r#"{"bad":{"text":"a","pieces":["a"]}}"#,
            r#"{"bad":{"status":42}}"#,
            r#"{"bad":7}"#,
        ] {
            let error = Script::parse(text).unwrap_err();
            assert!(matches!(&error, ScriptError::Entry { name, .. } if name == "bad"), "{text}");
        }
        assert!(matches!(Script::parse("[]"), Err(ScriptError::Json(_))));
    }
}
