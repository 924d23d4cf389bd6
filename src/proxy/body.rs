//! Reading a request's body: whole, within the limit, and never waiting for ever.

use super::gateway::Gateway;
use super::refusal::Refusal;
use crate::guard::fault::Code;
use crate::policy::Limits;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::time::Duration;
use tokio::time::Instant;

/// Most that is reserved on the word of a `content-length` alone.
const RESERVE: usize = 1 << 20;
/// How long a body that nobody wants is read on, so that the client hears the answer.
const LINGER: Duration = Duration::from_secs(5);

/// Whether the headers announce a body that can be read as JSON.
///
/// # Errors
/// When they do not.
pub(crate) fn check_media(headers: &HeaderMap) -> Result<(), Box<Refusal>> {
    let refuse = |name: &str, text: &str| Err(Box::new(Refusal::at(Code::BodyInvalid, name, text)));
    if let Some(value) = headers.get(header::CONTENT_TYPE)
        && !is_json(value.to_str().unwrap_or("?"))
    {
        return refuse("content-type", "The content type must be application/json.");
    }
    let encodings = headers.get_all(header::CONTENT_ENCODING);
    if encodings.iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return refuse("content-encoding", "The body must not be compressed.");
    }
    Ok(())
}

/// Whether a media type is JSON's.
#[must_use]
pub(crate) fn is_json(value: &str) -> bool {
    let essence = essence(value);
    essence == "application/json" || essence == "text/json" || essence.ends_with("+json")
}

/// A media type without its parameters, in lower case.
#[must_use]
pub(crate) fn essence(value: &str) -> String {
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Whether a body may be as long as it is announced to be.
///
/// # Errors
/// When it is too large.
pub(super) fn check_length(body: &Incoming, limits: &Limits) -> Result<(), Box<Refusal>> {
    if body.size_hint().lower() > limits.body_bytes as u64 {
        return Err(too_large(limits));
    }
    Ok(())
}

/// Reads it all.
///
/// # Errors
/// When it is too large, comes too slowly, or breaks off.
pub(crate) async fn read(
    gateway: &Gateway,
    headers: &HeaderMap,
    mut body: Incoming,
    limits: &Limits,
) -> Result<Bytes, Box<Refusal>> {
    if let Err(refusal) = check_length(&body, limits) {
        dismiss(gateway, headers, body);
        return Err(refusal);
    }
    let refused = |message| Err(Box::new(Refusal::plain(Code::BodyInvalid, message)));
    let mut gathered = Gathering::new(limits.body_bytes, body.size_hint().lower());
    let mut pace = Pace::new(limits.header_read_timeout);
    loop {
        let frame = match tokio::time::timeout_at(pace.until(), body.frame()).await {
            Err(_) => return refused("The body did not arrive in time."),
            Ok(None) => break,
            Ok(Some(Err(_))) => return refused("The body broke off."),
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(data) = frame.into_data() else { continue };
        pace.came(data.len());
        if !gathered.take(data) {
            gateway.spawn(discard(body));
            return Err(too_large(limits));
        }
    }
    Ok(gathered.whole())
}

/// Until when a body must have come further. Each wait is bounded, and the whole by what came: a body of a byte
/// every few seconds would hold its place among the exchanges for days.
#[derive(Debug)]
pub(super) struct Pace {
    patience: Duration,
    /// Until when all of it may take, for what has come of it.
    whole: Instant,
    last: Instant,
}

impl Pace {
    pub(super) fn new(patience: Duration) -> Self {
        let now = Instant::now();
        Pace { patience, whole: now + patience, last: now }
    }

    /// So much came now, at the least of a byte each millisecond.
    pub(super) fn came(&mut self, bytes: usize) {
        self.whole += Duration::from_millis(bytes as u64);
        self.last = Instant::now();
    }

    pub(super) fn until(&self) -> Instant {
        self.whole.min(self.last + self.patience)
    }
}

/// A body that is gathered up to a bound. One that comes in a single read is not copied.
pub(super) struct Gathering {
    limit: usize,
    announced: usize,
    first: Option<Bytes>,
    rest: BytesMut,
}

impl Gathering {
    /// Of at most `limit` bytes; `announced` is how many there will be, as far as that is known.
    pub(super) fn new(limit: usize, announced: u64) -> Self {
        let announced = usize::try_from(announced).unwrap_or(usize::MAX);
        Gathering { limit, announced, first: None, rest: BytesMut::new() }
    }

    /// Adds what came; false when that is too much.
    pub(super) fn take(&mut self, data: Bytes) -> bool {
        let length = self.first.as_ref().map_or(0, Bytes::len).max(self.rest.len());
        if length + data.len() > self.limit {
            return false;
        }
        let Some(first) = &self.first else {
            self.first = Some(data);
            return true;
        };
        if self.rest.is_empty() {
            self.rest.reserve(self.announced.min(RESERVE).max(first.len() + data.len()));
            self.rest.extend_from_slice(first);
        }
        self.rest.extend_from_slice(&data);
        true
    }

    /// All of it.
    pub(super) fn whole(self) -> Bytes {
        if self.rest.is_empty() { self.first.unwrap_or_default() } else { self.rest.freeze() }
    }
}

/// Nobody wants this body. The answer need not wait for it.
pub(crate) fn dismiss(gateway: &Gateway, headers: &HeaderMap, body: Incoming) {
    // Who asks first (RFC 9110, section 10.1.1) is answered, and then sends nothing.
    if !body.is_end_stream() && !headers.contains_key(header::EXPECT) {
        gateway.spawn(discard(body));
    }
}

/// Reads on and forgets, for a while: a client that is still sending would otherwise meet a closed
/// connection and never read our answer.
async fn discard(mut body: Incoming) {
    let drained = async { while let Some(Ok(_)) = body.frame().await {} };
    // Past that, the client has had its time.
    let _ = tokio::time::timeout(LINGER, drained).await;
}

/// The refusal of a larger body.
#[must_use]
pub(crate) fn too_large(limits: &Limits) -> Box<Refusal> {
    Box::new(Refusal::plain(
        Code::BodyTooLarge,
        format!("The body is larger than {} bytes (limits.body_bytes).", limits.body_bytes),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_read_is_not_copied_and_several_are_bounded_together() {
        let read = Bytes::from_static(b"abc");
        let mut one = Gathering::new(3, 3);
        assert!(one.take(read.clone()));
        assert_eq!(one.whole().as_ptr(), read.as_ptr());
        let mut several = Gathering::new(6, 0);
        assert!(several.take(read.clone()) && several.take(Bytes::new()) && several.take(read));
        assert!(!several.take(Bytes::from_static(b"d")));
        assert_eq!(several.whole(), "abcabc");
        assert!(Gathering::new(0, 0).whole().is_empty());
    }
}
