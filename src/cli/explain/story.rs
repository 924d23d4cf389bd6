//! Lines of the record become a text.
//!
//! What the text says of an exchange is taken from up to three kinds of lines: its own (`exchange`), the one of the
//! task that it belonged to (`task` or `after`), and those of results that it brought or that came for its calls
//! (`result`).

use super::rules;
use crate::guard::fault::{Code, shown};
use serde_json::Value;
use std::fmt::{self, Write as _};

/// The story of the exchange that bears this id as its request id, as ours or as the upstream's. `None`: the lines
/// tell of none.
#[must_use]
pub(super) fn of(id: &str, lines: &[Value]) -> Option<String> {
    let bears = |one: &Value| bears(one, id);
    let own: Vec<&Value> =
        lines.iter().filter(|line| line["kind"] == "exchange" && bears(line)).collect();
    let told: Vec<(&Value, &Value)> = lines
        .iter()
        .filter(|line| line["kind"] == "task" || line["kind"] == "after")
        .flat_map(|line| list(&line["exchanges"]).map(move |one| (line, one)))
        .filter(|(_, one)| bears(one))
        .collect();
    if own.is_empty() && told.is_empty() {
        return None;
    }
    let mut page = Page(String::new());
    for (line, exchange) in told {
        page.of_task(line, exchange);
    }
    for line in own {
        page.of_exchange(line);
        let brought = |one: &&Value| one["kind"] == "result" && one["exchange"] == line["exchange"];
        page.results(lines.iter().filter(brought));
    }
    Some(page.0)
}

/// The ids that we minted for the exchanges that bear this id.
#[must_use]
pub(super) fn exchanges(id: &str, lines: &[Value]) -> Vec<String> {
    let single = lines.iter().filter(|line| line["kind"] == "exchange" && bears(line, id));
    let mut ids: Vec<String> = single.map(|line| text(&line["exchange"])).collect();
    ids.dedup();
    ids
}

fn bears(one: &Value, id: &str) -> bool {
    ["request_id", "exchange", "rid"].iter().any(|key| one[*key] == id)
}

struct Page(String);

impl Page {
    fn line(&mut self, line: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{line}");
    }

    /// An exchange in the record of its task.
    fn of_task(&mut self, line: &Value, exchange: &Value) {
        self.line(format_args!("Exchange {}", text(&exchange["exchange"])));
        self.names(exchange);
        let what = match exchange["kind"].as_str() {
            Some("opening") => "It began work",
            Some("continuation") => "It fed results back to the model",
            _ => "It went on with notices in place of results",
        };
        let generation = &line["generation"];
        let attempt = &exchange["attempt"];
        self.line(format_args!(
            "  {what} in generation {generation} of conversation {} (attempt {attempt}), at {}.",
            text(&line["conversation"]),
            text(&exchange["began_at"])
        ));
        self.line(format_args!("  {}", ended(exchange)));
        for note in list(&exchange["notes"]) {
            self.note(note);
        }
        for call in list(&line["calls"]) {
            if call["exchange"] == exchange["exchange"] {
                self.line(format_args!("  It proposed {}.", call_in_words(call)));
            }
        }
        if line["kind"] == "task" {
            let reason = line["reason"].as_str().map(|why| format!(" ({why})")).unwrap_or_default();
            let (outcome, took) = (text(&line["outcome"]), &line["took_ms"]);
            self.line(format_args!("  Its task ended {outcome}{reason} after {took} ms."));
        } else {
            self.line(format_args!("  Its task had ended before."));
        }
    }

    /// An exchange of which the proxy told by itself.
    fn of_exchange(&mut self, line: &Value) {
        self.line(format_args!("Exchange {}", text(&line["exchange"])));
        self.names(line);
        let place = match (line["conversation"].as_str(), line["generation"].as_u64()) {
            (None, _) => "without a conversation".to_owned(),
            (Some(id), None) => format!("of conversation {}", shown(id)),
            (Some(id), Some(number)) => {
                format!("of conversation {}, where generation {number} was current", shown(id))
            }
        };
        let status = line["status"].as_u64().map(|status| format!(" with status {status}"));
        self.line(format_args!(
            "  A request ({}) {place}; it ended at {} after {} ms: {}{}.",
            text(&line["route"]),
            text(&line["at"]),
            line["took_ms"],
            text(&line["outcome"]),
            status.unwrap_or_default()
        ));
        for (at, fault) in list(&line["faults"]).enumerate() {
            self.fault(at + 1, fault, list(&line["held"]), line["generation"].as_u64());
        }
        for note in list(&line["notes"]) {
            self.note(note);
        }
        let would: Vec<String> = list(&line["would_refuse"]).map(text).collect();
        if !would.is_empty() {
            self.line(format_args!("  Enforcing would have refused it: {}.", would.join(", ")));
        }
        let clean = list(&line["faults"]).next().is_none() && list(&line["notes"]).next().is_none();
        if clean && would.is_empty() {
            self.line(format_args!("  No rule found anything in it."));
        }
    }

    fn names(&mut self, exchange: &Value) {
        if exchange["request_id"] != exchange["exchange"] {
            self.line(format_args!("  x-request-id: {}", text(&exchange["request_id"])));
        }
        if exchange["rid"].is_string() {
            self.line(format_args!("  rid at the upstream: {}", text(&exchange["rid"])));
        }
    }

    fn fault<'a>(
        &mut self,
        number: usize,
        fault: &Value,
        mut held: impl Iterator<Item = &'a Value>,
        current: Option<u64>,
    ) {
        let place = match fault["param"].as_str() {
            None | Some("") => String::new(),
            Some(param) => format!(" at {}", shown(param)),
        };
        let id = fault["tool_call_id"].as_str();
        let of = id.map(|id| format!(" (call {})", shown(id))).unwrap_or_default();
        self.line(format_args!("  {number}. {}{place}{of}", text(&fault["code"])));
        self.line(format_args!("     Rule: {}", rule(fault)));
        self.line(format_args!("     Found: {}", text(&fault["message"])));
        if let Some(id) = id {
            let known = held.find(|call| call["tool_call_id"] == id);
            let known =
                known.map_or("no call of that id".to_owned(), |call| held_in_words(call, current));
            self.line(format_args!("     The ledger held {known}."));
        }
        self.line(format_args!("     What passes: {}", text(&fault["recovery"])));
    }

    fn note(&mut self, note: &Value) {
        let place = text(&note["param"]);
        let at = if place.is_empty() { String::new() } else { format!(" at {place}") };
        self.line(format_args!("  Noted: {}{at}. {}", text(&note["code"]), rule(note)));
    }

    fn results<'a>(&mut self, results: impl Iterator<Item = &'a Value>) {
        for line in results {
            let (id, generation) = (text(&line["tool_call_id"]), &line["generation"]);
            let over = if line["after_end"] == true {
                "whose task was over: background work, no answer"
            } else {
                "whose task goes on"
            };
            self.line(format_args!(
                "  It brought the result of {id}, {} ms after that call of generation {generation}, {over}.",
                line["came_after_ms"]
            ));
        }
    }
}

fn rule(fault: &Value) -> &'static str {
    let code = fault["code"].as_str().and_then(Code::parse);
    code.map_or("A newer version of tigertally knows this code.", rules::of)
}

/// How an exchange of a task ended.
fn ended(exchange: &Value) -> String {
    let code = exchange["code"].as_str().map(|code| format!(" ({code})")).unwrap_or_default();
    let how = match exchange["outcome"].as_str() {
        Some("delivered") if exchange["is_answer"] == true => {
            "Its answer was delivered while its generation was current".to_owned()
        }
        Some("delivered") => "Its answer was delivered".to_owned(),
        Some("withheld") => format!("Its answer was withheld{code}"),
        Some("upstream_failed") => "The upstream gave no answer".to_owned(),
        Some("output_refused") => "The model's output was refused".to_owned(),
        Some("client_gone") => "The client went away".to_owned(),
        Some("replica_lost") => "The replica that served it was lost".to_owned(),
        Some("in_flight") => "It was under way when its task ended".to_owned(),
        _ => "It came to nothing".to_owned(),
    };
    match exchange["ended_at"].as_str() {
        Some(at) => format!("{how}, at {}.", shown(at)),
        None => format!("{how}."),
    }
}

fn call_in_words(call: &Value) -> String {
    let waited = call["waited_ms"].as_u64().map(|ms| format!(" after {ms} ms")).unwrap_or_default();
    let verdict = text(&call["verdict"]);
    format!("{} of {}: {verdict}{waited}", text(&call["tool_call_id"]), text(&call["tool"]))
}

/// A call as the ledger held it at that time.
fn held_in_words(call: &Value, current: Option<u64>) -> String {
    let mut words = format!(
        "{}, registered at {} in generation {}",
        call_in_words(call),
        text(&call["registered_at"]),
        call["generation"]
    );
    if call["current"] == false {
        match current {
            Some(number) => {
                let _ = write!(words, " ({number} was current)");
            }
            None => words.push_str(" (no longer current)"),
        }
    }
    if let Some(deadline) = call["deadline_at"].as_str() {
        let _ = write!(words, ", with its deadline at {}", shown(deadline));
    }
    if let Some(outcome) = call["write_outcome"].as_str() {
        let _ = write!(words, "; the outcome of this write: {}", shown(outcome));
    }
    words
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A text as a terminal may show it: ids come from clients.
fn text(value: &Value) -> String {
    let mut shown = String::new();
    for one in value.as_str().unwrap_or_default().chars() {
        if one.is_control() {
            shown.extend(one.escape_debug());
        } else {
            shown.push(one);
        }
    }
    shown
}

#[cfg(test)]
mod tests;
