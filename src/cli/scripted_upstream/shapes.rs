//! The texts on the wire, in SGLang's own key order and with its explicit nulls.
//!
//! Written out rather than serialised: key order, nulls and white space are the point.

use super::plan::{Call, Piece};
use std::fmt::Write as _;

/// What every chunk and completion of one generation begins with.
#[derive(Clone, Debug)]
pub(super) struct Head {
    /// The completion's id.
    pub(super) id: String,
    /// Seconds since the epoch.
    pub(super) created: u64,
    /// The model's name, as asked for.
    pub(super) model: String,
}

/// Tokens, as far as a script has any.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    /// Of the request.
    pub(super) prompt: usize,
    /// Of the answer.
    pub(super) completion: usize,
}

/// One choice of a whole completion.
#[derive(Debug, Default)]
pub(super) struct Choice {
    /// Its text.
    pub(super) text: String,
    /// Its calls.
    pub(super) calls: Vec<Call>,
    /// How it ended.
    pub(super) finish: String,
}

/// A string as JSON.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl Head {
    fn open(&self, object: &str) -> String {
        format!(
            r#"{{"id":{},"object":"{object}","created":{},"model":{},"choices":["#,
            quoted(&self.id),
            self.created,
            quoted(&self.model)
        )
    }

    fn chunk(&self, choice: usize, delta: &str, end: &str, tail: &str) -> String {
        format!(
            r#"{}{{"index":{choice},"delta":{{{delta}}},"logprobs":null,{end}}}]{tail}}}"#,
            self.open("chat.completion.chunk")
        )
    }

    /// The chunk that opens a choice.
    pub(super) fn role_chunk(&self, choice: usize) -> String {
        let delta = r#""reasoning_content":null,"role":"assistant","content":"""#;
        self.chunk(choice, delta, NOT_ENDED, "")
    }

    /// A chunk of text, or of a call.
    pub(super) fn piece_chunk(&self, choice: usize, piece: &Piece, calls: &[Call]) -> String {
        let (content, calls) = match piece {
            Piece::Text(text) => (quoted(text), String::new()),
            Piece::Head(index) => {
                let (id, name) = calls.get(*index).map_or(("", ""), |call| (&call.id, &call.name));
                ("null".to_owned(), fragment(*index, &quoted(id), &quoted(name), ""))
            }
            Piece::Arguments(index, text) => {
                ("null".to_owned(), fragment(*index, "null", "null", text))
            }
        };
        let delta = format!(r#""role":null,"content":{content},"reasoning_content":null{calls}"#);
        self.chunk(choice, &delta, NOT_ENDED, r#","usage":null"#)
    }

    /// The chunk that ends a choice.
    pub(super) fn finish_chunk(&self, choice: usize, finish: &str) -> String {
        // In streams SGLang names the stop token beside `tool_calls` too.
        let stop = if matches!(finish, "stop" | "tool_calls") { "2" } else { "null" };
        let end = format!(r#""finish_reason":{},"matched_stop":{stop}"#, quoted(finish));
        self.chunk(choice, r#""reasoning_content":null"#, &end, "")
    }

    /// The chunk without choices that bears the usage.
    pub(super) fn usage_chunk(&self, usage: Usage) -> String {
        format!(r#"{}],"usage":{}}}"#, self.open("chat.completion.chunk"), usage.json())
    }

    /// A whole completion.
    pub(super) fn completion(&self, choices: &[Choice], usage: Usage) -> String {
        let choices: Vec<String> =
            choices.iter().enumerate().map(|(index, choice)| choice.json(index)).collect();
        format!(
            r#"{}{}],"usage":{},"metadata":{{"weight_version":"default"}}}}"#,
            self.open("chat.completion"),
            choices.join(","),
            usage.json()
        )
    }
}

const NOT_ENDED: &str = r#""finish_reason":null,"matched_stop":null"#;

fn fragment(index: usize, id: &str, name: &str, arguments: &str) -> String {
    format!(
        r#","tool_calls":[{{"id":{id},"index":{index},"type":"function","function":{{"name":{name},"arguments":{}}}}}]"#,
        quoted(arguments)
    )
}

impl Usage {
    fn json(self) -> String {
        format!(
            r#"{{"prompt_tokens":{},"total_tokens":{},"completion_tokens":{},"prompt_tokens_details":null,"reasoning_tokens":0,"completion_tokens_details":null}}"#,
            self.prompt,
            self.prompt + self.completion,
            self.completion
        )
    }
}

impl Choice {
    fn json(&self, index: usize) -> String {
        let mut calls = String::new();
        for (at, call) in self.calls.iter().enumerate() {
            let lead = if at == 0 { r#","tool_calls":["# } else { "," };
            let _ = write!(
                calls,
                r#"{lead}{{"id":{},"index":{at},"type":"function","function":{{"name":{},"arguments":{}}}}}"#,
                quoted(&call.id),
                quoted(&call.name),
                quoted(&call.arguments)
            );
        }
        if !calls.is_empty() {
            calls.push(']');
        }
        let stop = if self.finish == "stop" { "2" } else { "null" };
        format!(
            r#"{{"index":{index},"message":{{"role":"assistant","content":{},"reasoning_content":null{calls}}},"logprobs":null,"finish_reason":{},"matched_stop":{stop}}}"#,
            quoted(&self.text),
            quoted(&self.finish)
        )
    }
}

/// SGLang's error body.
pub(super) fn error(status: u16, kind: &str, message: &str) -> String {
    format!(
        r#"{{"object":"error","message":{},"type":{},"param":null,"code":{status}}}"#,
        quoted(message),
        quoted(kind)
    )
}

/// SGLang's error event inside a stream (it goes through another serialiser there, hence the spaces).
pub(super) fn error_event(status: u16, message: &str) -> String {
    let kind = match status {
        400 => "BAD_REQUEST",
        503 => "SERVICE_UNAVAILABLE",
        _ => "INTERNAL_SERVER_ERROR",
    };
    format!(
        r#"{{"error": {{"object": "error", "message": {}, "type": "{kind}", "param": null, "code": {status}}}}}"#,
        quoted(message)
    )
}

/// The model list.
pub(super) fn models(created: u64) -> String {
    format!(r#"{{"object":"list","data":[{}]}}"#, model(created))
}

/// The one model.
pub(super) fn model(created: u64) -> String {
    format!(
        r#"{{"id":"scripted","object":"model","created":{created},"owned_by":"sglang","root":"scripted","parent":null,"max_model_len":32768}}"#
    )
}
