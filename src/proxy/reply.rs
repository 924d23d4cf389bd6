//! Answers in our own words: refusals, and what the control API says.

use super::journal::Journal;
use super::refusal::Refusal;
use crate::guard::fault::Code;
use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header};

/// Our own answer in place of the upstream's.
pub(crate) fn refuse(refusal: &Refusal, journal: &mut Journal) -> Response<Body> {
    if let Some(generation) = refusal.generation {
        journal.stamp.generation = Some(generation);
    }
    journal.refuses(refusal);
    let mut response = json(refusal.status(), refusal.body());
    let headers = response.headers_mut();
    journal.stamp.refused(headers, refusal);
    if refusal.code() == Code::Draining {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// An answer in our own words.
pub(crate) fn json(status: StatusCode, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
