//! `tigertally check`: judges what was saved of an exchange by the rules of the proxy, without a proxy.
//!
//! ```text
//!  input ─► form ─► (har │ records │ langchain) ─► part ─► judge ─► finding ─► report
//!  bytes    what    where the bodies stand         bodies  guard     places     text, JSON
//! ```
//!
//! The first thing that a person with a "tool_call_id not found" error tries: everything is told with its line
//! and column, the rule, and the way out. No content, argument or key is printed.

mod checking;
mod chunks;
mod finding;
pub mod form;
mod har;
mod input;
mod judge;
mod langchain;
mod look;
mod part;
mod records;
mod report;
mod tools;

use super::args::Check;
use super::{UNUSABLE, tell};
use crate::telemetry::logs;
use checking::Checking;
use form::Unusable;
use input::{Input, Reading};
use judge::Judge;
use report::{Report, Style, Summary};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use tools::Tools;

/// Runs the command.
#[must_use]
pub fn run(check: &Check) -> ExitCode {
    let stdout = io::stdout();
    let colours = logs::colours(std::env::var_os("NO_COLOR").as_deref(), stdout.is_terminal());
    let style = if check.json { Style::Json } else { Style::Text { colours } };
    let mut out = BufWriter::new(stdout.lock());
    let code = match print(check, style, &mut out) {
        Ok(code) => code,
        // A reader that went away (`| head`) has seen enough: a report that long is one of faults.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => 1,
        Err(error) => {
            tell(&format_args!("tigertally: the report cannot be written: {error}"));
            UNUSABLE
        }
    };
    let _ = out.flush();
    ExitCode::from(code)
}

/// Reads, judges and prints; gives the exit code. Errors are those of the output.
fn print(check: &Check, style: Style, out: &mut dyn Write) -> io::Result<u8> {
    let source =
        if check.file.as_os_str() == "-" { "stdin".into() } else { check.file.to_string_lossy() };
    let mut report = Report::new(out, style, source.into_owned());
    let tools = match check.tools.as_deref().map(tools).transpose() {
        Ok(tools) => tools,
        Err(why) => return unusable(&mut report, &why, None),
    };
    if check.file.as_os_str() == "-" && io::stdin().is_terminal() {
        tell(
            &"tigertally: reads from the terminal: paste a body, then Ctrl-D (or name a FILE; see --help)",
        );
    }
    let reading = Input::open(&check.file).and_then(|input| input.read(check.read_as));
    let mut checking = Checking { judge: Judge::new(tools), report, summary: Summary::default() };
    match reading {
        Err(error) => {
            let why = Unusable::new(
                format!("it cannot be read: {error}"),
                "Name a file that you may read, or - for standard input.",
            );
            unusable(&mut checking.report, &why, None)
        }
        Ok(Reading::Whole(None)) => {
            let why = Unusable::new(
                "it is larger than 512 MiB",
                "A log of that size is judged line by line: write one record on each.",
            );
            unusable(&mut checking.report, &why, None)
        }
        Ok(Reading::Whole(Some(bytes))) => checking.whole(&bytes, check.read_as),
        Ok(Reading::Lines(lines)) => checking.lines(lines),
    }
}

fn unusable(
    report: &mut Report<'_>,
    why: &Unusable,
    position: Option<(usize, usize)>,
) -> io::Result<u8> {
    report.unusable(why, position)?;
    Ok(UNUSABLE)
}

fn tools(file: &Path) -> Result<Tools, Unusable> {
    let told = |reason: String| {
        let message = format!("--tools {} {reason}", file.display());
        Unusable::new(message, "Save the `tools` of the request there, or the request itself.")
    };
    let text =
        std::fs::read_to_string(file).map_err(|error| told(format!("cannot be read: {error}")))?;
    Tools::of_file(&text).map_err(told)
}
