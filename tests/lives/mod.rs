//! The built program on one folder and one pair of ports for all its lives: for tests that kill it.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// One replica, dead or alive.
pub(crate) struct Replica {
    /// The client port's URL.
    pub(crate) url: String,
    pub(crate) scratch: tempfile::TempDir,
    listen: String,
    admin: String,
    upstream: String,
    env: Vec<(&'static str, String)>,
    http: reqwest::Client,
    child: Option<Child>,
}

impl Replica {
    /// One that is not started yet, with these environment variables.
    pub(crate) fn new(upstream: &str, env: Vec<(&'static str, String)>) -> Self {
        let (listen, admin) = (free_address(), free_address());
        let http = reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap();
        Replica {
            url: format!("http://{listen}"),
            scratch: tempfile::tempdir().unwrap(),
            listen,
            admin,
            upstream: upstream.to_owned(),
            env,
            http,
            child: None,
        }
    }

    /// Starts it and waits until it answers.
    pub(crate) async fn start(&mut self) {
        let log = File::options().create(true).append(true).open(self.log()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tigertally"));
        command
            .args(["serve", "--upstream", &self.upstream])
            .args(["--listen", &self.listen, "--admin-listen", &self.admin])
            .current_dir(self.scratch.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TIGERTALLY_") {
                command.env_remove(name);
            }
        }
        let env = self.env.iter().map(|(name, value)| (name, value));
        let child = self.child.insert(command.envs(env).spawn().unwrap());
        let end = Instant::now() + Duration::from_secs(20);
        let health = format!("{}/health", self.url);
        while !self.http.get(&health).send().await.is_ok_and(|answer| answer.status() == 200) {
            let ended = child.try_wait().unwrap();
            let log = self.scratch.path().join("log");
            let log = || std::fs::read_to_string(&log).unwrap_or_default();
            assert!(ended.is_none() && Instant::now() < end, "it does not answer:\n{}", log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until it is ready: its store answers.
    pub(crate) async fn is_ready(&self) {
        let end = Instant::now() + Duration::from_secs(30);
        let ready = format!("http://{}/readyz", self.admin);
        while !self.http.get(&ready).send().await.is_ok_and(|answer| answer.status() == 200) {
            assert!(Instant::now() < end, "it does not become ready");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// `kill -9`, and nothing of it is left.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: &str) {
        let process = self.child.as_ref().unwrap().id().to_string();
        let sent = Command::new("kill").args([signal, &process]).status();
        assert!(sent.unwrap().success());
    }

    fn log(&self) -> PathBuf {
        self.scratch.path().join("log")
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}

/// How many kills a test makes.
pub(crate) fn kills(otherwise: usize) -> usize {
    std::env::var("TIGERTALLY_TEST_KILLS").map_or(otherwise, |kills| kills.parse().unwrap())
}

fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}
