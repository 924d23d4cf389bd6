//! Header hygiene: what goes up, what comes down, and what a client says in headers.

use super::abort::Rid;
use super::refusal::Refusal;
use crate::guard::fault::{Code, Fault};
use crate::ledger::event::{ExchangeId, Names};
use crate::policy::Policy;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

/// Highest generation: what a JSON number holds exactly (2^53 - 1).
pub(crate) const MAX_GENERATION: u64 = (1 << 53) - 1;

/// Most bytes of the notes header.
const NOTES_BYTES: usize = 2048;

/// Joins our record with the client's.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const GENERATION: HeaderName = HeaderName::from_static("x-generation");
const VERDICT: HeaderName = HeaderName::from_static("x-tigertally-verdict");
const NOTES: HeaderName = HeaderName::from_static("x-tigertally-notes");
/// The operation keys of the writes that a whole answer proposes.
pub(super) const OPERATIONS: HeaderName = HeaderName::from_static("x-tigertally-operations");
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
const RETRY_COUNT: HeaderName = HeaderName::from_static("x-stainless-retry-count");
const IDEMPOTENCY: HeaderName = HeaderName::from_static("idempotency-key");

/// RFC 9110, section 7.6.1, and the older names that some peers still send.
fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authorization"
    )
}

/// What the HTTP client towards the upstream says itself, or what was answered here.
fn is_set_anew(name: &str) -> bool {
    matches!(name, "host" | "content-length" | "expect")
}

/// What only we say to clients.
static OURS: [HeaderName; 5] = [GENERATION, VERDICT, NOTES, OPERATIONS, SHOULD_RETRY];

/// What clients must not say to SGLang: they steer its scheduler and routing.
fn steers_upstream(name: &str) -> bool {
    matches!(name, "x-data-parallel-rank" | "x-smg-routing-key")
        || name.starts_with("x-sglext-")
        || name.starts_with("x-override-")
}

/// Takes out what `goes`, and what belongs to one hop only. Most headers stay, so they are looked at once and
/// nothing is searched for by name.
fn strip(headers: &mut HeaderMap, goes: impl Fn(&HeaderName, &str) -> bool) {
    let mut out: SmallVec<[HeaderName; 8]> = SmallVec::new();
    for name in headers.keys() {
        let text = name.as_str();
        if is_hop_by_hop(text) || goes(name, text) {
            out.push(name.clone());
        }
    }
    for value in headers.get_all(header::CONNECTION) {
        let named = value.to_str().unwrap_or_default().split(',');
        out.extend(named.filter_map(|name| HeaderName::try_from(name.trim()).ok()));
    }
    for name in &out {
        headers.remove(name);
    }
}

/// Makes a client's headers those of the request to the upstream. `Host` and the length are set anew
/// by the HTTP client. `own_key` is the upstream's key, when we hold it; `kept_back` bear what clients
/// prove to us.
pub(crate) fn make_upward(
    headers: &mut HeaderMap,
    own_key: Option<&HeaderValue>,
    kept_back: &[HeaderName],
) {
    strip(headers, |_, name| {
        is_set_anew(name) || steers_upstream(name) || is_among(name, kept_back)
    });
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if let Some(key) = own_key {
        headers.insert(header::AUTHORIZATION, key.clone());
    }
}

/// Whether a header is one of these, also in the spelling that a server behind may take for it.
fn is_among(name: &str, names: &[HeaderName]) -> bool {
    let same = |a: u8, b: u8| a == b || (a == b'_' && b == b'-');
    names.iter().any(|other| {
        let (name, other) = (name.as_bytes(), other.as_str().as_bytes());
        name.len() == other.len() && name.iter().zip(other).all(|(a, b)| same(*a, *b))
    })
}

/// Makes the upstream's headers those of our answer. `keep_length` when the body goes down unchanged.
pub(crate) fn make_downward(headers: &mut HeaderMap, keep_length: bool) {
    strip(headers, |name, text| {
        (text.starts_with("x-") && OURS.contains(name))
            || (!keep_length && text == "content-length")
    });
}

/// The client's own request id, when it is 1 to 128 visible ASCII characters; else ours.
pub(crate) fn request_id(headers: &HeaderMap, minted: ExchangeId) -> HeaderValue {
    own_request_id(headers)
        .cloned()
        .or_else(|| HeaderValue::from_str(&minted.to_string()).ok())
        .unwrap_or_else(|| HeaderValue::from_static("-"))
}

fn own_request_id(headers: &HeaderMap) -> Option<&HeaderValue> {
    let sent = headers.get(REQUEST_ID);
    sent.filter(|value| value.len() <= 128 && is_visible(value.as_bytes()))
}

fn is_visible(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(u8::is_ascii_graphic)
}

/// Whether a text can name a conversation: 1 to 256 visible ASCII characters.
#[must_use]
pub(crate) fn is_conversation_id(text: &str) -> bool {
    text.len() <= 256 && is_visible(text.as_bytes())
}

/// What a client says about where its request belongs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The conversation header's value.
    pub conversation: Option<String>,
    /// The generation header.
    pub generation: Option<u64>,
    /// `x-stainless-retry-count` above 0.
    pub declared_retry: bool,
    /// `idempotency-key`.
    pub idempotency: Option<Vec<u8>>,
    /// The client's own `x-request-id`, if it can be used.
    pub request_id: Option<Box<str>>,
}

impl Standing {
    /// What others call the exchange, for the record.
    #[must_use]
    pub(crate) fn names(&self, rid: Option<&Rid>) -> Names {
        Names { request_id: self.request_id.clone(), rid: rid.map(Rid::as_id) }
    }

    /// Reads it.
    ///
    /// # Errors
    /// When a conversation or generation header is malformed, or two of them disagree.
    pub(crate) fn read(headers: &HeaderMap, policy: &Policy) -> Result<Self, Box<Refusal>> {
        let conversation = conversation(headers, policy)?;
        let generation = match conversation {
            Some(_) => generation(headers, policy)?,
            None => None,
        };
        let declared_retry = headers
            .get(RETRY_COUNT)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.trim().parse::<u32>().ok())
            .is_some_and(|count| count > 0);
        let idempotency = headers.get(IDEMPOTENCY).map(|value| value.as_bytes().to_vec());
        let request_id = own_request_id(headers).and_then(|value| value.to_str().ok());
        let request_id = request_id.map(Into::into);
        Ok(Standing { conversation, generation, declared_retry, idempotency, request_id })
    }
}

fn conversation(headers: &HeaderMap, policy: &Policy) -> Result<Option<String>, Box<Refusal>> {
    let refuse =
        |name: &str, text: &str| Err(Box::new(Refusal::at(Code::ConversationInvalid, name, text)));
    let mut found: Option<String> = None;
    for name in &policy.conversation_headers {
        for value in headers.get_all(name) {
            let Some(text) = value.to_str().ok().filter(|text| is_conversation_id(text)) else {
                return refuse(
                    name.as_str(),
                    "The conversation header must be 1 to 256 visible ASCII characters.",
                );
            };
            match &found {
                Some(first) if first != text => {
                    return refuse(name.as_str(), "Two conversation headers disagree.");
                }
                Some(_) => {}
                None => found = Some(text.to_owned()),
            }
        }
    }
    if found.is_none() && policy.conversation_required {
        let name = policy.conversation_headers.first().map_or("", HeaderName::as_str);
        return refuse(name, "A conversation header is required here.");
    }
    Ok(found)
}

fn generation(headers: &HeaderMap, policy: &Policy) -> Result<Option<u64>, Box<Refusal>> {
    let name = &policy.generation_header;
    let mut found = None;
    for value in headers.get_all(name) {
        let number = value
            .to_str()
            .ok()
            .filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|text| text.parse::<u64>().ok())
            .filter(|number| *number <= MAX_GENERATION);
        match (number, found) {
            (None, _) => {
                return Err(Box::new(Refusal::at(
                    Code::GenerationInvalid,
                    name.as_str(),
                    "The generation must be a whole number from 0 to 2^53-1.",
                )));
            }
            (Some(number), Some(first)) if number != first => {
                return Err(Box::new(Refusal::at(
                    Code::GenerationInvalid,
                    name.as_str(),
                    "Two generation headers disagree.",
                )));
            }
            (Some(number), _) => found = Some(number),
        }
    }
    Ok(found)
}

/// What our answer headers say about an exchange.
#[derive(Clone, Debug)]
pub(crate) struct Stamp {
    /// `x-request-id`
    pub request_id: HeaderValue,
    /// `x-generation`
    pub generation: Option<u64>,
}

impl Stamp {
    /// Writes them for an answer that goes through.
    pub(crate) fn passed(&self, headers: &mut HeaderMap, notes: &[Fault]) {
        let verdict = if notes.is_empty() { "pass" } else { "note" };
        self.write(headers, verdict, notes);
    }

    /// Writes them for a refusal.
    pub(crate) fn refused(&self, headers: &mut HeaderMap, refusal: &Refusal) {
        self.write(headers, "refuse", &refusal.notes);
        if refusal.status().is_server_error() {
            if refusal.status() == http::StatusCode::SERVICE_UNAVAILABLE {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
        } else {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
            if refusal.status() == http::StatusCode::UNAUTHORIZED {
                // RFC 9110, section 11.6.1: a 401 says how to do better.
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
        }
    }

    fn write(&self, headers: &mut HeaderMap, verdict: &'static str, notes: &[Fault]) {
        headers.insert(REQUEST_ID, self.request_id.clone());
        headers.insert(VERDICT, HeaderValue::from_static(verdict));
        if let Some(generation) = self.generation {
            headers.insert(GENERATION, HeaderValue::from(generation));
        }
        if let Some(value) = notes_value(notes) {
            headers.insert(NOTES, value);
        }
    }
}

/// `code@path, …`, cut at whole entries when it would be too long for a header.
fn notes_value(notes: &[Fault]) -> Option<HeaderValue> {
    let mut text = String::new();
    for note in notes {
        let entry = format!("{}@{}", note.code.as_str(), note.param);
        if text.len() + entry.len() + 2 > NOTES_BYTES {
            break;
        }
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.extend(entry.chars().map(|c| if c.is_ascii_graphic() && c != ',' { c } else { '?' }));
    }
    if text.is_empty() { None } else { HeaderValue::from_str(&text).ok() }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn map(entries: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in entries {
            headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn what_steers_the_upstream_stays_here() {
        let mut headers = map(&[
            ("connection", "close, x-named"),
            ("x-named", "1"),
            ("te", "trailers"),
            ("host", "front"),
            ("content-length", "3"),
            ("accept-encoding", "gzip, br"),
            ("x-data-parallel-rank", "1"),
            ("x-smg-routing-key", "1"),
            ("x-sglext-anything", "1"),
            ("x-override-rid", "1"),
            ("x-conversation-id", "c"),
            ("traceparent", "t"),
            ("authorization", "Bearer client"),
        ]);
        make_upward(&mut headers, None, &[]);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["accept-encoding", "authorization", "traceparent", "x-conversation-id"]);
        assert_eq!(headers["accept-encoding"], "identity");
        assert_eq!(headers["authorization"], "Bearer client");
        headers.insert("x-user", HeaderValue::from_static("alice"));
        headers.insert("x_user", HeaderValue::from_static("alice"));
        let kept_back = [header::AUTHORIZATION, HeaderName::from_static("x-user")];
        make_upward(&mut headers, Some(&HeaderValue::from_static("Bearer ours")), &kept_back);
        assert_eq!(headers["authorization"], "Bearer ours");
        make_upward(&mut headers, None, &kept_back);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["accept-encoding", "traceparent", "x-conversation-id"]);
    }

    #[test]
    fn notes_are_header_safe_and_bounded() {
        let fault = |param: &str| crate::proxy::refusal::plain_fault(Code::Late, param, "");
        assert_eq!(notes_value(&[]), None);
        assert_eq!(
            notes_value(&[fault("messages[1]"), fault("über, x")]).unwrap(),
            "late@messages[1], late@?ber??x"
        );
        let many: Vec<_> = (0..1000).map(|i| fault(&format!("messages[{i}]"))).collect();
        assert!(notes_value(&many).unwrap().len() <= NOTES_BYTES);
    }

    #[test]
    fn a_request_id_is_kept_when_it_is_sane() {
        let minted = ExchangeId(7);
        assert_eq!(request_id(&map(&[("x-request-id", "mine")]), minted), "mine");
        let long = "x".repeat(129);
        for bad in ["", "with space", long.as_str()] {
            let headers = map(&[("x-request-id", bad)]);
            assert_eq!(request_id(&headers, minted), minted.to_string().as_str());
        }
    }
}
