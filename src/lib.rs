//! Tigertally: an OpenAI-compatible guarding reverse proxy.
//!
//! It lets a tool call out, and a tool result back in, only when the two match, belong to the task
//! that the user waits for now, and the answer that comes of them is still wanted.
//!
//! The modules form layers; each may use those above it in this list only (a test enforces it):
//! [`wire`] → [`guard`] → [`ledger`] → [`store`] → [`policy`] → [`telemetry`] → [`proxy`] →
//! [`control`] → [`cli`].

pub mod cli;
pub mod control;
pub mod guard;
pub mod ledger;
pub mod policy;
pub mod proxy;
pub mod store;
pub mod telemetry;
pub mod wire;
