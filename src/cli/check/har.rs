//! HAR files: the chat completions among what a browser or a proxy tool saved.
//!
//! Bodies stand in them as strings (`request.postData.text`, `response.content.text`), an answer's perhaps in
//! base64.

use super::form;
use super::look::{self, Node};
use super::part::Part;
use super::records::{AnswerForm, Body, Exchange};
use crate::wire::json::Field;
use base64::prelude::{BASE64_STANDARD, Engine as _};

/// The exchanges of a file, each with the path of its entry; `None` for entries that are none.
pub(super) fn exchanges(file: Node<'_>) -> impl Iterator<Item = (String, Option<Exchange<'_>>)> {
    let entries = file.path("log.entries").map(Node::items).unwrap_or_default();
    entries
        .into_iter()
        .enumerate()
        .map(|(number, entry)| (format!("log.entries[{number}]"), exchange(entry)))
}

fn exchange(entry: Node<'_>) -> Option<Exchange<'_>> {
    let request = request(entry)?;
    Some(Exchange { request: Some(request), answer: answer(entry) })
}

fn request(entry: Node<'_>) -> Option<Body<'_>> {
    const TEXT: &str = "request.postData.text";
    let node = entry.path(TEXT)?;
    let Field::Text(text) = node.field() else { return None };
    // By its path even where the body is broken; by its body behind whatever path.
    let asked = entry.path("request.url").map(|url| url.field());
    let chat = asked.and_then(|url| url.text()).is_some_and(|url| {
        url.decode()
            .split(['?', '#'])
            .next()
            .is_some_and(|path| path.ends_with("/chat/completions"))
    });
    let known = || look::keys_so_far(&text.decode()).iter().any(|key| key == "messages");
    (chat || known()).then(|| Body { path: TEXT.to_owned(), part: Part::quoted(node.at, text) })
}

fn answer(entry: Node<'_>) -> Option<(Body<'_>, AnswerForm)> {
    const TEXT: &str = "response.content.text";
    let node = entry.path(TEXT)?;
    let Field::Text(text) = node.field() else { return None };
    let encoded = entry.path("response.content.encoding").is_some_and(|name| name.is("base64"));
    let part = if encoded {
        Part::encoded(node.at, BASE64_STANDARD.decode(&*text.decode()).ok()?)
    } else {
        Part::quoted(node.at, text)
    };
    if part.bytes.is_empty() {
        return None;
    }
    let status = entry.path("response.status").and_then(Node::number).unwrap_or(200);
    let kind = entry.path("response.content.mimeType").map(|kind| kind.field());
    let named = kind
        .and_then(|kind| kind.text())
        .is_some_and(|kind| kind.decode().contains("event-stream"));
    let form = match () {
        () if status >= 300 => AnswerForm::Error,
        () if named || form::is_event_stream(&part.bytes) => AnswerForm::Stream,
        () => AnswerForm::Whole,
    };
    Some((Body { path: TEXT.to_owned(), part }, form))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::json;

    #[test]
    fn entries_that_ask_for_completions_are_found_and_no_others() {
        let request = r#"{"messages":[]}"#;
        let post = |url: &str, text: &str| json!({"method":"POST","url":url,"postData":{"mimeType":"application/json","text":text}});
        let answer = |status: u16, kind: &str, text: &str| json!({"status":status,"content":{"mimeType":kind,"text":text}});
        let coded = json!({"status":200,"content":{"mimeType":"text/event-stream","encoding":"base64","text":BASE64_STANDARD.encode("data: {}\n\n")}});
        let chat = "https://x/v1/chat/completions?a=b";
        let file = json!({"log":{"entries":[
            {"request":{"method":"GET","url":"https://x/"},"response":{"status":200}},
            {"request":post(chat, request),"response":answer(200, "application/json", "{}")},
            {"request":post("https://x/other", request),"response":answer(500, "text/html", "<p>")},
            {"request":post(chat, "broken"),"response":coded},
            {"request":post("https://x/other", "a=b"),"response":answer(200, "", "")},
            {"request":post(chat, request),"response":{"status":0,"content":{}}},
        ]}})
        .to_string();
        let found = exchanges(Node::parse(&file).unwrap());
        let forms: Vec<_> = found
            .map(|(path, exchange)| {
                (path, exchange.map(|exchange| exchange.answer.map(|(_, form)| form)))
            })
            .collect();
        let path = |number: usize| format!("log.entries[{number}]");
        assert_eq!(
            forms,
            [
                (path(0), None),
                (path(1), Some(Some(AnswerForm::Whole))),
                (path(2), Some(Some(AnswerForm::Error))),
                (path(3), Some(Some(AnswerForm::Stream))),
                (path(4), None),
                (path(5), Some(None)),
            ]
        );
    }
}
