//! The task record of the built program, and what `tigertally explain` makes of it. Every line that any of these
//! tests reads is held to `docs/task-record.schema.json`.
//!
//! Needs `redis-server` and `redis-cli` (6.2 or newer) on the path; `scripts/test` installs them.

#![expect(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod explained;
mod leaks;
mod lines;
mod sinks;
mod story;
mod sums;
mod whole;

#[expect(dead_code, reason = "what other tests need")]
#[path = "../traces/collector.rs"]
mod collector;
#[expect(dead_code, reason = "what other tests need")]
#[path = "../gateway/mod.rs"]
mod gateway;
#[expect(dead_code, reason = "what other tests need")]
#[path = "../jwt/issuer.rs"]
mod issuer;
#[expect(dead_code, reason = "what other tests need")]
#[path = "../lives/mod.rs"]
mod lives;
#[expect(dead_code, reason = "what other tests need")]
#[path = "../program/mod.rs"]
mod program;
#[expect(dead_code, reason = "what other tests need")]
#[path = "../redis/server.rs"]
mod server;
