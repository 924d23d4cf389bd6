//! Networks of trusted peers: an address, or a range as `10.0.0.0/8`.

use std::fmt;
use std::net::IpAddr;

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Reads one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        const FORM: &str = "is no address or range; write \"10.1.2.3\" or \"10.0.0.0/8\"";
        let (address, bits) = match text.split_once('/') {
            None => (text, None),
            Some((address, bits)) => (address, Some(bits)),
        };
        let address: IpAddr = address.trim().parse().map_err(|_| FORM.to_owned())?;
        if let (IpAddr::V6(_), IpAddr::V4(meant)) = (address, address.to_canonical()) {
            return Err(format!("is an IPv4 address in IPv6's form; write it as \"{meant}\""));
        }
        let longest = whole(address);
        let bits = match bits {
            None => longest,
            Some(bits) => bits.trim().parse().map_err(|_| FORM.to_owned())?,
        };
        if bits > longest {
            return Err(format!("has a prefix longer than {longest} bits"));
        }
        let network = Network { address, bits };
        let first = network.first(address);
        if first != address {
            let meant = Network { address: first, bits };
            return Err(format!("has address bits behind its prefix; write \"{meant}\""));
        }
        Ok(network)
    }

    /// Whether an address lies in it. An IPv4 address that comes in IPv6's form is an IPv4 address.
    #[must_use]
    pub fn holds(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && self.first(address) == self.address
    }

    /// The first address of the range of this size that holds `address`.
    fn first(&self, address: IpAddr) -> IpAddr {
        let host = u32::from(whole(address) - self.bits);
        match address {
            IpAddr::V4(address) => {
                let kept = u32::MAX.checked_shl(host).unwrap_or(0);
                IpAddr::V4((address.to_bits() & kept).into())
            }
            IpAddr::V6(address) => {
                let kept = u128::MAX.checked_shl(host).unwrap_or(0);
                IpAddr::V6((address.to_bits() & kept).into())
            }
        }
    }
}

/// Bits of an address of this kind.
fn whole(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        if self.bits == whole(self.address) { Ok(()) } else { write!(f, "/{}", self.bits) }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_network_holds_its_addresses_and_no_others() {
        for (network, address, holds) in [
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.4", false),
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("10.0.0.0/8", "::a00:1", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "2001:db8::1", true),
            ("::/0", "127.0.0.1", false),
            ("2001:db8::/32", "2001:db8:1::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
        ] {
            let parsed = Network::parse(network).unwrap();
            assert_eq!(parsed.holds(address.parse().unwrap()), holds, "{network} {address}");
            assert_eq!(parsed.to_string(), network);
        }
    }

    #[test]
    fn what_is_no_network_is_told() {
        for (text, told) in [
            ("", "is no address"),
            ("gateway", "is no address"),
            ("10.0.0.0/x", "is no address"),
            ("10.0.0.0/33", "longer than 32"),
            ("10.1.0.0/8", "write \"10.0.0.0/8\""),
            ("2001:db8::1/32", "write \"2001:db8::/32\""),
            ("::ffff:10.1.2.3", "write it as \"10.1.2.3\""),
            ("::ffff:10.0.0.0/104", "write it as \"10.0.0.0\""),
        ] {
            let error = Network::parse(text).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
