//! The built program in several processes: what happens by itself, in whatever process is left, and what goes
//! up in place of a result that came too late.
//!
//! Needs `redis-server` and `redis-cli` (6.2 or newer) on the path; `scripts/test` installs them.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

mod deadlines;
mod model;
mod notices;
mod one_key;
mod process;
mod rolling;

#[expect(dead_code, reason = "what other tests need")]
#[path = "../redis/server.rs"]
mod server;

/// What every process here is told, if not otherwise.
const TOOLS: &str = r#"
[tools.refund_order]
effect = "write"
[tools.get_order]
"#;
