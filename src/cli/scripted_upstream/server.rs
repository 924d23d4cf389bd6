//! The routes.

use super::generation::{self, Generation, Whole};
use super::plan::{self, Answer};
use super::reading::Asked;
use super::script::Script;
use super::seen::{Arrival, Open, Seen};
use super::shapes::{self, Head};
use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::response::Response;
use axum::routing::{get, post};
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri, header};
use http_body::Frame;
use serde::Deserialize;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const JSON: &str = "application/json";
const STREAM: &str = "text/event-stream; charset=utf-8";

#[derive(Clone)]
struct Upstream {
    script: Arc<Script>,
    seen: Arc<Seen>,
}

/// All that it serves.
pub(super) fn router(script: Script) -> Router {
    let upstream = Upstream { script: Arc::new(script), seen: Arc::default() };
    Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/models", get(models))
        .route("/v1/models/{*id}", get(model))
        .route("/health", get(health))
        .route("/abort_request", post(abort))
        .route("/_seen", get(seen).delete(reset))
        .route("/_seen/{index}", get(seen_body))
        .fallback(nothing_here)
        // SGLang bounds no body either; the guard in front has that task.
        .layer(DefaultBodyLimit::disable())
        .with_state(upstream)
}

async fn chat(State(upstream): State<Upstream>, headers: HeaderMap, body: Bytes) -> Response {
    let asked: Asked<'_> = match serde_json::from_slice(&body) {
        Ok(asked) => asked,
        Err(error) => {
            upstream.seen.unusable(&headers, body.clone());
            let message = format!("1 validation error: {error}");
            return answer(400, JSON, shapes::error(400, "Bad Request", &message));
        }
    };
    let rid = asked.rid().unwrap_or_else(hex_id);
    let arrival = Arrival {
        rid: rid.clone(),
        stream: asked.stream(),
        messages: asked.messages.len(),
        headers: &headers,
        body: body.clone(),
    };
    let Some(open) = upstream.seen.open(arrival) else {
        let message = format!("Duplicate request ID detected: {rid}");
        return answer(400, JSON, shapes::error(400, "BadRequestError", &message));
    };
    match plan::answer(&upstream.script, &asked, call_id) {
        Answer::Say(plans) => {
            let ids = (0..plans.len()).map(|at| if at == 0 { rid.clone() } else { hex_id() });
            let head = Head { id: rid.clone(), created: now(), model: asked.model() };
            let usage = asked.include_usage();
            let tokens = body.len() / 4;
            say(Generation::new(plans, head, ids.collect(), tokens, usage, open), asked.stream())
                .await
        }
        Answer::Fail { status, message } => fail(open, status, &message),
        Answer::Raw { status, content_type, segments, first_delay, delay } => {
            let kind = if asked.stream() { STREAM } else { JSON };
            let kind = content_type.as_deref().unwrap_or(kind);
            let raw = RawBytes { segments: segments.into_iter(), first_delay, delay, open };
            reply(status, kind, Pulled::body(Source::Raw(raw)))
        }
    }
}

async fn say(generation: Generation, stream: bool) -> Response {
    if stream {
        return reply(200, STREAM, Pulled::body(Source::Spoken(generation)));
    }
    match generation.whole().await {
        Whole::Completion(body) => answer(200, JSON, body),
        Whole::Failure { status, message } => {
            answer(status, JSON, shapes::error(status, &status.to_string(), &message))
        }
    }
}

fn fail(mut open: Open, status: u16, message: &str) -> Response {
    open.finish();
    answer(status, JSON, shapes::error(status, &status.to_string(), message))
}

async fn models(State(upstream): State<Upstream>) -> Response {
    upstream.seen.other(&Method::GET, "/v1/models");
    answer(200, JSON, shapes::models(now()))
}

async fn model(State(upstream): State<Upstream>, Path(id): Path<String>) -> Response {
    upstream.seen.other(&Method::GET, &format!("/v1/models/{id}"));
    if id == "scripted" {
        return answer(200, JSON, shapes::model(now()));
    }
    let message = format!("The model '{id}' does not exist");
    answer(404, JSON, shapes::error(404, "NotFoundError", &message))
}

async fn health() -> StatusCode {
    StatusCode::OK
}

#[derive(Deserialize)]
struct AbortRequest {
    #[serde(default)]
    rid: Option<String>,
    #[serde(default)]
    abort_all: bool,
}

async fn abort(State(upstream): State<Upstream>, body: Bytes) -> StatusCode {
    match serde_json::from_slice(&body) {
        Ok(AbortRequest { abort_all: true, .. }) => upstream.seen.abort(""),
        Ok(AbortRequest { rid: Some(rid), .. }) => upstream.seen.abort(&rid),
        Ok(AbortRequest { rid: None, .. }) => return StatusCode::BAD_REQUEST,
        Err(_) => return StatusCode::UNPROCESSABLE_ENTITY,
    }
    StatusCode::OK
}

async fn seen(State(upstream): State<Upstream>) -> Response {
    answer(200, JSON, upstream.seen.report().to_string())
}

async fn seen_body(State(upstream): State<Upstream>, Path(index): Path<usize>) -> Response {
    match upstream.seen.body(index) {
        Some(body) => reply(200, "application/octet-stream", Body::from(body)),
        None => answer(404, JSON, r#"{"detail":"Not Found"}"#.to_owned()),
    }
}

async fn reset(State(upstream): State<Upstream>) -> StatusCode {
    upstream.seen.reset();
    StatusCode::NO_CONTENT
}

async fn nothing_here(State(upstream): State<Upstream>, method: Method, uri: Uri) -> Response {
    upstream.seen.other(&method, uri.path());
    answer(404, JSON, r#"{"detail":"Not Found"}"#.to_owned())
}

fn answer(status: u16, kind: &str, body: String) -> Response {
    reply(status, kind, Body::from(body))
}

fn reply(status: u16, kind: &str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    if let Ok(kind) = kind.parse() {
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
    }
    response
}

/// A fresh request id, as SGLang makes them: 32 hex digits.
fn hex_id() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// A fresh call id, as SGLang makes them: `call_` and 24 hex digits.
fn call_id() -> String {
    format!("call_{}", &hex_id()[..24])
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// What a streamed body is pulled from.
enum Source {
    Spoken(Generation),
    Raw(RawBytes),
}

struct RawBytes {
    segments: std::vec::IntoIter<Vec<u8>>,
    first_delay: Duration,
    delay: Duration,
    open: Open,
}

impl Source {
    async fn next(&mut self) -> Option<Bytes> {
        match self {
            Source::Spoken(generation) => generation.event().await,
            Source::Raw(raw) => {
                let time = raw.delay + std::mem::take(&mut raw.first_delay);
                let segment = raw.segments.next();
                if segment.is_some() {
                    generation::wait(time, &raw.open).await;
                }
                if raw.segments.as_slice().is_empty() {
                    raw.open.finish();
                }
                segment.map(Bytes::from)
            }
        }
    }
}

type Turn = Pin<Box<dyn Future<Output = (Source, Option<Bytes>)> + Send>>;

/// A body that asks its source for the next piece when the connection asks for it.
struct Pulled {
    turn: Option<Turn>,
}

impl Pulled {
    fn body(source: Source) -> Body {
        Body::new(Pulled { turn: Some(Self::turn(source)) })
    }

    fn turn(mut source: Source) -> Turn {
        Box::pin(async move {
            let piece = source.next().await;
            (source, piece)
        })
    }
}

impl http_body::Body for Pulled {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(turn) = self.turn.as_mut() else { return Poll::Ready(None) };
        let (source, piece) = std::task::ready!(turn.as_mut().poll(cx));
        self.turn = piece.as_ref().map(|_| Self::turn(source));
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }
}
