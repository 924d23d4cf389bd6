//! Starts what the story is played on: the scripted model and two guards, on free ports.

use crate::cli::scripted::{self, Script};
use serde_json::Value;
use std::io;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What stands in place of a result that came too late (the configured default).
pub(super) const TIMEOUT_NOTICE: &str = r#"{"ok":false,"error":{"code":"timeout"}}"#;

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
}

impl Stage {
    /// Starts everything.
    ///
    /// # Errors
    /// When a port cannot be had or a guard does not start.
    pub(super) async fn start() -> io::Result<Self> {
        Self::unguarded().await
    }

    /// Starts the model alone, in the guards' place too.
    pub(super) async fn unguarded() -> io::Result<Self> {
        let script = Script::parse(SCRIPT).map_err(io::Error::other)?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let upstream = format!("http://{}", listener.local_addr()?);
        let model = tokio::spawn(scripted::serve(listener, script));
        Ok(Stage {
            guard: upstream.clone(),
            hasty: upstream.clone(),
            admin: upstream.clone(),
            upstream,
            model,
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
        self.model.abort();
        let _ = self.model.await;
    }
}
