//! The admin port: metrics, probes, and what operators say about writes.
//!
//! It is for machines and people beside the proxy. On loopback a page in the operator's browser is the
//! danger (DNS rebinding), so `Host` and `Origin` must be loopback names; elsewhere a token is needed. The
//! probes tell nothing and are open.

use super::{console, writes};
use crate::policy;
use crate::proxy::Gateway;
use crate::proxy::identity::Principal;
use crate::proxy::pool::UpBody;
use crate::proxy::reply;
use crate::telemetry::StoreOp;
use axum::Router;
use axum::body::Body;
use axum::extract::{FromRef, Request, State};
use axum::middleware::{self, Next};
use axum::routing::{get, post};
use bytes::Bytes;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, header};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long what was seen of the upstream holds.
const PROBE_HOLDS: Duration = Duration::from_secs(1);
/// How long the upstream may take to answer a probe.
const PROBE_PATIENCE: Duration = Duration::from_secs(2);

/// Who may ask.
#[derive(Clone)]
pub struct Token {
    /// Digest of the token, when there is one.
    digest: Option<blake3::Hash>,
    loopback: bool,
}

impl Token {
    /// As configured.
    #[must_use]
    pub fn of(admin: &policy::Admin) -> Self {
        let digest =
            admin.token.as_ref().map(|token| blake3::hash(token.reveal().trim().as_bytes()));
        Token { digest, loopback: admin.listen.ip().is_loopback() }
    }

    /// Whether a request comes from beside the proxy and shows the token.
    fn allows(&self, headers: &HeaderMap) -> Result<(), StatusCode> {
        self.is_near(headers)?;
        self.is_shown(headers)
    }

    /// Whether it comes from beside the proxy, and from no page but this port's own.
    fn is_near(&self, headers: &HeaderMap) -> Result<(), StatusCode> {
        let host = headers.get(header::HOST).and_then(|value| value.to_str().ok());
        let origin = headers.get(header::ORIGIN).map(|value| value.to_str().unwrap_or("?"));
        if self.loopback && !host.is_some_and(is_loopback_authority) {
            return Err(StatusCode::FORBIDDEN);
        }
        if let Some(origin) = origin
            && origin.split_once("://").map(|(_, authority)| authority) != host
        {
            return Err(StatusCode::FORBIDDEN);
        }
        Ok(())
    }

    fn is_shown(&self, headers: &HeaderMap) -> Result<(), StatusCode> {
        let Some(wanted) = self.digest else { return Ok(()) };
        let given = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "))
            .map(|token| blake3::hash(token.trim().as_bytes()));
        // Comparing hashes (in constant time) tells nothing of the token.
        if given == Some(wanted) { Ok(()) } else { Err(StatusCode::UNAUTHORIZED) }
    }
}

fn is_loopback_authority(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[derive(Clone)]
struct Admin {
    gateway: Arc<Gateway>,
    token: Token,
    probe: Arc<Mutex<Option<(Instant, bool)>>>,
}

impl FromRef<Admin> for Arc<Gateway> {
    fn from_ref(admin: &Admin) -> Self {
        Arc::clone(&admin.gateway)
    }
}

/// The admin port's routes.
pub fn router(gateway: &Arc<Gateway>, token: Token) -> Router {
    let admin = Admin { gateway: Arc::clone(gateway), token, probe: Arc::default() };
    let guarded = Router::new()
        .route("/metrics", get(metrics))
        .route(writes::RESOLVE, post(writes::resolve))
        .merge(console::api(gateway))
        .route_layer(middleware::from_fn_with_state(admin.clone(), check));
    // The page itself holds nothing; what it shows it has to ask for with the token.
    let page = console::page().route_layer(middleware::from_fn_with_state(admin.clone(), near));
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .merge(page)
        .merge(guarded)
        .with_state(admin)
}

async fn near(State(admin): State<Admin>, request: Request, next: Next) -> Response<Body> {
    match admin.token.is_near(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(status) => turned_away(status),
    }
}

async fn check(State(admin): State<Admin>, mut request: Request, next: Next) -> Response<Body> {
    match admin.token.allows(request.headers()) {
        Ok(()) => {
            let concerned = concerned(request.headers());
            request.extensions_mut().insert(concerned);
            next.run(request).await
        }
        Err(status) => turned_away(status),
    }
}

fn turned_away(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Whose conversation an operator means: the principal of these two headers, or else `anonymous`.
fn concerned(headers: &HeaderMap) -> Principal {
    let text =
        |name: &str| headers.get(name).and_then(|it| std::str::from_utf8(it.as_bytes()).ok());
    match text("x-tigertally-principal") {
        Some(name) => Principal::named(name, text("x-tigertally-tenant")),
        None => Principal::anonymous(),
    }
}

async fn metrics(State(admin): State<Admin>) -> Response<Body> {
    let metrics = admin.gateway.metrics();
    metrics.conversations(admin.gateway.store().conversations());
    metrics.runtime_tasks(tokio::runtime::Handle::current().metrics().num_alive_tasks());
    let mut response = Response::new(Body::from(metrics.encode()));
    let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    response
}

async fn ready(State(admin): State<Admin>) -> Response<Body> {
    let draining = admin.gateway.is_draining();
    let gateway = &admin.gateway;
    let store = gateway.measured(StoreOp::Ready, gateway.store().ready()).await.is_ok();
    let upstream = admin.upstream_answers().await;
    let identity = admin.gateway.settings().doorkeeper.is_ready();
    let ready = store && upstream && identity && !draining;
    let body = json!({
        "ready": ready, "store": store, "upstream": upstream, "identity": identity,
        "draining": draining,
    });
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    reply::json(status, body.to_string())
}

impl Admin {
    /// Whether the upstream answers `/health`. Asked at most once a second, whoever probes.
    async fn upstream_answers(&self) -> bool {
        let mut seen = self.probe.lock().await;
        if let Some((at, answers)) = *seen
            && at.elapsed() < PROBE_HOLDS
        {
            return answers;
        }
        let settings = self.gateway.settings();
        let uri = settings.upstream_uri(&PathAndQuery::from_static("/health"));
        let answers = match uri {
            None => false,
            Some(uri) => self.probe(uri, settings.authorization.as_ref()).await,
        };
        *seen = Some((Instant::now(), answers));
        answers
    }

    async fn probe(&self, uri: Uri, key: Option<&HeaderValue>) -> bool {
        let mut request = http::Request::new(UpBody::whole(&Bytes::new()));
        *request.uri_mut() = uri;
        if let Some(key) = key {
            request.headers_mut().insert(header::AUTHORIZATION, key.clone());
        }
        let answer = self.gateway.pool().ask(request);
        // A server without that path is there all the same; one that says 5xx is not.
        matches!(
            tokio::time::timeout(PROBE_PATIENCE, answer).await,
            Ok(Ok(status)) if !status.is_server_error()
        )
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn asked(token: &Token, host: &str, origin: Option<&str>, bearer: Option<&str>) -> u16 {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, HeaderValue::from_str(origin).unwrap());
        }
        if let Some(bearer) = bearer {
            let value = format!("Bearer {bearer}");
            headers.insert(header::AUTHORIZATION, HeaderValue::from_str(&value).unwrap());
        }
        token.allows(&headers).map_or_else(|status| status.as_u16(), |()| 200)
    }

    #[test]
    fn a_page_of_another_site_cannot_read_a_loopback_port() {
        let token = Token { digest: None, loopback: true };
        assert_eq!(asked(&token, "127.0.0.1:9464", None, None), 200);
        assert_eq!(asked(&token, "localhost:9464", Some("http://localhost:9464"), None), 200);
        assert_eq!(asked(&token, "[::1]:9464", None, None), 200);
        assert_eq!(asked(&token, "evil.example:9464", None, None), 403);
        assert_eq!(asked(&token, "localhost:9464", Some("http://evil.example"), None), 403);
    }

    #[test]
    fn elsewhere_a_token_is_needed() {
        let token = Token { digest: Some(blake3::hash(b"secret")), loopback: false };
        assert_eq!(asked(&token, "guard.example", None, None), 401);
        assert_eq!(asked(&token, "guard.example", None, Some("wrong")), 401);
        assert_eq!(asked(&token, "guard.example", None, Some("secret")), 200);
    }

    #[test]
    fn an_operator_names_the_principal_whose_conversation_is_meant() {
        let mut headers = HeaderMap::new();
        assert_eq!(concerned(&headers), Principal::anonymous());
        headers.insert("x-tigertally-tenant", HeaderValue::from_static("t"));
        assert_eq!(concerned(&headers), Principal::anonymous());
        headers
            .insert("x-tigertally-principal", HeaderValue::from_bytes("süß".as_bytes()).unwrap());
        assert_eq!(concerned(&headers), Principal::named("süß", Some("t")));
        headers.remove("x-tigertally-tenant");
        assert_eq!(concerned(&headers), Principal::named("süß", None));
    }
}
