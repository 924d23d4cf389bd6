//! `tigertally config check FILE`: what a file resolves to, or everything that is wrong with it.

use super::{UNUSABLE, environment, say, tell};
use crate::policy::{self, Loose, Sources};
use std::path::PathBuf;
use std::process::ExitCode;

/// Prints the resolved configuration to standard output, or the problems to standard error.
#[must_use]
pub fn run(file: PathBuf) -> ExitCode {
    match policy::load(Sources { file: Some(file), env: environment(), ..Sources::default() }) {
        Ok(policy) => {
            for loose in Loose::among(&policy.private_files) {
                tell(&format_args!("warning: {loose}"));
            }
            say(&policy.show());
            ExitCode::SUCCESS
        }
        Err(problems) => {
            tell(&problems);
            ExitCode::from(UNUSABLE)
        }
    }
}
