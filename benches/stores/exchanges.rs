//! One tracked exchange over HTTP, through a whole gateway before a model that answers at once: what a store
//! adds to it, over the one in memory.

use crate::operations::percentiles;
use crate::{Kind, median, micros};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tigertally::cli::scripted_upstream::{Script, serve};
use tigertally::policy::{Policy, StoreKind};
use tigertally::store::redis::Address;

const TASKS: u32 = 150;

#[derive(Default)]
struct Rounds {
    p50: Vec<f64>,
    p99: Vec<f64>,
}

pub(crate) struct Figures {
    tracked: Vec<Rounds>,
    /// Through the same gateway, untracked.
    untracked: Rounds,
}

impl Figures {
    pub(crate) fn new(kinds: &[Kind]) -> Self {
        let tracked = kinds.iter().map(|_| Rounds::default()).collect();
        Figures { tracked, untracked: Rounds::default() }
    }

    pub(crate) async fn measure(
        &mut self,
        at: usize,
        kind: &Kind,
        scratch: &tempfile::TempDir,
        prefix: &str,
    ) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = listener.local_addr().unwrap();
        #[expect(clippy::disallowed_methods, reason = "it is ended below")]
        let model = tokio::spawn(serve(listener, Script::default()));
        let gateway = tigertally::cli::serve::start(policy(kind, scratch, prefix, upstream));
        let gateway = gateway.await.unwrap();
        let client = Client {
            url: format!("http://{}/v1/chat/completions", gateway.client_addr),
            client: reqwest::Client::new(),
        };
        // Connections and scripts are there.
        for n in 0..10 {
            client.task(&format!("warm-{n}"), &mut Vec::new()).await;
        }
        let rounds = &mut self.tracked[at];
        let mut spans = Vec::new();
        for n in 0..TASKS {
            client.task(&format!("c-{n}"), &mut spans).await;
        }
        let (p50, p99) = percentiles(spans);
        rounds.p50.push(p50);
        rounds.p99.push(p99);
        if matches!(kind, Kind::Memory) {
            let mut spans = Vec::new();
            for _ in 0..TASKS {
                client.task("", &mut spans).await;
            }
            let (p50, p99) = percentiles(spans);
            self.untracked.p50.push(p50);
            self.untracked.p99.push(p99);
        }
        gateway.shutdown().await;
        model.abort();
    }

    pub(crate) fn print(self, kinds: &[Kind]) {
        println!("| one exchange over HTTP | p50 | p99 | p50 over `memory` | p99 over `memory` |");
        println!("| --- | --- | --- | --- | --- |");
        let (p50, p99) = (self.untracked.p50, self.untracked.p99);
        println!("| untracked | {} | {} | | |", micros(median(p50)), micros(median(p99)));
        let memory = (self.tracked[0].p50.clone(), self.tracked[0].p99.clone());
        for (kind, Rounds { p50, p99 }) in kinds.iter().zip(self.tracked) {
            let over = |these: &[f64], those: &[f64]| {
                median(these.iter().zip(those).map(|(this, that)| this - that).collect())
            };
            let (more50, more99) = (over(&p50, &memory.0), over(&p99, &memory.1));
            println!(
                "| tracked, {} | {} | {} | {} | {} |",
                kind.name(),
                micros(median(p50)),
                micros(median(p99)),
                micros(more50),
                micros(more99)
            );
        }
        println!();
    }
}

fn policy(kind: &Kind, scratch: &tempfile::TempDir, prefix: &str, upstream: SocketAddr) -> Policy {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut policy = Policy { listen: loopback, ..Policy::default() };
    policy.admin.listen = loopback;
    policy.upstream.url = format!("http://{upstream}").parse().unwrap();
    policy.store = match kind {
        Kind::Memory => StoreKind::Memory,
        Kind::Disk(durability) => StoreKind::Embedded {
            path: scratch.path().join("data"),
            key_file: None,
            durability: *durability,
        },
        Kind::Redis(server, _) => StoreKind::Redis {
            address: Box::new(Address::parse(&server.url()).unwrap()),
            prefix: prefix.to_owned(),
            key_file: None,
        },
    };
    policy
}

struct Client {
    url: String,
    client: reqwest::Client,
}

impl Client {
    async fn task(&self, conversation: &str, spans: &mut Vec<Duration>) {
        let mut messages = vec![json!({"role": "user", "content": "Where is ORDER-1?"})];
        let call = self.chat(conversation, &messages, spans).await["choices"][0]["message"].take();
        let id = call["tool_calls"][0]["id"].clone();
        assert!(id.is_string(), "{call}");
        messages.push(call);
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": "in transit"}));
        let answer = self.chat(conversation, &messages, spans).await;
        assert!(answer["choices"][0]["message"]["content"].is_string(), "{answer}");
    }

    async fn chat(&self, name: &str, messages: &[Value], spans: &mut Vec<Duration>) -> Value {
        let parameters = json!({"type": "object", "properties": {"order_id": {"type": "string"}}});
        let function = json!({"name": "get_order_status", "parameters": parameters});
        let tools = [json!({"type": "function", "function": function})];
        let body = json!({"model": "scripted", "messages": messages, "tools": tools});
        let mut request = self.client.post(&self.url).json(&body);
        if !name.is_empty() {
            request = request.header("x-conversation-id", name).header("x-generation", 1);
        }
        let began = Instant::now();
        let answer = request.send().await.unwrap().bytes().await.unwrap();
        spans.push(began.elapsed());
        serde_json::from_slice(&answer).unwrap()
    }
}
