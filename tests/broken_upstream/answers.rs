//! Upstreams that do not answer, or not in HTTP, or not what they say it is.

use super::recorder::{ANSWER, EVENTS, Recorder, Step, json, send};
use super::{Case, Ends, Raw, case, guard, play, policy, request};
use Ends::{Breaks, Passes, Refused, TimesOut};
use Step::{Close, Flood, Hang, Reset};

const INVALID: Ends = Refused(502, "upstream_invalid");
const TIMEOUT: Ends = TimesOut(504, "upstream_timeout");

fn head(lines: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{lines}\r\n")
}

fn answer(lines: &str, body: &str) -> Step {
    send(format!("{}{body}", head(lines)))
}

pub(crate) fn heads() -> Vec<Case> {
    let all = |name, script: Vec<Step>, ends| {
        [false, true].map(|stream| case(name, stream, script.clone(), ends))
    };
    [
        all("closes at once", vec![Close], INVALID),
        all("resets at once", vec![Reset], INVALID),
        all("closes in the head", vec![send("HTTP/1.1 200 OK\r\ncont"), Close], INVALID),
        all("resets in the head", vec![send("HTTP/1.1 200 OK\r\ncont"), Reset], INVALID),
        all("says nothing", vec![Hang], TIMEOUT),
        all("hangs in the head", vec![send("HTTP/1.1 200 OK\r\ncont"), Hang], TIMEOUT),
        all("speaks something else", vec![send("SSH-2.0-OpenSSH_9.2\r\n"), Hang], INVALID),
        all("speaks TLS", vec![send([21, 3, 1, 0, 2, 2, 40].as_slice()), Close], INVALID),
        all("a head without end", vec![send("HTTP/1.1 200 OK\r\n"), Flood(b"x-a: b\r\n".repeat(99), u64::MAX)], INVALID),
        all(
            "interim answers without end",
            vec![Flood(b"HTTP/1.1 102 Processing\r\n\r\n".to_vec(), u64::MAX)],
            TIMEOUT,
        ),
        all("a status that is none", vec![send("HTTP/1.1 99 X\r\n\r\n"), Hang], INVALID),
        all(
            "two lengths",
            vec![answer("content-type: application/json\r\ncontent-length: 5\r\ncontent-length: 6\r\n", "[1,2]"), Hang],
            INVALID,
        ),
        all("HTML", vec![answer("content-type: text/html\r\ncontent-length: 13\r\n", "<html></html>"), Close], INVALID),
        all("no type", vec![answer("content-length: 2\r\n", "{}"), Close], INVALID),
        all("nothing at all", vec![send("HTTP/1.1 204 No Content\r\n\r\n"), Close], INVALID),
        all(
            "gzip though it was not asked for",
            vec![answer("content-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n", "\u{1f}zz"), Close],
            INVALID,
        ),
        all(
            "a compressed stream",
            vec![send(EVENTS.replace("\r\n\r\n", "\r\ncontent-encoding: br\r\n\r\n")), Hang],
            INVALID,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

pub(crate) fn bodies() -> Vec<Case> {
    let typed = |length: usize, body: &str| {
        answer(&format!("content-type: application/json\r\ncontent-length: {length}\r\n"), body)
    };
    let length = ANSWER.len();
    let chunked = "content-type: application/json\r\ntransfer-encoding: chunked\r\n";
    let not_text = [
        head("content-type: application/json\r\nconnection: close\r\n").into_bytes(),
        ANSWER.replace("hi", "~").into_bytes(),
    ]
    .concat();
    let not_text = not_text.into_iter().map(|byte| if byte == b'~' { 0xff } else { byte });
    let one = |name, script, ends| case(name, false, script, ends);
    vec![
        one("no body", vec![typed(0, ""), Close], INVALID),
        one("less than it said", vec![typed(length + 9, ANSWER), Close], INVALID),
        one("less than it said, and a reset", vec![typed(length + 9, ANSWER), Reset], INVALID),
        one("less than it said, and waits", vec![typed(length + 9, ANSWER), Hang], TIMEOUT),
        one("more than it said", vec![typed(length - 9, ANSWER), Close], INVALID),
        one(
            "more than it said, which is kept open",
            vec![typed(length - 9, ANSWER), Hang],
            INVALID,
        ),
        one(
            "another answer behind it",
            vec![typed(length, &format!("{ANSWER}{}", head("content-length: 0\r\n"))), Hang],
            Passes(200),
        ),
        one("half of it", vec![typed(length / 2, &ANSWER[..length / 2]), Close], INVALID),
        one("not JSON", vec![typed(5, "hello"), Close], INVALID),
        one("a list", vec![typed(5, "[1,2]"), Close], INVALID),
        one("gzip without a word", vec![typed(3, "\u{1f}zz"), Close], INVALID),
        one("no text", vec![send(not_text.collect::<Vec<u8>>()), Close], INVALID),
        one("more than it may be", vec![typed(1 << 30, ANSWER), Hang], TIMEOUT),
        one(
            "a gigabyte",
            vec![typed(1 << 30, ANSWER), Flood(vec![b' '; 1 << 16], 1 << 14)],
            INVALID,
        ),
        one(
            "no end",
            vec![
                answer("content-type: application/json\r\n", "{\"a\":\""),
                Flood(vec![b'a'; 1 << 16], u64::MAX),
            ],
            INVALID,
        ),
        one("chunks that are none", vec![answer(chunked, "xyz\r\n{}\r\n0\r\n\r\n"), Hang], INVALID),
        one("chunks without their end", vec![answer(chunked, "2\r\n{}\r\n"), Close], INVALID),
        one(
            "a chunk beyond numbers",
            vec![answer(chunked, "fffffffffffffffff\r\n{}"), Hang],
            INVALID,
        ),
        one(
            "an error in HTML",
            vec![
                send(
                    "HTTP/1.1 500 Oh\r\ncontent-type: text/html\r\ncontent-length: 4\r\n\r\nOh no",
                ),
                Close,
            ],
            Passes(500),
        ),
        one(
            "an error that breaks off",
            vec![send("HTTP/1.1 500 Oh\r\ncontent-length: 9\r\n\r\nOh"), Close],
            Breaks(500),
        ),
        one(
            "an error that hangs",
            vec![send("HTTP/1.1 500 Oh\r\ncontent-length: 9\r\n\r\nOh"), Hang],
            Breaks(500),
        ),
        one(
            "until its end",
            vec![answer("content-type: application/json\r\n", ANSWER), Close],
            Passes(200),
        ),
    ]
}

#[tokio::test]
async fn what_is_no_answer_is_told_so() {
    play(heads()).await;
}

#[tokio::test]
async fn what_is_not_what_it_says_is_told_so() {
    play(bodies()).await;
}

/// No word of an answer's surplus is taken for the next exchange's answer, which has the same connection to come by.
#[tokio::test]
async fn what_is_behind_an_answer_is_nobodys() {
    let upstream = Recorder::start().await;
    let guard = guard(policy(upstream.address)).await;
    let theirs = ANSWER.replace("hi", "theirs");
    let length = ANSWER.len();
    let lines = format!("content-type: application/json\r\ncontent-length: {length}\r\n");
    for _ in 0..50 {
        let Step::Send(behind) = json(&theirs) else { unreachable!() };
        upstream.will([answer(&lines, &format!("{ANSWER}{}", String::from_utf8(behind).unwrap()))]);
        let mut client = Raw::connect(guard.client_addr).await;
        for _ in 0..2 {
            client.send(request(false)).await;
            let got = client.answer().await.unwrap();
            assert!(!got.body.contains("theirs"), "{got:?}");
            assert_eq!((got.status, got.body.as_str()), (200, ANSWER));
        }
    }
}

/// A pooled connection may be closed just when it is used again. What may have been read is not sent a second time.
#[tokio::test]
async fn nothing_is_sent_twice() {
    let upstream = Recorder::start().await;
    let guard = guard(policy(upstream.address)).await;
    let mut client = Raw::connect(guard.client_addr).await;
    for round in 1..=20 {
        let ends = if round % 2 == 0 { Close } else { Reset };
        for (script, status) in [(vec![json(ANSWER)], 200), (vec![ends], 502)] {
            upstream.will(script);
            client.send(request(false)).await;
            assert_eq!(client.answer().await.unwrap().status, status, "round {round}");
        }
        assert_eq!((upstream.whole().len(), upstream.half()), (2 * round, 0));
    }
    // One that is closed while nobody uses it costs nobody an answer.
    for _ in 0..20 {
        upstream.will([json(ANSWER), Close]);
        client.send(request(false)).await;
        assert_eq!(client.answer().await.unwrap().status, 200);
        upstream.until("it is closed", |up| up.open() == 0).await;
    }
}

#[tokio::test]
async fn an_upstream_that_is_not_there_is_told_so() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let guard = guard(policy(nobody)).await;
    for stream in [false, true] {
        let mut client = Raw::connect(guard.client_addr).await;
        client.send(request(stream)).await;
        let answer = client.answer().await.unwrap();
        assert_eq!((answer.status, answer.code().as_str()), (502, "upstream_unreachable"));
    }
}

/// A system whose queue of connections is full answers nothing.
#[tokio::test]
async fn an_upstream_that_lets_nobody_in_is_told_so_in_time() {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let full = socket.listen(1).unwrap();
    let address = full.local_addr().unwrap();
    let mut queue = Vec::new();
    let wait = std::time::Duration::from_millis(300);
    while let Ok(Ok(stream)) =
        tokio::time::timeout(wait, tokio::net::TcpStream::connect(address)).await
    {
        queue.push(stream);
    }
    let mut policy = policy(address);
    policy.upstream.first_byte_timeout = super::raw::PATIENCE;
    let guard = guard(policy).await;
    let mut client = Raw::connect(guard.client_addr).await;
    client.send(request(false)).await;
    let answer = client.answer().await.unwrap();
    assert_eq!((answer.status, answer.code().as_str()), (502, "upstream_unreachable"));
}
