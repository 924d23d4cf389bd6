//! The control API for applications: tell that the user moved on, decide on a result when it comes back,
//! read and forget a conversation. Same credentials and same verdicts as the guarded route.

use super::record;
use crate::guard::fault::Code;
use crate::ledger::digest::Digest;
use crate::ledger::event::{Advance, Decide, Event, ExchangeId, Outcome, Refused, Transition};
use crate::policy::Policy;
use crate::proxy::Gateway;
use crate::proxy::body::too_large;
use crate::proxy::exchange;
use crate::proxy::headers::{MAX_GENERATION, is_conversation_id};
use crate::proxy::identity::Principal;
use crate::proxy::journal::Journal;
use crate::proxy::question::{Content, conversation_key, idempotency};
use crate::proxy::refusal::Refusal;
use crate::proxy::router::Target;
use crate::store::ConversationKey;
use crate::telemetry::{ExchangeOutcome, Route};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::routing::{get, post};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::sync::Arc;

/// The routes under `/guard/v1/`.
pub fn router(gateway: &Arc<Gateway>) -> Router {
    let base = "/guard/v1/conversations/{id}";
    Router::new()
        .route(&format!("{base}/generation"), post(advance))
        .route(&format!("{base}/results"), post(decide))
        .route(base, get(read).delete(forget))
        .fallback(closed)
        .method_not_allowed_fallback(closed)
        .with_state(Arc::clone(gateway))
}

type Asked = Result<(Value, Option<u64>), Box<Refusal>>;

/// One question under way.
struct Call<'a> {
    gateway: &'a Gateway,
    policy: &'a Policy,
    key: ConversationKey,
}

impl<'a> Call<'a> {
    fn new(gateway: &'a Gateway, policy: &'a Policy, id: &str) -> Result<Self, Box<Refusal>> {
        if !is_conversation_id(id) {
            return Err(Box::new(Refusal::plain(
                Code::ConversationInvalid,
                "A conversation's id is 1 to 256 visible ASCII characters.",
            )));
        }
        if gateway.is_draining() {
            return Err(Box::new(Refusal::plain(Code::Draining, "This proxy is shutting down.")));
        }
        let key = conversation_key(gateway.store().digest_key(), &Principal::anonymous(), id);
        Ok(Call { gateway, policy, key })
    }

    async fn apply(&self, event: Event) -> Result<Outcome, Box<Refusal>> {
        let applied = self.gateway.apply(&self.key, event, &self.policy.ledger).await;
        applied
            .map(|Transition { outcome, .. }| outcome)
            .map_err(|error| Box::new(Refusal::of_store(&error)))
    }

    fn digest_of(&self, idempotency_key: Option<Vec<u8>>) -> Option<Digest> {
        let key = self.gateway.store().digest_key();
        idempotency_key.map(|text| idempotency(key, &text))
    }
}

fn refused(refused: Refused) -> Box<Refusal> {
    Box::new(Refusal::of_ledger(refused))
}

fn unexpected() -> Box<Refusal> {
    Box::new(Refusal::plain(Code::StoreUnavailable, "The store answered something else."))
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct AdvanceBody {
    generation: Option<u64>,
}

async fn advance(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    request: Request,
) -> Response<Body> {
    let settings = gateway.settings();
    let mut journal = Journal::open(&gateway, Route::Control, request.headers());
    let asked: Asked = async {
        let key = idempotency_key(&request);
        let body: AdvanceBody = read_json(request, &settings.policy).await?.unwrap_or_default();
        check_generation(body.generation)?;
        let call = Call::new(&gateway, &settings.policy, &id)?;
        let event = Advance {
            exchange: journal.exchange(),
            generation: body.generation,
            idempotency: call.digest_of(key),
        };
        match call.apply(Event::Advance(event)).await? {
            Outcome::Advanced { generation, superseded, cancelled } => Ok((
                json!({
                    "generation": generation,
                    "superseded_calls": superseded,
                    "cancelled_exchanges": cancelled,
                }),
                Some(generation),
            )),
            Outcome::Refused(reasons) => Err(refused(reasons)),
            _ => Err(unexpected()),
        }
    }
    .await;
    answer(asked, &mut journal)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResultBody {
    generation: u64,
    tool_call_id: String,
    name: Option<String>,
    content: Box<RawValue>,
    attempt: Option<u32>,
}

async fn decide(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    request: Request,
) -> Response<Body> {
    let settings = gateway.settings();
    let mut journal = Journal::open(&gateway, Route::Control, request.headers());
    let asked: Asked = async {
        let key = idempotency_key(&request);
        let body: ResultBody = read_json(request, &settings.policy).await?.ok_or_else(|| {
            Box::new(Refusal::plain(Code::BodyInvalid, "The body must be a JSON object."))
        })?;
        check_generation(Some(body.generation))?;
        let call = Call::new(&gateway, &settings.policy, &id)?;
        let event = question(&call, &settings.closings, &body, journal.exchange(), key).await?;
        match call.apply(Event::Decide(event)).await? {
            Outcome::Accepted { .. } => Ok((
                json!({
                    "verdict": "accepted",
                    "message": {
                        "role": "tool",
                        "tool_call_id": body.tool_call_id,
                        "content": body.content,
                    },
                }),
                Some(body.generation),
            )),
            Outcome::Refused(reasons) => Err(refused(reasons)),
            _ => Err(unexpected()),
        }
    }
    .await;
    answer(asked, &mut journal)
}

fn idempotency_key(request: &Request) -> Option<Vec<u8>> {
    request.headers().get("idempotency-key").map(|value| value.as_bytes().to_vec())
}

/// The same digests that the later continuation will give.
async fn question(
    call: &Call<'_>,
    closings: &std::collections::HashSet<String>,
    body: &ResultBody,
    exchange: ExchangeId,
    idempotency: Option<Vec<u8>>,
) -> Result<Decide, Box<Refusal>> {
    let key = call.gateway.store().digest_key();
    let mut declared = None;
    if !call.policy.tools.each.is_empty() {
        let known = call.gateway.store().read(&call.key).await;
        let known = known.map_err(|error| Box::new(Refusal::of_store(&error)))?;
        let tool = known.and_then(|conversation| {
            let proposal = conversation.calls().with_id(&body.tool_call_id).next()?;
            let at = proposal.call(&body.tool_call_id, None)?;
            proposal.calls.get(at).map(|call| call.tool.clone())
        });
        declared = tool.and_then(|tool| call.policy.tools.each.get(&*tool));
    }
    let content = Content::read(key, body.content.get(), closings, declared);
    Ok(Decide {
        exchange,
        generation: body.generation,
        id: body.tool_call_id.as_str().into(),
        name: body.name.as_deref().map(Into::into),
        result: content.result,
        closing: content.closing,
        echoes: content.echoes,
        attempt: body.attempt,
        idempotency: call.digest_of(idempotency),
    })
}

async fn read(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    request: Request,
) -> Response<Body> {
    let settings = gateway.settings();
    let mut journal = Journal::open(&gateway, Route::Control, request.headers());
    let asked: Asked = async {
        let call = Call::new(&gateway, &settings.policy, &id)?;
        let known = gateway.store().read(&call.key).await;
        let known = known.map_err(|error| Box::new(Refusal::of_store(&error)))?;
        Ok((record::of(&id, known.as_ref()), None))
    }
    .await;
    answer(asked, &mut journal)
}

async fn forget(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    request: Request,
) -> Response<Body> {
    let settings = gateway.settings();
    let mut journal = Journal::open(&gateway, Route::Control, request.headers());
    let asked: Asked = async {
        let call = Call::new(&gateway, &settings.policy, &id)?;
        let removed = gateway.store().remove(&call.key).await;
        let removed = removed.map_err(|error| Box::new(Refusal::of_store(&error)))?;
        Ok((json!({ "conversation": id, "forgotten": removed }), None))
    }
    .await;
    answer(asked, &mut journal)
}

async fn closed(State(gateway): State<Arc<Gateway>>, request: Request) -> Response<Body> {
    let mut journal = Journal::open(&gateway, Route::Closed, request.headers());
    let refusal = Target::closed("The control API has no such call.".to_owned());
    answer(Err(Box::new(refusal)), &mut journal)
}

fn answer(asked: Asked, journal: &mut Journal) -> Response<Body> {
    match asked {
        Err(refusal) => exchange::refuse(&refusal, journal),
        Ok((value, generation)) => {
            journal.stamp.generation = generation;
            journal.ends(ExchangeOutcome::Delivered);
            journal.answers(StatusCode::OK);
            let mut response = exchange::json(StatusCode::OK, value.to_string());
            journal.stamp.passed(response.headers_mut(), &[]);
            response
        }
    }
}

fn check_generation(generation: Option<u64>) -> Result<(), Box<Refusal>> {
    if generation.is_none_or(|number| number <= MAX_GENERATION) {
        return Ok(());
    }
    Err(Box::new(Refusal::at(
        Code::GenerationInvalid,
        "generation",
        "The generation must be a whole number from 0 to 2^53-1.",
    )))
}

/// Reads a small JSON object; `None` when there is no body.
async fn read_json<T: DeserializeOwned>(
    request: Request,
    policy: &Policy,
) -> Result<Option<T>, Box<Refusal>> {
    let limits = &policy.limits;
    let limited = Limited::new(request.into_body(), limits.body_bytes);
    let collected = tokio::time::timeout(limits.header_read_timeout, limited.collect()).await;
    let bytes = match collected {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            return Err(too_large(limits));
        }
        Ok(Err(_)) | Err(_) => {
            return Err(Box::new(Refusal::plain(Code::BodyInvalid, "The body did not arrive.")));
        }
    };
    if bytes.trim_ascii().is_empty() {
        return Ok(None);
    }
    // The parser's own words could quote a value, so only the place is told, and the name of an unknown key.
    serde_json::from_slice(&bytes).map(Some).map_err(|error| {
        let text = error.to_string();
        if let Some(key) = text.strip_prefix("unknown field `").and_then(|it| it.split('`').next())
        {
            let key: String = key.chars().take(64).collect();
            let message = format!("The body has a key that this call does not know: \"{key}\".");
            return Box::new(Refusal::at(Code::BodyInvalid, &key, message));
        }
        Box::new(Refusal::plain(
            Code::BodyInvalid,
            format!(
                "The body is not what this call takes (line {}, column {}).",
                error.line(),
                error.column()
            ),
        ))
    })
}
