//! Key sets that an issuer serves: fetched, kept, and fetched again when they age or a new key turns up.
//!
//! A set that is there stays in use whatever becomes of later fetches, and nobody who has a known key waits
//! for one. There is at most one fetch at a time. A token with an unknown key id may start one, since that is
//! how rotation shows, but not more often than [`UNKNOWN_EVERY`]: anybody can make up ids.

use crate::policy::auth::jwt::{Authorities, KeySource};
use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use parking_lot::Mutex;
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

/// Largest key set, in bytes and in keys.
const SET_BYTES: usize = 256 << 10;
const SET_KEYS: usize = 128;
/// Most often that tokens with unknown key ids start a fetch.
const UNKNOWN_EVERY: Duration = Duration::from_secs(10);
/// The first wait after a fetch that failed, and the longest.
const RETRY_AFTER: Duration = Duration::from_secs(1);
const RETRY_AT_MOST: Duration = Duration::from_secs(60);

/// One public key, and what it may check.
#[derive(Clone, Debug)]
pub(super) struct PublicKey {
    id: Option<String>,
    pub(super) key: DecodingKey,
    algorithms: Vec<Algorithm>,
}

impl PublicKey {
    /// A key without an id, for every algorithm of its family.
    pub(super) fn plain(key: &DecodingKey) -> Self {
        let algorithms = key.family().algorithms().to_vec();
        PublicKey { id: None, key: key.clone(), algorithms }
    }

    /// Whether it may check a token with this algorithm and key id.
    pub(super) fn fits(&self, algorithm: Algorithm, id: Option<&str>) -> bool {
        self.algorithms.contains(&algorithm) && (id.is_none() || self.id.as_deref() == id)
    }

    /// Of a set's member; `None` when it is of no use for checking signatures.
    fn read(jwk: &Jwk) -> Option<Self> {
        let common = &jwk.common;
        let signs = common.public_key_use.as_ref().is_none_or(|it| *it == PublicKeyUse::Signature)
            && common.key_operations.as_ref().is_none_or(|it| it.contains(&KeyOperations::Verify));
        // A key fits the algorithms of its type only, and of those the one that it names.
        let mut algorithms = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => AlgorithmFamily::Rsa.algorithms().to_vec(),
            AlgorithmParameters::EllipticCurve(key) => match key.curve {
                EllipticCurve::P256 => vec![Algorithm::ES256],
                EllipticCurve::P384 => vec![Algorithm::ES384],
                _ => return None,
            },
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
                vec![Algorithm::EdDSA]
            }
            // Shared secrets have no place in a published set.
            _ => return None,
        };
        if let Some(named) = common.key_algorithm {
            let named = Algorithm::try_from(named).ok()?;
            algorithms.retain(|algorithm| *algorithm == named);
        }
        let key = DecodingKey::from_jwk(jwk).ok()?;
        let useful = signs && !algorithms.is_empty();
        useful.then(|| PublicKey { id: common.key_id.clone(), key, algorithms })
    }
}

/// Reads a key set. What is of no use in it is passed over.
fn parse(body: &[u8]) -> Result<Vec<PublicKey>, &'static str> {
    let set: serde_json::Value = serde_json::from_slice(body).map_err(|_| "is not JSON")?;
    let members =
        set.get("keys").and_then(|keys| keys.as_array()).ok_or("holds no list of keys")?;
    let keys: Vec<PublicKey> = members
        .iter()
        .take(SET_KEYS)
        .filter_map(|member| PublicKey::read(&serde_json::from_value(member.clone()).ok()?))
        .collect();
    if keys.is_empty() { Err("holds no key that can check a signature") } else { Ok(keys) }
}

/// Key sets, kept from one configuration to the next.
#[derive(Debug)]
pub(crate) struct KeySets {
    last: Mutex<Option<Arc<KeySet>>>,
    tasks: TaskTracker,
    runtime: Handle,
}

impl KeySets {
    pub(crate) fn new(tasks: TaskTracker, runtime: Handle) -> Self {
        KeySets { last: Mutex::default(), tasks, runtime }
    }

    /// The set of that source, with what has been fetched of it; `None` when it is not fetched at all.
    pub(super) fn of(&self, source: &KeySource) -> Option<Arc<KeySet>> {
        let KeySource::Url { url, authorities, refresh, timeout } = source else { return None };
        let origin = Origin {
            url: url.clone(),
            authorities: authorities.clone(),
            refresh: *refresh,
            timeout: *timeout,
        };
        let mut last = self.last.lock();
        if let Some(set) = last.as_ref().filter(|set| set.origin.is(&origin)) {
            return Some(Arc::clone(set));
        }
        let set = Arc::new(KeySet {
            origin,
            keys: ArcSwapOption::empty(),
            fetching: Mutex::default(),
            rounds: watch::Sender::new(0),
            tasks: self.tasks.clone(),
            runtime: self.runtime.clone(),
        });
        *last = Some(Arc::clone(&set));
        Some(set)
    }
}

#[derive(Debug)]
struct Origin {
    url: Uri,
    authorities: Option<Authorities>,
    refresh: Duration,
    timeout: Duration,
}

impl Origin {
    fn is(&self, other: &Origin) -> bool {
        let certificates =
            |origin: &Origin| origin.authorities.as_ref().map(|them| them.certificates.clone());
        self.url == other.url
            && self.refresh == other.refresh
            && self.timeout == other.timeout
            && certificates(self) == certificates(other)
    }
}

/// One key set, and its fetches.
#[derive(Debug)]
pub(crate) struct KeySet {
    origin: Origin,
    keys: ArcSwapOption<Vec<PublicKey>>,
    fetching: Mutex<Fetching>,
    /// Counts fetches that have ended.
    rounds: watch::Sender<u64>,
    tasks: TaskTracker,
    runtime: Handle,
}

#[derive(Debug, Default)]
struct Fetching {
    under_way: bool,
    began: Option<Instant>,
    /// When a token with an unknown key id last started one.
    asked: Option<Instant>,
    succeeded: Option<Instant>,
    failures: u32,
}

/// Why a set is wanted anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// It was never fetched, or is too old.
    Age,
    /// A token names a key that is not in it.
    UnknownKey,
}

impl KeySet {
    /// The keys as last fetched.
    pub(super) fn keys(&self) -> Option<Arc<Vec<PublicKey>>> {
        self.keys.load_full()
    }

    /// Fetches it when it has aged, without waiting.
    pub(crate) fn keep_fresh(self: &Arc<Self>) {
        let due = {
            let fetching = self.fetching.lock();
            fetching.succeeded.is_none_or(|at| at.elapsed() >= self.origin.refresh)
        };
        if due {
            self.begin(Cause::Age);
        }
    }

    /// Waits for a newer set, if one may be fetched now or is on its way.
    pub(super) async fn newer(self: &Arc<Self>) {
        let mut rounds = self.rounds.subscribe();
        let cause = if self.keys().is_some() { Cause::UnknownKey } else { Cause::Age };
        if self.begin(cause) {
            let _ = tokio::time::timeout(self.origin.timeout * 2, rounds.changed()).await;
        }
    }

    /// Begins a fetch, unless one is under way or it is too soon. Whether one is under way now.
    fn begin(self: &Arc<Self>, cause: Cause) -> bool {
        let mut fetching = self.fetching.lock();
        if fetching.under_way {
            return true;
        }
        let too_soon =
            |last: Option<Instant>, pause: Duration| last.is_some_and(|at| at.elapsed() < pause);
        let pause = match fetching.failures {
            0 => Duration::ZERO,
            failures => (RETRY_AFTER * (1 << (failures - 1).min(6))).min(RETRY_AT_MOST),
        };
        if too_soon(fetching.began, pause) {
            return false;
        }
        if cause == Cause::UnknownKey {
            if too_soon(fetching.asked, UNKNOWN_EVERY) {
                return false;
            }
            fetching.asked = Some(Instant::now());
        }
        fetching.under_way = true;
        fetching.began = Some(Instant::now());
        let set = Arc::clone(self);
        self.tasks.spawn_on(async move { set.run().await }, &self.runtime);
        true
    }

    async fn run(&self) {
        let fetched = tokio::time::timeout(self.origin.timeout, self.fetch()).await;
        let fetched = fetched.unwrap_or_else(|_| Err("did not come in time".to_owned()));
        let mut fetching = self.fetching.lock();
        fetching.under_way = false;
        match fetched {
            Ok(keys) => {
                if fetching.succeeded.is_none() || fetching.failures > 0 {
                    tracing::info!(keys = keys.len(), "the key set was fetched");
                }
                fetching.failures = 0;
                fetching.succeeded = Some(Instant::now());
                self.keys.store(Some(Arc::new(keys)));
            }
            Err(reason) => {
                fetching.failures = fetching.failures.saturating_add(1);
                let url = self.origin.url.to_string();
                let kept = fetching.succeeded.is_some();
                tracing::warn!(url, reason, kept, "the key set cannot be fetched");
            }
        }
        drop(fetching);
        self.rounds.send_modify(|round| *round += 1);
    }

    async fn fetch(&self) -> Result<Vec<PublicKey>, String> {
        let client: Client<_, Empty<Bytes>> =
            Client::builder(TokioExecutor::new()).build(self.connector()?);
        let request = Request::get(&self.origin.url)
            .header(header::ACCEPT, "application/json")
            .body(Empty::new())
            .map_err(|error| error.to_string())?;
        let response = client.request(request).await.map_err(|error| chain(&error))?;
        if response.status() != http::StatusCode::OK {
            return Err(format!("the answer is {}", response.status()));
        }
        let body = Limited::new(response.into_body(), SET_BYTES).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        parse(&body).map_err(|reason| format!("what came {reason}"))
    }

    fn connector(&self) -> Result<HttpsConnector<HttpConnector>, String> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_connect_timeout(Some(self.origin.timeout));
        let builder = HttpsConnectorBuilder::new();
        let builder = match &self.origin.authorities {
            None => builder.with_webpki_roots(),
            Some(authorities) => {
                let mut roots = RootCertStore::empty();
                for certificate in &authorities.certificates {
                    roots.add(certificate.clone()).map_err(|error| error.to_string())?;
                }
                let provider = Arc::new(rustls::crypto::ring::default_provider());
                let config = ClientConfig::builder_with_provider(provider)
                    .with_safe_default_protocol_versions()
                    .map_err(|error| error.to_string())?
                    .with_root_certificates(roots)
                    .with_no_client_auth();
                builder.with_tls_config(config)
            }
        };
        Ok(builder.https_or_http().enable_http1().wrap_connector(http))
    }
}

/// An error with its causes, the first of which rarely says anything.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

    #[test]
    fn a_key_checks_what_fits_its_type_and_what_it_names_and_nothing_else() {
        let ec = |more: &str| format!(r#"{{"kty":"EC","crv":"P-256","x":"{X}","y":"{X}"{more}}}"#);
        let rsa = |more: &str| format!(r#"{{"kty":"RSA","n":"{X}","e":"AQAB"{more}}}"#);
        let cases = [
            (ec(""), vec![Algorithm::ES256]),
            (rsa(""), AlgorithmFamily::Rsa.algorithms().to_vec()),
            (rsa(r#","alg":"PS256","use":"sig""#), vec![Algorithm::PS256]),
            (rsa(r#","key_ops":["verify"]"#), AlgorithmFamily::Rsa.algorithms().to_vec()),
            (format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{X}"}}"#), vec![Algorithm::EdDSA]),
            (rsa(r#","use":"enc""#), vec![]),
            (rsa(r#","key_ops":["encrypt"]"#), vec![]),
            (rsa(r#","alg":"HS256""#), vec![]),
            (rsa(r#","alg":"ES256""#), vec![]),
            (ec(r#","alg":"RS256""#), vec![]),
            (format!(r#"{{"kty":"OKP","crv":"X25519","x":"{X}"}}"#), vec![]),
            (format!(r#"{{"kty":"EC","crv":"P-521","x":"{X}","y":"{X}"}}"#), vec![]),
            (format!(r#"{{"kty":"oct","k":"{X}"}}"#), vec![]),
            (format!(r#"{{"kty":"oct","k":"{X}","alg":"HS256"}}"#), vec![]),
        ];
        for (member, algorithms) in cases {
            let read = parse(format!(r#"{{"keys":[7,{member}]}}"#).as_bytes());
            let found = read.ok().and_then(|keys| keys.first().map(|key| key.algorithms.clone()));
            assert_eq!(found.unwrap_or_default(), algorithms, "{member}");
        }
        let named = parse(format!(r#"{{"keys":[{}]}}"#, rsa(r#","kid":"a""#)).as_bytes()).unwrap();
        assert!(
            named[0].fits(Algorithm::RS256, Some("a")) && named[0].fits(Algorithm::RS256, None)
        );
        assert!(!named[0].fits(Algorithm::RS256, Some("b")));
        assert!(!named[0].fits(Algorithm::ES256, Some("a")));
        for wrong in ["", "[]", "{}", r#"{"keys":{}}"#, r#"{"keys":[]}"#] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
