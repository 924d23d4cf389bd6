//! An upstream of raw sockets: it counts what reached it whole and what only in part, and answers by scripts that no
//! HTTP server would follow.

use bytes::BytesMut;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const ANSWER: &str = r#"{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}"#;

/// One thing that the upstream does.
#[derive(Clone)]
pub(crate) enum Step {
    Send(Vec<u8>),
    /// The same bytes, so often.
    Flood(Vec<u8>, u64),
    /// Waits until it is told to go on.
    Gate(Arc<Notify>),
    /// Nothing more, for ever.
    Hang,
    /// The connection is reset.
    Reset,
    /// The connection ends.
    Close,
}

pub(crate) fn send(text: impl Into<Vec<u8>>) -> Step {
    Step::Send(text.into())
}

/// An answer of known length.
pub(crate) fn json(body: &str) -> Step {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ";
    send(format!("{head}{}\r\n\r\n{body}", body.len()))
}

pub(crate) const EVENTS: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// One chunk of a body.
pub(crate) fn chunk(text: &str) -> Step {
    send(format!("{:x}\r\n{text}\r\n", text.len()))
}

pub(crate) fn last_chunk() -> Step {
    send("0\r\n\r\n")
}

/// One whole request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// In lower case.
    pub(crate) head: String,
    /// As it came, chunks and all.
    pub(crate) body: Vec<u8>,
}

#[derive(Default)]
struct State {
    /// The chat requests that came whole.
    whole: Vec<Request>,
    /// The other requests.
    other: Vec<Request>,
    /// Connections that ended within a request.
    half: usize,
    /// Chat requests whose connection went away before their script was at its end.
    left: usize,
    open: usize,
    /// Connections so far.
    taken: usize,
    scripts: VecDeque<Vec<Step>>,
}

#[derive(Clone)]
pub(crate) struct Recorder {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

impl Recorder {
    #[expect(clippy::disallowed_methods, reason = "ends with the test's runtime")]
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let recorder = Recorder { address, state: Arc::default(), changed: Arc::default() };
        let serving = recorder.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let one = serving.clone();
                tokio::spawn(async move {
                    one.update(|state| {
                        state.open += 1;
                        state.taken += 1;
                    });
                    one.serve(stream).await;
                    one.update(|state| state.open -= 1);
                });
            }
        });
        recorder
    }

    /// The next chat request is answered so; one without a script, with [`ANSWER`].
    pub(crate) fn will(&self, steps: impl IntoIterator<Item = Step>) {
        self.state.lock().scripts.push_back(steps.into_iter().collect());
    }

    /// The bodies of the chat requests so far.
    pub(crate) fn bodies(&self) -> Vec<String> {
        let state = self.state.lock();
        let bodies = state.whole.iter().map(|one| String::from_utf8(one.body.clone()).unwrap());
        bodies.collect()
    }

    pub(crate) fn whole(&self) -> Vec<Request> {
        self.state.lock().whole.clone()
    }

    /// The requests that were no chat.
    pub(crate) fn other(&self) -> Vec<Request> {
        self.state.lock().other.clone()
    }

    pub(crate) fn aborts(&self) -> usize {
        let state = self.state.lock();
        state.other.iter().filter(|one| one.head.starts_with("post /abort_request ")).count()
    }

    pub(crate) fn half(&self) -> usize {
        self.state.lock().half
    }

    pub(crate) fn left(&self) -> usize {
        self.state.lock().left
    }

    pub(crate) fn open(&self) -> usize {
        self.state.lock().open
    }

    pub(crate) fn taken(&self) -> usize {
        self.state.lock().taken
    }

    /// Waits until this holds.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let wait = async {
            loop {
                let changed = self.changed.notified();
                if holds(self) {
                    return;
                }
                changed.await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, wait).await.is_ok(), "never: {what}");
    }

    fn update(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changed.notify_waiters();
    }

    async fn serve(&self, mut stream: TcpStream) {
        let mut read = BytesMut::new();
        loop {
            let request = match take(&mut stream, &mut read).await {
                Ok(Some(request)) => request,
                Ok(None) => return,
                Err(()) => return self.update(|state| state.half += 1),
            };
            let chat = request.head.strip_prefix("post /v1/chat/completions");
            if !chat.is_some_and(|rest| rest.starts_with([' ', '?'])) {
                self.update(|state| state.other.push(request));
                let head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
                let _ = stream.write_all(head).await;
                return;
            }
            let script = self.state.lock().scripts.pop_front();
            self.update(|state| state.whole.push(request));
            let script = script.unwrap_or_else(|| vec![json(ANSWER)]);
            match play(&mut stream, script).await {
                Played::Whole => {}
                Played::Over => return,
                Played::Left => return self.update(|state| state.left += 1),
            }
        }
    }
}

/// The next request; `Err` when the connection ended within it.
async fn take(stream: &mut TcpStream, read: &mut BytesMut) -> Result<Option<Request>, ()> {
    let mut length = None;
    loop {
        let end = read.windows(4).position(|four| four == b"\r\n\r\n").map(|end| end + 4);
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&read[..end]).to_ascii_lowercase();
            let chunked = head.contains("\r\ntransfer-encoding: chunked\r\n");
            if chunked && read.ends_with(b"0\r\n\r\n") {
                let body = read.split()[end..].to_vec();
                return Ok(Some(Request { head, body }));
            }
            let announced = head.split("\r\ncontent-length: ").nth(1);
            let announced = announced.map(|rest| rest.split("\r\n").next().unwrap());
            let needed = end + announced.map_or(0, |length| length.parse::<usize>().unwrap());
            if !chunked && read.len() >= needed {
                let body = read.split_to(needed)[end..].to_vec();
                return Ok(Some(Request { head, body }));
            }
            length = Some(needed);
        }
        match stream.read_buf(read).await {
            Ok(0) | Err(_) if read.is_empty() && length.is_none() => return Ok(None),
            Ok(0) | Err(_) => return Err(()),
            Ok(_) => {}
        }
    }
}

enum Played {
    /// Another request may follow.
    Whole,
    /// The script ended the connection.
    Over,
    /// The other side did.
    Left,
}

async fn play(stream: &mut TcpStream, script: Vec<Step>) -> Played {
    for step in script {
        let done = match step {
            Step::Send(bytes) => stream.write_all(&bytes).await.is_ok(),
            Step::Flood(piece, times) => {
                let mut left = times;
                while left > 0 && stream.write_all(&piece).await.is_ok() {
                    left -= 1;
                }
                left == 0
            }
            Step::Gate(gate) => tokio::select! {
                () = gate.notified() => true,
                () = gone(stream) => false,
            },
            Step::Hang => {
                gone(stream).await;
                false
            }
            Step::Reset => {
                stream.set_zero_linger().unwrap();
                return Played::Over;
            }
            Step::Close => return Played::Over,
        };
        if !done {
            return Played::Left;
        }
    }
    Played::Whole
}

/// Waits until the other side ends the connection. A client of HTTP/1.1 sends nothing meanwhile.
async fn gone(stream: &TcpStream) {
    loop {
        let ready = stream.readable().await;
        match stream.try_read(&mut [0; 16]) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && ready.is_ok() => {}
            Ok(read) if read > 0 => {}
            _ => return,
        }
    }
}
