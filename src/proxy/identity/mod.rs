//! Who the client is: proven by a credential that the server checks, never read from a body.
//!
//! [`Doorkeeper::prove`] turns a request's head and its connection into a [`Principal`], or into a refusal.
//! The client is told one thing only, whatever was wrong: a stranger must not learn which keys there are or
//! were. The operator's log tells the reason. A proven principal says whose state a request may touch
//! and, if it is restricted, which models it may ask and which tools may be proposed to it.

mod certificate;
mod header;
mod jwks;
mod jwt;
mod keys;
mod ring_signatures;

pub(crate) use certificate::Shown;
pub(crate) use jwks::KeySets;

use super::refusal::Refusal;
use crate::guard::fault::Code;
use crate::policy::Auth;
use http::{HeaderMap, HeaderName, header as names};
use std::borrow::Cow;
use std::collections::HashSet;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Names that a principal is restricted to.
pub(crate) type Names = Arc<HashSet<String>>;

/// A proven identity. Every state is kept per principal. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Principal(Arc<Proven>);

#[derive(Debug, PartialEq, Eq)]
struct Proven {
    bytes: Box<[u8]>,
    models: Option<Names>,
    tools: Option<Names>,
}

/// No name's encoding begins so either.
const ANONYMOUS: &[u8] = b"anonymous";

/// What marks the encoding of a name with its tenant. No name of its own begins so: see [`Principal::named`].
const NAMED: u8 = 1;

impl Principal {
    /// The one principal there is when no credentials are asked for.
    #[must_use]
    pub(crate) fn anonymous() -> Self {
        let bytes = Box::from(ANONYMOUS);
        Principal(Arc::new(Proven { bytes, models: None, tools: None }))
    }

    /// One of that name, within its tenant. Neither can be spelled so that it gives another one's bytes: a
    /// mark, whether there is a tenant, its length, the tenant, the name.
    #[must_use]
    pub(crate) fn named(name: &str, tenant: Option<&str>) -> Self {
        let mut bytes = vec![NAMED, u8::from(tenant.is_some())];
        let tenant = tenant.unwrap_or_default();
        bytes.extend_from_slice(&(tenant.len() as u64).to_be_bytes());
        bytes.extend_from_slice(tenant.as_bytes());
        bytes.extend_from_slice(name.as_bytes());
        Principal(Arc::new(Proven { bytes: bytes.into(), models: None, tools: None }))
    }

    /// The same, restricted to these models and tools.
    #[must_use]
    pub(crate) fn restricted(self, models: Option<Names>, tools: Option<Names>) -> Self {
        Principal(Arc::new(Proven { bytes: self.0.bytes.clone(), models, tools }))
    }

    /// Whether it is the one principal there is.
    #[must_use]
    pub(crate) fn is_alone(&self) -> bool {
        self.as_bytes() == ANONYMOUS
    }

    /// What its digest is made of.
    #[must_use]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    /// The models it may ask, if it is restricted.
    #[must_use]
    pub(crate) fn models(&self) -> Option<&HashSet<String>> {
        self.0.models.as_deref()
    }

    /// The tools that may be proposed to it, if it is restricted.
    #[must_use]
    pub(crate) fn tools(&self) -> Option<&Names> {
        self.0.tools.as_ref()
    }

    /// Whether what it may do cannot be told without reading what it sends.
    #[must_use]
    pub(crate) fn is_restricted(&self) -> bool {
        self.0.models.is_some() || self.0.tools.is_some()
    }
}

/// The connection that a request came on.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Its other end.
    pub(crate) address: IpAddr,
    /// The certificate that the client showed there, checked by the handshake.
    pub(crate) shown: Shown,
}

impl Peer {
    /// Before there is a connection: nobody's address.
    pub(crate) fn unknown() -> Self {
        Peer { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), shown: Shown::Nothing }
    }
}

/// Why somebody is a stranger: for the operator's log, never for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unproven {
    /// Nothing was shown.
    Nothing,
    /// Something was shown that does not prove anything.
    Invalid(Cow<'static, str>),
    /// Nobody can say yet: the keys to check with are not there.
    KeysMissing,
}

impl Unproven {
    fn invalid(reason: impl Into<Cow<'static, str>>) -> Self {
        Unproven::Invalid(reason.into())
    }
}

/// Asks whoever comes in who they are.
#[derive(Debug)]
pub(crate) struct Doorkeeper(Mode);

#[derive(Debug)]
enum Mode {
    Open(Principal),
    Keys(keys::Keys),
    Jwt(jwt::Tokens),
    Header(header::Trusting),
    Certificate,
}

impl Doorkeeper {
    /// As configured. `sets` keeps fetched key sets from one configuration to the next.
    pub(crate) fn new(auth: &Auth, sets: &KeySets) -> Self {
        Doorkeeper(match auth {
            Auth::None => Mode::Open(Principal::anonymous()),
            Auth::Keys { ring, .. } => Mode::Keys(keys::Keys::new(ring)),
            Auth::Jwt(jwt) => Mode::Jwt(jwt::Tokens::new(Arc::clone(jwt), sets)),
            Auth::Header(trusted) => Mode::Header(header::Trusting(Arc::clone(trusted))),
            Auth::Certificate => Mode::Certificate,
        })
    }

    /// Who sends this, or the refusal, with its reason for the log.
    pub(crate) async fn prove(
        &self,
        headers: &HeaderMap,
        peer: &Peer,
    ) -> Result<Principal, Denied> {
        let proven = match &self.0 {
            Mode::Open(anonymous) => Ok(anonymous.clone()),
            Mode::Keys(keys) => keys.prove(headers, now()),
            Mode::Jwt(tokens) => tokens.prove(headers).await,
            Mode::Header(trusted) => trusted.prove(headers, peer.address),
            Mode::Certificate => peer.shown.prove(),
        };
        proven.map_err(|unproven| self.deny(unproven))
    }

    /// Whether it can tell friend from stranger by now.
    pub(crate) fn is_ready(&self) -> bool {
        match &self.0 {
            Mode::Jwt(tokens) => tokens.are_ready(),
            _ => true,
        }
    }

    /// The key set that has to be kept fresh.
    pub(super) fn key_set(&self) -> Option<&Arc<jwks::KeySet>> {
        match &self.0 {
            Mode::Jwt(tokens) => tokens.key_set(),
            _ => None,
        }
    }

    /// Headers that prove something here, or would to a server behind: never forwarded.
    pub(crate) fn keeps_back(&self) -> Vec<HeaderName> {
        let mut kept = match &self.0 {
            Mode::Open(_) => return Vec::new(),
            Mode::Header(trusted) => trusted.headers(),
            _ => Vec::new(),
        };
        kept.extend(CREDENTIALS);
        kept
    }

    fn deny(&self, unproven: Unproven) -> Denied {
        let (message, reason) = match unproven {
            Unproven::KeysMissing => {
                let message = "The keys that tokens are checked with could not be fetched yet.";
                let refusal = Refusal::plain(Code::IdentityUnavailable, message);
                return Denied { refusal: Box::new(refusal), reason: "no key set yet".into() };
            }
            Unproven::Nothing => (self.wanted(), "nothing shown".into()),
            Unproven::Invalid(reason) => (self.not_taken(), reason),
        };
        Denied { refusal: Box::new(Refusal::plain(Code::Unauthenticated, message)), reason }
    }

    /// What a client has to show.
    fn wanted(&self) -> &'static str {
        match &self.0 {
            Mode::Open(_) => "",
            Mode::Keys(_) => {
                "This proxy wants a key: send it as `Authorization: Bearer tt_…` (an SDK's api_key)."
            }
            Mode::Jwt(_) => "This proxy wants a token: send it as `Authorization: Bearer …`.",
            Mode::Header(_) => {
                "This proxy takes requests from its gateway only, once they are authenticated."
            }
            Mode::Certificate => "This proxy wants a client certificate that names its holder.",
        }
    }

    /// One text for everything that can be wrong with what was shown.
    fn not_taken(&self) -> &'static str {
        match &self.0 {
            Mode::Keys(_) => {
                "The key was not accepted. It may be mistyped, expired or withdrawn; ask the operator for another."
            }
            Mode::Jwt(_) => {
                "The token was not accepted. It must be signed by the issuer that this proxy trusts, be meant for this proxy, and be in its time."
            }
            _ => self.wanted(),
        }
    }
}

/// A refusal, and what only the operator is told.
#[derive(Debug)]
pub(crate) struct Denied {
    /// For the client.
    pub(crate) refusal: Box<Refusal>,
    /// For the log.
    pub(crate) reason: Cow<'static, str>,
}

/// Where clients put credentials: what OpenAI's SDKs send, and what other servers of that kind take.
const CREDENTIALS: [HeaderName; 4] = [
    names::AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("api-key"),
    names::COOKIE,
];

/// Credentials of a client, for whoever holds the upstream's key: never forwarded beside it.
pub(super) fn credentials() -> Vec<HeaderName> {
    CREDENTIALS.into()
}

/// The one bearer credential of a request.
fn bearer(headers: &HeaderMap) -> Result<&str, Unproven> {
    let value = single(headers, &names::AUTHORIZATION)?.ok_or(Unproven::Nothing)?;
    let (scheme, credential) = value.split_once(' ').unwrap_or((value, ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(Unproven::invalid("not the Bearer scheme"));
    }
    Ok(credential.trim())
}

/// The value of a header that must not come twice: of two nobody can say which one was meant.
fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, Unproven> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Unproven::invalid(format!("{name} came twice")));
    }
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => Ok(Some(text.trim())),
        Err(_) => Err(Unproven::invalid(format!("{name} is no text"))),
    }
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn two_principals_never_share_their_bytes(
            a in "[a:\u{1}]{0,4}", b in proptest::option::of("[a:\u{1}]{0,4}"),
            c in "[a:\u{1}]{0,4}", d in proptest::option::of("[a:\u{1}]{0,4}"),
        ) {
            let same = (&a, &b) == (&c, &d);
            let left = Principal::named(&a, b.as_deref());
            let right = Principal::named(&c, d.as_deref());
            prop_assert_eq!(left.as_bytes() == right.as_bytes(), same);
            let anonymous = Principal::anonymous();
            prop_assert_ne!(left.as_bytes(), anonymous.as_bytes());
        }
    }

    #[test]
    fn anonymous_keeps_the_bytes_that_its_state_was_kept_under() {
        assert_eq!(Principal::anonymous().as_bytes(), b"anonymous");
        assert_ne!(Principal::named("anonymous", None).as_bytes(), b"anonymous");
    }
}
