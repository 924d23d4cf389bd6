//! What a file is, by its content: a request, an answer, a stream, a HAR file or a log.
//!
//! Judged by its beginning and its keys, so that a body which is cut off or broken is known for what it is and
//! its fault is told as the proxy would, not as "no JSON".

use super::judge::mend;
use super::look::{self, Node, Record};
use super::records;
use crate::wire::json::{BodyFault, Flaw};
use std::fmt;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// Found out by its content
    Auto,
    /// A request body, or its bare list of messages
    Request,
    /// An answer that was not streamed
    Response,
    /// An event stream as it came, or its chunks in a list or one on each line
    Stream,
    /// What a browser or a proxy tool saved of its traffic
    Har,
    /// One JSON record on each line, or a list of them: batches, LangSmith, LiteLLM, home-made
    Log,
}

impl Form {
    /// Its name.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Form::Auto => "auto",
            Form::Request => "request",
            Form::Response => "response",
            Form::Stream => "stream",
            Form::Har => "har",
            Form::Log => "log",
        }
    }
}

/// Why a file cannot be judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unusable {
    /// In words.
    pub(super) message: String,
    /// Offset in the file, where there is one.
    pub(super) at: Option<usize>,
    /// What to do.
    pub(super) way_out: &'static str,
}

impl Unusable {
    pub(super) fn new(message: impl fmt::Display, way_out: &'static str) -> Self {
        Unusable { message: message.to_string(), at: None, way_out }
    }

    pub(super) fn json(fault: &BodyFault) -> Self {
        Unusable {
            message: format!("it is not readable as JSON: {}", fault.reason),
            at: Some(fault.offset),
            way_out: mend(fault).unwrap_or("Correct it there."),
        }
    }
}

const SAY: &str = "Save the JSON body of a request (it has `messages`) or of an answer (it has `choices`), or say \
    what it is with --as.";

/// What a whole file is.
///
/// # Errors
/// When it is nothing that can be judged.
pub(super) fn of(bytes: &[u8]) -> Result<Form, Unusable> {
    if let Some(rest) = bytes.strip_prefix(b"\xef\xbb\xbf") {
        return of(rest)
            .map_err(|unusable| Unusable { at: unusable.at.map(|at| at + 3), ..unusable });
    }
    let begin = bytes.trim_ascii_start();
    match begin.first() {
        None => Err(Unusable::new("it is empty", "Look at how it was saved.")),
        _ if is_event_stream(begin) => Ok(Form::Stream),
        Some(b'{' | b'[') => json(bytes),
        Some(b'<') => Err(Unusable::new(
            "it is a page (HTML or XML), not JSON",
            "Such a page comes from a gateway or a load balancer before the model's server: look there.",
        )),
        Some(0x1f) => Err(Unusable::new(
            "it is compressed (gzip)",
            "Unpack it first: `zcat FILE | tigertally check`.",
        )),
        Some(0xff | 0xfe) => {
            Err(Unusable::new("it is not in UTF-8 (UTF-16, it seems)", "Save it as UTF-8."))
        }
        Some(_) => Err(Unusable::new("it is neither JSON nor an event stream", SAY)),
    }
}

/// Whether a text begins as an event stream does.
pub(super) fn is_event_stream(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text).trim_ascii_start();
    [&b"data:"[..], b"event:", b"id:", b"retry:", b":"].iter().any(|field| text.starts_with(field))
}

fn json(bytes: &[u8]) -> Result<Form, Unusable> {
    // Bytes that are not UTF-8 are told with their place when the body is read.
    let readable = std::str::from_utf8(bytes).map_or_else(|error| error.valid_up_to(), str::len);
    let text = std::str::from_utf8(&bytes[..readable]).unwrap_or_default();
    match Node::parse(text) {
        Ok(node) if readable == bytes.len() => {
            if node.is_list() {
                list(node)
            } else {
                object(node)
            }
        }
        Ok(_) => broken(text, not_utf8(readable)),
        Err(fault) => broken(text, fault),
    }
}

fn not_utf8(offset: usize) -> BodyFault {
    BodyFault { path: String::new(), offset, reason: "not valid UTF-8", flaw: Flaw::Syntax }
}

/// Of JSON that breaks off, as far as it goes.
fn broken(text: &str, fault: BodyFault) -> Result<Form, Unusable> {
    let keys = look::keys_so_far(text);
    let has = |key: &str| keys.iter().any(|known| known == key);
    if has("messages") && !has("response") {
        return Ok(Form::Request);
    }
    if has("choices") {
        return Ok(Form::Response);
    }
    let inside = text.trim_ascii_start().get(1..).unwrap_or_default().trim_ascii_start();
    if look::keys_so_far(inside).iter().any(|key| key == "role") {
        return Ok(Form::Request);
    }
    let mut unusable = Unusable::json(&fault);
    if inside.starts_with('\'') {
        unusable.way_out =
            "It looks like a Python object that was printed: write it with json.dumps.";
    }
    Err(unusable)
}

fn object(node: Node<'_>) -> Result<Form, Unusable> {
    if node.path("log.entries").is_some() {
        return Ok(Form::Har);
    }
    if is_chunk(node) {
        return Ok(Form::Stream);
    }
    let has = |key: &str| node.member(key).is_some();
    if let Some(exchange) = records::exchange(node) {
        return Ok(match (exchange.request, exchange.answer) {
            (Some(request), None) if request.path.is_empty() && !has("model_parameters") => {
                Form::Request
            }
            (None, Some((answer, _))) if answer.path.is_empty() => Form::Response,
            _ => Form::Log,
        });
    }
    if node
        .member("data")
        .is_some_and(|data| data.items().iter().any(|item| records::exchange(*item).is_some()))
    {
        return Ok(Form::Log);
    }
    // Of another type than it must be: the rules say so.
    if has("messages") {
        return Ok(Form::Request);
    }
    if has("choices") || has("error") {
        return Ok(Form::Response);
    }
    if has("input") && (has("model") || has("instructions")) || has("output") && has("usage") {
        return Err(Unusable::new(
            "it looks like a body of the Responses API",
            "Only chat completions are judged: /v1/chat/completions, with `messages`.",
        ));
    }
    Err(Unusable::new("it is an object without `messages` and without `choices`", SAY))
}

fn list(node: Node<'_>) -> Result<Form, Unusable> {
    let items = node.items();
    let Some(first) = items.first() else {
        return Err(Unusable::new("it is an empty list", SAY));
    };
    if first.member("role").is_some() {
        return Ok(Form::Request);
    }
    if is_chunk(*first) {
        return Ok(Form::Stream);
    }
    if items.iter().any(|item| records::exchange(*item).is_some()) {
        return Ok(Form::Log);
    }
    Err(Unusable::new(
        "it is a list, but neither of messages nor of chunks nor of records that are known",
        SAY,
    ))
}

/// Whether a value is a chunk of a stream.
pub(super) fn is_chunk(node: Node<'_>) -> bool {
    let Some(node) = Record::of(node) else { return false };
    if node.path("object").is_some_and(|object| object.is("chat.completion.chunk")) {
        return true;
    }
    let choices = node.path("choices").map(Node::items).unwrap_or_default();
    choices.iter().any(|choice| {
        choice.member("delta").is_some_and(Node::is_object) && choice.member("message").is_none()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_is_known_by_its_content() {
        let table = [
            (r#"{"messages":[]}"#, Form::Request),
            (r#"{"messages":{}}"#, Form::Request),
            ("\u{feff}{\"messages\":[]}", Form::Request),
            (r#"[{"role":"user"}]"#, Form::Request),
            (r#"{"model":"m","messages":[{"role":"us"#, Form::Request),
            (r#"[{"role":"us"#, Form::Request),
            (r#"{"messages":[],"messages":[]}"#, Form::Request),
            (r#"{"choices":[]}"#, Form::Response),
            (r#"{"error":{"message":"x"}}"#, Form::Response),
            (r#"{"id":"x","choices":[{"mess"#, Form::Response),
            ("data: {}\n\n", Form::Stream),
            (": ping\n\ndata: {}\n\n", Form::Stream),
            (r#"{"object":"chat.completion.chunk","choices":[]}"#, Form::Stream),
            (r#"[{"choices":[{"delta":{}}]}]"#, Form::Stream),
            (r#"{"log":{"entries":[]}}"#, Form::Har),
            (r#"{"request":{"messages":[]}}"#, Form::Log),
            (r#"[{"inputs":{"messages":[{"role":"user"}]}}]"#, Form::Log),
            (r#"{"object":"list","data":[{"choices":[]}]}"#, Form::Log),
            (r#"{"messages":[],"response":{"choices":[]}}"#, Form::Log),
        ];
        for (text, form) in table {
            assert_eq!(of(text.as_bytes()), Ok(form), "{text}");
        }
        assert_eq!(of(b"{\"messages\":[\"\xff\"]}"), Ok(Form::Request));
    }

    #[test]
    fn what_cannot_be_judged_says_why() {
        let table = [
            ("", "empty"),
            ("  \n", "empty"),
            ("<html>", "page"),
            ("hello", "neither JSON"),
            ("\u{1f}\u{8b}", "gzip"),
            ("{}", "without `messages`"),
            ("[]", "empty list"),
            ("[1]", "list, but"),
            ("{'messages': []}", "not readable"),
            (r#"{"model":"#, "ends too early"),
            (r#"{"model":"m","input":"hi"}"#, "Responses API"),
        ];
        for (text, why) in table {
            let told = of(text.as_bytes()).map_err(|unusable| unusable.message);
            assert!(told.as_ref().is_err_and(|told| told.contains(why)), "{text}: {told:?}");
        }
        let python = of(b"{'messages': []}").map_err(|unusable| unusable.way_out);
        assert!(python.is_err_and(|way_out| way_out.contains("json.dumps")));
    }
}
