//! One request over a pooled connection, and its answer.

use super::connection::Connection;
use super::{Pool, Site, UpBody};
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Request, Response, Uri, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tower::ServiceExt;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The URI names no server.
    #[error("no server is named")]
    NoServer,
    /// No connection could be made.
    #[error("no connection")]
    Connect(#[source] Box<dyn Error + Send + Sync>),
    /// The connection broke, or what came over it is not HTTP.
    #[error("no answer")]
    Http(#[from] hyper::Error),
}

type Connecting = Pin<Box<dyn Future<Output = Result<Connection, CallError>> + Send>>;
type Sent = Result<Response<Incoming>, TrySendError<Request<UpBody>>>;
type Sending = Pin<Box<dyn Future<Output = Sent> + Send>>;

enum Step {
    /// With the request that is to be sent.
    Connecting(Connecting, Option<Box<Request<UpBody>>>),
    /// Whether the connection was idle before.
    Sent {
        connection: Box<Connection>,
        sending: Sending,
        was_idle: bool,
    },
    Over(Option<CallError>),
}

/// A request that was sent; the future of its answer. Dropping it closes the connection.
pub(crate) struct Call {
    pool: Pool,
    site: Option<Arc<Site>>,
    step: Step,
}

impl Call {
    pub(super) fn new(pool: Pool, mut request: Request<UpBody>) -> Self {
        let Some(site) = pool.site(request.uri()) else {
            return Call { pool, site: None, step: Step::Over(Some(CallError::NoServer)) };
        };
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
        request.headers_mut().entry(header::HOST).or_insert_with(|| site.host.clone());
        let step = Call::begin(&pool, &site, request);
        Call { pool, site: Some(site), step }
    }

    /// Over an idle connection, or else over a new one.
    fn begin(pool: &Pool, site: &Arc<Site>, request: Request<UpBody>) -> Step {
        match pool.take(site) {
            Some(connection) => Step::over(connection, request, true),
            None => Step::Connecting(connect(pool, site), Some(Box::new(request))),
        }
    }
}

impl Step {
    fn over(mut connection: Box<Connection>, request: Request<UpBody>, was_idle: bool) -> Self {
        let sending = Box::pin(connection.sender().try_send_request(request));
        Step::Sent { connection, sending, was_idle }
    }
}

fn connect(pool: &Pool, site: &Site) -> Connecting {
    let mut uri = http::uri::Parts::default();
    uri.scheme = Some(site.scheme.clone());
    uri.authority = Some(site.authority.clone());
    uri.path_and_query = Some(PathAndQuery::from_static("/"));
    let uri = Uri::from_parts(uri);
    let connector = pool.0.connector.clone();
    Box::pin(async move {
        let uri = uri.map_err(|_| CallError::NoServer)?;
        let carrier = connector.oneshot(uri).await.map_err(CallError::Connect)?;
        Ok(Connection::over(carrier).await?)
    })
}

impl Future for Call {
    type Output = Result<Response<Answer>, CallError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let call = self.get_mut();
        loop {
            match &mut call.step {
                Step::Connecting(connecting, request) => {
                    let connection = ready!(connecting.as_mut().poll(cx));
                    call.step = match (connection, request.take()) {
                        (Ok(connection), Some(request)) => {
                            Step::over(Box::new(connection), *request, false)
                        }
                        (Err(error), _) => Step::Over(Some(error)),
                        (Ok(_), None) => Step::Over(None),
                    };
                }
                Step::Sent { connection, sending, was_idle } => {
                    let sent = ready!(connection.poll(cx, |cx| sending.as_mut().poll(cx)));
                    let was_idle = *was_idle;
                    let step = std::mem::replace(&mut call.step, Step::Over(None));
                    let (Step::Sent { connection, .. }, Some(site)) = (step, call.site.clone())
                    else {
                        continue;
                    };
                    match sent {
                        Ok(response) => {
                            let pool = call.pool.clone();
                            let answer = |body| Answer::new(body, connection, pool, site);
                            return Poll::Ready(Ok(response.map(answer)));
                        }
                        Err(mut broken) => {
                            call.step = match broken.take_message() {
                                Some(request) if was_idle => {
                                    Call::begin(&call.pool, &site, request)
                                }
                                _ => Step::Over(Some(broken.into_error().into())),
                            };
                        }
                    }
                }
                Step::Over(error) => match error.take() {
                    Some(error) => return Poll::Ready(Err(error)),
                    // It was asked after its end.
                    None => return Poll::Pending,
                },
            }
        }
    }
}

/// The body of an answer. At its end its connection goes back to the pool; dropped before, it closes it.
pub(crate) struct Answer {
    body: Incoming,
    from: Option<(Box<Connection>, Arc<Site>)>,
    pool: Pool,
}

impl Answer {
    fn new(body: Incoming, connection: Box<Connection>, pool: Pool, site: Arc<Site>) -> Self {
        let mut answer = Answer { body, from: Some((connection, site)), pool };
        answer.release_at_end();
        answer
    }

    fn release_at_end(&mut self) {
        if self.body.is_end_stream() {
            self.release();
        }
    }

    fn release(&mut self) {
        if let Some((connection, site)) = self.from.take() {
            self.pool.put(&site, connection);
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let answer = self.get_mut();
        let Some((connection, _)) = &mut answer.from else { return Poll::Ready(None) };
        let body = &mut answer.body;
        let frame = ready!(connection.poll(cx, |cx| Pin::new(&mut *body).poll_frame(cx)));
        match &frame {
            Some(Ok(_)) => answer.release_at_end(),
            Some(Err(_)) => answer.from = None,
            None => answer.release(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.from.is_none() || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").finish_non_exhaustive()
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").finish_non_exhaustive()
    }
}
