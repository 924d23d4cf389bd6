//! The built program in a process of its own, for tests on real sockets.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// `tigertally serve` on ports and in a folder of its own; ended when dropped.
pub(crate) struct Program {
    /// The client port's URL.
    pub(crate) url: String,
    /// The admin port's URL.
    pub(crate) admin: String,
    child: Child,
    scratch: tempfile::TempDir,
}

impl Program {
    /// Starts it before an upstream with these environment variables, and waits until `answers` says of
    /// its client port that it does.
    pub(crate) async fn start(
        upstream: &str,
        env: &[(&str, &str)],
        answers: impl AsyncFn(&str) -> bool,
    ) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let log = File::create(scratch.path().join("log")).unwrap();
        let [listen, admin] = free_addresses();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tigertally"));
        command
            .args(["serve", "--upstream", upstream, "--listen", &listen, "--admin-listen", &admin])
            .current_dir(scratch.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TIGERTALLY_") {
                command.env_remove(name);
            }
        }
        if !env.iter().any(|(name, _)| name.starts_with("TIGERTALLY_STORE__")) {
            command.args(["--store", "memory:"]);
        }
        let child = command.envs(env.iter().copied()).spawn().unwrap();
        let (url, admin) = (format!("http://{listen}"), format!("http://{admin}"));
        let mut program = Program { url, admin, child, scratch };
        let end = Instant::now() + Duration::from_secs(20);
        while !answers(&program.url).await {
            let ended = program.child.try_wait().unwrap();
            assert!(ended.is_none(), "it ended with {ended:?}:\n{}", program.log());
            assert!(Instant::now() < end, "it does not answer:\n{}", program.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        program
    }

    /// The operating system's number of it.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Where it runs.
    pub(crate) fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// What it has written so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default()
    }

    /// Ends it, keeps the log, and says where it is.
    pub(crate) fn keep_log(self) -> std::path::PathBuf {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("log-{}", self.id()));
        std::fs::copy(self.scratch.path().join("log"), &kept).unwrap();
        kept
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two addresses that nobody listens on just now.
fn free_addresses() -> [String; 2] {
    // Both are held until both are known: else the same might be found twice.
    let listeners = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().to_string())
}
