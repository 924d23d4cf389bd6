//! The console's port side: headers, paging, bounds, and that ids from traffic reach the page as data only.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]
#![expect(dead_code, reason = "not every test needs all of the rig")]

mod rig;

use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use rig::{HttpClient, Upstream, ask, chat, client, guard, json, next, policy, send, text, within};
use serde_json::Value;
use std::time::Duration;
use tigertally::proxy::Running;

const HOSTILE: &str = r#""><img/src=x/onerror=alert(1)>"#;

async fn get(guard: &Running, path: &str, headers: &[(&'static str, &str)]) -> Response<Incoming> {
    let mut request = Request::new(Full::default());
    *request.uri_mut() = format!("http://{}{path}", guard.admin_addr).parse().unwrap();
    for (name, value) in headers {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    send(&client(), request).await
}

async fn read(guard: &Running, path: &str) -> Value {
    serde_json::from_str(&text(get(guard, path, &[]).await).await).unwrap()
}

/// Reads until it is as wanted: what is told reaches the board a moment later.
async fn until(guard: &Running, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    within(async {
        loop {
            let told = read(guard, path).await;
            if wanted(&told) {
                return told;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

fn completion(message: &str, finish: &str) -> String {
    format!(
        r#"{{"id":"x","object":"chat.completion","choices":[{{"index":0,"message":{message},"finish_reason":"{finish}"}}]}}"#
    )
}

fn answer() -> String {
    completion(r#"{"role":"assistant","content":"Hello."}"#, "stop")
}

async fn talk(guard: &Running, client: &HttpClient, name: &str, body: &str) -> u16 {
    let response = send(client, chat(guard, &[("x-conversation-id", name)], body.to_owned())).await;
    let status = response.status().as_u16();
    text(response).await;
    status
}

fn is_guarded(headers: &HeaderMap, path: &str) {
    let policy = headers["content-security-policy"].to_str().unwrap();
    for part in
        ["default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"]
    {
        assert!(policy.contains(part), "{path}: {policy}");
    }
    assert!(!policy.contains("unsafe") && !policy.contains('*'), "{path}: {policy}");
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        assert_eq!(headers[name], value, "{path}");
    }
}

#[tokio::test]
async fn every_answer_bears_the_policy_and_its_own_type() {
    let upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    for (path, media) in [
        ("/console", "text/html; charset=utf-8"),
        ("/console/app.js", "text/javascript; charset=utf-8"),
        ("/console/timeline.js", "text/javascript; charset=utf-8"),
        ("/console/style.css", "text/css; charset=utf-8"),
        ("/console/icon.svg", "image/svg+xml"),
        ("/admin/v1/overview", "application/json"),
        ("/admin/v1/conversations", "application/json"),
        ("/admin/v1/conversations/untracked", "application/json"),
        ("/admin/v1/events", "text/event-stream"),
    ] {
        let response = get(&guard, path, &[]).await;
        assert_eq!(response.status(), 200, "{path}");
        assert_eq!(response.headers()["content-type"], media, "{path}");
        is_guarded(response.headers(), path);
    }
    for bad in ["%3Cimg%20src=x%3E", "..%2f..", "zz"] {
        let path = format!("/admin/v1/conversations/{bad}");
        assert_eq!(get(&guard, &path, &[]).await.status(), 404, "{bad}");
    }
    assert_eq!(get(&guard, "/admin/v1/conversations?state=shut", &[]).await.status(), 400);
    guard.shutdown().await;
}

#[tokio::test]
async fn other_sites_see_nothing_and_the_token_opens_what_the_page_shows() {
    let upstream = Upstream::start().await;
    let mut policy = policy(&upstream);
    policy.admin.token = Some(tigertally::policy::Secret::new("operators-only".to_owned()));
    let guard = guard(policy).await;
    let elsewhere: &[(&'static str, &str)] = &[("origin", "http://evil.example")];
    assert_eq!(get(&guard, "/console", elsewhere).await.status(), 403);
    assert_eq!(get(&guard, "/console", &[]).await.status(), 200, "it holds nothing");
    for path in ["/admin/v1/overview", "/admin/v1/conversations", "/admin/v1/events"] {
        assert_eq!(get(&guard, path, &[]).await.status(), 401, "{path}");
        let shown: &[(&'static str, &str)] = &[("authorization", "Bearer operators-only")];
        assert_eq!(get(&guard, path, shown).await.status(), 200, "{path}");
    }
    guard.shutdown().await;
}

#[tokio::test]
async fn ids_and_names_reach_the_page_as_they_came_and_contents_never() {
    let upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let client = client();
    let hostile = serde_json::to_string(HOSTILE).unwrap();
    let offers = ask(false).replace("\"get_order\"", &hostile);
    let call = format!(
        r#"{{"role":"assistant","content":null,"tool_calls":[{{"id":{hostile},"type":"function","function":{{"name":{hostile},"arguments":"{{\"order_id\":\"MARK-ARGUMENT\"}}"}}}}]}}"#
    );
    upstream.will(json(&completion(&call, "tool_calls")));
    assert_eq!(talk(&guard, &client, HOSTILE, &offers).await, 200);
    let unpaired = r#"{"model":"m","messages":[{"role":"user","content":"MARK-PROMPT"},{"role":"tool","tool_call_id":"<b>","content":"MARK-RESULT"}]}"#;
    assert_eq!(talk(&guard, &client, HOSTILE, unpaired).await, 400);
    let list =
        until(&guard, "/admin/v1/conversations", |told| told["rows"][0]["exchanges"] == 2).await;
    let row = &list["rows"][0];
    assert_eq!((&row["name"], &row["last_code"]), (&HOSTILE.into(), &"orphan_result".into()));
    let handle = row["handle"].as_str().unwrap();
    assert!(handle.len() == 64 && handle.bytes().all(|digit| digit.is_ascii_hexdigit()));
    let one = read(&guard, &format!("/admin/v1/conversations/{handle}")).await;
    assert_eq!(one["record"]["calls"][0]["tool_call_id"], HOSTILE);
    assert_eq!(one["record"]["calls"][0]["tool"], HOSTILE);
    let fault = &one["exchanges"][1]["faults"][0];
    assert_eq!(fault["code"], "orphan_result");
    assert!(!fault["recovery"].as_str().unwrap().is_empty());
    let told = format!("{list}{one}");
    assert!(!told.contains("MARK-"), "{told}");
    guard.shutdown().await;
}

#[tokio::test]
async fn pages_follow_one_another_and_a_code_filters_them() {
    let upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let client = client();
    for n in 0..7 {
        upstream.will(json(&answer()));
        assert_eq!(talk(&guard, &client, &format!("chat-{n}"), &ask(false)).await, 200);
    }
    assert_eq!(talk(&guard, &client, "chat-3", "{").await, 400);
    let first = "/admin/v1/conversations?limit=3";
    let page =
        until(&guard, first, |told| told["held"] == 7 && told["rows"][0]["refused"] == 1).await;
    let names = |page: &Value| -> Vec<String> {
        let rows = page["rows"].as_array().unwrap();
        rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    };
    let mut told = names(&page);
    let mut before = page["next"].clone();
    while let Some(number) = before.as_u64() {
        let page = read(&guard, &format!("{first}&before={number}")).await;
        told.extend(names(&page));
        before = page["next"].clone();
    }
    assert_eq!(told, ["chat-3", "chat-6", "chat-5", "chat-4", "chat-2", "chat-1", "chat-0"]);
    let refused = read(&guard, "/admin/v1/conversations?code=body_invalid").await;
    assert_eq!(names(&refused), ["chat-3"]);
    let named = read(&guard, "/admin/v1/conversations?text=chat-5&state=completed").await;
    assert_eq!(names(&named), ["chat-5"]);
    assert_eq!(named["exact"], named["rows"][0]["handle"]);
    guard.shutdown().await;
}

/// A page reads the list, and then listens: what happens between the two is told all the same.
#[tokio::test]
async fn what_changed_after_the_list_was_read_is_told_at_once() {
    let upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let before = read(&guard, "/admin/v1/conversations").await;
    upstream.will(json(&answer()));
    assert_eq!(talk(&guard, &client(), "chat", &ask(false)).await, 200);
    let told = until(&guard, "/admin/v1/conversations", |told| {
        told["rows"][0]["ended"] == "completed" && told["rows"][0]["under_way"] == 0
    })
    .await;
    let handle = told["rows"][0]["handle"].as_str().unwrap();
    for (after, is_news) in [
        (before["changes"].as_u64(), true),
        (told["changes"].as_u64(), false),
        (None, false),
        // The number of an earlier start.
        (Some(u64::MAX), true),
    ] {
        let query = after.map(|after| format!("?after={after}")).unwrap_or_default();
        let mut listener = get(&guard, &format!("/admin/v1/events{query}"), &[]).await.into_body();
        let first = String::from_utf8(next(&mut listener).await.unwrap().to_vec()).unwrap();
        assert_eq!(first.contains(handle), is_news, "{after:?}: {first}");
    }
    guard.shutdown().await;
}

#[tokio::test]
async fn listeners_are_told_of_changes_are_bounded_and_end_with_the_proxy() {
    let upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let mut listeners = Vec::new();
    for _ in 0..16 {
        let mut listener = get(&guard, "/admin/v1/events", &[]).await.into_body();
        assert!(next(&mut listener).await.unwrap().starts_with(b"event: pulse\n"));
        listeners.push(listener);
    }
    assert_eq!(get(&guard, "/admin/v1/events", &[]).await.status(), 503);
    assert_eq!(get(&guard, "/livez", &[]).await.status(), 200, "probes still have a place");
    upstream.will(json(&answer()));
    assert_eq!(talk(&guard, &client(), "chat", &ask(false)).await, 200);
    let handle = until(&guard, "/admin/v1/conversations", |told| told["held"] == 1).await;
    let handle = handle["rows"][0]["handle"].as_str().unwrap().to_owned();
    let mut listener = listeners.pop().unwrap();
    let told = within(async {
        loop {
            let told = String::from_utf8(next(&mut listener).await.unwrap().to_vec()).unwrap();
            if told.contains(&handle) {
                return told;
            }
        }
    })
    .await;
    assert!(told.contains("\"delivered\":1"), "{told}");
    listeners.push(listener);
    let down = tokio::time::timeout(Duration::from_secs(8), guard.shutdown());
    assert!(down.await.unwrap(), "pages that listen hold nothing up");
}
