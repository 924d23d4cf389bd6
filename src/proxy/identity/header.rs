//! `mode = "header"`: an identity that a mesh or gateway in front has checked, in a header that it sets.
//!
//! Anybody can write a header. So it counts only on a connection whose other end is a trusted peer; from
//! everyone else it is as if it were not there.

use super::{Principal, Unproven, single};
use crate::policy::auth::IdentityHeader;
use crate::policy::auth::keys::check_name;
use http::{HeaderMap, HeaderName};
use std::net::IpAddr;
use std::sync::Arc;

/// Takes the word of trusted peers.
#[derive(Debug)]
pub(super) struct Trusting(pub(super) Arc<IdentityHeader>);

impl Trusting {
    pub(super) fn prove(&self, headers: &HeaderMap, peer: IpAddr) -> Result<Principal, Unproven> {
        let IdentityHeader { header, tenant_header, trusted_peers } = &*self.0;
        if !trusted_peers.iter().any(|network| network.holds(peer)) {
            return Err(Unproven::invalid(format!("{peer} is no trusted peer")));
        }
        let name = named(headers, header)?.ok_or(Unproven::Nothing)?;
        let tenant = match tenant_header {
            None => None,
            Some(header) => Some(
                named(headers, header)?
                    .ok_or_else(|| Unproven::invalid(format!("{header} is missing")))?,
            ),
        };
        Ok(Principal::named(name, tenant))
    }

    /// The headers that bear an identity.
    pub(super) fn headers(&self) -> Vec<HeaderName> {
        [&self.0.header].into_iter().chain(&self.0.tenant_header).cloned().collect()
    }
}

fn named<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, Unproven> {
    let Some(value) = single(headers, name)? else { return Ok(None) };
    check_name(value).map_err(|reason| Unproven::invalid(format!("{name} {reason}")))?;
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::policy::auth::peers::Network;

    #[test]
    fn only_a_trusted_peer_says_who_somebody_is_and_only_once() {
        let trusting = |tenant: Option<&'static str>| {
            Trusting(Arc::new(IdentityHeader {
                header: HeaderName::from_static("x-user"),
                tenant_header: tenant.map(HeaderName::from_static),
                trusted_peers: vec![Network::parse("10.0.0.0/8").unwrap()],
            }))
        };
        let prove = |tenant, entries: &[(&'static str, &str)], peer: &str| {
            let mut headers = HeaderMap::new();
            for (name, value) in entries {
                headers.append(*name, value.parse().unwrap());
            }
            trusting(tenant).prove(&headers, peer.parse().unwrap())
        };
        let alice = Principal::named("alice", None);
        assert_eq!(prove(None, &[("x-user", "alice")], "10.1.1.1"), Ok(alice.clone()));
        assert_eq!(prove(None, &[("x-user", " alice ")], "::ffff:10.1.1.1"), Ok(alice));
        let tenanted = prove(Some("x-org"), &[("x-user", "alice"), ("x-org", "a")], "10.1.1.1");
        assert_eq!(tenanted, Ok(Principal::named("alice", Some("a"))));
        assert_eq!(prove(None, &[], "10.1.1.1"), Err(Unproven::Nothing));
        for (tenant, entries, peer) in [
            (None, vec![("x-user", "alice")], "11.1.1.1"),
            (None, vec![], "11.1.1.1"),
            (None, vec![("x-user", "alice"), ("x-user", "bob")], "10.1.1.1"),
            (None, vec![("x-user", "")], "10.1.1.1"),
            (Some("x-org"), vec![("x-user", "alice")], "10.1.1.1"),
        ] {
            let told = prove(tenant, &entries, peer);
            assert!(matches!(told, Err(Unproven::Invalid(_))), "{entries:?} {told:?}");
        }
    }
}
