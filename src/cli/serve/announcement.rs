//! What a start says: where it listens, what it guards, what is open and what is not.
//!
//! As fields of one log line, for whoever collects logs, and on a terminal as a few lines for whoever has just
//! started it.

use crate::policy::{Auth, Policy, StoreKind, UpstreamKind};
use crate::proxy::router;
use std::fmt;
use std::net::SocketAddr;

/// What is in force, in words. No secrets: a store's address is shown without its password.
pub(super) struct Announcement {
    scheme: &'static str,
    listen: SocketAddr,
    admin: SocketAddr,
    upstream: String,
    kind: &'static str,
    profile: &'static str,
    observe: bool,
    auth: &'static str,
    asked: &'static str,
    insecure: bool,
    store: String,
    forgets: bool,
    unguarded: Vec<String>,
}

impl Announcement {
    /// Of a policy that is in force on these ports.
    pub(super) fn of(policy: &Policy, listen: SocketAddr, admin: SocketAddr) -> Self {
        Announcement {
            scheme: if policy.tls.is_some() { "https" } else { "http" },
            listen,
            admin,
            upstream: policy.upstream.url.to_string(),
            kind: match policy.upstream.kind {
                UpstreamKind::Sglang => "sglang",
                UpstreamKind::Openai => "openai",
            },
            profile: policy.profile.as_str(),
            observe: policy.observe,
            auth: policy.auth.mode(),
            asked: asked(policy),
            insecure: policy.is_open_to_others(),
            store: policy.store.to_string(),
            forgets: policy.store == StoreKind::Memory,
            unguarded: policy.routes_pass.clone(),
        }
    }

    /// Writes the log line.
    pub(super) fn log(&self) {
        let unguarded = self.unguarded.join(" ");
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            listen = %self.listen,
            scheme = self.scheme,
            auth = self.auth,
            admin = %self.admin,
            upstream = self.upstream,
            kind = self.kind,
            profile = self.profile,
            observe = self.observe,
            store = self.store,
            guards = router::CHAT,
            unguarded = if unguarded.is_empty() { "none" } else { &unguarded },
            "listening"
        );
        if self.insecure {
            tracing::warn!("others can reach the client port and nobody proves who they are");
        }
    }
}

/// Who may ask, in words.
fn asked(policy: &Policy) -> &'static str {
    match &policy.auth {
        Auth::None if policy.is_open_to_others() => {
            "whoever reaches the port: nobody is asked who they are"
        }
        Auth::None if policy.tls.as_ref().is_some_and(|tls| tls.client_ca_file.is_some()) => {
            "whoever shows a certificate of tls.client_ca_file"
        }
        Auth::None => {
            "whoever is on this machine: nobody is asked who they are (auth.mode = \"none\")"
        }
        Auth::Keys { .. } => "clients with a key (`tigertally keys`)",
        Auth::Jwt(_) => "clients with a token of the issuer",
        Auth::Header(_) => "clients that a trusted peer names in a header",
        Auth::Certificate => "clients with a certificate",
    }
}

impl fmt::Display for Announcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Announcement { scheme, listen, admin, upstream, kind, profile, store, asked, .. } =
            self;
        let chat = router::CHAT;
        let withheld = if self.observe { ": judges, counts, and holds nothing back" } else { "" };
        let forgets = if self.forgets { ": forgotten when it ends" } else { "" };
        writeln!(f, "tigertally {}", env!("CARGO_PKG_VERSION"))?;
        writeln!(f, "  clients     {scheme}://{listen}/v1 is their base URL")?;
        writeln!(f, "  asks        {asked}")?;
        writeln!(f, "  guards      POST {chat}, profile {profile}{withheld}")?;
        writeln!(f, "  forwards to {upstream} ({kind})")?;
        writeln!(f, "  open        GET /v1/models, GET /health, and /guard/v1/ for applications")?;
        match self.unguarded.as_slice() {
            [] => writeln!(f, "  closed      every other path (routes.pass opens single ones)")?,
            paths => {
                writeln!(f, "  unguarded   {} (routes.pass)", paths.join(" "))?;
                writeln!(f, "  closed      every other path")?;
            }
        }
        writeln!(f, "  remembers   {store}{forgets}")?;
        write!(f, "  operators   http://{admin}/console, /metrics, /readyz")
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::policy::{self, FlagOverrides, Sources};

    fn said(env: &[(&str, &str)]) -> String {
        let pair =
            |(name, value): &(&str, &str)| (format!("TIGERTALLY_{name}"), (*value).to_owned());
        let env = env.iter().map(pair).collect();
        let sources = Sources { file: None, env, flags: FlagOverrides::default() };
        let policy = policy::load(sources).unwrap();
        Announcement::of(&policy, policy.listen, policy.admin.listen).to_string()
    }

    #[test]
    fn a_plain_start_says_where_what_and_who() {
        let text = said(&[("STORE__KIND", "embedded:/var/lib/t")]);
        let expected = format!(
            "tigertally {}\n  \
            clients     http://127.0.0.1:8090/v1 is their base URL\n  \
            asks        whoever is on this machine: nobody is asked who they are (auth.mode = \"none\")\n  \
            guards      POST /v1/chat/completions, profile standard\n  \
            forwards to http://127.0.0.1:30000/ (sglang)\n  \
            open        GET /v1/models, GET /health, and /guard/v1/ for applications\n  \
            closed      every other path (routes.pass opens single ones)\n  \
            remembers   embedded:/var/lib/t (process)\n  \
            operators   http://127.0.0.1:9464/console, /metrics, /readyz",
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn what_is_open_is_said() {
        let text = said(&[
            ("STORE__KIND", "memory:"),
            ("LISTEN", "0.0.0.0:8090"),
            ("INSECURE", "true"),
            ("GUARD__PROFILE", "observe"),
            ("ROUTES__PASS", "/v1/embeddings"),
        ]);
        for words in [
            "whoever reaches the port: nobody is asked",
            "profile observe: judges, counts, and holds nothing back",
            "unguarded   /v1/embeddings (routes.pass)",
            "memory: forgotten when it ends",
        ] {
            assert!(text.contains(words), "{words}:\n{text}");
        }
    }

    #[test]
    fn no_password_is_said() {
        let text = said(&[("STORE__KIND", "redis"), ("STORE__URL", "redis://u:s3cret@r:6379")]);
        assert!(text.contains("r:6379") && !text.contains("s3cret"), "{text}");
    }
}
