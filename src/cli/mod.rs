//! The command line: reads it, resolves the configuration, and hands over to what was asked for.
//!
//! Exit codes are a contract with scripts: 0 all is well, 1 it failed, 2 the input cannot be used.

pub mod args;
pub mod check;
pub mod config_check;
pub mod config_keys;
pub mod demo;
pub mod explain;
pub mod health;
pub mod keys;
mod manual;
mod pages;
mod rules;
pub mod scripted_upstream;
pub mod serve;

use crate::policy;
use args::{Command, CommandLine, ConfigCommand};
use clap::Parser;
use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

/// Exit code for input that cannot be used: flags, files, configuration.
pub const UNUSABLE: u8 = 2;

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    // Help, version and wrong flags end the program here, with 0 or 2.
    match CommandLine::parse().command {
        Command::Serve(serve) => {
            let sources = serve.sources(environment());
            match policy::load(sources.clone()) {
                Ok(policy) => serve::run(policy, &sources),
                Err(problems) => {
                    tell(&problems);
                    ExitCode::from(UNUSABLE)
                }
            }
        }
        Command::Demo { keep } => demo::run(keep),
        Command::ScriptedUpstream { listen, script } => scripted_upstream::run(listen, script),
        Command::Check(check) => check::run(&check),
        Command::Explain(explain) => explain::run(&explain),
        Command::Health(health) => health::run(&health),
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { dir } => pages::man(dir.as_deref()),
        Command::Keys { command } => keys::run(command),
        Command::Config { command: ConfigCommand::Check { file } } => config_check::run(file),
        Command::Config { command: ConfigCommand::Keys { under, json } } => {
            config_keys::run(under.as_deref(), json)
        }
    }
}

/// The environment. What is not UTF-8 is taken with replacements, so that it is told as a bad value.
fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .map(|(name, value)| {
            (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
        })
        .collect()
}

/// Writes to standard output. A reader that went away (`| head`) is no failure.
fn say(text: &dyn Display) {
    let _ = write!(std::io::stdout().lock(), "{text}");
}

/// Writes to standard error.
fn tell(text: &dyn Display) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
