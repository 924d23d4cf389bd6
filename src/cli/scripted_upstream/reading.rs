//! What the scripted model reads of a request. Lenient on purpose: it must answer whatever a guard
//! lets through, lone surrogates and unknown keys included, so every member stays raw until needed.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// A chat-completions request.
#[derive(Debug, Deserialize)]
pub(super) struct Asked<'a> {
    #[serde(borrow, default)]
    model: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) messages: Vec<Message<'a>>,
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_choice: Option<&'a RawValue>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    n: Option<usize>,
    #[serde(borrow, default)]
    rid: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

/// One message.
#[derive(Debug, Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow, default)]
    role: Option<&'a RawValue>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_calls: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_call_id: Option<&'a RawValue>,
}

impl Asked<'_> {
    /// `model`, or SGLang's own default.
    pub(super) fn model(&self) -> String {
        text(self.model).unwrap_or_else(|| "default".to_owned())
    }

    /// `rid`
    pub(super) fn rid(&self) -> Option<String> {
        text(self.rid)
    }

    /// `stream`
    pub(super) fn stream(&self) -> bool {
        self.stream == Some(true)
    }

    /// `stream_options.include_usage`
    pub(super) fn include_usage(&self) -> bool {
        self.stream_options.as_ref().and_then(|options| options.include_usage) == Some(true)
    }

    /// `n`, within reason.
    pub(super) fn choices(&self) -> usize {
        self.n.unwrap_or(1).clamp(1, 16)
    }

    /// Whether `name` is offered and may be called.
    pub(super) fn may_call(&self, name: &str) -> bool {
        let offered = value(self.tools);
        let offered = offered.as_array().is_some_and(|tools| {
            tools.iter().any(|tool| tool.pointer("/function/name") == Some(&name.into()))
        });
        offered && text(self.tool_choice).as_deref() != Some("none")
    }

    /// The text of the last user message.
    pub(super) fn last_user_text(&self) -> String {
        let user = self.messages.iter().rfind(|message| message.is("user"));
        user.map(Message::text).unwrap_or_default()
    }

    /// How many times the model has spoken since the last user message.
    pub(super) fn turn(&self) -> usize {
        let since = self.messages.iter().rev().take_while(|message| !message.is("user"));
        since.filter(|message| message.is("assistant")).count()
    }
}

impl Message<'_> {
    /// Whether it has this role.
    pub(super) fn is(&self, role: &str) -> bool {
        text(self.role).as_deref() == Some(role)
    }

    /// Its content: a string, or the text parts joined.
    pub(super) fn text(&self) -> String {
        match value(self.content) {
            Value::String(text) => text,
            Value::Array(parts) => {
                parts.iter().filter_map(|part| part.get("text")?.as_str()).collect()
            }
            _ => String::new(),
        }
    }

    /// `tool_calls`, when it is a list.
    pub(super) fn tool_calls(&self) -> Vec<Value> {
        match value(self.tool_calls) {
            Value::Array(calls) => calls,
            _ => Vec::new(),
        }
    }

    /// `tool_call_id`
    pub(super) fn tool_call_id(&self) -> Option<String> {
        text(self.tool_call_id)
    }
}

fn text(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
}

fn value(raw: Option<&RawValue>) -> Value {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or(Value::Null)
}
