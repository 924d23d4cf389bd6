//! Clients that read a stream in their own way, and find calls in it.

use serde_json::Value;

/// Whether such a client finds a piece of a call that names a tool or holds arguments.
pub(crate) fn any_finds_a_call(stream: &[u8]) -> bool {
    let text = String::from_utf8_lossy(stream);
    let by_lf = finds(text.split('\n'));
    let by_cr = finds(text.split(['\n', '\r']));
    // As Python's `str.splitlines`.
    const ENDS: [char; 10] = [
        '\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}',
        '\u{2029}',
    ];
    by_lf || by_cr || finds(text.split(ENDS))
}

fn finds<'a>(lines: impl Iterator<Item = &'a str>) -> bool {
    lines.map(trimmed).filter_map(|line| line.strip_prefix("data:")).any(holds_a_call)
}

fn trimmed(line: &str) -> &str {
    line.trim_matches(|letter: char| letter.is_whitespace() || letter == '\u{feff}')
}

/// Whether a payload asks for a call in the way in which clients look for one.
pub(crate) fn holds_a_call(payload: &str) -> bool {
    let Ok(value) = serde_json::from_str::<Value>(trimmed(payload)) else { return false };
    let choices = value["choices"].as_array().into_iter().flatten();
    choices.flat_map(|choice| [&choice["delta"], &choice["message"]]).any(|place| {
        place["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty())
            || place["function_call"].is_object()
    })
}
