//! Sending a request up: the privileged step. It takes two proofs: [`Cleared`], which only the request
//! rules make, and [`Passage`], which only the ledger's admission makes.

use super::abort::Rid;
use super::admission::Passage;
use super::clearance::Cleared;
use super::gateway::{Gateway, Settings};
use super::headers;
use super::pool::UpBody;
use super::refusal::Refusal;
use super::splice::{Segments, Splice, offset_in};
use super::upstream::Upcall;
use crate::guard::fault::Code;
use crate::guard::pairing;
use crate::ledger::event::{Notice, Substitution};
use crate::policy::{Policy, UpstreamKind};
use crate::wire::content;
use crate::wire::request::{ChatRequest, Message};
use bytes::Bytes;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Request};
use std::sync::Arc;

/// Sends a judged request up.
///
/// # Errors
/// When a notice cannot be put in place of a result.
pub(super) fn forward(
    gateway: &Arc<Gateway>,
    settings: &Settings,
    parts: Parts,
    cleared: &Cleared,
    passage: &Passage,
) -> Result<Upcall, Box<Refusal>> {
    let mut splices = Vec::new();
    if let Some(admitted) = passage.admitted()
        && !admitted.substitutions.is_empty()
    {
        splices = substitute(&cleared.body, &admitted.substitutions, &settings.policy)?;
    }
    let upstream = &settings.policy.upstream;
    let minted = upstream.kind == UpstreamKind::Sglang && upstream.rid;
    let rid = minted.then(Rid::mint);
    let splice = rid.as_ref().and_then(|rid| {
        Splice::member(cleared.rid, cleared.splice_at, "rid", &format!("\"{rid}\""))
    });
    let rid = rid.filter(|_| splice.is_some());
    splices.extend(splice);
    let body = UpBody::Judged(Segments::new(&cleared.body, splices));
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
        &gateway.client,
        request,
        settings.patience(),
        rid,
        Arc::clone(&gateway.aborter),
    ))
}

/// Puts notices in place of results' contents, then reads the body again: what goes up must pair
/// exactly as what was judged, and hold the notices.
fn substitute(
    body: &Bytes,
    substitutions: &[Substitution],
    policy: &Policy,
) -> Result<Vec<Splice>, Box<Refusal>> {
    let failed = || {
        Box::new(Refusal::at(Code::BodyInvalid, "messages", "A stale result cannot be replaced."))
    };
    let depth = policy.limits.depth;
    let before = ChatRequest::parse(body, depth).map_err(|_| failed())?;
    let mut splices = Vec::with_capacity(substitutions.len());
    for substitution in substitutions {
        let message = before.messages.get(substitution.message).ok_or_else(failed)?;
        let notice = notice_text(policy, substitution.notice);
        splices.push(replace_content(body, message, notice).ok_or_else(failed)?);
    }
    let after = Segments::new(body, splices.clone()).joined();
    let after = ChatRequest::parse(&after, depth).map_err(|_| failed())?;
    let same = pairing::judge(&before).faults.len() == pairing::judge(&after).faults.len()
        && before.messages.len() == after.messages.len();
    let placed = substitutions.iter().all(|substitution| {
        after.messages.get(substitution.message).is_some_and(|message| {
            message.content.and_then(|span| content::text(span.raw)).as_deref()
                == Some(notice_text(policy, substitution.notice))
        })
    });
    if same && placed { Ok(splices) } else { Err(failed()) }
}

fn notice_text(policy: &Policy, notice: Notice) -> &str {
    match notice {
        Notice::Timeout => &policy.notices.timeout,
        Notice::Superseded => &policy.notices.superseded,
    }
}

fn replace_content(body: &Bytes, message: &Message<'_>, notice: &str) -> Option<Splice> {
    let text = serde_json::to_string(notice).ok()?;
    if let Some(content) = message.content {
        let (at, remove) = (content.at, content.raw.len());
        return Some(Splice { at, remove, insert: Bytes::from(text) });
    }
    let at = offset_in(body, message.raw.as_bytes())? + 1;
    Some(Splice { at, remove: 0, insert: Bytes::from(format!("\"content\":{text},")) })
}
