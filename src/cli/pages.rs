//! `tigertally completions` and `tigertally man`: what the command line says of itself, for shells and for `man`.

use super::args::CommandLine;
use super::{say, tell};
use clap::CommandFactory;
use clap_complete::Shell;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Prints the completions of a shell.
#[must_use]
pub(super) fn completions(shell: Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut CommandLine::command(), "tigertally", &mut script);
    say(&String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}

/// Prints the manual page, or writes all of them into a directory.
#[must_use]
pub(super) fn man(directory: Option<&Path>) -> ExitCode {
    let done = match directory {
        None => page().map(|page| say(&page)),
        Some(directory) => write_all(directory).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", directory.display()))
        }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&format_args!("tigertally: the manual cannot be written: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn page() -> io::Result<String> {
    let mut page = Vec::new();
    clap_mangen::Man::new(CommandLine::command()).render(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

fn write_all(directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(CommandLine::command(), directory)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn each_command_has_a_page_and_the_first_names_them() {
        let scratch = tempfile::tempdir().unwrap();
        write_all(scratch.path()).unwrap();
        let first = std::fs::read_to_string(scratch.path().join("tigertally.1")).unwrap();
        for command in CommandLine::command().get_subcommands() {
            let name = command.get_name();
            assert!(scratch.path().join(format!("tigertally-{name}.1")).exists(), "{name}");
            assert!(first.contains(&name.replace('-', "\\-")), "{name}");
        }
        assert!(page().unwrap().contains(".TH tigertally 1"));
    }
}
