//! From a request to what will be said: directives, script, pieces.

use super::order_desk;
use super::reading::Asked;
use super::script::{Abort, Entry, Script};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_PAD_INDIFFERENT;
use std::time::Duration;

/// Characters to a chunk unless an entry says otherwise; the captured server's number.
const CHUNK_CHARS: usize = 4;
/// The name that means the order desk in a `[[script:…]]` list.
const DESK: &str = "desk";

/// What one choice of an answer will say.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The calls, whole.
    pub(super) calls: Vec<Call>,
    /// Text and calls in the order and size of chunks.
    pub(super) pieces: Vec<Piece>,
    /// The finish reason.
    pub(super) finish: String,
    /// Wait before the first chunk.
    pub(super) first_delay: Duration,
    /// Wait before each chunk.
    pub(super) delay: Duration,
    /// After so many chunks wait for an abort.
    pub(super) stall_after: Option<usize>,
    /// After so many chunks fail.
    pub(super) abort: Option<Abort>,
}

/// One whole call.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// Its id.
    pub(super) id: String,
    /// Its tool.
    pub(super) name: String,
    /// Its arguments, as text.
    pub(super) arguments: String,
}

/// One chunk's worth.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    /// Some text.
    Text(String),
    /// A call begins.
    Head(usize),
    /// A call's arguments go on.
    Arguments(usize, String),
}

/// What to do with a request.
#[derive(Debug)]
pub(super) enum Answer {
    /// Say this, once per choice.
    Say(Vec<Plan>),
    /// Answer with an error.
    Fail {
        /// The status.
        status: u16,
        /// In words.
        message: String,
    },
    /// Send these very bytes.
    Raw {
        /// The status.
        status: u16,
        /// The content type, unless by `stream`.
        content_type: Option<String>,
        /// The writes.
        segments: Vec<Vec<u8>>,
        /// Wait before the first write.
        first_delay: Duration,
        /// Wait before each write.
        delay: Duration,
    },
}

/// Decides what to answer. `mint` makes call ids.
pub(super) fn answer(script: &Script, asked: &Asked<'_>, mint: impl Fn() -> String) -> Answer {
    let user = asked.last_user_text();
    let turn = asked.turn();
    let first_delay = directive(&user, "delay").and_then(|list| nth(list, turn).parse().ok());
    let first_delay = Duration::from_millis(first_delay.unwrap_or(0));
    if let Some(raw) = directive(&user, "raw") {
        return match bytes_of(raw) {
            Some(bytes) => Answer::Raw {
                status: 200,
                content_type: None,
                segments: vec![bytes],
                first_delay,
                delay: Duration::ZERO,
            },
            None => Answer::Fail { status: 400, message: "[[raw:…]] is not base64".to_owned() },
        };
    }
    let entry = match directive(&user, "script").map(|list| nth(list, turn)) {
        None | Some(DESK) => order_desk::reply(asked),
        Some(name) => match script.entry(name) {
            Some(entry) => entry.clone(),
            None => Entry { text: Some(format!("no script named {name}")), ..Entry::default() },
        },
    };
    perform(entry, asked.choices(), first_delay, mint)
}

fn perform(
    entry: Entry,
    choices: usize,
    first_delay: Duration,
    mint: impl Fn() -> String,
) -> Answer {
    let delay = Duration::from_millis(entry.delay_ms);
    if let Some(raw) = &entry.raw {
        return Answer::Raw {
            status: entry.status.unwrap_or(200),
            content_type: entry.content_type.clone(),
            segments: raw.segments(),
            first_delay,
            delay,
        };
    }
    if let Some(status) = entry.status.filter(|status| *status != 200) {
        let message = entry.text.unwrap_or_else(|| "scripted failure".to_owned());
        return Answer::Fail { status, message };
    }
    let plans = (0..choices).map(|_| Plan {
        first_delay,
        delay,
        stall_after: entry.stall_after,
        abort: entry.abort.clone(),
        ..speech(&entry, &mint)
    });
    Answer::Say(plans.collect())
}

/// The pieces, calls and finish of one choice.
fn speech(entry: &Entry, mint: &impl Fn() -> String) -> Plan {
    let chars = entry.chunk_chars.unwrap_or(CHUNK_CHARS).max(1);
    let mut pieces: Vec<Piece> = match (&entry.pieces, &entry.text) {
        (Some(given), _) => given.iter().cloned().map(Piece::Text).collect(),
        (None, Some(text)) => cut(text, chars).map(Piece::Text).collect(),
        (None, None) => Vec::new(),
    };
    let mut calls = Vec::with_capacity(entry.calls.len());
    for (index, call) in entry.calls.iter().enumerate() {
        let arguments = call.arguments_text();
        pieces.push(Piece::Head(index));
        let parts = call.fragments.clone().unwrap_or_else(|| cut(&arguments, chars).collect());
        pieces.extend(parts.into_iter().map(|part| Piece::Arguments(index, part)));
        let id = call.id.clone().unwrap_or_else(mint);
        calls.push(Call { id, name: call.name.clone(), arguments });
    }
    let finish = match &entry.finish {
        Some(finish) => finish.name(),
        None if calls.is_empty() => "stop",
        None => "tool_calls",
    };
    Plan {
        finish: finish.to_owned(),
        calls,
        pieces,
        first_delay: Duration::ZERO,
        delay: Duration::ZERO,
        stall_after: None,
        abort: None,
    }
}

fn cut(text: &str, chars: usize) -> impl Iterator<Item = String> {
    let all: Vec<char> = text.chars().collect();
    let parts: Vec<String> = all.chunks(chars).map(|part| part.iter().collect()).collect();
    parts.into_iter()
}

/// The value of `[[name:value]]` in a text, the last one.
fn directive<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let open = format!("[[{name}:");
    let from = text.rfind(&open)? + open.len();
    let value = &text[from..];
    value.find("]]").map(|end| value[..end].trim())
}

/// What the `raw` directive stands for: base64 (RFC 4648 section 4) with or without padding, and in the
/// URL-safe alphabet as well, because a shell or a URL may have made it.
fn bytes_of(raw: &str) -> Option<Vec<u8>> {
    STANDARD_PAD_INDIFFERENT.decode(raw.replace('-', "+").replace('_', "/")).ok()
}

/// The entry of a comma list for the n-th model call of a task; the last entry goes on for ever.
fn nth(list: &str, turn: usize) -> &str {
    let mut parts = list.split(',').map(str::trim);
    let last = list.rsplit(',').next().unwrap_or(list).trim();
    parts.nth(turn).unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use super::{bytes_of, cut, directive, nth};

    #[test]
    fn a_directive_is_read_out_of_a_text() {
        let text = "Where is ORDER-A? [[delay:30]] [[script: one , two]]";
        assert_eq!(directive(text, "delay"), Some("30"));
        assert_eq!(directive(text, "script"), Some("one , two"));
        assert_eq!(directive(text, "raw"), None);
        assert_eq!(directive("[[delay:30", "delay"), None);
    }

    #[test]
    fn a_list_is_read_by_turn_and_its_last_entry_stays() {
        let said: Vec<&str> = (0..4).map(|turn| nth("one, two", turn)).collect();
        assert_eq!(said, ["one", "two", "two", "two"]);
        assert_eq!(nth("30", 5), "30");
    }

    #[test]
    fn raw_bytes_come_in_either_alphabet_padded_or_not() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("Zm9vYg==", b"foob"),
            ("Zm9vYmE", b"fooba"),
            ("+/8=", b"\xfb\xff"),
            ("-_8", b"\xfb\xff"),
        ] {
            assert_eq!(bytes_of(text).as_deref(), Some(bytes), "{text}");
        }
        for text in ["Z", "Zm9vY", "Zm 9v", "Zm9v!"] {
            assert_eq!(bytes_of(text), None, "{text}");
        }
    }

    #[test]
    fn text_is_cut_by_characters_not_bytes() {
        assert_eq!(cut("运输中 on", 2).collect::<Vec<_>>(), ["运输", "中 ", "on"]);
        assert_eq!(cut("", 4).count(), 0);
    }
}
