//! A listening port: connections are taken up to a bound, secured where TLS is set, and served.
//!
//! A handshake runs in its connection's own task and has an end, so that no client holds up another. Each
//! connection takes the certificates in force when it begins: a renewed one needs no restart.

mod line;
mod serving;
mod tap;

use super::cut::Cut;
use super::identity::{Peer, Shown};
use axum::body::Body;
use http::{HeaderValue, Request, Response, header};
use hyper::body::Incoming;
use hyper::service::Service;
pub(super) use line::Times;
use line::{Answer, Asked, Line};
use rustls::ServerConfig;
pub(super) use serving::Ends;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::task::TaskTracker;

/// A listening port.
pub(super) struct Port {
    pub(super) permits: Arc<Semaphore>,
    pub(super) times: Times,
    pub(super) ends: Ends,
    pub(super) connections: TaskTracker,
}

/// A service that can be told apart per connection.
pub(super) trait PerConnection:
    Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future = Serving>
    + Send
    + Sync
    + 'static
{
    /// The same for one more connection.
    fn for_connection(&self, peer: Arc<Peer>) -> Self;

    /// How connections that begin now are secured, if they are.
    fn tls(&self) -> Option<Arc<ServerConfig>> {
        None
    }

    /// A client did not come to an end with its handshake.
    fn handshake_failed(&self) {}
}

pub(super) type Serving = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

/// Whether clients wait for a place. It ends when an eighth of the places is free again, so that nobody can have
/// every connection look at it with each one that comes and goes.
struct Crowd {
    enough: usize,
    here: AtomicBool,
    /// How often it has begun.
    begun: AtomicUsize,
    begins: Arc<Notify>,
}

impl Crowd {
    fn of(permits: &Semaphore) -> Self {
        let enough = permits.available_permits() / 8;
        let (here, begun) = (AtomicBool::default(), AtomicUsize::default());
        Crowd { enough, here, begun, begins: Arc::default() }
    }

    fn is_here(&self) -> bool {
        self.here.load(Ordering::Relaxed)
    }

    fn begun(&self) -> usize {
        self.begun.load(Ordering::Acquire)
    }

    fn begins(&self) -> OwnedNotified {
        Arc::clone(&self.begins).notified_owned()
    }

    /// A place, when there is one. While there is none, connections that are kept for nothing close sooner.
    async fn place(&self, permits: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(permits).try_acquire_owned() {
            if permits.available_permits() >= self.enough {
                self.here.store(false, Ordering::Relaxed);
            }
            return Some(permit);
        }
        if !self.here.swap(true, Ordering::Relaxed) {
            self.begun.fetch_add(1, Ordering::Release);
            self.begins.notify_waiters();
        }
        Arc::clone(permits).acquire_owned().await.ok()
    }
}

impl Port {
    pub(super) async fn serve<S: PerConnection>(self, listener: TcpListener, service: S) {
        let (service, crowd) = (Arc::new(service), Arc::new(Crowd::of(&self.permits)));
        loop {
            let accepted = tokio::select! {
                () = self.ends.stop.comes() => return,
                accepted = listener.accept() => accepted,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, as a rule: let some close.
                    tracing::warn!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            // One past the bound waits here, so that it is known that some wait; the others do in the system's queue.
            let permit = tokio::select! {
                () = self.ends.stop.comes() => return,
                permit = crowd.place(&self.permits) => permit,
            };
            let taking = Taking {
                service: Arc::clone(&service),
                times: self.times,
                crowd: Arc::clone(&crowd),
                ends: self.ends.clone(),
            };
            let cut = self.ends.cut.clone();
            self.connections.spawn(async move {
                let _permit = permit;
                tokio::select! {
                    () = cut.cancelled() => {}
                    () = taking.take(stream, address) => {}
                }
            });
        }
    }
}

/// One connection that is taken.
struct Taking<S> {
    service: Arc<S>,
    times: Times,
    crowd: Arc<Crowd>,
    ends: Ends,
}

impl<S: PerConnection> Taking<S> {
    /// Secures it, if that is set, and serves it.
    async fn take(self, stream: TcpStream, address: SocketAddr) {
        // Without it small events would wait for the client's acknowledgements.
        let _ = stream.set_nodelay(true);
        let address = address.ip().to_canonical();
        let Some(config) = self.service.tls() else {
            return self.serve(stream, Peer { address, shown: Shown::Nothing }).await;
        };
        let handshake = TlsAcceptor::from(config).accept(stream);
        let secured = tokio::select! {
            () = self.ends.say_goodbye.comes() => return,
            secured = tokio::time::timeout(self.times.patience, handshake) => secured,
        };
        let reason = match secured {
            Ok(Ok(stream)) => {
                let shown = shown(&stream);
                return self.serve(stream, Peer { address, shown }).await;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it took too long".to_owned(),
        };
        self.service.handshake_failed();
        // Port scans and health checks do this all day: it is counted, and told to whoever looks for it.
        tracing::debug!(%address, reason, "a TLS handshake failed");
    }

    async fn serve(self, carrier: impl tap::Carrier, peer: Peer) {
        let line = Line::new(self.times, self.ends.stop.clone());
        let service = self.service.for_connection(Arc::new(peer));
        let service = Watched { service, line: Arc::clone(&line) };
        serving::serve(carrier, service, line, self.crowd, self.ends).await;
    }
}

fn shown(stream: &TlsStream<TcpStream>) -> Shown {
    Shown::of(stream.get_ref().1.peer_certificates())
}

/// A service whose requests and answers are known to the line that they come over.
struct Watched<S> {
    service: S,
    line: Arc<Line>,
}

impl<S: PerConnection> Service<Request<Incoming>> for Watched<S> {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: Request<Incoming>) -> Answering {
        let asked = self.line.asks(request.version());
        Answering { serving: self.service.call(request), asked: Some(asked) }
    }
}

/// An answer that is waited for.
struct Answering {
    serving: Serving,
    asked: Option<Asked>,
}

impl Future for Answering {
    type Output = Result<Response<Answer>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut response = ready!(self.serving.as_mut().poll(cx))?;
        let Some(asked) = self.asked.take() else { return Poll::Pending };
        if asked.is_last() {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        Poll::Ready(Ok(response.map(|body| asked.answers(body))))
    }
}
