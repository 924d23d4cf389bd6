//! Before a tool runs: an application asks whether the call is still open, current and in time.

use super::body::{self, Whole};
use super::question::{Asked, Named, Question, answer, named, refused, unexpected};
use crate::ledger::event::{Event, Outcome, Start};
use crate::proxy::Gateway;
use crate::proxy::identity::Principal;
use crate::proxy::journal::Journal;
use crate::telemetry::Route;
use crate::wire::moment;
use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use http::Response;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;

/// Where it is asked.
pub(super) const START: &str = "/guard/v1/conversations/{id}/calls/{tool_call_id}/start";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StartBody {
    generation: Whole,
}

/// Starts an attempt: 200 with its number, its deadline and, for a write, its operation key; or 422, and
/// the tool must not run. Each yes is an attempt of its own.
pub(super) async fn start(
    State(gateway): State<Arc<Gateway>>,
    Extension(principal): Extension<Principal>,
    path: Named<(String, String)>,
    request: Request,
) -> Response<Body> {
    let settings = gateway.settings();
    let mut journal = Journal::open(&gateway, Route::Control, request.headers());
    let asked: Asked = async {
        let (id, call) = named(path)?;
        let body: StartBody = body::need_json(request, &settings.policy).await?;
        let generation = body::generation(body.generation)?;
        let question = Question::new(&gateway, &settings.policy, &principal, &id)?;
        question.asks("start", &mut journal);
        let event = Start { exchange: journal.exchange(), generation, id: call.into() };
        match question.apply(Event::Start(event)).await? {
            Outcome::Started { attempt, deadline, operation, .. } => {
                let mut told = json!({
                    "attempt": attempt,
                    "deadline_at": deadline.map(|at| moment::rfc3339(at.0)),
                });
                if let Some(write) = operation {
                    told["operation_key"] = question.operation_key(&write).to_string().into();
                }
                Ok((told, Some(generation)))
            }
            Outcome::Refused(reasons) => Err(refused(reasons)),
            _ => Err(unexpected()),
        }
    }
    .await;
    answer(asked, &mut journal)
}
