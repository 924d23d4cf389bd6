//! The question to the ledger: what of a request it needs to know, as digests.

use super::clearance::Cleared;
use super::flight::{Admission, Flight};
use super::gateway::{Gateway, Settings};
use super::headers::Standing;
use super::identity::Principal;
use super::refusal::{Refusal, plain_fault};
use crate::guard::fault::{Code, Fault};
use crate::guard::pairing::Pairing;
use crate::guard::verdict::Action;
use crate::ledger::digest::{Digest, DigestKey};
use crate::ledger::event::{Admit, Admitted, Ending, ExchangeId, Pair, Run};
use crate::policy::{OnError, Policy};
use crate::store::{ConversationKey, StoreError};
use crate::wire::json::Field;
use crate::wire::request::{ChatRequest, Message, ToolCall};
use std::borrow::Cow;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Leave to go up: given by the ledger, or because nothing of this exchange is remembered. Only
/// [`admit`] makes one.
#[derive(Debug)]
pub struct Passage {
    flight: Option<Flight>,
    unwatched: bool,
}

impl Passage {
    /// The place in the ledger, when the exchange is tracked.
    pub fn flight(&mut self) -> Option<&mut Flight> {
        self.flight.as_mut()
    }

    /// Tells the ledger how the exchange ended, and waits until it is committed: who asks again right
    /// after our answer must not find this exchange still under way.
    pub async fn close(&mut self, ending: Ending) {
        if let Some(flight) = &mut self.flight {
            flight.close(ending);
            poll_fn(|cx| flight.poll_closed(cx)).await;
        }
    }

    /// What the ledger said, when the exchange is tracked.
    #[must_use]
    pub fn admitted(&self) -> Option<&Admitted> {
        self.flight.as_ref().map(Flight::admitted)
    }

    /// Ready when the exchange is no longer wanted and the rules say that this ends it.
    pub fn poll_unwanted(&mut self, cx: &mut Context<'_>, policy: &Policy) -> Poll<Code> {
        let Some(flight) = self.flight.as_mut().filter(|_| !self.unwatched) else {
            return Poll::Pending;
        };
        let Poll::Ready(code) = flight.poll_unwanted(cx) else { return Poll::Pending };
        if policy.observe || policy.rules.action(code) != Action::Refuse {
            self.unwatched = true;
            return Poll::Pending;
        }
        Poll::Ready(code)
    }
}

/// Asks the ledger whether a cleared request may go up.
///
/// # Errors
/// When it may not, or the store does not answer.
pub async fn admit(
    gateway: &Arc<Gateway>,
    settings: &Settings,
    standing: &Standing,
    principal: &Principal,
    cleared: &mut Cleared,
) -> Result<Passage, Box<Refusal>> {
    let (Some(event), Some(name)) = (cleared.admit.take(), &standing.conversation) else {
        return Ok(Passage { flight: None, unwatched: false });
    };
    let key = conversation_key(gateway.store.digest_key(), principal, name);
    match Flight::admit(gateway, key, event, settings.policy.ledger.clone()).await {
        Admission::Flight(flight) => Ok(Passage { flight: Some(flight), unwatched: false }),
        Admission::Refused(refused) => {
            let mut refusal = Refusal::of_request(refused.faults);
            refusal.notes = refused.notes;
            refusal.notes.append(&mut cleared.notes);
            refusal.generation = refused.generation;
            Err(Box::new(refusal))
        }
        Admission::Failed(StoreError::Unavailable(_)) if goes_on_without_store(settings) => {
            cleared.notes.push(untracked());
            Ok(Passage { flight: None, unwatched: false })
        }
        Admission::Failed(error) => Err(Box::new(store_failed(&error))),
    }
}

/// Whether exchanges go on by the untracked rules while the store does not answer.
#[must_use]
pub fn goes_on_without_store(settings: &Settings) -> bool {
    settings.policy.store_on_error == OnError::Open
}

/// The mark of an exchange that went on without the store.
#[must_use]
pub fn untracked() -> Fault {
    let message = "the store of conversations is unavailable: judged by the untracked rules";
    plain_fault(Code::StoreUnavailable, "", message)
}

/// What a client is told when the store did not do it.
#[must_use]
pub fn store_failed(error: &StoreError) -> Refusal {
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

/// The key that all state of a conversation is kept under.
#[must_use]
pub fn conversation_key(key: &DigestKey, principal: &Principal, name: &str) -> ConversationKey {
    ConversationKey {
        principal: key.bytes("principal", principal.as_bytes()),
        conversation: key.bytes("conversation", name.as_bytes()),
    }
}

/// Builds the question.
pub(super) fn event(
    gateway: &Gateway,
    settings: &Settings,
    standing: &Standing,
    exchange: ExchangeId,
    request: &ChatRequest<'_>,
    pairing: &Pairing,
) -> Admit {
    let key = gateway.store.digest_key();
    let reader = Reader { key, settings };
    let runs = pairing
        .runs
        .iter()
        .map(|run| Run {
            live: run.live,
            pairs: run
                .pairs
                .iter()
                .filter_map(|&(call, message)| {
                    let call = request.messages.get(run.assistant)?.tool_calls.get(call)?;
                    Some(reader.pair(call, message, request.messages.get(message)?))
                })
                .collect(),
        })
        .collect();
    Admit {
        exchange,
        replica: gateway.replica,
        generation: standing.generation,
        lane: lane(key, &request.messages),
        list: list(key, &request.messages),
        declared_retry: standing.declared_retry,
        idempotency: standing.idempotency.as_ref().map(|text| key.bytes("idempotency", text)),
        runs,
    }
}

/// Leading system and developer messages, and the first user message.
fn lane(key: &DigestKey, messages: &[Message<'_>]) -> Digest {
    let mut running = key.begin("lane");
    let leading = messages.iter().take_while(|message| role_is(message, &["system", "developer"]));
    let user = messages.iter().find(|message| role_is(message, &["user"]));
    for message in leading.chain(user) {
        running.json(message.raw);
    }
    running.digest()
}

fn list(key: &DigestKey, messages: &[Message<'_>]) -> Digest {
    let mut running = key.begin("list");
    for message in messages {
        running.json(message.raw);
    }
    running.digest()
}

fn role_is(message: &Message<'_>, roles: &[&str]) -> bool {
    matches!(message.role, Field::Text(role) if roles.contains(&role.decode().as_ref()))
}

/// Text of a field, empty when it holds none.
pub(super) fn text<'a>(field: &Field<'a>) -> Cow<'a, str> {
    match field {
        Field::Text(text) => text.decode(),
        Field::Absent | Field::Null | Field::Other(_) => Cow::Borrowed(""),
    }
}

struct Reader<'r> {
    key: &'r DigestKey,
    settings: &'r Settings,
}

impl Reader<'_> {
    fn pair(&self, call: &ToolCall<'_>, index: usize, message: &Message<'_>) -> Pair {
        let tool = text(&call.name);
        let content = result_content(message.content.map_or("null", |content| content.raw));
        let declared = self.settings.policy.tools.each.get(tool.as_ref());
        Pair {
            id: text(&call.id).into(),
            arguments: self.key.arguments(&text(&call.arguments)),
            message: index,
            result: self.key.json("result", message.content.map_or("null", |span| span.raw)),
            closing: content.as_deref().is_some_and(|text| self.settings.closings.contains(text)),
            name: match message.name {
                Field::Text(name) => Some(name.decode().into()),
                Field::Absent | Field::Null | Field::Other(_) => None,
            },
            echoes: match (&content, declared) {
                (Some(content), Some(tool)) => echoes(self.key, content, &tool.echo),
                _ => Vec::new(),
            },
            edits_allowed: declared.is_some_and(|tool| tool.edits_allowed),
            attempt: None,
            tool: tool.into(),
        }
    }
}

/// The string that a `content` value stands for, when it is a string.
pub(crate) fn result_content(raw: &str) -> Option<Cow<'_, str>> {
    let raw = raw.trim_start();
    if !raw.starts_with('"') {
        return None;
    }
    serde_json::from_str::<String>(raw).ok().map(Cow::Owned)
}

/// Top-level members of a JSON object that are declared as echoed, each with its value's digest. A key
/// that stands twice gives two entries, so that neither reading of it slips by.
pub(crate) fn echoes(key: &DigestKey, text: &str, declared: &[String]) -> Vec<(Box<str>, Digest)> {
    if declared.is_empty() {
        return Vec::new();
    }
    let Ok(Members(members)) = serde_json::from_str::<Members<'_>>(text) else { return Vec::new() };
    members
        .into_iter()
        .filter(|(name, _)| declared.iter().any(|field| field == name))
        .map(|(name, raw)| (name.into(), key.json("echo", raw.get())))
        .collect()
}

/// An object's members in order, repeated keys and all.
struct Members<'a>(Vec<(Cow<'a, str>, &'a serde_json::value::RawValue)>);

impl<'de: 'a, 'a> serde::Deserialize<'de> for Members<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some((name, value)) =
                    map.next_entry::<String, &'de serde_json::value::RawValue>()?
                {
                    members.push((Cow::Owned(name), value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

/// Everything that is noted about a request: by the rules, and by the ledger.
pub(super) fn notes(cleared: &Cleared, passage: &Passage) -> Vec<Fault> {
    let mut notes = cleared.notes.clone();
    if let Some(admitted) = passage.admitted() {
        notes.extend(admitted.notes.iter().cloned());
    }
    notes
}
