//! `mode = "jwt"`: a token that the configured issuer signed for this proxy.
//!
//! What a token says of itself decides nothing: its `alg` must be one that is allowed and must fit the key
//! that its `kid` finds among ours; a key or a URL that it brings along (`jwk`, `jku`, `x5c`, `x5u`) is not
//! looked at, and a critical extension refuses it (RFC 7515, section 4.1.11).

use super::jwks::{KeySet, KeySets, PublicKey};
use super::{Names, Principal, Unproven, bearer, ring_signatures};
use crate::policy::auth::jwt::{Jwt, KeySource};
use crate::policy::auth::keys::check_name;
use http::HeaderMap;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Header, Validation, decode, decode_header};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Longest token that is looked at, in bytes.
const TOKEN_BYTES: usize = 16 << 10;
/// Most keys that are tried for a token that names none.
const TRIES: usize = 4;

/// Checks tokens.
#[derive(Debug)]
pub(super) struct Tokens {
    jwt: Arc<Jwt>,
    /// What a token must satisfy, by its algorithm.
    demands: Vec<(Algorithm, Validation)>,
    keys: Keys,
}

#[derive(Debug)]
enum Keys {
    Fetched(Arc<KeySet>),
    Given(Arc<Vec<PublicKey>>),
}

impl Tokens {
    pub(super) fn new(jwt: Arc<Jwt>, sets: &KeySets) -> Self {
        ring_signatures::install();
        let demands = jwt.algorithms.iter().map(|algorithm| {
            let mut demand = Validation::new(*algorithm);
            demand.leeway = jwt.clock_skew.as_secs();
            demand.validate_nbf = true;
            demand.set_issuer(&[&jwt.issuer]);
            demand.set_audience(&jwt.audience);
            demand.set_required_spec_claims(&["exp", "iss", "aud"]);
            (*algorithm, demand)
        });
        let demands = demands.collect();
        let keys = match (&jwt.keys, sets.of(&jwt.keys)) {
            (_, Some(set)) => {
                set.keep_fresh();
                Keys::Fetched(set)
            }
            (KeySource::File { keys, .. }, None) => {
                Keys::Given(Arc::new(keys.iter().map(PublicKey::plain).collect()))
            }
            (KeySource::Url { .. }, None) => Keys::Given(Arc::default()),
        };
        Tokens { jwt, demands, keys }
    }

    pub(super) fn key_set(&self) -> Option<&Arc<KeySet>> {
        match &self.keys {
            Keys::Fetched(set) => Some(set),
            Keys::Given(_) => None,
        }
    }

    pub(super) fn are_ready(&self) -> bool {
        self.key_set().is_none_or(|set| set.keys().is_some())
    }

    /// Whose token a request bears.
    pub(super) async fn prove(&self, headers: &HeaderMap) -> Result<Principal, Unproven> {
        let token = bearer(headers)?;
        if token.len() > TOKEN_BYTES {
            return Err(Unproven::invalid("longer than 16 KiB"));
        }
        let header =
            decode_header(token).map_err(|_| Unproven::invalid("not the form of a token"))?;
        let demand = self.demands.iter().find(|(algorithm, _)| *algorithm == header.alg);
        let Some((_, demand)) = demand else {
            return Err(Unproven::invalid("its algorithm is not allowed"));
        };
        let keys = self.fitting(&header).await?;
        let mut told = Unproven::invalid("no key fits its kid and algorithm");
        for key in keys.iter().take(TRIES) {
            match decode::<Map<String, Value>>(token, &key.key, demand) {
                // RFC 7519, section 4.1.1: one issuer. A list that names ours among others is no such claim.
                Ok(token) if !matches!(token.claims.get("iss"), Some(Value::String(_))) => {
                    return Err(Unproven::invalid("another issuer's"));
                }
                Ok(token) => return self.principal(&token.claims),
                Err(error) => told = Unproven::invalid(reason(error.kind())),
            }
        }
        Err(told)
    }

    /// The keys that a token may be signed with. An unknown key id may be a new one, so that the set is
    /// fetched again, as often as that is due.
    async fn fitting(&self, header: &Header) -> Result<Vec<PublicKey>, Unproven> {
        let among = |keys: &[PublicKey], id: Option<&str>| -> Vec<PublicKey> {
            keys.iter().filter(|key| key.fits(header.alg, id)).cloned().collect()
        };
        let set = match &self.keys {
            // Keys of a file have no ids.
            Keys::Given(keys) => return Ok(among(keys, None)),
            Keys::Fetched(set) => set,
        };
        let id = header.kid.as_deref();
        if let Some(keys) = set.keys() {
            let found = among(&keys, id);
            if !found.is_empty() || id.is_none() {
                return Ok(found);
            }
        }
        set.newer().await;
        set.keys().map(|keys| among(&keys, id)).ok_or(Unproven::KeysMissing)
    }

    fn principal(&self, claims: &Map<String, Value>) -> Result<Principal, Unproven> {
        let named = |claim: &str| match find(claims, claim) {
            Some(Value::String(name)) if check_name(name).is_ok() => Ok(name.as_str()),
            _ => Err(Unproven::invalid(format!("its claim {claim} names nobody"))),
        };
        let wanted = &self.jwt.claims;
        let tenant = wanted.tenant.as_deref().map(named).transpose()?;
        let principal = Principal::named(named(&wanted.principal)?, tenant);
        let list = |claim: &Option<String>| -> Result<Option<Names>, Unproven> {
            let Some(claim) = claim else { return Ok(None) };
            let names = find(claims, claim).and_then(names);
            let missing = || Unproven::invalid(format!("its claim {claim} is no list of names"));
            names.map(|names| Some(Arc::new(names))).ok_or_else(missing)
        };
        let (models, tools) = (list(&wanted.models)?, list(&wanted.tools)?);
        if models.is_none() && tools.is_none() {
            return Ok(principal);
        }
        Ok(principal.restricted(models, tools))
    }
}

/// A claim of that very name, or the one that a dotted way leads to.
fn find<'c>(claims: &'c Map<String, Value>, name: &str) -> Option<&'c Value> {
    if let Some(claim) = claims.get(name) {
        return Some(claim);
    }
    let (first, rest) = name.split_once('.')?;
    rest.split('.').try_fold(claims.get(first)?, |value, key| value.as_object()?.get(key))
}

/// A list of texts, or one text with spaces between, as `scope` is written.
fn names(value: &Value) -> Option<std::collections::HashSet<String>> {
    match value {
        Value::Array(items) => items.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
        Value::String(text) => Some(text.split_whitespace().map(str::to_owned).collect()),
        _ => None,
    }
}

/// In words of ours: the library's could quote the token.
fn reason(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidSignature => "its signature is wrong",
        ErrorKind::ExpiredSignature => "it has expired",
        ErrorKind::ImmatureSignature => "it is not valid yet",
        ErrorKind::InvalidIssuer => "another issuer's",
        ErrorKind::InvalidAudience => "meant for somebody else",
        ErrorKind::InvalidAlgorithm | ErrorKind::InvalidKeyFormat => {
            "its algorithm does not fit the key"
        }
        ErrorKind::MissingRequiredClaim(_) => "exp, iss or aud is missing",
        ErrorKind::InvalidClaimFormat(_) => "a claim of its has no sense",
        _ => "it cannot be read",
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::json;

    #[test]
    fn claims_are_found_by_their_name_first_and_then_by_the_way() {
        let claims = json!({
            "sub": "a", "https://acme.example/tenant": "t", "org": {"name": "o", "deep": {"x": 1}},
            "org.name": "flat",
        });
        let claims = claims.as_object().unwrap();
        for (name, wanted) in [
            ("sub", Some(json!("a"))),
            ("https://acme.example/tenant", Some(json!("t"))),
            ("org.name", Some(json!("flat"))),
            ("org.deep.x", Some(json!(1))),
            ("org.deep.y", None),
            ("sub.x", None),
            ("nothing", None),
        ] {
            assert_eq!(find(claims, name), wanted.as_ref(), "{name}");
        }
    }

    #[test]
    fn a_list_of_names_is_a_list_or_words() {
        let read = |value: Value| {
            let mut names: Vec<String> = names(&value)?.into_iter().collect();
            names.sort();
            Some(names.join(","))
        };
        assert_eq!(read(json!(["b", "a"])).as_deref(), Some("a,b"));
        assert_eq!(read(json!("a b")).as_deref(), Some("a,b"));
        assert_eq!(read(json!([])).as_deref(), Some(""));
        assert_eq!(read(json!(["a", 1])), None);
        assert_eq!(read(json!(null)), None);
    }
}
