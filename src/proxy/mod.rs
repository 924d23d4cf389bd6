//! The only place that awaits both ends: client port, exchange, stream relay, upstream.
//!
//! ```text
//!  server → router → exchange ─ body ─ clearance (Cleared) ─ admission (Passage) ─ forward ─► upstream
//!                        ▲                                                                       │
//!     client ◄── answer / relay ◄── release (Judged → Released) ◄────────────────────────────────┘
//! ```
//!
//! Privileged steps take proofs that only the rule can make: [`clearance::Cleared`] and
//! [`admission::Passage`] to go up, [`release::Released`] to let calls down. Whatever ends early (a client
//! that leaves, a refusal, a panic) is ended by guards: [`upstream::Upcall`] aborts the upstream's work,
//! [`flight::Flight`] tells the ledger, [`journal::Journal`] writes the record.

pub mod abort;
pub mod admission;
pub mod answer;
pub mod body;
pub mod clearance;
pub mod exchange;
pub mod flight;
pub mod forward;
pub mod gateway;
pub mod headers;
pub mod hold;
pub mod identity;
pub mod journal;
pub mod operation;
pub mod outbox;
pub mod refusal;
pub mod relay;
pub mod release;
pub mod router;
pub mod screen;
pub mod server;
pub mod splice;
pub mod upstream;

pub use flight::Flights;
pub use gateway::{Gateway, Settings, StartError};
pub use server::{Running, Surfaces};
