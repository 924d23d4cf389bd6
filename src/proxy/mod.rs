//! The only place that awaits both ends: client port, exchange, stream relay, upstream.
//!
//! ```text
//!  server ─ port ─ router ─► exchange ─ entrance (Principal) ─ body ─ clearance (Cleared)
//!                                                                          │
//!                                    upstream ◄─ forward ─ admission (Passage)
//!                                       │
//!     client ◄── answer / relay ◄── release (Judged → Released)
//! ```
//!
//! Privileged steps take proofs that only the rule can make: `identity::Principal`, `clearance::Cleared` and
//! `admission::Passage` to go up, `release::Released` to let calls down. Whatever ends early (a client
//! that leaves, a refusal, a panic) is ended by guards: `upstream::Upcall` aborts the upstream's work,
//! `flight::Flight` tells the ledger, `journal::Journal` writes the record.
//!
//! The rooms on that way are the proxy's own: no other layer can send a request up or let calls down. Open
//! to `control` is what it needs to answer as the guarded route does: the same headers, digests and refusals.

mod abort;
mod admission;
mod answer;
mod arrears;
mod arriving;
pub(crate) mod body;
mod clearance;
mod cut;
mod entrance;
pub(crate) mod exchange;
mod flight;
mod flights;
mod forward;
mod gateway;
pub(crate) mod headers;
mod hold;
pub(crate) mod identity;
pub(crate) mod journal;
pub(crate) mod operation;
mod outbox;
mod places;
pub(crate) mod pool;
mod port;
pub(crate) mod question;
pub(crate) mod refusal;
mod relay;
mod release;
pub(crate) mod reply;
pub(crate) mod router;
mod server;
mod splice;
mod substitute;
mod traces;
mod upstream;

use crate::guard::screen;
pub use flights::Flights;
pub use gateway::{Gateway, StartError};
pub use server::{Running, Surfaces};
