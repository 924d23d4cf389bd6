//! Settling a write whose outcome is unknown: whoever looked it up in its service says what became of it.
//! On the client port for applications, on the admin port for operators.

use super::body;
use super::question::{Asked, Named, Question, answer, named, refused, unexpected};
use crate::ledger::event::{Event, Outcome, Resolve};
use crate::ledger::writes;
use crate::proxy::Gateway;
use crate::proxy::identity::Principal;
use crate::proxy::journal::Journal;
use crate::proxy::refusal::Refusal;
use crate::telemetry::Route;
use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use http::Response;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;

/// Where it is told.
pub(super) const RESOLVE: &str = "/guard/v1/conversations/{id}/writes/{operation_key}";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResolveBody {
    outcome: Said,
}

/// What became of a write.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    Applied,
    NotApplied,
}

/// Settles the write of that operation key: 200, the same again included; or 422 `unmatched` when there is
/// no such write, `conflict` when its outcome is known and another one.
pub(super) async fn resolve(
    State(gateway): State<Arc<Gateway>>,
    Extension(principal): Extension<Principal>,
    path: Named<(String, String)>,
    request: Request,
) -> Response<Body> {
    let settings = gateway.settings();
    let mut journal = Journal::open(&gateway, Route::Control, request.headers());
    let asked: Asked = async {
        let (id, key) = named(path)?;
        let body: ResolveBody = body::need_json(request, &settings.policy).await?;
        let question = Question::new(&gateway, &settings.policy, &principal, &id)?;
        question.asks("resolve", &mut journal);
        let known = question.conversation().await?;
        let operation = known.and_then(|conversation| {
            let mut writes = conversation.operations().map(|(write, _)| write);
            writes.find(|write| question.operation_key(write).to_string() == key)
        });
        let Some(operation) = operation else {
            return Err(Box::new(Refusal::of_request(vec![writes::no_such_write()])));
        };
        let event = Resolve { operation, applied: body.outcome == Said::Applied };
        match question.apply(Event::Resolve(event)).await? {
            Outcome::Done => Ok((json!({ "operation_key": key, "outcome": body.outcome }), None)),
            Outcome::Refused(reasons) => Err(refused(reasons)),
            _ => Err(unexpected()),
        }
    }
    .await;
    answer(asked, &mut journal)
}
