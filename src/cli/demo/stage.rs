//! Starts what the story is played on: the scripted model and two guards, on free ports.

use crate::cli::scripted_upstream::{self, Script};
use crate::cli::serve;
use crate::policy::{self, FlagOverrides, Policy, Sources};
use crate::proxy::Running;
use serde_json::Value;
use std::io;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What stands in place of a result that came too late (the configured default).
pub(super) const TIMEOUT_NOTICE: &str = r#"{"ok":false,"error":{"code":"timeout"}}"#;

/// The guards' setting: the order query's own, which comes with the program.
const SETTING: (&str, &str) =
    ("config/order-query.toml", include_str!("../../../config/order-query.toml"));

/// Two things that the order desk alone would not say.
const SCRIPT: &str = r#"{
    "slow": {"text": "ORDER-A is in transit.", "stall_after": 2},
    "again": {"calls": [{"name": "get_order_status", "arguments": {"order_id": "ORDER-A"}}]}
}"#;

/// Everything that runs.
pub(super) struct Stage {
    /// The guard's client port.
    pub(super) guard: String,
    /// The client port of a guard with a short deadline.
    pub(super) hasty: String,
    /// The guard's admin port.
    pub(super) admin: String,
    /// The scripted model.
    pub(super) upstream: String,
    model: JoinHandle<io::Result<()>>,
    guards: Vec<Running>,
}

impl Stage {
    /// Starts everything.
    ///
    /// # Errors
    /// When a port cannot be had or a guard does not start.
    pub(super) async fn start() -> io::Result<Self> {
        let mut stage = Self::unguarded().await?;
        let guard = started(policy(&stage.upstream, None)?).await?;
        let hasty = started(policy(&stage.upstream, Some("300ms"))?).await?;
        stage.guard = format!("http://{}", guard.client_addr);
        stage.admin = format!("http://{}", guard.admin_addr);
        stage.hasty = format!("http://{}", hasty.client_addr);
        stage.guards = vec![guard, hasty];
        Ok(stage)
    }

    /// Starts the model alone, in the guards' place too.
    pub(super) async fn unguarded() -> io::Result<Self> {
        let script = Script::parse(SCRIPT).map_err(io::Error::other)?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let upstream = format!("http://{}", listener.local_addr()?);
        #[expect(clippy::disallowed_methods, reason = "aborted and awaited when the stage ends")]
        let model = tokio::spawn(scripted_upstream::serve(listener, script));
        Ok(Stage {
            guard: upstream.clone(),
            hasty: upstream.clone(),
            admin: upstream.clone(),
            upstream,
            model,
            guards: Vec::new(),
        })
    }

    /// The model's record.
    pub(super) async fn seen(&self, http: &reqwest::Client) -> Value {
        let response = http.get(format!("{}/_seen", self.upstream)).send().await;
        match response {
            Ok(response) => response.json().await.unwrap_or(Value::Null),
            Err(_) => Value::Null,
        }
    }

    /// Stops everything.
    pub(super) async fn close(self) {
        for guard in self.guards {
            guard.shutdown().await;
        }
        self.model.abort();
        let _ = self.model.await;
    }
}

/// The order query's setting in front of `upstream`, on free ports and with nothing kept on disk.
fn policy(upstream: &str, deadline: Option<&str>) -> io::Result<Policy> {
    let deadline = deadline
        .map(|time| ("TIGERTALLY_TOOLS__GET_ORDER_STATUS__DEADLINE".to_owned(), time.to_owned()));
    let any_port = || Some("127.0.0.1:0".to_owned());
    let sources = Sources {
        env: deadline.into_iter().collect(),
        flags: FlagOverrides {
            upstream: Some(upstream.to_owned()),
            listen: any_port(),
            admin_listen: any_port(),
            store: Some("memory:".to_owned()),
            ..FlagOverrides::default()
        },
        ..Sources::default()
    };
    policy::load_built_in(SETTING.0, SETTING.1, sources).map_err(io::Error::other)
}

async fn started(policy: Policy) -> io::Result<Running> {
    serve::start(policy).await.map_err(io::Error::other)
}
