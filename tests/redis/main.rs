//! Gateways that share one Redis, over real HTTP: they decide as one, and say so when Redis is not there.
//!
//! Needs `redis-server` and `redis-cli` (6.2 or newer) on the path; `scripts/test` installs them.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests"
)]

mod agreement;
mod fleet;
#[path = "../history/mod.rs"]
mod history;
mod kills;
#[path = "../lives/mod.rs"]
mod lives;
mod once;
mod outage;
mod server;
mod stopped;
mod switch;

/// How often something is tried, unless the environment says otherwise.
fn rounds(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().map_or(otherwise, |text| text.parse().expect("a number"))
}
