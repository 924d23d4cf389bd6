//! Configuration: raw text becomes one resolved, immutable [`Policy`].
//!
//! Defaults, then the file, the environment and the flags are laid over one another (`raw`), read key by
//! key (`section`) and resolved (`resolve`). A policy that exists is sound: every bound is set, every
//! name is valid, every file it names was read. What is wrong stops the start with all [`Problems`] at
//! once, and a key whose feature is not built is refused: nobody shall believe in a guard that is not there.

pub mod auth;
mod findings;
mod headers;
mod loose;
mod ports;
mod problem;
mod profile;
mod raw;
pub mod reference;
mod reload;
mod resolve;
mod rules;
mod section;
mod show;
mod store;
mod telemetry;
#[cfg(test)]
mod tests;
pub mod tls;
mod tools;
mod units;
mod upstream;
mod watch;

pub use auth::Auth;
pub use loose::Loose;
pub use problem::{Origin, Problem, Problems};
pub use profile::Profile;
pub use resolve::{FlagOverrides, Sources, load, load_built_in};
pub use telemetry::{Record, RecordTo};
pub use tls::Tls;
pub use units::duration;
pub use watch::{Watch, Watched};

use crate::guard::verdict;
use crate::ledger;
use crate::store::embedded::Durability;
use crate::store::redis::Address;
use http::{HeaderName, Uri};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Everything that is configured, resolved.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Client port.
    pub listen: SocketAddr,
    /// Whether `listen` may be reached by others though nobody proves who they are: to be said aloud.
    pub insecure: bool,
    /// Admin port.
    pub admin: Admin,
    /// Where requests go.
    pub upstream: Upstream,
    /// Bounds.
    pub limits: Limits,
    /// The profile that `rules` began from.
    pub profile: Profile,
    /// What is done about each code (the guard's and the ledger's).
    pub rules: verdict::Rules,
    /// What enforcing would do about each code: under `observe`, the standard profile with the single rules
    /// on top; otherwise the same as `rules`. What it would refuse and `rules` only note is counted so.
    pub enforced: verdict::Rules,
    /// `observe`: calls are not held back in streams, nothing is refused. False when a single rule is set
    /// to `refuse` on top of the profile: what may be refused must be held.
    pub observe: bool,
    /// The ledger's settings (`rules` is the same as above).
    pub ledger: Arc<ledger::rules::Rules>,
    /// Headers that name a conversation, the default first.
    pub conversation_headers: Vec<HeaderName>,
    /// Whether a request without a conversation header is refused.
    pub conversation_required: bool,
    /// Most conversations per principal.
    pub max_conversations: usize,
    /// Header that bears the generation.
    pub generation_header: HeaderName,
    /// The notices.
    pub notices: Notices,
    /// Tools: allow-list and single rules.
    pub tools: Tools,
    /// How clients prove who they are.
    pub auth: Auth,
    /// TLS on the client port.
    pub tls: Option<Tls>,
    /// Paths that are forwarded unguarded.
    pub routes_pass: Vec<String>,
    /// Which store.
    pub store: StoreKind,
    /// What becomes of a tracked exchange while it does not answer.
    pub store_on_error: OnError,
    /// Logs.
    pub log_format: LogFormat,
    /// The task record.
    pub record: Record,
    /// The collector that traces go to: the base URL of its OTLP/HTTP receiver.
    pub otlp_endpoint: Option<Uri>,
    /// The files that all this was read from: a change of one is a reason to read all again.
    pub files: Vec<Watched>,
    /// Those that hold secrets, and the store's key.
    pub private_files: Vec<PathBuf>,
}

/// The admin port.
#[derive(Clone, Debug)]
pub struct Admin {
    /// Where it listens.
    pub listen: SocketAddr,
    /// File that holds its token; needed when `listen` is not loopback.
    pub token_file: Option<PathBuf>,
    /// The token, read from that file or from `TIGERTALLY_ADMIN__TOKEN`.
    pub token: Option<Secret>,
}

/// The server behind.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Its base URL, without a trailing slash and without `/v1`.
    pub url: Uri,
    /// What it is.
    pub kind: UpstreamKind,
    /// Its key, read from `api_key_file` or from `TIGERTALLY_UPSTREAM__API_KEY`.
    pub api_key: Option<Secret>,
    /// Bound on connecting.
    pub connect_timeout: Duration,
    /// Bound on the wait for the response's head.
    pub first_byte_timeout: Duration,
    /// Bound on the wait between two reads of the body.
    pub idle_timeout: Duration,
    /// Whether a `rid` is spliced in (`sglang` only).
    pub rid: bool,
}

/// What kind of server stands behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamKind {
    /// SGLang: `rid`, `/abort_request`.
    Sglang,
    /// Any OpenAI-compatible server.
    Openai,
}

/// A secret: never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    #[must_use]
    pub fn new(text: String) -> Self {
        Secret(text)
    }

    /// The secret itself, for the one place that sends it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Bounds on size, number and time.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Largest request body, and largest whole response body.
    pub body_bytes: usize,
    /// Most bytes held of one response while its calls are judged.
    pub held_bytes: usize,
    /// Most client connections.
    pub connections: usize,
    /// Most exchanges in flight.
    pub exchanges: usize,
    /// Bound on reading a request's head, and on each wait for its body.
    pub header_read_timeout: Duration,
    /// How long a client's connection is kept for its next request.
    pub keep_alive_timeout: Duration,
    /// How long a client may take nothing of its answer. Not a key: what fits into sockets and the HTTP
    /// server's buffers waits longer in any case.
    pub client_pause: Duration,
    /// How long exchanges in flight may go on after SIGTERM.
    pub drain_timeout: Duration,
    /// Deepest JSON nesting.
    pub depth: usize,
}

/// Texts put in place of a result.
#[derive(Clone, Debug)]
pub struct Notices {
    /// For a call that timed out.
    pub timeout: String,
    /// For a call whose task the user left.
    pub superseded: String,
    /// Further exact texts that count as closings.
    pub also: Vec<String>,
}

/// Tools as the operator sees them.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    /// Names that may be proposed; `None`: any that the request offers.
    pub allow: Option<Vec<String>>,
    /// Most calls in one message.
    pub max_calls: Option<usize>,
    /// Deadline of calls that set none of their own.
    pub deadline: Option<Duration>,
    /// Single tools.
    pub each: HashMap<String, Tool>,
}

/// What is set for one tool.
#[derive(Clone, Debug, Default)]
pub struct Tool {
    /// Whether it is a write.
    pub write: bool,
    /// Its deadline.
    pub deadline: Option<Duration>,
    /// Arguments that only the server may set, at any depth.
    pub server_owned: Vec<String>,
    /// Arguments that a result may echo, and must echo unchanged.
    pub echo: Vec<String>,
    /// Whether a human may edit arguments before approval.
    pub edits_allowed: bool,
    /// The operator's stricter JSON Schema, as text (read from its file, known to compile).
    pub schema: Option<Arc<str>>,
}

/// Which store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// In this process: lost at its end.
    Memory,
    /// In this process and on its disk.
    Embedded {
        /// The data directory.
        path: PathBuf,
        /// Where the key of the digests is kept; `None`: in the data directory.
        key_file: Option<PathBuf>,
        /// What an outcome survives.
        durability: Durability,
    },
    /// Shared by replicas.
    Redis {
        /// Where it is, with its password.
        address: Box<Address>,
        /// What its keys begin with.
        prefix: String,
        /// Where the key of the digests is kept; `None`: in Redis.
        key_file: Option<PathBuf>,
    },
}

/// What becomes of a tracked exchange while the store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// It is refused; an answer that cannot be settled is withheld.
    Closed,
    /// It goes on by the untracked rules, and is marked.
    Open,
}

impl StoreKind {
    /// The file that it was told to keep the key of its digests in.
    #[must_use]
    pub fn key_file(&self) -> Option<&Path> {
        match self {
            StoreKind::Memory => None,
            StoreKind::Embedded { key_file, .. } | StoreKind::Redis { key_file, .. } => {
                key_file.as_deref()
            }
        }
    }
}

impl std::fmt::Display for StoreKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StoreKind::Memory => f.write_str("memory"),
            StoreKind::Embedded { path, durability, .. } => {
                write!(f, "embedded:{} ({})", path.display(), durability.as_str())
            }
            StoreKind::Redis { address, .. } => write!(f, "{address}"),
        }
    }
}

/// How logs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Pretty,
}

impl Policy {
    /// Whether others can reach the client port though nobody is asked who they are.
    #[must_use]
    pub fn is_open_to_others(&self) -> bool {
        let asks = self.auth.asks() || self.tls.as_ref().is_some_and(Tls::wants_certificates);
        !self.listen.ip().is_loopback() && !asks
    }
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            listen: SocketAddr::from(([127, 0, 0, 1], 8090)),
            insecure: false,
            admin: Admin::default(),
            upstream: Upstream::default(),
            limits: Limits::default(),
            profile: Profile::default(),
            rules: Profile::default().rules(),
            enforced: Profile::default().rules(),
            observe: false,
            ledger: Arc::default(),
            conversation_headers: vec![HeaderName::from_static("x-conversation-id")],
            conversation_required: false,
            max_conversations: 100_000,
            generation_header: HeaderName::from_static("x-generation"),
            notices: Notices::default(),
            tools: Tools::default(),
            auth: Auth::None,
            tls: None,
            routes_pass: Vec::new(),
            store: StoreKind::Embedded {
                path: PathBuf::from(".tigertally"),
                key_file: None,
                durability: Durability::Process,
            },
            store_on_error: OnError::Closed,
            log_format: LogFormat::Pretty,
            record: Record::default(),
            otlp_endpoint: None,
            files: Vec::new(),
            private_files: Vec::new(),
        }
    }
}

impl Default for Admin {
    fn default() -> Self {
        Admin { listen: SocketAddr::from(([127, 0, 0, 1], 9464)), token_file: None, token: None }
    }
}

impl Default for Upstream {
    fn default() -> Self {
        Upstream {
            url: Uri::from_static("http://127.0.0.1:30000"),
            kind: UpstreamKind::Sglang,
            api_key: None,
            connect_timeout: Duration::from_secs(5),
            first_byte_timeout: Duration::from_secs(600),
            idle_timeout: Duration::from_secs(300),
            rid: true,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            body_bytes: 64 << 20,
            held_bytes: 8 << 20,
            connections: 16_384,
            exchanges: 4_096,
            header_read_timeout: Duration::from_secs(10),
            // Longer than what stands in front of it keeps its own (600 s in some clouds' load balancers), as
            // the other end should be the first to close.
            keep_alive_timeout: Duration::from_secs(660),
            client_pause: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(30),
            depth: 128,
        }
    }
}

impl Default for Notices {
    fn default() -> Self {
        Notices {
            timeout: r#"{"ok":false,"error":{"code":"timeout"}}"#.to_owned(),
            superseded: r#"{"ok":false,"error":{"code":"superseded"}}"#.to_owned(),
            also: Vec::new(),
        }
    }
}
