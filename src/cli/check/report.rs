//! What is printed: text for people, or one JSON document for programs. Either is written as the exchanges come,
//! so that a log of any size needs no memory for it.

use super::finding::{Finding, Half, Level};
use super::form::{Form, Unusable};
use super::judge::count;
use serde::Serialize;
use std::io::{self, Write};

/// The version of the JSON document.
const VERSION: u32 = 1;

/// Where a report goes, and how it looks.
pub(super) struct Report<'w> {
    out: &'w mut dyn Write,
    style: Style,
    source: String,
    /// Whether the JSON document's head is written, and how many of its exchanges.
    begun: bool,
    told: usize,
    /// Whether there may be several exchanges in it.
    several: bool,
}

/// How it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Text { colours: bool },
    Json,
}

/// What is told of one exchange.
pub(super) struct Told {
    /// Its path in the file; empty when the file is nothing else.
    pub(super) path: String,
    /// Its first line.
    pub(super) line: usize,
    pub(super) findings: Vec<Finding>,
    pub(super) remarks: Vec<&'static str>,
    /// What it holds, in words.
    pub(super) holds: String,
}

/// A line or a record that could not be read.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Unreadable {
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) message: String,
    pub(super) way_out: &'static str,
}

/// Sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Summary {
    /// Exchanges judged.
    pub(super) exchanges: usize,
    /// Those with a fault.
    pub(super) faulty: usize,
    pub(super) faults: usize,
    pub(super) notes: usize,
    /// Lines or records that hold no request and no answer.
    pub(super) skipped: usize,
    /// Those that could not be read.
    pub(super) unreadable: usize,
}

#[derive(Serialize)]
struct Exchange<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    path: &'a str,
    line: usize,
    findings: &'a [Finding],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    remarks: &'a [&'static str],
}

#[derive(Serialize)]
struct Problem<'a> {
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
    way_out: &'static str,
}

impl<'w> Report<'w> {
    pub(super) fn new(out: &'w mut dyn Write, style: Style, source: String) -> Self {
        Report { out, style, source, begun: false, told: 0, several: false }
    }

    /// Says what the file was taken for.
    pub(super) fn begin(&mut self, read_as: Form, how: &str) -> io::Result<()> {
        self.begun = true;
        self.several = matches!(read_as, Form::Har | Form::Log);
        let read_as = read_as.as_str();
        if self.style == Style::Json {
            let (source, read_as) = (json(&self.source), json(&read_as));
            return write!(
                self.out,
                "{{\"version\":{VERSION},\"source\":{source},\"read_as\":{read_as},\"exchanges\":["
            );
        }
        let name = self.paint(BOLD, &self.source);
        writeln!(self.out, "{name}: read as: {read_as}{how}")
    }

    /// Tells an exchange, when there is anything to tell.
    pub(super) fn exchange(&mut self, told: &Told) -> io::Result<()> {
        let Told { path, line, findings, remarks, .. } = told;
        if findings.is_empty() && remarks.is_empty() {
            return Ok(());
        }
        if self.style == Style::Json {
            let exchange = Exchange { path, line: *line, findings, remarks };
            let comma = if self.told > 0 { "," } else { "" };
            self.told += 1;
            return write!(self.out, "{comma}{}", json(&exchange));
        }
        for finding in findings {
            self.finding(finding)?;
        }
        for remark in remarks {
            let path = if path.is_empty() { String::new() } else { format!("{path}: ") };
            let place = self.paint(BOLD, &format!("{}:{line}", self.source));
            let place = if self.several { format!("{place}: {path}") } else { String::new() };
            writeln!(self.out, "\n{place}{remark}")?;
        }
        Ok(())
    }

    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        let Finding { code, line, column, path, message, rule, recovery, .. } = finding;
        let code = match finding.level {
            Level::Fault => self.paint(RED, code),
            Level::Note => self.paint(YELLOW, &format!("{code} (note)")),
        };
        let place = self.paint(BOLD, &format!("{}:{line}:{column}", self.source));
        let event = finding.event.map(|event| format!(" (event {event})")).unwrap_or_default();
        let path = if path.is_empty() { whole(finding.half) } else { path };
        writeln!(self.out, "\n{place}: {code} at {path}{event}")?;
        writeln!(self.out, "  {message}")?;
        writeln!(self.out, "  {} {rule}", self.paint(DIM, "rule:   "))?;
        writeln!(self.out, "  {} {recovery}", self.paint(GREEN, "way out:"))?;
        if let Some(hint) = &finding.hint {
            writeln!(self.out, "           {hint}")?;
        }
        Ok(())
    }

    /// Tells of a line that could not be read.
    pub(super) fn unreadable(&mut self, unreadable: &Unreadable) -> io::Result<()> {
        if self.style == Style::Json {
            let comma = if self.told > 0 { "," } else { "" };
            self.told += 1;
            return write!(
                self.out,
                "{comma}{{\"line\":{},\"findings\":[],\"unreadable\":{}}}",
                unreadable.line,
                json(unreadable)
            );
        }
        let Unreadable { line, column, message, way_out } = unreadable;
        let place = self.paint(BOLD, &format!("{}:{line}:{column}", self.source));
        writeln!(self.out, "\n{place}: {} {message}", self.paint(YELLOW, "unreadable:"))?;
        writeln!(self.out, "  {} {way_out}", self.paint(GREEN, "way out:"))
    }

    /// Ends it, with the sums.
    pub(super) fn end(&mut self, summary: &Summary, holds: &str) -> io::Result<()> {
        if self.style == Style::Json {
            let verdict = json(&summary.verdict());
            return writeln!(self.out, "],\"summary\":{},\"verdict\":{verdict}}}", json(summary));
        }
        let Summary { exchanges, faulty, faults, notes, skipped, unreadable } = *summary;
        writeln!(self.out)?;
        let among = match (exchanges, holds) {
            (1, "") => String::new(),
            (1, holds) => format!(" ({holds})"),
            (_, _) if faults > 0 => format!(" in {faulty} of {}", count(exchanges, "exchange")),
            _ => format!(" in {}", count(exchanges, "exchange")),
        };
        let head = if faults > 0 {
            self.paint(RED, &format!("{}{among}.", count(faults, "fault")))
        } else {
            self.paint(GREEN, &format!("No fault{among}."))
        };
        let mut rest = String::new();
        if notes > 0 {
            rest += &format!(" {}: let through all the same.", count(notes, "note"));
        }
        if unreadable > 0 {
            rest += &format!(" {} could not be read.", count(unreadable, "line"));
        }
        if skipped > 0 {
            let hold = if skipped == 1 { "holds" } else { "hold" };
            rest += &format!(" {} {hold} no request and no answer.", count(skipped, "record"));
        }
        writeln!(self.out, "{head}{rest}")?;
        if faults == 0 && unreadable == 0 {
            writeln!(self.out, "{}", self.paint(DIM, UNSEEN))?;
        }
        Ok(())
    }

    /// Says that nothing (more) can be judged.
    pub(super) fn unusable(
        &mut self,
        why: &Unusable,
        position: Option<(usize, usize)>,
    ) -> io::Result<()> {
        if self.style == Style::Json {
            if !self.begun {
                let source = json(&self.source);
                write!(self.out, "{{\"version\":{VERSION},\"source\":{source},\"exchanges\":[")?;
            }
            let (line, column) = position.unzip();
            let problem = Problem { message: &why.message, line, column, way_out: why.way_out };
            return writeln!(
                self.out,
                "],\"verdict\":\"unusable\",\"problem\":{}}}",
                json(&problem)
            );
        }
        let place = position.map(|(line, column)| format!(":{line}:{column}")).unwrap_or_default();
        let name = self.paint(BOLD, &format!("{}{place}", self.source));
        writeln!(self.out, "{name}: {} {}.", self.paint(RED, "cannot be judged:"), why.message)?;
        writeln!(self.out, "  {} {}", self.paint(GREEN, "way out:"), why.way_out)
    }

    fn paint(&self, colour: &str, text: &str) -> String {
        match self.style {
            Style::Text { colours: true } => format!("\x1b[{colour}m{text}\x1b[0m"),
            _ => text.to_owned(),
        }
    }
}

const BOLD: &str = "1";
const DIM: &str = "2";
const RED: &str = "1;31";
const GREEN: &str = "32";
const YELLOW: &str = "33";

/// Said where nothing is wrong: what a file cannot show.
const UNSEEN: &str =
    "Whether a result is still wanted, in time, or sent twice is known to a running proxy only.";

fn whole(half: Half) -> &'static str {
    match half {
        Half::Request => "the request",
        Half::Response => "the answer",
    }
}

impl Summary {
    /// In one word: that of the JSON document.
    pub(super) fn verdict(&self) -> &'static str {
        match self {
            Summary { faults: 1.., .. } => "faults",
            Summary { unreadable: 1.., .. } | Summary { exchanges: 0, .. } => "unusable",
            _ => "clean",
        }
    }
}

/// What is told here has no maps with strange keys: writing it cannot fail.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
