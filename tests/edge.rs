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
    // What is JSON by another name, or says nothing of itself, passes.
    for (name, value) in [
        ("content-type", "application/json; charset=utf-8"),
        ("content-type", "Application/Vnd.api+JSON"),
        ("content-encoding", "identity"),
    ] {
        let mut request = chat(&guard, &[], ask(false));
        request.headers_mut().insert(name, value.parse().unwrap());
        upstream.will(rig::json(ANSWER));
        assert_eq!(send(&client(), request).await.status(), 200, "{name}: {value}");
    }
    let mut silent = chat(&guard, &[], ask(false));
    silent.headers_mut().remove("content-type");
    upstream.will(rig::json(ANSWER));
    assert_eq!(send(&client(), silent).await.status(), 200);
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
    // The longest that may be; the same twice agrees; without a conversation the generation means nothing.
    for headers in [
        vec![("x-conversation-id", &long[1..])],
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
    // The place is free again once the first has ended.
    upstream.will(rig::json(ANSWER));
    let third = within(async {
        loop {
            let third = send(&client(), chat(&guard, &[], ask(false))).await;
            if third.status() != 503 {
                return third;
            }
        }
    })
    .await;
    assert_eq!(third.status(), 200);
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

#[tokio::test]
async fn what_is_no_final_answer_of_the_upstream_does_not_lead_around_the_guard() {
    let upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let answer = |status: u16| rig::Answer::Whole {
        status,
        headers: vec![("location", "http://127.0.0.1:9/v1/chat/completions")],
        body: Bytes::from_static(b"{\"error\":{\"message\":\"theirs\"}}"),
    };
    for status in [101, 300, 301, 302, 303, 304, 307, 308] {
        for stream in [false, true] {
            upstream.will(answer(status));
            let response = send(&client(), chat(&guard, &[], ask(stream))).await;
            assert_eq!(response.status(), 502, "{status}");
            assert!(!response.headers().contains_key("location"), "{status}");
            assert_eq!(error(&text(response).await)["code"], "upstream_invalid", "{status}");
        }
    }
    for status in [400, 404, 429, 500, 503] {
        upstream.will(answer(status));
        let response = send(&client(), chat(&guard, &[], ask(false))).await;
        assert_eq!(response.status(), status);
        assert_eq!(error(&text(response).await)["message"], "theirs");
    }
}

#[tokio::test]
async fn a_redirect_is_not_passed_down_on_open_routes_either() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = Upstream::start().await;
    let mut policy = policy(&upstream);
    policy.upstream.url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    policy.routes_pass = vec!["/v1/embeddings".to_owned()];
    let guard = guard(policy).await;
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await;
            let answer = "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    for (method, path) in [("GET", "/v1/models"), ("POST", "/v1/embeddings")] {
        let answer = asked(&guard, method, path).await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
        assert!(answer.contains("upstream_invalid") && !answer.contains("location"), "{answer}");
    }
}

#[tokio::test]
async fn a_client_without_v1_in_its_base_url_is_told_so() {
    let upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let answer = asked(&guard, "POST", "/chat/completions").await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("route_closed"), "{answer}");
    assert!(answer.contains("/v1/chat/completions: a client's base URL ends in /v1"), "{answer}");
}

#[tokio::test]
async fn a_port_in_use_names_the_flag_that_chooses_another() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = Upstream::start().await;
    for (flag, admin) in [("--listen", false), ("--admin-listen", true)] {
        let mut policy = policy(&upstream);
        let address = taken.local_addr().unwrap();
        if admin {
            policy.admin.listen = address
        } else {
            policy.listen = address
        }
        let told = tigertally::cli::serve::start(policy).await.unwrap_err().to_string();
        assert!(told.contains(&address.to_string()) && told.ends_with(flag), "{told}");
    }
}

async fn metrics(admin: std::net::SocketAddr) -> String {
    let request = Request::get(format!("http://{admin}/metrics")).body(Full::default()).unwrap();
    text(send(&client(), request).await).await
}

/// The drain's end comes while a stream writes, while calls are held, and while a whole answer is waited
/// for: each client hears that, and none is counted as gone.
#[tokio::test]
async fn what_a_drain_cuts_off_is_told_so_and_counted_as_withheld() {
    let mut upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let measured = guard.gateway().metrics().clone();
    let feed = upstream.will_stream();
    let mut writing = send(&client(), chat(&guard, &[], ask(true))).await.into_body();
    let piece = event("{\"content\":\"One mom\"}", None);
    feed.send(Bytes::from(piece.clone())).unwrap();
    assert_eq!(next(&mut writing).await.unwrap(), piece);
    let calls = upstream.will_stream();
    let held = send(&client(), chat(&guard, &[], ask(true))).await;
    calls.send(Bytes::from(fragment(Some("call_1"), Some("get_order"), "{}"))).unwrap();
    upstream.saw_request().await;
    upstream.saw_request().await;
    upstream.will(rig::Answer::Silence);
    let waiting = tokio::spawn(client().request(chat(&guard, &[], ask(false))));
    upstream.saw_request().await;
    let (hurry, hurried) = tokio::sync::oneshot::channel::<()>();
    let shutdown = tokio::spawn(guard.shutdown_unless(async move { drop(hurried.await) }));
    hurry.send(()).unwrap();
    let refused = within(waiting).await.unwrap().unwrap();
    assert_eq!(refused.status(), 503);
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(error(&text(refused).await)["code"], "draining");
    for body in
        [text(held).await, String::from_utf8(next(&mut writing).await.unwrap().into()).unwrap()]
    {
        let event = body.strip_prefix("data: ").unwrap();
        assert_eq!(error(event)["code"], "draining");
    }
    assert_eq!(next(&mut writing).await, None);
    assert!(!within(shutdown).await.unwrap());
    let counted = measured.encode();
    let count =
        |outcome| format!("tigertally_exchanges_total{{outcome=\"{outcome}\",route=\"chat\"}}");
    assert!(counted.contains(&(count("withheld") + " 3")), "{counted}");
    assert!(counted.contains(&(count("client_gone") + " 0")), "{counted}");
}

/// An exchange keeps the configuration that it began with; the next one has the new one.
#[tokio::test]
async fn a_reload_changes_what_comes_next_and_nothing_in_flight() {
    let upstream = Upstream::start().await;
    let first = policy(&upstream);
    let guard = guard(first.clone()).await;
    let feed = upstream.will_stream();
    let mut body = send(&client(), chat(&guard, &[], ask(true))).await.into_body();
    let mut changed = first;
    changed.tools.allow = Some(vec!["other".to_owned()]);
    changed.limits.exchanges = 1;
    assert_eq!(guard.gateway().reload(changed).unwrap(), ["limits.exchanges"]);
    let call = fragment(Some("call_1"), Some("get_order"), "{\"order_id\":\"A\"}");
    let sent = call + &event("{}", Some("tool_calls")) + "data: [DONE]\n\n";
    feed.send(Bytes::from(sent.clone())).unwrap();
    drop(feed);
    let mut got = Vec::new();
    while let Some(bytes) = next(&mut body).await {
        got.extend_from_slice(&bytes);
    }
    assert_eq!(String::from_utf8(got).unwrap(), sent);
    let feed = upstream.will_stream();
    feed.send(Bytes::from(sent)).unwrap();
    drop(feed);
    let got = text(send(&client(), chat(&guard, &[], ask(true))).await).await;
    assert!(got.contains("tool_not_allowed") && !got.contains("call_1\",\"type"), "{got}");
    assert!(metrics(guard.admin_addr).await.contains("tool=\"other\""));
}

/// The upstream and its key can change while the proxy runs, aborts included.
#[tokio::test]
async fn a_reload_can_name_another_upstream() {
    let before = Upstream::start().await;
    let mut after = Upstream::start().await;
    let first = policy(&before);
    let guard = guard(first.clone()).await;
    let mut changed = first;
    changed.upstream.url = policy(&after).upstream.url;
    changed.upstream.api_key = Some(tigertally::policy::Secret::new("new".to_owned()));
    assert!(guard.gateway().reload(changed).unwrap().is_empty());
    let feed = after.will_stream();
    let body = send(&client(), chat(&guard, &[], ask(true))).await;
    let (path, headers, _) = after.saw_request().await;
    assert_eq!(
        (path.as_str(), &headers["authorization"]),
        (rig::CHAT, &"Bearer new".parse::<http::HeaderValue>().unwrap())
    );
    drop(body);
    let (path, headers, _) = after.saw_request().await;
    assert_eq!(
        (path.as_str(), &headers["authorization"]),
        ("/abort_request", &"Bearer new".parse::<http::HeaderValue>().unwrap())
    );
    drop(feed);
}

#[tokio::test]
async fn unknown_keys_of_control_bodies_are_refused_by_name() {
    let upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let post = |call: &str, body: &str| {
        let url = format!("http://{}/guard/v1/conversations/c/{call}", guard.client_addr);
        Request::post(url).body(Full::new(Bytes::from(body.to_owned()))).unwrap()
    };
    for (call, body, key) in [
        ("generation", r#"{"Generation":50}"#, "Generation"),
        (
            "results",
            r#"{"generation":1,"tool_call_id":"a","content":"x","attempts":2}"#,
            "attempts",
        ),
    ] {
        let response = send(&client(), post(call, body)).await;
        assert_eq!(response.status(), 400, "{body}");
        let told = error(&text(response).await);
        assert_eq!((&told["code"], &told["param"]), (&"body_invalid".into(), &key.into()));
    }
    let response = send(&client(), post("generation", r#"{"generation":50}"#)).await;
    assert_eq!(response.status(), 200);
}
