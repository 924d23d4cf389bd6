//! A whole event stream, judged as the relay judges it, by whoever has no client to send it to.
//!
//! The relay of the proxy decides in the same steps while it sends; here is only what is decided. That both
//! say the same of every stream is tested (`tests/check`).
//!
//! ```text
//!         [DONE], the end, or every choice finished without a call
//!  Open ──────────────────────────────────────────────────────────► Answered: no call may follow
//!    ├── an event that cannot be read, or too much to hold ───────► Stopped
//!    └── an error event of the server ────────────────────────────► Failed: calls are dropped
//! ```

use super::assembly::{Assembly, End, Step};
use super::fault::{Code, Fault};
use super::proposal::Proposal;
use super::screen::{Payload, has_calls, misleads};
use crate::wire::sse::{Decoder, Event};
use bytes::Bytes;

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With an answer, whole or not: the rules on proposals decide.
    Answered,
    /// By an error event of the server: what it had of calls is dropped, and it passes as the error it is.
    Failed,
    /// By an event that must not pass. What follows it is not looked at.
    Stopped(Break),
}

/// Why a stream cannot be judged any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Break {
    /// The code.
    pub code: Code,
    /// In words.
    pub message: &'static str,
    /// The number of the event, from 0.
    pub event: usize,
}

/// What was heard of a stream.
#[derive(Debug)]
pub struct Heard {
    /// How it ended.
    pub ending: Ending,
    /// What it proposes.
    pub proposal: Proposal,
    /// What was broken on the way, each with the number of its event where that is known.
    pub faults: Vec<(Fault, Option<usize>)>,
    /// A call, or what may be one, behind the end of the answer. It counts when the answer itself passed.
    pub after: Option<Break>,
}

/// A stream that is listened to.
#[derive(Debug)]
pub struct Listening {
    max_depth: usize,
    max_held: usize,
    assembly: Option<Assembly>,
    heard: Heard,
    /// For each `broken_stream` fault of the assembly, the event at which it was seen.
    broken_at: Vec<usize>,
    events: usize,
    held: usize,
}

impl Listening {
    /// To the answer of a request for `n` choices. `max_held` bounds, in bytes, what is held from the first
    /// piece of a call on.
    #[must_use]
    pub fn new(n: u64, max_depth: usize, max_held: usize) -> Self {
        Listening {
            max_depth,
            max_held,
            assembly: Some(Assembly::new(n)),
            heard: Heard {
                ending: Ending::Answered,
                proposal: Proposal::default(),
                faults: Vec::new(),
                after: None,
            },
            broken_at: Vec::new(),
            events: 0,
            held: 0,
        }
    }

    /// Takes the next event.
    pub fn take(&mut self, event: &Event) {
        let payload = Payload::of(event, self.max_depth);
        let number = self.events;
        self.events += 1;
        if self.heard.ending != Ending::Answered {
            return;
        }
        if self.assembly.is_some() {
            self.take_open(&payload, number, event.wire.len());
        } else if payload.carries_calls() && self.heard.after.is_none() {
            let message = match payload {
                Payload::Unreadable => "What came after the end of the answer cannot be read.",
                _ => "A call came after the end of the answer.",
            };
            self.heard.after = Some(Break { code: Code::BrokenStream, message, event: number });
        }
    }

    fn take_open(&mut self, payload: &Payload<'_>, number: usize, bytes: usize) {
        let Some(assembly) = &mut self.assembly else { return };
        match payload {
            Payload::Nothing => {}
            Payload::Done => return self.conclude(),
            Payload::Unreadable => {
                let message = "An event of the stream does not hold a completion chunk.";
                return self.stop(Code::BrokenStream, message, number);
            }
            Payload::Error => {
                self.assembly = None;
                self.heard.ending = Ending::Failed;
                return;
            }
            Payload::Chunk(chunk) => {
                let forward = assembly.push(chunk) == Step::Forward;
                self.broken_at.resize(assembly.broken(), number);
                if forward && self.held == 0 && assembly.finished_all() {
                    return self.conclude();
                }
                self.held += if forward && !has_calls(chunk) { 0 } else { bytes };
            }
        }
        if self.held.max(bytes) > self.max_held {
            let message = "What is held of the answer is larger than limits.held_bytes.";
            self.stop(Code::HeldTooLarge, message, number);
        }
    }

    fn stop(&mut self, code: Code, message: &'static str, event: usize) {
        self.assembly = None;
        self.heard.ending = Ending::Stopped(Break { code, message, event });
    }

    fn conclude(&mut self) {
        let Some(assembly) = self.assembly.take() else { return };
        let (proposal, faults) = assembly.finish(End::Clean);
        let at = self.broken_at.iter().copied().map(Some).chain(std::iter::repeat(None));
        self.heard.proposal = proposal;
        self.heard.faults = faults.into_iter().zip(at).collect();
    }

    /// At the end of the body. `left` is what the decoder still had: an event without its blank line, which
    /// line-wise clients read all the same.
    #[must_use]
    pub fn finish(mut self, left: Bytes) -> Heard {
        if let Some(event) = unfinished(left)
            && (self.assembly.is_some() || !is_scrap(&event, self.max_depth))
        {
            self.take(&event);
        }
        self.conclude();
        self.heard
    }
}

/// The event that an end without a blank line leaves, as if the blank line stood there; its own bytes are as they came.
#[must_use]
pub fn unfinished(left: Bytes) -> Option<Event> {
    if left.is_empty() {
        return None;
    }
    // A line feed that leads it belongs to the line end before it.
    let mut closed = left.strip_prefix(b"\n").unwrap_or(&left).to_vec();
    closed.extend_from_slice(b"\n\n");
    let mut whole = Decoder::default();
    whole.push(Bytes::from(closed));
    let event = whole.next_event()?;
    Some(Event { wire: left, ..event })
}

/// Whether an unfinished event is a piece of JSON and no more. Behind a whole answer that is nothing to any client,
/// unless one of its lines is a chunk for itself.
#[must_use]
pub fn is_scrap(event: &Event, max_depth: usize) -> bool {
    !misleads(event, max_depth) && matches!(Payload::of(event, max_depth), Payload::Unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(text: &str, max_held: usize) -> Heard {
        let mut decoder = Decoder::default();
        decoder.push(Bytes::copy_from_slice(text.as_bytes()));
        let mut listening = Listening::new(1, 16, max_held);
        while let Some(event) = decoder.next_event() {
            listening.take(&event);
        }
        listening.finish(decoder.finish())
    }

    const TEXT: &str = r#"data: {"id":"x","choices":[{"index":0,"delta":{"content":"hi"}}]}"#;
    const STOP: &str =
        r#"data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    const CALL: &str = r#"data: {"id":"x","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}}]}"#;
    const DONE: &str = "data: [DONE]";
    const ERROR: &str = r#"data: {"error":{"message":"x"}}"#;

    fn stream(events: &[&str]) -> String {
        events.iter().map(|event| format!("{event}\n\n")).collect()
    }

    #[test]
    fn each_way_to_end_is_told() {
        let broken = |event| {
            let message = "An event of the stream does not hold a completion chunk.";
            Ending::Stopped(Break { code: Code::BrokenStream, message, event })
        };
        let table: [(&[&str], Ending, usize, bool); 9] = [
            (&[TEXT, STOP, DONE], Ending::Answered, 0, false),
            (&[CALL, STOP, DONE], Ending::Answered, 0, false),
            (&[CALL, STOP], Ending::Answered, 0, false),
            (&[TEXT], Ending::Answered, 1, false),
            (&[CALL, ERROR], Ending::Failed, 0, false),
            (&[TEXT, "data: {", STOP], broken(1), 0, false),
            (&[TEXT, STOP, CALL], Ending::Answered, 0, true),
            (&[CALL, STOP, DONE, CALL], Ending::Answered, 0, true),
            (&[TEXT, STOP, DONE, TEXT], Ending::Answered, 0, false),
        ];
        for (events, ending, faults, after) in table {
            let heard = heard(&stream(events), 1 << 20);
            assert_eq!(heard.ending, ending, "{events:?}");
            assert_eq!(heard.faults.len(), faults, "{events:?}");
            assert_eq!(heard.after.is_some(), after, "{events:?}");
        }
    }

    #[test]
    fn an_event_without_its_blank_line_counts_but_for_scraps_behind_the_answer() {
        let open = format!("{}{STOP}", stream(&[CALL]));
        assert!(heard(&open, 1 << 20).faults.is_empty());
        let scrap = format!("{}data: {{\"id", stream(&[TEXT, STOP, DONE]));
        assert_eq!(heard(&scrap, 1 << 20).after, None);
        let call = format!("{}{CALL}", stream(&[TEXT, STOP, DONE]));
        assert!(heard(&call, 1 << 20).after.is_some());
        for (scrap, holds_a_call) in [
            (format!("{CALL}\ndata: {{\"id"), true),
            (format!("\u{feff}{CALL}"), true),
            (format!("{CALL} {{"), false),
            ("data: {\ndata: \"id".to_owned(), false),
            (format!("{TEXT}\ndata: {{\"id"), false),
        ] {
            let behind = format!("{}{scrap}", stream(&[TEXT, STOP, DONE]));
            assert_eq!(heard(&behind, 1 << 20).after.is_some(), holds_a_call, "{scrap}");
        }
        let torn = format!("{}data: {{\"id", stream(&[TEXT]));
        assert!(matches!(heard(&torn, 1 << 20).ending, Ending::Stopped(_)));
    }

    #[test]
    fn what_is_held_is_bounded_and_text_is_not() {
        let long = stream(&[TEXT; 20]);
        assert!(long.len() > 1000);
        let sound = format!("{long}{}", stream(&[STOP, DONE]));
        assert_eq!(heard(&sound, 400).ending, Ending::Answered);
        let held = format!("{}{long}", stream(&[CALL]));
        let Ending::Stopped(stopped) = heard(&held, 400).ending else { unreachable!() };
        assert_eq!(stopped.code, Code::HeldTooLarge);
    }

    #[test]
    fn a_broken_shape_is_told_with_its_event() {
        let other = CALL.replace(r#""id":"a""#, r#""id":"b""#);
        let heard = heard(&stream(&[TEXT, CALL, &other, STOP, DONE]), 1 << 20);
        let told: Vec<_> = heard.faults.iter().map(|(fault, at)| (fault.code, *at)).collect();
        assert_eq!(told, [(Code::BrokenStream, Some(2))]);
    }
}
