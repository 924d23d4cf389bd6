//! What applications and operators ask the proxy directly: the control API on the client port, and the
//! admin port.
//!
//! [`start`] puts the whole product together: the proxy with both of them.

pub mod admin;
mod body;
mod calls;
mod console;
pub mod conversations;
mod openapi;
mod question;
mod record;
mod writes;

use crate::policy::Policy;
use crate::proxy::{Flights, Gateway, Running, StartError, Surfaces};
use crate::store::Store;
use crate::telemetry::Telemetry;
use std::sync::Arc;

/// Starts a proxy with its control API and admin port. `flights` must be a listener of `store`. Must be
/// called on a runtime.
///
/// # Errors
/// When a port cannot be opened or the configuration cannot be used.
pub async fn start(
    policy: Policy,
    store: Arc<dyn Store>,
    flights: Arc<Flights>,
    telemetry: impl Into<Telemetry>,
) -> Result<Running, StartError> {
    let token = admin::Token::of(&policy.admin);
    let surfaces = Surfaces {
        control: Box::new(conversations::router),
        admin: Box::new(move |gateway| admin::router(gateway, token)),
    };
    Gateway::start(policy, store, flights, telemetry.into(), surfaces).await
}
