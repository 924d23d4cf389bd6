//! Streams that break, hang, end early, or go on when they have said that they failed.

use super::recorder::{EVENTS, Step, chunk, last_chunk, send};
use super::{Case, Ends, case, play};
use Ends::{Event, Passes, TimesOutEvent};
use Step::{Close, Hang, Reset};

const TEXT: &str = "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hé\"},\"finish_reason\":null}]}\n\n";
const CALL: &str = "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"call_1\",\"type\":\"function\",\"function\":{\"name\":\"get_order\",\"arguments\":\"{}\"}}]},\"finish_reason\":null}]}\n\n";
const STOP: &str =
    "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const FINISH: &str = "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n";
const ERROR: &str = "data: {\"error\":{\"message\":\"theirs\",\"type\":\"server_error\"}}\n\n";
const DONE: &str = "data: [DONE]\n\n";

fn events(events: &[&str], end: Step) -> Vec<Step> {
    let mut steps = vec![send(EVENTS)];
    steps.extend(events.iter().map(|event| chunk(event)));
    steps.push(end);
    steps
}

pub(crate) fn broken() -> Vec<Case> {
    let half = &TEXT[..40];
    let one = |name, steps, ends| case(name, true, steps, ends);
    let not_text: Vec<u8> = TEXT.bytes().map(|byte| if byte > 127 { 0xff } else { byte }).collect();
    let head = EVENTS.replace("transfer-encoding: chunked\r\n", "");
    let of_length = |length: usize| {
        send(format!(
            "{}{TEXT}",
            head.replace("\r\n\r\n", &format!("\r\ncontent-length: {length}\r\n\r\n"))
        ))
    };
    vec![
        one("resets in an event", events(&[TEXT, half], Reset), Event("upstream_invalid")),
        one("closes in an event", events(&[TEXT, half], Close), Event("upstream_invalid")),
        one("ends in an event", events(&[TEXT, half], last_chunk()), Event("broken_stream")),
        one("resets between events", events(&[TEXT], Reset), Event("upstream_invalid")),
        one("closes between events", events(&[TEXT], Close), Event("upstream_invalid")),
        one("ends without a finish", events(&[TEXT], last_chunk()), Event("truncated_stream")),
        one("ends without an event", events(&[], last_chunk()), Event("truncated_stream")),
        one(
            "says that it is done, and no more",
            events(&[DONE], last_chunk()),
            Event("truncated_stream"),
        ),
        one("hangs without an event", events(&[], Hang), TimesOutEvent("upstream_timeout")),
        one("hangs between events", events(&[TEXT], Hang), TimesOutEvent("upstream_timeout")),
        one("hangs in an event", events(&[TEXT, half], Hang), TimesOutEvent("upstream_timeout")),
        one("resets while a call is held", events(&[TEXT, CALL], Reset), Event("upstream_invalid")),
        one(
            "hangs while a call is held",
            events(&[TEXT, CALL], Hang),
            TimesOutEvent("upstream_timeout"),
        ),
        one(
            "ends while a call is held",
            events(&[TEXT, CALL], last_chunk()),
            Event("truncated_stream"),
        ),
        one(
            "resets when a call has finished",
            events(&[CALL, FINISH], Reset),
            Event("upstream_invalid"),
        ),
        one(
            "no text",
            vec![
                send(EVENTS),
                chunk(TEXT),
                send(format!("{:x}\r\n", not_text.len())),
                send(not_text),
                send("\r\n"),
                Hang,
            ],
            Event("broken_stream"),
        ),
        one("no JSON", events(&[TEXT, "data: hello\n\n"], Hang), Event("broken_stream")),
        one("HTML", events(&[TEXT, "data: <html></html>\n\n"], Hang), Event("broken_stream")),
        one(
            "shorter than it said",
            vec![of_length(TEXT.len() + 9), Close],
            Event("upstream_invalid"),
        ),
        one("longer than it said", vec![of_length(TEXT.len() - 9), Close], Event("broken_stream")),
        one(
            "a chunk that is none",
            vec![send(EVENTS), chunk(TEXT), send("xyz\r\n")],
            Event("upstream_invalid"),
        ),
    ]
}

fn sound() -> Vec<Case> {
    let bytes: Vec<u8> = format!("{TEXT}{STOP}{DONE}").into_bytes();
    let mut pieces = vec![send(EVENTS)];
    for byte in bytes {
        pieces.push(send([b"1\r\n".as_slice(), &[byte], b"\r\n"].concat()));
    }
    pieces.extend([last_chunk(), Close]);
    let ends = |events_: &[&str]| [events(events_, last_chunk()), vec![Close]].concat();
    vec![
        case("byte by byte", true, pieces, Passes(200)),
        case("a stream that nobody asked for", false, ends(&[TEXT, STOP, DONE]), Passes(200)),
        case("calls", true, ends(&[TEXT, CALL, FINISH, DONE]), Passes(200)),
        case("hangs when it is done", true, events(&[TEXT, STOP, DONE], Hang), Passes(200)),
        case("resets when it is done", true, events(&[TEXT, STOP, DONE], Reset), Passes(200)),
    ]
}

#[tokio::test]
async fn a_stream_that_breaks_ends_in_one_event_that_says_so() {
    play(broken()).await;
}

#[tokio::test]
async fn a_stream_that_only_looks_broken_passes() {
    play(sound()).await;
}

/// Its own error passes, and no call does that comes before or after it.
#[tokio::test]
async fn an_upstream_that_has_failed_lets_no_call_out() {
    let cases = [
        ("before", events(&[CALL, ERROR], last_chunk())),
        ("after", events(&[ERROR, CALL, FINISH, DONE], last_chunk())),
        ("after, and hangs", events(&[TEXT, ERROR, CALL, FINISH], Hang)),
        ("after, and resets", events(&[TEXT, ERROR, CALL], Reset)),
    ];
    let upstream = super::Recorder::start().await;
    let guard = super::guard(super::policy(upstream.address)).await;
    for (name, script) in cases {
        upstream.will([script, vec![Close]].concat());
        let mut client = super::Raw::connect(guard.client_addr).await;
        client.send(super::request(true)).await;
        let answer = client.answer().await.unwrap();
        assert!(
            answer.body.contains("theirs") && !answer.body.contains("call_1"),
            "{name}: {answer:?}"
        );
        assert!(answer.whole && !answer.body.contains("\"faults\""), "{name}: {answer:?}");
        super::all_is_back(name, &guard, &upstream).await;
    }
}
