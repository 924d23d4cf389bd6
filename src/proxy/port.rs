//! A listening port: connections are taken up to a bound, secured where TLS is set, and served.
//!
//! A handshake runs in its connection's own task and has an end, so that no client holds up another. Each
//! connection takes the certificates in force when it begins: a renewed one needs no restart.

use super::identity::{Peer, Shown};
use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A listening port.
pub(super) struct Port {
    pub(super) permits: Arc<Semaphore>,
    /// How long a client may take for its handshake, and then for its first bytes.
    pub(super) patience: Duration,
    pub(super) stop: CancellationToken,
    pub(super) say_goodbye: CancellationToken,
    pub(super) cut: CancellationToken,
    pub(super) connections: TaskTracker,
}

/// A service that can be told apart per connection.
pub(super) trait PerConnection:
    Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future = Serving>
    + Send
    + Sync
    + 'static
{
    /// The same for one more connection, with its own mark of having been used.
    fn for_connection(&self, used: Arc<AtomicBool>, peer: Arc<Peer>) -> Self;

    /// How connections that begin now are secured, if they are.
    fn tls(&self) -> Option<Arc<ServerConfig>> {
        None
    }

    /// A client did not come to an end with its handshake.
    fn handshake_failed(&self) {}
}

pub(super) type Serving = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl Port {
    pub(super) async fn serve<S: PerConnection>(self, listener: TcpListener, service: S) {
        let service = Arc::new(service);
        loop {
            // A place first: connections past the bound wait in the system's queue.
            let permits = Arc::clone(&self.permits);
            let permit = tokio::select! {
                () = self.stop.cancelled() => return,
                permit = permits.acquire_owned() => permit,
            };
            let accepted = tokio::select! {
                () = self.stop.cancelled() => return,
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
            let (service, patience) = (Arc::clone(&service), self.patience);
            let connection = take(stream, address, service, patience, self.say_goodbye.clone());
            let cut = self.cut.clone();
            self.connections.spawn(async move {
                let _permit = permit;
                tokio::select! {
                    () = cut.cancelled() => {}
                    () = connection => {}
                }
            });
        }
    }
}

/// Secures one connection, if that is set, and serves it.
async fn take<S: PerConnection>(
    stream: TcpStream,
    address: SocketAddr,
    service: Arc<S>,
    patience: Duration,
    say_goodbye: CancellationToken,
) {
    // Without it small events would wait for the client's acknowledgements.
    let _ = stream.set_nodelay(true);
    let address = address.ip().to_canonical();
    let used = Arc::new(AtomicBool::new(false));
    let Some(config) = service.tls() else {
        let peer = Arc::new(Peer { address, shown: Shown::Nothing });
        let service = service.for_connection(Arc::clone(&used), peer);
        return connection(stream, service, used, patience, say_goodbye).await;
    };
    let handshake = TlsAcceptor::from(config).accept(stream);
    let secured = tokio::select! {
        () = say_goodbye.cancelled() => return,
        secured = tokio::time::timeout(patience, handshake) => secured,
    };
    let reason = match secured {
        Ok(Ok(stream)) => {
            let peer = Arc::new(Peer { address, shown: shown(&stream) });
            let service = service.for_connection(Arc::clone(&used), peer);
            return connection(stream, service, used, patience, say_goodbye).await;
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it took too long".to_owned(),
    };
    service.handshake_failed();
    // Port scans and health checks do this all day: it is counted, and told to whoever looks for it.
    tracing::debug!(%address, reason, "a TLS handshake failed");
}

fn shown(stream: &TlsStream<TcpStream>) -> Shown {
    Shown::of(stream.get_ref().1.peer_certificates())
}

/// Serves one connection, HTTP/1.1 or HTTP/2 (by ALPN, or by prior knowledge).
async fn connection<S: PerConnection>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    service: S,
    used: Arc<AtomicBool>,
    patience: Duration,
    say_goodbye: CancellationToken,
) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(patience);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(1024);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut unused = pin!(tokio::time::sleep(patience));
    let mut watching = true;
    loop {
        tokio::select! {
            // Errors here are the client's: it went away, or speaks something else.
            _ = connection.as_mut() => return,
            () = say_goodbye.cancelled() => {
                connection.as_mut().graceful_shutdown();
                let _ = connection.as_mut().await;
                return;
            }
            // The HTTP server itself does not bound the wait for the first bytes.
            () = unused.as_mut(), if watching => {
                if !used.load(Ordering::Relaxed) {
                    return;
                }
                watching = false;
            }
        }
    }
}
