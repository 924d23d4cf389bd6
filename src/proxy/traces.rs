//! Sends traces to the operator's collector, over the same pool of connections as everything that goes up.

use super::gateway::Gateway;
use super::pool::{Pool, UpBody};
use super::splice::Segments;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Uri, header};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long the collector may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it may take for the last batch.
const LAST: Duration = Duration::from_millis(500);

/// Until `end`, and then what is left: sends spans, if the operator wants them.
pub(super) async fn send(gateway: Arc<Gateway>, end: CancellationToken) {
    let Some(batches) = gateway.tracer.batches() else { return };
    let (pool, endpoint) = (gateway.pool.clone(), batches.endpoint().clone());
    let ending = end.clone();
    let post = move |body: [Bytes; 2]| {
        let patience = if ending.is_cancelled() { LAST } else { PATIENCE };
        post(pool.clone(), endpoint.clone(), body, patience)
    };
    batches.send(post, end).await;
}

async fn post(pool: Pool, endpoint: Uri, body: [Bytes; 2], patience: Duration) -> bool {
    let mut request = Request::new(UpBody::Judged(Segments::of(body)));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = endpoint;
    let protobuf = HeaderValue::from_static("application/x-protobuf");
    request.headers_mut().insert(header::CONTENT_TYPE, protobuf);
    let status = tokio::time::timeout(patience, pool.ask(request)).await;
    matches!(status, Ok(Ok(status)) if status.is_success())
}
