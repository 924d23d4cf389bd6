//! Facts become lines. Every key is always there, `null` where nothing is known, so that a reader needs no cases;
//! `docs/task-record.schema.json` says so in the words of a machine.

use super::{Entry, ExchangeFacts};
use crate::guard::fault::Fault;
use crate::ledger::calls::{Call, CallState, Proposal, Written};
use crate::ledger::digest::Digest;
use crate::ledger::event::{Millis, Part, Story};
use crate::ledger::exchanges::{Exchange, Failure, FlightState};
use crate::store::ConversationKey;
use crate::wire::moment::rfc3339;
use serde_json::{Value, json};

/// The version of the lines. It rises when a key changes its meaning or goes; keys may be added.
const VERSION: u32 = 1;

/// Writes one entry as one line.
pub(super) fn write(entry: &Entry, out: &mut Vec<u8>) {
    let line = match entry {
        Entry::Story(key, story) => of_story(key, story),
        Entry::Exchange(at, facts) => of_exchange(*at, facts),
    };
    // Values of ours always have a text, and a vector takes it.
    if serde_json::to_writer(&mut *out, &line).is_ok() {
        out.push(b'\n');
    }
}

fn of_story(key: &ConversationKey, story: &Story) -> Value {
    let mut line = json!({
        "v": VERSION,
        "at": rfc3339(story.at.0),
        "principal": key.principal.to_string(),
        "conversation": key.conversation.to_string(),
        "lane": story.lane,
        "by_header": story.by_header,
        "generation": story.generation,
        "calls": calls(story),
    });
    let over = story.task.as_ref().is_none_or(|task| task.counted);
    let more = match &story.part {
        Part::Task(outcome) => {
            let task = story.task.as_ref();
            let started = task.map_or(story.at, |task| task.started);
            json!({
                "kind": "task",
                "outcome": outcome.as_str(),
                "reason": task.and_then(|task| task.limit).map(|limit| limit.as_str()),
                "started_at": rfc3339(started.0),
                "took_ms": story.at.since(started).0,
                "model_calls": task.map_or(0, |task| task.model_calls),
                "tool_calls": task.map_or(0, |task| task.tool_calls),
                "times": times(story),
                "exchanges": exchanges(story),
            })
        }
        Part::After => json!({ "kind": "after", "exchanges": exchanges(story) }),
        Part::Result { id, code, result, by } => json!({
            "kind": "result",
            "tool_call_id": id,
            "code": code.as_str(),
            "result_digest": result.to_string(),
            "exchange": by.to_string(),
            "after_end": over,
            "came_after_ms": came_after(story),
        }),
    };
    join(&mut line, more);
    line
}

/// The time from a refused result's call to the result.
fn came_after(story: &Story) -> Option<u64> {
    let call = story.proposals.iter().flat_map(|proposal| &proposal.calls).next()?;
    Some(story.at.since(call.registered).0)
}

fn join(line: &mut Value, more: Value) {
    if let (Value::Object(line), Value::Object(more)) = (line, more) {
        line.extend(more);
    }
}

/// Where the time of a task went.
///
/// In a task whose exchanges follow each other the four add up to its whole time: a model call runs from its
/// admission to the settling of its answer, the wait from there to the continuation that brings the results (or to
/// the end of the call), and the acceptance from the settling of the last answer to its last byte.
fn times(story: &Story) -> Value {
    let (mut first, mut later, mut accepting) = (0, 0, 0);
    for exchange in &story.exchanges {
        let marks = &exchange.marks;
        let so_far = || story.at.since(marks.began);
        // An older version kept no times.
        let known = marks.began > Millis(0);
        let spent = if known { marks.settled.or(marks.ended).unwrap_or_else(so_far).0 } else { 0 };
        let of = if exchange.admitted.0.first_call { &mut first } else { &mut later };
        *of += spent;
        if is_answer(exchange)
            && let (Some(settled), Some(ended)) = (marks.settled, marks.ended)
        {
            accepting += ended.since(settled).0;
        }
    }
    let waited: u64 = story.proposals.iter().map(|proposal| wait(story, proposal)).sum();
    json!({
        "first_model_call_ms": first,
        "tool_wait_ms": waited,
        "later_model_calls_ms": later,
        "acceptance_ms": accepting,
    })
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

fn exchanges(story: &Story) -> Vec<Value> {
    story.exchanges.iter().map(exchange).collect()
}

fn exchange(exchange: &Exchange) -> Value {
    let marks = &exchange.marks;
    let id = exchange.id.to_string();
    let at = |span: Option<Millis>| span.map(|span| rfc3339(marks.began.after(span).0));
    let notes: Vec<Value> = exchange.admitted.0.notes.iter().map(note).collect();
    json!({
        "request_id": marks.names.request_id.as_deref().unwrap_or(&id),
        "rid": marks.names.rid.map(|rid| rid.to_string()),
        "kind": exchange.kind.as_str(),
        "attempt": exchange.attempt,
        "began_at": (marks.began > Millis(0)).then(|| rfc3339(marks.began.0)),
        "settled_at": at(marks.settled),
        "ended_at": at(marks.ended),
        "outcome": outcome(exchange),
        "code": match exchange.state {
            FlightState::Withheld(code) => Some(code.as_str()),
            _ => exchange.noted.map(|code| code.as_str()),
        },
        "proposed_calls": exchange.proposed,
        "is_answer": is_answer(exchange),
        "notes": notes,
        "exchange": id,
    })
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

fn calls(story: &Story) -> Vec<Value> {
    let all = story.proposals.iter();
    all.flat_map(|of| {
        of.calls.iter().map(move |one| call(&of.exchange.to_string(), of.forced, one))
    })
    .collect()
}

/// One call. `exchange` proposed it.
fn call(exchange: &str, forced: bool, call: &Call) -> Value {
    let answered = match call.state {
        CallState::Accepted(result) | CallState::Closed(result) => Some(result),
        _ => call.forced,
    };
    json!({
        "tool_call_id": call.id,
        "tool": call.tool,
        "exchange": exchange,
        "choice": call.choice,
        "arguments_digest": call.arguments.to_string(),
        "result_digest": answered.as_ref().map(Digest::to_string),
        "verdict": call.state.as_str(),
        "forced": forced || call.forced.is_some(),
        "result_forced": call.forced.is_some(),
        "write": call.write,
        "write_outcome": write_outcome(call),
        "attempts_started": call.started,
        "registered_at": rfc3339(call.registered.0),
        "deadline_at": call.deadline.map(|at| rfc3339(at.0)),
        "decided_at": call.ended.map(|at| rfc3339(at.0)),
        "waited_ms": call.ended.map(|at| at.since(call.registered).0),
    })
}

fn write_outcome(call: &Call) -> Option<&'static str> {
    let known = call.written.map(Written::as_str);
    known.or_else(|| call.unknown_write().then_some("unknown"))
}

fn of_exchange(at: u64, facts: &ExchangeFacts) -> Value {
    let held: Vec<Value> = facts
        .held
        .iter()
        .map(|held| {
            let mut line = call("", false, &held.call);
            join(&mut line, json!({ "generation": held.generation, "current": held.current }));
            if let Value::Object(line) = &mut line {
                // The calls of a task name it; here the call is looked at from outside.
                line.remove("exchange");
            }
            line
        })
        .collect();
    let codes = facts.would_refuse.iter().map(|code| code.as_str());
    json!({
        "v": VERSION,
        "kind": "exchange",
        "at": rfc3339(at),
        "request_id": facts.request_id,
        "exchange": facts.exchange.to_string(),
        "rid": facts.rid,
        "principal": facts.key.as_ref().map(|key| key.principal.to_string()),
        "conversation": facts.key.as_ref().map(|key| key.conversation.to_string()),
        "generation": facts.generation,
        "attempt": facts.attempt,
        "route": facts.route.as_str(),
        "stream": facts.stream,
        "outcome": facts.outcome.as_str(),
        "status": facts.status,
        "took_ms": u64::try_from(facts.took.as_millis()).unwrap_or(u64::MAX),
        "faults": facts.faults.iter().map(fault).collect::<Vec<_>>(),
        "notes": facts.notes.iter().map(note).collect::<Vec<_>>(),
        "would_refuse": codes.collect::<Vec<_>>(),
        "held": held,
    })
}

fn fault(fault: &Fault) -> Value {
    json!({
        "code": fault.code.as_str(),
        "param": fault.param,
        "message": fault.message,
        "tool_call_id": fault.tool_call_id,
        "recovery": fault.recovery,
    })
}

fn note(note: &Fault) -> Value {
    json!({
        "code": note.code.as_str(),
        "param": note.param,
        "tool_call_id": note.tool_call_id,
    })
}
