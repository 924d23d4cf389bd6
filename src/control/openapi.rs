//! The control API's OpenAPI document, served beside the calls that it describes.
//!
//! It is written by hand, in `openapi.json`, because what a caller needs to know (which code means what, what
//! may be repeated) is in no type. A test holds its keys against the bodies and answers of the running
//! program: see `tests/control_api`.

use crate::proxy::Gateway;
use crate::proxy::journal::Journal;
use crate::proxy::reply::json;
use crate::telemetry::{ExchangeOutcome, Route};
use axum::body::Body;
use axum::extract::{Request, State};
use http::{Response, StatusCode};
use std::sync::Arc;

/// Where it is.
pub(super) const PATH: &str = "/guard/v1/openapi.json";

const DOCUMENT: &str = include_str!("openapi.json");

/// Gives the document, to whoever may use the control API.
pub(super) async fn document(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
) -> Response<Body> {
    let mut journal = Journal::open(&gateway, Route::Control, request.headers());
    journal.ends(ExchangeOutcome::Delivered);
    journal.answers(StatusCode::OK);
    let mut response = json(StatusCode::OK, DOCUMENT);
    journal.stamp.passed(response.headers_mut(), &[]);
    response
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::super::{calls, writes};
    use super::DOCUMENT;
    use serde_json::Value;

    #[test]
    fn each_call_is_described_and_no_other() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let paths = document["paths"].as_object().unwrap();
        let mut described: Vec<String> = paths
            .iter()
            .flat_map(|(path, calls)| {
                calls.as_object().unwrap().keys().map(move |method| format!("{method} {path}"))
            })
            .collect();
        described.sort();
        let base = "/guard/v1/conversations/{id}";
        let mut wanted = vec![
            format!("delete {base}"),
            format!("get {base}"),
            format!("post {base}/generation"),
            format!("post {base}/results"),
            format!("post {}", calls::START),
            format!("post {}", writes::RESOLVE),
        ];
        wanted.sort();
        assert_eq!(described, wanted);
    }
}
