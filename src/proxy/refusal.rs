//! Refusals: what was decided becomes what a client is told.
//!
//! The rules know nothing of HTTP; the one table that maps codes to statuses is here. A refusal is never
//! 408, 409, 425, 429 or 5xx: SDKs retry those by themselves, and a retried tool step can run a refund
//! twice. 5xx is kept for real failures, where a retry is right.

use crate::guard::fault::{Code, Fault};
use crate::ledger::event::{Held, Refused};
use crate::store::StoreError;
use crate::wire::envelope;
use crate::wire::json::BodyFault;
use bytes::Bytes;
use http::StatusCode;

/// Which way the thing went that was refused. Some codes are shared; their status is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the client to the model.
    Request,
    /// From the model to the client.
    Response,
}

/// Our own answer in place of the upstream's.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    /// Why: at least one. The first one's code decides the status.
    pub faults: Vec<Fault>,
    /// What else was seen.
    pub notes: Vec<Fault>,
    /// Which way.
    pub direction: Direction,
    /// The generation then current, when the ledger told it.
    pub generation: Option<u64>,
    /// The calls that the faults are about, as the ledger held them: for the record, not for the client.
    pub held: Vec<Held>,
}

impl Refusal {
    /// Of a request, for these faults.
    #[must_use]
    pub(crate) fn of_request(faults: Vec<Fault>) -> Self {
        Refusal {
            faults,
            notes: Vec::new(),
            direction: Direction::Request,
            generation: None,
            held: Vec::new(),
        }
    }

    /// Of a response, for these faults.
    #[must_use]
    pub(crate) fn of_response(faults: Vec<Fault>) -> Self {
        Refusal {
            faults,
            notes: Vec::new(),
            direction: Direction::Response,
            generation: None,
            held: Vec::new(),
        }
    }

    /// Of a request, by the ledger.
    #[must_use]
    pub(crate) fn of_ledger(refused: Refused) -> Self {
        let Refused { faults, notes, generation, held } = refused;
        Refusal { notes, generation, held, ..Refusal::of_request(faults) }
    }

    /// Because the store did not do it.
    #[must_use]
    pub(crate) fn of_store(error: &StoreError) -> Self {
        match error {
            StoreError::Full => Refusal::plain(
                Code::Overloaded,
                "This principal holds as many conversations as it may; try again later.",
            ),
            StoreError::Unavailable(_) => {
                Refusal::plain(Code::StoreUnavailable, "The store of conversations is unavailable.")
            }
        }
    }

    /// For one fault of the exchange as a whole.
    #[must_use]
    pub(crate) fn plain(code: Code, message: impl Into<String>) -> Self {
        Refusal::of_request(vec![plain_fault(code, "", message)])
    }

    /// The same, at a place.
    #[must_use]
    pub(crate) fn at(code: Code, param: &str, message: impl Into<String>) -> Self {
        Refusal::of_request(vec![plain_fault(code, param, message)])
    }

    /// The code that decides.
    #[must_use]
    pub(crate) fn code(&self) -> Code {
        self.faults.first().map_or(Code::UpstreamInvalid, |fault| fault.code)
    }

    /// The HTTP status.
    #[must_use]
    pub(crate) fn status(&self) -> StatusCode {
        status(self.code(), self.direction)
    }

    /// The body: OpenAI's error envelope.
    #[must_use]
    pub(crate) fn body(&self) -> Bytes {
        let entries: Vec<envelope::Entry<'_>> = self
            .faults
            .iter()
            .map(|fault| envelope::Entry {
                code: fault.code.as_str(),
                param: &fault.param,
                message: &fault.message,
                tool_call_id: fault.tool_call_id.as_deref(),
                recovery: fault.recovery,
            })
            .collect();
        let first = self.faults.first();
        let param = first.map(|fault| fault.param.as_str()).filter(|param| !param.is_empty());
        let error = envelope::Error {
            message: first.map_or("refused", |fault| &fault.message),
            r#type: kind(self.status()),
            param,
            code: self.code().as_str(),
            faults: &entries,
        };
        Bytes::from(error.to_json())
    }

    /// The same as the one error event that ends a stream.
    #[must_use]
    pub(crate) fn event(&self) -> Bytes {
        let body = self.body();
        let mut event = Vec::with_capacity(body.len() + 8);
        event.extend_from_slice(b"data: ");
        event.extend_from_slice(&body);
        event.extend_from_slice(b"\n\n");
        Bytes::from(event)
    }
}

/// A fault of the exchange as a whole, in the proxy's own words.
#[must_use]
pub(crate) fn plain_fault(code: Code, param: &str, message: impl Into<String>) -> Fault {
    Fault {
        code,
        param: param.to_owned(),
        message: message.into(),
        tool_call_id: None,
        recovery: recovery(code),
    }
}

/// A body that is not the JSON that it must be.
#[must_use]
pub(crate) fn body_fault(fault: &BodyFault) -> Fault {
    let place = if fault.path.is_empty() { "The body" } else { fault.path.as_str() };
    let message = format!("{place} is not usable: {} (at byte {}).", fault.reason, fault.offset);
    plain_fault(Code::BodyInvalid, &fault.path, message)
}

/// The one table: code and direction to status.
#[must_use]
pub(crate) fn status(code: Code, direction: Direction) -> StatusCode {
    match code {
        Code::MissingCallId | Code::RepeatedCallId if direction == Direction::Response => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        Code::BodyInvalid
        | Code::ConversationInvalid
        | Code::GenerationInvalid
        | Code::OrphanResult
        | Code::UnknownResultId
        | Code::RepeatedResult
        | Code::MissingResult
        | Code::RepeatedCallId
        | Code::MissingCallId
        | Code::MissingResultId
        | Code::ArgumentsNotString
        | Code::ArgumentsNotObject => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::RouteClosed | Code::ModelNotAllowed => StatusCode::FORBIDDEN,
        Code::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::UpstreamUnreachable | Code::UpstreamInvalid => StatusCode::BAD_GATEWAY,
        Code::StoreUnavailable | Code::IdentityUnavailable | Code::Overloaded | Code::Draining => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        Code::UpstreamTimeout => StatusCode::GATEWAY_TIMEOUT,
        Code::Unmatched
        | Code::Duplicate
        | Code::Conflict
        | Code::Stale
        | Code::Late
        | Code::Mismatch
        | Code::StaleGeneration
        | Code::GenerationRequired
        | Code::WriteOutcomeUnknown
        | Code::WriteApplied
        | Code::BudgetExhausted
        | Code::UnknownTool
        | Code::ToolNotAllowed
        | Code::ArgumentsMalformed
        | Code::ArgumentsSchema
        | Code::ServerOwnedArgument
        | Code::ToolChoiceViolated
        | Code::TooManyCalls
        | Code::TruncatedCall
        | Code::BrokenStream
        | Code::TruncatedStream
        | Code::HeldTooLarge
        | Code::StaleAnswer
        | Code::Overtaken
        | Code::SchemaUnusable
        | Code::HistoryChanged
        | Code::Adopted
        | Code::Substituted => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

fn kind(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "invalid_request_error",
        StatusCode::SERVICE_UNAVAILABLE => "service_unavailable",
        status if status.is_server_error() => "upstream_error",
        _ => "guard_refusal",
    }
}

fn recovery(code: Code) -> &'static str {
    match code {
        Code::BodyInvalid => "Send one JSON object, as the chat completions API describes it.",
        Code::ConversationInvalid => {
            "Send one conversation header of 1 to 256 visible ASCII characters."
        }
        Code::GenerationInvalid => "Send the generation as a whole number from 0 to 2^53-1.",
        Code::Unauthenticated => "Show a valid credential; sending this one again will not help.",
        Code::ModelNotAllowed => {
            "Ask for a model that this principal may use, or have the operator allow this one."
        }
        Code::RouteClosed => {
            "Use /v1/chat/completions (a client's base URL ends in /v1), or have the operator open this one in routes.pass."
        }
        Code::BodyTooLarge => "Send a smaller body, or have the operator raise limits.body_bytes.",
        Code::StaleAnswer => "Drop this answer: the user has moved on.",
        Code::Overtaken => "Wait for the newer attempt's answer.",
        Code::BudgetExhausted => "Begin a new task.",
        Code::TruncatedStream | Code::BrokenStream => {
            "Discard what arrived of this answer and ask again."
        }
        Code::HeldTooLarge => {
            "Discard what arrived of this answer. Ask for less at once, or have the operator raise limits.held_bytes."
        }
        Code::UpstreamUnreachable
        | Code::UpstreamInvalid
        | Code::UpstreamTimeout
        | Code::StoreUnavailable
        | Code::IdentityUnavailable
        | Code::Overloaded
        | Code::Draining => "Try again later.",
        _ => "Correct the request and send it again.",
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn no_refusal_has_a_status_that_sdks_retry() {
        for code in Code::ALL {
            for direction in [Direction::Request, Direction::Response] {
                let status = status(code, direction).as_u16();
                assert!(![408, 409, 425, 429].contains(&status), "{} is {status}", code.as_str());
            }
        }
    }

    #[test]
    fn a_shared_code_takes_its_status_from_the_direction() {
        assert_eq!(status(Code::MissingCallId, Direction::Request), 400);
        assert_eq!(status(Code::MissingCallId, Direction::Response), 422);
        assert_eq!(status(Code::RepeatedCallId, Direction::Response), 422);
    }

    #[test]
    fn the_envelope_leads_with_the_first_fault_and_lists_all() {
        let faults = vec![
            plain_fault(Code::OrphanResult, "messages.[3].role", "first"),
            plain_fault(Code::RepeatedResult, "messages.[4].tool_call_id", "second"),
        ];
        let refusal = Refusal::of_request(faults);
        let body: serde_json::Value = serde_json::from_slice(&refusal.body()).unwrap();
        assert_eq!(body["error"]["param"], "messages.[3].role");
        assert_eq!(body["error"]["message"], "first");
        assert_eq!(body["error"]["type"], "invalid_request_error");
        assert_eq!(body["error"]["faults"][1]["code"], "repeated_result");
        assert!(refusal.event().ends_with(b"\n\n"));
    }
}
