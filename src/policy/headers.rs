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
    let taken =
        ["authorization", "cookie", "host", "connection", "transfer-encoding", "x-request-id"];
    if taken.contains(&header.as_str()) || header.as_str().starts_with("content-") {
        let message = format!("\"{header}\" has a meaning of its own; choose another header");
        findings.tell(&found.origin, &found.key, message);
        return None;
    }
    Some(header)
}
