//! Who is measured, and how each is started: the floors, nginx, the proxy as it ships, and its peers.

use crate::process::Process;
use http::{HeaderName, HeaderValue};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Threads or worker processes of each contender that lets itself be told.
pub(crate) const WORKERS: &str = "2";

/// Whoever stands between the clients and the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Contender {
    Direct,
    Nginx,
    Hyper,
    Axum,
    Tracked,
    Untracked,
    Observed,
    Redis,
    SglangRouter,
    Litellm,
    Portkey,
}

use Contender::{
    Axum, Direct, Hyper, Litellm, Nginx, Observed, Portkey, Redis, SglangRouter, Tracked, Untracked,
};

impl Contender {
    pub(crate) const ALL: [Contender; 11] = [
        Direct,
        Nginx,
        Hyper,
        Axum,
        Tracked,
        Untracked,
        Observed,
        Redis,
        SglangRouter,
        Litellm,
        Portkey,
    ];
    /// Those of a quick run.
    pub(crate) const QUICK: [Contender; 6] = [Direct, Nginx, Hyper, Axum, Tracked, Untracked];

    /// What `--only` takes.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Direct => "direct",
            Nginx => "nginx",
            Hyper => "hyper",
            Axum => "axum-reqwest",
            Tracked => "tigertally",
            Untracked => "tigertally-untracked",
            Observed => "tigertally-observed",
            Redis => "tigertally-redis",
            SglangRouter => "sglang-router",
            Litellm => "litellm",
            Portkey => "portkey",
        }
    }

    /// As tables and plots name it.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Direct => "no proxy",
            Nginx => "nginx",
            Hyper => "hyper, no guard",
            Axum => "axum + reqwest, no guard",
            Tracked => "Tigertally, tracked",
            Untracked => "Tigertally, untracked",
            Observed => "Tigertally, tracked, records and traces",
            Redis => "Tigertally, Redis",
            SglangRouter => "sglang-router",
            Litellm => "LiteLLM",
            Portkey => "Portkey",
        }
    }

    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Tracked | Untracked | Observed | Redis)
    }

    pub(crate) fn is_tracked(self) -> bool {
        matches!(self, Tracked | Observed | Redis)
    }

    pub(crate) fn is_peer(self) -> bool {
        matches!(self, SglangRouter | Litellm | Portkey)
    }
}

/// Where things are.
pub(crate) struct Places {
    /// For configurations, logs and stores of this run.
    pub(crate) scratch: PathBuf,
    /// Where `scripts/bench` put the peers.
    pub(crate) peers: PathBuf,
    /// The proxy's program.
    pub(crate) tigertally: PathBuf,
    pub(crate) upstream: SocketAddr,
    /// How many connections each must be able to hold.
    pub(crate) descriptors: u64,
}

/// A contender that was started.
pub(crate) struct Started {
    pub(crate) listen: SocketAddr,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// `None` when there is nobody between.
    pub(crate) process: Option<Process>,
    /// What it needs beside it.
    _beside: Option<Process>,
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

/// Starts it; the caller waits for its first answer.
pub(crate) fn start(contender: Contender, places: &Places) -> Result<Started, String> {
    let room = places.scratch.join(contender.key());
    let _ = fs::remove_dir_all(&room);
    fs::create_dir_all(&room).map_err(|error| error.to_string())?;
    let mut started = Started {
        listen: free_port(),
        admin: None,
        headers: Vec::new(),
        process: None,
        _beside: None,
    };
    let mut command = match contender {
        Direct => {
            started.listen = places.upstream;
            return Ok(started);
        }
        Nginx => nginx(&room, started.listen, places)?,
        Hyper | Axum => floor(contender.key(), started.listen, places.upstream),
        Tracked | Untracked | Observed | Redis => {
            let store = if contender == Redis {
                let (redis, url) = redis(&room)?;
                started._beside = Some(redis);
                url
            } else {
                format!("embedded:{}", room.join("store").display())
            };
            let admin = free_port();
            started.admin = Some(admin);
            let mut command = tigertally(started.listen, admin, &store, places);
            if contender == Observed {
                observe(&mut command, &room, places);
            }
            command
        }
        SglangRouter => sglang_router(started.listen, places)?,
        Litellm => litellm(&room, started.listen, places)?,
        Portkey => {
            started.headers = portkey_headers(places.upstream);
            portkey(started.listen, places)?
        }
    };
    command.env("TOKIO_WORKER_THREADS", WORKERS).current_dir(&room);
    started.process = Some(Process::start(&mut command, &room.join("log"))?);
    Ok(started)
}

fn floor(role: &str, listen: SocketAddr, upstream: SocketAddr) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["role", role, &listen.to_string(), &upstream.to_string()]);
    command
}

/// As it ships: all defaults but for addresses, and bounds that the many streams would meet.
fn tigertally(listen: SocketAddr, admin: SocketAddr, store: &str, places: &Places) -> Command {
    let mut command = Command::new(&places.tigertally);
    command
        .args(["serve", "--upstream", &format!("http://{}", places.upstream)])
        .args(["--listen", &listen.to_string(), "--admin-listen", &admin.to_string()])
        .args(["--store", store])
        .env("TIGERTALLY_LIMITS__EXCHANGES", "20000")
        .env("TIGERTALLY_LIMITS__CONNECTIONS", "20000")
        .env("TIGERTALLY_CONVERSATION__MAX_PER_PRINCIPAL", "1000000");
    command
}

/// Whatever can be told is told: task records to a file, traces to the upstream, which takes them.
fn observe(command: &mut Command, room: &Path, places: &Places) {
    command
        .env("TIGERTALLY_TELEMETRY__RECORD_FILE", room.join("tasks.jsonl"))
        .env("TIGERTALLY_TELEMETRY__OTLP_ENDPOINT", format!("http://{}", places.upstream));
}

fn redis(room: &Path) -> Result<(Process, String), String> {
    let port = free_port().port().to_string();
    let mut command = Command::new("redis-server");
    command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    let redis = Process::start(command.current_dir(room), &room.join("redis.log"))?;
    Ok((redis, format!("redis://127.0.0.1:{port}")))
}

/// `proxy_pass` as it is set up before a model server: kept connections both ways, nothing buffered to disk.
fn nginx(room: &Path, listen: SocketAddr, places: &Places) -> Result<Command, String> {
    let (upstream, room_name) = (places.upstream, room.display());
    let descriptors = places.descriptors;
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("  {kind}_temp_path {room_name}/{kind};\n"))
        .concat();
    let configuration = format!(
        "daemon off;\nworker_processes {WORKERS};\npid {room_name}/pid;\nerror_log {room_name}/error.log;\n\
         worker_rlimit_nofile {descriptors};\nevents {{ worker_connections {descriptors}; }}\nhttp {{\n{temporary}  \
         access_log off;\n  client_max_body_size 64m;\n  client_body_buffer_size 256k;\n  keepalive_timeout 300s;\n  keepalive_requests 100000000;\n  \
         tcp_nodelay on;\n  upstream model {{\n    server {upstream};\n    keepalive 256;\n    \
         keepalive_requests 100000000;\n  }}\n  server {{\n    listen {listen} backlog=4096;\n    location / {{\n      \
         proxy_pass http://model;\n      proxy_http_version 1.1;\n      proxy_set_header Connection \"\";\n      \
         proxy_request_buffering off;\n      proxy_buffering off;\n      proxy_read_timeout 300s;\n    }}\n  }}\n}}\n"
    );
    let file = room.join("nginx.conf");
    fs::write(&file, configuration).map_err(|error| error.to_string())?;
    let mut command = Command::new("nginx");
    command.arg("-p").arg(room).arg("-e").arg(room.join("error.log")).arg("-c").arg(file);
    Ok(command)
}

/// The program of a peer, or why `scripts/bench` could not get it.
fn peer(places: &Places, name: &str, program: &str) -> Result<PathBuf, String> {
    let program = places.peers.join(name).join(program);
    if program.exists() {
        return Ok(program);
    }
    let why = fs::read_to_string(places.peers.join(format!("{name}.why")));
    Err(why.map_or_else(|_| "it was not installed".to_owned(), |why| why.trim().to_owned()))
}

fn sglang_router(listen: SocketAddr, places: &Places) -> Result<Command, String> {
    let mut command = Command::new(peer(places, "sglang-router", "bin/python")?);
    command
        .args(["-m", "sglang_router.launch_router", "--host", "127.0.0.1"])
        .args(["--port", &listen.port().to_string(), "--policy", "round_robin"])
        .args(["--worker-urls", &format!("http://{}", places.upstream)])
        .args(["--prometheus-port", &free_port().port().to_string(), "--log-level", "error"])
        .args(["--max-payload-size", "67108864", "--max-concurrent-requests", "20000"]);
    Ok(command)
}

fn litellm(room: &Path, listen: SocketAddr, places: &Places) -> Result<Command, String> {
    let program = peer(places, "litellm", "bin/litellm")?;
    let configuration = format!(
        "model_list:\n  - model_name: bench-model\n    litellm_params:\n      model: openai/bench-model\n      \
         api_base: http://{}/v1\n      api_key: none\nlitellm_settings:\n  telemetry: false\n",
        places.upstream
    );
    let file = room.join("litellm.yaml");
    fs::write(&file, configuration).map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command
        .arg("--config")
        .arg(file)
        .args(["--host", "127.0.0.1", "--port", &listen.port().to_string()])
        .args(["--num_workers", WORKERS])
        // Nobody has to prove who they are, as with all the others.
        .env("LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY", "true")
        .env("LITELLM_LOG", "ERROR")
        .env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
    Ok(command)
}

/// It has one process, whatever it is told.
fn portkey(listen: SocketAddr, places: &Places) -> Result<Command, String> {
    let script = "node_modules/@portkey-ai/gateway/build/start-server.js";
    let mut command = Command::new("node");
    command
        .arg(peer(places, "portkey", script)?)
        .args(["--headless", &format!("--port={}", listen.port())])
        .env("NODE_ENV", "production")
        .env("TRUSTED_CUSTOM_HOSTS", "localhost,127.0.0.1");
    Ok(command)
}

fn portkey_headers(upstream: SocketAddr) -> Vec<(HeaderName, HeaderValue)> {
    let host = format!("http://{upstream}/v1");
    [
        ("x-portkey-provider", "openai"),
        ("x-portkey-custom-host", &host),
        ("authorization", "Bearer none"),
    ]
    .into_iter()
    .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
    .collect()
}
