//! What passes the proxy, passes byte for byte and at once; what is refused never reaches the client.

#![expect(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod rig;

use bytes::Bytes;
use http_body_util::BodyExt;
use rig::{
    Answer, Seen, Upstream, ask, chat, client, error, event, fragment, guard, next, policy, send,
    text,
};

const ANSWER: &str = " {\"id\":\"x\", \"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"\\u4f60 hi\"},\"finish_reason\":\"stop\",\"odd\": 1.0e0}] }\n";

/// The next answer is a stream of these writes.
fn will_write(upstream: &Upstream, writes: &[&str]) {
    let feed = upstream.will_stream();
    for write in writes {
        feed.send(Bytes::copy_from_slice(write.as_bytes())).unwrap();
    }
}

#[tokio::test]
async fn a_whole_exchange_passes_byte_for_byte() {
    let mut upstream = Upstream::start().await;
    let mut policy = policy(&upstream);
    policy.upstream.rid = false;
    let guard = guard(policy).await;
    upstream.will(rig::json(ANSWER));
    let body = " {\"messages\" : [ {\"role\":\"user\",\"content\":\"\\ud83d\\ude00\"} ],\n\"unknown\":1.50}\r\n";
    let response = send(&client(), chat(&guard, &[("x-request-id", "mine")], body)).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["x-request-id"], "mine");
    assert_eq!(response.headers()["x-tigertally-verdict"], "pass");
    assert_eq!(response.headers()["content-length"], ANSWER.len().to_string().as_str());
    assert_eq!(text(response).await, ANSWER);
    let (path, headers, seen) = upstream.saw_request().await;
    assert_eq!(path, rig::CHAT);
    assert_eq!(seen, body);
    assert_eq!(headers["content-length"], body.len().to_string().as_str());
}

#[tokio::test]
async fn a_rid_is_spliced_in_and_nothing_else_changes() {
    let mut upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    upstream.will(rig::json(ANSWER));
    text(send(&client(), chat(&guard, &[], ask(false))).await).await;
    let (_, headers, seen) = upstream.saw_request().await;
    let seen = String::from_utf8(seen.to_vec()).unwrap();
    let rest = seen.strip_prefix("{\"rid\":\"").unwrap();
    let (rid, rest) = rest.split_at(32);
    assert!(rid.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_eq!(format!("{{{}", rest.strip_prefix("\",").unwrap()), ask(false));
    assert_eq!(headers["content-length"], seen.len().to_string().as_str());
    // A client's own stays, and is the only one.
    upstream.will(rig::json(ANSWER));
    let own = ask(false).replacen('{', "{\"rid\":\"own\",", 1);
    text(send(&client(), chat(&guard, &[], own.clone())).await).await;
    assert_eq!(upstream.saw_request().await.2, own);
}

#[tokio::test]
async fn a_stream_passes_byte_for_byte_wherever_it_is_cut() {
    let upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let stream = [
        ": hello\n\n".to_owned(),
        event("{\"role\":\"assistant\",\"content\":\"\"}", None).replace('\n', "\r\n"),
        event("{\"content\":\"\u{4f60}\u{597d}\"}", None),
        fragment(Some("call_1"), Some("get_order"), ""),
        fragment(None, None, "{\"order_id\""),
        fragment(None, None, ":\"A\"}"),
        event("{}", Some("tool_calls")),
        "data: {\"id\":\"x\",\"choices\":[],\"usage\":{\"total_tokens\":1}}\n\n".to_owned(),
        "data: [DONE]\n\n".to_owned(),
    ]
    .concat();
    for size in [1, 7, 64, 1000, stream.len()] {
        let feed = upstream.will_stream();
        for piece in stream.as_bytes().chunks(size) {
            feed.send(Bytes::copy_from_slice(piece)).unwrap();
        }
        drop(feed);
        let response = send(&client(), chat(&guard, &[], ask(true))).await;
        assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
        assert_eq!(text(response).await, stream, "in pieces of {size}");
    }
}

#[tokio::test]
async fn text_is_forwarded_the_moment_it_arrives() {
    let upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let feed = upstream.will_stream();
    let response = send(&client(), chat(&guard, &[("x-conversation-id", "c")], ask(true))).await;
    let mut body = response.into_body();
    for number in 0..200 {
        let sent = event(&format!("{{\"content\":\"{number}\"}}"), None);
        feed.send(Bytes::from(sent.clone())).unwrap();
        // The next is sent only when this one has arrived, so nothing can wait for it.
        assert_eq!(next(&mut body).await.unwrap(), sent);
    }
    let finish = event("{}", Some("stop"));
    feed.send(Bytes::from(finish.clone())).unwrap();
    assert_eq!(next(&mut body).await.unwrap(), finish);
    feed.send(Bytes::from("data: [DONE]\n\n")).unwrap();
    assert_eq!(next(&mut body).await.unwrap(), "data: [DONE]\n\n");
    drop(feed);
    assert_eq!(next(&mut body).await, None);
}

#[tokio::test]
async fn refused_calls_never_reach_the_client() {
    let finish = event("{}", Some("tool_calls"));
    let cut = event("{}", Some("length"));
    let done = "data: [DONE]\n\n".to_owned();
    let sound = fragment(Some("call_1"), Some("get_order"), "{\"order_id\":\"A\"}");
    let cases: [(&str, Vec<String>); 6] = [
        (
            "unknown_tool",
            vec![fragment(Some("c"), Some("drop_table"), "{}"), finish.clone(), done.clone()],
        ),
        (
            "arguments_schema",
            vec![fragment(Some("c"), Some("get_order"), "{}"), finish.clone(), done.clone()],
        ),
        ("truncated_call", vec![sound.clone(), cut, done.clone()]),
        ("truncated_stream", vec![sound.clone()]),
        ("broken_stream", vec![sound.clone(), "data: {\"id\":\n\n".to_owned(), done.clone()]),
        // A call after the end: nothing that follows [DONE] slips by.
        ("broken_stream", vec![event("{}", Some("stop")), done.clone(), sound.clone()]),
    ];
    let upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    for (code, tail) in cases {
        let greeting = event("{\"content\":\"One moment.\"}", None);
        will_write(&upstream, &[&greeting, &tail.concat()]);
        let got = text(send(&client(), chat(&guard, &[], ask(true))).await).await;
        let (before, last) = got.trim_end().rsplit_once("data: ").unwrap();
        let text_only = tail.iter().take_while(|event| !event.contains("tool_calls"));
        let text_only: String = text_only.map(String::as_str).collect();
        assert_eq!(before, greeting + &text_only, "{code}");
        assert_eq!(error(last)["code"], code, "{got}");
        assert_eq!(error(last)["type"], "guard_refusal");
    }
}

#[tokio::test]
async fn an_answer_that_never_finished_says_so_in_an_event_of_its_own() {
    let upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let greeting = event("{\"content\":\"One mom\"}", None);
    let torn = event("{\"content\":\"ent\"}", None).trim_end().to_owned();
    for (last, code, passes) in [
        ("", "truncated_stream", false),
        ("data: {\"id\":\"x\",\"cho", "broken_stream", false),
        (torn.as_str(), "truncated_stream", true),
    ] {
        will_write(&upstream, &[&greeting, last]);
        let got = text(send(&client(), chat(&guard, &[], ask(true))).await).await;
        let (before, error_event) = got.trim_end().rsplit_once("data: ").unwrap();
        let wanted = if passes { greeting.clone() + last } else { greeting.clone() };
        assert_eq!(before.trim_end(), wanted.trim_end(), "{code}");
        // A blank line before it, so that it is an event of its own.
        assert!(before.ends_with("\n\n"), "{code}");
        assert_eq!(error(error_event)["code"], code);
    }
}

#[tokio::test]
async fn an_error_that_brings_calls_along_is_no_way_around() {
    let upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let call = r#"{"index":0,"id":"c","type":"function","function":{"name":"drop_table","arguments":"{}"}}"#;
    let chunk = format!(
        "data: {{\"error\":{{\"code\":500}},\"choices\":[{{\"index\":0,\"delta\":{{\"tool_calls\":[{call}]}}}}]}}\n\n"
    );
    will_write(&upstream, &[&chunk, "data: [DONE]\n\n"]);
    let got = text(send(&client(), chat(&guard, &[], ask(true))).await).await;
    assert!(got.contains("broken_stream") && !got.contains("drop_table"), "{got}");
    let whole = format!(
        "{{\"error\":{{\"code\":500}},\"choices\":[{{\"index\":0,\"message\":{{\"tool_calls\":[{call}]}}}}]}}"
    );
    upstream.will(rig::json(&whole));
    assert_eq!(send(&client(), chat(&guard, &[], ask(false))).await.status(), 422);
    // An error object alone passes as it is.
    upstream.will(rig::json("{\"error\":{\"code\":500}}"));
    let response = send(&client(), chat(&guard, &[], ask(false))).await;
    assert_eq!(response.status(), 200);
    assert_eq!(text(response).await, "{\"error\":{\"code\":500}}");
}

#[tokio::test]
async fn what_is_held_is_bounded_and_never_flushed() {
    let upstream = Upstream::start().await;
    let mut policy = policy(&upstream);
    policy.limits.held_bytes = 2000;
    let guard = guard(policy).await;
    let head = fragment(Some("c"), Some("get_order"), "{\"order_id\":\"");
    let piece = fragment(None, None, &"x".repeat(1000));
    let endless = format!("data: {}", "x".repeat(3000));
    for stream in [vec![head.as_str(), &piece, &piece], vec![endless.as_str()]] {
        will_write(&upstream, &stream);
        let got = text(send(&client(), chat(&guard, &[], ask(true))).await).await;
        let got = got.strip_prefix("data: ").unwrap();
        assert_eq!(error(got)["code"], "held_too_large");
    }
    // The same within the bound passes.
    let end = fragment(None, None, "\"}") + &event("{}", Some("tool_calls"));
    will_write(&upstream, &[&head, &end]);
    let got = text(send(&client(), chat(&guard, &[], ask(true))).await).await;
    assert_eq!(got, head + &end);
}

#[tokio::test]
async fn while_a_stream_is_held_a_comment_keeps_the_connection_awake() {
    let upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let feed = upstream.will_stream();
    let mut body = send(&client(), chat(&guard, &[], ask(true))).await.into_body();
    let greeting = event("{\"content\":\"Hm.\"}", None);
    let head = fragment(Some("c"), Some("get_order"), "{\"order_id\":\"A\"}");
    feed.send(Bytes::from(greeting.clone() + &head)).unwrap();
    assert_eq!(next(&mut body).await.unwrap(), greeting);
    // From here on the clock jumps to the next timer whenever everybody waits.
    tokio::time::pause();
    let comment = body.frame().await.unwrap().unwrap().into_data().unwrap();
    tokio::time::resume();
    assert_eq!(comment, ":\n");
    let end = event("{}", Some("tool_calls"));
    feed.send(Bytes::from(end.clone())).unwrap();
    drop(feed);
    let mut got = String::new();
    while let Some(bytes) = next(&mut body).await {
        got.push_str(std::str::from_utf8(&bytes).unwrap());
    }
    assert_eq!(got, head + &end);
}

#[tokio::test]
async fn after_an_error_of_the_upstream_held_calls_are_dropped_and_the_error_passes() {
    let upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let greeting = event("{\"content\":\"Hm.\"}", None);
    let failures = [
        "data: {\"error\": {\"message\": \"NaN in logits\", \"code\": 500}}\n\n",
        "data: {\"object\":\"error\",\"message\":\"NaN in logits\",\"code\":500}\n\n",
        "event: error\ndata: {\"message\":\"NaN in logits\"}\n\n",
        "data: NaN in logits\r\nevent:error\r\n\r\n",
    ];
    let usage = "data: {\"id\":\"x\",\"choices\":[],\"usage\":{}}\n\n";
    let held = fragment(Some("call_1"), Some("get_order"), "{\"order_id\":\"A\"}");
    let done = "data: [DONE]\n\n";
    for failure in failures {
        will_write(&upstream, &[&greeting, &held, failure, &held, usage, done]);
        let got = text(send(&client(), chat(&guard, &[], ask(true))).await).await;
        assert_eq!(got, [greeting.as_str(), failure, usage, done].concat());
    }
    // Another name is no error.
    let end = "event: message\n".to_owned() + &event("{}", Some("tool_calls"));
    will_write(&upstream, &[&greeting, &held, &end, done]);
    let got = text(send(&client(), chat(&guard, &[], ask(true))).await).await;
    assert_eq!(got, [greeting.as_str(), &held, &end, done].concat());
}

#[tokio::test]
async fn calls_where_the_other_form_has_them_are_no_way_around() {
    let upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let call = |name: &str| {
        format!(
            r#""tool_calls":[{{"index":0,"id":"c","type":"function","function":{{"name":"{name}","arguments":"{{\"order_id\":\"A\"}}"}}}}]"#
        )
    };
    let (sound, unknown) = (call("get_order"), call("drop_table"));
    let whole = |key: &str, calls: &str, finish: &str, more: &str| {
        format!(
            r#"{{"id":"x","choices":[{{"index":0,"{key}":{{{calls}}},"finish_reason":{finish}}}]{more}}}"#
        )
    };
    let done = r#""tool_calls""#;
    for (body, code) in [
        (whole("message", &sound, done, ""), None),
        (whole("delta", &sound, done, ""), None),
        (whole("delta", &unknown, done, ""), Some("unknown_tool")),
        (whole("message", &sound, r#"{"type":"abort"}"#, ""), Some("truncated_call")),
        (whole("message", &sound, done, r#","error":{"code":500}"#), Some("truncated_call")),
        (whole("message", &sound, done, r#","object":"error""#), Some("truncated_call")),
        (whole("message", &sound, done, r#","error":null"#), None),
    ] {
        upstream.will(rig::json(&body));
        let got = text(send(&client(), chat(&guard, &[], ask(false))).await).await;
        match code {
            Some(code) => assert_eq!(error(&got)["code"], code, "{body}"),
            None => assert_eq!(got, body),
        }
    }
    let end = event("{}", Some("stop"));
    for calls in [&sound, &unknown] {
        let chunk = format!("data: {}\n\n", whole("message", calls, "null", ""));
        will_write(&upstream, &[&chunk, &end, "data: [DONE]\n\n"]);
        let got = text(send(&client(), chat(&guard, &[], ask(true))).await).await;
        assert!(got.contains("broken_stream") && !got.contains("order_id"), "{got}");
    }
    let chunk = format!("data: {}\n\n", whole("message", r#""tool_calls":[]"#, "null", ""));
    will_write(&upstream, &[&chunk, &end]);
    let got = text(send(&client(), chat(&guard, &[], ask(true))).await).await;
    assert_eq!(got, chunk + &end);
}

#[tokio::test]
async fn a_torn_event_behind_a_split_line_end_is_judged() {
    let upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let end = event("{}", Some("stop")).trim_end().to_owned() + "\r\n\r";
    let torn = fragment(Some("c"), Some("drop_table"), "{}").trim_end().to_owned();
    let feed = upstream.will_stream();
    let mut body = send(&client(), chat(&guard, &[], ask(true))).await.into_body();
    feed.send(Bytes::from(end.clone())).unwrap();
    assert_eq!(next(&mut body).await.unwrap(), end);
    feed.send(Bytes::from(format!("\n{torn}"))).unwrap();
    drop(feed);
    let mut got = String::new();
    while let Some(bytes) = next(&mut body).await {
        got.push_str(std::str::from_utf8(&bytes).unwrap());
    }
    assert!(got.contains("broken_stream") && !got.contains("drop_table"), "{got}");
}

#[tokio::test]
async fn a_whole_answer_with_a_bad_call_is_refused() {
    let upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let answer = r#"{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"","tool_calls":[{"id":"call_1","type":"function","function":{"name":"drop_table","arguments":"{\"secret\":1}"}}]},"finish_reason":"tool_calls"}]}"#;
    upstream.will(rig::json(answer));
    let response = send(&client(), chat(&guard, &[], ask(false))).await;
    assert_eq!(response.status(), 422);
    assert_eq!(response.headers()["x-tigertally-verdict"], "refuse");
    assert_eq!(response.headers()["x-should-retry"], "false");
    let body = text(response).await;
    assert_eq!(error(&body)["code"], "unknown_tool");
    assert!(!body.contains("secret"));
    // The nearest sound answer passes.
    let sound =
        answer.replace("drop_table", "get_order").replace("secret\\\":1", "order_id\\\":\\\"A\\\"");
    upstream.will(rig::json(&sound));
    let response = send(&client(), chat(&guard, &[], ask(false))).await;
    assert_eq!(response.status(), 200);
    assert_eq!(text(response).await, sound);
}

#[tokio::test]
async fn errors_of_the_upstream_pass_as_they_are() {
    let upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    upstream.will(Answer::Whole {
        status: 429,
        headers: vec![("content-type", "text/plain"), ("retry-after", "7")],
        body: Bytes::from("busy"),
    });
    let response = send(&client(), chat(&guard, &[], ask(true))).await;
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "7");
    assert!(!response.headers().contains_key("x-should-retry"));
    assert_eq!(text(response).await, "busy");
}

#[tokio::test]
async fn what_is_not_an_answer_is_told_as_the_upstreams_fault() {
    let upstream = Upstream::start().await;
    let mut policy = policy(&upstream);
    policy.upstream.first_byte_timeout = std::time::Duration::from_millis(50);
    let guard = guard(policy.clone()).await;
    for headers in [
        vec![("content-type", "text/html")],
        vec![],
        vec![("content-type", "application/json"), ("content-encoding", "gzip")],
    ] {
        let body = Bytes::from(ANSWER);
        upstream.will(Answer::Whole { status: 200, headers: headers.clone(), body });
        let response = send(&client(), chat(&guard, &[], ask(false))).await;
        assert_eq!(response.status(), 502, "{headers:?}");
        assert_eq!(error(&text(response).await)["code"], "upstream_invalid", "{headers:?}");
    }
    let headers =
        vec![("content-type", "application/json;charset=UTF-8"), ("content-encoding", "identity")];
    upstream.will(Answer::Whole { status: 200, headers, body: Bytes::from(ANSWER) });
    assert_eq!(send(&client(), chat(&guard, &[], ask(false))).await.status(), 200);
    upstream.will(Answer::Silence);
    let response = send(&client(), chat(&guard, &[], ask(false))).await;
    assert_eq!(response.status(), 504);
    assert!(!response.headers().contains_key("x-should-retry"));
    assert_eq!(error(&text(response).await)["code"], "upstream_timeout");
    policy.upstream.url = "http://127.0.0.1:9".parse().unwrap();
    let nowhere = rig::guard(policy).await;
    let response = send(&client(), chat(&nowhere, &[], ask(false))).await;
    assert_eq!(response.status(), 502);
    assert_eq!(error(&text(response).await)["code"], "upstream_unreachable");
}

#[tokio::test]
async fn a_client_that_leaves_aborts_the_work_before_the_connection_closes() {
    let mut upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    for stream in [true, false] {
        let feed = if stream { Some(upstream.will_stream()) } else { None };
        if !stream {
            upstream.will(Answer::Silence);
        }
        let client = client();
        let asked = client.request(chat(&guard, &[("x-conversation-id", "c")], ask(stream)));
        if let Some(feed) = &feed {
            let mut body = asked.await.unwrap().into_body();
            feed.send(Bytes::from(event("{\"content\":\"a\"}", None))).unwrap();
            next(&mut body).await.unwrap();
            drop(body);
            upstream.saw_request().await;
        } else {
            let asked = tokio::spawn(asked);
            upstream.saw_request().await;
            asked.abort();
        }
        drop(client);
        let (path, _, body) = upstream.saw_request().await;
        assert_eq!(path, "/abort_request", "stream: {stream}");
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["rid"].as_str().unwrap().len(), 32);
        assert!(matches!(upstream.saw().await, Seen::Closed));
    }
}

#[tokio::test]
async fn a_clients_own_rid_is_never_aborted_by_name() {
    let mut upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let feed = upstream.will_stream();
    let own = ask(true).replacen('{', "{\"rid\":\"a\",", 1);
    let client = client();
    let mut body = send(&client, chat(&guard, &[], own)).await.into_body();
    feed.send(Bytes::from(event("{\"content\":\"a\"}", None))).unwrap();
    next(&mut body).await.unwrap();
    drop(body);
    upstream.saw_request().await;
    assert!(matches!(upstream.saw().await, Seen::Closed));
}

#[tokio::test]
async fn headers_are_cleaned_both_ways() {
    let mut upstream = Upstream::start().await;
    let mut policy = policy(&upstream);
    policy.upstream.api_key = Some(tigertally::policy::Secret::new("ours".to_owned()));
    let guard = guard(policy).await;
    upstream.will(Answer::Whole {
        status: 200,
        headers: vec![
            ("content-type", "application/json"),
            ("x-upstream", "kept"),
            ("keep-alive", "timeout=5"),
            ("proxy-authenticate", "x"),
            ("x-tigertally-verdict", "forged"),
        ],
        body: Bytes::from(ANSWER),
    });
    let sent = [
        ("authorization", "Bearer theirs"),
        ("x-data-parallel-rank", "3"),
        ("x-sglext-a", "1"),
        ("x-override-b", "1"),
        ("accept-encoding", "gzip"),
        ("x-conversation-id", "kept"),
        ("traceparent", "kept"),
    ];
    let response = send(&client(), chat(&guard, &sent, ask(false))).await;
    assert_eq!(response.headers()["x-upstream"], "kept");
    assert_eq!(response.headers()["x-tigertally-verdict"], "pass");
    assert!(!response.headers().contains_key("keep-alive"));
    assert!(!response.headers().contains_key("proxy-authenticate"));
    let (_, headers, _) = upstream.saw_request().await;
    assert_eq!(headers["authorization"], "Bearer ours");
    assert_eq!(headers["accept-encoding"], "identity");
    assert_eq!(headers["host"], upstream.addr.to_string().as_str());
    assert_eq!(headers["traceparent"], "kept");
    for stripped in ["x-data-parallel-rank", "x-sglext-a", "x-override-b"] {
        assert!(!headers.contains_key(stripped), "{stripped}");
    }
}

#[tokio::test]
async fn a_torn_event_after_the_end_of_the_answer_is_dropped_and_the_answer_stands() {
    let upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let answer = event("{\"content\":\"It is shipped.\"}", Some("stop"));
    for (conversation, last) in [
        ("a", "data: {\"id\":\"x\",\"choices\":[{\"ind"),
        ("b", "data: {\"id\":\"x\",\"choices\":[],\"usage\":{\"total"),
        ("c", "data: [DO"),
    ] {
        will_write(&upstream, &[&answer, last]);
        let headers = [("x-conversation-id", conversation)];
        let got = text(send(&client(), chat(&guard, &headers, ask(true))).await).await;
        assert_eq!(got, answer, "{last}");
        let url = format!("http://{}/guard/v1/conversations/{conversation}", guard.client_addr);
        let record = http::Request::get(url).body(Default::default()).unwrap();
        let record = text(send(&client(), record).await).await;
        assert!(record.contains("\"state\":\"delivered\""), "{record}");
    }
    // Whole JSON that only lacks its blank line is looked at as ever.
    let call = fragment(Some("call_1"), Some("get_order"), "{}");
    will_write(&upstream, &[&answer, call.trim_end()]);
    let got = text(send(&client(), chat(&guard, &[], ask(true))).await).await;
    assert!(got.contains("broken_stream") && !got.contains("call_1"), "{got}");
    let usage = "data: {\"id\":\"x\",\"choices\":[],\"usage\":{\"total_tokens\":3}}";
    will_write(&upstream, &[&answer, usage]);
    let got = text(send(&client(), chat(&guard, &[], ask(true))).await).await;
    assert_eq!(got, answer.clone() + usage);
}
