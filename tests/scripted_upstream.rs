//! The scripted upstream over real sockets: its bytes are those that SGLang's own serving layer sent
//! for the same output (ids, times and token counts aside), and its record says what happened.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use reqwest::Client;
use serde_json::{Value, json};
use std::time::Duration;
use tigertally::cli::scripted_upstream::{Script, serve};
use tokio::net::TcpListener;

const SCRIPT: &str = r#"{
    "text": "Paris is sunny today, about 21 degrees.",
    "call": {"calls": [{"name": "get_weather",
        "fragments": ["{\"city\": \"", "Pari", "s\"", ", \"unit\": \"c\"}"]}]},
    "two_calls": {"calls": [
        {"name": "get_weather", "fragments": ["{\"city\": \"", "Pari", "s\"", ", \"unit\": \"c\"}"]},
        {"name": "get_time", "fragments": ["{\"tz\": \"E", "urop", "e/Pa", "ris\"}"]}]},
    "cut": {"calls": [{"name": "get_weather", "fragments": ["{\"city\": \"", "Par\"}"]}],
        "finish": {"type": "length", "length": 9}},
    "overloaded": {"text": "Some words then it dies in the middle.",
        "abort": {"after": 4, "status": 503, "message": "Request running timeout reached."}},
    "stalled": {"text": "word word word word word word word word word word", "stall_after": 3},
    "kimi": {"calls": [{"name": "t", "arguments": {"a": 1}, "id": "functions.t:0"}]},
    "closed": {"status": 429, "text": "Come back later."},
    "segments": {"raw": ["data: {\"a\"", ":1}\n\n", "data: [DO"], "content_type": "text/event-stream"}
}"#;

struct Upstream {
    url: String,
    client: Client,
}

impl Upstream {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        #[expect(clippy::disallowed_methods, reason = "ends with the test's runtime")]
        tokio::spawn(serve(listener, Script::parse(SCRIPT).unwrap()));
        Upstream { url, client: Client::new() }
    }

    async fn chat(&self, body: Value) -> reqwest::Response {
        let url = format!("{}/v1/chat/completions", self.url);
        self.client.post(url).json(&body).send().await.unwrap()
    }

    /// Asks for a scripted entry, and gives the body as text.
    async fn say(&self, name: &str, more: Value) -> String {
        self.chat(ask(name, more)).await.text().await.unwrap()
    }

    async fn seen(&self) -> Value {
        let response = self.client.get(format!("{}/_seen", self.url)).send().await.unwrap();
        response.json().await.unwrap()
    }

    async fn abort(&self, rid: &str) -> reqwest::Response {
        let url = format!("{}/abort_request", self.url);
        self.client.post(url).json(&json!({ "rid": rid })).send().await.unwrap()
    }

    /// Reads the record until `wanted` holds; fails after five seconds.
    async fn until(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let read = async {
            loop {
                let seen = self.seen().await;
                if wanted(&seen) {
                    return seen;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let read = tokio::time::timeout(Duration::from_secs(5), read).await;
        read.unwrap_or_else(|_| panic!("the record never came to be as expected"))
    }
}

fn ask(name: &str, more: Value) -> Value {
    let content = format!("[[script:{name}]]");
    let mut body = json!({"model": "scripted", "messages": [{"role": "user", "content": content}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn stream() -> Value {
    json!({"stream": true, "stream_options": {"include_usage": true}})
}

/// The same text with ids, times and token counts masked; each id must have its shape.
fn masked(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    let keys = [
        "\"id\":\"",
        "\"created\":",
        "prompt_tokens\":",
        "total_tokens\":",
        "completion_tokens\":",
    ];
    while let Some((at, key)) = keys.iter().filter_map(|key| Some((rest.find(key)?, *key))).min() {
        let value = &rest[at + key.len()..];
        let end = value.find(['"', ',', '}']).unwrap();
        out.push_str(&rest[..at + key.len()]);
        match value[..end].strip_prefix("call_") {
            Some(hex) => {
                assert!(hex.len() == 24 && hex.bytes().all(|b| b.is_ascii_hexdigit()), "{hex}");
                out.push_str("call_*");
            }
            None => out.push('*'),
        }
        rest = &value[end..];
    }
    out + rest
}

fn events(text: &str) -> Vec<&str> {
    text.split_inclusive("\n\n").collect()
}

#[tokio::test]
async fn whole_answers_are_sglangs_bytes() {
    let upstream = Upstream::start().await;
    for (name, captured) in [
        ("text", include_str!("scripted_upstream/text.json")),
        ("call", include_str!("scripted_upstream/call.json")),
        ("overloaded", include_str!("scripted_upstream/overloaded.json")),
    ] {
        assert_eq!(masked(&upstream.say(name, json!({})).await), masked(captured), "{name}");
    }
}

#[tokio::test]
async fn streams_are_sglangs_bytes() {
    let upstream = Upstream::start().await;
    let no_usage = json!({"stream": true, "stream_options": null});
    for (name, more, captured) in [
        ("text", stream(), include_str!("scripted_upstream/text.sse")),
        ("call", stream(), include_str!("scripted_upstream/call.sse")),
        ("call", no_usage, include_str!("scripted_upstream/no_usage.sse")),
        ("two_calls", stream(), include_str!("scripted_upstream/two_calls.sse")),
        ("cut", stream(), include_str!("scripted_upstream/cut.sse")),
        ("overloaded", stream(), include_str!("scripted_upstream/overloaded.sse")),
    ] {
        let said = upstream.say(name, more).await;
        assert_eq!(masked(&said), masked(captured), "{name}");
    }
}

#[tokio::test]
async fn two_choices_are_sglangs_bytes_choice_by_choice() {
    let upstream = Upstream::start().await;
    let mut more = stream();
    more["n"] = 2.into();
    let said = masked(&upstream.say("call", more).await);
    let captured = masked(include_str!("scripted_upstream/two_choices.sse"));
    // Which choice speaks first is the scheduler's matter, so each is compared by itself.
    for choice in ["\"choices\":[{\"index\":0", "\"choices\":[{\"index\":1", "\"choices\":[]"] {
        let of = |text: &str| -> Vec<String> {
            events(text).into_iter().filter(|e| e.contains(choice)).map(str::to_owned).collect()
        };
        assert_eq!(of(&said), of(&captured), "{choice}");
    }
    assert_eq!(events(&said).len(), events(&captured).len());
}

#[tokio::test]
async fn heads_say_what_the_body_is() {
    let upstream = Upstream::start().await;
    for (name, more, status, kind) in [
        ("text", json!({}), 200, "application/json"),
        ("text", stream(), 200, "text/event-stream; charset=utf-8"),
        ("overloaded", json!({}), 503, "application/json"),
        ("overloaded", stream(), 200, "text/event-stream; charset=utf-8"),
        ("closed", stream(), 429, "application/json"),
        ("segments", stream(), 200, "text/event-stream"),
    ] {
        let response = upstream.chat(ask(name, more)).await;
        assert_eq!(response.status().as_u16(), status, "{name}");
        assert_eq!(response.headers()["content-type"], kind, "{name}");
    }
}

#[tokio::test]
async fn an_abort_ends_a_stream_by_prefix_and_leaves_others_alone() {
    let upstream = Upstream::start().await;
    let mut more = stream();
    more["rid"] = "guard-1-aaaa".into();
    let first = upstream.chat(ask("stalled", more.clone())).await;
    more["rid"] = "guard-2-bbbb".into();
    let mut other = upstream.chat(ask("stalled", more)).await;
    let response = upstream.abort("guard-1").await;
    assert_eq!(response.status().as_u16(), 200);
    assert_eq!(response.text().await.unwrap(), "");

    let said = first.text().await.unwrap();
    let captured = include_str!("scripted_upstream/aborted.sse");
    let (said, captured) = (masked(&said), masked(captured));
    let (said, captured) = (events(&said), events(&captured));
    assert_eq!(said[..3], captured[..3], "begins alike");
    assert_eq!(said[said.len() - 3..], captured[captured.len() - 3..], "ends alike");

    let seen = upstream.seen().await;
    assert_eq!(seen["aborted"], json!(["guard-1-aaaa"]));
    assert_eq!(seen["open"], 1, "the other is still being said");
    assert!(other.chunk().await.unwrap().is_some());
}

#[tokio::test]
async fn an_abort_ends_a_whole_answer_with_what_it_has() {
    let upstream = Upstream::start().await;
    let chat = upstream.chat(ask("stalled", json!({"rid": "guard-abort-2"})));
    let abort = async {
        upstream.until(|seen| seen["open"] == 1).await;
        upstream.abort("guard-abort-2").await
    };
    let (response, _) = tokio::join!(chat, abort);
    let said = masked(&response.text().await.unwrap());
    let captured = masked(include_str!("scripted_upstream/aborted.json"));
    let text = |body: &str| -> String {
        let body: Value = serde_json::from_str(&body.replace(":*", ":0")).unwrap();
        body.pointer("/choices/0/message/content").unwrap().as_str().unwrap().to_owned()
    };
    assert_eq!(text(&said), "word word wo");
    assert_eq!(said.replace(&text(&said), ""), captured.replace(&text(&captured), ""));
}

#[tokio::test]
async fn a_delay_waits_and_an_abort_ends_the_wait() {
    let upstream = Upstream::start().await;
    let body = json!({"rid": "slow", "messages": [
        {"role": "user", "content": "Hello [[delay:600000]]"}]});
    let abort = async {
        upstream.until(|seen| seen["open"] == 1).await;
        upstream.abort("slow").await
    };
    let (response, _) = tokio::join!(upstream.chat(body), abort);
    let body: Value = response.json().await.unwrap();
    assert_eq!(body["choices"][0]["finish_reason"], "abort");
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_generation() {
    let upstream = Upstream::start().await;
    let mut more = stream();
    more["rid"] = "left-stream".into();
    let mut response = upstream.chat(ask("stalled", more)).await;
    assert!(response.chunk().await.unwrap().is_some());
    drop(response);
    let seen = upstream.until(|seen| seen["open"] == 0).await;
    assert_eq!(seen["aborted"], json!(["left-stream"]));

    let mut chat = Box::pin(upstream.chat(ask("stalled", json!({"rid": "left-whole"}))));
    tokio::select! {
        _ = &mut chat => panic!("a stalled answer came"),
        _ = upstream.until(|seen| seen["open"] == 1) => {}
    }
    drop(chat);
    let seen = upstream.until(|seen| seen["open"] == 0).await;
    assert_eq!(seen["aborted"], json!(["left-stream", "left-whole"]));
    assert_eq!(seen["exchanges"][1]["outcome"], "disconnected");
}

#[tokio::test]
async fn the_record_counts_each_request_once() {
    let upstream = Upstream::start().await;
    let body = ask("text", json!({"rid": "guard-0001"}));
    let said: Value = upstream.chat(body.clone()).await.json().await.unwrap();
    assert_eq!(said["id"], "guard-0001");
    let seen = upstream.seen().await;
    assert_eq!(seen["requests"], 1);
    assert_eq!(seen["rids"], json!(["guard-0001"]));
    assert_eq!(seen["aborted"], json!([]));
    assert_eq!(seen["exchanges"][0]["outcome"], "finished");
    assert_eq!(seen["exchanges"][0]["headers"]["content-type"], "application/json");
    let url = format!("{}/_seen/0", upstream.url);
    let sent = upstream.client.get(url).send().await.unwrap().bytes().await.unwrap();
    assert_eq!(sent, serde_json::to_vec(&body).unwrap(), "the body as it came");

    let reset = upstream.client.delete(format!("{}/_seen", upstream.url)).send().await.unwrap();
    assert_eq!(reset.status().as_u16(), 204);
    let seen = upstream.seen().await;
    assert_eq!((&seen["requests"], &seen["rids"]), (&json!(0), &json!([])));
}

#[tokio::test]
async fn a_rid_in_use_is_refused_and_free_afterwards() {
    let upstream = Upstream::start().await;
    let mut more = stream();
    more["rid"] = "twice".into();
    let first = upstream.chat(ask("stalled", more)).await;
    let second = upstream.chat(ask("text", json!({"rid": "twice"}))).await;
    assert_eq!(second.status().as_u16(), 400);
    let body: Value = second.json().await.unwrap();
    assert_eq!(body["message"], "Duplicate request ID detected: twice");
    upstream.abort("twice").await;
    first.text().await.unwrap();
    let third = upstream.chat(ask("text", json!({"rid": "twice"}))).await;
    assert_eq!(third.status().as_u16(), 200);
}

#[tokio::test]
async fn raw_bytes_go_out_as_they_are() {
    let upstream = Upstream::start().await;
    // "data: {\n\n" and a byte that is not UTF-8
    let body = json!({"stream": true, "messages": [
        {"role": "user", "content": "[[raw:ZGF0YTogewoK/w==]]"}]});
    let sent = upstream.chat(body).await.bytes().await.unwrap();
    assert_eq!(&sent[..], b"data: {\n\n\xff");
    let sent = upstream.say("segments", stream()).await;
    assert_eq!(sent, "data: {\"a\":1}\n\ndata: [DO");
}

#[tokio::test]
async fn the_order_desk_needs_two_calls() {
    let upstream = Upstream::start().await;
    let tools = json!([{"type": "function", "function": {"name": "get_order_status",
        "parameters": {"type": "object", "properties": {"order_id": {"type": "string"}}}}}]);
    let user = json!({"role": "user", "content": "我的 ORDER-A 到哪里了？"});
    let first = upstream.chat(json!({"messages": [user], "tools": tools})).await;
    let first: Value = first.json().await.unwrap();
    let message = &first["choices"][0]["message"];
    let call = &message["tool_calls"][0];
    assert_eq!(call["function"]["name"], "get_order_status");
    assert_eq!(call["function"]["arguments"], r#"{"order_id":"ORDER-A"}"#);

    let result = json!({"role": "tool", "tool_call_id": call["id"],
        "content": r#"{"ok":true,"order_id":"ORDER-A","status":"in transit"}"#});
    let second = upstream.chat(json!({"messages": [user, message, result], "tools": tools})).await;
    let second: Value = second.json().await.unwrap();
    assert_eq!(second["choices"][0]["message"]["content"], "ORDER-A is in transit.");
    assert_eq!(second["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn a_list_of_names_is_said_turn_by_turn() {
    let upstream = Upstream::start().await;
    let user = json!({"role": "user", "content": "[[script:kimi,text]]"});
    let first: Value = upstream.chat(json!({"messages": [user]})).await.json().await.unwrap();
    let message = &first["choices"][0]["message"];
    assert_eq!(message["tool_calls"][0]["id"], "functions.t:0");
    let result = json!({"role": "tool", "tool_call_id": "functions.t:0", "content": "1"});
    let second = upstream.chat(json!({"messages": [user, message, result]})).await;
    let second: Value = second.json().await.unwrap();
    let said = &second["choices"][0]["message"]["content"];
    assert_eq!(said, "Paris is sunny today, about 21 degrees.");
}

#[tokio::test]
async fn the_other_routes_answer_and_are_recorded() {
    let upstream = Upstream::start().await;
    for (path, status) in
        [("/health", 200), ("/v1/models", 200), ("/v1/models/scripted", 200), ("/generate", 404)]
    {
        let response = upstream.client.get(format!("{}{path}", upstream.url)).send().await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{path}");
    }
    let seen = upstream.seen().await;
    let others = json!(["GET /v1/models", "GET /v1/models/scripted", "GET /generate"]);
    assert_eq!(seen["others"], others);
    assert_eq!(seen["requests"], 0);
    let response = upstream.chat(json!({"messages": 1})).await;
    assert_eq!(response.status().as_u16(), 400);
    assert_eq!(upstream.seen().await["requests"], 1, "an unusable request is a request");
}

#[test]
fn the_documented_script_is_a_script() {
    let page = include_str!("../docs/scripted-upstream.md");
    let (_, rest) = page.split_once("```json\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    Script::parse(example).unwrap();
}
