//! The pooled connections to the upstream, and what is sent over them.
//!
//! One pool serves everything that goes up: exchanges, aborts, probes and traces. So all of them speak HTTPS
//! where the upstream does, and none of them reads proxy settings from the environment.
//!
//! A connection has no task of its own: whoever waits for its answer drives it (`connection`). With a task for each,
//! every piece of an answer would wake two tasks, one after the other, often on two threads.

mod call;
mod connection;

pub(crate) use call::{Answer, Call, CallError};

use super::arriving::{Arriving, Unfit};
use super::splice::Segments;
use bytes::Bytes;
use connection::Connection;
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use parking_lot::Mutex;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// SGLang's server closes idle connections after 5 s; ours must go first, or a request could meet a
/// connection that is being closed.
const POOL_IDLE: Duration = Duration::from_secs(4);

/// Most that is read of an answer's body for nothing but to keep its connection.
const MOST_UNREAD: usize = 64 << 10;

/// A body on its way up.
#[derive(Debug)]
pub(crate) enum UpBody {
    /// The client's bytes, read whole and judged.
    Judged(Segments),
    /// A body that goes through unguarded, as it comes.
    Streamed(Arriving),
}

impl UpBody {
    /// These bytes, and no others.
    #[must_use]
    pub(crate) fn whole(bytes: &Bytes) -> Self {
        UpBody::Judged(Segments::of([bytes.clone()]))
    }
}

impl Body for UpBody {
    type Data = Bytes;
    type Error = Unfit;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Unfit>>> {
        match self.get_mut() {
            UpBody::Judged(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(|never| match never {}))),
            UpBody::Streamed(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            UpBody::Judged(body) => body.is_end_stream(),
            UpBody::Streamed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            UpBody::Judged(body) => body.size_hint(),
            UpBody::Streamed(body) => body.size_hint(),
        }
    }
}

/// A server, as one connects to it.
pub(super) struct Site {
    scheme: Scheme,
    authority: Authority,
    /// As a request names it.
    host: HeaderValue,
}

impl Site {
    fn is(&self, scheme: &Scheme, authority: &Authority) -> bool {
        self.scheme == *scheme && self.authority == *authority
    }
}

struct Idle {
    connection: Box<Connection>,
    since: Instant,
}

/// A server's idle connections. The last to come is the first to go: what is not needed grows old.
struct Shelf {
    site: Arc<Site>,
    idle: Vec<Idle>,
}

struct Shared {
    connector: HttpsConnector<HttpConnector>,
    shelves: Mutex<Vec<Shelf>>,
}

/// The pool of connections. Clones are the same pool.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Shared>);

impl Pool {
    /// An empty one.
    #[must_use]
    pub(crate) fn new(connect_timeout: Duration) -> Self {
        let mut http = HttpConnector::new();
        http.set_nodelay(true);
        http.set_connect_timeout(Some(connect_timeout));
        http.enforce_http(false);
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_webpki_roots()
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        Pool(Arc::new(Shared { connector, shelves: Mutex::default() }))
    }

    /// Sends a request, whose URI names the server. Nothing is sent twice: another connection is tried only when one
    /// that was idle had broken before it took any of the request.
    pub(crate) fn request(&self, request: Request<UpBody>) -> Call {
        Call::new(self.clone(), request)
    }

    /// Sends a request of whose answer only the status counts. A short body is read, so that the connection is kept.
    pub(crate) async fn ask(&self, request: Request<UpBody>) -> Result<StatusCode, CallError> {
        let answer = self.request(request).await?;
        let status = answer.status();
        let _ = Limited::new(answer.into_body(), MOST_UNREAD).collect().await;
        Ok(status)
    }

    /// The server that a URI names.
    fn site(&self, uri: &Uri) -> Option<Arc<Site>> {
        let (scheme, authority) = (uri.scheme()?, uri.authority()?);
        let mut shelves = self.0.shelves.lock();
        if let Some(shelf) = shelves.iter().find(|shelf| shelf.site.is(scheme, authority)) {
            return Some(Arc::clone(&shelf.site));
        }
        // A user and a password are not part of a host.
        let host = authority.as_str().rsplit('@').next()?;
        let host = HeaderValue::try_from(host).ok()?;
        let site = Arc::new(Site { scheme: scheme.clone(), authority: authority.clone(), host });
        shelves.push(Shelf { site: Arc::clone(&site), idle: Vec::new() });
        Some(site)
    }

    /// The idle connection that was used last and still stands.
    fn take(&self, site: &Arc<Site>) -> Option<Box<Connection>> {
        loop {
            let mut idle = {
                let mut shelves = self.0.shelves.lock();
                shelves.iter_mut().find(|shelf| Arc::ptr_eq(&shelf.site, site))?.idle.pop()?
            };
            if idle.since.elapsed() < POOL_IDLE && idle.connection.stands() {
                return Some(idle.connection);
            }
        }
    }

    /// An answer has come to its end: another request may have its connection, if that is at an end as well.
    fn put(&self, site: &Arc<Site>, mut connection: Box<Connection>) {
        connection.rests();
        if !connection.stands() {
            return;
        }
        let idle = Idle { connection, since: Instant::now() };
        let mut shelves = self.0.shelves.lock();
        if let Some(shelf) = shelves.iter_mut().find(|shelf| Arc::ptr_eq(&shelf.site, site)) {
            shelf.idle.push(idle);
        }
    }

    /// Closes what is idle for too long. To be called each second or so: a connection that nobody asks for is closed
    /// all the same.
    pub(super) fn sweep(&self) {
        let mut old = Vec::new();
        for shelf in &mut *self.0.shelves.lock() {
            let fresh = shelf.idle.partition_point(|idle| idle.since.elapsed() >= POOL_IDLE);
            old.extend(shelf.idle.drain(..fresh));
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}
