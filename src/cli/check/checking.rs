//! The walk over what was read: one body, a document that holds exchanges, or a log line by line.

use super::chunks::{ChunkRun, Chunks};
use super::finding::{Finding, Half, Level, joined};
use super::form::{self, Form, Unusable};
use super::har;
use super::input::Lines;
use super::judge::{Judge, Judged};
use super::look::Node;
use super::part::{self, Document, Part};
use super::records::{self, AnswerForm, Body, Exchange};
use super::report::{Report, Summary, Told, Unreadable};
use super::unusable;
use crate::cli::UNUSABLE;
use crate::wire::json::utf8;
use std::io;

/// Most bytes that are kept of a stream whose chunks stand on lines of their own.
const LONGEST_STREAM: usize = 256 << 20;

/// A check under way.
pub(super) struct Checking<'w> {
    pub(super) judge: Judge,
    pub(super) report: Report<'w>,
    pub(super) summary: Summary,
}

impl Checking<'_> {
    /// One document.
    pub(super) fn whole(&mut self, bytes: &[u8], form: Form) -> io::Result<u8> {
        let (bytes, skipped) = without_head(bytes);
        let document = Document { bytes, line: 1 + skipped };
        let found = if form == Form::Auto { form::of(bytes) } else { Ok(form) };
        let found = match found {
            Ok(found) => found,
            Err(why) => {
                let position = why.at.map(|at| document.position(at));
                return unusable(&mut self.report, &why, position);
            }
        };
        let note = if form == Form::Auto { "" } else { " (as told)" };
        self.report.begin(found, note)?;
        let told = match found {
            Form::Har | Form::Log => return self.container(document, found),
            Form::Request | Form::Auto => self.told(document, "", &request(bytes)),
            Form::Response => self.told(document, "", &answer(bytes, AnswerForm::Whole)),
            Form::Stream if form::is_event_stream(bytes) || !looks_like_json(bytes) => {
                self.told(document, "", &answer(bytes, AnswerForm::Stream))
            }
            Form::Stream => self.told(document, "", &answer(bytes, AnswerForm::Chunks)),
        };
        self.tell(&told)?;
        self.end(&told.holds)
    }

    /// A document that holds exchanges.
    fn container(&mut self, document: Document<'_>, form: Form) -> io::Result<u8> {
        let bytes = document.bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(document.bytes);
        let offset = document.bytes.len() - bytes.len();
        let read = utf8(bytes).and_then(Node::parse);
        let root = match read {
            Ok(root) => root,
            Err(fault) => {
                let why = Unusable::json(&fault);
                let position = document.position(fault.offset + offset);
                return unusable(&mut self.report, &why, Some(position));
            }
        };
        let document = Document { bytes, ..document };
        if form == Form::Har {
            for (path, exchange) in har::exchanges(root) {
                self.record(document, &path, exchange)?;
            }
        } else {
            let (outer, records) = match root.member("data").filter(|data| data.is_list()) {
                _ if root.is_list() => ("", root.items()),
                Some(data) => ("data", data.items()),
                None => ("", vec![root]),
            };
            let only = root.is_object() && outer.is_empty();
            for (number, record) in records.into_iter().enumerate() {
                let path = if only { String::new() } else { format!("{outer}[{number}]") };
                self.record(document, &path, records::exchange(record))?;
            }
        }
        self.end("")
    }

    fn record(
        &mut self,
        document: Document<'_>,
        path: &str,
        exchange: Option<Exchange<'_>>,
    ) -> io::Result<()> {
        let Some(exchange) = exchange else {
            self.summary.skipped += 1;
            return Ok(());
        };
        let told = self.told(document, path, &exchange);
        self.tell(&told)
    }

    /// A record on each line.
    pub(super) fn lines(&mut self, mut lines: Lines) -> io::Result<u8> {
        self.report.begin(Form::Log, "")?;
        let mut run = ChunkRun::default();
        loop {
            let line = match lines.next() {
                Ok(Some(line)) => line,
                Ok(None) => break,
                Err(error) => {
                    let why = Unusable::new(
                        format!("it cannot be read any further: {error}"),
                        "Try again.",
                    );
                    return unusable(&mut self.report, &why, None);
                }
            };
            let Some(bytes) = line.bytes else {
                self.unreadable(
                    line.number,
                    1,
                    "it is longer than 512 MiB".to_owned(),
                    "Leave it out.",
                )?;
                continue;
            };
            self.line(line.number, &bytes, &mut run)?;
        }
        self.chunks(&mut run)?;
        self.end("")
    }

    fn line(&mut self, number: usize, bytes: &[u8], run: &mut ChunkRun) -> io::Result<()> {
        let document = Document { bytes, line: number };
        if bytes.trim_ascii() == b"[DONE]" {
            return self.chunks(run);
        }
        let mark = if number == 1 && bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let bytes = &bytes[mark..];
        if bytes.trim_ascii().is_empty() {
            return Ok(());
        }
        // A line that is cut off ends there, not at its line end.
        let node = match utf8(bytes.trim_ascii_end()).and_then(Node::parse) {
            Ok(node) => Node { at: node.at + mark, ..node },
            Err(fault) => {
                let Unusable { message, way_out, .. } = Unusable::json(&fault);
                let (line, column) = document.position(fault.offset + mark);
                return self.unreadable(line, column, message, way_out);
            }
        };
        if form::is_chunk(node) {
            if run.is_over(node) || run.bytes.len() > LONGEST_STREAM {
                self.chunks(run)?;
            }
            run.take(number, document.bytes, node);
            return Ok(());
        }
        self.chunks(run)?;
        self.record(document, "", records::exchange(node))
    }

    /// Judges the chunks that stood on lines of their own.
    fn chunks(&mut self, run: &mut ChunkRun) -> io::Result<()> {
        let run = std::mem::take(run);
        if run.bytes.is_empty() {
            return Ok(());
        }
        let document = Document { bytes: &run.bytes, line: run.line };
        let told = self.told(document, "", &answer(&run.bytes, AnswerForm::Chunks));
        self.tell(&told)
    }

    fn unreadable(
        &mut self,
        line: usize,
        column: usize,
        message: String,
        way_out: &'static str,
    ) -> io::Result<()> {
        self.summary.unreadable += 1;
        self.report.unreadable(&Unreadable { line, column, message, way_out })
    }

    /// Judges an exchange: its request, and its answer by what the request offered.
    fn told(&self, document: Document<'_>, path: &str, exchange: &Exchange<'_>) -> Told {
        let mut told = Told {
            path: path.to_owned(),
            line: 0,
            findings: Vec::new(),
            remarks: Vec::new(),
            holds: String::new(),
        };
        let mut first = usize::MAX;
        let mut offer = None;
        let mut add = |judged: Judged, half: Half, body: &Body<'_>| {
            let place = joined(path, &body.path);
            let found = judged.found.into_iter();
            told.findings
                .extend(found.map(|found| Finding::of(found, half, &body.part, document, &place)));
            told.remarks.extend(judged.remarks);
            told.holds = if told.holds.is_empty() {
                judged.holds
            } else {
                format!("{}; {}", told.holds, judged.holds)
            };
            first = first.min(body.part.offset(0));
        };
        if let Some(body) = &exchange.request {
            let (judged, offered) = self.judge.request(&body.part.bytes);
            offer = offered;
            add(judged, Half::Request, body);
        }
        if let Some((body, form)) = &exchange.answer {
            let bytes = &body.part.bytes;
            let judged = match form {
                AnswerForm::Whole => self.judge.answer(bytes, offer.as_ref()),
                AnswerForm::Stream => self.judge.stream(&Chunks::of_stream(bytes), offer.as_ref()),
                AnswerForm::Chunks => {
                    self.judge.stream(&Chunks::of_values_in(bytes), offer.as_ref())
                }
                AnswerForm::Error => self.judge.server_error(),
            };
            add(judged, Half::Response, body);
        }
        told.line = document.position(if first == usize::MAX { 0 } else { first }).0;
        told
    }

    fn tell(&mut self, told: &Told) -> io::Result<()> {
        let of =
            |level: Level| told.findings.iter().filter(|finding| finding.level == level).count();
        let faults = of(Level::Fault);
        self.summary.exchanges += 1;
        self.summary.faults += faults;
        self.summary.faulty += usize::from(faults > 0);
        self.summary.notes += of(Level::Note);
        self.report.exchange(told)
    }

    fn end(&mut self, holds: &str) -> io::Result<u8> {
        let summary = self.summary;
        if summary.exchanges == 0 && summary.unreadable == 0 {
            let why = Unusable::new(
                "it holds no request and no answer of a kind that is known",
                "Save bodies of /v1/chat/completions; docs/check.md lists the shapes of logs that are known.",
            );
            return unusable(&mut self.report, &why, None);
        }
        self.report.end(&summary, holds)?;
        Ok(match summary.verdict() {
            "clean" => 0,
            "faults" => 1,
            _ => UNUSABLE,
        })
    }
}

fn request(bytes: &[u8]) -> Exchange<'_> {
    Exchange {
        request: Some(Body { path: String::new(), part: list_or_body(bytes) }),
        answer: None,
    }
}

/// A bare list of messages is taken as the request that it stands for.
fn list_or_body(bytes: &[u8]) -> Part<'_> {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    match text.find(|character: char| !character.is_ascii_whitespace()) {
        Some(at) if text[at..].starts_with('[') => {
            let mut pieces = part::Pieces::default();
            pieces.add("{\"messages\":").take(at, &text[at..]).add("}");
            pieces.whole()
        }
        _ => Part::at(0, bytes),
    }
}

fn answer(bytes: &[u8], form: AnswerForm) -> Exchange<'_> {
    let body = Body { path: String::new(), part: Part::at(0, bytes) };
    Exchange { request: None, answer: Some((body, form)) }
}

fn looks_like_json(bytes: &[u8]) -> bool {
    matches!(bytes.trim_ascii_start().first(), Some(b'{' | b'['))
}

/// What was saved with its head (`curl -i`, or a raw request): the body, and how many lines the head took.
fn without_head(bytes: &[u8]) -> (&[u8], usize) {
    let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii_end();
    let versions = [&b" HTTP/1.1"[..], b" HTTP/1.0", b" HTTP/2"];
    if !first.starts_with(b"HTTP/") && !versions.iter().any(|version| first.ends_with(version)) {
        return (bytes, 0);
    }
    let end = [&b"\r\n\r\n"[..], b"\n\n"]
        .into_iter()
        .filter_map(|blank| memchr::memmem::find(bytes, blank).map(|at| at + blank.len()))
        .min();
    let Some(end) = end else { return (bytes, 0) };
    (&bytes[end..], memchr::memchr_iter(b'\n', &bytes[..end]).count())
}
