//! A client that writes bytes by hand, so that nothing tidies them.

use bytes::{Buf as _, BytesMut};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A bound on waiting, so that a failure is told and does not hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    read: BytesMut,
}

/// One answer.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The statuses of the interim responses before it.
    pub(crate) interim: Vec<u16>,
    pub(crate) status: u16,
    /// In lower case.
    pub(crate) head: String,
    pub(crate) body: String,
    /// Whether the body came to the end that its head announced.
    pub(crate) whole: bool,
}

impl Answer {
    pub(crate) fn code(&self) -> String {
        let body: serde_json::Value = serde_json::from_str(&self.body).unwrap_or_default();
        body["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn closes(&self) -> bool {
        self.head.contains("\r\nconnection: close\r\n")
    }
}

impl Raw {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Raw::over(stream)
    }

    pub(crate) fn over(stream: TcpStream) -> Self {
        Raw { stream, read: BytesMut::new() }
    }

    /// Sends these bytes; what the other side no longer takes is not sent.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        let sent = self.stream.write_all(bytes.as_ref());
        tokio::time::timeout(PATIENCE, sent).await.unwrap().is_ok()
    }

    /// Ends its own side.
    pub(crate) async fn shut(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    /// More bytes; false at the end, or after a reset.
    async fn more(&mut self) -> bool {
        let read = self.stream.read_buf(&mut self.read);
        tokio::time::timeout(PATIENCE, read).await.unwrap().unwrap_or(0) > 0
    }

    /// The head of the next answer, final or interim.
    async fn head(&mut self) -> Option<(u16, String)> {
        loop {
            let end = self.read.windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(end) = end {
                let head = self.read.split_to(end + 4);
                let head = String::from_utf8(head.to_vec()).unwrap().to_ascii_lowercase();
                let status = head.split(' ').nth(1).unwrap().parse().unwrap();
                return Some((status, head));
            }
            if !self.more().await {
                return None;
            }
        }
    }

    async fn exactly(&mut self, length: usize) -> Option<Vec<u8>> {
        while self.read.len() < length {
            if !self.more().await {
                return None;
            }
        }
        Some(self.read.split_to(length).to_vec())
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.read.windows(2).position(|two| two == b"\r\n") {
                let line = self.read.split_to(end);
                self.read.advance(2);
                return Some(String::from_utf8(line.to_vec()).unwrap());
            }
            if !self.more().await {
                return None;
            }
        }
    }

    /// A chunked body: what came of it, and whether it came to its end.
    async fn chunks(&mut self) -> (Vec<u8>, bool) {
        let mut body = Vec::new();
        loop {
            let Some(line) = self.line().await else { return (body, false) };
            let length = usize::from_str_radix(line.trim(), 16).unwrap();
            let Some(chunk) = self.exactly(length + 2).await else { return (body, false) };
            body.extend_from_slice(&chunk[..length]);
            if length == 0 {
                return (body, true);
            }
        }
    }

    /// The next answer; `None` when the connection ended before one.
    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        let mut interim = Vec::new();
        let (status, head) = loop {
            let (status, head) = self.head().await?;
            if status >= 200 {
                break (status, head);
            }
            interim.push(status);
        };
        let length = head.split("\r\ncontent-length: ").nth(1);
        let length = length.map(|rest| rest.split("\r\n").next().unwrap().parse().unwrap());
        let (body, whole) = match length {
            Some(length) => match self.exactly(length).await {
                Some(body) => (body, true),
                None => (self.read.split().to_vec(), false),
            },
            None if head.contains("\r\ntransfer-encoding: chunked\r\n") => self.chunks().await,
            None => {
                while self.more().await {}
                (self.read.split().to_vec(), true)
            }
        };
        let body = String::from_utf8(body).unwrap();
        Some(Answer { interim, status, head, body, whole })
    }

    /// Waits for the connection's end: whether nothing more came before.
    pub(crate) async fn ends_silently(&mut self) -> bool {
        while self.more().await {}
        self.read.is_empty()
    }

    /// Whether the connection is still open, with nothing to read, as far as one can tell now.
    pub(crate) fn is_open(&mut self) -> bool {
        let nothing = self.stream.try_read(&mut [0; 1]);
        matches!(nothing, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    }
}
