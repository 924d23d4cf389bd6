//! Clients that take their time. Each wait has its bound; what ends at it is told apart, and who is merely slow is
//! served. Times here are lower bounds of what is waited for: an upper one is that the test ends.

use super::recorder::Recorder;
use super::{BODY, Raw, chat, guard, in_flight, passes, policy, sound};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(1);
const A_BIT: Duration = Duration::from_millis(20);

async fn started() -> (Recorder, tigertally::proxy::Running) {
    let upstream = Recorder::start().await;
    let mut policy = policy(&upstream);
    policy.limits.header_read_timeout = PATIENCE;
    let guard = guard(policy).await;
    (upstream, guard)
}

/// Sends a byte at a time until the other side has had enough.
async fn dribbles(client: &mut Raw, bytes: &str) {
    for byte in bytes.bytes().cycle() {
        if !client.is_open() || !client.send([byte]).await {
            return;
        }
        tokio::time::sleep(A_BIT).await;
    }
}

#[tokio::test]
async fn a_head_has_a_bound_from_its_first_byte() {
    let (upstream, guard) = started().await;
    // Of the first request on a connection, and of one on a connection that is kept.
    for kept in [false, true] {
        for (name, start, rest) in [
            ("nothing", "", ""),
            ("a piece", "POST /v1/chat/comp", ""),
            ("a byte now and then", "POST /v1/chat/completions HTTP/1.1\r\nx-a: ", "a"),
            ("a header now and then", "POST /v1/chat/completions HTTP/1.1\r\n", "x-a: b\r\n"),
        ] {
            if kept && start.is_empty() {
                continue;
            }
            let mut client = Raw::connect(guard.client_addr).await;
            if kept {
                passes(&mut client, &upstream).await;
            }
            let began = Instant::now();
            client.send(start).await;
            if !rest.is_empty() {
                dribbles(&mut client, rest).await;
            }
            assert!(client.ends_silently().await, "{name}, kept: {kept}");
            assert!(began.elapsed() >= PATIENCE, "{name}, kept: {kept}");
        }
    }
    // As slow, and in time.
    let mut client = Raw::connect(guard.client_addr).await;
    for piece in sound(BODY).as_bytes().chunks(64) {
        client.send(piece).await;
        tokio::time::sleep(A_BIT).await;
    }
    assert_eq!(client.answer().await.unwrap().status, 200);
    assert_eq!(upstream.half(), 0);
}

#[tokio::test]
async fn a_body_must_come_on_and_at_some_pace() {
    let (upstream, guard) = started().await;
    let head = chat(&format!("content-length: {}\r\n", BODY.len()), "");
    let chunked = chat("transfer-encoding: chunked\r\n", "");
    for (name, start, rest) in [
        ("no body", head.clone(), ""),
        ("a piece of a body", format!("{head}{}", &BODY[..9]), ""),
        ("a piece of chunks", format!("{chunked}5\r\n{{\"m"), ""),
        ("a huge chunk that does not come", format!("{chunked}fffffffffff\r\n{BODY}"), ""),
        ("a byte now and then", head.replace(&BODY.len().to_string(), "9999"), " "),
        ("a chunk now and then", chunked.clone(), "1\r\n \r\n"),
    ] {
        let mut client = Raw::connect(guard.client_addr).await;
        let began = Instant::now();
        client.send(start).await;
        if !rest.is_empty() {
            dribbles(&mut client, rest).await;
        }
        let answer = client.answer().await.unwrap();
        assert_eq!((answer.status, answer.code().as_str()), (400, "body_invalid"), "{name}");
        assert!(answer.body.contains("in time"), "{name}: {answer:?}");
        assert!(began.elapsed() >= PATIENCE, "{name}");
        assert!(client.ends_silently().await, "{name}");
    }
    in_flight(&guard, 0).await;
    // Twice as long in all as any wait may be, and faster than a byte each millisecond.
    let text = format!("{}{}", &BODY[..BODY.len() - 1], " ".repeat(4000)) + "}";
    let mut client = Raw::connect(guard.client_addr).await;
    client.send(chat(&format!("content-length: {}\r\n", text.len()), "")).await;
    let began = Instant::now();
    for piece in text.as_bytes().chunks(100) {
        client.send(piece).await;
        tokio::time::sleep(PATIENCE / 20).await;
    }
    assert!(began.elapsed() >= 2 * PATIENCE);
    assert_eq!(client.answer().await.unwrap().status, 200);
    assert_eq!(upstream.bodies(), [text]);
}

#[tokio::test]
async fn an_endless_body_ends_at_the_bound_and_so_does_its_connection() {
    let upstream = Recorder::start().await;
    let mut policy = policy(&upstream);
    policy.limits.body_bytes = 1 << 20;
    let guard = guard(policy).await;
    let mut client = Raw::connect(guard.client_addr).await;
    client.send(chat("transfer-encoding: chunked\r\n", "")).await;
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 16, " ".repeat(1 << 16));
    let mut sent = 0_u64;
    while client.send(&chunk).await {
        sent += 1 << 16;
    }
    // Its sender is listened to for some seconds more, and not for ever.
    assert!(sent >= 1 << 20, "{sent}");
    assert_eq!(upstream.half() + upstream.whole().len(), 0);
    let exact = format!("{BODY}{}", " ".repeat((1 << 20) - BODY.len()));
    let mut client = Raw::connect(guard.client_addr).await;
    client.send(sound(&exact)).await;
    assert_eq!(client.answer().await.unwrap().status, 200);
}

#[tokio::test]
async fn a_connection_is_kept_for_longer_than_a_head_may_take() {
    let (upstream, guard) = started().await;
    let mut client = Raw::connect(guard.client_addr).await;
    for _ in 0..3 {
        passes(&mut client, &upstream).await;
        // The pause itself.
        tokio::time::sleep(2 * PATIENCE).await;
    }
    passes(&mut client, &upstream).await;
}

#[tokio::test]
async fn a_connection_is_not_kept_for_ever() {
    let upstream = Recorder::start().await;
    let mut policy = policy(&upstream);
    policy.limits.keep_alive_timeout = PATIENCE;
    let guard = guard(policy).await;
    let mut client = Raw::connect(guard.client_addr).await;
    let began = Instant::now();
    let answer = passes(&mut client, &upstream).await;
    assert!(!answer.closes());
    assert!(client.ends_silently().await && began.elapsed() >= PATIENCE);
}

#[tokio::test]
async fn where_places_are_scarce_a_connection_that_is_merely_kept_goes() {
    let upstream = Recorder::start().await;
    let mut policy = policy(&upstream);
    policy.limits.header_read_timeout = PATIENCE;
    policy.limits.connections = 1;
    let guard = guard(policy).await;
    let mut kept = Raw::connect(guard.client_addr).await;
    passes(&mut kept, &upstream).await;
    tokio::time::sleep(2 * PATIENCE).await;
    // Nobody waited, so it was kept.
    passes(&mut kept, &upstream).await;
    let mut waiting = Raw::connect(guard.client_addr).await;
    passes(&mut waiting, &upstream).await;
    assert!(kept.ends_silently().await);
}
