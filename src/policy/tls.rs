//! The `[tls]` section: the client port's certificate, and the authority of clients' certificates.
//!
//! What is read here is known to work: the key fits its certificate, and the authority's certificates can
//! be used. So a bad file on a reload changes nothing.

use super::findings::Findings;
use super::section::{Found, Section, words};
use super::upstream::beside;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// TLS on the client port.
#[derive(Clone)]
pub struct Tls {
    /// The certificate, followed by those that lead to its authority.
    pub cert_file: PathBuf,
    /// Its key.
    pub key_file: PathBuf,
    /// The authority of clients' certificates; when it is set, each client must show one.
    pub client_ca_file: Option<PathBuf>,
    /// All of that, ready for use.
    pub config: Arc<ServerConfig>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("cert_file", &self.cert_file)
            .field("key_file", &self.key_file)
            .field("client_ca_file", &self.client_ca_file)
            .finish_non_exhaustive()
    }
}

impl Tls {
    /// Whether clients must show a certificate.
    #[must_use]
    pub fn wants_certificates(&self) -> bool {
        self.client_ca_file.is_some()
    }
}

/// The one implementation of TLS's cryptography in this program.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

pub(super) fn resolve(mut section: Section<'_>, findings: &Findings) -> Option<Tls> {
    let cert = section.found("cert_file", words);
    let key = section.found("key_file", words);
    let client_ca = section.found("client_ca_file", words);
    section.finish();
    let (cert, key) = match (cert, key) {
        (Some(cert), Some(key)) => (cert, key),
        (None, None) => {
            if let Some(ca) = client_ca {
                let message = "needs tls.cert_file and tls.key_file beside it";
                findings.tell(&ca.origin, &ca.key, message);
            }
            return None;
        }
        (Some(cert), None) => {
            findings.tell(&cert.origin, &cert.key, "needs tls.key_file beside it");
            return None;
        }
        (None, Some(key)) => {
            findings.tell(&key.origin, &key.key, "needs tls.cert_file beside it");
            return None;
        }
    };
    let told = |found: &Found<String>, message: String| {
        findings.tell(&found.origin, &found.key, message);
    };
    let cert_file = beside(&cert.origin, &cert.value);
    let key_file = beside(&key.origin, &key.value);
    findings.reads(&cert_file);
    findings.reads_secret(&key_file);
    let chain = certificates(&cert_file)
        .map_err(|message| told(&cert, format!("{}: {message}", cert_file.display())));
    // Neither the path's text nor what was read is repeated: some write the secret in the wrong place.
    let private = private_key(&key_file).map_err(|message| told(&key, message));
    let verifier = client_ca.as_ref().map(|ca| {
        let path = beside(&ca.origin, &ca.value);
        findings.reads(&path);
        client_verifier(&path).map_err(|message| told(ca, format!("{}: {message}", path.display())))
    });
    let verifier = verifier.transpose();
    let config = server_config(chain.ok()?, private.ok()?, verifier.ok()?)
        .map_err(|message| told(&cert, message));
    let client_ca_file = client_ca.map(|ca| beside(&ca.origin, &ca.value));
    Some(Tls { cert_file, key_file, client_ca_file, config: Arc::new(config.ok()?) })
}

/// The certificates of a PEM file, at least one.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("cannot be read: {error}"))?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = read.map_err(|error| format!("is not PEM: {error}"))?;
    if found.is_empty() {
        return Err("holds no certificate in PEM (\"-----BEGIN CERTIFICATE-----\")".to_owned());
    }
    Ok(found)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("cannot be read: {error}"))?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| {
        "holds no private key in PEM (\"-----BEGIN PRIVATE KEY-----\", without a password)"
            .to_owned()
    })
}

fn client_verifier(path: &Path) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| format!("cannot be used: {error}"))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .map_err(|error| format!("cannot be used: {error}"))
}

fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<ServerConfig, String> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("cannot be used: {error}"))?;
    let builder = match verifier {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| format!("cannot be used with tls.key_file: {error}"))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
