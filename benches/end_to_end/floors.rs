//! What passing through costs with no guard at all: the floors that the proxy is measured against.

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;

const IDLE: Duration = Duration::from_secs(4);
const LARGEST: usize = 64 << 20;

/// hyper below and above: bodies go through as they come, both ways.
pub(crate) async fn hyper(listen: SocketAddr, upstream: SocketAddr) {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Client<HttpConnector, Incoming> = Client::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE)
        .pool_timer(TokioTimer::new())
        .build(connector);
    let listener = TcpListener::bind(listen).await.unwrap();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let client = client.clone();
        let service = service_fn(move |request| relay(client.clone(), upstream, request));
        tokio::spawn(async move {
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn relay(
    client: Client<HttpConnector, Incoming>,
    upstream: SocketAddr,
    mut request: Request<Incoming>,
) -> Result<Response<BoxBody<Bytes, hyper::Error>>, Infallible> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = format!("http://{upstream}{path}").parse().unwrap();
    strip(request.headers_mut());
    Ok(match client.request(request).await {
        Ok(mut response) => {
            strip(response.headers_mut());
            response.map(BodyExt::boxed)
        }
        Err(_) => {
            let empty = Full::default().map_err(|never: Infallible| match never {}).boxed();
            let mut response = Response::new(empty);
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response
        }
    })
}

/// axum below, reqwest above: what most proxies in Rust are made of. The request is read whole.
pub(crate) async fn axum(listen: SocketAddr, upstream: SocketAddr) {
    use axum::serve::ListenerExt as _;

    let client = reqwest::Client::builder().pool_idle_timeout(IDLE).build().unwrap();
    let handler = move |request: Request<axum::body::Body>| {
        let client = client.clone();
        async move {
            let (mut head, body) = request.into_parts();
            let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
            let url = format!("http://{upstream}{path}");
            let Ok(body) = axum::body::to_bytes(body, LARGEST).await else {
                return Err(StatusCode::BAD_REQUEST);
            };
            strip(&mut head.headers);
            head.headers.remove(header::CONTENT_LENGTH);
            let sent = client.request(head.method, url).headers(head.headers).body(body).send();
            let response = sent.await.map_err(|_| StatusCode::BAD_GATEWAY)?;
            let mut response = Response::from(response);
            strip(response.headers_mut());
            Ok(response.map(axum::body::Body::new))
        }
    };
    let listener = TcpListener::bind(listen).await.unwrap().tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, axum::Router::new().fallback(handler)).await.unwrap();
}

fn strip(headers: &mut HeaderMap) {
    for name in [header::CONNECTION, header::TRANSFER_ENCODING, header::HOST] {
        headers.remove(name);
    }
    headers.remove("keep-alive");
}
