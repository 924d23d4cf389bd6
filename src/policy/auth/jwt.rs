//! `mode = "jwt"`: whose tokens are taken, and what is read from them.
//!
//! Issuer and audience must be named: a key set says only that some service of the issuer's signed a token,
//! not that it was meant for this proxy (RFC 8725, sections 3.8 and 3.9). Of algorithms only those with a
//! public key can be allowed, so that no token can be signed with what everybody knows (section 2.1).

use crate::policy::findings::Findings;
use crate::policy::problem::Origin;
use crate::policy::raw::Value;
use crate::policy::section::{Found, Section, span, text, time, words};
use crate::policy::upstream::beside;
use http::Uri;
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use rustls::pki_types::CertificateDer;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The keys of this mode.
pub(super) const KEYS: [&str; 13] = [
    "jwks_url",
    "jwks_ca_file",
    "jwks_refresh",
    "public_key_file",
    "issuer",
    "audience",
    "algorithms",
    "clock_skew",
    "principal_claim",
    "tenant_claim",
    "models_claim",
    "tools_claim",
    "jwks_timeout",
];

/// Longest difference of clocks that makes sense.
const LONGEST_SKEW: Duration = Duration::from_secs(600);

/// What can be allowed.
const ALGORITHMS: [(&str, Algorithm); 9] = [
    ("RS256", Algorithm::RS256),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("PS512", Algorithm::PS512),
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
];

/// Whose tokens are taken.
#[derive(Debug)]
pub struct Jwt {
    /// Where the keys come from.
    pub keys: KeySource,
    /// Who must have signed.
    pub issuer: String,
    /// Whom a token must be meant for: one of these.
    pub audience: Vec<String>,
    /// How it may be signed.
    pub algorithms: Vec<Algorithm>,
    /// How far the issuer's clock and ours may be apart.
    pub clock_skew: Duration,
    /// What is read from it.
    pub claims: Claims,
}

/// Names of claims: a top-level one of that very name, or a dotted way into objects.
#[derive(Debug)]
pub struct Claims {
    /// Names the principal.
    pub principal: String,
    /// Names its tenant; then a token must have it.
    pub tenant: Option<String>,
    /// The models it may ask; then a token must have it.
    pub models: Option<String>,
    /// The tools that may be proposed to it; then a token must have it.
    pub tools: Option<String>,
}

/// Where public keys come from.
#[derive(Debug)]
pub enum KeySource {
    /// A key set that the issuer serves.
    Url {
        /// Where.
        url: Uri,
        /// Authorities that vouch for that server, in place of the public ones.
        authorities: Option<Authorities>,
        /// How old a set may become before it is fetched again.
        refresh: Duration,
        /// How long a fetch may take.
        timeout: Duration,
    },
    /// A file.
    File {
        /// Which.
        file: PathBuf,
        /// The keys in it.
        keys: Vec<DecodingKey>,
    },
}

/// Certificates from a file.
#[derive(Clone, Debug)]
pub struct Authorities {
    /// Which.
    pub file: PathBuf,
    /// The certificates in it.
    pub certificates: Vec<CertificateDer<'static>>,
}

/// The name of an algorithm.
#[must_use]
pub fn algorithm_name(algorithm: Algorithm) -> &'static str {
    ALGORITHMS.iter().find(|(_, known)| *known == algorithm).map_or("?", |(name, _)| name)
}

pub(super) fn resolve(
    section: &mut Section<'_>,
    mode: &Origin,
    findings: &Findings,
) -> Option<Jwt> {
    let keys = source(section, mode, findings);
    let (algorithms, place) = algorithms(section, mode, findings);
    let needed = |found: bool, key: &str, why: &str| {
        if !found {
            findings.tell(mode, "auth.mode", format!("\"jwt\" needs auth.{key}: {why}"));
        }
    };
    let issuer = section.read("issuer", words);
    needed(issuer.is_some(), "issuer", "who signs the tokens, as in their `iss`");
    let audience = section.read("audience", one_or_more);
    needed(audience.is_some(), "audience", "whom the tokens are meant for, as in their `aud`");
    let skew = section.found("clock_skew", time);
    if let Some(skew) = skew.as_ref().filter(|skew| skew.value > LONGEST_SKEW) {
        findings.tell(&skew.origin, &skew.key, "must be at most 10m");
    }
    let claims = Claims {
        principal: section.read("principal_claim", words).unwrap_or_else(|| "sub".to_owned()),
        tenant: section.read("tenant_claim", words),
        models: section.read("models_claim", words),
        tools: section.read("tools_claim", words),
    };
    let keys = keys?;
    if let KeySource::File { keys, .. } = &keys {
        let fits =
            |algorithm: &Algorithm| keys.iter().any(|key| key.family() == algorithm.family());
        if !algorithms.is_empty() && !algorithms.iter().any(fits) {
            let message = "allows none that fits a key of auth.public_key_file";
            findings.tell(&place, "auth.algorithms", message);
        }
    }
    Some(Jwt {
        keys,
        issuer: issuer?,
        audience: audience?,
        algorithms,
        clock_skew: skew.map_or(Duration::from_secs(30), |skew| skew.value),
        claims,
    })
}

/// What is allowed, and where that is written.
fn algorithms(
    section: &mut Section<'_>,
    mode: &Origin,
    findings: &Findings,
) -> (Vec<Algorithm>, Origin) {
    let Some(list) = section.filled_list("algorithms") else {
        return (vec![Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA], mode.clone());
    };
    let place = list.first().map_or_else(|| mode.clone(), |first| first.origin.clone());
    let mut allowed = Vec::new();
    for name in list {
        if name.value.starts_with("HS") || name.value.eq_ignore_ascii_case("none") {
            let message = format!(
                "\"{}\" cannot be allowed: it needs no key, or one that whoever checks it could sign with",
                name.value
            );
            findings.tell(&name.origin, &name.key, message);
            continue;
        }
        allowed.extend(crate::policy::section::choose(&name, &ALGORITHMS, findings));
    }
    (allowed, place)
}

fn source(section: &mut Section<'_>, mode: &Origin, findings: &Findings) -> Option<KeySource> {
    let url = section.found("jwks_url", text);
    let file = section.found("public_key_file", words);
    let ca = section.found("jwks_ca_file", words);
    let refresh = section.found("jwks_refresh", span);
    let timeout = section.found("jwks_timeout", span);
    match (url, file) {
        (None, None) => {
            let message = "\"jwt\" needs auth.jwks_url or auth.public_key_file";
            findings.tell(mode, "auth.mode", message);
            None
        }
        (Some(url), Some(_)) => {
            let message = "stands beside auth.public_key_file; keys come from one of the two";
            findings.tell(&url.origin, &url.key, message);
            None
        }
        (Some(written), None) => {
            let authorities = ca.and_then(|file| authorities(&file, findings));
            let url = match key_set_url(&written.value) {
                Ok(url) => url,
                Err(message) => {
                    findings.tell(&written.origin, &written.key, message);
                    return None;
                }
            };
            Some(KeySource::Url {
                url,
                authorities,
                refresh: refresh.map_or(Duration::from_secs(300), |found| found.value),
                timeout: timeout.map_or(Duration::from_secs(5), |found| found.value),
            })
        }
        (None, Some(file)) => {
            let senseless = "makes no sense without auth.jwks_url";
            let tell = |origin: &Origin, key: &str| findings.tell(origin, key, senseless);
            ca.iter().for_each(|found| tell(&found.origin, &found.key));
            refresh.iter().chain(&timeout).for_each(|found| tell(&found.origin, &found.key));
            let path = beside(&file.origin, &file.value);
            findings.reads(&path);
            match public_keys(&path) {
                Ok(keys) => Some(KeySource::File { file: path, keys }),
                Err(message) => {
                    let message = format!("{}: {message}", path.display());
                    findings.tell(&file.origin, &file.key, message);
                    None
                }
            }
        }
    }
}

/// Whoever can change the keys on their way can be anybody. So plain HTTP is for this machine only.
fn key_set_url(url: &str) -> Result<Uri, &'static str> {
    const FORM: &str = "is no URL; write it as \"https://issuer.example/.well-known/jwks.json\"";
    let uri: Uri = url.parse().map_err(|_| FORM)?;
    let host = uri.authority().ok_or(FORM)?.host();
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("must not hold credentials");
    }
    match uri.scheme_str() {
        Some("https") => Ok(uri),
        Some("http") => {
            let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
            let here = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
            if here {
                Ok(uri)
            } else {
                Err("must begin with https:// unless it is on this machine")
            }
        }
        _ => Err(FORM),
    }
}

fn authorities(file: &Found<String>, findings: &Findings) -> Option<Authorities> {
    let path = beside(&file.origin, &file.value);
    findings.reads(&path);
    match crate::policy::tls::certificates(&path) {
        Ok(certificates) => Some(Authorities { file: path, certificates }),
        Err(message) => {
            findings.tell(&file.origin, &file.key, format!("{}: {message}", path.display()));
            None
        }
    }
}

/// The public keys of a PEM file.
fn public_keys(path: &Path) -> Result<Vec<DecodingKey>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))?;
    if text.contains("PRIVATE KEY") {
        return Err("holds a private key; this proxy needs the public one only".to_owned());
    }
    let mut keys = Vec::new();
    for block in blocks(&text) {
        let block = block.as_bytes();
        let key = DecodingKey::from_rsa_pem(block)
            .or_else(|_| DecodingKey::from_ec_pem(block))
            .or_else(|_| DecodingKey::from_ed_pem(block));
        match key {
            Ok(key) if key.family() != AlgorithmFamily::Hmac => keys.push(key),
            _ => return Err("holds a key that is neither RSA, ECDSA nor Ed25519".to_owned()),
        }
    }
    if keys.is_empty() {
        return Err("holds no public key in PEM (\"-----BEGIN PUBLIC KEY-----\")".to_owned());
    }
    Ok(keys)
}

/// The PEM blocks of a text, each with its two frames.
fn blocks(text: &str) -> impl Iterator<Item = &str> {
    let starts: Vec<usize> = text.match_indices("-----BEGIN ").map(|(at, _)| at).collect();
    let ends: Vec<usize> = starts.iter().skip(1).copied().chain([text.len()]).collect();
    starts.into_iter().zip(ends).filter_map(|(start, end)| text.get(start..end))
}

/// One text, or a list of texts.
fn one_or_more(value: &Value) -> Result<Vec<String>, String> {
    let texts = match value {
        Value::List(items) => {
            items.iter().map(|item| words(&item.value)).collect::<Result<_, _>>()?
        }
        Value::Untyped(text) => text.split(',').map(|text| text.trim().to_owned()).collect(),
        other => vec![words(other)?],
    };
    if texts.is_empty() { Err("must not be empty".to_owned()) } else { Ok(texts) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_set_comes_by_https_or_from_this_machine() {
        for (url, good) in [
            ("https://issuer.example/.well-known/jwks.json", true),
            ("http://127.0.0.1:8080/jwks", true),
            ("http://[::1]/jwks", true),
            ("http://localhost/jwks", true),
            ("http://issuer.example/jwks", false),
            ("http://localhost.issuer.example/jwks", false),
            ("https://me:pw@issuer.example/jwks", false),
            ("file:///jwks.json", false),
            ("/jwks.json", false),
            ("", false),
        ] {
            assert_eq!(key_set_url(url).is_ok(), good, "{url}");
        }
    }
}
