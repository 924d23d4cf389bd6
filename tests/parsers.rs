//! Bytes that two parsers could read differently are refused with the place, and the nearest honest ones pass byte
//! for byte. `tests/parsers/` has them, with what Python's parsers and clients make of each;
//! `tests/sglang/test_parsers.py` holds that part of the tables against those parsers.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[expect(dead_code, reason = "what other tests need")]
mod gateway;
#[expect(dead_code, reason = "what the soak needs")]
mod program;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use gateway::{Answer, Gateway, Reply, Upstream};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Bytes in the way that shows them best.
#[derive(Deserialize)]
struct Bytes {
    text: Option<String>,
    /// Each so many times.
    pieces: Option<Vec<(String, usize)>>,
    base64: Option<String>,
}

impl Bytes {
    fn bytes(&self) -> Vec<u8> {
        match (&self.text, &self.pieces, &self.base64) {
            (Some(text), None, None) => text.clone().into_bytes(),
            (None, Some(pieces), None) => {
                pieces.iter().flat_map(|(text, times)| text.repeat(*times).into_bytes()).collect()
            }
            (None, None, Some(base64)) => BASE64_STANDARD.decode(base64).unwrap(),
            _ => panic!("bytes in one way, please"),
        }
    }

    fn text(&self) -> String {
        String::from_utf8(self.bytes()).unwrap()
    }
}

#[derive(Deserialize)]
struct Body {
    name: String,
    side: String,
    #[serde(flatten)]
    bytes: Bytes,
    /// `passes`, or the code and the place of the refusal.
    tigertally: String,
    near: Option<Bytes>,
}

#[derive(Deserialize)]
struct Stream {
    name: String,
    text: String,
    tigertally: String,
}

fn table<T: DeserializeOwned>(name: &str) -> Vec<T> {
    let path = format!("{}/tests/parsers/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn bodies(side: &str) -> Vec<Body> {
    let bodies: Vec<Body> =
        table("bodies").into_iter().filter(|row: &Body| row.side == side).collect();
    assert!(bodies.len() > 10, "rows of {side}");
    for row in &bodies {
        assert_eq!(row.near.is_none(), row.tigertally == "passes", "{}", row.name);
    }
    bodies
}

/// The code and the place of an answer's first fault, or `passes`.
fn told(answer: &Answer) -> String {
    let error = if answer.is_stream() {
        answer.events().pop().unwrap_or_default()["error"].clone()
    } else {
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        body["error"].clone()
    };
    if error.is_null() {
        return "passes".to_owned();
    }
    let fault = error["faults"].get(0).unwrap_or(&error);
    let words = [&fault["code"], &fault["param"]].map(|word| word.as_str().unwrap_or_default());
    words.join(" ").trim().to_owned()
}

/// Sends a request; what was said to it, once it is sure that it went up as it came or not at all.
async fn asked(gateway: &Gateway, upstream: &Upstream, body: &[u8]) -> String {
    upstream.reply_with(Reply::plain(body));
    let answer = gateway.chat(body, &[]).await;
    let (up, told) = (upstream.take_bodies(), told(&answer));
    if told == "passes" {
        assert!(up == [body], "not the client's bytes");
        assert_eq!(answer.body, upstream.reply().body());
    } else {
        assert!(up.is_empty(), "{told}, and went up");
        assert_eq!(answer.status, 400, "{answer}");
    }
    told
}

/// Has the upstream answer so; what was made of it, once it is sure that it came down as it was or not at all.
async fn answered(gateway: &Gateway, upstream: &Upstream, reply: Reply, stream: bool) -> String {
    upstream.reply_with(reply);
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let messages = json!([{"role": "user", "content": "hi"}]);
    let body = json!({"model": "m", "messages": messages, "tools": tools, "stream": stream});
    let answer = gateway.chat(body.to_string().as_bytes(), &[]).await;
    let told = told(&answer);
    if told == "passes" {
        assert_eq!(answer.body, upstream.reply().body());
    } else {
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(!text.contains(r#""rm""#) && !text.contains(r#""arguments":"#), "{text}");
    }
    told
}

/// Runs `judge` over what a row holds and over what is next to it.
macro_rules! each {
    ($side:expr, $wrong:ident, |$bytes:ident| $judge:expr, $wanted:expr) => {
        for row in bodies($side) {
            let $bytes = &row.bytes;
            let found: String = $judge;
            let wanted: String = $wanted(&row);
            if found != wanted {
                $wrong.push(format!("{}: {found:?} and not {wanted:?}", row.name));
            }
            if let Some($bytes) = &row.near {
                let found: String = $judge;
                if found != "passes" {
                    $wrong.push(format!("next to {}: {found:?}", row.name));
                }
            }
        }
    };
}

fn as_written(row: &Body) -> String {
    row.tigertally.trim().to_owned()
}

/// The same refusal by another code at another place.
fn refused_by(told: &str) -> impl Fn(&Body) -> String {
    move |row| if row.tigertally == "passes" { "passes".to_owned() } else { told.to_owned() }
}

#[tokio::test]
async fn requests_go_up_as_they_came_or_not_at_all() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&upstream, &[("TIGERTALLY_UPSTREAM__RID", "false")]).await;
    let mut wrong = Vec::new();
    each!("request", wrong, |bytes| asked(&gateway, &upstream, &bytes.bytes()).await, as_written);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn arguments_of_the_history_are_read_alike_by_all() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&upstream, &[("TIGERTALLY_UPSTREAM__RID", "false")]).await;
    let history = |text: String| {
        let call = json!({"id": "c1", "function": {"name": "f", "arguments": text}});
        let calls = json!({"role": "assistant", "tool_calls": [call]});
        let result = json!({"role": "tool", "tool_call_id": "c1", "content": "ok"});
        let user = json!({"role": "user", "content": "hi"});
        json!({"model": "m", "messages": [user, calls, result]}).to_string().into_bytes()
    };
    let wanted = refused_by("arguments_not_object messages[1].tool_calls[0].function.arguments");
    let mut wrong = Vec::new();
    each!(
        "arguments",
        wrong,
        |bytes| asked(&gateway, &upstream, &history(bytes.text())).await,
        wanted
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn arguments_of_a_proposal_are_read_alike_by_all() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&upstream, &[]).await;
    let call = |text: String| json!({"index": 0, "id": "c1", "function": {"name": "f", "arguments": text}});
    let whole = |text: String| {
        let message = json!({"role": "assistant", "tool_calls": [call(text)]});
        let choice = json!({"index": 0, "finish_reason": "tool_calls", "message": message});
        Reply::json(200, &json!({"id": "x", "choices": [choice]}).to_string())
    };
    let streamed = |text: String| {
        let choice = json!({"index": 0, "finish_reason": "tool_calls", "delta": {"tool_calls": [call(text)]}});
        let chunk = json!({"id": "x", "choices": [choice]});
        Reply::stream(vec![format!("data: {chunk}\n\ndata: [DONE]\n\n").into_bytes()])
    };
    let told = "arguments_malformed choices[0].message.tool_calls[0].function.arguments";
    let mut wrong = Vec::new();
    let wanted = refused_by(told);
    each!(
        "arguments",
        wrong,
        |bytes| answered(&gateway, &upstream, whole(bytes.text()), false).await,
        wanted
    );
    each!(
        "arguments",
        wrong,
        |bytes| answered(&gateway, &upstream, streamed(bytes.text()), true).await,
        wanted
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn completions_come_down_as_they_were_or_not_at_all() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&upstream, &[]).await;
    let reply = |bytes: Vec<u8>| Reply::new(200, "application/json", vec![bytes]);
    let mut wrong = Vec::new();
    each!(
        "completion",
        wrong,
        |bytes| answered(&gateway, &upstream, reply(bytes.bytes()), false).await,
        as_written
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn no_client_finds_a_call_in_a_stream_that_was_not_judged() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&upstream, &[]).await;
    let mut wrong = Vec::new();
    let streams: Vec<Stream> = table("streams");
    assert!(streams.len() > 10);
    for row in &streams {
        let bytes = row.text.as_bytes();
        for cut in [bytes.len(), 1, 7] {
            let reply = Reply::stream(bytes.chunks(cut).map(<[u8]>::to_vec).collect());
            let found = answered(&gateway, &upstream, reply, true).await;
            if found != row.tigertally {
                wrong.push(format!("{}, {cut} at a time: {found:?}", row.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
