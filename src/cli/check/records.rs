//! The shapes in which logs keep exchanges, one a record: where the request stands in them, and where the answer.
//!
//! | written by | request | answer |
//! | --- | --- | --- |
//! | OpenAI's batches | `body` | `response.body` |
//! | stored completions | | the record itself, with its `tools` |
//! | LiteLLM's standard payload | `messages`, and `model_parameters` for the rest | `response` |
//! | LangSmith, of an OpenAI client | `inputs` | `outputs` |
//! | LangSmith, of LangChain | `inputs.messages` | `outputs.generations` ([`langchain`]) |
//! | gateways and home-made logs | `request`, `request.body`, `request_body`, … | `response`, `response.body`, … |
//!
//! A body may stand there as JSON or as a string that holds it.

use super::form::{self, Form};
use super::langchain;
use super::look::{self, Node, Record};
use super::part::{Part, Pieces};
use crate::wire::json::Field;

/// A request, its answer, or both.
#[derive(Debug, Default)]
pub(super) struct Exchange<'a> {
    pub(super) request: Option<Body<'a>>,
    pub(super) answer: Option<(Body<'a>, AnswerForm)>,
}

/// A body, and the path to it in what holds it.
#[derive(Clone, Debug)]
pub(super) struct Body<'a> {
    /// Empty when it is the whole document.
    pub(super) path: String,
    pub(super) part: Part<'a>,
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerForm {
    /// A completion.
    Whole,
    /// An event stream.
    Stream,
    /// A list of chunks, or chunks one after the other.
    Chunks,
    /// The server's own error, by its status.
    Error,
}

const REQUESTS: [&str; 13] = [
    "request.body",
    "request",
    "body",
    "request_body",
    "requestBody",
    "req.body",
    "req",
    "inputs",
    "input",
    "proxy_server_request.body",
    "proxy_server_request",
    "kwargs",
    "",
];
const ANSWERS: [&str; 12] = [
    "response.body",
    "response",
    "response_body",
    "responseBody",
    "res.body",
    "res",
    "outputs",
    "output",
    "response_obj",
    "completion",
    "chunks",
    "",
];

/// The exchange that a record keeps; `None` when it keeps none that is known.
pub(super) fn exchange(record: Node<'_>) -> Option<Exchange<'_>> {
    let record = &Record::of(record)?;
    let mut exchange = langchain::exchange(record).unwrap_or_default();
    if exchange.request.is_none() {
        exchange.request = REQUESTS.into_iter().find_map(|path| request(record, path));
    }
    if exchange.answer.is_none() {
        exchange.answer = ANSWERS.into_iter().find_map(|path| answer(record, path));
    }
    (exchange.request.is_some() || exchange.answer.is_some()).then_some(exchange)
}

fn request<'a>(record: &Record<'a>, path: &str) -> Option<Body<'a>> {
    let node = record.path(path)?;
    let part = match node.field() {
        Field::Text(text) => {
            let keys = look::keys_so_far(&text.decode());
            keys.iter().any(|key| key == "messages").then(|| Part::quoted(node.at, text))?
        }
        _ => {
            let messages = node.member("messages").filter(|messages| is_wire_list(*messages))?;
            match node.member("model_parameters") {
                Some(parameters) => put_together(messages, parameters),
                None => Part::at(node.at, node.raw.as_bytes()),
            }
        }
    };
    Some(Body { path: path.to_owned(), part })
}

/// A list of messages as they go over the wire; an empty one is one as well.
fn is_wire_list(messages: Node<'_>) -> bool {
    let items = messages.items();
    messages.is_list() && items.first().is_none_or(|first| first.member("role").is_some())
}

/// A request whose messages are kept apart from the rest of it.
fn put_together<'a>(messages: Node<'a>, parameters: Node<'a>) -> Part<'a> {
    let mut pieces = Pieces::default();
    pieces.add(r#"{"messages":"#).take(messages.at, messages.raw);
    for name in ["tools", "functions", "tool_choice", "parallel_tool_calls", "n"] {
        if let Some(value) = parameters.member(name) {
            pieces.add(&format!(",\"{name}\":")).take(value.at, value.raw);
        }
    }
    pieces.add("}");
    pieces.whole()
}

fn answer<'a>(record: &Record<'a>, path: &str) -> Option<(Body<'a>, AnswerForm)> {
    let node = record.path(path)?;
    let (part, form) = match node.field() {
        Field::Text(text) => {
            let decoded = text.decode();
            let form = match form::of(decoded.as_bytes()) {
                Ok(Form::Response) => AnswerForm::Whole,
                Ok(Form::Stream) if form::is_event_stream(decoded.as_bytes()) => AnswerForm::Stream,
                Ok(Form::Stream) => AnswerForm::Chunks,
                _ => return None,
            };
            (Part::quoted(node.at, text), form)
        }
        _ => {
            let items = node.items();
            let is_error = !path.is_empty() && node.member("error").is_some_and(Node::is_object);
            let first = items.first().copied().unwrap_or(node);
            let form = if form::is_chunk(first) {
                AnswerForm::Chunks
            } else if node.member("choices").is_some_and(Node::is_list) || is_error {
                AnswerForm::Whole
            } else {
                return None;
            };
            (Part::at(node.at, node.raw.as_bytes()), form)
        }
    };
    let failed = status(record).is_some_and(|status| status >= 400);
    let form = if failed { AnswerForm::Error } else { form };
    Some((Body { path: path.to_owned(), part }, form))
}

fn status(record: &Record<'_>) -> Option<u64> {
    let places = ["response.status_code", "response.status", "status_code", "res.status"];
    places.into_iter().find_map(|place| record.path(place)?.number())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const REQUEST: &str = r#"{"messages":[{"role":"user"}]}"#;
    const ANSWER: &str = r#"{"choices":[{"message":{}}]}"#;

    /// Where the request stands, and where the answer.
    type Kept = (Option<String>, Option<(String, AnswerForm)>);

    fn kept(record: &str) -> Option<Kept> {
        let exchange = exchange(Node::parse(record).unwrap())?;
        let answer = exchange.answer.map(|(body, form)| (body.path, form));
        Some((exchange.request.map(|body| body.path), answer))
    }

    #[test]
    fn each_shape_is_known() {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let (q, a) = (quoted(REQUEST), quoted(ANSWER));
        let stream = quoted("data: {}\n\n");
        let whole = |path: &str| Some((path.to_owned(), AnswerForm::Whole));
        let messages = r#"[{"role":"user"}]"#;
        let table = [
            (
                format!(r#"{{"custom_id":"1","method":"POST","url":"/v1","body":{REQUEST}}}"#),
                Some("body"),
                None,
            ),
            (
                format!(
                    r#"{{"custom_id":"1","response":{{"status_code":200,"body":{ANSWER}}},"error":null}}"#
                ),
                None,
                whole("response.body"),
            ),
            (
                format!(
                    r#"{{"id":"1","messages":{messages},"response":{ANSWER},"model_parameters":{{}}}}"#
                ),
                Some(""),
                whole("response"),
            ),
            (
                format!(r#"{{"run_type":"llm","inputs":{REQUEST},"outputs":{ANSWER}}}"#),
                Some("inputs"),
                whole("outputs"),
            ),
            (format!(r#"{{"request":{q},"response":{a}}}"#), Some("request"), whole("response")),
            (
                format!(r#"{{"request":{{"body":{q}}},"response":{{"body":{stream}}}}}"#),
                Some("request.body"),
                Some(("response.body".to_owned(), AnswerForm::Stream)),
            ),
            (REQUEST.to_owned(), Some(""), None),
            (ANSWER.to_owned(), None, whole("")),
        ];
        for (record, request, answer) in table {
            assert_eq!(kept(&record), Some((request.map(str::to_owned), answer)), "{record}");
        }
    }

    #[test]
    fn what_keeps_no_exchange_is_left_alone() {
        for record in [
            "{}",
            "7",
            r#"{"level":"info","message":"listening"}"#,
            r#"{"messages":"7 of them"}"#,
            r#"{"error":"x"}"#,
            r#"{"input":"hello","output":"data"}"#,
            r#"{"request":"GET /","response":{"status":200}}"#,
        ] {
            assert_eq!(kept(record), None, "{record}");
        }
    }

    #[test]
    fn an_error_status_makes_an_answer_the_servers_own() {
        let record = r#"{"response":{"status_code":400,"body":{"error":{"message":"x"}}}}"#;
        let (_, answer) = kept(record).unwrap();
        assert_eq!(answer, Some(("response.body".to_owned(), AnswerForm::Error)));
    }

    #[test]
    fn parameters_that_are_kept_apart_belong_to_the_request() {
        let record = r#"{"messages":[{"role":"user"}],"model_parameters":{"tool_choice":"none","tools":[{"type":"function"}],"seed":1}}"#;
        let body = exchange(Node::parse(record).unwrap()).unwrap().request.unwrap();
        let text = std::str::from_utf8(&body.part.bytes).unwrap();
        assert_eq!(
            text,
            r#"{"messages":[{"role":"user"}],"tools":[{"type":"function"}],"tool_choice":"none"}"#
        );
        assert!(record[body.part.offset(text.find("\"none\"").unwrap())..].starts_with("\"none\""));
    }
}
