//! Connections to the upstream that are kept from one exchange to the next.

use super::{guard, policy, request};
use crate::raw::Raw;
use crate::recorder::{ANSWER, EVENTS, Recorder, Step, chunk, json, last_chunk};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

const DONE: &str = "data: [DONE]\n\n";
const TEXT: &str = "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n";

async fn ask(client: &mut Raw, stream: bool) {
    client.send(request(stream)).await;
    let answer = client.answer().await.unwrap();
    let wanted = if stream { format!("{TEXT}{DONE}") } else { ANSWER.to_owned() };
    assert_eq!((answer.status, answer.body), (200, wanted));
}

fn streams(upstream: &Recorder) {
    let head = Step::Send(EVENTS.as_bytes().to_vec());
    upstream.will([head, chunk(TEXT), chunk(DONE), last_chunk()]);
}

/// The upstream ends idle connections after 5 s: ours go first, whether anything is asked or not.
#[tokio::test]
async fn a_connection_is_kept_for_whatever_comes_next_and_goes_before_the_upstream_would_end_it() {
    let upstream = Recorder::start().await;
    let guard = guard(policy(upstream.address)).await;
    for number in 0..20 {
        // Whoever asks, on whichever connection.
        let mut client = Raw::connect(guard.client_addr).await;
        let stream = number % 2 == 1;
        if stream {
            streams(&upstream);
        }
        ask(&mut client, stream).await;
    }
    assert_eq!((upstream.taken(), upstream.open()), (1, 1));
    let idle = Instant::now();
    upstream.until("the connection goes", |up| up.open() == 0).await;
    let after = idle.elapsed();
    assert!((Duration::from_millis(3500)..Duration::from_secs(7)).contains(&after), "{after:?}");
    assert_eq!(upstream.half(), 0);
}

#[tokio::test]
async fn a_connection_that_the_upstream_has_ended_is_not_used_again() {
    let upstream = Recorder::start().await;
    let guard = guard(policy(upstream.address)).await;
    let mut client = Raw::connect(guard.client_addr).await;
    for number in 1..=20 {
        upstream.will([json(ANSWER), Step::Close]);
        ask(&mut client, false).await;
        upstream.until("the connection ends", |up| up.open() == 0).await;
        assert_eq!((upstream.taken(), upstream.whole().len()), (number, number));
    }
    assert_eq!(upstream.half(), 0);
}

/// As many as are needed at once, and no more when they are needed again.
#[tokio::test]
async fn exchanges_at_the_same_time_have_a_connection_each() {
    let upstream = Recorder::start().await;
    let guard = guard(policy(upstream.address)).await;
    for _ in 0..3 {
        let (gate, mut clients) = (Arc::new(Notify::new()), Vec::new());
        for number in 1..=8 {
            upstream.will([Step::Gate(Arc::clone(&gate)), json(ANSWER)]);
            let mut client = Raw::connect(guard.client_addr).await;
            client.send(request(false)).await;
            upstream.until("it comes", |up| up.whole().len() % 8 == number % 8).await;
            clients.push(client);
        }
        gate.notify_waiters();
        for mut client in clients {
            let answer = client.answer().await.unwrap();
            assert_eq!((answer.status, answer.body.as_str()), (200, ANSWER));
        }
        assert_eq!(upstream.taken(), 8);
    }
    assert_eq!(upstream.half(), 0);
}
