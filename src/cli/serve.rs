//! `tigertally serve`: not on this branch.

use crate::policy::Policy;
use std::process::ExitCode;

/// Runs the proxy.
#[must_use]
pub fn run(policy: Policy) -> ExitCode {
    let _ = policy;
    ExitCode::FAILURE
}
