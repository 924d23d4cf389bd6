//! Where the Redis is: the URL that an operator writes, taken apart.
//!
//! ```text
//! redis://user:password@host:6379/0                 one server
//! redis+sentinel://user:password@h1,h2:26379/master the server that the Sentinels name
//! redis+cluster://user:password@h1,h2,h3            a Cluster; the hosts are where we ask for the others
//! rediss…                                           any of these over TLS
//! ```
//! Behind a `?`: `ca_file` (trust these roots and no others), `sentinel_username` and `sentinel_password`
//! (without them the Sentinels are asked with no password).

use std::fmt;

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// What stands at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Topology {
    /// One server.
    Single,
    /// The server that the Sentinels name by this name.
    Sentinel(String),
    /// A Cluster.
    Cluster,
}

/// A name and its password.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
}

/// A URL taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub(super) topology: Topology,
    pub(super) hosts: Vec<(String, u16)>,
    pub(super) tls: bool,
    pub(super) login: Login,
    pub(super) sentinel_login: Login,
    pub(super) database: i64,
    pub(super) ca_file: Option<String>,
}

/// What is wrong with a URL. It never quotes the URL: a password stands in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Not one of ours.
    #[error(
        "must begin with redis://, redis+sentinel:// or redis+cluster://, or with rediss for TLS"
    )]
    Scheme,
    /// A host is missing, or a port is no port.
    #[error("must name its hosts as host:port, divided by commas")]
    Host,
    /// The path is not what the scheme wants.
    #[error(
        "a Sentinel URL ends in /NAME of the master, a single server's in /NUMBER of the database or nothing, and a Cluster's in nothing"
    )]
    Path,
    /// A `%` is not followed by two hexadecimal digits, or they make no UTF-8.
    #[error("% must be followed by two hexadecimal digits; write a % in a password as %25")]
    Percent,
    /// An option that we do not know.
    #[error("knows only the options ca_file, sentinel_username and sentinel_password")]
    Option,
}

impl Address {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// When it is not one of the forms above.
    pub fn parse(url: &str) -> Result<Self, AddressError> {
        let (scheme, rest) = url.split_once("://").ok_or(AddressError::Scheme)?;
        let (family, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        let tls = match family {
            "redis" => false,
            "rediss" => true,
            _ => return Err(AddressError::Scheme),
        };
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let topology = match kind {
            "" => Topology::Single,
            "cluster" => Topology::Cluster,
            "sentinel" => Topology::Sentinel(decoded(path)?),
            _ => return Err(AddressError::Scheme),
        };
        let port = if matches!(topology, Topology::Sentinel(_)) { SENTINEL_PORT } else { PORT };
        let hosts: Vec<_> =
            hosts.split(',').map(|one| host(one, port)).collect::<Result<_, _>>()?;
        let database = match &topology {
            Topology::Single if hosts.len() > 1 => return Err(AddressError::Host),
            Topology::Single if path.is_empty() => 0,
            Topology::Single => path.parse().map_err(|_| AddressError::Path)?,
            Topology::Sentinel(name) if name.is_empty() => return Err(AddressError::Path),
            Topology::Sentinel(_) => 0,
            Topology::Cluster if path.is_empty() => 0,
            Topology::Cluster => return Err(AddressError::Path),
        };
        let login = self::login(login)?;
        let sentinel_login = Login::default();
        let mut address =
            Address { topology, hosts, tls, login, sentinel_login, database, ca_file: None };
        options.split('&').filter(|one| !one.is_empty()).try_for_each(|one| address.option(one))?;
        Ok(address)
    }

    fn option(&mut self, option: &str) -> Result<(), AddressError> {
        let (name, value) = option.split_once('=').ok_or(AddressError::Option)?;
        let value = Some(decoded(value)?);
        match name {
            "ca_file" => self.ca_file = value,
            "sentinel_username" => self.sentinel_login.username = value,
            "sentinel_password" => self.sentinel_login.password = value,
            _ => return Err(AddressError::Option),
        }
        Ok(())
    }
}

fn host(text: &str, port: u16) -> Result<(String, u16), AddressError> {
    // An IPv6 address stands in brackets (RFC 3986 section 3.2.2).
    let (name, rest) = match text.strip_prefix('[') {
        Some(inner) => inner.split_once(']').ok_or(AddressError::Host)?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match rest.strip_prefix(':') {
        Some(port) => port.parse().map_err(|_| AddressError::Host)?,
        None if rest.is_empty() => port,
        None => return Err(AddressError::Host),
    };
    if name.is_empty() || port == 0 {
        return Err(AddressError::Host);
    }
    Ok((name.to_owned(), port))
}

fn login(text: &str) -> Result<Login, AddressError> {
    let (username, password) = text.split_once(':').unwrap_or((text, ""));
    let given = |text: &str| Ok((!text.is_empty()).then_some(decoded(text)?));
    Ok(Login { username: given(username)?, password: given(password)? })
}

/// Percent-encoding (RFC 3986 section 2.1) undone.
fn decoded(text: &str) -> Result<String, AddressError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = rest.get(..2).filter(|two| two.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|two| std::str::from_utf8(two).ok());
        let byte = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        bytes.push(byte.ok_or(AddressError::Percent)?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| AddressError::Percent)
}

/// Without the login: for logs and for people.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls { "rediss" } else { "redis" })?;
        f.write_str(match self.topology {
            Topology::Single => "://",
            Topology::Sentinel(_) => "+sentinel://",
            Topology::Cluster => "+cluster://",
        })?;
        for (at, (host, port)) in self.hosts.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
            write!(f, "{comma}{open}{host}{close}:{port}")?;
        }
        match &self.topology {
            Topology::Sentinel(master) => write!(f, "/{master}"),
            Topology::Single if self.database != 0 => write!(f, "/{}", self.database),
            Topology::Single | Topology::Cluster => Ok(()),
        }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(..)")
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn each_form_is_read() {
        let one = Address::parse("redis://10.0.0.1").unwrap();
        assert_eq!((one.topology, one.database, one.tls), (Topology::Single, 0, false));
        assert_eq!(one.hosts, [("10.0.0.1".to_owned(), 6379)]);
        let one = Address::parse("rediss://:p%40ss@[::1]:7000/3?ca_file=/etc/ca.pem").unwrap();
        assert_eq!((one.hosts, one.database, one.tls), (vec![("::1".to_owned(), 7000)], 3, true));
        assert_eq!(one.login.password.as_deref(), Some("p@ss"));
        assert_eq!(one.login.username, None);
        assert_eq!(one.ca_file.as_deref(), Some("/etc/ca.pem"));
        let one =
            Address::parse("redis+sentinel://u:p@a,b:1/mymaster?sentinel_password=s").unwrap();
        assert_eq!(one.topology, Topology::Sentinel("mymaster".to_owned()));
        assert_eq!(one.hosts, [("a".to_owned(), 26379), ("b".to_owned(), 1)]);
        assert_eq!(one.sentinel_login.password.as_deref(), Some("s"));
        let one = Address::parse("rediss+cluster://u:a:b@h1,h2").unwrap();
        assert_eq!((one.topology, one.tls, one.hosts.len()), (Topology::Cluster, true, 2));
        assert_eq!(one.login.password.as_deref(), Some("a:b"));
    }

    #[test]
    fn it_is_shown_as_it_was_written_but_for_the_login() {
        for url in [
            "redis://h:1",
            "rediss://[::1]:7/3",
            "redis+sentinel://a:1,b:2/m",
            "rediss+cluster://a:1",
        ] {
            let with_login = url.replace("://", "://u:p@");
            assert_eq!(Address::parse(&with_login).unwrap().to_string(), url);
        }
    }

    #[test]
    fn what_is_wrong_is_told_without_the_password() {
        for (url, error) in [
            ("", AddressError::Scheme),
            ("http://h", AddressError::Scheme),
            ("redis+ring://h", AddressError::Scheme),
            ("redis://", AddressError::Host),
            ("redis://h:x", AddressError::Host),
            ("redis://h:0", AddressError::Host),
            ("redis://a,b", AddressError::Host),
            ("redis+cluster://a,,b", AddressError::Host),
            ("redis://h/first", AddressError::Path),
            ("redis+cluster://h/1", AddressError::Path),
            ("redis+sentinel://h", AddressError::Path),
            ("redis://:a%zz@h", AddressError::Percent),
            ("redis://h?tls=1", AddressError::Option),
        ] {
            assert_eq!(Address::parse(url), Err(error), "{url}");
        }
        let address = Address::parse("redis://me:secret@h").unwrap();
        assert!(!format!("{address:?} {address}").contains("secret"));
    }
}
