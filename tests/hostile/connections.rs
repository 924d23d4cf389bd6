//! What clients do with a connection: ask several things at once, ask before they send, end their side and wait, or go
//! away.

use super::recorder::{EVENTS, Recorder, Step, chunk, json, last_chunk, send};
use super::{BODY, Raw, STREAM, chat, guard, in_flight, passes, policy, sound};
use std::sync::Arc;
use tigertally::policy::Policy;
use tokio::sync::Notify;

const EVENT: &str = "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"finish_reason\":null}]}\n\n";
const END: &str = "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

fn gate() -> (Arc<Notify>, Step) {
    let gate = Arc::new(Notify::new());
    (Arc::clone(&gate), Step::Gate(gate))
}

#[tokio::test]
async fn requests_in_one_go_are_answered_one_by_one_in_their_order() {
    let upstream = Recorder::start().await;
    let guard = guard(policy(&upstream)).await;
    let bodies = [1, 2, 3].map(|n| BODY.replace("is A", &format!("is {n}")));
    let answers = [1, 2, 3].map(|n| super::recorder::ANSWER.replace("hi", &format!("answer {n}")));
    let (go, first) = gate();
    upstream.will([first, json(&answers[0])]);
    upstream.will([json(&answers[1])]);
    upstream.will([json(&answers[2])]);
    let mut client = Raw::connect(guard.client_addr).await;
    let refused = chat("content-length: 5\r\n", "[1,2]");
    let [one, two, three] = [0, 1, 2].map(|n| sound(&bodies[n]));
    client.send(format!("{one}{two}{refused}{three}")).await;
    upstream.until("the first is asked", |up| up.bodies().len() == 1).await;
    in_flight(&guard, 1).await;
    go.notify_one();
    for (status, wanted) in
        [(200, &answers[0]), (200, &answers[1]), (400, &String::new()), (200, &answers[2])]
    {
        let answer = client.answer().await.unwrap();
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(status == 400 || answer.body == *wanted, "{answer:?}");
    }
    assert_eq!(upstream.bodies(), bodies);
}

#[tokio::test]
async fn who_asks_before_it_sends_is_told_to_only_if_the_body_is_wanted() {
    let upstream = Recorder::start().await;
    let mut policy = policy(&upstream);
    policy.limits.body_bytes = 1 << 20;
    let guard = guard(policy).await;
    let ask =
        |length: usize| chat(&format!("expect: 100-continue\r\ncontent-length: {length}\r\n"), "");
    for (name, head, status) in [
        ("too large", ask(2 << 20), 413),
        ("closed", ask(5).replace("/v1/chat", "/v2/chat"), 403),
        ("compressed", ask(5).replace("expect", "content-encoding: gzip\r\nexpect"), 400),
    ] {
        let mut client = Raw::connect(guard.client_addr).await;
        client.send(head).await;
        let answer = client.answer().await.unwrap();
        assert_eq!((answer.status, answer.interim.len()), (status, 0), "{name}: {answer:?}");
        // What it might still send is not taken for a request.
        client.send(format!("{}{}", &BODY[..5], sound(BODY))).await;
        assert!(client.ends_silently().await, "{name}");
    }
    assert!(upstream.whole().is_empty());
    let mut client = Raw::connect(guard.client_addr).await;
    client.send(ask(BODY.len())).await;
    in_flight(&guard, 1).await;
    client.send(BODY).await;
    let answer = client.answer().await.unwrap();
    assert_eq!((answer.status, answer.interim.as_slice()), (200, [100].as_slice()), "{answer:?}");
    assert_eq!(upstream.bodies(), [BODY]);
    assert!(!upstream.whole()[0].head.contains("expect"));
}

/// The first in line are told at once that there is no place, however long their bodies are.
#[tokio::test]
async fn a_refusal_does_not_wait_for_the_body() {
    let upstream = Recorder::start().await;
    let mut policy = policy(&upstream);
    policy.limits.exchanges = 1;
    let guard = guard(policy).await;
    let (go, held) = gate();
    upstream.will([held, json(super::recorder::ANSWER)]);
    let mut first = Raw::connect(guard.client_addr).await;
    first.send(sound(BODY)).await;
    upstream.until("the first is asked", |up| up.bodies().len() == 1).await;
    let mut second = Raw::connect(guard.client_addr).await;
    second.send(chat("content-length: 1000000\r\n", &BODY[..9])).await;
    let answer = second.answer().await.unwrap();
    assert_eq!((answer.status, answer.code().as_str()), (503, "overloaded"), "{answer:?}");
    assert!(answer.head.contains("\r\nretry-after: 1\r\n"), "{answer:?}");
    // Its body is taken all the same, and the connection is good for another request.
    second.send(vec![b' '; 1_000_000 - 9]).await;
    go.notify_one();
    assert_eq!(first.answer().await.unwrap().status, 200);
    in_flight(&guard, 0).await;
    passes(&mut second, &upstream).await;
}

#[tokio::test]
async fn who_ends_its_side_and_waits_gets_its_answer() {
    let upstream = Recorder::start().await;
    let guard = guard(policy(&upstream)).await;
    for (name, body, answer) in [
        ("whole", BODY, vec![json(super::recorder::ANSWER)]),
        ("stream", STREAM, vec![send(EVENTS), chunk(EVENT), chunk(END), last_chunk()]),
    ] {
        let (go, held) = gate();
        upstream.will([vec![held], answer].concat());
        let before = upstream.whole().len();
        let mut client = Raw::connect(guard.client_addr).await;
        client.send(sound(body)).await;
        client.shut().await;
        upstream.until("it is asked", |up| up.whole().len() == before + 1).await;
        go.notify_one();
        let answer = client.answer().await.unwrap();
        assert_eq!((answer.status, answer.whole), (200, true), "{name}: {answer:?}");
        let wanted =
            if name == "whole" { super::recorder::ANSWER.into() } else { format!("{EVENT}{END}") };
        assert_eq!(answer.body, wanted, "{name}");
        assert!(answer.interim.iter().all(|status| *status == 100), "{name}: {answer:?}");
        assert!(client.ends_silently().await, "{name}");
    }
    // Two at once, and a refusal.
    let mut client = Raw::connect(guard.client_addr).await;
    client.send(format!("{}{}", sound(BODY), sound("[]"))).await;
    client.shut().await;
    let both = [client.answer().await.unwrap().status, client.answer().await.unwrap().status];
    assert_eq!(both, [200, 400]);
    // A body that its client will not end is no request.
    let mut client = Raw::connect(guard.client_addr).await;
    client.send(chat("content-length: 100\r\n", BODY)).await;
    client.shut().await;
    assert!(client.answer().await.is_none_or(|answer| answer.code() == "body_invalid"));
    assert_eq!((upstream.left(), upstream.half()), (0, 0));
}

/// In whichever way a client goes, and whenever, the upstream hears of it.
#[tokio::test]
async fn who_goes_away_is_noticed_though_nothing_is_sent_to_it() {
    let upstream = Recorder::start().await;
    let guard = guard(Policy { ..with_rid(policy(&upstream)) }).await;
    let stream = |more: Vec<Step>| [vec![send(EVENTS), chunk(EVENT)], more].concat();
    let cases: [(&str, String, Vec<Step>); 6] = [
        ("before the answer", sound(BODY), vec![Step::Hang]),
        ("with more behind the request", format!("{}\r\n", sound(BODY)), vec![Step::Hang]),
        ("with a request behind it", sound(BODY).repeat(2), vec![Step::Hang]),
        ("in HTTP/1.0", sound(BODY).replace("HTTP/1.1", "HTTP/1.0"), vec![Step::Hang]),
        ("before a stream", sound(STREAM), vec![Step::Hang]),
        ("in a stream", sound(STREAM), stream(vec![Step::Hang])),
    ];
    for (count, (name, request, script)) in cases.into_iter().enumerate() {
        for shut in [false, true] {
            let (asked, aborted) = (upstream.whole().len(), upstream.aborts());
            upstream.will(script.clone());
            let mut client = Raw::connect(guard.client_addr).await;
            client.send(&request).await;
            upstream.until(name, |up| up.whole().len() == asked + 1).await;
            if name == "in a stream" {
                client.stream.readable().await.unwrap();
                client.stream.try_read(&mut [0; 4096]).unwrap();
            }
            if shut {
                client.shut().await;
            }
            drop(client);
            upstream.until(name, |up| up.aborts() == aborted + 1).await;
            upstream.until(name, |up| up.left() == 2 * count + 1 + usize::from(shut)).await;
            in_flight(&guard, 0).await;
        }
    }
    assert_eq!(upstream.half(), 0);
}

fn with_rid(mut policy: Policy) -> Policy {
    policy.upstream.rid = true;
    policy
}

#[tokio::test]
async fn the_last_answers_of_a_drain_say_that_they_are_the_last() {
    let upstream = Recorder::start().await;
    let guard = guard(policy(&upstream)).await;
    let mut kept = Raw::connect(guard.client_addr).await;
    assert!(!passes(&mut kept, &upstream).await.closes());
    let (go, held) = gate();
    upstream.will([held, json(super::recorder::ANSWER)]);
    kept.send(sound(BODY)).await;
    let mut quiet = Raw::connect(guard.client_addr).await;
    quiet.send("GET /health HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(quiet.answer().await.unwrap().status, 200);
    upstream.until("it is asked", |up| up.bodies().len() == 2).await;
    let gateway = Arc::clone(guard.gateway());
    let shutdown = tokio::spawn(guard.shutdown());
    while !gateway.is_draining() {
        tokio::task::yield_now().await;
    }
    // A connection that is merely kept still answers: a client that uses it just now must not meet a reset.
    quiet.send(sound(BODY)).await;
    let answer = quiet.answer().await.unwrap();
    assert_eq!((answer.status, answer.code().as_str()), (503, "draining"), "{answer:?}");
    assert!(answer.closes() && quiet.ends_silently().await);
    go.notify_one();
    let answer = kept.answer().await.unwrap();
    assert_eq!((answer.status, answer.closes()), (200, true), "{answer:?}");
    assert!(kept.ends_silently().await);
    assert!(shutdown.await.unwrap());
}

/// An exchange has ended for us when its last bytes are with the HTTP server; the client has yet to take them.
#[tokio::test]
async fn a_drain_waits_for_a_slow_client_to_take_the_rest() {
    let upstream = Recorder::start().await;
    let mut policy = policy(&upstream);
    policy.limits.drain_timeout = super::raw::PATIENCE;
    let guard = guard(policy).await;
    let long = super::recorder::ANSWER.replace("hi", &"t".repeat(8 << 20));
    upstream.will([json(&long)]);
    let mut client = slow_reader(guard.client_addr).await;
    client.send(sound(BODY)).await;
    client.stream.readable().await.unwrap();
    let shutdown = tokio::spawn(guard.shutdown());
    // Longer than connections with nothing left to send are given.
    let mut body = Vec::new();
    while body.len() < long.len() {
        let mut piece = vec![0; 256 << 10];
        client.stream.readable().await.unwrap();
        match client.stream.try_read(&mut piece) {
            Ok(0) => break,
            Ok(read) => body.extend_from_slice(&piece[..read]),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let text = String::from_utf8(body).unwrap();
    assert!(text.ends_with(&long[long.len() - 100..]), "{} bytes came", text.len());
    drop(client);
    assert!(shutdown.await.unwrap());
}

/// A client whose own socket takes in little.
async fn slow_reader(address: std::net::SocketAddr) -> Raw {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 << 10).unwrap();
    Raw::over(socket.connect(address).await.unwrap())
}

/// A client that takes nothing of its answer does not keep its place, nor the upstream's work.
#[tokio::test]
async fn who_takes_nothing_of_its_answer_loses_it() {
    let upstream = Recorder::start().await;
    let mut policy = policy(&upstream);
    policy.limits.client_pause = std::time::Duration::from_millis(1500);
    let guard = guard(policy).await;
    let piece = EVENT.replace("hi", &"t".repeat(64 << 10));
    let piece = format!("{:x}\r\n{piece}\r\n", piece.len());
    upstream.will([send(EVENTS), Step::Flood(piece.into_bytes(), u64::MAX)]);
    let mut client = slow_reader(guard.client_addr).await;
    client.send(sound(STREAM)).await;
    upstream.until("it is left", |up| up.left() == 1).await;
    in_flight(&guard, 0).await;
    let answer = client.answer().await.unwrap();
    assert!(!answer.whole && answer.status == 200);
    // One that takes a little now and then keeps it.
    let pieces = vec![chunk(&EVENT.replace("hi", &"t".repeat(1 << 20))); 4];
    upstream.will([vec![send(EVENTS)], pieces, vec![chunk(END), last_chunk()]].concat());
    let mut client = slow_reader(guard.client_addr).await;
    client.send(sound(STREAM)).await;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let answer = client.answer().await.unwrap();
    assert!(answer.whole && answer.body.ends_with(END));
}
