//! The load generator: clients that each hold their conversations over one kept connection, one request
//! after the other, and note how long everything took.

use crate::chat::{Answer, Ask, Flow};
use crate::clock;
use crate::upstream::{STAMP, STAMP_DIGITS};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(60);

/// Whom the requests go to, and with which headers.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) addr: SocketAddr,
    pub(crate) headers: Arc<[(HeaderName, HeaderValue)]>,
    /// Whether requests name their conversation and generation.
    pub(crate) tracked: bool,
}

/// What was seen. Times in microseconds.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) done: u64,
    pub(crate) failed: u64,
    pub(crate) failure: Option<String>,
    /// Answers that bore another verdict than `pass`.
    pub(crate) noted: u64,
    pub(crate) chunks: u64,
    /// From the request going out to the end of the answer.
    pub(crate) whole: Vec<f32>,
    /// From the request going out to the first chunk.
    pub(crate) first: Vec<f32>,
    /// Of each chunk, from the upstream to here.
    pub(crate) transit: Vec<f32>,
    /// Between two chunks of one stream.
    pub(crate) gap: Vec<f32>,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Tally) {
        self.done += other.done;
        self.failed += other.failed;
        self.failure = self.failure.take().or(other.failure);
        self.noted += other.noted;
        self.chunks += other.chunks;
        self.whole.extend(other.whole);
        self.first.extend(other.first);
        self.transit.extend(other.transit);
        self.gap.extend(other.gap);
    }
}

/// When a client stops.
#[derive(Clone, Copy)]
pub(crate) enum Until {
    Time(Instant),
    Exchanges(u64),
}

/// One client: its connection, and the conversations that it holds in turn.
pub(crate) struct Client {
    target: Target,
    sender: Option<SendRequest<Pieces>>,
    pub(crate) flows: Vec<Flow>,
    at: usize,
}

impl Client {
    pub(crate) fn new(target: &Target, flows: Vec<Flow>) -> Client {
        Client { target: target.clone(), sender: None, flows, at: 0 }
    }

    /// Takes on more conversations, and begins with them.
    pub(crate) fn begin_with(&mut self, flows: impl Iterator<Item = Flow>) {
        self.at = self.flows.len();
        self.flows.extend(flows);
        self.at %= self.flows.len().max(1);
    }

    /// Holds its conversations, a task of each in turn, with a pause between requests.
    pub(crate) async fn run(&mut self, answer: Answer, until: Until, pause: Duration) -> Tally {
        let mut tally = Tally::default();
        let mut began = 0;
        loop {
            let over = match until {
                Until::Time(end) => Instant::now() >= end,
                Until::Exchanges(most) => began >= most,
            };
            if over {
                return tally;
            }
            began += 1;
            if let Err(why) = self.exchange(answer, &mut tally).await {
                tally.failed += 1;
                tally.failure.get_or_insert(why);
                self.sender = None;
                self.flows[self.at].renew();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if self.flows[self.at].is_between_tasks() {
                self.at = (self.at + 1) % self.flows.len();
            }
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
        }
    }

    async fn exchange(&mut self, answer: Answer, tally: &mut Tally) -> Result<(), String> {
        let ask = self.flows[self.at].ask(answer);
        let exchange = async {
            if self.sender.as_ref().is_none_or(SendRequest::is_closed) {
                self.sender = Some(connect(self.target.addr).await?);
            }
            let sender = self.sender.as_mut().unwrap();
            let request = request(&self.target, ask);
            let begun = Instant::now();
            let response = sender.send_request(request).await.map_err(|error| said(&error))?;
            read(response, answer, begun, tally).await
        };
        tokio::time::timeout(PATIENCE, exchange).await.map_err(|_| "no answer".to_owned())??;
        self.flows[self.at].answered();
        Ok(())
    }
}

/// An error and what lies under it.
fn said(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// A new connection, for requests one after the other.
pub(crate) async fn connect(addr: SocketAddr) -> Result<SendRequest<Pieces>, String> {
    let stream = TcpStream::connect(addr).await.map_err(|error| error.to_string())?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|e| said(&e))?;
    tokio::spawn(connection);
    Ok(sender)
}

pub(crate) fn request(target: &Target, ask: Ask) -> Request<Pieces> {
    let mut request = Request::post("/v1/chat/completions")
        .header(header::HOST, "127.0.0.1")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Pieces::new(ask.pieces))
        .unwrap();
    let headers = request.headers_mut();
    for (name, value) in target.headers.iter() {
        headers.insert(name, value.clone());
    }
    if target.tracked {
        headers.insert("x-conversation-id", ask.conversation.parse().unwrap());
        headers.insert("x-generation", HeaderValue::from(ask.generation));
    }
    request
}

async fn read(
    response: Response<Incoming>,
    answer: Answer,
    begun: Instant,
    tally: &mut Tally,
) -> Result<(), String> {
    let status = response.status();
    let verdict = response.headers().get("x-tigertally-verdict");
    tally.noted += u64::from(verdict.is_some_and(|verdict| verdict != "pass"));
    let mut body = response.into_body();
    if !status.is_success() {
        let text = body.collect().await.map_err(|error| said(&error))?.to_bytes();
        let text: String = String::from_utf8_lossy(&text).chars().take(300).collect();
        return Err(format!("{status}: {text}"));
    }
    let finder = memchr::memmem::Finder::new(STAMP);
    let (mut stamped, mut last) = (0, None);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| said(&error))?.into_data() else { continue };
        if matches!(answer, Answer::Whole { .. }) {
            continue;
        }
        let (now, arrived) = (clock::nanoseconds(), Instant::now());
        for at in finder.find_iter(&data) {
            let Some(sent) = stamp(&data[at + STAMP.len()..]) else { continue };
            if stamped == 0 {
                tally.first.push(micros(arrived - begun));
            }
            stamped += 1;
            tally.transit.push(now.saturating_sub(sent) as f32 / 1000.0);
            if let Some(last) = last.replace(arrived) {
                tally.gap.push(micros(arrived - last));
            }
        }
    }
    if let Answer::Stream { chunks, .. } = answer {
        // A time that two reads divide between them is not seen; a stream that lost chunks is no answer.
        if stamped * 10 < chunks * 8 {
            return Err(format!("{stamped} of {chunks} chunks came"));
        }
        tally.chunks += chunks as u64;
    }
    tally.done += 1;
    tally.whole.push(micros(begun.elapsed()));
    Ok(())
}

fn stamp(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text.get(..STAMP_DIGITS)?).ok()?.parse().ok()
}

fn micros(time: Duration) -> f32 {
    time.as_secs_f32() * 1e6
}

/// Runs all clients at once, to the end of the last.
pub(crate) async fn all(
    clients: &mut Vec<Client>,
    answer: Answer,
    until: Until,
    pause: Duration,
) -> Tally {
    let mut running = tokio::task::JoinSet::new();
    let count = clients.len().max(1) as u32;
    for (place, mut client) in clients.drain(..).enumerate() {
        running.spawn(async move {
            // With pauses, not all at once.
            tokio::time::sleep(pause * place as u32 / count).await;
            let tally = client.run(answer, until, pause).await;
            (client, tally)
        });
    }
    let mut total = Tally::default();
    while let Some(ended) = running.join_next().await {
        let (client, tally) = ended.unwrap();
        clients.push(client);
        total.add(tally);
    }
    total
}

/// A body in pieces that are not copied together.
pub(crate) struct Pieces {
    pieces: [Bytes; 3],
    at: usize,
}

impl Pieces {
    pub(crate) fn new(pieces: [Bytes; 3]) -> Pieces {
        Pieces { pieces, at: 0 }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let at = self.at;
        self.at += 1;
        Poll::Ready(self.pieces.get_mut(at).map(|piece| Ok(Frame::data(std::mem::take(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.at >= self.pieces.len()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.pieces.iter().map(|piece| piece.len() as u64).sum())
    }
}
