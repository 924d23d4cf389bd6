//! Ports, connections, and going down in good order.
//!
//! On a signal: `readyz` fails, no new connection is taken, exchanges in flight go on, and a new request on
//! a connection that is still open gets 503 `draining`; when the last exchange has ended, after
//! `limits.drain_timeout`, or on a second signal, what is left is told `draining` and the connections close.

use super::exchange;
use super::flight;
use super::flights::Flights;
use super::gateway::{Gateway, StartError};
use super::router::Target;
use crate::policy::Policy;
use crate::store::Store;
use crate::telemetry::{Metrics, Route, StoreOp};
use axum::Router;
use axum::body::Body;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

/// How long idle connections get to close by themselves once everything else is done.
const GOODBYE: Duration = Duration::from_secs(1);
/// Connections of the admin port.
const ADMIN_CONNECTIONS: usize = 64;
/// How often the store is told that time passes.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Builds a router that answers for a gateway.
pub(super) type MakeRouter = Box<dyn FnOnce(&Arc<Gateway>) -> Router + Send>;

/// What layers below the proxy answer.
pub struct Surfaces {
    /// `/guard/v1/…` on the client port.
    pub control: MakeRouter,
    /// Everything on the admin port.
    pub admin: MakeRouter,
}

/// A proxy that listens.
#[derive(Debug)]
pub struct Running {
    /// Where clients connect.
    pub client_addr: SocketAddr,
    /// Where operators connect.
    pub admin_addr: SocketAddr,
    gateway: Arc<Gateway>,
    stop_accepting: CancellationToken,
    stop_admin: CancellationToken,
    say_goodbye: CancellationToken,
    cut: CancellationToken,
    connections: TaskTracker,
}

impl Gateway {
    /// Opens the ports and serves. Must be called on a runtime.
    ///
    /// # Errors
    /// When a port cannot be opened or the configuration cannot be used.
    pub async fn start(
        policy: Policy,
        store: Arc<dyn Store>,
        flights: Arc<Flights>,
        metrics: Metrics,
        surfaces: Surfaces,
    ) -> Result<Running, StartError> {
        let client = listen(policy.listen, "--listen").await?;
        let admin = listen(policy.admin.listen, "--admin-listen").await?;
        let gateway = Gateway::new(policy, store, flights, metrics)?;
        Running::begin(gateway, client, admin, surfaces)
    }
}

async fn listen(address: SocketAddr, flag: &'static str) -> Result<TcpListener, StartError> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|source| StartError::Listen { address, flag, source })
}

impl Running {
    fn begin(
        gateway: Arc<Gateway>,
        client: TcpListener,
        admin: TcpListener,
        surfaces: Surfaces,
    ) -> Result<Self, StartError> {
        let address = |listener: &TcpListener, flag| {
            listener.local_addr().map_err(|source| StartError::Listen {
                address: SocketAddr::from(([0, 0, 0, 0], 0)),
                flag,
                source,
            })
        };
        let running = Running {
            client_addr: address(&client, "--listen")?,
            admin_addr: address(&admin, "--admin-listen")?,
            stop_accepting: CancellationToken::new(),
            stop_admin: CancellationToken::new(),
            say_goodbye: CancellationToken::new(),
            cut: CancellationToken::new(),
            connections: TaskTracker::new(),
            gateway: Arc::clone(&gateway),
        };
        let settings = gateway.settings();
        let limits = &settings.policy.limits;
        let front = Front {
            gateway: Arc::clone(&gateway),
            control: (surfaces.control)(&gateway),
            used: Arc::new(AtomicBool::new(false)),
        };
        let back = Back { router: (surfaces.admin)(&gateway), used: front.used.clone() };
        let port = |connections: usize, stop: &CancellationToken| Port {
            permits: Arc::new(Semaphore::new(connections.clamp(1, Semaphore::MAX_PERMITS))),
            patience: limits.header_read_timeout,
            stop: stop.clone(),
            say_goodbye: running.say_goodbye.clone(),
            cut: running.cut.clone(),
            connections: running.connections.clone(),
        };
        gateway.spawn(port(limits.connections, &running.stop_accepting).serve(client, front));
        gateway.spawn(port(ADMIN_CONNECTIONS, &running.stop_admin).serve(admin, back));
        gateway.spawn(sweep(Arc::clone(&gateway), running.cut.clone()));
        gateway.spawn(flight::look_after(Arc::clone(&gateway), running.cut.clone()));
        Ok(running)
    }

    /// The gateway that it serves.
    #[must_use]
    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// Goes down in good order. Whether every exchange came to its end.
    pub async fn shutdown(self) -> bool {
        self.shutdown_unless(std::future::pending()).await
    }

    /// The same, but `hurried` ends the wait for exchanges in flight at once.
    pub async fn shutdown_unless(self, hurried: impl Future<Output = ()>) -> bool {
        let timeout = self.gateway.settings().policy.limits.drain_timeout;
        self.gateway.drain();
        self.stop_accepting.cancel();
        let drained = tokio::select! {
            waited = tokio::time::timeout(timeout, self.gateway.live.wait()) => waited.is_ok(),
            () = hurried => false,
        };
        // Whoever still waits is told.
        self.gateway.cut.cancel();
        self.stop_admin.cancel();
        self.say_goodbye.cancel();
        self.connections.close();
        let gone = tokio::time::timeout(GOODBYE, self.connections.wait()).await.is_ok();
        self.cut.cancel();
        if !gone {
            self.connections.wait().await;
        }
        self.gateway.tasks.close();
        // Aborts and closing events of what was cut.
        let _ = tokio::time::timeout(GOODBYE, self.gateway.tasks.wait()).await;
        drained
    }
}

/// Lets time pass in the store: deadlines and leases fire by themselves.
async fn sweep(gateway: Arc<Gateway>, cut: CancellationToken) {
    let mut tick = tokio::time::interval(SWEEP_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = cut.cancelled() => return,
            _ = tick.tick() => {}
        }
        let rules = gateway.settings().policy.ledger.clone();
        if let Err(error) = gateway.measured(StoreOp::Tick, gateway.store.sweep(&rules)).await {
            tracing::warn!(%error, "the store cannot be swept");
        }
    }
}

/// A listening port.
struct Port {
    permits: Arc<Semaphore>,
    patience: Duration,
    stop: CancellationToken,
    say_goodbye: CancellationToken,
    cut: CancellationToken,
    connections: TaskTracker,
}

/// A service that can be told apart per connection.
trait PerConnection:
    Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future = Serving>
    + Send
    + 'static
{
    /// The same for one more connection, with its own mark of having been used.
    fn for_connection(&self, used: Arc<AtomicBool>) -> Self;
}

type Serving = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl Port {
    async fn serve<S: PerConnection>(self, listener: TcpListener, service: S) {
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
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of file descriptors, as a rule: let some close.
                    tracing::warn!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let used = Arc::new(AtomicBool::new(false));
            let connection = connection(
                stream,
                service.for_connection(Arc::clone(&used)),
                used,
                self.patience,
                self.say_goodbye.clone(),
            );
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

/// Serves one connection, HTTP/1.1 or HTTP/2 by prior knowledge.
async fn connection<S: PerConnection>(
    stream: TcpStream,
    service: S,
    used: Arc<AtomicBool>,
    patience: Duration,
    say_goodbye: CancellationToken,
) {
    // Without it small events would wait for the client's acknowledgements.
    let _ = stream.set_nodelay(true);
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

/// The client port.
struct Front {
    gateway: Arc<Gateway>,
    control: Router,
    used: Arc<AtomicBool>,
}

impl PerConnection for Front {
    fn for_connection(&self, used: Arc<AtomicBool>) -> Self {
        Front { gateway: Arc::clone(&self.gateway), control: self.control.clone(), used }
    }
}

impl Service<Request<Incoming>> for Front {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Serving;

    fn call(&self, request: Request<Incoming>) -> Serving {
        self.used.store(true, Ordering::Relaxed);
        let gateway = Arc::clone(&self.gateway);
        let settings = gateway.settings.load();
        let pass = &settings.policy.routes_pass;
        match Target::of(request.method(), request.uri().path(), pass) {
            Target::Chat => ok(exchange::guarded(gateway, request)),
            Target::Models => ok(exchange::unguarded(gateway, request, Route::Models)),
            Target::Pass => ok(exchange::unguarded(gateway, request, Route::Pass)),
            Target::Health => {
                ok(std::future::ready(exchange::json(StatusCode::OK, r#"{"status":"ok"}"#)))
            }
            Target::Control => Box::pin(self.control.clone().oneshot(request.map(Body::new))),
            Target::Closed(message) => {
                ok(exchange::refuse_unread(gateway, request, Target::closed(message)))
            }
        }
    }
}

fn ok(response: impl Future<Output = Response<Body>> + Send + 'static) -> Serving {
    Box::pin(async move { Ok(response.await) })
}

/// The admin port.
struct Back {
    router: Router,
    used: Arc<AtomicBool>,
}

impl PerConnection for Back {
    fn for_connection(&self, used: Arc<AtomicBool>) -> Self {
        Back { router: self.router.clone(), used }
    }
}

impl Service<Request<Incoming>> for Back {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Serving;

    fn call(&self, request: Request<Incoming>) -> Serving {
        self.used.store(true, Ordering::Relaxed);
        Box::pin(self.router.clone().oneshot(request.map(Body::new)))
    }
}
