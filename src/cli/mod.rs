//! Command line.
pub mod demo;
pub mod scripted_upstream;
use std::process::ExitCode;
/// Runs the program.
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
