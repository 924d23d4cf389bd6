//! A server that answers in OpenAI's shapes as fast as it can, and does what the request's plan says.
//!
//! It reads no JSON. Each chunk of text in a stream bears the time at which it was made, so that whoever
//! receives it knows how long it was under way.

use crate::chat::{Answer, Plan, TOOL};
use crate::clock;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::{Instant, Sleep};

/// In front of the time in each chunk of text.
pub(crate) const STAMP: &str = "t=";
/// Digits of that time: nanoseconds since 1970.
pub(crate) const STAMP_DIGITS: usize = 19;
/// The plan stands within so many bytes of the body's end.
const TAIL_BYTES: usize = 16 << 10;

/// Serves until the process is ended.
pub(crate) async fn serve(addr: SocketAddr) {
    let listener = TcpListener::bind(addr).await.unwrap();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        tokio::spawn(async move {
            let service = service_fn(answer);
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Reply>, Infallible> {
    let path = request.uri().path().to_owned();
    if request.method() == http::Method::GET || !path.ends_with("/chat/completions") {
        // Traces among others: they are taken, and nothing is done with them.
        tail_of(request.into_body()).await;
        return Ok(json(Bytes::from_static(about(&path).as_bytes())));
    }
    let Some(tail) = tail_of(request.into_body()).await else {
        return Ok(refused("the body broke off"));
    };
    Ok(match Plan::find(&tail) {
        None => refused("no plan in the body"),
        Some(Plan { answer: Answer::Whole { bytes }, call }) => json(whole(bytes, call.as_deref())),
        Some(Plan { answer: Answer::Stream { chunks, pace }, call }) => {
            let script = Chunks { chunks, sent: 0, call, end: 0 };
            let reply = Reply::Stream { script, pace, next: None, yielded: false };
            let mut response = Response::new(reply);
            let kind = http::HeaderValue::from_static("text/event-stream");
            response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
            response
        }
    })
}

/// What gateways ask of a worker before they trust it.
fn about(path: &str) -> &'static str {
    match path {
        "/v1/models" => {
            r#"{"object":"list","data":[{"id":"bench-model","object":"model","owned_by":"bench"}]}"#
        }
        _ => {
            r#"{"status":"ok","model_path":"bench-model","served_model_name":"bench-model","is_generation":true}"#
        }
    }
}

async fn tail_of(mut body: Incoming) -> Option<Vec<u8>> {
    let mut tail = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.ok()?.into_data() else { continue };
        if data.len() >= TAIL_BYTES {
            tail.clear();
            tail.extend_from_slice(&data[data.len() - TAIL_BYTES..]);
        } else {
            tail.extend_from_slice(&data);
            if tail.len() > 4 * TAIL_BYTES {
                tail.drain(..tail.len() - TAIL_BYTES);
            }
        }
    }
    Some(tail)
}

fn json(body: Bytes) -> Response<Reply> {
    let mut response = Response::new(Reply::Whole(Some(body)));
    let kind = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}

fn refused(why: &str) -> Response<Reply> {
    let mut response = json(format!("{{\"error\":{{\"message\":\"{why}\"}}}}").into());
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}

fn whole(bytes: usize, call: Option<&str>) -> Bytes {
    let (message, finish) = match call {
        Some(id) => (format!("\"content\":null,\"tool_calls\":[{}]", tool_call(id)), "tool_calls"),
        None => {
            let text = "It is on its way. ".repeat(bytes / 18 + 1);
            (format!("\"content\":\"{text}\",\"tool_calls\":null"), "stop")
        }
    };
    format!(
        "{{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1764500000,\"model\":\"bench-model\",\
         \"choices\":[{{\"index\":0,\"message\":{{\"role\":\"assistant\",{message}}},\"logprobs\":null,\
         \"finish_reason\":\"{finish}\"}}],\"usage\":{{\"prompt_tokens\":9,\"total_tokens\":18,\
         \"completion_tokens\":9}}}}"
    )
    .into()
}

fn tool_call(id: &str) -> String {
    format!(
        "{{\"id\":\"{id}\",\"index\":0,\"type\":\"function\",\"function\":{{\"name\":\"{TOOL}\",\
         \"arguments\":\"{{\\\"order_id\\\":\\\"A-17\\\"}}\"}}}}"
    )
}

/// The events of one stream, one by one: text, then the call in pieces when one is planned, then the end.
pub(crate) struct Chunks {
    chunks: usize,
    sent: usize,
    call: Option<String>,
    end: usize,
}

impl Chunks {
    fn next(&mut self) -> Option<Bytes> {
        if self.sent < self.chunks {
            self.sent += 1;
            let now = clock::nanoseconds();
            return Some(event(&format!("{{\"content\":\" and{STAMP}{now} on\"}}"), "null"));
        }
        self.end += 1;
        let call = self.call.as_deref();
        let piece = |text: &str| {
            let text = text.replace('"', "\\\"");
            event(
                &format!(
                    "{{\"tool_calls\":[{{\"index\":0,\"function\":{{\"arguments\":\"{text}\"}}}}]}}"
                ),
                "null",
            )
        };
        match (self.end, call) {
            (1, Some(id)) => Some(event(
                &format!(
                    "{{\"tool_calls\":[{{\"index\":0,\"id\":\"{id}\",\"type\":\"function\",\"function\":\
                     {{\"name\":\"{TOOL}\",\"arguments\":\"\"}}}}]}}"
                ),
                "null",
            )),
            (2, Some(_)) => Some(piece("{\"order_id\":")),
            (3, Some(_)) => Some(piece("\"A-17\"}")),
            (4, Some(_)) => Some(event("{}", "\"tool_calls\"")),
            (1, None) => Some(event("{}", "\"stop\"")),
            (2, None) | (5, Some(_)) => Some(Bytes::from_static(b"data: [DONE]\n\n")),
            _ => None,
        }
    }
}

fn event(delta: &str, finish: &str) -> Bytes {
    format!(
        "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1764500000,\"model\":\
         \"bench-model\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"logprobs\":null,\"finish_reason\":{finish},\
         \"matched_stop\":null}}],\"usage\":null}}\n\n"
    )
    .into()
}

/// The body of an answer.
pub(crate) enum Reply {
    Whole(Option<Bytes>),
    Stream { script: Chunks, pace: u64, next: Option<Pin<Box<Sleep>>>, yielded: bool },
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let (script, pace, next, yielded) = match self.get_mut() {
            Reply::Whole(body) => {
                return Poll::Ready(body.take().map(|body| Ok(Frame::data(body))));
            }
            Reply::Stream { script, pace, next, yielded } => (script, *pace, next, yielded),
        };
        // Between two chunks the body has to wait once, or they would leave in one write.
        if pace == 0 {
            *yielded = !*yielded;
            if !*yielded {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
        } else {
            let step = Duration::from_micros(pace);
            match next {
                None => *next = Some(Box::pin(tokio::time::sleep(step))),
                Some(sleep) => {
                    std::task::ready!(sleep.as_mut().poll(context));
                    // From the time that was meant, so that a late chunk makes no other late.
                    let due = (sleep.deadline() + step).max(Instant::now());
                    sleep.as_mut().reset(due);
                }
            }
        }
        Poll::Ready(script.next().map(|event| Ok(Frame::data(event))))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Reply::Whole(Some(body)) => SizeHint::with_exact(body.len() as u64),
            _ => SizeHint::default(),
        }
    }
}
