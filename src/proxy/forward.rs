//! Sending a request up: the privileged step. It takes two proofs: [`Cleared`], which only the request
//! rules make, and [`Passage`], which only the ledger's admission makes.

use super::abort::Rid;
use super::admission::Passage;
use super::clearance::Cleared;
use super::gateway::{Gateway, Settings};
use super::headers;
use super::pool::UpBody;
use super::refusal::Refusal;
use super::splice::{Segments, Splice};
use super::substitute;
use super::upstream::Upcall;
use crate::guard::fault::Code;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Request, header};
use std::sync::Arc;

/// Sends a judged request up.
///
/// # Errors
/// When a notice cannot be put in place of a result.
pub(super) fn forward(
    gateway: &Arc<Gateway>,
    settings: &Settings,
    mut parts: Parts,
    cleared: &Cleared,
    passage: &Passage,
) -> Result<Upcall, Box<Refusal>> {
    let mut splices = Vec::new();
    if let Some(admitted) = passage.admitted()
        && !admitted.substitutions.is_empty()
    {
        splices = substitute::splices(&cleared.body, &admitted.substitutions, settings)?;
    }
    let rid = cleared.minted.clone();
    splices.extend(rid.as_ref().and_then(|rid| {
        Splice::member(cleared.rid, cleared.splice_at, "rid", &format!("\"{rid}\""))
    }));
    let body = UpBody::Judged(Segments::new(&cleared.body, splices));
    // It says at most that there is none: a coded body is not judged.
    parts.headers.remove(header::CONTENT_ENCODING);
    send(gateway, settings, parts, body, rid)
}

/// Sends a request of an unguarded route up, as it comes.
///
/// # Errors
/// When the upstream's URL cannot be built.
pub(super) fn pass(
    gateway: &Arc<Gateway>,
    settings: &Settings,
    parts: Parts,
    body: UpBody,
) -> Result<Upcall, Box<Refusal>> {
    send(gateway, settings, parts, body, None)
}

fn send(
    gateway: &Arc<Gateway>,
    settings: &Settings,
    parts: Parts,
    body: UpBody,
    rid: Option<Rid>,
) -> Result<Upcall, Box<Refusal>> {
    let path =
        parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    let Some(uri) = settings.upstream_uri(&path) else {
        return Err(Box::new(Refusal::plain(
            Code::UpstreamUnreachable,
            "The upstream's address cannot be built.",
        )));
    };
    let mut request = Request::new(body);
    *request.method_mut() = if parts.method == Method::HEAD { Method::HEAD } else { parts.method };
    *request.uri_mut() = uri;
    *request.headers_mut() = parts.headers;
    headers::make_upward(
        request.headers_mut(),
        settings.authorization.as_ref(),
        &settings.kept_back,
    );
    Ok(Upcall::start(
        &gateway.pool,
        request,
        settings.patience(),
        rid,
        Arc::clone(&gateway.aborter),
    ))
}
