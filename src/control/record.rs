//! The record of a conversation as the control API tells it: ids, states and times, no contents.

use crate::ledger::Conversation;
use crate::ledger::calls::{Call, CallState, Written};
use crate::ledger::digest::Digest;
use crate::ledger::event::Operation;
use crate::ledger::exchanges::{FlightState, Kind};
use crate::ledger::lanes::LaneKey;
use crate::wire::moment;
use serde_json::{Value, json};

/// The record of the conversation that the client calls `id`; of none, an empty one. `key` makes a write's
/// operation key.
pub(super) fn of(
    id: &str,
    conversation: Option<&Conversation>,
    key: impl Fn(&Operation) -> Digest,
) -> Value {
    let Some(conversation) = conversation else {
        return json!({
            "conversation": id, "known": false, "generations": [], "exchanges": [], "calls": [],
        });
    };
    let generations: Vec<Value> = conversation
        .lanes()
        .iter()
        .map(|lane| {
            json!({
                "lane": lane.number,
                "by_header": lane.key == LaneKey::Header,
                "generation": lane.task.generation,
                "started_at": moment::rfc3339(lane.task.started.0),
                "model_calls": lane.task.model_calls,
                "tool_calls": lane.task.tool_calls,
                "outcome": lane.task.ended.map(|outcome| outcome.as_str()),
                "reason": lane.task.limit.map(|limit| limit.as_str()),
            })
        })
        .collect();
    json!({
        "conversation": id,
        "known": true,
        "generation": conversation.lanes().highest(),
        "generations": generations,
        "exchanges": exchanges(conversation),
        "calls": calls(conversation, &key),
    })
}

fn exchanges(conversation: &Conversation) -> Vec<Value> {
    conversation
        .exchanges()
        .iter()
        .map(|exchange| {
            let state = match exchange.state {
                FlightState::Flight => "in_flight",
                FlightState::Settled => "settled",
                FlightState::Delivered => "delivered",
                FlightState::Failed => "failed",
                FlightState::Withheld(code) => code.as_str(),
            };
            json!({
                "exchange": exchange.id.to_string(),
                "lane": exchange.lane,
                "generation": exchange.generation,
                "kind": match exchange.kind {
                    Kind::Opening => "opening",
                    Kind::Continuation(_) => "continuation",
                    Kind::Recovery(_) => "recovery",
                },
                "attempt": exchange.attempt,
                "state": state,
            })
        })
        .collect()
}

fn calls(conversation: &Conversation, key: &impl Fn(&Operation) -> Digest) -> Vec<Value> {
    conversation
        .calls()
        .iter()
        .flat_map(|proposal| proposal.calls.iter().map(move |call| (proposal, call)))
        .map(|(proposal, call)| {
            let operation = call.write.then(|| key(&call.operation(proposal.generation)));
            json!({
                "tool_call_id": call.id,
                "tool": call.tool,
                "generation": proposal.generation,
                "lane": proposal.lane,
                "exchange": proposal.exchange.to_string(),
                "choice": call.choice,
                "arguments_digest": call.arguments.to_string(),
                "state": state(call),
                "forced": proposal.forced || call.forced.is_some(),
                "attempts_started": call.started,
                "write": call.write,
                "operation_key": operation.map(|key| key.to_string()),
                "outcome_unknown": call.unknown_write(),
                "outcome": call.written.map(outcome),
                "registered_at": moment::rfc3339(call.registered.0),
                "deadline_at": call.deadline.map(|at| moment::rfc3339(at.0)),
                "ended_at": call.ended.map(|at| moment::rfc3339(at.0)),
            })
        })
        .collect()
}

fn state(call: &Call) -> &'static str {
    match call.state {
        CallState::Open => "open",
        CallState::Accepted(_) => "accepted",
        CallState::Closed(_) => "closed",
        CallState::TimedOut => "timed_out",
        CallState::Superseded => "superseded",
        CallState::Replaced => "replaced",
        CallState::Unchosen => "unchosen",
    }
}

fn outcome(written: Written) -> &'static str {
    match written {
        Written::Withdrawn => "withdrawn",
        Written::Reported => "reported",
        Written::Applied => "applied",
        Written::NotApplied => "not_applied",
    }
}
