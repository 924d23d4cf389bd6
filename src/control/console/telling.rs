//! The board in JSON. Times are milliseconds since 1970; what the page makes of them is its own business.

use super::handle;
use crate::ledger::event::TaskOutcome;
use crate::proxy::Gateway;
use crate::telemetry::feed::{Board, Bucket, Exchange, Look, Row, SECONDS, TaskSeen};
use crate::telemetry::{ExchangeOutcome, feed};
use serde_json::{Value, json};
use std::time::SystemTime;

/// The whole of it at a glance: the last quarter of an hour, and what this process is.
pub(super) fn overview(gateway: &Gateway) -> Value {
    let settings = gateway.settings();
    let feed = gateway.metrics().feed();
    let (buckets, changes, seen, held) = feed.read(|board| {
        let buckets: Vec<Value> = board.buckets().map(bucket).collect();
        (buckets, board.changes(), board.seen(), board.held())
    });
    json!({
        "now": feed::millis(SystemTime::now()),
        "version": env!("CARGO_PKG_VERSION"),
        "replica": format!("{:08x}", gateway.replica.0 >> 32),
        "profile": settings.policy.profile.as_str(),
        "observe": settings.policy.observe,
        "store": settings.policy.store.to_string(),
        "conversations": gateway.store().conversations(),
        "in_flight": gateway.metrics().in_flight_now(),
        "dropped": feed.dropped(),
        "changes": changes,
        "seen": seen,
        "held": held,
        "seconds": SECONDS,
        "buckets": buckets,
    })
}

/// What an event tells: what changed, and the newest buckets.
pub(super) fn pulse(gateway: &Gateway, board: &Board, after: u64) -> Value {
    let mut newest: Vec<Value> = board.buckets().rev().take(3).map(bucket).collect();
    newest.reverse();
    json!({
        "now": feed::millis(SystemTime::now()),
        "in_flight": gateway.metrics().in_flight_now(),
        "dropped": gateway.metrics().feed().dropped(),
        "changes": board.changes(),
        "seen": board.seen(),
        "held": board.held(),
        "changed": board.changed(after, 100).iter().map(handle).collect::<Vec<_>>(),
        "buckets": newest,
    })
}

/// One page of the list. `exact` is the handle of the conversation whose whole name was asked for.
pub(super) fn list(gateway: &Gateway, look: &Look, exact: Option<String>) -> Value {
    let (page, held, changes) =
        gateway.metrics().feed().read(|board| (board.page(look), board.held(), board.changes()));
    json!({
        "changes": changes,
        "rows": page.rows.iter().map(row).collect::<Vec<_>>(),
        "next": page.next,
        "held": held,
        "exact": exact,
    })
}

/// One conversation, as far as this process saw it.
pub(super) fn one(handle: &str, seen: Option<&(Row, Vec<Exchange>, Vec<TaskSeen>, bool)>) -> Value {
    let now = feed::millis(SystemTime::now());
    let Some((line, exchanges, tasks, forgot)) = seen else {
        return json!({
            "handle": handle, "now": now, "row": null, "exchanges": [], "tasks": [], "forgot": true,
        });
    };
    json!({
        "handle": handle,
        "now": now,
        "row": row(line),
        "exchanges": exchanges.iter().map(exchange).collect::<Vec<_>>(),
        "tasks": tasks.iter().map(task).collect::<Vec<_>>(),
        "forgot": forgot,
    })
}

fn row(row: &Row) -> Value {
    json!({
        "handle": handle(&row.key),
        "name": row.name,
        "number": row.number,
        "generation": row.generation,
        "ended": row.ended.map(TaskOutcome::as_str),
        "first_at": row.first_at,
        "last_at": row.last_at,
        "exchanges": row.exchanges,
        "refused": row.refused,
        "under_way": row.under_way,
        "last_code": row.last_code.map(|code| code.as_str()),
    })
}

fn task(task: &TaskSeen) -> Value {
    json!({
        "generation": task.generation,
        "outcome": task.outcome.as_str(),
        "at": task.at,
        "took": task.took,
    })
}

fn exchange(seen: &Exchange) -> Value {
    let faults: Vec<Value> = seen
        .faults
        .iter()
        .map(|fault| {
            json!({
                "code": fault.code.as_str(),
                "verdict": fault.verdict.as_str(),
                "param": fault.param,
                "message": fault.message,
                "tool_call_id": fault.tool_call_id,
                "recovery": fault.recovery,
            })
        })
        .collect();
    json!({
        "exchange": seen.id.to_string(),
        "request_id": seen.request_id,
        "rid": seen.rid,
        "route": seen.route.as_str(),
        "asks": seen.asks,
        "generation": seen.generation,
        "attempt": seen.attempt,
        "first": seen.first,
        "stream": seen.stream,
        "began": seen.began,
        "sent": seen.sent,
        "first_data": seen.first_data,
        "outcome": seen.end.map(|end| end.outcome.as_str()),
        "status": seen.end.and_then(|end| end.status),
        "took": seen.end.map(|end| end.took),
        "faults": faults,
        "more_faults": seen.more_faults,
    })
}

/// A bucket, by the names of outcomes.
fn bucket(bucket: &Bucket) -> Value {
    let outcome = |outcome: ExchangeOutcome| bucket.exchanges[outcome as usize];
    let codes: Vec<Value> =
        bucket.codes.iter().map(|(code, count)| json!([code.as_str(), count])).collect();
    json!({
        "number": bucket.number,
        "delivered": outcome(ExchangeOutcome::Delivered),
        "refused": outcome(ExchangeOutcome::Refused),
        "withheld": outcome(ExchangeOutcome::Withheld),
        "upstream_error": outcome(ExchangeOutcome::UpstreamError),
        "client_gone": outcome(ExchangeOutcome::ClientGone),
        "accepted_results": bucket.accepted,
        "refused_results": bucket.refused,
        "timed_out": bucket.timed_out,
        "completed": bucket.tasks[TaskOutcome::Completed as usize],
        "superseded": bucket.tasks[TaskOutcome::Superseded as usize],
        "incomplete": bucket.tasks[TaskOutcome::Incomplete as usize],
        "failed": bucket.tasks[TaskOutcome::Failed as usize],
        "expired": bucket.tasks[TaskOutcome::Expired as usize],
        "codes": codes,
    })
}
