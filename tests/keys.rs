//! `auth.mode = "keys"`, from the command that makes a key to the answer that it opens.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[expect(dead_code, reason = "what other tests need")]
mod program;
#[expect(dead_code, reason = "what other tests need")]
mod rig;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use rig::{Upstream, ask, chat, client, error, guard, json, policy, send, text};
use std::path::Path;
use std::process::{Command, Output};
use tigertally::policy::{FlagOverrides, Policy, Sources, load};
use tigertally::proxy::Running;

const ANSWER: &str = r#"{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}"#;

fn keys(line: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tigertally")).arg("keys").args(line).output().unwrap()
}

/// Makes a key and gives its text.
fn add(file: &Path, more: &[&str]) -> String {
    let file = file.to_str().unwrap();
    let made = keys(&[&["add", "--file", file][..], more].concat());
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

fn id(key: &str) -> &str {
    key.split('_').nth(1).unwrap()
}

/// The policy with that keys file, read as a start or a reload does.
fn with_keys(upstream: &Upstream, file: &Path) -> Policy {
    let env = [
        ("TIGERTALLY_AUTH__MODE", "keys".to_owned()),
        ("TIGERTALLY_AUTH__KEYS_FILE", file.to_str().unwrap().to_owned()),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value)).to_vec();
    let read = load(Sources { file: None, env, flags: FlagOverrides::default() }).unwrap();
    assert!(read.files.iter().any(|watched| watched.path() == file));
    Policy { auth: read.auth, ..policy(upstream) }
}

/// Asks with a key; the status and the code.
async fn asked(guard: &Running, key: Option<&str>) -> (u16, String) {
    let bearer = key.map(|key| format!("Bearer {key}"));
    let headers: Vec<_> = bearer.iter().map(|it| ("authorization", it.as_str())).collect();
    let response = send(&client(), chat(guard, &headers, ask(false))).await;
    let (status, head) = (response.status().as_u16(), response.headers().clone());
    let body = text(response).await;
    if status == 200 {
        return (status, String::new());
    }
    if status == 401 {
        assert_eq!(head["www-authenticate"], "Bearer");
        assert_eq!(head["x-should-retry"], "false");
    }
    (status, error(&body)["code"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_key_opens_until_it_is_removed_and_what_is_behind_never_sees_it() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("keys.toml");
    let (first, second) = (add(&file, &["--name", "a"]), add(&file, &["--name", "b"]));
    let mut upstream = Upstream::start().await;
    let guard = guard(with_keys(&upstream, &file)).await;
    let refused = (401, "unauthenticated".to_owned());
    for key in [&first, &second] {
        upstream.will(json(ANSWER));
        assert_eq!(asked(&guard, Some(key)).await, (200, String::new()));
        let (_, headers, _) = upstream.saw_request().await;
        assert!(!headers.contains_key("authorization"), "{headers:?}");
    }
    assert_eq!(asked(&guard, None).await, refused);
    assert_eq!(asked(&guard, Some("sk-something")).await, refused);
    // A key that expires in a moment, made while the proxy runs.
    let third = add(&file, &["--name", "c", "--expires", "1500ms"]);
    assert_eq!(asked(&guard, Some(&third)).await, refused);
    guard.gateway().reload(with_keys(&upstream, &file)).unwrap();
    upstream.will(json(ANSWER));
    assert_eq!(asked(&guard, Some(&third)).await.0, 200);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    upstream.will(json(ANSWER));
    while asked(&guard, Some(&third)).await != refused {
        assert!(std::time::Instant::now() < end, "it does not expire");
        upstream.will(json(ANSWER));
    }
    let name = file.to_str().unwrap();
    let listed = String::from_utf8(keys(&["list", "--file", name]).stdout).unwrap();
    assert_eq!(listed.lines().count(), 4, "{listed}");
    assert!(listed.contains("(expired)") && !listed.contains(&first), "{listed}");
    assert!(keys(&["remove", "--file", name, id(&first)]).status.success());
    assert_eq!(keys(&["remove", "--file", name, id(&first)]).status.code(), Some(2));
    guard.gateway().reload(with_keys(&upstream, &file)).unwrap();
    assert_eq!(asked(&guard, Some(&first)).await, refused);
    upstream.will(json(ANSWER));
    assert_eq!(asked(&guard, Some(&second)).await.0, 200);
    let kept = std::fs::read_to_string(&file).unwrap();
    assert!(!kept.contains(second.rsplit('_').next().unwrap()));
}

#[tokio::test]
async fn every_route_but_health_wants_a_key() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("keys.toml");
    let key = add(&file, &["--name", "a"]);
    let upstream = Upstream::start().await;
    let mut policy = with_keys(&upstream, &file);
    policy.routes_pass = vec!["/v1/embeddings".to_owned()];
    let guard = guard(policy).await;
    for (method, path, open) in [
        (Method::GET, "/health", true),
        (Method::GET, "/v1/models", false),
        (Method::GET, "/v1/models/m", false),
        (Method::POST, "/v1/embeddings", false),
        (Method::POST, "/v1/chat/completions", false),
        (Method::GET, "/guard/v1/conversations/c", false),
        (Method::DELETE, "/guard/v1/conversations/c", false),
        (Method::POST, "/guard/v1/conversations/c/generation", false),
        (Method::POST, "/guard/v1/conversations/c/results", false),
        (Method::POST, "/guard/v1/conversations/c/calls/a/start", false),
        (Method::POST, "/guard/v1/conversations/c/writes/k", false),
        (Method::GET, "/guard/v1/nothing", false),
    ] {
        let request = |key: Option<&str>| {
            let request = Request::builder()
                .method(&method)
                .uri(format!("http://{}{path}", guard.client_addr))
                .header("content-type", "application/json");
            let request = match key {
                Some(key) => request.header("authorization", format!("Bearer {key}")),
                None => request,
            };
            request.body(Full::new(Bytes::new())).unwrap()
        };
        let stranger = send(&client(), request(None)).await.status();
        assert_eq!(stranger == 401, !open, "{method} {path}: {stranger}");
        if path != "/v1/chat/completions" {
            let friend = send(&client(), request(Some(&key))).await.status();
            assert_ne!(friend, 401, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn a_key_asks_for_its_models_and_is_proposed_its_tools_only() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("keys.toml");
    let modest = add(&file, &["--name", "a", "--model", "m", "--tool", "get_weather"]);
    let other = add(&file, &["--name", "b", "--model", "n", "--tool", "get_order"]);
    let free = add(&file, &["--name", "c", "--tenant", "t", "--tool", "get_order"]);
    let upstream = Upstream::start().await;
    let mut policy = with_keys(&upstream, &file);
    policy.routes_pass = vec!["/v1/embeddings".to_owned()];
    let guard = guard(policy).await;
    assert_eq!(asked(&guard, Some(&other)).await, (403, "model_not_allowed".to_owned()));
    upstream.will(json(ANSWER));
    assert_eq!(asked(&guard, Some(&modest)).await.0, 200);
    let call = r#"{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"get_order","arguments":"{\"order_id\":\"A\"}"}}]},"finish_reason":"tool_calls"}]}"#;
    upstream.will(json(call));
    assert_eq!(asked(&guard, Some(&modest)).await, (422, "tool_not_allowed".to_owned()));
    upstream.will(json(call));
    assert_eq!(asked(&guard, Some(&free)).await.0, 200);
    // What is forwarded unread could ask for anything.
    let request = Request::post(format!("http://{}/v1/embeddings", guard.client_addr))
        .header("authorization", format!("Bearer {free}"))
        .body(Full::new(Bytes::from("{}")))
        .unwrap();
    assert_eq!(send(&client(), request).await.status(), 403);
}

/// The built program: what its log says of strangers, and a key that comes while it runs.
#[tokio::test]
async fn the_log_tells_the_reason_and_never_a_key_and_hangup_takes_new_keys() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("keys.toml");
    let key = add(&file, &["--name", "somebody", "--tenant", "somewhere"]);
    let upstream = Upstream::start().await;
    let env = [
        ("TIGERTALLY_AUTH__MODE", "keys"),
        ("TIGERTALLY_AUTH__KEYS_FILE", file.to_str().unwrap()),
        ("NO_COLOR", "1"),
    ];
    let status = async |url: &str, path: &str, key: &str| {
        let request = Request::get(format!("{url}{path}"))
            .header("authorization", format!("Bearer {key}"))
            .body(Full::new(Bytes::new()))
            .unwrap();
        client().request(request).await.map(|answer| answer.status().as_u16()).unwrap_or(0)
    };
    let answers = async |url: &str| status(url, "/health", "").await == 200;
    let url = format!("http://{}", upstream.addr);
    let program = program::Program::start(&url, &env, answers).await;
    assert_eq!(status(&program.url, "/v1/models", &key).await, 200);
    let mut wrong = key.clone();
    wrong.replace_range(key.len() - 1.., if key.ends_with('a') { "b" } else { "a" });
    assert_eq!(status(&program.url, "/v1/models", &wrong).await, 401);
    let stranger = add(&scratch.path().join("others.toml"), &["--name", "other"]);
    assert_eq!(status(&program.url, "/v1/models", &stranger).await, 401);
    let new = add(&file, &["--name", "other"]);
    let hangup = Command::new("kill").args(["-s", "HUP", &program.id().to_string()]).status();
    assert!(hangup.unwrap().success());
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while status(&program.url, "/v1/models", &new).await != 200 {
        assert!(std::time::Instant::now() < end, "{}", program.log());
    }
    let log = program.log();
    for words in [
        "scheme=\"http\" auth=\"keys\"",
        &format!("reason=\"not the key with the id {}\"", id(&key)),
        &format!("reason=\"no key has the id {}\"", id(&stranger)),
    ] {
        assert!(log.contains(words), "{words}\n{log}");
    }
    for secret in [&key, &wrong, &stranger, &new] {
        assert!(!log.contains(secret.rsplit('_').next().unwrap()), "{log}");
    }
    assert!(!log.contains("somebody") && !log.contains("somewhere"), "{log}");
}
