//! Names of headers that a configuration gives.

use super::findings::Findings;
use super::section::Found;
use http::HeaderName;

/// A header that a client may set freely.
pub(super) fn header_name(found: &Found<String>, findings: &Findings) -> Option<HeaderName> {
    let Ok(header) = HeaderName::from_bytes(found.value.as_bytes()) else {
        let message = format!(
            "\"{}\" is no header name; write letters, digits and dashes, such as \"x-session\"",
            found.value
        );
        findings.tell(&found.origin, &found.key, message);
        return None;
    };
    let taken = [
        "authorization",
        "connection",
        "cookie",
        "host",
        "idempotency-key",
        "traceparent",
        "transfer-encoding",
        "x-request-id",
        "x-stainless-retry-count",
    ];
    let ours = ["content-", "x-tigertally-"];
    let name = header.as_str();
    if taken.contains(&name) || ours.iter().any(|prefix| name.starts_with(prefix)) {
        let message = format!("\"{header}\" has a meaning of its own; choose another header");
        findings.tell(&found.origin, &found.key, message);
        return None;
    }
    Some(header)
}
