//! `tigertally demo`: not on this branch.

use std::process::ExitCode;

/// Plays the order story.
#[must_use]
pub fn run(keep: bool) -> ExitCode {
    let _ = keep;
    ExitCode::FAILURE
}
