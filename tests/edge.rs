//! The client port's edges: routes, limits, draining, HTTP/2.

#![expect(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod rig;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rig::{
    Upstream, ask, chat, client, error, event, fragment, guard, next, policy, send, text, within,
};
use tigertally::proxy::Running;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const ANSWER: &str = r#"{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}"#;

/// One request, written by hand, so that nothing tidies its path.
async fn raw(guard: &Running, request: &str) -> String {
    let mut stream = TcpStream::connect(guard.client_addr).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    within(stream.read_to_string(&mut answer)).await.unwrap();
    answer
}

async fn asked(guard: &Running, method: &str, path: &str) -> String {
    let body = ask(false);
    let length = body.len();
    raw(
        guard,
        &format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        ),
    )
    .await
}

#[tokio::test]
async fn no_second_spelling_of_a_path_goes_around_the_guard() {
    let mut upstream = Upstream::start().await;
    let mut policy = policy(&upstream);
    policy.routes_pass = vec!["/v1/embeddings".to_owned()];
    let guard = guard(policy).await;
    for (method, path) in [
        ("POST", "//v1/chat/completions"),
        ("POST", "/v1/chat/completions/"),
        ("POST", "/v1/chat%2fcompletions"),
        ("POST", "/v1/../v1/chat/completions"),
        ("POST", "/v1/embeddings/../chat/completions"),
        ("POST", "/generate"),
        ("POST", "/v1/responses"),
        ("GET", "/v1/chat/completions"),
        ("GET", "/v1/models/..%2fchat"),
        ("GET", "/guard/v1/conversations/c/writes/k"),
        ("POST", "/guard/v1/conversations/c/calls/k/start/"),
    ] {
        let answer = asked(&guard, method, path).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{method} {path}: {answer}");
        assert!(answer.contains("\"route_closed\""), "{method} {path}: {answer}");
        assert!(answer.contains("x-should-retry: false"), "{answer}");
    }
    let answer = asked(&guard, "GET", "/v1/chat/completions").await;
    assert!(answer.contains("POST only"), "{answer}");
    // Nothing of all that reached the upstream: the first it sees is this.
    let answer = asked(&guard, "POST", "/v1/embeddings?x=1").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(upstream.saw_request().await.0, "/v1/embeddings?x=1");
    let answer = asked(&guard, "GET", "/v1/models/org/name").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(upstream.saw_request().await.0, "/v1/models/org/name");
    let answer = asked(&guard, "GET", "/health").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn bodies_are_bounded_and_the_client_hears_of_it() {
    let mut upstream = Upstream::start().await;
    let mut policy = policy(&upstream);
    policy.limits.body_bytes = 1000;
    let guard = guard(policy).await;
    let large = ask(false).replace("Where is A?", &"x".repeat(4000));
    let response = send(&client(), chat(&guard, &[], large.clone())).await;
    assert_eq!(response.status(), 413);
    let body = text(response).await;
    assert_eq!(error(&body)["code"], "body_too_large");
    assert!(body.contains("1000"));
    let chunked = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{large}\r\n0\r\n\r\n",
        large.len()
    );
    assert!(raw(&guard, &chunked).await.starts_with("HTTP/1.1 413 "));
    upstream.will(rig::json(ANSWER));
    let response = send(&client(), chat(&guard, &[], ask(false))).await;
    assert_eq!(response.status(), 200);
    assert!(!upstream.saw_request().await.2.is_empty());
}

#[tokio::test]
async fn what_is_no_json_is_refused_before_it_is_read() {
    let upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let mut form = chat(&guard, &[], ask(false));
    form.headers_mut().insert("content-type", "text/plain".parse().unwrap());
    let zipped = chat(&guard, &[("content-encoding", "gzip")], ask(false));
    let broken = chat(&guard, &[], "{\"messages\":[");
    for request in [form, zipped, broken] {
        let response = send(&client(), request).await;
        assert_eq!(response.status(), 400);
        let body = text(response).await;
        assert_eq!(error(&body)["code"], "body_invalid");
        assert_eq!(error(&body)["type"], "invalid_request_error");
    }
}

#[tokio::test]
async fn conversation_and_generation_headers_are_checked() {
    let upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let long = "x".repeat(257);
    let cases: [(&str, Vec<(&'static str, &str)>); 7] = [
        ("conversation_invalid", vec![("x-conversation-id", "two words")]),
        ("conversation_invalid", vec![("x-conversation-id", &long)]),
        ("conversation_invalid", vec![("x-conversation-id", "a"), ("x-conversation-id", "b")]),
        ("generation_invalid", vec![("x-conversation-id", "a"), ("x-generation", "-1")]),
        ("generation_invalid", vec![("x-conversation-id", "a"), ("x-generation", "1.0")]),
        (
            "generation_invalid",
            vec![("x-conversation-id", "a"), ("x-generation", "9007199254740992")],
        ),
        (
            "generation_invalid",
            vec![("x-conversation-id", "a"), ("x-generation", "1"), ("x-generation", "2")],
        ),
    ];
    for (code, headers) in cases {
        let response = send(&client(), chat(&guard, &headers, ask(false))).await;
        assert_eq!(response.status(), 400, "{headers:?}");
        assert_eq!(error(&text(response).await)["code"], code, "{headers:?}");
    }
    // The same twice agrees, and without a conversation the generation means nothing.
    for headers in [
        vec![
            ("x-conversation-id", "a"),
            ("x-conversation-id", "a"),
            ("x-generation", "9007199254740991"),
        ],
        vec![("x-generation", "whatever")],
    ] {
        upstream.will(rig::json(ANSWER));
        assert_eq!(send(&client(), chat(&guard, &headers, ask(false))).await.status(), 200);
    }
}

#[tokio::test]
async fn exchanges_in_flight_are_bounded() {
    let mut upstream = Upstream::start().await;
    let mut policy = policy(&upstream);
    policy.limits.exchanges = 1;
    let guard = guard(policy).await;
    let feed = upstream.will_stream();
    let mut first = send(&client(), chat(&guard, &[], ask(true))).await.into_body();
    upstream.saw_request().await;
    let second = send(&client(), chat(&guard, &[], ask(true))).await;
    assert_eq!(second.status(), 503);
    assert!(second.headers().contains_key("retry-after"));
    assert!(!second.headers().contains_key("x-should-retry"));
    assert_eq!(error(&text(second).await)["code"], "overloaded");
    feed.send(Bytes::from(event("{}", Some("stop")))).unwrap();
    drop(feed);
    while next(&mut first).await.is_some() {}
}

#[tokio::test]
async fn draining_lets_exchanges_end_and_takes_no_new_ones() {
    let upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let feed = upstream.will_stream();
    let client = client();
    // A kept-alive connection besides the one that streams.
    let health = format!("http://{}/health", guard.client_addr);
    let get = || Request::get(health.as_str()).body(Full::default()).unwrap();
    let mut body = send(&client, chat(&guard, &[], ask(true))).await.into_body();
    text(send(&client, get()).await).await;
    let admin = guard.admin_addr;
    let late = chat(&guard, &[], ask(true));
    let gateway = std::sync::Arc::clone(guard.gateway());
    let shutdown = tokio::spawn(guard.shutdown());
    within(async {
        while !gateway.is_draining() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let refused = send(&client, late).await;
    assert_eq!(refused.status(), 503);
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(error(&text(refused).await)["code"], "draining");
    let ready = Request::get(format!("http://{admin}/readyz")).body(Full::default()).unwrap();
    let ready = send(&client, ready).await;
    assert_eq!(ready.status(), 503);
    assert!(text(ready).await.contains("\"draining\":true"));
    let last = event("{\"content\":\"still here\"}", Some("stop"));
    feed.send(Bytes::from(last.clone())).unwrap();
    assert_eq!(next(&mut body).await.unwrap(), last);
    drop(feed);
    assert_eq!(next(&mut body).await, None);
    assert!(within(shutdown).await.unwrap());
    assert!(TcpStream::connect(gateway_addr(&health)).await.is_err());
}

fn gateway_addr(url: &str) -> String {
    url.trim_start_matches("http://").trim_end_matches("/health").to_owned()
}

#[tokio::test]
async fn http_2_by_prior_knowledge_streams_as_well() {
    let upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let feed = upstream.will_stream();
    let client: Client<_, Full<Bytes>> =
        Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let response = within(client.request(chat(&guard, &[], ask(true)))).await.unwrap();
    assert_eq!(response.version(), http::Version::HTTP_2);
    let mut body = response.into_body();
    let sent = event("{\"content\":\"a\"}", None);
    feed.send(Bytes::from(sent.clone())).unwrap();
    assert_eq!(next(&mut body).await.unwrap(), sent);
    let held = fragment(Some("call_1"), Some("get_order"), "{\"order_id\":\"A\"}");
    let rest = held + &event("{}", Some("tool_calls"));
    feed.send(Bytes::from(rest.clone())).unwrap();
    drop(feed);
    let mut got = Vec::new();
    while let Some(bytes) = next(&mut body).await {
        got.extend_from_slice(&bytes);
    }
    assert_eq!(String::from_utf8(got).unwrap(), rest);
}
