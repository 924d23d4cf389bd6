//! The program under test in a process of its own, and what the operating system and its own metrics
//! say of it.

use crate::exchange::HttpClient;
use crate::program::Program;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use std::fmt;
use std::time::{Duration, Instant};

/// The store's folder.
const STORE: &str = "data";

pub(crate) struct Process {
    program: Program,
    client: HttpClient,
}

/// The process at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    /// Resident memory in bytes.
    pub(crate) resident: u64,
    pub(crate) sockets: usize,
    pub(crate) runtime_tasks: i64,
    pub(crate) in_flight: i64,
    pub(crate) held: i64,
    pub(crate) open_calls: i64,
    /// Bytes of the store's files.
    pub(crate) stored: u64,
}

/// A conversation's record.
pub(crate) struct Record {
    pub(crate) open_calls: i64,
    pub(crate) under_way: i64,
    pub(crate) generation: u64,
    pub(crate) calls: Vec<RecordedCall>,
}

/// A call, as a record tells it.
pub(crate) struct RecordedCall {
    pub(crate) generation: u64,
    pub(crate) id: String,
    pub(crate) state: String,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = self.resident as f64 / f64::from(1 << 20);
        let stored = self.stored as f64 / f64::from(1 << 20);
        let Sample { sockets, runtime_tasks, in_flight, held, open_calls, .. } = self;
        write!(
            f,
            "{megabytes:.1} MiB, {stored:.1} MiB stored, {sockets} sockets, {runtime_tasks} tasks, {in_flight} in flight, {held} bytes held, {open_calls} calls open"
        )
    }
}

impl Process {
    pub(crate) async fn start(upstream: &str) -> Self {
        // No connection is kept, so that none of ours is among those that are counted.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
        let answers = async |url: &str| {
            ask(&client, Method::GET, &format!("{url}/health"), "").await.is_some()
        };
        let store = [("TIGERTALLY_STORE__KIND", "embedded"), ("TIGERTALLY_STORE__PATH", STORE)];
        let program = Program::start(upstream, &store, answers).await;
        Process { program, client }
    }

    /// Where clients connect.
    pub(crate) fn url(&self) -> &str {
        &self.program.url
    }

    /// One exchange, so that what is made with the first one is there before anything is counted.
    pub(crate) async fn warm_up(&self) {
        let body = r#"{"model":"m","messages":[{"role":"user","content":"Hello."}]}"#;
        let url = format!("{}/v1/chat/completions", self.url());
        let answer = self.ask(Method::POST, &url, body).await;
        assert!(answer.is_some_and(|text| text.contains("ready")), "{}", self.program.log());
        self.settles(5, |sample| sample.in_flight == 0).await.unwrap();
    }

    /// The process when nothing happens. Connections of ours take a moment to close, so the least of
    /// several samples tells.
    pub(crate) async fn idle(&self) -> Sample {
        let mut least = self.sample().await;
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let sample = self.sample().await;
            least.sockets = least.sockets.min(sample.sockets);
            least.runtime_tasks = least.runtime_tasks.min(sample.runtime_tasks);
        }
        least
    }

    /// The process now.
    pub(crate) async fn sample(&self) -> Sample {
        let metrics = self.ask(Method::GET, &format!("{}/metrics", self.program.admin), "").await;
        let metrics = metrics.unwrap_or_default();
        let gauge = |name: &str| {
            let line = metrics.lines().find_map(|line| {
                line.strip_prefix("tigertally_")?.strip_prefix(name)?.strip_prefix(' ')
            });
            // One that is not there would be idle for ever.
            line.unwrap_or_else(|| panic!("no gauge {name} in:\n{metrics}")).parse().unwrap()
        };
        Sample {
            resident: self.resident(),
            sockets: self.sockets(),
            runtime_tasks: gauge("runtime_tasks"),
            in_flight: gauge("in_flight_exchanges"),
            held: gauge("held_bytes"),
            open_calls: gauge("open_calls"),
            stored: self.stored(),
        }
    }

    /// Waits until a sample is as wanted; the last one when none is within so many seconds.
    pub(crate) async fn settles(
        &self,
        seconds: u64,
        as_wanted: impl Fn(&Sample) -> bool,
    ) -> Result<Sample, Sample> {
        let end = Instant::now() + Duration::from_secs(seconds);
        loop {
            let sample = self.sample().await;
            if as_wanted(&sample) {
                return Ok(sample);
            }
            if Instant::now() > end {
                return Err(sample);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The record of a conversation once no exchange is under way, or after a while.
    pub(crate) async fn settled_record(&self, conversation: &str) -> Record {
        let end = Instant::now() + Duration::from_secs(2);
        loop {
            let record = self.record(conversation).await;
            if record.under_way == 0 || Instant::now() > end {
                return record;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn record(&self, conversation: &str) -> Record {
        let url = format!("{}/guard/v1/conversations/{conversation}", self.url());
        let record = self.ask(Method::GET, &url, "").await.unwrap();
        let record: Value = serde_json::from_str(&record).unwrap();
        let count = |list: &str, states: &[&str]| {
            let all = record[list].as_array().unwrap().iter();
            let such = all.filter(|one| states.contains(&one["state"].as_str().unwrap()));
            such.count().try_into().unwrap()
        };
        let calls = record["calls"].as_array().unwrap().iter();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Record {
            generation: record["generation"].as_u64().unwrap_or(0),
            calls: calls
                .map(|call| RecordedCall {
                    generation: call["generation"].as_u64().unwrap(),
                    id: text(&call["tool_call_id"]),
                    state: text(&call["state"]),
                })
                .collect(),
            open_calls: count("calls", &["open"]),
            under_way: count("exchanges", &["in_flight", "settled"]),
        }
    }

    /// The user of a conversation moves on.
    pub(crate) async fn advance(&self, conversation: &str) {
        let url = format!("{}/guard/v1/conversations/{conversation}/generation", self.url());
        self.ask(Method::POST, &url, "{}").await.unwrap();
    }

    /// Keeps the log, and says where it is.
    pub(crate) fn keep_log(self) {
        eprintln!("its log is {}", self.program.keep_log().display());
    }

    async fn ask(&self, method: Method, url: &str, body: &str) -> Option<String> {
        ask(&self.client, method, url, body).await
    }

    fn resident(&self) -> u64 {
        let status = format!("/proc/{}/status", self.program.id());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    fn stored(&self) -> u64 {
        let files = std::fs::read_dir(self.program.folder().join(STORE)).unwrap();
        // One that is deleted meanwhile is none.
        files.filter_map(|file| file.ok()?.metadata().ok()).map(|file| file.len()).sum()
    }

    fn sockets(&self) -> usize {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.program.id())).unwrap();
        // One that is closed meanwhile is none.
        open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
            .filter(|target| target.to_string_lossy().starts_with("socket:"))
            .count()
    }
}

async fn ask(client: &HttpClient, method: Method, url: &str, body: &str) -> Option<String> {
    let request = Request::builder()
        .method(method)
        .uri(url)
        .header("content-type", "application/json")
        .header("connection", "close")
        .body(Full::new(Bytes::from(body.to_owned())))
        .unwrap();
    let response = client.request(request).await.ok()?;
    let bytes = response.into_body().collect().await.ok()?.to_bytes();
    String::from_utf8(bytes.to_vec()).ok()
}
