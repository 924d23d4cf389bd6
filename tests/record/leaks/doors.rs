//! Keys, tokens and handshakes: what opens a door, and what does not, is told to nobody.

use super::{MARK, Upstream, clean, question, until};
use crate::issuer::{Signer, claims, now};
use crate::program::Program;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The program at level `trace`, once its client port takes connections.
async fn program(upstream: &str, env: &[(&str, &str)]) -> Program {
    let env: Vec<_> = [("RUST_LOG", "trace")].into_iter().chain(env.iter().copied()).collect();
    let answers =
        async |url: &str| TcpStream::connect(url.trim_start_matches("http://")).await.is_ok();
    Program::start(upstream, &env, answers).await
}

/// A chat request with that credential: the status, and what was said unless it is an answer.
async fn asked(program: &Program, authorization: &str) -> (u16, String) {
    let request = reqwest::Client::new()
        .post(format!("{}/v1/chat/completions", program.url))
        .header("content-type", "application/json")
        .header("authorization", authorization);
    let answer = request.body(question("s3cr3t-argument")).send().await.unwrap();
    let status = answer.status().as_u16();
    let head = format!("{:?}", answer.headers());
    let text = head + &answer.text().await.unwrap();
    (status, if status == 200 { String::new() } else { text })
}

/// Asks with each of them, and looks for the marks in all that is said of it.
async fn try_all(program: &Program, credentials: &[(&str, u16)], marks: &[&str]) {
    for (credential, wanted) in credentials {
        let (status, said) = asked(program, credential).await;
        assert_eq!(status, *wanted, "{said}");
        clean("an answer", &said, marks);
    }
    let log = program.log();
    assert!(log.contains("TRACE"));
    clean("log", &log, marks);
    let metrics = reqwest::get(format!("{}/metrics", program.admin)).await.unwrap();
    clean("metrics", &metrics.text().await.unwrap(), marks);
    let list = reqwest::get(format!("{}/admin/v1/conversations", program.admin)).await.unwrap();
    clean("console", &list.text().await.unwrap(), marks);
}

fn keys(line: &[&str], file: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tigertally"));
    let output =
        command.args(["keys", line[0], "--file"]).arg(file).args(&line[1..]).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[tokio::test]
async fn keys_of_clients() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("keys.toml");
    let key = keys(&["add", "--name", "a"], &file);
    let secret = key.rsplit('_').next().unwrap();
    assert!(secret.len() > 16, "{key}");
    clean("the keys file", &std::fs::read_to_string(&file).unwrap(), &[secret]);
    clean("the list of keys", &keys(&["list"], &file), &[secret]);
    let upstream = Upstream::start().await;
    upstream.reply_with(super::text());
    let env =
        [("TIGERTALLY_AUTH__MODE", "keys"), ("TIGERTALLY_AUTH__KEYS_FILE", file.to_str().unwrap())];
    let program = program(&upstream.url, &env).await;
    let wrong = format!("Bearer {}x", &key[..key.len() - 1]);
    let (good, cut) = (format!("Bearer {key}"), format!("Bearer {}", &key[..key.len() - 4]));
    let credentials = [
        (good.as_str(), 200),
        (&wrong, 401),
        (&cut, 401),
        ("Bearer s3cr3t", 401),
        ("Basic czNjcjN0OnMzY3IzdA==", 401),
        ("s3cr3t", 401),
    ];
    let cut = &secret[..secret.len() - 4];
    try_all(&program, &credentials, &[MARK, cut, "czNjcjN0"]).await;
}

#[tokio::test]
async fn tokens_of_an_issuer() {
    let (signer, stranger) = (Signer::rsa("r", false), Signer::rsa("r", true));
    let pem = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/jwt/rsa_a.pub.pem");
    let upstream = Upstream::start().await;
    upstream.reply_with(super::text());
    let env = [
        ("TIGERTALLY_AUTH__MODE", "jwt"),
        ("TIGERTALLY_AUTH__PUBLIC_KEY_FILE", pem),
        ("TIGERTALLY_AUTH__ISSUER", crate::issuer::ISSUER),
        ("TIGERTALLY_AUTH__AUDIENCE", crate::issuer::AUDIENCE),
    ];
    let program = program(&upstream.url, &env).await;
    let marked = |key: &str, value: Value| {
        let mut claims = claims("a");
        claims["email"] = "s3cr3t@example.com".into();
        claims[key] = value;
        claims
    };
    let none = json!({ "alg": "none" });
    let tokens = [
        (signer.token(&signer.header(), &marked("x", Value::Null)), 200),
        (signer.token(&signer.header(), &marked("exp", (now() - 600).into())), 401),
        (signer.token(&signer.header(), &marked("aud", "s3cr3t".into())), 401),
        (signer.token(&signer.header(), &marked("iss", "s3cr3t".into())), 401),
        (signer.token(&signer.header(), &marked("sub", json!({ "s3cr3t": 1 }))), 401),
        (signer.token(&none, &marked("x", Value::Null)), 401),
        (stranger.token(&stranger.header(), &marked("x", Value::Null)), 401),
        ("s3cr3t.s3cr3t.s3cr3t".to_owned(), 401),
    ];
    let bearers: Vec<(String, u16)> =
        tokens.iter().map(|(token, status)| (format!("Bearer {token}"), *status)).collect();
    let credentials: Vec<(&str, u16)> =
        bearers.iter().map(|(bearer, status)| (bearer.as_str(), *status)).collect();
    // Claims and signatures, as they are in a token.
    let mut marks: Vec<&str> =
        tokens.iter().flat_map(|(token, _)| token.split('.').skip(1)).collect();
    marks.push(MARK);
    try_all(&program, &credentials, &marks).await;
}

#[tokio::test]
async fn the_operators_token() {
    let program =
        program("http://127.0.0.1:9", &[("TIGERTALLY_ADMIN__TOKEN", "s3cr3t-admin")]).await;
    for (token, wanted) in [("s3cr3t-admin", 200), ("s3cr3t-wrong", 401), ("", 401)] {
        let request = reqwest::Client::new().get(format!("{}/admin/v1/overview", program.admin));
        let answer = request.bearer_auth(token).send().await.unwrap();
        assert_eq!(answer.status(), wanted);
        clean("the admin port", &answer.text().await.unwrap(), &[MARK]);
    }
    clean("log", &program.log(), &[MARK]);
}

#[tokio::test]
async fn handshakes_that_fail_on_either_side() {
    let scratch = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| scratch.path().join(name));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let env = [
        ("TIGERTALLY_TLS__CERT_FILE", cert.to_str().unwrap()),
        ("TIGERTALLY_TLS__KEY_FILE", key.to_str().unwrap()),
    ];
    let secure = program("http://127.0.0.1:9", &env).await;
    let mut wire = TcpStream::connect(secure.url.trim_start_matches("http://")).await.unwrap();
    let plain = b"POST /?key=s3cr3t HTTP/1.1\r\nauthorization: Bearer s3cr3t\r\n\r\ns3cr3t";
    wire.write_all(plain).await.unwrap();
    let mut said = Vec::new();
    let _ = wire.read_to_end(&mut said).await;
    until("no failed handshake", async || {
        let metrics = reqwest::get(format!("{}/metrics", secure.admin)).await.unwrap();
        let text = metrics.text().await.unwrap();
        text.lines().any(|line| {
            line.starts_with("tigertally_handshakes_failed_total") && !line.ends_with(" 0")
        })
    })
    .await;
    let key = made.signing_key.serialize_pem();
    clean("log", &secure.log(), &[MARK, key.lines().nth(1).unwrap()]);
    clean("what the client got", &String::from_utf8_lossy(&said), &[MARK]);

    // An upstream that does not speak TLS, and one that is not there.
    let upstream = Upstream::start().await;
    for url in [upstream.url.replace("http:", "https:"), "http://127.0.0.1:9".to_owned()] {
        let program =
            program(&url, &[("TIGERTALLY_UPSTREAM__API_KEY", "s3cr3t-upstream-key")]).await;
        try_all(&program, &[("Bearer s3cr3t", 502)], &[MARK]).await;
    }
}
