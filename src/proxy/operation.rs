//! The operation keys of writes, as applications see them: one key per write, and the answer header that
//! tells those of a whole answer. In a stream the head is out before the calls are known.

use crate::ledger::digest::{Digest, DigestKey};
use crate::ledger::event::Operation;
use crate::store::ConversationKey;
use http::HeaderValue;
use std::fmt::Write;

/// Most bytes of the header: servers and clients bound all headers together at 8 KiB and up.
const HEADER_BYTES: usize = 4096;

/// The operation key of a write in that conversation.
#[must_use]
pub(crate) fn key(secret: &DigestKey, of: &ConversationKey, write: &Operation) -> Digest {
    write.key(secret, &of.principal, &of.conversation)
}

/// `<tool_call_id>=<key>, …`, ids percent-encoded. Whole entries only: what does not fit is left out.
#[must_use]
pub(crate) fn header<'a>(
    writes: impl IntoIterator<Item = (&'a str, Digest)>,
) -> Option<HeaderValue> {
    let mut text = String::new();
    for (id, key) in writes {
        let entry = format!("{}={key}", encoded(id));
        if text.len() + entry.len() + 2 > HEADER_BYTES {
            continue;
        }
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(&entry);
    }
    if text.is_empty() { None } else { HeaderValue::from_str(&text).ok() }
}

/// An id as it can stand in a path: RFC 3986's unreserved characters, and the colon of `functions.x:0`.
fn encoded(id: &str) -> String {
    let mut text = String::with_capacity(id.len());
    for byte in id.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn written(ids: &[&str]) -> String {
        let writes = ids.iter().map(|id| (*id, Digest::from_bytes([0xab; 16])));
        header(writes).map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn ids_are_safe_in_the_header_and_in_a_path() {
        let key = "ab".repeat(16);
        assert_eq!(written(&[]), "");
        assert_eq!(
            written(&["call_1", "functions.x:0", "a=b, c/ü\n%"]),
            format!("call_1={key}, functions.x:0={key}, a%3Db%2C%20c%2F%C3%BC%0A%25={key}")
        );
    }

    #[test]
    fn the_header_is_bounded_and_holds_whole_entries() {
        let long = "x".repeat(HEADER_BYTES);
        let many: Vec<String> = (0..200).map(|n| format!("call_{n}")).collect();
        let ids: Vec<&str> =
            [long.as_str()].into_iter().chain(many.iter().map(String::as_str)).collect();
        let text = written(&ids);
        assert!(text.starts_with("call_0=") && text.len() <= HEADER_BYTES);
        assert!(text.split(", ").all(|entry| entry.len() > 33 && entry.ends_with("ab")));
    }
}
