//! The pooled connections to the upstream, and what is sent over them.
//!
//! One client serves everything that goes up: exchanges, aborts and probes. So all of them speak HTTPS
//! where the upstream does, and none of them reads proxy settings from the environment.

use super::arriving::{Arriving, Unfit};
use super::splice::Segments;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// SGLang's server closes idle connections after 5 s; ours must go first, or a request could meet a
/// connection that is being closed.
const POOL_IDLE: Duration = Duration::from_secs(4);

/// A body on its way up.
#[derive(Debug)]
pub enum UpBody {
    /// The client's bytes, read whole and judged.
    Judged(Segments),
    /// A body that goes through unguarded, as it comes.
    Streamed(Arriving),
}

impl UpBody {
    /// These bytes, and no others.
    #[must_use]
    pub fn whole(bytes: &Bytes) -> Self {
        UpBody::Judged(Segments::new(bytes, Vec::new()))
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

/// The pooled HTTP client.
pub(crate) type HttpClient = Client<HttpsConnector<HttpConnector>, UpBody>;

/// A client that keeps connections to one upstream.
#[must_use]
pub(crate) fn client(connect_timeout: Duration) -> HttpClient {
    let mut http = HttpConnector::new();
    http.set_nodelay(true);
    http.set_connect_timeout(Some(connect_timeout));
    http.enforce_http(false);
    let https = hyper_rustls::HttpsConnectorBuilder::new()
        .with_webpki_roots()
        .https_or_http()
        .enable_http1()
        .wrap_connector(http);
    Client::builder(TokioExecutor::new())
        .pool_idle_timeout(POOL_IDLE)
        .pool_timer(TokioTimer::new())
        .build(https)
}
