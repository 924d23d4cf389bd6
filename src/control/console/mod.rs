//! The console: one page for operators, and what it reads.
//!
//! The page is three files that come with the program. It is read-only, loads nothing from elsewhere and may run no
//! script but its own: ids from traffic reach it as JSON and are shown as text. It is open to whoever is beside the
//! proxy; what it shows is under `/admin/v1/` and takes the admin port's token.
//!
//! What is read comes from the feed (this process, bounded) and, for one conversation, from the store. Pages of the
//! list are bounded, and so is the number of pages that listen for changes.

mod events;
mod telling;

use super::question::operation_of;
use super::record;
use crate::guard::fault::Code;
use crate::ledger::digest::Digest;
use crate::ledger::event::TaskOutcome;
use crate::proxy::Gateway;
use crate::proxy::headers::is_conversation_id;
use crate::proxy::identity::Principal;
use crate::proxy::question::conversation_key;
use crate::proxy::reply::json;
use crate::store::ConversationKey;
use crate::telemetry::feed::{Filter, Look, Standing};
use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, FromRef, Path, Query, State};
use axum::middleware;
use axum::routing::get;
use http::{HeaderValue, Response, StatusCode, header};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;

/// The page's files: where each is, what it is, and its text.
const FILES: [(&str, &str, &str); 8] = [
    ("/console", "text/html; charset=utf-8", include_str!("page/console.html")),
    ("/console/style.css", "text/css; charset=utf-8", include_str!("page/style.css")),
    ("/console/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
    ("/console/app.js", SCRIPT, include_str!("page/app.js")),
    ("/console/dom.js", SCRIPT, include_str!("page/dom.js")),
    ("/console/source.js", SCRIPT, include_str!("page/source.js")),
    ("/console/rates.js", SCRIPT, include_str!("page/rates.js")),
    ("/console/timeline.js", SCRIPT, include_str!("page/timeline.js")),
];
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Nothing from elsewhere, no script or style but our own files, no markup out of text, in nobody's frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// Rows of a page of the list, unless told otherwise.
const ROWS: usize = 50;

/// The page's files.
pub(super) fn page<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let file = |media: &'static str, text: &'static str| {
        get(move || async move {
            let mut response = Response::new(Body::from(text));
            let media = HeaderValue::from_static(media);
            response.headers_mut().insert(header::CONTENT_TYPE, media);
            response
        })
    };
    FILES
        .into_iter()
        .fold(Router::new(), |router, (path, media, text)| router.route(path, file(media, text)))
        .route_layer(middleware::map_response(guarded))
}

/// What the page reads. Begins to take what the gateway's feed is told, until the gateway ends.
pub(super) fn api<S>(gateway: &Arc<Gateway>) -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    Arc<Gateway>: FromRef<S>,
{
    let (feed, cut) = (gateway.metrics().feed().clone(), gateway.cut.clone());
    gateway.spawn(async move {
        tokio::select! {
            () = cut.comes() => {}
            () = feed.run() => {}
        }
    });
    Router::new()
        .route("/admin/v1/overview", get(overview))
        .route("/admin/v1/conversations", get(list))
        .route("/admin/v1/conversations/{handle}", get(one))
        .route("/admin/v1/events", get(events::listen).with_state(events::Listeners::of(gateway)))
        .route_layer(middleware::map_response(guarded))
}

/// The headers of everything here.
async fn guarded(mut response: Response<Body>) -> Response<Body> {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (
            header::HeaderName::from_static("permissions-policy"),
            "camera=(), geolocation=(), microphone=()",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn overview(State(gateway): State<Arc<Gateway>>) -> Response<Body> {
    json(StatusCode::OK, telling::overview(&gateway).to_string())
}

/// What a page of the list may be asked for.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Asked {
    text: String,
    state: String,
    code: String,
    before: Option<u64>,
    limit: Option<usize>,
}

impl Asked {
    /// The look that it means, or which word is unknown.
    fn look(self) -> Result<Look, &'static str> {
        let standing = match self.state.as_str() {
            "" | "all" => None,
            "open" => Some(Standing::Open),
            "refused" => Some(Standing::Refused),
            "completed" => Some(Standing::Ended(TaskOutcome::Completed)),
            "superseded" => Some(Standing::Ended(TaskOutcome::Superseded)),
            "incomplete" => Some(Standing::Ended(TaskOutcome::Incomplete)),
            "failed" => Some(Standing::Ended(TaskOutcome::Failed)),
            "expired" => Some(Standing::Ended(TaskOutcome::Expired)),
            _ => return Err("state"),
        };
        let code = match self.code.as_str() {
            "" => None,
            name => Some(Code::parse(name).ok_or("code")?),
        };
        let text = Some(self.text).filter(|text| !text.is_empty());
        let filter = Filter { text, standing, code };
        Ok(Look { filter, before: self.before, limit: self.limit.unwrap_or(ROWS) })
    }
}

async fn list(
    State(gateway): State<Arc<Gateway>>,
    Extension(principal): Extension<Principal>,
    Query(asked): Query<Asked>,
) -> Response<Body> {
    let exact = Some(asked.text.as_str()).filter(|text| is_conversation_id(text)).map(|name| {
        handle(&Some(conversation_key(gateway.store().digest_key(), &principal, name)))
    });
    match asked.look() {
        Ok(look) => {
            let told = telling::list(&gateway, &look, exact);
            json(StatusCode::OK, told.to_string())
        }
        Err(word) => {
            json(StatusCode::BAD_REQUEST, json!({ "error": "unknown", "param": word }).to_string())
        }
    }
}

async fn one(State(gateway): State<Arc<Gateway>>, Path(name): Path<String>) -> Response<Body> {
    let Some(place) = place(&name) else {
        return json(StatusCode::NOT_FOUND, json!({ "error": "no such conversation" }).to_string());
    };
    let seen = gateway.metrics().feed().read(|board| board.one(&place));
    let mut told = telling::one(&name, seen.as_ref());
    if let Some(key) = &place {
        let name = seen.as_ref().map_or("", |(row, ..)| &*row.name);
        // The ledger's own words; without the store, the page says that it is missing.
        if let Ok(known) = gateway.store().read(key).await {
            let of = |write: &_| operation_of(&gateway, key, write);
            told["record"] = record::of(name, known.as_ref(), of);
        }
    }
    json(StatusCode::OK, told.to_string())
}

/// The place of all exchanges that name no conversation.
const UNTRACKED: &str = "untracked";

/// What the page calls a conversation: the digests that the store keeps it by.
fn handle(place: &Option<ConversationKey>) -> String {
    match place {
        None => UNTRACKED.to_owned(),
        Some(key) => format!("{}{}", key.principal, key.conversation),
    }
}

/// The conversation of that handle.
fn place(handle: &str) -> Option<Option<ConversationKey>> {
    if handle == UNTRACKED {
        return Some(None);
    }
    let mut bytes = [0; 32];
    if handle.len() != 64 || !handle.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(handle.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    let (principal, conversation) = bytes.split_at(16);
    Some(Some(ConversationKey {
        principal: Digest::from_bytes(principal.try_into().ok()?),
        conversation: Digest::from_bytes(conversation.try_into().ok()?),
    }))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_handle_names_its_conversation_and_nothing_else_does() {
        let key = ConversationKey {
            principal: Digest::from_bytes([0xa1; 16]),
            conversation: Digest::from_bytes(*b"0123456789abcdef"),
        };
        for place_of in [None, Some(key)] {
            assert_eq!(place(&handle(&place_of)), Some(place_of));
        }
        for bad in ["", "chat-17", "<img src=x>", &"g".repeat(64), &"a".repeat(63), &"é".repeat(32)]
        {
            assert_eq!(place(bad), None, "{bad}");
        }
    }

    #[test]
    fn unknown_words_are_told_and_known_ones_are_all_there() {
        let look = |state: &str, code: &str| {
            let (state, code) = (state.to_owned(), code.to_owned());
            Asked { state, code, ..Asked::default() }.look()
        };
        for state in
            ["", "all", "open", "refused", "completed", "superseded", "incomplete", "failed"]
        {
            assert!(look(state, "").is_ok(), "{state}");
        }
        assert_eq!(look("refused", "stale").unwrap().filter.code, Some(Code::Stale));
        assert_eq!(look("shut", "").unwrap_err(), "state");
        assert_eq!(look("", "<b>").unwrap_err(), "code");
    }

    /// A page that could run a script from a text would undo everything else.
    #[test]
    fn the_page_brings_nothing_inline_and_makes_no_markup_out_of_text() {
        let markup =
            ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "new Function"];
        let inline = [" style=", "<style", " onclick", " onload", "javascript:"];
        for (path, media, text) in FILES {
            let banned: &[&str] = if media == SCRIPT { &markup } else { &inline };
            // The drawing's own pattern is within the page.
            let text = text.replace("url(#hatch)", "");
            for word in banned.iter().chain(&["https://", "url(", "@import"]) {
                assert!(!text.contains(word), "{path} has {word}");
            }
        }
        let scripts: Vec<&str> = FILES[0].2.split("<script").skip(1).collect();
        assert_eq!(scripts.len(), 1);
        assert!(scripts[0].starts_with(" src=\"/console/app.js\" type=\"module\"></script>"));
    }
}
