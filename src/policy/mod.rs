//! Configuration: raw text becomes one resolved, immutable [`Policy`].

use crate::guard::verdict;
use crate::ledger;
use http::{HeaderName, Uri};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Everything that is configured, resolved.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Client port.
    pub listen: SocketAddr,
    /// Admin port.
    pub admin: Admin,
    /// Where requests go.
    pub upstream: Upstream,
    /// Bounds.
    pub limits: Limits,
    /// What is done about each code (the guard's and the ledger's).
    pub rules: verdict::Rules,
    /// `observe`: calls are not held back in streams, nothing is refused.
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
    /// Paths that are forwarded unguarded.
    pub routes_pass: Vec<String>,
    /// Which store.
    pub store: StoreKind,
    /// Logs.
    pub log_format: LogFormat,
}

/// The admin port.
#[derive(Clone, Debug)]
pub struct Admin {
    /// Where it listens.
    pub listen: SocketAddr,
    /// File that holds its token; needed when `listen` is not loopback.
    pub token_file: Option<PathBuf>,
}

/// The server behind.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Its base URL, without a trailing slash and without `/v1`.
    pub url: Uri,
    /// What it is.
    pub kind: UpstreamKind,
    /// Its key, read from `api_key_file`.
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
}

/// How logs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Pretty,
}
