//! Prints what happens: one line an exchange, in columns; colours only where a person reads them.

use std::env;
use std::io::{self, IsTerminal as _, Write};
use std::time::Instant;

/// A printed timeline.
pub(super) struct Timeline {
    out: Box<dyn Write + Send>,
    colours: bool,
    start: Instant,
}

/// How a line came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// As told, and let through.
    Passed,
    /// As told, and stopped.
    Stopped,
    /// Not as told.
    Differs,
}

/// One line.
#[derive(Clone, Debug)]
pub(super) struct Line<'a> {
    /// From whom to whom.
    pub(super) way: &'a str,
    /// What was sent.
    pub(super) what: &'a str,
    /// Status and code.
    pub(super) verdict: &'a str,
    /// What came of it.
    pub(super) outcome: &'a str,
    /// How it came out.
    pub(super) mark: Mark,
}

impl Timeline {
    /// On standard output: colours on a terminal, unless `NO_COLOR` is set and not empty.
    pub(super) fn on_stdout() -> Self {
        let plain = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let colours = io::stdout().is_terminal() && !plain;
        Self::new(Box::new(io::stdout()), colours)
    }

    /// On any writer.
    pub(super) fn new(out: Box<dyn Write + Send>, colours: bool) -> Self {
        Timeline { out, colours, start: Instant::now() }
    }

    /// Says what is about to be shown.
    pub(super) fn opening(&mut self, guard: &str, upstream: &str) -> io::Result<()> {
        writeln!(
            self.out,
            "One order query, over real HTTP. A user asks, an agent (the application) calls"
        )?;
        writeln!(self.out, "the model through the guard, and looks up orders with a tool.\n")?;
        writeln!(self.out, "  guard  {guard}   Tigertally")?;
        writeln!(self.out, "  model  {upstream}   scripted, in the shape of SGLang\n")?;
        writeln!(self.out, "  agent > model  the guard let it through, and the answer back")?;
        writeln!(self.out, "  agent > guard  the guard stopped it: the model never saw it")?;
        writeln!(self.out, "  model > guard  the model answered, but the guard withheld the answer")
    }

    /// A story begins.
    pub(super) fn heading(&mut self, text: &str) -> io::Result<()> {
        let text = self.paint("1", text);
        writeln!(self.out, "\n{text}")
    }

    /// Something happened.
    pub(super) fn line(&mut self, line: &Line<'_>) -> io::Result<()> {
        let time = self.start.elapsed().as_secs_f64();
        let colour = match line.mark {
            Mark::Passed => "32",
            Mark::Stopped => "33",
            Mark::Differs => "31",
        };
        let verdict = self.paint(colour, &format!("{:<20}", line.verdict));
        writeln!(
            self.out,
            "  {time:4.2}s  {:<13}  {:<42}  {verdict}  {}",
            line.way, line.what, line.outcome
        )
    }

    /// A remark under a line, or at the end.
    pub(super) fn remark(&mut self, text: &str, mark: Mark) -> io::Result<()> {
        let text = if mark == Mark::Differs { self.paint("31", text) } else { text.to_owned() };
        writeln!(self.out, "{text}")
    }

    fn paint(&self, colour: &str, text: &str) -> String {
        if self.colours { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
