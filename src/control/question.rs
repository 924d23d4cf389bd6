//! What all calls of the control API have in common: the conversation asked about, and the answer told in
//! the same envelope and with the same headers as on the guarded route.

use crate::guard::fault::Code;
use crate::ledger::Conversation;
use crate::ledger::digest::{Digest, DigestKey};
use crate::ledger::event::{Event, Operation, Outcome, Refused, Transition};
use crate::policy::Policy;
use crate::proxy::Gateway;
use crate::proxy::headers::is_conversation_id;
use crate::proxy::identity::Principal;
use crate::proxy::journal::Journal;
use crate::proxy::operation;
use crate::proxy::question::{conversation_key, idempotency};
use crate::proxy::refusal::Refusal;
use crate::proxy::reply;
use crate::store::{ConversationKey, StoreError};
use crate::telemetry::{ExchangeOutcome, FaultVerdict};
use axum::body::Body;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use http::{Response, StatusCode};
use serde_json::Value;

/// The answer's body and generation, or why there is none.
pub(super) type Asked = Result<(Value, Option<u64>), Box<Refusal>>;

/// Names taken from the path, where they may be percent-encoded.
pub(super) type Named<T> = Result<Path<T>, PathRejection>;

/// One question under way.
pub(super) struct Question<'a> {
    gateway: &'a Gateway,
    pub(super) policy: &'a Policy,
    key: ConversationKey,
    id: &'a str,
}

impl<'a> Question<'a> {
    /// About the conversation that the principal calls `id`.
    pub(super) fn new(
        gateway: &'a Gateway,
        policy: &'a Policy,
        principal: &Principal,
        id: &'a str,
    ) -> Result<Self, Box<Refusal>> {
        if !is_conversation_id(id) {
            return Err(Box::new(Refusal::plain(
                Code::ConversationInvalid,
                "A conversation's id is 1 to 256 visible ASCII characters.",
            )));
        }
        if gateway.is_draining() {
            return Err(Box::new(Refusal::plain(Code::Draining, "This proxy is shutting down.")));
        }
        let key = conversation_key(gateway.store().digest_key(), principal, id);
        Ok(Question { gateway, policy, key, id })
    }

    /// The journal is to say that this is asked about the conversation.
    pub(super) fn asks(&self, what: &'static str, journal: &mut Journal) {
        journal.asks(what, &self.key, self.id);
    }

    pub(super) async fn apply(&self, event: Event) -> Result<Outcome, Box<Refusal>> {
        let applied = self.gateway.apply(&self.key, event, &self.policy.ledger).await;
        let Transition { outcome, would_refuse, .. } = applied.map_err(failed)?;
        for code in would_refuse {
            self.gateway.metrics().fault(code, FaultVerdict::WouldRefuse);
        }
        Ok(outcome)
    }

    /// The conversation as last committed.
    pub(super) async fn conversation(&self) -> Result<Option<Conversation>, Box<Refusal>> {
        self.gateway.read(&self.key).await.map_err(failed)
    }

    /// Whether there was one to forget.
    pub(super) async fn forget(&self) -> Result<bool, Box<Refusal>> {
        self.gateway.remove(&self.key).await.map_err(failed)
    }

    pub(super) fn digest_key(&self) -> &DigestKey {
        self.gateway.store().digest_key()
    }

    pub(super) fn digest_of(&self, idempotency_key: Option<Vec<u8>>) -> Option<Digest> {
        idempotency_key.map(|text| idempotency(self.digest_key(), &text))
    }

    pub(super) fn operation_key(&self, write: &Operation) -> Digest {
        operation_of(self.gateway, &self.key, write)
    }
}

/// The operation key of a write in that conversation.
pub(super) fn operation_of(gateway: &Gateway, key: &ConversationKey, write: &Operation) -> Digest {
    operation::key(gateway.store().digest_key(), key, write)
}

fn failed(error: StoreError) -> Box<Refusal> {
    Box::new(Refusal::of_store(&error))
}

/// The ledger's refusal as the client is told it.
pub(super) fn refused(refused: Refused) -> Box<Refusal> {
    Box::new(Refusal::of_ledger(refused))
}

/// The store gave an answer to another question.
pub(super) fn unexpected() -> Box<Refusal> {
    Box::new(Refusal::plain(Code::StoreUnavailable, "The store answered something else."))
}

/// What the path names.
pub(super) fn named<T>(path: Named<T>) -> Result<T, Box<Refusal>> {
    path.map(|Path(names)| names).map_err(|_| {
        let message = "An id in the path is not percent-encoded UTF-8.";
        Box::new(Refusal::plain(Code::BodyInvalid, message))
    })
}

/// Tells the answer, and what the journal is to say of it.
pub(super) fn answer(asked: Asked, journal: &mut Journal) -> Response<Body> {
    match asked {
        Err(refusal) => reply::refuse(&refusal, journal),
        Ok((value, generation)) => {
            journal.stamp.generation = generation;
            journal.ends(ExchangeOutcome::Delivered);
            journal.answers(StatusCode::OK);
            let mut response = reply::json(StatusCode::OK, value.to_string());
            journal.stamp.passed(response.headers_mut(), &[]);
            response
        }
    }
}
