//! Clients that mean no good, or know no better, on raw sockets: nothing of theirs reaches the upstream twice or
//! half, nothing waits for them for ever, and the nearest request that is sound passes byte for byte.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

mod connections;
mod http2;
mod open_routes;
mod shapes;
mod slow;

#[path = "../raw/mod.rs"]
mod raw;

#[expect(dead_code, reason = "what other tests need")]
#[path = "../recorder/mod.rs"]
mod recorder;

use raw::{Answer, Raw};
use recorder::Recorder;
use std::net::SocketAddr;
use std::time::Duration;
use tigertally::policy::{Policy, StoreKind};
use tigertally::proxy::Running;

const BODY: &str = r#"{"model":"m","messages":[{"role":"user","content":"Where is A?"}]}"#;
const STREAM: &str =
    r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"Where is A?"}]}"#;

/// A policy for tests: free ports, that upstream, and the client's own bytes go up.
fn policy(upstream: &Recorder) -> Policy {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut policy = Policy { listen: loopback, store: StoreKind::Memory, ..Policy::default() };
    policy.admin.listen = loopback;
    policy.upstream.url = format!("http://{}", upstream.address).parse().unwrap();
    policy.upstream.rid = false;
    policy.limits.drain_timeout = Duration::from_secs(5);
    policy
}

async fn guard(policy: Policy) -> Running {
    tigertally::cli::serve::start(policy).await.unwrap()
}

/// A chat request with these further header lines, each with its end.
fn chat(lines: &str, body: &str) -> String {
    let head =
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
    format!("{head}{lines}\r\n{body}")
}

/// One of known length.
fn sound(body: &str) -> String {
    chat(&format!("content-length: {}\r\n", body.len()), body)
}

/// Sends a sound request and takes its answer.
async fn passes(client: &mut Raw, upstream: &Recorder) -> Answer {
    let before = upstream.bodies().len();
    assert!(client.send(sound(BODY)).await, "it cannot be sent");
    let answer = client.answer().await.unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (200, recorder::ANSWER), "{answer:?}");
    assert_eq!(upstream.bodies()[before..], [BODY]);
    answer
}

/// Waits until the exchanges in flight are so many.
async fn in_flight(guard: &Running, wanted: usize) {
    let line = format!("tigertally_in_flight_exchanges {wanted}\n");
    let wait = async {
        while !guard.gateway().metrics().encode().contains(&line) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(raw::PATIENCE, wait).await.is_ok(), "never {line}");
}
