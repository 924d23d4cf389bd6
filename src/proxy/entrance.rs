//! Asking who comes in, before anything of a request is looked at.
//!
//! What the client is told is the refusal alone; the reason goes to the log with the exchange.

use super::body;
use super::gateway::{Gateway, Settings};
use super::identity::{Peer, Principal};
use super::journal::Journal;
use super::refusal::Refusal;
use super::reply::refuse;
use crate::guard::fault::Code;
use crate::telemetry::Route;
use axum::body::Body;
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use std::sync::Arc;

/// Who sends this. Why somebody is a stranger goes to the log only.
pub(super) async fn prove(
    settings: &Settings,
    journal: &mut Journal,
    headers: &HeaderMap,
    peer: &Peer,
) -> Result<Principal, Box<Refusal>> {
    settings.doorkeeper.prove(headers, peer).await.map_err(|denied| {
        journal.because(denied.reason);
        denied.refusal
    })
}

/// A path that is forwarded unread is closed to a principal whose models or tools are restricted: nobody
/// could say what it asks for there.
pub(super) fn check_unread(principal: &Principal, route: Route) -> Result<(), Box<Refusal>> {
    if route != Route::Pass || !principal.is_restricted() {
        return Ok(());
    }
    let message =
        "This route is forwarded unread, and this principal may use certain models or tools only.";
    Err(Box::new(Refusal::plain(Code::RouteClosed, message)))
}

/// Asks who calls the control API: the request goes on with its principal, or is refused.
pub(crate) async fn prove_caller(
    gateway: &Arc<Gateway>,
    mut request: Request<Incoming>,
    peer: &Peer,
) -> Result<Request<Incoming>, Response<Body>> {
    let settings = gateway.settings();
    let denied = match settings.doorkeeper.prove(request.headers(), peer).await {
        Ok(principal) => {
            request.extensions_mut().insert(principal);
            return Ok(request);
        }
        Err(denied) => denied,
    };
    let (parts, body) = request.into_parts();
    let mut journal = Journal::open(gateway, Route::Control, &parts.headers);
    journal.because(denied.reason);
    body::dismiss(gateway, &parts.headers, body);
    Err(refuse(&denied.refusal, &mut journal))
}
