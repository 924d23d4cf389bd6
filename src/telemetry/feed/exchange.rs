//! One exchange, as the console shows it.

use crate::guard::fault::{Code, Fault};
use crate::ledger::event::ExchangeId;
use crate::store::ConversationKey;
use crate::telemetry::labels::{ExchangeOutcome, FaultVerdict, Route};

/// Most faults told of one exchange.
const FAULTS: usize = 8;
/// Most characters of a text that may be long.
const TEXT: usize = 400;

/// Whose conversation, and what its client calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Where the store keeps it.
    pub key: ConversationKey,
    /// The conversation header's value.
    pub name: Box<str>,
}

/// One exchange, begun or ended.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The id that we minted.
    pub id: ExchangeId,
    /// The conversation, when it names one.
    pub subject: Option<Subject>,
    /// The request id that its answer bears.
    pub request_id: Box<str>,
    /// The id that the upstream knows it by.
    pub rid: Option<Box<str>>,
    /// Which way it took.
    pub route: Route,
    /// What an application asked by the control API.
    pub asks: Option<&'static str>,
    /// The generation that it belongs to, or that its client named.
    pub generation: Option<u64>,
    /// Which try, from 1; 0 when the ledger does not know it.
    pub attempt: u32,
    /// Whether it opens a task.
    pub first: bool,
    /// Whether its answer is a stream.
    pub stream: bool,
    /// When it came, in milliseconds since 1970.
    pub began: u64,
    /// When it went up, in milliseconds from then.
    pub sent: Option<f64>,
    /// When the answer began, in milliseconds from then.
    pub first_data: Option<f64>,
    /// How it ended; `None` while it is under way.
    pub end: Option<End>,
    /// What was wrong with it.
    pub faults: Vec<FaultSeen>,
    /// Further faults that are not told.
    pub more_faults: usize,
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct End {
    /// How.
    pub outcome: ExchangeOutcome,
    /// The answer's HTTP status.
    pub status: Option<u16>,
    /// Milliseconds from its beginning.
    pub took: f64,
}

/// One fault, and what was made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultSeen {
    /// Its code.
    pub code: Code,
    /// What was made of it.
    pub verdict: FaultVerdict,
    /// Where.
    pub param: Box<str>,
    /// In words.
    pub message: Box<str>,
    /// The call concerned.
    pub tool_call_id: Option<Box<str>>,
    /// The way out.
    pub recovery: &'static str,
}

impl FaultSeen {
    fn of(fault: &Fault, verdict: FaultVerdict) -> Self {
        FaultSeen {
            code: fault.code,
            verdict,
            param: cut(&fault.param),
            message: cut(&fault.message),
            tool_call_id: fault.tool_call_id.as_deref().map(cut),
            recovery: fault.recovery,
        }
    }
}

/// The beginning of a text.
fn cut(text: &str) -> Box<str> {
    match text.char_indices().nth(TEXT) {
        None => text.into(),
        Some((at, _)) => format!("{}…", &text[..at]).into(),
    }
}

/// The faults of an exchange as they come, bounded.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    told: Vec<FaultSeen>,
    more: usize,
}

impl Faults {
    /// One more.
    pub fn add(&mut self, fault: &Fault, verdict: FaultVerdict) {
        if self.told.len() < FAULTS {
            self.told.push(FaultSeen::of(fault, verdict));
        } else {
            self.more += 1;
        }
    }

    /// Those told, and how many are not.
    #[must_use]
    pub fn take(&mut self) -> (Vec<FaultSeen>, usize) {
        (std::mem::take(&mut self.told), self.more)
    }
}

impl Exchange {
    /// About how many bytes it holds.
    pub(super) fn bytes(&self) -> usize {
        let faults: usize = self
            .faults
            .iter()
            .map(|fault| {
                let id = fault.tool_call_id.as_deref().map_or(0, str::len);
                fault.param.len() + fault.message.len() + id + size_of::<FaultSeen>()
            })
            .sum();
        let name = self.subject.as_ref().map_or(0, |subject| subject.name.len());
        let ids = self.request_id.len() + self.rid.as_deref().map_or(0, str::len);
        size_of::<Self>() + faults + name + ids
    }

    /// The codes of its faults that were refused for.
    pub(super) fn refused_for(&self) -> impl Iterator<Item = Code> {
        let refused = |fault: &&FaultSeen| fault.verdict == FaultVerdict::Refuse;
        self.faults.iter().filter(refused).map(|fault| fault.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_full_of_faults_does_not_swell_the_board() {
        let fault = Fault {
            code: Code::MissingResult,
            param: "messages[3]".to_owned(),
            message: "é".repeat(10_000),
            tool_call_id: Some("<img src=x onerror=alert(1)>".to_owned()),
            recovery: "",
        };
        let mut faults = Faults::default();
        (0..1000).for_each(|_| faults.add(&fault, FaultVerdict::Refuse));
        let (told, more) = faults.take();
        assert_eq!((told.len(), more), (FAULTS, 1000 - FAULTS));
        assert_eq!(told[0].message.chars().count(), TEXT + 1);
        assert_eq!(told[0].tool_call_id, fault.tool_call_id.map(Into::into));
    }
}
