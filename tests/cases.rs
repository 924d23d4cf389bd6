//! Every case of `tests/cases/*.jsonl` against the built program, over real sockets.
//!
//! Between two ends of ours the program must be a wire (`pass`, `note`: the bytes that went in come
//! out) or a wall (`refuse`: nothing of the refused thing arrives). A test here names every case that
//! came out otherwise, not only the first.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[expect(dead_code, reason = "what other tests need")]
mod gateway;
#[expect(dead_code, reason = "what the soak needs")]
mod program;
mod watching;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use gateway::{Answer, Gateway, Reply, Upstream};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::fmt::Write as _;

#[derive(Deserialize)]
struct Case {
    id: String,
    kind: String,
    verdict: Verdict,
    input: Box<RawValue>,
    #[serde(default)]
    context: Value,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Pass,
    Note,
    Refuse,
    /// A lossless repair is imaginable; refusing is as right.
    Repair,
}

impl Verdict {
    /// Whether an outcome is one that this verdict takes.
    fn allows(self, refused: bool) -> bool {
        match self {
            Verdict::Pass | Verdict::Note => !refused,
            Verdict::Refuse => refused,
            Verdict::Repair => true,
        }
    }
}

fn cases(direction: &str) -> Vec<Case> {
    let path = format!("{}/tests/cases/{direction}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    let cases: Vec<Case> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(cases.len() > 10, "{path} holds the cases");
    cases
}

/// Collects what went wrong, so that one run names all of it.
#[derive(Default)]
struct Findings(String);

impl Findings {
    fn check(&mut self, case: &Case, outcome: Result<(), String>) {
        if let Err(what) = outcome {
            writeln!(self.0, "{} ({}): {what}", case.id, case.kind).unwrap();
        }
    }

    fn none(self) {
        assert!(self.0.is_empty(), "cases that came out wrong:\n{}", self.0);
    }
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

#[tokio::test]
async fn requests_are_forwarded_as_they_came_or_not_at_all() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&upstream, &[("TIGERTALLY_UPSTREAM__RID", "false")]).await;
    let mut findings = Findings::default();
    for case in cases("request") {
        let body = request_body(&case.input);
        let outcome = forwarded_or_refused(&gateway, &upstream, case.verdict, &body, &[]).await;
        findings.check(&case, outcome);
    }
    findings.none();
}

#[tokio::test]
async fn a_spliced_rid_is_the_only_change_to_a_request() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&upstream, &[]).await;
    let mut findings = Findings::default();
    let mut lengths = Vec::new();
    for case in cases("request") {
        if !case.verdict.allows(false) || case.verdict == Verdict::Repair {
            continue;
        }
        let body = request_body(&case.input);
        upstream.reply_with(Reply::plain(&body));
        gateway.chat(&body, &[]).await;
        let up = upstream.take_bodies();
        let rid = match up.as_slice() {
            [up] => rid_spliced_into(&body, up),
            _ => Err(format!("{} requests went up", up.len())),
        };
        lengths.extend(rid.as_ref().map(String::len).ok());
        findings.check(&case, rid.map(drop));
    }
    findings.none();
    lengths.dedup();
    assert_eq!(lengths.len(), 1, "an abort matches by prefix: all rids are of one length");
}

#[tokio::test]
async fn whole_answers_come_down_as_they_were_or_not_at_all() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&upstream, &[]).await;
    let mut findings = Findings::default();
    for case in cases("response") {
        upstream.reply_with(whole_reply(&case.input));
        let answer = gateway.chat(&asking(&case, false), &[]).await;
        findings.check(&case, delivered_or_refused(case.verdict, &upstream, &answer));
    }
    findings.none();
}

#[tokio::test]
async fn streams_come_down_as_they_were_or_end_in_an_error_event() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&upstream, &[]).await;
    let mut findings = Findings::default();
    for case in cases("stream") {
        upstream.reply_with(Reply::stream(segments(&case.input)));
        let answer = gateway.chat(&asking(&case, true), &[]).await;
        findings.check(&case, delivered_or_refused(case.verdict, &upstream, &answer));
    }
    findings.none();
}

#[tokio::test]
async fn conversations_without_a_header_are_judged_by_their_lists_alone() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&upstream, &[("TIGERTALLY_UPSTREAM__RID", "false")]).await;
    let mut findings = Findings::default();
    for case in cases("state") {
        for turn in turns(&case.input) {
            upstream.reply_with(turn.reply.clone());
            let sent = turn.body();
            let outcome = replied_or_refused(&gateway, &upstream, turn.verdict, &sent, &[]).await;
            findings.check(&case, outcome.map_err(|what| format!("event {}: {what}", turn.n)));
        }
    }
    findings.none();
}

/// With memory more is refused (DESIGN section 5), but never less, and nothing falls over.
#[tokio::test]
async fn conversations_with_a_header_refuse_no_less() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&upstream, &[]).await;
    let mut findings = Findings::default();
    for case in cases("state") {
        for turn in turns(&case.input) {
            let expected = turn.reply.status;
            upstream.reply_with(turn.reply.clone());
            let conversation = format!("{}-{}", case.id, turn.conversation);
            let headers = [("x-conversation-id", conversation.as_str())];
            let answer = gateway.chat(&turn.body(), &headers).await;
            let outcome = if turn.verdict == Verdict::Refuse {
                refusal_of(&answer).map(drop)
            } else {
                ensure(answer.status < 500 || answer.status == expected, || answer.to_string())
            };
            findings.check(&case, outcome.map_err(|what| format!("event {}: {what}", turn.n)));
            upstream.take_bodies();
        }
    }
    assert!(gateway.is_healthy().await, "the program is still there");
    findings.none();
}

/// The request's bytes: as the file has them, or as it says to make them.
fn request_body(input: &RawValue) -> Vec<u8> {
    #[derive(Deserialize)]
    struct Made {
        raw_body: Option<String>,
        recipe: Option<String>,
        messages_template: Option<Box<RawValue>>,
    }
    let made: Made = serde_json::from_str(input.get()).unwrap();
    if let Some(raw) = made.raw_body {
        return raw.into_bytes();
    }
    let Some(template) = made.messages_template else { return input.get().as_bytes().to_vec() };
    assert!(made.recipe.is_some_and(|recipe| recipe.contains("6 MiB")));
    let filler = "status ok, ".repeat(6 * 1024 * 1024 / 11 + 1);
    let messages = template.get().replace("<6 MiB of text>", &filler);
    assert!(messages.len() > 6 * 1024 * 1024, "the template has the place to fill");
    format!(r#"{{"model":"m","messages":{messages}}}"#).into_bytes()
}

/// A request whose answer the case describes.
fn asking(case: &Case, stream: bool) -> Vec<u8> {
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
    let body = json!({"model": "m", "messages": messages, "tools": tools, "stream": stream});
    serde_json::to_vec(&body).unwrap()
}

/// The upstream's answer: a completion, or `{status, content_type, body}` when it is not one.
fn whole_reply(input: &RawValue) -> Reply {
    #[derive(Deserialize)]
    struct Other {
        status: Option<u16>,
        content_type: Option<String>,
        body: Option<String>,
    }
    let other: Other = serde_json::from_str(input.get()).unwrap();
    match (other.status, other.content_type, other.body) {
        (Some(status), Some(kind), Some(body)) => Reply::new(status, &kind, vec![body.into()]),
        _ => Reply::json(200, input.get()),
    }
}

/// The network reads of a stream.
fn segments(input: &RawValue) -> Vec<Vec<u8>> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Stream {
        Payloads(Vec<String>),
        Raw { raw_segments: Vec<String> },
        Encoded { raw_segments_b64: Vec<String> },
    }
    match serde_json::from_str(input.get()).unwrap() {
        Stream::Payloads(all) => all.iter().map(|p| format!("data: {p}\n\n").into()).collect(),
        Stream::Raw { raw_segments } => raw_segments.into_iter().map(Into::into).collect(),
        Stream::Encoded { raw_segments_b64 } => {
            raw_segments_b64.iter().map(|text| BASE64_STANDARD.decode(text).unwrap()).collect()
        }
    }
}

/// One request of a state case and what the upstream says to it.
struct Turn {
    n: u64,
    conversation: String,
    request: Value,
    reply: Reply,
    verdict: Verdict,
}

impl Turn {
    fn body(&self) -> Vec<u8> {
        serde_json::to_vec(&self.request).unwrap()
    }
}

#[derive(Clone, Deserialize)]
struct Event {
    n: u64,
    who: String,
    conv: String,
    request: Option<Value>,
    response: Option<Box<RawValue>>,
    status: Option<u16>,
    expect: Option<Verdict>,
}

impl Event {
    fn reply(&self) -> Reply {
        match (&self.response, self.status) {
            (Some(response), _) => Reply::json(200, response.get()),
            (None, Some(status)) => Reply::json(status, r#"{"error":{"message":"down"}}"#),
            (None, None) => panic!("event {} is neither an answer nor a status", self.n),
        }
    }
}

/// Pairs each client event with the upstream event after it. An upstream event of its own is the answer
/// to a request that the case leaves out: the next list of that conversation as it was before that answer.
fn turns(input: &RawValue) -> Vec<Turn> {
    let events: Vec<Event> = serde_json::from_str(input.get()).unwrap();
    let mut turns = Vec::new();
    let mut answered = false;
    for (at, event) in events.iter().enumerate() {
        let (request, reply, verdict) = if event.who == "client" {
            let request = event.request.clone().expect("a client event has a request");
            let next = events.get(at + 1);
            let next = next.filter(|next| next.who != "client" && next.conv == event.conv);
            answered = next.is_some();
            let body = serde_json::to_vec(&request).unwrap();
            let reply = next.map_or_else(|| Reply::plain(&body), Event::reply);
            (request, reply, event.expect.unwrap_or(Verdict::Pass))
        } else if std::mem::take(&mut answered) {
            continue;
        } else {
            let later = events[at..].iter().filter(|later| later.conv == event.conv);
            let next = later.filter_map(|later| later.request.as_ref()).next();
            let request = list_before_answer(next.expect("a request follows"));
            (request, event.reply(), event.expect.unwrap_or(Verdict::Pass))
        };
        let conversation = event.conv.clone();
        turns.push(Turn { n: event.n, conversation, request, reply, verdict });
    }
    turns
}

fn list_before_answer(request: &Value) -> Value {
    let mut request = request.clone();
    let messages = request["messages"].as_array_mut().unwrap();
    let answer = messages.iter().rposition(|message| message["tool_calls"].is_array());
    messages.truncate(answer.expect("the later list holds the answer"));
    request
}

/// Sends `body` and checks that it went up untouched and the answer came down so, or that neither did.
async fn forwarded_or_refused(
    gateway: &Gateway,
    upstream: &Upstream,
    verdict: Verdict,
    body: &[u8],
    headers: &[(&str, &str)],
) -> Result<(), String> {
    upstream.reply_with(Reply::plain(body));
    replied_or_refused(gateway, upstream, verdict, body, headers).await
}

async fn replied_or_refused(
    gateway: &Gateway,
    upstream: &Upstream,
    verdict: Verdict,
    body: &[u8],
    headers: &[(&str, &str)],
) -> Result<(), String> {
    let answer = gateway.chat(body, headers).await;
    let up = upstream.take_bodies();
    if up.is_empty() {
        let code = refusal_of(&answer)?;
        return ensure(verdict.allows(true), || format!("refused with {code}"));
    }
    ensure(verdict.allows(false), || format!("not refused: {answer}"))?;
    ensure(up == [body], || format!("{} bodies went up, or not the client's bytes", up.len()))?;
    let reply = upstream.reply();
    ensure(answer.status == reply.status, || answer.to_string())?;
    ensure(answer.body == reply.body(), || "the answer's bytes were changed".to_owned())
}

fn delivered_or_refused(
    verdict: Verdict,
    upstream: &Upstream,
    answer: &Answer,
) -> Result<(), String> {
    upstream.take_bodies();
    let reply = upstream.reply();
    if answer.status == reply.status && answer.body == reply.body() {
        return ensure(verdict.allows(false), || "let through".to_owned());
    }
    let code = refusal_of(answer)?;
    ensure(verdict.allows(true), || format!("refused with {code}"))
}

/// The code of a refusal that is all that a refusal has to be, or what is wrong with it.
fn refusal_of(answer: &Answer) -> Result<String, String> {
    let error = if answer.is_stream() {
        let mut events = answer.events();
        let last = events.pop().unwrap_or(Value::Null);
        let calls = |event: &Value| {
            let choices = event["choices"].as_array().into_iter().flatten();
            choices.filter_map(|choice| choice["delta"]["tool_calls"].as_array()).flatten().count()
        };
        ensure(events.iter().all(|event| calls(event) == 0), || "a call came out".to_owned())?;
        last["error"].clone()
    } else {
        ensure(matches!(answer.status, 400 | 422), || format!("no refusal: {answer}"))?;
        ensure(answer.header("x-should-retry") == "false", || "no x-should-retry".to_owned())?;
        let verdict = answer.header("x-tigertally-verdict");
        ensure(verdict == "refuse", || format!("verdict header {verdict:?}"))?;
        serde_json::from_slice::<Value>(&answer.body).unwrap_or(Value::Null)["error"].clone()
    };
    let code = error["code"].as_str().unwrap_or_default().to_owned();
    ensure(!code.is_empty(), || format!("no code: {answer}"))?;
    let faults = error["faults"].as_array().map_or(0, Vec::len);
    ensure(faults > 0, || format!("{code} without faults"))?;
    Ok(code)
}

/// The rid, when `up` is `body` with nothing but a rid member after the opening brace.
fn rid_spliced_into(body: &[u8], up: &[u8]) -> Result<String, String> {
    let brace = body.iter().position(|byte| *byte == b'{').unwrap() + 1;
    let added = up.len().checked_sub(body.len()).ok_or("the body shrank")?;
    let (head, rest) = up.split_at(brace);
    let (member, tail) = rest.split_at(added);
    ensure(head == &body[..brace] && tail == &body[brace..], || "other bytes changed".to_owned())?;
    let member = std::str::from_utf8(member).map_err(|error| error.to_string())?.trim();
    let rid = member.strip_prefix(r#""rid":""#).and_then(|rest| rest.strip_suffix(r#"","#));
    let rid = rid.ok_or_else(|| format!("spliced {member:?}"))?;
    ensure(rid.len() >= 16, || format!("rid {rid:?} can be guessed"))?;
    Ok(rid.to_owned())
}
