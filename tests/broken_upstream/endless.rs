//! Streams without end: what must be held is bounded, whatever is sent, and the memory of the process with it. A
//! stream of text is as long as its client wants it to be.

use super::recorder::{EVENTS, Recorder, Step, send};
use super::{Raw, all_is_back, guard, policy, request};

const PIECE: usize = 64 << 10;

/// A chunk of these bytes, so often that they are a gigabyte.
fn gigabyte(text: &str) -> Step {
    let chunk = format!("{:x}\r\n{text}\r\n", text.len());
    Step::Flood(chunk.into_bytes(), (1 << 30) / text.len() as u64)
}

fn fragment(arguments: &str) -> String {
    format!(
        "data: {{\"id\":\"x\",\"choices\":[{{\"index\":0,\"delta\":{{\"tool_calls\":[{{\"index\":0,\"id\":\"call_1\",\"type\":\"function\",\"function\":{{\"name\":\"get_order\",\"arguments\":\"{arguments}\"}}}}]}},\"finish_reason\":null}}]}}\n\n"
    )
}

/// Megabytes that this process holds now.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() >> 10
}

#[tokio::test]
async fn what_must_be_held_is_bounded_and_comes_back() {
    let upstream = Recorder::start().await;
    let guard = guard(policy(upstream.address)).await;
    let chunk = |text: &str| send(format!("{:x}\r\n{text}\r\n", text.len()));
    let long = "a".repeat(PIECE);
    let before = resident();
    for (name, script) in [
        ("an event", vec![chunk("data: {\"a\":\""), gigabyte(&long)]),
        ("a comment", vec![chunk(": "), gigabyte(&long)]),
        ("a field that nobody knows", vec![gigabyte(&long)]),
        ("lines of one event", vec![gigabyte(&format!("data: {}\n", &long[..1000]))]),
        ("the arguments of a call", vec![gigabyte(&fragment(&long[..1000]))]),
        ("comments while a call is held", vec![chunk(&fragment("{")), gigabyte(": ping\n\n")]),
        ("empty lines while a call is held", vec![chunk(&fragment("{")), gigabyte("\n\n\n\n")]),
    ] {
        upstream.will([vec![send(EVENTS)], script].concat());
        let mut client = Raw::connect(guard.client_addr).await;
        client.send(request(true)).await;
        let answer = client.answer().await.unwrap();
        assert!(answer.body.contains("\"code\":\"held_too_large\""), "{name}: {answer:?}");
        assert!(answer.whole && !answer.body.contains("get_order"), "{name}");
        all_is_back(name, &guard, &upstream).await;
        let now = resident();
        assert!(now < before + 64, "{name}: {before} MiB before, {now} MiB now");
    }
}

#[tokio::test]
async fn a_stream_of_text_is_as_long_as_its_client_wants() {
    let upstream = Recorder::start().await;
    let guard = guard(policy(upstream.address)).await;
    let text = "t".repeat(1000);
    let event = format!(
        "data: {{\"id\":\"x\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":null}}]}}\n\n"
    );
    upstream.will([send(EVENTS), gigabyte(&event)]);
    let mut client = Raw::connect(guard.client_addr).await;
    client.send(request(true)).await;
    let before = resident();
    let mut taken = 0;
    while taken < 100 << 20 {
        client.stream.readable().await.unwrap();
        match client.stream.try_read(&mut vec![0; PIECE]) {
            Ok(read) => taken += read,
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
    }
    let now = resident();
    assert!(now < before + 64, "{before} MiB before, {now} MiB now");
    drop(client);
    all_is_back("text", &guard, &upstream).await;
}
