//! Facts become lines. Every key is always there, `null` where nothing is known, so that a reader needs no cases;
//! `docs/task-record.schema.json` says so in the words of a machine.

use super::ExchangeFacts;
use crate::guard::fault::Fault;
use crate::ledger::calls::{Call, CallState, Proposal, Written};
use crate::ledger::digest::Digest;
use crate::ledger::event::{ExchangeId, Held, Millis, Part, Story};
use crate::ledger::exchanges::{Exchange, Failure, FlightState};
use crate::store::ConversationKey;
use crate::wire::hex::Hex;
use crate::wire::moment::Moment;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// The version of the lines. It rises when a key changes its meaning or goes; keys may be added.
const VERSION: u32 = 1;

/// The line of what the ledger tells. Nothing is put together first: at thousands of lines a second that would cost
/// more than the exchanges.
pub(super) fn of_story<'a>(key: &'a ConversationKey, story: &'a Story) -> impl Serialize + 'a {
    StoryLine(key, story)
}

/// The line of an exchange that ended at that moment, in milliseconds.
pub(super) fn of_exchange(at: u64, facts: &ExchangeFacts) -> impl Serialize {
    ExchangeLine(at, facts)
}

/// Puts each key with its value into the map that is being written.
macro_rules! tell {
    ($map:expr, { $($key:literal: $value:expr,)* }) => {
        {
            $($map.serialize_entry($key, &$value)?;)*
        }
    };
}

/// An id or a digest, written as its digits.
struct Shown(u128);

impl Serialize for Shown {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(Hex::of(self.0).as_str())
    }
}

impl From<ExchangeId> for Shown {
    fn from(id: ExchangeId) -> Self {
        Shown(id.0)
    }
}

impl From<&Digest> for Shown {
    fn from(digest: &Digest) -> Self {
        Shown(u128::from_be_bytes(*digest.as_bytes()))
    }
}

/// A list, written item by item.
struct Each<I>(I);

impl<I: Iterator<Item: Serialize> + Clone> Serialize for Each<I> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(self.0.clone())
    }
}

fn at(moment: Millis) -> Moment {
    Moment(moment.0)
}

struct StoryLine<'a>(&'a ConversationKey, &'a Story);

impl Serialize for StoryLine<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let StoryLine(key, story) = self;
        let mut map = out.serialize_map(None)?;
        tell!(map, {
            "v": VERSION,
            "kind": kind(&story.part),
            "at": at(story.at),
            "principal": Shown::from(&key.principal),
            "conversation": Shown::from(&key.conversation),
            "lane": story.lane,
            "by_header": story.by_header,
            "generation": story.generation,
        });
        self.part(&mut map)?;
        let calls = story.proposals.iter().flat_map(|of| {
            of.calls.iter().map(|call| CallLine { exchange: of.exchange, forced: of.forced, call })
        });
        tell!(map, { "calls": Each(calls), });
        map.end()
    }
}

fn kind(part: &Part) -> &'static str {
    match part {
        Part::Task(_) => "task",
        Part::After => "after",
        Part::Result { .. } => "result",
    }
}

impl StoryLine<'_> {
    /// What only this kind of line tells.
    fn part<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let story = self.1;
        let exchanges = Each(story.exchanges.iter().map(TaskExchange));
        match &story.part {
            Part::Task(outcome) => {
                let task = story.task.as_ref();
                let started = task.map_or(story.at, |task| task.started);
                tell!(map, {
                    "outcome": outcome.as_str(),
                    "reason": task.and_then(|task| task.limit).map(|limit| limit.as_str()),
                    "started_at": at(started),
                    "took_ms": story.at.since(started).0,
                    "model_calls": task.map_or(0, |task| task.model_calls),
                    "tool_calls": task.map_or(0, |task| task.tool_calls),
                    "times": Times::of(story),
                    "exchanges": exchanges,
                });
            }
            Part::After => tell!(map, { "exchanges": exchanges, }),
            Part::Result { id, code, result, by } => tell!(map, {
                "tool_call_id": id,
                "code": code.as_str(),
                "result_digest": Shown::from(result),
                "exchange": Shown::from(*by),
                "after_end": story.task.as_ref().is_none_or(|task| task.counted),
                "came_after_ms": came_after(story),
            }),
        }
        Ok(())
    }
}

/// The time from a refused result's call to the result.
fn came_after(story: &Story) -> Option<u64> {
    let call = story.proposals.iter().flat_map(|proposal| &proposal.calls).next()?;
    Some(story.at.since(call.registered).0)
}

/// Where the time of a task went.
///
/// In a task whose exchanges follow each other the four add up to its whole time: a model call runs from its
/// admission to the settling of its answer, the wait from there to the continuation that brings the results (or to
/// the end of the call), and the acceptance from the settling of the last answer to its last byte.
#[derive(Default, Serialize)]
struct Times {
    first_model_call_ms: u64,
    tool_wait_ms: u64,
    later_model_calls_ms: u64,
    acceptance_ms: u64,
}

impl Times {
    fn of(story: &Story) -> Times {
        let mut times = Times::default();
        for exchange in &story.exchanges {
            let marks = &exchange.marks;
            let so_far = || story.at.since(marks.began);
            // An older version kept no times.
            let known = marks.began > Millis(0);
            let spent =
                if known { marks.settled.or(marks.ended).unwrap_or_else(so_far).0 } else { 0 };
            match exchange.admitted.0.first_call {
                true => times.first_model_call_ms += spent,
                false => times.later_model_calls_ms += spent,
            }
            if is_answer(exchange)
                && let (Some(settled), Some(ended)) = (marks.settled, marks.ended)
            {
                times.acceptance_ms += ended.since(settled).0;
            }
        }
        times.tool_wait_ms = story.proposals.iter().map(|proposal| wait(story, proposal)).sum();
        times
    }
}

/// How long a proposal waited for its results.
fn wait(story: &Story, proposal: &Proposal) -> u64 {
    let registered = proposal.calls.iter().map(|call| call.registered).min().unwrap_or(story.at);
    let answers = |one: &&Exchange| one.kind.proposal() == Some(proposal.seq);
    let fed = story.exchanges.iter().find(answers).map(|one| one.marks.began);
    let ended = || proposal.calls.iter().map(|call| call.ended.unwrap_or(story.at)).max();
    fed.or_else(ended).unwrap_or(story.at).since(registered).0
}

/// Whether this exchange's answer is the task's: delivered, and without calls.
fn is_answer(exchange: &Exchange) -> bool {
    exchange.state == FlightState::Delivered && !exchange.proposed
}

/// One exchange of a task.
struct TaskExchange<'a>(&'a Exchange);

impl Serialize for TaskExchange<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let exchange = self.0;
        let marks = &exchange.marks;
        let then = |span: Option<Millis>| span.map(|span| at(marks.began.after(span)));
        let mut map = out.serialize_map(None)?;
        match marks.names.request_id.as_deref() {
            Some(id) => tell!(map, { "request_id": id, }),
            None => tell!(map, { "request_id": Shown::from(exchange.id), }),
        }
        tell!(map, {
            "rid": marks.names.rid.map(Shown::from),
            "kind": exchange.kind.as_str(),
            "attempt": exchange.attempt,
            "began_at": (marks.began > Millis(0)).then(|| at(marks.began)),
            "settled_at": then(marks.settled),
            "ended_at": then(marks.ended),
            "outcome": outcome(exchange),
            "code": match exchange.state {
                FlightState::Withheld(code) => Some(code.as_str()),
                _ => exchange.noted.map(|code| code.as_str()),
            },
            "proposed_calls": exchange.proposed,
            "is_answer": is_answer(exchange),
            "notes": Each(exchange.admitted.0.notes.iter().map(Note)),
            "exchange": Shown::from(exchange.id),
        });
        map.end()
    }
}

fn outcome(exchange: &Exchange) -> &'static str {
    match exchange.state {
        FlightState::Flight | FlightState::Settled => "in_flight",
        FlightState::Delivered => "delivered",
        FlightState::Withheld(_) => "withheld",
        FlightState::Failed => match exchange.marks.failure {
            Some(Failure::Upstream) => "upstream_failed",
            Some(Failure::Output) => "output_refused",
            Some(Failure::Client) => "client_gone",
            Some(Failure::Replica) => "replica_lost",
            Some(Failure::Withheld) => "withheld",
            None => "failed",
        },
    }
}

/// One call. `exchange` proposed it.
struct CallLine<'a> {
    exchange: ExchangeId,
    forced: bool,
    call: &'a Call,
}

impl Serialize for CallLine<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut map = out.serialize_map(None)?;
        tell!(map, { "exchange": Shown::from(self.exchange), });
        call(&mut map, self.forced, self.call)?;
        map.end()
    }
}

/// A call that a fault is about, looked at from outside: no task names who proposed it.
struct HeldLine<'a>(&'a Held);

impl Serialize for HeldLine<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut map = out.serialize_map(None)?;
        call(&mut map, false, &self.0.call)?;
        tell!(map, { "generation": self.0.generation, "current": self.0.current, });
        map.end()
    }
}

fn call<M: SerializeMap>(map: &mut M, forced: bool, call: &Call) -> Result<(), M::Error> {
    let answered = match &call.state {
        CallState::Accepted(result) | CallState::Closed(result) => Some(result),
        _ => call.forced.as_ref(),
    };
    tell!(map, {
        "tool_call_id": call.id,
        "tool": call.tool,
        "choice": call.choice,
        "arguments_digest": Shown::from(&call.arguments),
        "result_digest": answered.map(Shown::from),
        "verdict": call.state.as_str(),
        "forced": forced || call.forced.is_some(),
        "result_forced": call.forced.is_some(),
        "write": call.write,
        "write_outcome": write_outcome(call),
        "attempts_started": call.started,
        "registered_at": at(call.registered),
        "deadline_at": call.deadline.map(at),
        "decided_at": call.ended.map(at),
        "waited_ms": call.ended.map(|at| at.since(call.registered).0),
    });
    Ok(())
}

fn write_outcome(call: &Call) -> Option<&'static str> {
    let known = call.written.map(Written::as_str);
    known.or_else(|| call.unknown_write().then_some("unknown"))
}

struct ExchangeLine<'a>(u64, &'a ExchangeFacts);

impl Serialize for ExchangeLine<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let facts = self.1;
        let mut map = out.serialize_map(None)?;
        tell!(map, {
            "v": VERSION,
            "kind": "exchange",
            "at": at(Millis(self.0)),
            "request_id": facts.request_id,
            "exchange": Shown::from(facts.exchange),
            "rid": facts.rid,
            "principal": facts.key.as_ref().map(|key| Shown::from(&key.principal)),
            "conversation": facts.key.as_ref().map(|key| Shown::from(&key.conversation)),
            "generation": facts.generation,
            "attempt": facts.attempt,
            "route": facts.route.as_str(),
            "stream": facts.stream,
            "outcome": facts.outcome.as_str(),
            "status": facts.status,
            "took_ms": u64::try_from(facts.took.as_millis()).unwrap_or(u64::MAX),
            "faults": Each(facts.faults.iter().map(FaultLine)),
            "notes": Each(facts.notes.iter().map(Note)),
            "would_refuse": Each(facts.would_refuse.iter().map(|code| code.as_str())),
            "held": Each(facts.held.iter().map(HeldLine)),
        });
        map.end()
    }
}

struct FaultLine<'a>(&'a Fault);

impl Serialize for FaultLine<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut map = out.serialize_map(None)?;
        tell!(map, {
            "code": self.0.code.as_str(),
            "param": self.0.param,
            "message": self.0.message,
            "tool_call_id": self.0.tool_call_id,
            "recovery": self.0.recovery,
        });
        map.end()
    }
}

struct Note<'a>(&'a Fault);

impl Serialize for Note<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut map = out.serialize_map(None)?;
        tell!(map, {
            "code": self.0.code.as_str(),
            "param": self.0.param,
            "tool_call_id": self.0.tool_call_id,
        });
        map.end()
    }
}
