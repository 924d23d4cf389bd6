//! What the proxy refuses, `check` calls faults, by the same codes; what passes there is clean here.

use crate::gateway::{Answer, Gateway, Reply, Upstream};
use crate::{Said, check_in};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::path::Path;

#[derive(Deserialize)]
struct Case {
    id: String,
    input: Box<RawValue>,
    #[serde(default)]
    context: Value,
}

fn cases(direction: &str) -> Vec<Case> {
    let path = format!("{}/tests/cases/{direction}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    let cases: Vec<Case> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(cases.len() > 10, "{path} holds the cases");
    cases
}

/// The codes with which the proxy refused; none when the answer came through.
fn refused(answer: &Answer, reply: &Reply) -> Vec<String> {
    if answer.body == reply.body() {
        return Vec::new();
    }
    let error = if answer.is_stream() {
        answer.events().pop().unwrap()["error"].clone()
    } else {
        serde_json::from_slice::<Value>(&answer.body).unwrap()["error"].clone()
    };
    // No refusal: the server's own error, whose calls are dropped, or a scrap behind the end that is.
    let Some(faults) = error["faults"].as_array() else {
        let scrap = reply.body().starts_with(&answer.body);
        assert!(answer.is_stream() && (scrap || reply_fails(reply)), "{answer}");
        return Vec::new();
    };
    assert!(!faults.is_empty(), "{answer}");
    faults.iter().map(|fault| fault["code"].as_str().unwrap().to_owned()).collect()
}

/// Whether an answer holds the server's own error.
fn reply_fails(reply: &Reply) -> bool {
    String::from_utf8_lossy(&reply.body()).contains("data: {\"error\"")
}

/// Holds what `check` says against what the proxy did, and collects where they differ.
#[derive(Default)]
struct Agreement(Vec<String>);

impl Agreement {
    fn hold(&mut self, case: &str, said: &Said, refused: &[String]) {
        if said.faults() != refused {
            self.0.push(format!("{case}: {:?}, but the proxy {refused:?}", said.faults()));
        }
        let code = i32::from(!refused.is_empty());
        if said.code != code {
            self.0.push(format!("{case}: exit code {}, not {code}", said.code));
        }
    }

    fn end(self, least: usize, seen: usize) {
        assert!(seen >= least, "only {seen} were refused");
        assert!(self.0.is_empty(), "{}", self.0.join("\n"));
    }
}

fn saved(directory: &Path, name: &str, bytes: &[u8]) -> String {
    std::fs::write(directory.join(name), bytes).unwrap();
    name.to_owned()
}

#[tokio::test]
async fn of_every_request() {
    let (upstream, scratch) = (Upstream::start().await, tempfile::tempdir().unwrap());
    let gateway = Gateway::start(&upstream, &[]).await;
    let (mut agreement, mut seen) = (Agreement::default(), 0);
    let mut bodies: Vec<(String, Vec<u8>)> = cases("request")
        .iter()
        .filter_map(|case| Some((case.id.clone(), body(&case.input)?)))
        .collect();
    bodies.extend(broken_bodies().into_iter().map(|body| (format!("{body:?}"), body.into_bytes())));
    bodies.push(("not UTF-8".to_owned(), b"{\"messages\":[\"\xff\"]}".to_vec()));
    for (id, body) in bodies {
        let reply = Reply::plain(&body);
        upstream.reply_with(reply.clone());
        let refused = refused(&gateway.chat(&body, &[]).await, &reply);
        seen += usize::from(!refused.is_empty());
        let file = saved(scratch.path(), "request.json", &body);
        agreement.hold(&id, &check_in(scratch.path(), &[&file, "--json"], b""), &refused);
    }
    agreement.end(25, seen);
}

/// The request's bytes; the one that is made of megabytes is none of ours.
fn body(input: &RawValue) -> Option<Vec<u8>> {
    let value: Value = serde_json::from_str(input.get()).unwrap_or(Value::Null);
    match &value {
        Value::Object(members) if members.contains_key("recipe") => None,
        Value::Object(members) if members.contains_key("raw_body") => {
            Some(members["raw_body"].as_str().unwrap().into())
        }
        _ => Some(input.get().into()),
    }
}

/// Requests that are not the JSON that they must be, and their nearest neighbours that are.
fn broken_bodies() -> Vec<String> {
    let deep = |levels: usize| {
        format!("{{\"messages\":[],\"x\":{}{}}}", "[".repeat(levels), "]".repeat(levels))
    };
    [
        "\u{feff}{\"messages\":[]}",
        "{\"messages\":[]}\n",
        "{\"messages\":[],\"messages\":[]}",
        "{\"messages\":[{\"role\":\"user\",\"r\\u006fle\":\"tool\"}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":{\"a\":1,\"a\":2}}]}",
        "{\"model\":\"m\",\"messages\":[{\"role\":\"us",
        "{\"messages\":[]} {}",
        "{\"messages\":{}}",
        "{\"messages\":[7]}",
        "{\"messages\":[],}",
    ]
    .into_iter()
    .map(str::to_owned)
    .chain([deep(127), deep(128)])
    .collect()
}

#[tokio::test]
async fn of_every_answer() {
    let (upstream, scratch) = (Upstream::start().await, tempfile::tempdir().unwrap());
    let gateway = Gateway::start(&upstream, &[]).await;
    let (mut agreement, mut seen) = (Agreement::default(), 0);
    for case in cases("response") {
        let input: Value = serde_json::from_str(case.input.get()).unwrap();
        let request = asking(&case, false);
        // What is no completion at all can be saved with its status only: in a HAR file.
        let (reply, saved_as) = match (&input["status"], &input["body"]) {
            (Value::Number(status), Value::String(body)) => {
                let status = u16::try_from(status.as_u64().unwrap()).unwrap();
                let kind = input["content_type"].as_str().unwrap();
                let har = har(&request, status, kind, body);
                (Reply::new(status, kind, vec![body.clone().into()]), har)
            }
            _ => {
                let log = format!("{{\"request\":{request},\"response\":{}}}", case.input.get());
                (Reply::json(200, case.input.get()), log)
            }
        };
        upstream.reply_with(reply.clone());
        let refused = refused(&gateway.chat(request.as_bytes(), &[]).await, &reply);
        seen += usize::from(!refused.is_empty());
        let file = saved(scratch.path(), "exchange", saved_as.as_bytes());
        agreement.hold(&case.id, &check_in(scratch.path(), &[&file, "--json"], b""), &refused);
        if input["choices"].is_array() {
            let tools = saved(scratch.path(), "tools.json", request.as_bytes());
            let file = saved(scratch.path(), "answer.json", case.input.get().as_bytes());
            let args = [file.as_str(), "--tools", &tools, "--json"];
            agreement.hold(&case.id, &check_in(scratch.path(), &args, b""), &refused);
        }
    }
    agreement.end(6, seen);
}

#[tokio::test]
async fn of_every_stream() {
    let (upstream, scratch) = (Upstream::start().await, tempfile::tempdir().unwrap());
    let gateway = Gateway::start(&upstream, &[]).await;
    let (mut agreement, mut seen) = (Agreement::default(), 0);
    let streams = cases("stream").into_iter().map(|case| {
        let request = asking(&case, true);
        (case.id.clone(), request, bytes(&case.input))
    });
    let made = made_streams().into_iter().map(|stream| {
        let case = Case {
            id: stream.clone(),
            input: RawValue::from_string("0".into()).unwrap(),
            context: Value::Null,
        };
        (stream.clone(), asking(&case, true), stream.into_bytes())
    });
    for (id, request, stream) in streams.chain(made) {
        let reply = Reply::stream(vec![stream.clone()]);
        upstream.reply_with(reply.clone());
        let refused = refused(&gateway.chat(request.as_bytes(), &[]).await, &reply);
        seen += usize::from(!refused.is_empty());
        let tools = saved(scratch.path(), "tools.json", request.as_bytes());
        let file = saved(scratch.path(), "answer.sse", &stream);
        let args = [file.as_str(), "--as", "stream", "--tools", &tools, "--json"];
        agreement.hold(&id, &check_in(scratch.path(), &args, b""), &refused);
        if stream.is_empty() {
            // In a HAR file, an answer that was not saved looks the same.
            continue;
        }
        let har = har(&request, 200, "text/event-stream", &String::from_utf8_lossy(&stream));
        let file = saved(scratch.path(), "traffic.har", har.as_bytes());
        agreement.hold(&id, &check_in(scratch.path(), &[&file, "--json"], b""), &refused);
    }
    agreement.end(20, seen);
}

/// Ends and beginnings of streams that the cases do not have: in each order that a relay tells apart.
fn made_streams() -> Vec<String> {
    let chunk = |delta: &str, finish: &str| {
        format!(
            r#"{{"id":"x","choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]}}"#
        )
    };
    let text = chunk(r#"{"content":"hi"}"#, "null");
    let stop = chunk("{}", r#""stop""#);
    let call = chunk(
        r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"list_open_orders","arguments":"{}"}}]}"#,
        "null",
    );
    let error = r#"{"error":{"message":"x"}}"#.to_owned();
    let misplaced = r#"{"choices":[{"index":0,"message":{"tool_calls":[{"id":"a"}]}}]}"#.to_owned();
    let done = "[DONE]".to_owned();
    let events: [Vec<&String>; 15] = [
        vec![&text, &stop, &done],
        vec![&call, &stop, &done],
        vec![&text, &stop, &call, &done],
        vec![&text, &stop, &done, &call],
        vec![&call, &stop, &done, &call],
        vec![&call, &stop, &text, &done],
        vec![&text, &stop, &done, &misplaced],
        vec![&text, &misplaced, &stop],
        vec![&text, &error, &done],
        vec![&call, &error, &done],
        vec![&call, &error, &call],
        vec![&text, &stop, &error],
        vec![&call, &done],
        vec![&done],
        vec![],
    ];
    let mut streams = Vec::new();
    for events in &events {
        let whole: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        for left in ["", "data: {\"id", "data: [DONE]", ": note"] {
            streams.push(format!("{whole}{left}"));
        }
        // The last event without its blank line.
        streams.push(whole.trim_end().to_owned());
    }
    streams
}

/// As `curl -i` would have saved them, head and all, judged by what their own requests offered.
#[test]
fn of_every_capture_of_sglang() {
    let directory = format!("{}/tests/wire", env!("CARGO_MANIFEST_DIR"));
    let scratch = tempfile::tempdir().unwrap();
    let (mut seen, mut faulty) = (0, Vec::new());
    for entry in std::fs::read_dir(&directory).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let text = std::fs::read_to_string(format!("{directory}/{name}")).unwrap();
        let (asked, answered) = text.split_once("\n\nHTTP/").unwrap();
        let request = asked.lines().nth(1).unwrap().strip_prefix("> ").unwrap();
        let tools = saved(scratch.path(), "request.json", request.as_bytes());
        let said = check_in(
            scratch.path(),
            &["--json", "--tools", &tools],
            format!("HTTP/{answered}").as_bytes(),
        );
        let form = if name.contains(".stream.") { "stream" } else { "response" };
        assert_eq!(said.document()["read_as"], form, "{name}");
        if said.code > 0 {
            faulty.push(format!("{name} {}", said.faults().join(" ")));
        }
        seen += 1;
    }
    faulty.sort();
    assert!(seen > 60, "{seen}");
    assert_eq!(faulty, FAULTY);
}

/// What SGLang itself lets through.
const FAULTY: [&str; 12] = [
    "qwen.q_args_array.json.txt arguments_malformed",
    "qwen.q_args_array.stream.txt arguments_malformed",
    "qwen.q_args_string.json.txt arguments_malformed",
    "qwen.q_args_string.stream.txt arguments_malformed",
    "qwen.q_missing_required.json.txt arguments_schema",
    "qwen.q_missing_required.stream.txt arguments_schema",
    "qwen.q_one_unknown_one.stream.txt broken_stream",
    "qwen.q_truncated.stream.txt truncated_call",
    "t.parallel_false.json.txt too_many_calls",
    "t.parallel_false.stream.txt too_many_calls",
    "t.required_plain.json.txt tool_choice_violated",
    "t.required_plain.stream.txt tool_choice_violated",
];

/// A request whose answer the case describes.
fn asking(case: &Case, stream: bool) -> String {
    let text = json!({"type": "string"});
    let tool = |name: &str, properties: Value, required: &[&str]| {
        let parameters = json!({"type": "object", "properties": properties, "required": required});
        json!({"type": "function", "function": {"name": name, "parameters": parameters}})
    };
    let tools = case.context.get("tools").cloned().unwrap_or_else(|| {
        let amount = json!({"order_id": text, "amount": {"type": "number"}, "reason": text});
        json!([
            tool("get_order", json!({"order_id": text}), &["order_id"]),
            tool("refund_order", amount, &["order_id"]),
            tool("list_open_orders", json!({}), &[]),
        ])
    });
    let messages = json!([{"role": "user", "content": "What of A1?"}]);
    json!({"model": "m", "messages": messages, "tools": tools, "stream": stream}).to_string()
}

fn har(request: &str, status: u16, kind: &str, body: &str) -> String {
    let post = json!({"mimeType": "application/json", "text": request});
    let url = "http://127.0.0.1:8090/v1/chat/completions";
    let content = json!({"mimeType": kind, "text": body});
    let entry = json!({
        "request": {"method": "POST", "url": url, "postData": post},
        "response": {"status": status, "content": content},
    });
    json!({"log": {"version": "1.2", "entries": [entry]}}).to_string()
}

fn bytes(input: &RawValue) -> Vec<u8> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Stream {
        Payloads(Vec<String>),
        Raw { raw_segments: Vec<String> },
        Encoded { raw_segments_b64: Vec<String> },
    }
    match serde_json::from_str(input.get()).unwrap() {
        Stream::Payloads(all) => {
            all.iter().map(|payload| format!("data: {payload}\n\n")).collect::<String>().into()
        }
        Stream::Raw { raw_segments } => raw_segments.concat().into(),
        Stream::Encoded { raw_segments_b64 } => {
            raw_segments_b64.iter().flat_map(|text| BASE64_STANDARD.decode(text).unwrap()).collect()
        }
    }
}
