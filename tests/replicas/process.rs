//! One process of the built program, which can be killed and started anew.

use serde_json::Value;
use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long we wait for what must come.
const PATIENCE: Duration = Duration::from_secs(40);

pub(crate) struct Process {
    pub(crate) listen: String,
    pub(crate) admin: String,
    upstream: String,
    store: String,
    pub(crate) scratch: TempDir,
    pub(crate) child: Child,
    pub(crate) client: reqwest::Client,
}

/// What a client got.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) operations: String,
    pub(crate) body: String,
}

impl Got {
    pub(crate) fn code(&self) -> String {
        let body: Value = serde_json::from_str(&self.body).unwrap_or(Value::Null);
        body["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

impl Process {
    /// Starts one with this configuration, and waits until it answers. `store` is a URL, or `embedded`: a
    /// folder of its own.
    pub(crate) async fn start(upstream: &str, store: &str, config: &str) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::write(scratch.path().join("tigertally.toml"), config).unwrap();
        let store = match store {
            "embedded" => format!("embedded:{}", scratch.path().join("data").display()),
            other => other.to_owned(),
        };
        let [listen, admin] = [free_address(), free_address()];
        let child = spawn(&scratch, upstream, &store, [&listen, &admin]);
        let (upstream, client) = (upstream.to_owned(), reqwest::Client::new());
        let mut process = Process { listen, admin, upstream, store, scratch, child, client };
        process.answers().await;
        process
    }

    async fn answers(&mut self) {
        let end = Instant::now() + PATIENCE;
        loop {
            let asked = self.client.get(format!("http://{}/health", self.listen)).send().await;
            if asked.is_ok_and(|answer| answer.status() == 200) {
                return;
            }
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < end, "{ended:?}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// `kill -9`
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it anew, on what its store holds.
    pub(crate) async fn restart(&mut self) {
        self.child = spawn(&self.scratch, &self.upstream, &self.store, [&self.listen, &self.admin]);
        self.answers().await;
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default()
    }

    /// A chat request.
    pub(crate) fn ask(&self, headers: &[(&str, &str)], body: &str) -> reqwest::RequestBuilder {
        let mut request = self
            .client
            .post(format!("http://{}/v1/chat/completions", self.listen))
            .header("content-type", "application/json")
            .timeout(PATIENCE)
            .body(body.to_owned());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request
    }

    pub(crate) async fn chat(&self, headers: &[(&str, &str)], body: &str) -> Got {
        let answer = self.ask(headers, body).send().await.unwrap();
        let status = answer.status().as_u16();
        let operations = answer.headers().get("x-tigertally-operations");
        let operations = operations.map_or("", |value| value.to_str().unwrap()).to_owned();
        Got { status, operations, body: answer.text().await.unwrap() }
    }

    /// The control API.
    pub(crate) async fn control(&self, path: &str, body: Option<Value>) -> (u16, Value) {
        let url = format!("http://{}/guard/v1/conversations/{path}", self.listen);
        let request = match body {
            None => self.client.get(url),
            Some(body) => self.client.post(url).body(body.to_string()),
        };
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    /// The value of a series, without `tigertally_`; zero where there is none.
    pub(crate) async fn metric(&self, series: &str) -> f64 {
        let answer = self.client.get(format!("http://{}/metrics", self.admin)).send().await;
        let text = answer.unwrap().text().await.unwrap();
        let line = text.lines().find_map(|line| {
            line.strip_prefix("tigertally_")?.strip_prefix(series)?.strip_prefix(' ')
        });
        line.map_or(0.0, |value| value.parse().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(scratch: &TempDir, upstream: &str, store: &str, ports: [&String; 2]) -> Child {
    let log = File::options().create(true).append(true).open(scratch.path().join("log")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tigertally"));
    command
        .args(["serve", "--config", "tigertally.toml", "--upstream", upstream, "--store", store])
        .args(["--listen", ports[0], "--admin-listen", ports[1]])
        .current_dir(scratch.path())
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIGERTALLY_") {
            command.env_remove(name);
        }
    }
    command.spawn().unwrap()
}

/// Waits until the series of all these processes come to `wanted` together.
pub(crate) async fn until(processes: &[&Process], series: &str, wanted: f64) {
    let end = Instant::now() + PATIENCE;
    loop {
        let now = sum(processes, series).await;
        if now == wanted {
            return;
        }
        let logs = || processes.iter().map(|one| one.log()).collect::<Vec<_>>().join("\n");
        assert!(Instant::now() < end && now < wanted, "{series} is {now}\n{}", logs());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) async fn sum(processes: &[&Process], series: &str) -> f64 {
    let mut sum = 0.0;
    for process in processes {
        sum += process.metric(series).await;
    }
    sum
}

fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}
