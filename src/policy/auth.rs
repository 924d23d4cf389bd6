//! The `[auth]` section: how clients prove who they are.
//!
//! Whatever a mode needs is read here (the keys, the public keys, the trusted networks), so that a policy
//! that exists can tell friend from stranger at once. Keys of another mode are refused, not ignored: an
//! `issuer` beside `mode = "keys"` is a belief that does not hold.

pub mod jwt;
pub mod keys;
pub mod peers;
#[cfg(test)]
mod tests;

use super::findings::Findings;
use super::problem::Origin;
use super::section::{Found, Section, text, words};
use super::upstream::beside;
use http::HeaderName;
use jwt::Jwt;
use keys::KeyRing;
use peers::Network;
use std::path::PathBuf;
use std::sync::Arc;

/// How clients prove who they are.
#[derive(Clone, Debug, Default)]
pub enum Auth {
    /// They do not: everybody is `anonymous`.
    #[default]
    None,
    /// By a key of this proxy's own.
    Keys {
        /// Where the keys' hashes are kept.
        file: PathBuf,
        /// What is in it.
        ring: Arc<KeyRing>,
    },
    /// By a token that an issuer signed.
    Jwt(Arc<Jwt>),
    /// By a header that a trusted peer sets.
    Header(Arc<IdentityHeader>),
    /// By the TLS certificate that they show.
    Certificate,
}

/// A header that bears an identity, and who may set it.
#[derive(Debug)]
pub struct IdentityHeader {
    /// The principal's name.
    pub header: HeaderName,
    /// The principal's tenant.
    pub tenant_header: Option<HeaderName>,
    /// Connections from elsewhere are nobody's.
    pub trusted_peers: Vec<Network>,
}

impl Auth {
    /// Its name in the configuration.
    #[must_use]
    pub fn mode(&self) -> &'static str {
        match self {
            Auth::None => "none",
            Auth::Keys { .. } => "keys",
            Auth::Jwt(_) => "jwt",
            Auth::Header(_) => "header",
            Auth::Certificate => "certificate",
        }
    }

    /// Whether anybody is asked who they are.
    #[must_use]
    pub fn asks(&self) -> bool {
        !matches!(self, Auth::None)
    }
}

/// What the section says besides the mode itself.
pub(super) struct Written {
    /// The mode, with all that it needs.
    pub(super) auth: Auth,
    /// Whether the operator takes on him what `none` means.
    pub(super) insecure: bool,
}

/// The keys of each mode. All are asked for in every mode, so that those of another one are told as such.
const OWN: [(&str, &[&str]); 3] = [
    ("keys", &["keys_file"]),
    ("jwt", &jwt::KEYS),
    ("header", &["header", "tenant_header", "trusted_peers"]),
];

/// Reads the section. `certificates`: clients must show one, by `[tls]`.
pub(super) fn resolve(
    mut section: Section<'_>,
    certificates: bool,
    findings: &Findings,
) -> Written {
    let mode = section.found("mode", text);
    let insecure = section.read("insecure", super::section::flag).unwrap_or(false);
    let unset = if certificates { "certificate" } else { "none" };
    let name = mode.as_ref().map_or(unset, |mode| mode.value.as_str()).to_owned();
    for (other, keys) in OWN {
        if other != name {
            section.belongs_to(keys, &format!("belongs to mode = \"{other}\""));
        }
    }
    let place = mode.as_ref().map_or(Origin::Default, |mode| mode.origin.clone());
    let auth = match name.as_str() {
        "none" => Some(Auth::None),
        "keys" => keys(&mut section, &place, findings),
        "jwt" => jwt::resolve(&mut section, &place, findings).map(|jwt| Auth::Jwt(Arc::new(jwt))),
        "header" => header(&mut section, &place, findings),
        "certificate" => {
            if !certificates {
                findings.tell(&place, "auth.mode", "\"certificate\" needs tls.client_ca_file");
            }
            Some(Auth::Certificate)
        }
        _ => {
            let known = ["none", "keys", "jwt", "header", "certificate"].map(|mode| (mode, ()));
            if let Some(mode) = &mode {
                super::section::choose(mode, &known, findings);
            }
            None
        }
    };
    section.finish();
    Written { auth: auth.unwrap_or_default(), insecure }
}

fn keys(section: &mut Section<'_>, mode: &Origin, findings: &Findings) -> Option<Auth> {
    let Some(file) = section.found("keys_file", words) else {
        let message = "\"keys\" needs auth.keys_file; `tigertally keys add` makes one";
        findings.tell(mode, "auth.mode", message);
        return None;
    };
    let path = beside(&file.origin, &file.value);
    findings.reads_secret(&path);
    match KeyRing::read(&path) {
        Ok(ring) => Some(Auth::Keys { file: path, ring: Arc::new(ring) }),
        Err(problems) => {
            for problem in problems.iter() {
                findings.tell(&file.origin, &file.key, problem.to_string());
            }
            None
        }
    }
}

fn header(section: &mut Section<'_>, mode: &Origin, findings: &Findings) -> Option<Auth> {
    let name = section.found("header", words);
    let tenant = section.found("tenant_header", words);
    let peers = section.filled_list("trusted_peers");
    if name.is_none() {
        let message = "\"header\" needs auth.header, such as \"x-forwarded-user\"";
        findings.tell(mode, "auth.mode", message);
    }
    if peers.is_none() {
        let message = "\"header\" needs auth.trusted_peers: the addresses that may set it";
        findings.tell(mode, "auth.mode", message);
    }
    let header = name.as_ref().and_then(|name| identity_header(name, findings));
    let tenant_header = tenant.as_ref().and_then(|name| identity_header(name, findings));
    if let Some(tenant) = tenant
        && header.is_some()
        && header == tenant_header
    {
        findings.tell(&tenant.origin, &tenant.key, "is auth.header too; the two must differ");
    }
    let trusted_peers = peers
        .unwrap_or_default()
        .iter()
        .filter_map(|peer| match Network::parse(&peer.value) {
            Ok(network) => Some(network),
            Err(message) => {
                findings.tell(&peer.origin, &peer.key, format!("\"{}\" {message}", peer.value));
                None
            }
        })
        .collect();
    let header = header?;
    Some(Auth::Header(Arc::new(IdentityHeader { header, tenant_header, trusted_peers })))
}

/// A header that a gateway may set for nothing else.
fn identity_header(found: &Found<String>, findings: &Findings) -> Option<HeaderName> {
    let header = super::headers::header_name(found, findings)?;
    if ["x-conversation-id", "x-generation"].contains(&header.as_str()) {
        let message =
            format!("\"{header}\" says which conversation or task; choose another header");
        findings.tell(&found.origin, &found.key, message);
        return None;
    }
    Some(header)
}
