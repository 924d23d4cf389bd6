//! The control API for applications: tell that the user moved on, decide on a result when it comes back,
//! read and forget a conversation. Same credentials and same verdicts as the guarded route.

use super::body::{self, Whole};
use super::question::{Asked, Named, Question, answer, named, refused, unexpected};
use super::{calls, openapi, record, writes};
use crate::ledger::event::{Advance, Decide, Event, ExchangeId, Outcome};
use crate::proxy::Gateway;
use crate::proxy::identity::Principal;
use crate::proxy::journal::Journal;
use crate::proxy::question::Content;
use crate::proxy::refusal::Refusal;
use crate::proxy::router::Target;
use crate::telemetry::Route;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::routing::{get, post};
use axum::{Extension, Router};
use http::Response;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use std::sync::Arc;

/// The routes under `/guard/v1/`.
pub fn router(gateway: &Arc<Gateway>) -> Router {
    let base = "/guard/v1/conversations/{id}";
    Router::new()
        .route(&format!("{base}/generation"), post(advance))
        .route(&format!("{base}/results"), post(decide))
        .route(calls::START, post(calls::start))
        .route(writes::RESOLVE, post(writes::resolve))
        .route(base, get(read).delete(forget))
        .route(openapi::PATH, get(openapi::document))
        .fallback(closed)
        .method_not_allowed_fallback(closed)
        .with_state(Arc::clone(gateway))
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct AdvanceBody {
    generation: Option<Whole>,
}

async fn advance(
    State(gateway): State<Arc<Gateway>>,
    Extension(principal): Extension<Principal>,
    path: Named<String>,
    request: Request,
) -> Response<Body> {
    let settings = gateway.settings();
    let mut journal = Journal::open(&gateway, Route::Control, request.headers());
    let asked: Asked = async {
        let id = named(path)?;
        let key = idempotency_key(&request);
        let body: AdvanceBody =
            body::read_json(request, &settings.policy).await?.unwrap_or_default();
        let generation = body.generation.map(body::generation).transpose()?;
        let question = Question::new(&gateway, &settings.policy, &principal, &id)?;
        question.asks("advance", &mut journal);
        let event = Advance {
            exchange: journal.exchange(),
            generation,
            idempotency: question.digest_of(key),
        };
        match question.apply(Event::Advance(event)).await? {
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
    generation: Whole,
    tool_call_id: String,
    name: Option<String>,
    content: Box<RawValue>,
    attempt: Option<Whole>,
}

async fn decide(
    State(gateway): State<Arc<Gateway>>,
    Extension(principal): Extension<Principal>,
    path: Named<String>,
    request: Request,
) -> Response<Body> {
    let settings = gateway.settings();
    let mut journal = Journal::open(&gateway, Route::Control, request.headers());
    let asked: Asked = async {
        let id = named(path)?;
        let key = idempotency_key(&request);
        let body: ResultBody = body::need_json(request, &settings.policy).await?;
        let generation = body::generation(body.generation)?;
        check_content(&body.content)?;
        let question = Question::new(&gateway, &settings.policy, &principal, &id)?;
        question.asks("decide", &mut journal);
        let event = told(&question, &settings.closings, &body, journal.exchange(), key).await?;
        match question.apply(Event::Decide(event)).await? {
            Outcome::Accepted { .. } => Ok((
                json!({
                    "verdict": "accepted",
                    "message": {
                        "role": "tool",
                        "tool_call_id": body.tool_call_id,
                        "content": body.content,
                    },
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

/// A tool message's content is a text or a list of parts. Anything else would be accepted here and then be
/// refused by the model's server, when the call has its one final result already.
fn check_content(content: &RawValue) -> Result<(), Box<Refusal>> {
    let text = content.get();
    let sound = match text.as_bytes().first() {
        Some(b'"') => true,
        Some(b'[') => serde_json::from_str::<Vec<&RawValue>>(text)
            .is_ok_and(|parts| parts.iter().all(|part| part.get().starts_with('{'))),
        _ => false,
    };
    if sound {
        return Ok(());
    }
    let message = "The content must be what a tool message may carry: a string or a list of parts.";
    Err(body::invalid("content", message.to_owned()))
}

fn idempotency_key(request: &Request) -> Option<Vec<u8>> {
    request.headers().get("idempotency-key").map(|value| value.as_bytes().to_vec())
}

/// The same digests that the later continuation will give.
async fn told(
    question: &Question<'_>,
    closings: &std::collections::HashSet<String>,
    body: &ResultBody,
    exchange: ExchangeId,
    idempotency: Option<Vec<u8>>,
) -> Result<Decide, Box<Refusal>> {
    let key = question.digest_key();
    let mut declared = None;
    if !question.policy.tools.each.is_empty() {
        let tool = question.conversation().await?.and_then(|conversation| {
            let proposal = conversation.calls().with_id(&body.tool_call_id).next()?;
            let at = proposal.call(&body.tool_call_id, None)?;
            proposal.calls.get(at).map(|call| call.tool.clone())
        });
        declared = tool.and_then(|tool| question.policy.tools.each.get(&*tool));
    }
    let content = Content::read(key, body.content.get(), None, closings, declared);
    Ok(Decide {
        exchange,
        generation: body.generation.0,
        id: body.tool_call_id.as_str().into(),
        name: body.name.as_deref().map(Into::into),
        result: content.result,
        closing: content.closing,
        echoes: content.echoes,
        attempt: body::attempt(body.attempt)?,
        idempotency: question.digest_of(idempotency),
    })
}

async fn read(
    State(gateway): State<Arc<Gateway>>,
    Extension(principal): Extension<Principal>,
    path: Named<String>,
    request: Request,
) -> Response<Body> {
    let settings = gateway.settings();
    let mut journal = Journal::open(&gateway, Route::Control, request.headers());
    let asked: Asked = async {
        let id = named(path)?;
        let question = Question::new(&gateway, &settings.policy, &principal, &id)?;
        let known = question.conversation().await?;
        Ok((record::of(&id, known.as_ref(), |write| question.operation_key(write)), None))
    }
    .await;
    answer(asked, &mut journal)
}

async fn forget(
    State(gateway): State<Arc<Gateway>>,
    Extension(principal): Extension<Principal>,
    path: Named<String>,
    request: Request,
) -> Response<Body> {
    let settings = gateway.settings();
    let mut journal = Journal::open(&gateway, Route::Control, request.headers());
    let asked: Asked = async {
        let id = named(path)?;
        let removed = Question::new(&gateway, &settings.policy, &principal, &id)?.forget().await?;
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
