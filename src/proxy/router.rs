//! Which path is what. Everything that is not named here is closed, spelled exactly: no normalising, so
//! no second spelling of the guarded path slips by it.

use super::refusal::Refusal;
use crate::guard::fault::Code;
use http::Method;

/// The guarded path.
pub(crate) const CHAT: &str = "/v1/chat/completions";
const MODELS: &str = "/v1/models";
const CONTROL: &str = "/guard/v1/";

/// What is said of any other path; most often the base URL lacks its `/v1`.
const CLOSED: &str = "This route is closed: it would go around the guard. Guarded is \
    /v1/chat/completions: a client's base URL ends in /v1.";

/// What a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Chat completions: guarded.
    Chat,
    /// Models: forwarded.
    Models,
    /// The proxy lives.
    Health,
    /// The control API.
    Control,
    /// Opened by the operator: forwarded unguarded.
    Pass,
    /// Closed; in words, why.
    Closed(String),
}

impl Target {
    /// Of a method and a path as sent. `pass` are the operator's open paths.
    #[must_use]
    pub(crate) fn of(method: &Method, path: &str, pass: &[String]) -> Self {
        let only = |wanted: Method, target: Target| {
            if *method == wanted {
                target
            } else {
                Target::Closed(format!("This route takes {wanted} only."))
            }
        };
        match path {
            CHAT => only(Method::POST, Target::Chat),
            MODELS => only(Method::GET, Target::Models),
            "/health" => only(Method::GET, Target::Health),
            _ if path.starts_with(CONTROL) => Target::Control,
            _ if is_model(path) => only(Method::GET, Target::Models),
            _ if pass.iter().any(|open| open == path) => Target::Pass,
            _ => Target::Closed(CLOSED.to_owned()),
        }
    }

    /// The refusal of a closed route.
    #[must_use]
    pub(crate) fn closed(message: String) -> Refusal {
        Refusal::plain(Code::RouteClosed, message)
    }
}

/// `/v1/models/{id}`, where an id may hold slashes (`org/name`), encoded or not, but nothing that a
/// server behind could fold into another path.
fn is_model(path: &str) -> bool {
    let Some(id) = path.strip_prefix("/v1/models/") else { return false };
    let lower = id.to_ascii_lowercase();
    let tricks = ["%25", "%2e", "%5c", "%00", "\\"];
    if tricks.iter().any(|trick| lower.contains(trick)) {
        return false;
    }
    lower.replace("%2f", "/").split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_is_what_it_says() {
        let pass = vec!["/v1/embeddings".to_owned()];
        let cases = [
            ("POST", "/v1/chat/completions", "chat"),
            ("GET", "/v1/chat/completions", "closed"),
            ("POST", "//v1/chat/completions", "closed"),
            ("POST", "/v1/chat/completions/", "closed"),
            ("POST", "/v1/chat%2fcompletions", "closed"),
            ("POST", "/v1/./chat/completions", "closed"),
            ("POST", "/V1/chat/completions", "closed"),
            ("POST", "/v1/completions", "closed"),
            ("POST", "/generate", "closed"),
            ("POST", "/abort_request", "closed"),
            ("GET", "/v1/models", "models"),
            ("POST", "/v1/models", "closed"),
            ("GET", "/v1/models/qwen", "models"),
            ("GET", "/v1/models/Qwen/Qwen3-8B", "models"),
            ("GET", "/v1/models/Qwen%2FQwen3-8B", "models"),
            ("GET", "/v1/models/", "closed"),
            ("GET", "/v1/models/../chat/completions", "closed"),
            ("GET", "/v1/models/%2e%2e/chat/completions", "closed"),
            ("GET", "/v1/models/x%2f..%2f..%2fflush_cache", "closed"),
            ("GET", "/v1/models/x%252f..", "closed"),
            ("GET", "/v1/models/x//y", "closed"),
            ("GET", "/health", "health"),
            ("POST", "/health", "closed"),
            ("POST", "/guard/v1/conversations/a/generation", "control"),
            ("POST", "/v1/embeddings", "pass"),
            ("POST", "/v1/embeddings/", "closed"),
            ("GET", "/", "closed"),
            ("GET", "", "closed"),
        ];
        for (method, path, wanted) in cases {
            let method = Method::from_bytes(method.as_bytes()).unwrap_or_default();
            let found = match Target::of(&method, path, &pass) {
                Target::Chat => "chat",
                Target::Models => "models",
                Target::Health => "health",
                Target::Control => "control",
                Target::Pass => "pass",
                Target::Closed(_) => "closed",
            };
            assert_eq!(found, wanted, "{method} {path}");
        }
    }
}
