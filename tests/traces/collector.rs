//! A collector: takes OTLP over HTTP, and reads it with OpenTelemetry's own types.

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Response};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message as _;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A span as it was told.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) trace: String,
    pub(crate) span: String,
    pub(crate) parent: String,
    pub(crate) name: String,
    pub(crate) kind: i32,
    pub(crate) began: u64,
    pub(crate) ended: u64,
    pub(crate) status: i32,
    pub(crate) links: Vec<(String, String)>,
    pub(crate) events: Vec<BTreeMap<String, String>>,
    attributes: BTreeMap<String, String>,
}

impl Told {
    /// The value in words; empty where there is none.
    pub(crate) fn attribute(&self, key: &str) -> String {
        self.attributes.get(key).cloned().unwrap_or_default()
    }

    fn of(span: &Span) -> Self {
        Told {
            trace: hex(&span.trace_id),
            span: hex(&span.span_id),
            parent: hex(&span.parent_span_id),
            name: span.name.clone(),
            kind: span.kind,
            began: span.start_time_unix_nano,
            ended: span.end_time_unix_nano,
            status: span.status.as_ref().map_or(0, |status| status.code),
            links: span
                .links
                .iter()
                .map(|link| (hex(&link.trace_id), hex(&link.span_id)))
                .collect(),
            events: span.events.iter().map(|event| words(&event.attributes)).collect(),
            attributes: words(&span.attributes),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn words(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let pairs = attributes.iter().map(|one| (one.key.clone(), said(one.value.as_ref())));
    let words: BTreeMap<String, String> = pairs.collect();
    assert_eq!(words.len(), attributes.len(), "no key twice: {attributes:?}");
    words
}

fn said(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()).unwrap() {
        Value::StringValue(text) => text.clone(),
        Value::BoolValue(flag) => flag.to_string(),
        Value::IntValue(number) => number.to_string(),
        Value::DoubleValue(number) => number.to_string(),
        Value::ArrayValue(list) => {
            let values: Vec<String> = list.values.iter().map(|value| said(Some(value))).collect();
            values.join(",")
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) struct Collector {
    pub(crate) url: String,
    bodies: Arc<Mutex<Vec<Bytes>>>,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let bodies: Arc<Mutex<Vec<Bytes>>> = Arc::default();
        let kept = Arc::clone(&bodies);
        let take = move |headers: HeaderMap, body: Bytes| async move {
            assert_eq!(headers["content-type"], "application/x-protobuf");
            kept.lock().push(body);
            Response::new(Body::empty())
        };
        let router = axum::Router::new().route("/v1/traces", axum::routing::post(take));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Collector { url, bodies }
    }

    fn requests(&self) -> Vec<ExportTraceServiceRequest> {
        let bodies = self.bodies.lock();
        bodies.iter().map(|body| ExportTraceServiceRequest::decode(&body[..]).unwrap()).collect()
    }

    /// Waits for so many spans; there must be no more.
    pub(crate) async fn spans(&self, count: usize) -> Vec<Told> {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let requests = self.requests();
            let scopes = requests
                .iter()
                .flat_map(|one| &one.resource_spans)
                .flat_map(|one| &one.scope_spans);
            let mut spans: Vec<Told> = scopes.flat_map(|one| &one.spans).map(Told::of).collect();
            if spans.len() >= count {
                assert_eq!(spans.len(), count, "{spans:#?}");
                spans.sort_by_key(|span| span.began);
                return spans;
            }
            assert!(Instant::now() < end, "{spans:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Whose spans these are.
    pub(crate) fn service(&self) -> String {
        let requests = self.requests();
        let resource = requests[0].resource_spans[0].resource.as_ref().unwrap();
        words(&resource.attributes)["service.name"].clone()
    }

    /// Whether any byte of what was told spells that.
    pub(crate) fn holds(&self, text: &str) -> bool {
        let bodies = self.bodies.lock();
        bodies.iter().any(|body| body.windows(text.len()).any(|window| window == text.as_bytes()))
    }
}
