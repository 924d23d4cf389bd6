//! The `tigertally` program: hands the command line to [`tigertally::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    tigertally::cli::main()
}
