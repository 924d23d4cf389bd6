//! Judges bodies by the proxy's own rules: those of requests, of whole answers and of streams.
//!
//! Nothing is decided here. The rules are [`crate::guard`]'s, with what the `standard` profile makes of their
//! faults and with the default limits; here they are asked, and what they say is given its place.

use super::chunks::{Chunks, Seen};
use super::look::{self, Node};
use super::tools::Tools;
use crate::guard::fault::{Code, Fault, shown};
use crate::guard::offer::{Offer, ToolRules};
use crate::guard::pairing;
use crate::guard::proposal::{self, Proposal};
use crate::guard::schema::SchemaCache;
use crate::guard::stream::{Ending, Heard};
use crate::guard::verdict::{Action, Rules};
use crate::policy::{Limits, Profile};
use crate::proxy::body::too_large;
use crate::proxy::refusal::{body_fault, plain_fault};
use crate::wire::completion::Completion;
use crate::wire::json::{BodyFault, Flaw};
use crate::wire::request::{ChatRequest, Role};
use std::borrow::Cow;
use std::sync::Arc;

/// The rules that are asked, and what they keep between bodies.
pub(super) struct Judge {
    rules: Rules,
    limits: Limits,
    tool_rules: Arc<ToolRules>,
    schemas: SchemaCache,
    tools: Option<Tools>,
}

/// A fault with its place in the body.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) fault: Fault,
    /// Let through and noted, not refused.
    pub(super) note: bool,
    /// Offset in the body.
    pub(super) at: usize,
    /// The number of the stream's event, from 1.
    pub(super) event: Option<usize>,
    /// A further way out, for who has the file before them.
    pub(super) hint: Option<Cow<'static, str>>,
}

/// What was judged.
#[derive(Debug, Default)]
pub(super) struct Judged {
    pub(super) found: Vec<Found>,
    /// What it holds, in words.
    pub(super) holds: String,
    /// What has to be said beside the faults.
    pub(super) remarks: Vec<&'static str>,
}

/// Not told with the fault of a body, since what its reader has is a file.
const BARE: &str = "It is not known which tools were offered, so neither names nor arguments were held to \
    them. --tools FILE names them.";
const SERVER_ERROR: &str =
    "This is the server's own error. It passes as it is; there is nothing to judge in it.";
const ENDED_BY_ERROR: &str =
    "The stream ended in the server's own error. Nothing of its calls would be let out.";
const STOPPED: &str = "What follows that event was not judged: the proxy ends the stream there.";

impl Judge {
    /// `tools` are offered where no request is known.
    pub(super) fn new(tools: Option<Tools>) -> Self {
        Judge {
            rules: Profile::Standard.rules(),
            limits: Limits::default(),
            tool_rules: Arc::new(ToolRules::default()),
            schemas: SchemaCache::default(),
            tools,
        }
    }

    /// Judges a request. Gives what it offers as well, when it can be read.
    pub(super) fn request(&self, body: &[u8]) -> (Judged, Option<Offer>) {
        if body.len() > self.limits.body_bytes {
            let faults = too_large(&self.limits).faults;
            let found = faults.into_iter().map(|fault| self.found(fault, 0)).collect();
            return (Judged { found, ..Judged::default() }, None);
        }
        let request = match ChatRequest::parse(body, self.limits.depth) {
            Ok(request) => request,
            Err(fault) => return (self.unreadable(body_fault(&fault), &fault), None),
        };
        let pairing = pairing::judge(&request);
        let text = std::str::from_utf8(body).unwrap_or_default();
        let mut found = self.sorted(pairing.faults, |fault| look::locate(text, &fault.param));
        suggest(&mut found);
        let judged = Judged { found, holds: holds(&request), remarks: Vec::new() };
        (judged, Some(self.offer(&request)))
    }

    /// Judges a whole answer, by what its request offered.
    pub(super) fn answer(&self, body: &[u8], offer: Option<&Offer>) -> Judged {
        if body.len() > self.limits.body_bytes {
            let message = "The upstream's answer is larger than limits.body_bytes.";
            let fault = plain_fault(Code::UpstreamInvalid, "", message);
            return Judged { found: vec![self.found(fault, 0)], ..Judged::default() };
        }
        let completion = match Completion::parse(body, self.limits.depth) {
            Ok(completion) => completion,
            Err(fault) => {
                let message = format!(
                    "The upstream's answer is not a completion: {} (at byte {}).",
                    fault.reason, fault.offset
                );
                let told = plain_fault(Code::UpstreamInvalid, &fault.path, message);
                return self.unreadable(told, &fault);
            }
        };
        let proposal = Proposal::of(&completion);
        if completion.error && !proposal.has_calls() {
            return Judged { remarks: vec![SERVER_ERROR], ..Judged::default() };
        }
        let text = std::str::from_utf8(body).unwrap_or_default();
        let own = Node::parse(text).ok().and_then(Tools::of_answer);
        let (faults, remarks) = self.propose(&proposal, offer, own.as_ref());
        let found = self.sorted(faults, |fault| look::locate(text, &fault.param));
        Judged { found, holds: proposed(&proposal), remarks }
    }

    /// Judges a stream, by what its request offered.
    pub(super) fn stream(&self, chunks: &Chunks, offer: Option<&Offer>) -> Judged {
        let depth = self.limits.depth;
        let seen = chunks.seen(depth);
        let n = offer.map_or(seen.choices, Offer::n);
        let heard = chunks.heard(n, depth, self.limits.held_bytes);
        let place = |event: usize| (chunks.offset(event), Some(event + 1));
        match heard.ending {
            Ending::Failed => Judged { remarks: vec![ENDED_BY_ERROR], ..Judged::default() },
            Ending::Stopped(stopped) => {
                let fault = plain_fault(stopped.code, "", stopped.message);
                let (at, event) = place(stopped.event);
                let hint =
                    chunks.flaw(stopped.event, depth).and_then(|flaw| unreadable_event(&flaw));
                let found = Found { event, hint: hint.map(Cow::Borrowed), ..self.found(fault, at) };
                Judged { found: vec![found], holds: String::new(), remarks: vec![STOPPED] }
            }
            Ending::Answered => {
                let holds = proposed(&heard.proposal);
                let (found, remarks) = self.heard(heard, &seen, offer, &place);
                Judged { found, holds, remarks }
            }
        }
    }

    /// An answer that the server itself says is an error.
    pub(super) fn server_error(&self) -> Judged {
        Judged { remarks: vec![SERVER_ERROR], ..Judged::default() }
    }

    fn heard(
        &self,
        heard: Heard,
        seen: &Seen,
        offer: Option<&Offer>,
        place: &dyn Fn(usize) -> (usize, Option<usize>),
    ) -> (Vec<Found>, Vec<&'static str>) {
        let Heard { proposal, faults, after, .. } = heard;
        let (judged, remarks) = self.propose(&proposal, offer, None);
        let all = faults.into_iter().chain(judged.into_iter().map(|fault| (fault, None)));
        let mut found: Vec<Found> = all
            .filter(|(fault, _)| self.rules.action(fault.code) != Action::Off)
            .map(|(fault, event)| {
                let (at, event) = place(event.unwrap_or_else(|| seen.event_of(&fault.param)));
                Found { event, ..self.found(fault, at) }
            })
            .collect();
        if let Some(after) = after
            && found.iter().all(|found| found.note)
        {
            let (at, event) = place(after.event);
            let fault = plain_fault(after.code, "", after.message);
            found.push(Found { event, ..self.found(fault, at) });
        }
        (found, remarks)
    }

    /// What is wrong with a proposal, and what has to be said of how it was judged.
    fn propose(
        &self,
        proposal: &Proposal,
        offer: Option<&Offer>,
        own: Option<&Tools>,
    ) -> (Vec<Fault>, Vec<&'static str>) {
        if let Some(offer) = offer {
            return (proposal::judge(proposal, offer, false), Vec::new());
        }
        let (tools, remarks) = match own.or(self.tools.as_ref()) {
            Some(tools) => (tools.body(), Vec::new()),
            None if proposal.has_calls() => (Tools::called(proposal).body(), vec![BARE]),
            None => (Tools::called(proposal).body(), Vec::new()),
        };
        let faults = match ChatRequest::parse(tools.as_bytes(), self.limits.depth) {
            Ok(request) => proposal::judge(proposal, &self.offer(&request), false),
            // Tools that cannot be read were refused when they were named.
            Err(_) => Vec::new(),
        };
        (faults, remarks)
    }

    fn offer(&self, request: &ChatRequest<'_>) -> Offer {
        Offer::of(request, Arc::clone(&self.tool_rules), &self.schemas)
    }

    fn sorted(&self, faults: Vec<Fault>, locate: impl Fn(&Fault) -> usize) -> Vec<Found> {
        let told = faults.into_iter().filter(|fault| self.rules.action(fault.code) != Action::Off);
        told.map(|fault| {
            let at = locate(&fault);
            self.found(fault, at)
        })
        .collect()
    }

    fn found(&self, fault: Fault, at: usize) -> Found {
        let note = self.rules.action(fault.code) == Action::Note;
        Found { fault, note, at, event: None, hint: None }
    }

    fn unreadable(&self, told: Fault, fault: &BodyFault) -> Judged {
        let found =
            Found { hint: mend(fault).map(Cow::Borrowed), ..self.found(told, fault.offset) };
        Judged { found: vec![found], ..Judged::default() }
    }
}

/// Where one result of a run bears an id that is not there, and one call has no result, they may be the two halves.
fn suggest(found: &mut [Found]) {
    for at in 1..found.len() {
        // Of several, nobody can say which.
        if at > 1 && found[at - 2].fault.code == Code::UnknownResultId {
            continue;
        }
        let [unknown, missing] = &mut found[at - 1..=at] else { continue };
        let codes = (unknown.fault.code, missing.fault.code);
        if codes == (Code::UnknownResultId, Code::MissingResult)
            && let Some(id) = &missing.fault.tool_call_id
        {
            let hint = format!(
                "The call '{}' has no result: this may be its, under another id.",
                shown(id)
            );
            unknown.hint = Some(Cow::Owned(hint));
        }
    }
}

/// What may have become of an event that cannot be read.
fn unreadable_event(fault: &BodyFault) -> Option<&'static str> {
    let reason = fault.reason;
    Some(match fault.flaw {
        Flaw::RepeatedKey => {
            "A key stands twice in it: one parser takes the first, another the last."
        }
        Flaw::Syntax if reason.starts_with("data after") => {
            "It holds more than one chunk: each event must end in a blank line of its own."
        }
        Flaw::Syntax if reason.starts_with("ends ") => {
            "It was cut off: look at what stands between server and client (a timeout, a buffer)."
        }
        Flaw::Syntax | Flaw::Shape | Flaw::TooDeep => return None,
    })
}

/// How a file is mended that cannot be read.
pub(super) fn mend(fault: &BodyFault) -> Option<&'static str> {
    let reason = fault.reason;
    Some(match fault.flaw {
        Flaw::RepeatedKey => {
            "Keep one of the two members: one parser takes the first, another the last."
        }
        Flaw::TooDeep => "Nest less deeply: 128 levels at most, or what limits.depth says.",
        Flaw::Syntax if reason.contains("byte order mark") => {
            "Save it without a byte order mark (UTF-8, not \"UTF-8 with BOM\")."
        }
        Flaw::Syntax if reason.contains("UTF-8") => "Save it as UTF-8.",
        Flaw::Syntax if reason.starts_with("ends ") => {
            "It was cut off there: save the whole body, and look at what cut it (a log's line limit, a buffer)."
        }
        Flaw::Syntax if reason.starts_with("data after") => {
            "Keep one value; several in one file are a log, one on each line (--as log)."
        }
        Flaw::Syntax => {
            "Write it with a JSON library (json.dumps, JSON.stringify), not by hand or by printing an object."
        }
        Flaw::Shape => return None,
    })
}

fn holds(request: &ChatRequest<'_>) -> String {
    let calls = request.messages.iter().map(|message| message.tool_calls.len()).sum();
    let results = request.messages.iter().filter(|message| message.role == Role::Tool).count();
    [
        count(request.messages.len(), "message"),
        count(calls, "call"),
        count(results, "result"),
        format!("{} offered", count(request.tools.len(), "tool")),
    ]
    .join(", ")
}

fn proposed(proposal: &Proposal) -> String {
    let calls = proposal.choices.iter().map(|choice| choice.calls.len()).sum();
    format!("{}, {}", count(proposal.choices.len(), "choice"), count(calls, "call"))
}

/// `1 call`, `2 calls`.
pub(super) fn count(number: usize, of: &str) -> String {
    format!("{number} {of}{}", if number == 1 { "" } else { "s" })
}
