//! Streams as SGLang sends them: a role, text or the pieces of a call, a finish, the usage, `[DONE]`.

use std::fmt::Write as _;

const HEAD: &str = r#"{"id":"c0ffee00c0ffee00c0ffee00c0ffee00","object":"chat.completion.chunk","created":1764547200,"model":"Qwen/Qwen3-8B","choices":[{"index":0,"delta":"#;
const TAIL: &str = r#","logprobs":null,"finish_reason":null,"matched_stop":null}],"usage":null}"#;

/// A chunk of text.
pub(crate) fn text() -> String {
    format!(
        r#"{HEAD}{{"role":null,"content":" parcel","reasoning_content":null,"tool_calls":null}}{TAIL}"#
    )
}

/// The `n`th piece of a call's arguments.
pub(crate) fn piece(n: usize) -> String {
    let word = ["{\\\"order", "_id\\\": \\\"", "ORDER-", "100", "23", "\\\"}"][n % 6];
    format!(
        r#"{HEAD}{{"role":null,"content":null,"reasoning_content":null,"tool_calls":[{{"id":null,"index":0,"type":"function","function":{{"name":null,"arguments":"{word}"}}}}]}}{TAIL}"#
    )
}

/// The first piece of a call: its id and name.
pub(crate) fn head() -> String {
    format!(
        r#"{HEAD}{{"role":null,"content":null,"reasoning_content":null,"tool_calls":[{{"id":"call_0123456789abcdef01234567","index":0,"type":"function","function":{{"name":"query_order_0","arguments":""}}}}]}}{TAIL}"#
    )
}

/// The finish.
pub(crate) fn last() -> String {
    format!(
        r#"{HEAD}{{"role":null,"content":null,"reasoning_content":null,"tool_calls":null}},"logprobs":null,"finish_reason":"stop","matched_stop":151645}}],"usage":null}}"#
    )
}

/// Chunks as one stream of events.
pub(crate) fn stream(chunks: impl Iterator<Item = String>) -> String {
    let mut stream = String::new();
    for chunk in chunks {
        let _ = write!(stream, "data: {chunk}\n\n");
    }
    stream.push_str("data: [DONE]\n\n");
    stream
}
