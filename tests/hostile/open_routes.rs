//! A route that the operator opened goes up as it comes, unread: within the same bounds, and what breaks off is never
//! taken for whole.

use super::recorder::Recorder;
use super::{Raw, guard, in_flight, policy};
use std::time::Duration;

const MOST: usize = 64 << 10;

fn post(lines: &str, body: &str) -> String {
    format!("POST /v1/embeddings HTTP/1.1\r\nhost: x\r\n{lines}\r\n{body}")
}

async fn started() -> (Recorder, tigertally::proxy::Running) {
    let upstream = Recorder::start().await;
    let mut policy = policy(&upstream);
    policy.routes_pass = vec!["/v1/embeddings".to_owned()];
    policy.limits.body_bytes = MOST;
    policy.limits.header_read_timeout = Duration::from_millis(500);
    let guard = guard(policy).await;
    (upstream, guard)
}

#[tokio::test]
async fn what_is_sound_goes_up_as_it_is() {
    let (upstream, guard) = started().await;
    let long = "a".repeat(MOST);
    for (name, lines, body, wanted) in [
        ("a length", "content-length: 5\r\n", "hello", "hello"),
        ("all that may be", "content-length: 65536\r\n", long.as_str(), long.as_str()),
        ("coded", "content-encoding: gzip\r\ncontent-length: 3\r\n", "\u{1f}zz", "\u{1f}zz"),
        (
            "chunks",
            "transfer-encoding: chunked\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
        ),
    ] {
        let mut client = Raw::connect(guard.client_addr).await;
        client.send(post(lines, body)).await;
        let answer = client.answer().await.unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (200, "{}"), "{name}: {answer:?}");
        let up = upstream.other().pop().unwrap();
        assert_eq!(String::from_utf8(up.body).unwrap(), wanted, "{name}");
        assert_eq!(up.head.contains("\r\ncontent-encoding: gzip\r\n"), name == "coded", "{name}");
    }
    assert_eq!(upstream.half(), 0);
}

#[tokio::test]
async fn what_is_not_does_not_go_up_whole() {
    let (upstream, guard) = started().await;
    let chunk = format!("{:x}\r\n{}\r\n", MOST, "a".repeat(MOST));
    for (name, lines, body, status, code) in [
        ("announced too large", "content-length: 65537\r\n", "a", 413, "body_too_large"),
        ("too large", "transfer-encoding: chunked\r\n", &chunk.repeat(2), 413, "body_too_large"),
        ("late", "content-length: 9\r\n", "a", 400, "body_invalid"),
        (
            "chunks that are none",
            "transfer-encoding: chunked\r\n",
            "5\r\nhelloxyz",
            400,
            "body_invalid",
        ),
    ] {
        let mut client = Raw::connect(guard.client_addr).await;
        client.send(post(lines, body)).await;
        let answer = client.answer().await.unwrap();
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{name}: {answer:?}");
        in_flight(&guard, 0).await;
        upstream.until(name, |up| up.open() == 0).await;
    }
    let mut client = Raw::connect(guard.client_addr).await;
    client.send(post("content-length: 9\r\n", "a")).await;
    in_flight(&guard, 1).await;
    drop(client);
    in_flight(&guard, 0).await;
    upstream.until("who leaves", |up| up.open() == 0).await;
    assert!(upstream.other().is_empty());
}
