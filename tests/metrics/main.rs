//! The metrics of the built program: what moves each of them and by how much, that no client can make a series,
//! that they hold over reloads and replicas, and that documentation, alerts and dashboard speak of what is there.
//!
//! Needs `redis-server` and `redis-cli` (6.2 or newer) on the path; `scripts/test` installs them.

#![expect(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod labels;
mod moves;
mod queries;
mod reference;
mod replicas;
mod scrape;

#[path = "../replicas/model.rs"]
mod model;
#[expect(dead_code, reason = "what other tests need")]
#[path = "../replicas/process.rs"]
mod process;
#[expect(dead_code, reason = "what other tests need")]
#[path = "../redis/server.rs"]
mod server;

#[expect(dead_code, reason = "what other tests need")]
#[path = "../rig/mod.rs"]
mod rig;

use model::Model;
use process::Process;

/// Two tools of which one writes; one that is only allowed.
const TOOLS: &str = r#"
[tools.refund_order]
effect = "write"
[tools.get_order]
"#;

/// The program before a model that says what it is told to.
async fn guard(config: &str) -> (Model, Process) {
    let model = Model::start().await;
    let process = Process::start(&model.url, "memory:", config).await;
    (model, process)
}
