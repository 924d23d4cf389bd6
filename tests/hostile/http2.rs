//! HTTP/2 by prior knowledge, in frames written by hand (RFC 9113, section 4). By ALPN it is the same server: the
//! tests of TLS have that.

use super::recorder::{ANSWER, EVENTS, Recorder, Step, chunk, json, last_chunk, send};
use super::{BODY, Raw, STREAM, guard, in_flight, passes, policy, raw};
use bytes::{Buf as _, BytesMut};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tigertally::proxy::Running;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

const NO_ERROR: u32 = 0;
const PROTOCOL_ERROR: u32 = 1;
const CANCEL: u32 = 8;
const ENHANCE_YOUR_CALM: u32 = 11;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// A block of literal fields that are not indexed (RFC 7541, section 6.2.2).
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).ok().filter(|length| *length < 127).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

const POST: [(&str, &str); 5] = [
    (":method", "POST"),
    (":scheme", "http"),
    (":authority", "x"),
    (":path", "/v1/chat/completions"),
    ("content-type", "application/json"),
];

/// A chat request on that stream, with these further fields.
fn chat(stream: u32, more: &[(&str, &str)], body: &str) -> Vec<u8> {
    let fields = [POST.as_slice(), more].concat();
    let head = frame(HEADERS, END_HEADERS, stream, &block(&fields));
    [head, frame(DATA, END_STREAM, stream, body.as_bytes())].concat()
}

/// Where windows begin.
fn window(bytes: u32) -> Vec<u8> {
    let setting = [&[0, 4], bytes.to_be_bytes().as_slice()].concat();
    frame(SETTINGS, 0, 0, &setting)
}

struct Client {
    stream: TcpStream,
    read: BytesMut,
}

#[derive(Debug)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Frame {
    /// The error of a reset or of the connection's end.
    fn error(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

impl Client {
    async fn connect(guard: &Running, settings: &[u8]) -> Self {
        let stream = TcpStream::connect(guard.client_addr).await.unwrap();
        let mut client = Client { stream, read: BytesMut::new() };
        assert!(client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await);
        assert!(client.send(settings).await);
        client
    }

    async fn send(&mut self, bytes: &[u8]) -> bool {
        let sent = tokio::time::timeout(raw::PATIENCE, self.stream.write_all(bytes)).await;
        sent.unwrap().is_ok()
    }

    /// The next frame; `None` at the connection's end. Settings are acknowledged.
    async fn frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.taken() {
                if frame.kind == SETTINGS && frame.flags & ACK == 0 {
                    self.send(&super::http2::frame(SETTINGS, ACK, 0, &[])).await;
                    continue;
                }
                if frame.kind == PING && frame.flags & ACK == 0 {
                    self.send(&super::http2::frame(PING, ACK, 0, &frame.payload)).await;
                    continue;
                }
                return Some(frame);
            }
            let read = self.stream.read_buf(&mut self.read);
            let read = tokio::time::timeout(raw::PATIENCE, read).await.unwrap();
            if read.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    fn taken(&mut self) -> Option<Frame> {
        let head = self.read.get(..9)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes(head[5..9].try_into().unwrap());
        if self.read.len() < 9 + length {
            return None;
        }
        self.read.advance(9);
        Some(Frame { kind, flags, stream, payload: self.read.split_to(length).to_vec() })
    }

    /// Waits for a frame of that kind.
    async fn until(&mut self, kind: u8) -> Option<Frame> {
        loop {
            let frame = self.frame().await?;
            if frame.kind == kind {
                return Some(frame);
            }
        }
    }

    /// The whole body of that stream; `Err` with the error when it is reset or the connection ends.
    async fn body(&mut self, stream: u32) -> Result<String, u32> {
        let mut body = Vec::new();
        while let Some(frame) = self.frame().await {
            match frame.kind {
                GOAWAY if frame.error() != NO_ERROR => return Err(frame.error()),
                RST_STREAM if frame.stream == stream => return Err(frame.error()),
                DATA if frame.stream == stream => body.extend_from_slice(&frame.payload),
                _ => {}
            }
            if frame.stream == stream && frame.kind <= HEADERS && frame.flags & END_STREAM != 0 {
                return Ok(String::from_utf8(body).unwrap());
            }
        }
        Err(u32::MAX)
    }
}

#[tokio::test]
async fn requests_that_contradict_themselves_go_nowhere() {
    let upstream = Recorder::start().await;
    let guard = guard(policy(&upstream)).await;
    let length = BODY.len().to_string();
    let long = (BODY.len() + 1).to_string();
    let short = (BODY.len() - 1).to_string();
    let cases: [(&str, &[(&str, &str)]); 10] = [
        ("a longer length", &[("content-length", &long)]),
        ("a shorter length", &[("content-length", &short)]),
        ("a length that is no number", &[("content-length", "x")]),
        ("chunks", &[("transfer-encoding", "chunked")]),
        ("a header of one connection", &[("connection", "close")]),
        ("another of them", &[("keep-alive", "1")]),
        ("a line's end in a value", &[("x-a", "b\r\nx-b: c")]),
        ("a NUL in a value", &[("x-a", "b\0")]),
        ("a name in capitals", &[("X-A", "b")]),
        ("a second path", &[(":path", "/generate")]),
    ];
    for (name, fields) in cases {
        let mut client = Client::connect(&guard, &frame(SETTINGS, 0, 0, &[])).await;
        client.send(&chat(1, fields, BODY)).await;
        match client.body(1).await {
            Err(error) => assert_eq!(error, PROTOCOL_ERROR, "{name}"),
            Ok(body) => assert!(body.contains("body_invalid"), "{name}: {body}"),
        }
    }
    let mut client = Client::connect(&guard, &frame(SETTINGS, 0, 0, &[])).await;
    client.send(&chat(1, &[("content-length", &length), ("x-a", "b")], BODY)).await;
    assert_eq!(client.body(1).await.as_deref(), Ok(ANSWER));
    assert_eq!((upstream.bodies().as_slice(), upstream.half()), ([BODY.to_owned()].as_slice(), 0));
}

/// CVE-2023-44487: streams that are reset as soon as they are open count towards no limit of the protocol.
#[tokio::test]
async fn who_resets_what_it_asks_as_fast_as_it_can_is_shown_the_door() {
    let upstream = Recorder::start().await;
    let guard = guard(policy(&upstream)).await;
    let mut client = Client::connect(&guard, &frame(SETTINGS, 0, 0, &[])).await;
    let mut flood = Vec::new();
    for stream in (1..4000).step_by(2) {
        flood.extend(chat(stream, &[], BODY));
        flood.extend(frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
    }
    client.send(&flood).await;
    let end = client.until(GOAWAY).await;
    assert_eq!(end.map(|frame| frame.error()), Some(ENHANCE_YOUR_CALM));
    in_flight(&guard, 0).await;
    assert!(upstream.whole().len() < 500, "{}", upstream.whole().len());
    assert_eq!(upstream.half(), 0);
    passes(&mut Raw::connect(guard.client_addr).await, &upstream).await;
    // Who changes its mind now and then is not.
    let mut client = Client::connect(&guard, &frame(SETTINGS, 0, 0, &[])).await;
    for stream in (1..80).step_by(4) {
        client.send(&chat(stream, &[], BODY)).await;
        client.send(&frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes())).await;
        client.send(&chat(stream + 2, &[], BODY)).await;
        assert_eq!(client.body(stream + 2).await.as_deref(), Ok(ANSWER));
    }
}

#[tokio::test]
async fn a_head_without_end_ends_its_connection() {
    let upstream = Recorder::start().await;
    let guard = guard(policy(&upstream)).await;
    let mut client = Client::connect(&guard, &frame(SETTINGS, 0, 0, &[])).await;
    client.send(&frame(HEADERS, 0, 1, &block(&POST))).await;
    let value = "a".repeat(100);
    let more = frame(CONTINUATION, 0, 1, &block(&[("x-a", value.as_str()); 100]));
    let mut sent = 0;
    while client.send(&more).await {
        sent += 1;
        assert!(sent < 10_000, "it takes all");
    }
    assert!(upstream.whole().is_empty());
}

/// A window that stays shut takes nothing: the answer is taken away, and the other streams of the connection go on.
#[tokio::test]
async fn who_shuts_its_window_loses_that_answer_only() {
    let upstream = Recorder::start().await;
    let mut policy = policy(&upstream);
    policy.limits.client_pause = Duration::from_millis(1500);
    let guard = guard(policy).await;
    let event = "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"finish_reason\":null}]}\n\n";
    let end = "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    upstream.will([send(EVENTS), chunk(event), chunk(event), Step::Hang]);
    let mut client = Client::connect(&guard, &window(0)).await;
    client.send(&chat(1, &[], STREAM)).await;
    upstream.until("it is left", |up| up.left() == 1).await;
    in_flight(&guard, 0).await;
    // Another one opens its window, bit by bit.
    upstream.will([send(EVENTS), chunk(event), chunk(end), last_chunk()]);
    client.send(&chat(3, &[], STREAM)).await;
    let (mut body, began) = (Vec::new(), Instant::now());
    while body.len() < event.len() + end.len() {
        client.send(&frame(WINDOW_UPDATE, 0, 3, &16_u32.to_be_bytes())).await;
        let data = loop {
            let frame = client.until(DATA).await.unwrap();
            if frame.stream == 3 && !frame.payload.is_empty() {
                break frame;
            }
        };
        body.extend(data.payload);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(began.elapsed() > Duration::from_millis(1500), "longer than a window may be shut");
    assert_eq!(String::from_utf8(body).unwrap(), format!("{event}{end}"));
}

#[tokio::test]
async fn who_asks_for_echoes_and_does_not_read_them_is_cut_off() {
    let upstream = Recorder::start().await;
    let mut policy = policy(&upstream);
    policy.limits.client_pause = Duration::from_millis(400);
    let guard = guard(policy).await;
    let mut client = Client::connect(&guard, &frame(SETTINGS, 0, 0, &[])).await;
    client.send(&chat(1, &[], BODY)).await;
    assert_eq!(client.body(1).await.as_deref(), Ok(ANSWER));
    let pings = frame(PING, 0, 0, &[0; 8]).repeat(4096);
    while client.send(&pings).await {}
    passes(&mut Raw::connect(guard.client_addr).await, &upstream).await;
}

#[tokio::test]
async fn a_quiet_connection_is_closed_in_good_order() {
    let upstream = Recorder::start().await;
    let mut policy = policy(&upstream);
    policy.limits.keep_alive_timeout = Duration::from_millis(500);
    let guard = guard(policy).await;
    let mut client = Client::connect(&guard, &frame(SETTINGS, 0, 0, &[])).await;
    let began = Instant::now();
    client.send(&chat(1, &[], BODY)).await;
    assert_eq!(client.body(1).await.as_deref(), Ok(ANSWER));
    assert_eq!(client.until(GOAWAY).await.map(|frame| frame.error()), Some(NO_ERROR));
    assert!(began.elapsed() >= Duration::from_millis(500));
    while client.frame().await.is_some() {}
}

#[tokio::test]
async fn a_drain_says_goodbye_at_once_and_lets_streams_end() {
    let upstream = Recorder::start().await;
    let guard = guard(policy(&upstream)).await;
    let go = Arc::new(Notify::new());
    upstream.will([Step::Gate(Arc::clone(&go)), json(ANSWER)]);
    let mut client = Client::connect(&guard, &frame(SETTINGS, 0, 0, &[])).await;
    client.send(&chat(1, &[], BODY)).await;
    upstream.until("it is asked", |up| up.whole().len() == 1).await;
    let shutdown = tokio::spawn(guard.shutdown());
    assert_eq!(client.until(GOAWAY).await.map(|frame| frame.error()), Some(NO_ERROR));
    go.notify_one();
    assert_eq!(client.body(1).await.as_deref(), Ok(ANSWER));
    while client.frame().await.is_some() {}
    assert!(shutdown.await.unwrap());
}
