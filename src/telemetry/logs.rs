//! Logs: a constant message and fields, on standard error, so that standard output stays the program's own.

use crate::policy::LogFormat;
use std::io::{IsTerminal, stderr};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Starts logging. `RUST_LOG` sets what is written (default `info`), and `NO_COLOR`
/// (<https://no-color.org>) or a standard error that is no terminal turns colours off.
///
/// From then on a panic is told as a log line with its place and without its message: what a library cannot
/// stomach it may quote, and that may be a prompt.
///
/// # Errors
/// When logging was started before.
pub fn init(format: LogFormat) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let filter =
        EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).from_env_lossy();
    // A log whose reader went away is no reason to end: what cannot be written is not told on standard error
    // either, since that would panic.
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr)
        .log_internal_errors(false);
    match format {
        LogFormat::Json => logs.json().flatten_event(true).try_init(),
        LogFormat::Pretty => logs
            .with_ansi(colours(std::env::var_os("NO_COLOR").as_deref(), stderr().is_terminal()))
            .try_init(),
    }?;
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        tracing::error!(place, "a task of the program panicked");
    }));
    Ok(())
}

/// Whether colours are written: to terminals whose user wants them. An empty `NO_COLOR` counts as unset, as its text says.
#[must_use]
pub fn colours(no_color: Option<&std::ffi::OsStr>, terminal: bool) -> bool {
    terminal && no_color.is_none_or(std::ffi::OsStr::is_empty)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;

    /// Plays itself in a process of its own, whose logs and panics these are.
    #[test]
    fn a_panic_is_told_by_its_place_alone() {
        const NAME: &str = "telemetry::logs::tests::a_panic_is_told_by_its_place_alone";
        const HERE: &str = "TEST_PANICS_HERE";
        if std::env::var_os(HERE).is_some() {
            init(LogFormat::Json).unwrap();
            let told = std::thread::Builder::new().spawn(|| panic!("no boundary in {}", "s3cr3t"));
            assert!(told.unwrap().join().is_err());
            return;
        }
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let output =
            command.args(["--exact", NAME, "--nocapture"]).env(HERE, "1").output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.success() && said.contains("src/telemetry/logs.rs:"), "{said}");
        assert!(!said.contains("s3cr3t"), "{said}");
    }

    #[test]
    fn colours_are_for_terminals_whose_user_wants_them() {
        for (no_color, terminal, expected) in [
            (None, true, true),
            (Some(""), true, true),
            (Some("1"), true, false),
            (None, false, false),
        ] {
            assert_eq!(colours(no_color.map(std::ffi::OsStr::new), terminal), expected);
        }
    }
}
