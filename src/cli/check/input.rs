//! What is read: a file or standard input, whole or line by line.
//!
//! A log may be larger than memory, so its lines are read one after the other; everything else is one body, and
//! is read whole. Which of the two it is, its first lines tell.

use super::form::Form;
use super::look::Node;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// Most bytes of one body, or of one line of a log.
const LONGEST: u64 = 512 << 20;

/// What is read, at its beginning.
pub(super) struct Input {
    lines: Lines,
}

/// How it is read on.
pub(super) enum Reading {
    /// One record on each line.
    Lines(Lines),
    /// All of it; `None` when that is too large.
    Whole(Option<Vec<u8>>),
}

impl Input {
    /// Opens a file; `-` is standard input.
    pub(super) fn open(file: &Path) -> io::Result<Self> {
        let source: Box<dyn Read> = if file.as_os_str() == "-" {
            Box::new(io::stdin())
        } else {
            let opened = File::open(file)?;
            if opened.metadata()?.is_dir() {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            Box::new(opened)
        };
        Ok(Input::of(source))
    }

    fn of(source: Box<dyn Read>) -> Self {
        let source = BufReader::with_capacity(1 << 20, source);
        Input { lines: Lines { source: Box::new(source), ready: VecDeque::new(), number: 0 } }
    }

    /// Looks at the first lines and reads on as they ask for, or as `form` says.
    pub(super) fn read(mut self, form: Form) -> io::Result<Reading> {
        let by_line = match form {
            Form::Auto | Form::Log => self.is_by_line()?,
            Form::Request | Form::Response | Form::Stream | Form::Har => false,
        };
        if by_line {
            return Ok(Reading::Lines(self.lines));
        }
        let mut whole = self.lines.ready.into_iter().flatten().collect::<Vec<u8>>();
        let room = LONGEST.saturating_sub(whole.len() as u64) + 1;
        self.lines.source.take(room).read_to_end(&mut whole)?;
        let fits = whole.len() as u64 <= LONGEST;
        Ok(Reading::Whole(fits.then_some(whole)))
    }

    /// Whether each line is a record: the first holds a whole value and another follows, or it is broken
    /// and the next begins one as well.
    fn is_by_line(&mut self) -> io::Result<bool> {
        let Some(first) = self.lines.peek(0)? else { return Ok(false) };
        let first = first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(first).trim_ascii();
        if !first.starts_with(b"{") {
            return Ok(false);
        }
        let whole = std::str::from_utf8(first).is_ok_and(|text| Node::parse(text).is_ok());
        let opens_only = first.len() == 1;
        let Some(second) = self.lines.peek(1)? else { return Ok(false) };
        Ok(whole || !opens_only && second.starts_with(b"{"))
    }
}

/// Lines, one after the other.
pub(super) struct Lines {
    source: Box<dyn BufRead>,
    /// Lines that were looked at already.
    ready: VecDeque<Vec<u8>>,
    number: usize,
}

/// One line.
pub(super) struct Line {
    /// Its number, from 1.
    pub(super) number: usize,
    /// Its bytes, line end included; `None` when it is too long.
    pub(super) bytes: Option<Vec<u8>>,
}

impl Lines {
    /// The next line.
    pub(super) fn next(&mut self) -> io::Result<Option<Line>> {
        let bytes = match self.ready.pop_front() {
            Some(bytes) => Some(bytes),
            None => {
                let bytes = self.fetch()?;
                if bytes.is_empty() {
                    return Ok(None);
                }
                let whole = (bytes.len() as u64) < LONGEST || bytes.ends_with(b"\n");
                if !whole {
                    self.skip_line()?;
                }
                whole.then_some(bytes)
            }
        };
        self.number += 1;
        Ok(Some(Line { number: self.number, bytes }))
    }

    fn fetch(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.source.by_ref().take(LONGEST).read_until(b'\n', &mut bytes)?;
        Ok(bytes)
    }

    /// A line that is not blank, further on, without taking it.
    fn peek(&mut self, number: usize) -> io::Result<Option<&[u8]>> {
        loop {
            let filled = |line: &&Vec<u8>| !line.trim_ascii().is_empty();
            if self.ready.iter().filter(filled).count() > number {
                break;
            }
            let line = self.fetch()?;
            if line.is_empty() {
                return Ok(None);
            }
            self.ready.push_back(line);
        }
        let mut lines = self.ready.iter().filter(|line| !line.trim_ascii().is_empty());
        Ok(lines.nth(number).map(Vec::as_slice))
    }

    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let buffer = self.source.fill_buf()?;
            let (used, ended) = match memchr::memchr(b'\n', buffer) {
                Some(at) => (at + 1, true),
                None => (buffer.len(), buffer.is_empty()),
            };
            self.source.consume(used);
            if ended {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn read(text: &'static str, form: Form) -> Result<Vec<(usize, String)>, String> {
        match Input::of(Box::new(text.as_bytes())).read(form).unwrap() {
            Reading::Whole(bytes) => Err(String::from_utf8(bytes.unwrap()).unwrap()),
            Reading::Lines(mut lines) => {
                let mut all = Vec::new();
                while let Some(line) = lines.next().unwrap() {
                    all.push((line.number, String::from_utf8(line.bytes.unwrap()).unwrap()));
                }
                Ok(all)
            }
        }
    }

    #[test]
    fn several_values_on_lines_of_their_own_are_read_by_line() {
        for text in ["{}\n{}\n", "\n{\"a\":1}\n\n{}", "\u{feff}{}\n{}", "{\"a\":\n{\"b\":1}\n"] {
            let lines = read(text, Form::Auto).unwrap();
            assert_eq!(lines.iter().map(|(_, line)| line.as_str()).collect::<String>(), text);
            assert_eq!(lines.last().unwrap().0, text.lines().count());
        }
    }

    #[test]
    fn one_value_is_read_whole_however_it_is_written() {
        for text in [
            "",
            "{}",
            "{}\n",
            "\n\n{}\n\n",
            "{\n\"a\":{}\n}",
            "[\n{},\n{}]",
            "data: {}\n\n",
            "{\n{",
        ] {
            assert_eq!(read(text, Form::Auto), Err(text.to_owned()));
        }
        assert_eq!(read("{}\n{}", Form::Request), Err("{}\n{}".to_owned()));
    }
}
