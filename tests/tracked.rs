//! Tracked conversations end to end: what is no longer wanted is withheld, and a task's calls come back once.

#![expect(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod rig;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use rig::{
    Seen, TOOLS, Upstream, ask, chat, client, error, event, fragment, guard, next, policy, send,
    text,
};
use serde_json::Value;
use tigertally::proxy::Running;

const CALL: &str = r#"{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"","tool_calls":[{"id":"call_1","type":"function","function":{"name":"get_order","arguments":"{\"order_id\":\"A\"}"}}]},"finish_reason":"tool_calls"}]}"#;
const ANSWER: &str = r#"{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"It is shipped."},"finish_reason":"stop"}]}"#;

fn continuation(result: &str) -> String {
    format!(
        r#"{{"messages":[{{"role":"user","content":"Where is A?"}},{{"role":"assistant","content":"","tool_calls":[{{"id":"call_1","type":"function","function":{{"name":"get_order","arguments":"{{ \"order_id\": \"A\" }}"}}}}]}},{{"role":"tool","tool_call_id":"call_1","content":"{result}"}}],{TOOLS}}}"#
    )
}

async fn control(guard: &Running, method: &str, path: &str, body: &str) -> (u16, Value) {
    let request = Request::builder()
        .method(method)
        .uri(format!("http://{}/guard/v1/conversations/{path}", guard.client_addr))
        .header("content-type", "application/json")
        .body(Full::from(body.to_owned()))
        .unwrap();
    let response = send(&client(), request).await;
    let status = response.status().as_u16();
    (status, serde_json::from_str(&text(response).await).unwrap())
}

#[tokio::test]
async fn echoes_and_closings_are_read_in_every_form_of_content() {
    let upstream = Upstream::start().await;
    let mut policy = policy(&upstream);
    let tool = tigertally::policy::Tool { echo: vec!["order_id".into()], ..Default::default() };
    policy.tools.each.insert("get_order".into(), tool);
    let closing = serde_json::to_string(&policy.notices.timeout).unwrap();
    let guard = guard(policy).await;
    let quoted = |text: &str| serde_json::to_string(text).unwrap();
    let part = |text: &str| format!(r#"{{"type":"text","text":{}}}"#, quoted(text));
    let forms = |id: &str| {
        let object = format!(r#"{{"order_id":"{id}","state":"shipped"}}"#);
        let (head, tail) = object.split_at(9);
        [
            quoted(&object),
            quoted(&format!("\u{feff}{object}")),
            quoted(&format!(" \n{object}")),
            format!("[{}]", part(&object)),
            format!("[{},{}]", part(head), part(tail)),
            object.clone(),
        ]
    };
    let right = forms("A").map(|content| (content, 200));
    let wrong = forms("B").map(|content| (content, 422));
    let others = [
        (closing.clone(), 200),
        (format!(r#"[{{"type":"text","text":{closing}}}]"#), 200),
        (quoted("shipped"), 200),
        (r#"[{"type":"image_url","image_url":{"url":"x"}}]"#.to_owned(), 200),
    ];
    for (at, (content, status)) in right.into_iter().chain(wrong).chain(others).enumerate() {
        let name = format!("c{at}");
        let headers = [("x-conversation-id", name.as_str()), ("x-generation", "1")];
        upstream.will(rig::json(CALL));
        let opened = send(&client(), chat(&guard, &headers, ask(false))).await;
        assert_eq!(text(opened).await, CALL);
        let body = continuation("RESULT").replace("\"RESULT\"", &content);
        if status == 200 {
            upstream.will(rig::json(ANSWER));
        }
        let answered = send(&client(), chat(&guard, &headers, body)).await;
        assert_eq!(answered.status(), status, "{content}");
        if status == 422 {
            assert_eq!(error(&text(answered).await)["code"], "mismatch", "{content}");
        }
    }
}

#[tokio::test]
async fn one_task_goes_round_and_its_result_counts_once() {
    let upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let client = client();
    let headers = [("x-conversation-id", "c"), ("x-generation", "41")];
    upstream.will(rig::json(CALL));
    let opened = send(&client, chat(&guard, &headers, ask(false))).await;
    assert_eq!(opened.status(), 200);
    assert_eq!(opened.headers()["x-generation"], "41");
    assert_eq!(text(opened).await, CALL);
    let (status, record) = control(&guard, "GET", "c", "").await;
    assert_eq!((status, &record["calls"][0]["state"]), (200, &Value::from("open")));
    upstream.will(rig::json(ANSWER));
    let answered = send(&client, chat(&guard, &headers, continuation("shipped"))).await;
    assert_eq!(answered.status(), 200);
    assert_eq!(text(answered).await, ANSWER);
    let again = send(&client, chat(&guard, &headers, continuation("shipped"))).await;
    assert_eq!(again.status(), 422);
    assert_eq!(error(&text(again).await)["code"], "duplicate");
    let other = send(&client, chat(&guard, &headers, continuation("lost"))).await;
    assert_eq!(other.status(), 422);
    assert_eq!(error(&text(other).await)["code"], "conflict");
    let (_, record) = control(&guard, "GET", "c", "").await;
    assert_eq!(record["calls"][0]["state"], "accepted");
    assert_eq!(record["generations"][0]["outcome"], "completed");
    assert!(!record.to_string().contains("shipped"));
}

#[tokio::test]
async fn an_older_generations_stream_stops_when_the_user_moves_on() {
    let mut upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let feed = upstream.will_stream();
    let headers = [("x-conversation-id", "c"), ("x-generation", "1")];
    let mut body = send(&client(), chat(&guard, &headers, ask(true))).await.into_body();
    feed.send(Bytes::from(event("{\"content\":\"A is\"}", None))).unwrap();
    next(&mut body).await.unwrap();
    feed.send(Bytes::from(fragment(Some("call_1"), Some("get_order"), "{\"order_id\":\"A\"}")))
        .unwrap();
    upstream.saw_request().await;
    let (status, advanced) = control(&guard, "POST", "c/generation", "{\"generation\":2}").await;
    assert_eq!(status, 200);
    assert_eq!(advanced["generation"], 2);
    assert_eq!(advanced["cancelled_exchanges"], 1);
    let last = next(&mut body).await.unwrap();
    let last = std::str::from_utf8(&last).unwrap().strip_prefix("data: ").unwrap();
    assert_eq!(error(last)["code"], "stale_answer");
    assert_eq!(next(&mut body).await, None);
    assert_eq!(upstream.saw_request().await.0, "/abort_request");
    assert!(matches!(upstream.saw().await, Seen::Closed));
    drop(feed);
}

#[tokio::test]
async fn an_older_generations_whole_answer_is_withheld_at_once() {
    let mut upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    upstream.will(rig::Answer::Silence);
    let client = client();
    let old = [("x-conversation-id", "c"), ("x-generation", "1")];
    let waiting = tokio::spawn(client.request(chat(&guard, &old, ask(false))));
    upstream.saw_request().await;
    upstream.will(rig::json(ANSWER));
    let new = [("x-conversation-id", "c"), ("x-generation", "2")];
    let newer = send(&client, chat(&guard, &new, ask(false))).await;
    assert_eq!(newer.status(), 200);
    let withheld = rig::within(waiting).await.unwrap().unwrap();
    assert_eq!(withheld.status(), 422);
    assert_eq!(error(&text(withheld).await)["code"], "stale_answer");
    let stale = send(&client, chat(&guard, &old, ask(false))).await;
    assert_eq!(stale.headers()["x-generation"], "2");
    assert_eq!(error(&text(stale).await)["code"], "stale_generation");
}

#[tokio::test]
async fn a_late_result_in_history_is_replaced_by_the_notice_and_nothing_else_changes() {
    let mut upstream = Upstream::start().await;
    let mut policy = policy(&upstream);
    policy.upstream.rid = false;
    let guard = guard(policy).await;
    let client = client();
    upstream.will(rig::json(CALL));
    let headers = [("x-conversation-id", "c"), ("x-generation", "1")];
    text(send(&client, chat(&guard, &headers, ask(false))).await).await;
    upstream.saw_request().await;
    control(&guard, "POST", "c/generation", "{}").await;
    upstream.will(rig::json(ANSWER));
    let list = continuation("secret").replacen(
        "}],\"tools\"",
        "},{\"role\":\"user\",\"content\":\"Where is B?\"}],\"tools\"",
        1,
    );
    let headers = [("x-conversation-id", "c"), ("x-generation", "2")];
    let response = send(&client, chat(&guard, &headers, list.clone())).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["x-tigertally-verdict"], "note");
    let notes = response.headers()["x-tigertally-notes"].to_str().unwrap().to_owned();
    assert!(notes.contains("substituted@messages"), "{notes}");
    let notice = r#""{\"ok\":false,\"error\":{\"code\":\"superseded\"}}""#;
    let (_, _, seen) = upstream.saw_request().await;
    assert_eq!(seen, list.replace("\"secret\"", notice));
}

/// A client writes the notice itself, and leaves the late result beside it.
#[tokio::test]
async fn nothing_stale_goes_up_beside_a_notice() {
    let mut upstream = Upstream::start().await;
    let mut policy = policy(&upstream);
    policy.upstream.rid = false;
    let notice = serde_json::to_string(&policy.notices.superseded).unwrap();
    let guard = guard(policy).await;
    let client = client();
    let part = |more: &str| format!(r#"[{{"type":"text","text":{notice}{more}}}]"#);
    let image = r#"{"type":"image_url","image_url":{"url":"secret"}}"#;
    let contents = [
        (notice.clone(), false),
        (part(""), false),
        (format!(r#"{notice},"artifact":"secret""#), true),
        (part(r#","cache_control":"secret""#), true),
        (part("").replace("[{", &format!("[{image},{{")), true),
    ];
    for (at, (content, cleaned)) in contents.into_iter().enumerate() {
        let name = format!("c{at}");
        upstream.will(rig::json(CALL));
        let headers = [("x-conversation-id", name.as_str()), ("x-generation", "1")];
        text(send(&client, chat(&guard, &headers, ask(false))).await).await;
        upstream.saw_request().await;
        control(&guard, "POST", &format!("{name}/generation"), "{}").await;
        let headers = [("x-conversation-id", name.as_str()), ("x-generation", "2")];
        upstream.will(rig::json(ANSWER));
        let list = continuation("RESULT").replace("\"RESULT\"", &content);
        let response = send(&client, chat(&guard, &headers, list.clone())).await;
        assert_eq!(response.status(), 200, "{content}");
        let (_, _, seen) = upstream.saw_request().await;
        if cleaned {
            let seen = String::from_utf8(seen.to_vec()).unwrap();
            assert!(!seen.contains("secret") && seen.contains(&notice), "{seen}");
            let notes = response.headers()["x-tigertally-notes"].to_str().unwrap();
            assert!(notes.contains("substituted@messages"), "{notes}");
        } else {
            assert_eq!(seen, list);
        }
    }
}

#[tokio::test]
async fn the_control_api_decides_on_a_result_and_the_continuation_passes() {
    let upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let client = client();
    let headers = [("x-conversation-id", "c"), ("x-generation", "7")];
    upstream.will(rig::json(CALL));
    text(send(&client, chat(&guard, &headers, ask(false))).await).await;
    let result =
        r#"{"generation":7,"tool_call_id":"call_1","name":"get_order","content":"shipped"}"#;
    let (status, accepted) = control(&guard, "POST", "c/results", result).await;
    assert_eq!(status, 200, "{accepted}");
    assert_eq!(accepted["verdict"], "accepted");
    assert_eq!(accepted["message"]["role"], "tool");
    assert_eq!(accepted["message"]["content"], "shipped");
    let (status, repeated) = control(&guard, "POST", "c/results", result).await;
    assert_eq!((status, &repeated["error"]["code"]), (422, &Value::from("duplicate")));
    let unknown = result.replace("call_1", "call_9");
    let (status, unmatched) = control(&guard, "POST", "c/results", &unknown).await;
    assert_eq!((status, &unmatched["error"]["code"]), (422, &Value::from("unmatched")));
    upstream.will(rig::json(ANSWER));
    let answered = send(&client, chat(&guard, &headers, continuation("shipped"))).await;
    assert_eq!(answered.status(), 200, "{}", text(answered).await);
    let (status, _) = control(&guard, "DELETE", "c", "").await;
    assert_eq!(status, 200);
    let (_, gone) = control(&guard, "GET", "c", "").await;
    assert_eq!(gone["known"], false);
}

#[tokio::test]
async fn observe_holds_nothing_back_and_counts() {
    let upstream = Upstream::start().await;
    let mut policy = policy(&upstream);
    policy.observe = true;
    policy.rules = tigertally::guard::verdict::Rules::all(tigertally::guard::verdict::Action::Note);
    policy.ledger = std::sync::Arc::new(tigertally::ledger::rules::Rules {
        actions: policy.rules.clone(),
        ..tigertally::ledger::rules::Rules::default()
    });
    let guard = guard(policy).await;
    let headers = [("x-conversation-id", "c")];
    let feed = upstream.will_stream();
    let mut body = send(&client(), chat(&guard, &headers, ask(true))).await.into_body();
    let bad = fragment(Some("call_1"), Some("drop_table"), "{}");
    feed.send(Bytes::from(bad.clone())).unwrap();
    assert_eq!(next(&mut body).await.unwrap(), bad);
    let rest = event("{}", Some("tool_calls")) + "data: [DONE]\n\n";
    feed.send(Bytes::from(rest.clone())).unwrap();
    drop(feed);
    let mut got = Vec::new();
    while let Some(bytes) = next(&mut body).await {
        got.extend_from_slice(&bytes);
    }
    assert_eq!(String::from_utf8(got).unwrap(), rest);
    let (_, record) = control(&guard, "GET", "c", "").await;
    assert_eq!(record["calls"][0]["tool"], "drop_table");
    assert_eq!(record["calls"][0]["forced"], true);
}
