//! An SGLang-shaped upstream that says what a script tells it to, for tests and trials.
//!
//! It answers on real sockets with the byte shapes of SGLang's own serving layer (explicit nulls, a
//! finish chunk of its own, `matched_stop`, `rid` as the completion's id, `/abort_request` by prefix),
//! so a guard that works in front of it has met those shapes. Without a script it plays an order
//! desk. It keeps a record of what it received (`GET /_seen`), so that a test can say "exactly one
//! request went up". `docs/scripted-upstream.md` is its reference.
//!
//! It checks nothing about pairs, as SGLang does not: whatever reaches it gets an answer.

mod generation;
mod order_desk;
mod plan;
mod reading;
mod script;
mod seen;
mod server;
mod shapes;

pub use script::{Script, ScriptError};

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::net::TcpListener;

/// Serves on `listener` until the future is dropped.
///
/// # Errors
/// When the listener fails for good.
pub async fn serve(listener: TcpListener, script: Script) -> io::Result<()> {
    axum::serve(listener, server::router(script)).await
}

/// Runs `tigertally scripted-upstream`: 0 when it ended well, 1 when it could not listen, 2 when the
/// script file cannot be used.
#[must_use]
pub fn run(listen: SocketAddr, script: Option<PathBuf>) -> ExitCode {
    let script = match script.map_or_else(|| Ok(Script::default()), |path| Script::load(&path)) {
        Ok(script) => script,
        Err(error) => return tell(2, &error.to_string()),
    };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return tell(1, &format!("cannot start: {error}")),
    };
    runtime.block_on(async {
        let listener = match TcpListener::bind(listen).await {
            Ok(listener) => listener,
            Err(error) => {
                let why = format!("cannot listen on {listen} ({error})");
                return tell(1, &format!("{why}; choose another address with --listen"));
            }
        };
        let address = listener.local_addr().unwrap_or(listen);
        let _ = tell(0, &format!("scripted upstream on http://{address}"));
        match serve(listener, script).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => tell(1, &error.to_string()),
        }
    })
}

/// Says a line on standard error and gives the exit code.
fn tell(code: u8, line: &str) -> ExitCode {
    let _ = writeln!(io::stderr(), "tigertally: {line}");
    ExitCode::from(code)
}
