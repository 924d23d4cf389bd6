//! Ports, connections, and going down in good order.
//!
//! On a signal: `readyz` fails, no new connection is taken, exchanges in flight go on, and a new request on
//! a connection that is still open gets 503 `draining`; when the last exchange has ended, after
//! `limits.drain_timeout`, or on a second signal, what is left is told `draining` and the connections close.

use super::cut::Cut;
use super::entrance;
use super::exchange;
use super::flight;
use super::flights::Flights;
use super::gateway::{Gateway, StartError};
use super::identity::Peer;
use super::port::{Ends, PerConnection, Port, Serving, Times};
use super::reply;
use super::router::Target;
use super::traces;
use crate::policy::Policy;
use crate::store::Store;
use crate::telemetry::{Route, StoreOp, Telemetry};
use axum::Router;
use axum::body::Body;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::Service;
use rustls::ServerConfig;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

/// How long connections get to close by themselves once everything else is done.
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
    stop_accepting: Cut,
    stop_admin: Cut,
    say_goodbye: Cut,
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
        telemetry: Telemetry,
        surfaces: Surfaces,
    ) -> Result<Running, StartError> {
        let client = listen(policy.listen, "--listen").await?;
        let admin = listen(policy.admin.listen, "--admin-listen").await?;
        let gateway = Gateway::new(policy, store, flights, telemetry)?;
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
            stop_accepting: Cut::default(),
            stop_admin: Cut::default(),
            say_goodbye: Cut::default(),
            cut: CancellationToken::new(),
            connections: TaskTracker::new(),
            gateway: Arc::clone(&gateway),
        };
        let settings = gateway.settings();
        let limits = &settings.policy.limits;
        let front = Front {
            gateway: Arc::clone(&gateway),
            control: (surfaces.control)(&gateway),
            peer: Arc::new(Peer::unknown()),
        };
        let back = Back { router: (surfaces.admin)(&gateway) };
        let port = |connections: usize, stop: &Cut| Port {
            permits: Arc::new(Semaphore::new(connections.clamp(1, Semaphore::MAX_PERMITS))),
            times: Times {
                patience: limits.header_read_timeout,
                keep_alive: limits.keep_alive_timeout,
                pause: limits.client_pause,
            },
            ends: Ends {
                stop: stop.clone(),
                say_goodbye: running.say_goodbye.clone(),
                cut: running.cut.clone(),
            },
            connections: running.connections.clone(),
        };
        gateway.spawn(port(limits.connections, &running.stop_accepting).serve(client, front));
        gateway.spawn(port(ADMIN_CONNECTIONS, &running.stop_admin).serve(admin, back));
        gateway.spawn(keep_key_sets(Arc::clone(&gateway), running.cut.clone()));
        gateway.spawn(sweep(Arc::clone(&gateway), running.cut.clone()));
        gateway.spawn(traces::send(Arc::clone(&gateway), running.cut.clone()));
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
        let mut hurried = pin!(hurried);
        let end = Instant::now() + self.gateway.settings().policy.limits.drain_timeout;
        self.gateway.drain();
        self.stop_accepting.now();
        let drained = tokio::select! {
            waited = tokio::time::timeout_at(end, self.gateway.live.wait()) => waited.is_ok(),
            () = hurried.as_mut() => false,
        };
        // Whoever still waits is told.
        self.gateway.cut.now();
        self.stop_admin.now();
        self.say_goodbye.now();
        self.connections.close();
        // What is quiet closes at once; a slow client may take the rest of its answer until the drain's end.
        let end =
            if drained { end.max(Instant::now() + GOODBYE) } else { Instant::now() + GOODBYE };
        let gone = tokio::select! {
            waited = tokio::time::timeout_at(end, self.connections.wait()) => waited.is_ok(),
            () = hurried.as_mut(), if drained => false,
        };
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

/// Fetches the issuer's keys before they grow old.
async fn keep_key_sets(gateway: Arc<Gateway>, cut: CancellationToken) {
    let mut tick = tokio::time::interval(SWEEP_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = cut.cancelled() => return,
            _ = tick.tick() => {}
        }
        if let Some(set) = gateway.settings().doorkeeper.key_set() {
            set.keep_fresh();
        }
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
        } else {
            gateway.pay_all().await;
        }
    }
}

/// The client port.
struct Front {
    gateway: Arc<Gateway>,
    control: Router,
    peer: Arc<Peer>,
}

impl PerConnection for Front {
    fn for_connection(&self, peer: Arc<Peer>) -> Self {
        Front { gateway: Arc::clone(&self.gateway), control: self.control.clone(), peer }
    }

    fn tls(&self) -> Option<Arc<ServerConfig>> {
        let settings = self.gateway.settings.load();
        settings.policy.tls.as_ref().map(|tls| Arc::clone(&tls.config))
    }

    fn handshake_failed(&self) {
        self.gateway.metrics.handshake_failed();
    }
}

impl Service<Request<Incoming>> for Front {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Serving;

    fn call(&self, request: Request<Incoming>) -> Serving {
        let gateway = Arc::clone(&self.gateway);
        let settings = gateway.settings.load();
        let pass = &settings.policy.routes_pass;
        let peer = Arc::clone(&self.peer);
        match Target::of(request.method(), request.uri().path(), pass) {
            Target::Chat => Box::pin(exchange::guarded(gateway, request, peer)),
            Target::Models => Box::pin(exchange::unguarded(gateway, request, Route::Models, peer)),
            Target::Pass => Box::pin(exchange::unguarded(gateway, request, Route::Pass, peer)),
            Target::Health => {
                let healthy = reply::json(StatusCode::OK, r#"{"status":"ok"}"#);
                Box::pin(std::future::ready(Ok(healthy)))
            }
            Target::Control => {
                let control = self.control.clone();
                Box::pin(async move {
                    match entrance::prove_caller(&gateway, request, &peer).await {
                        Ok(request) => control.oneshot(request.map(Body::new)).await,
                        Err(refused) => Ok(refused),
                    }
                })
            }
            Target::Closed(message) => {
                let refused = exchange::refuse_unread(&gateway, request, Target::closed(message));
                Box::pin(std::future::ready(Ok(refused)))
            }
        }
    }
}

/// The admin port.
struct Back {
    router: Router,
}

impl PerConnection for Back {
    fn for_connection(&self, _: Arc<Peer>) -> Self {
        Back { router: self.router.clone() }
    }
}

impl Service<Request<Incoming>> for Back {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Serving;

    fn call(&self, request: Request<Incoming>) -> Serving {
        Box::pin(self.router.clone().oneshot(request.map(Body::new)))
    }
}
