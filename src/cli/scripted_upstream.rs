//! `tigertally scripted-upstream`: not on this branch.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs the scripted server.
#[must_use]
pub fn run(listen: SocketAddr, script: Option<PathBuf>) -> ExitCode {
    let _ = (listen, script);
    ExitCode::FAILURE
}
