//! Addresses to listen on, what they demand of each other, and the paths that are opened unguarded.

use super::Policy;
use super::findings::Findings;
use super::problem::Origin;
use super::section::{Found, Section};
use std::net::SocketAddr;

/// An address to listen on. Gives its place, for what else may be wrong with it.
pub(super) fn address(
    found: Option<Found<String>>,
    slot: &mut SocketAddr,
    findings: &Findings,
) -> Origin {
    let Some(found) = found else { return Origin::Default };
    match found.value.parse() {
        Ok(address) => *slot = address,
        Err(_) => {
            let hint = match found.value.rsplit_once(':') {
                Some(("localhost", port)) => format!("write \"127.0.0.1:{port}\""),
                Some(("" | "*", port)) => {
                    format!("write \"127.0.0.1:{port}\", or \"0.0.0.0:{port}\" for every interface")
                }
                _ => "write an IP address and a port, such as \"127.0.0.1:8090\"".to_owned(),
            };
            findings.tell(&found.origin, &found.key, format!("is no address to listen on; {hint}"));
        }
    }
    found.origin
}

/// What the two ports demand: of each other, and when others can reach them.
pub(super) fn together(
    policy: &Policy,
    insecure: bool,
    listen: &Origin,
    admin: &Origin,
    findings: &Findings,
) {
    if policy.is_open_to_others() && !insecure {
        findings.tell(
            listen,
            "listen",
            "others can reach this address, and auth.mode = \"none\" asks nobody who they are; \
             set auth.mode, listen on 127.0.0.1, or set insecure = true (--insecure) if the network keeps others out",
        );
    }
    if !policy.admin.listen.ip().is_loopback() && policy.admin.token.is_none() {
        findings.tell(
            admin,
            "admin.listen",
            "others can reach this address; set admin.token_file, or listen on 127.0.0.1",
        );
    }
    if policy.listen == policy.admin.listen && policy.listen.port() != 0 {
        findings.tell(admin, "admin.listen", "is the client port's address too; give it its own");
    }
    if policy.upstream.url.authority().is_some_and(|it| it.as_str() == policy.listen.to_string()) {
        findings.tell(
            listen,
            "listen",
            "is the upstream's address too: requests would go in a circle",
        );
    }
}

/// Single paths that are opened unguarded.
pub(super) fn routes(mut section: Section<'_>, findings: &Findings) -> Vec<String> {
    let mut pass = Vec::new();
    for path in section.list("pass").unwrap_or_default() {
        let route = path.value.as_str();
        let wrong = if !route.starts_with('/') {
            Some("must begin with \"/\"")
        } else if route.contains(['*', '?', '#', ' ', '{']) {
            Some("must be one exact path, without a pattern or a query")
        } else if !is_plain(route) {
            Some(
                "must be spelled plainly: no \"%\", \"\\\", \";\", \"//\", or \".\" and \"..\" as a part",
            )
        } else if is_own(route) {
            Some("is a route of this proxy; it cannot be passed by")
        } else {
            None
        };
        match wrong {
            Some(wrong) => findings.tell(&path.origin, &path.key, format!("\"{route}\" {wrong}")),
            None => pass.push(path.value),
        }
    }
    section.finish();
    pass
}

/// Whether a server behind cannot read this path as another one.
fn is_plain(route: &str) -> bool {
    route.chars().all(|letter| letter.is_ascii_graphic() && !matches!(letter, '%' | '\\' | ';'))
        && !route.contains("//")
        && route.split('/').all(|part| !matches!(part, "." | ".."))
}

/// Whether a path is one of the proxy's own, or one that a lenient server takes for it.
fn is_own(route: &str) -> bool {
    let route = route.to_ascii_lowercase();
    let route = route.trim_end_matches('/');
    matches!(route, "/v1/chat/completions" | "/v1/models" | "/health" | "/guard")
        || route.starts_with("/v1/models/")
        || route.starts_with("/guard/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_spelling_of_an_own_route_can_be_opened_and_others_can() {
        for (route, opens) in [
            ("/v1/chat/completions", false),
            ("/v1/chat/completions/", false),
            ("/V1/Chat/Completions", false),
            ("//v1/chat/completions", false),
            ("/v1//chat/completions", false),
            ("/v1/./chat/completions", false),
            ("/v1/x/../chat/completions", false),
            ("/v1/chat%2Fcompletions", false),
            ("/v1/chat/completion%73", false),
            ("/v1\\chat\\completions", false),
            ("/v1/chat/completions;x", false),
            ("/v1/models/", false),
            ("/health/", false),
            ("/guard", false),
            ("/guard/v1/conversations/c", false),
            ("/Guard/", false),
            ("/v1/embeddings", true),
            ("/v1/embeddings/", true),
            ("/v1/completions", true),
            ("/get_model_info", true),
            ("/files/a.b..c", true),
            ("/guardian", true),
        ] {
            assert_eq!(is_plain(route) && !is_own(route), opens, "{route}");
        }
    }
}
