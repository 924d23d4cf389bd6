//! Clients that stop reading for a while: what they miss is not lost, and what is no longer wanted is
//! withheld from them all the same.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[expect(dead_code, reason = "what other tests need")]
mod rig;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rig::{HttpClient, Upstream, ask, chat, event, fragment, guard, next, policy, send, text};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tigertally::ledger::event::Millis;
use tigertally::ledger::rules::Rules;
use tigertally::proxy::Running;

/// More than sockets and the HTTP server take in on their own.
const LARGE: usize = 12 << 20;
const PIECE: usize = 64 << 10;

/// A client whose own socket takes in little.
fn client() -> HttpClient {
    let mut connector = HttpConnector::new();
    connector.set_recv_buffer_size(Some(PIECE));
    Client::builder(TokioExecutor::new()).build(connector)
}

async fn record(guard: &Running) -> Value {
    let url = format!("http://{}/guard/v1/conversations/c", guard.client_addr);
    let request = Request::get(url).body(Full::new(Bytes::new())).unwrap();
    serde_json::from_str(&text(send(&rig::client(), request).await).await).unwrap()
}

async fn advance(guard: &Running) -> String {
    let url = format!("http://{}/guard/v1/conversations/c/generation", guard.client_addr);
    let request = Request::post(url).body(Full::new(Bytes::from("{}"))).unwrap();
    text(send(&rig::client(), request).await).await
}

async fn rest(body: &mut Incoming) -> Vec<u8> {
    let mut got = Vec::new();
    while let Some(bytes) = next(body).await {
        got.extend_from_slice(&bytes);
    }
    got
}

fn ends_with(bytes: &[u8], text: &str) -> bool {
    bytes[bytes.len().saturating_sub(1000)..].windows(text.len()).any(|at| at == text.as_bytes())
}

#[tokio::test]
async fn a_client_that_pauses_longer_than_a_lease_still_gets_its_answer() {
    let upstream = Upstream::start().await;
    let mut policy = policy(&upstream);
    let lease = Millis(2500);
    policy.ledger = Arc::new(Rules { lease, ..Rules::clone(&policy.ledger) });
    let guard = guard(policy).await;
    let feed = upstream.will_stream();
    let headers = [("x-conversation-id", "c")];
    let mut body = send(&client(), chat(&guard, &headers, ask(true))).await.into_body();
    let piece = event(&format!("{{\"content\":\"{}\"}}", "t".repeat(PIECE)), None);
    for _ in 0..LARGE / PIECE {
        feed.send(Bytes::from(piece.clone())).unwrap();
    }
    feed.send(Bytes::from(event("{}", Some("stop")) + "data: [DONE]\n\n")).unwrap();
    drop(feed);
    next(&mut body).await.unwrap();
    // The pause itself, not a wait for something.
    tokio::time::sleep(Duration::from_millis(lease.0 + 1500)).await;
    assert_eq!(record(&guard).await["exchanges"][0]["state"], "in_flight");
    assert!(ends_with(&rest(&mut body).await, "data: [DONE]\n\n"));
    assert_eq!(record(&guard).await["exchanges"][0]["state"], "delivered");
}

#[tokio::test]
async fn calls_that_wait_for_a_slow_client_are_withheld_when_the_user_moves_on() {
    let upstream = Upstream::start().await;
    let mut policy = policy(&upstream);
    policy.limits.held_bytes = 2 * LARGE;
    let guard = guard(policy).await;
    let feed = upstream.will_stream();
    let headers = [("x-conversation-id", "c")];
    let mut body = send(&client(), chat(&guard, &headers, ask(true))).await.into_body();
    let head = "{\"order_id\":\"A\",\"note\":\"";
    feed.send(Bytes::from(fragment(Some("call_1"), Some("get_order"), head))).unwrap();
    let piece = fragment(None, None, &"n".repeat(PIECE));
    for _ in 0..LARGE / PIECE {
        feed.send(Bytes::from(piece.clone())).unwrap();
    }
    feed.send(Bytes::from(fragment(None, None, "\"}"))).unwrap();
    feed.send(Bytes::from(event("{}", Some("tool_calls")) + "data: [DONE]\n\n")).unwrap();
    drop(feed);
    rig::within(async {
        while record(&guard).await["calls"][0]["state"] != "open" {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let advanced = advance(&guard).await;
    assert!(advanced.contains("\"superseded_calls\":[\"call_1\"]"), "{advanced}");
    let got = rest(&mut body).await;
    assert!(got.len() < LARGE, "{} bytes came", got.len());
    assert!(ends_with(&got, "\"stale_answer\""));
    assert!(!ends_with(&got, "[DONE]"));
}

#[tokio::test]
async fn the_upstream_is_told_to_stop_although_the_client_does_not_read() {
    let mut upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let feed = upstream.will_stream();
    let headers = [("x-conversation-id", "c")];
    let mut body = send(&client(), chat(&guard, &headers, ask(true))).await.into_body();
    upstream.saw_request().await;
    let piece = event(&format!("{{\"content\":\"{}\"}}", "t".repeat(PIECE)), None);
    for _ in 0..LARGE / PIECE {
        feed.send(Bytes::from(piece.clone())).unwrap();
    }
    next(&mut body).await.unwrap();
    // Until its buffers are full the proxy reads on, and stops by itself.
    advance_once_nothing_moves(&guard).await;
    assert_eq!(upstream.saw_request().await.0, "/abort_request");
    assert!(ends_with(&rest(&mut body).await, "\"stale_answer\""));
}

/// A stream that is read no further cannot be told from one that is about to be; what is left unread of
/// twelve megabytes after this pause is held up by the client.
async fn advance_once_nothing_moves(guard: &Running) {
    tokio::time::sleep(Duration::from_millis(500)).await;
    let advanced = advance(guard).await;
    assert!(advanced.contains("\"cancelled_exchanges\":1"), "{advanced}");
}

/// A whole answer that its client never got is not delivered, so asking again is no duplicate; one that it
/// got is.
#[tokio::test]
async fn a_whole_answer_that_was_not_read_may_be_asked_for_again() {
    let upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let text_of = |bytes: usize| {
        let words = "t".repeat(bytes);
        format!(
            r#"{{"id":"x","choices":[{{"index":0,"message":{{"role":"assistant","content":"{words}"}},"finish_reason":"stop"}}]}}"#
        )
    };
    let headers = [("x-conversation-id", "c")];
    upstream.will(rig::json(&text_of(2 * LARGE)));
    let mut body = send(&client(), chat(&guard, &headers, ask(false))).await.into_body();
    next(&mut body).await.unwrap();
    assert_eq!(record(&guard).await["exchanges"][0]["state"], "settled");
    drop(body);
    rig::within(async {
        while record(&guard).await["exchanges"][0]["state"] == "settled" {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_ne!(record(&guard).await["exchanges"][0]["state"], "delivered");
    let wanted = text_of(3 * PIECE);
    upstream.will(rig::json(&wanted));
    let again = send(&client(), chat(&guard, &headers, ask(false))).await;
    assert_eq!(text(again).await, wanted);
    let exchanges = record(&guard).await["exchanges"].clone();
    assert_eq!(exchanges.as_array().unwrap().last().unwrap()["state"], "delivered");
}

#[tokio::test]
async fn a_whole_answer_breaks_off_when_the_user_moves_on() {
    let upstream = Upstream::start().await;
    let guard = guard(policy(&upstream)).await;
    let headers = [("x-conversation-id", "c")];
    let words = "t".repeat(2 * LARGE);
    upstream.will(rig::json(&format!(
        r#"{{"id":"x","choices":[{{"index":0,"message":{{"role":"assistant","content":"{words}"}},"finish_reason":"stop"}}]}}"#
    )));
    let mut body = send(&client(), chat(&guard, &headers, ask(false))).await.into_body();
    next(&mut body).await.unwrap();
    let advanced = advance(&guard).await;
    assert!(advanced.contains("\"cancelled_exchanges\":1"), "{advanced}");
    let broke = rig::within(async {
        loop {
            match http_body_util::BodyExt::frame(&mut body).await {
                None => return false,
                Some(Err(_)) => return true,
                Some(Ok(_)) => {}
            }
        }
    })
    .await;
    assert!(broke);
}
