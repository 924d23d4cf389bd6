//! `mode = "certificate"`: the name in the client certificate that the TLS handshake has checked.
//!
//! Of a certificate's names the first one that is there counts: a URI (SPIFFE), a DNS name, an e-mail
//! address among the subject's alternative names, or else the common name, which older authorities use.

use super::{Principal, Unproven};
use crate::policy::auth::keys::check_name;
use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// What a connection's certificate says. Read once, when the connection begins.
#[derive(Clone, Debug)]
pub(crate) enum Shown {
    /// There was none.
    Nothing,
    /// It names this principal.
    Named(Principal),
    /// It names nobody.
    Nameless,
}

impl Shown {
    /// Of a chain that the handshake has checked; the client's own certificate stands first.
    #[must_use]
    pub(crate) fn of(chain: Option<&[CertificateDer<'_>]>) -> Self {
        match chain.and_then(<[_]>::first) {
            None => Shown::Nothing,
            Some(certificate) => name(certificate)
                .filter(|name| check_name(name).is_ok())
                .map_or(Shown::Nameless, |name| Shown::Named(Principal::named(&name, None))),
        }
    }

    pub(super) fn prove(&self) -> Result<Principal, Unproven> {
        match self {
            Shown::Nothing => Err(Unproven::Nothing),
            Shown::Named(principal) => Ok(principal.clone()),
            Shown::Nameless => Err(Unproven::invalid("the certificate names nobody")),
        }
    }
}

fn name(certificate: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    if let Ok(Some(names)) = certificate.subject_alternative_name() {
        let names = &names.value.general_names;
        let of = |kind: fn(&GeneralName<'_>) -> Option<String>| names.iter().find_map(kind);
        let found = of(|name| match name {
            GeneralName::URI(uri) => Some((*uri).to_owned()),
            _ => None,
        })
        .or_else(|| {
            of(|name| match name {
                GeneralName::DNSName(name) => Some((*name).to_owned()),
                _ => None,
            })
        })
        .or_else(|| {
            of(|name| match name {
                GeneralName::RFC822Name(address) => Some((*address).to_owned()),
                _ => None,
            })
        });
        if found.is_some() {
            return found;
        }
    }
    let common = certificate.subject().iter_common_name().next()?;
    common.as_str().ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    #[test]
    fn the_best_name_of_a_certificate_counts() {
        let uri = || SanType::URI("spiffe://mesh/agent".try_into().unwrap());
        let dns = || SanType::DnsName("agent.example".try_into().unwrap());
        let mail = || SanType::Rfc822Name("agent@example.org".try_into().unwrap());
        let cases = [
            (vec![mail(), dns(), uri()], Some("cn"), Some("spiffe://mesh/agent")),
            (vec![mail(), dns()], Some("cn"), Some("agent.example")),
            (vec![mail()], Some("cn"), Some("agent@example.org")),
            (vec![], Some("cn"), Some("cn")),
            (vec![], None, None),
        ];
        for (alternative, common, wanted) in cases {
            let mut params = CertificateParams::default();
            params.subject_alt_names = alternative;
            params.distinguished_name = rcgen::DistinguishedName::new();
            if let Some(common) = common {
                params.distinguished_name.push(DnType::CommonName, common);
            }
            let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            let shown = Shown::of(Some(&[made.der().clone()]));
            let wanted = wanted.map(|name| Principal::named(name, None));
            assert_eq!(shown.prove().ok(), wanted);
        }
        assert_eq!(Shown::of(None).prove(), Err(Unproven::Nothing));
        assert!(matches!(Shown::of(Some(&[vec![1, 2].into()])), Shown::Nameless));
    }
}
