//! Command line.
pub mod demo;
pub mod scripted;
use std::process::ExitCode;
/// Runs the program.
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
