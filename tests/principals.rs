//! Two principals never touch each other, however alike what they send is.

#![expect(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

#[expect(dead_code, reason = "what other tests need")]
mod rig;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::Full;
use rig::{TOOLS, Upstream, chat, client, error, guard, json, policy, send, text, within};
use serde_json::{Value, json as value};
use std::sync::Arc;
use tigertally::policy::{FlagOverrides, Policy, Sources, load};
use tigertally::proxy::Running;
use tokio::sync::Barrier;

/// A policy where this machine's peers say who is who.
fn by_header(upstream: &Upstream, trusted: &str) -> Policy {
    let env = [
        ("TIGERTALLY_AUTH__MODE", "header"),
        ("TIGERTALLY_AUTH__HEADER", "x-forwarded-user"),
        ("TIGERTALLY_AUTH__TENANT_HEADER", "x-tenant"),
        ("TIGERTALLY_AUTH__TRUSTED_PEERS", trusted),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let read = load(Sources { file: None, env, flags: FlagOverrides::default() }).unwrap();
    Policy { auth: read.auth, ..policy(upstream) }
}

#[tokio::test]
async fn the_header_counts_from_trusted_peers_only_and_goes_no_further() {
    let mut upstream = Upstream::start().await;
    let trusting = guard(by_header(&upstream, "127.0.0.0/8, ::1")).await;
    let wary = guard(by_header(&upstream, "10.0.0.0/8")).await;
    let identity = [("x-forwarded-user", "alice"), ("x-tenant", "t")];
    let more = [("x_forwarded_user", "root"), ("authorization", "Bearer mine"), ("cookie", "a=b")];
    upstream.will(json(&answer("call_1")));
    let headers = [&identity[..], &more[..]].concat();
    let passed = send(&client(), chat(&trusting, &headers, opening("a"))).await;
    assert_eq!(passed.status(), 200);
    let (_, seen, _) = upstream.saw_request().await;
    for (name, _) in &headers {
        assert!(!seen.contains_key(*name), "{name}");
    }
    for (guard, headers) in
        [(&wary, &identity[..]), (&trusting, &identity[..1]), (&trusting, &[][..])]
    {
        let refused = send(&client(), chat(guard, headers, opening("a"))).await;
        assert_eq!(refused.status(), 401);
        assert_eq!(error(&text(refused).await)["code"], "unauthenticated");
    }
}

fn opening(user: &str) -> String {
    format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{user}?"}}],{TOOLS}}}"#)
}

fn answer(id: &str) -> String {
    format!(
        r#"{{"id":"x","object":"chat.completion","choices":[{{"index":0,"message":{{"role":"assistant","content":null,"tool_calls":[{{"id":"{id}","type":"function","function":{{"name":"get_order","arguments":"{{\"order_id\":\"A\"}}"}}}}]}},"finish_reason":"tool_calls"}}]}}"#
    )
}

/// One client: its principal's headers on every request.
struct Agent {
    client: rig::HttpClient,
    guard: Arc<Running>,
    user: String,
    tenant: &'static str,
    conversation: String,
}

impl Agent {
    fn forgets(&self) -> bool {
        (self.user.as_str(), self.tenant) == ("ab", "c")
    }

    fn with(
        &self,
        mut request: Request<Full<Bytes>>,
        more: &[(&'static str, &str)],
    ) -> Request<Full<Bytes>> {
        let headers = request.headers_mut();
        for (name, value) in
            [("x-forwarded-user", self.user.as_str()), ("x-tenant", self.tenant)].iter().chain(more)
        {
            headers.insert(*name, value.parse().unwrap());
        }
        request
    }

    async fn chat(&self, generation: u64, body: String) -> (u16, HeaderMap, String) {
        let generation = generation.to_string();
        let more =
            [("x-conversation-id", self.conversation.as_str()), ("x-generation", &generation)];
        let answer = send(&self.client, self.with(chat(&self.guard, &[], body), &more)).await;
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        (status, headers, text(answer).await)
    }

    async fn control(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let (address, conversation) = (self.guard.client_addr, &self.conversation);
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{address}/guard/v1/conversations/{conversation}{path}"))
            .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
            .unwrap();
        let answer = send(&self.client, self.with(request, &[])).await;
        (answer.status().as_u16(), serde_json::from_str(&text(answer).await).unwrap())
    }

    /// Proposed, started, decided, told, answered: each step as if nobody else were there.
    async fn task(&self, generation: u64) {
        let (status, headers, body) = self.chat(generation, opening(&self.user)).await;
        assert_eq!(status, 200, "{} {body}", self.user);
        assert_eq!(headers["x-generation"], generation.to_string().as_str());
        let start = format!("{{\"generation\":{generation}}}");
        let (status, started) = self.control("POST", "/calls/call_1/start", &start).await;
        assert_eq!((status, started["attempt"].as_u64()), (200, Some(1)), "{started}");
        let result = format!("{} at {generation}", self.user);
        let decide =
            value!({ "generation": generation, "tool_call_id": "call_1", "content": result });
        let (status, decided) = self.control("POST", "/results", &decide.to_string()).await;
        assert_eq!((status, &decided["verdict"]), (200, &value!("accepted")), "{decided}");
        let list = value!({
            "model": "m",
            "messages": [
                { "role": "user", "content": format!("{}?", self.user) },
                { "role": "assistant", "content": null, "tool_calls": [{ "id": "call_1", "type": "function",
                  "function": { "name": "get_order", "arguments": "{\"order_id\":\"A\"}" } }] },
                { "role": "tool", "tool_call_id": "call_1", "content": result },
            ],
        });
        let (status, _, body) = self.chat(generation, list.to_string()).await;
        assert_eq!(status, 200, "{} {body}", self.user);
        // Told again by its own principal it is a duplicate: the ledger does remember.
        let (status, again) = self.control("POST", "/results", &decide.to_string()).await;
        assert_eq!((status, &again["error"]["code"]), (422, &value!("duplicate")), "{again}");
    }
}

/// An upstream that proposes the same call to whoever opens, and a text to whoever continues.
async fn same_for_all() -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let chat = async |body: String| {
        let text = r#"{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"done"},"finish_reason":"stop"}]}"#;
        let body =
            if body.contains("\"tool_call_id\"") { text.to_owned() } else { answer("call_1") };
        ([("content-type", "application/json")], body)
    };
    let router =
        axum::Router::new().route(rig::CHAT, axum::routing::post(chat)).fallback(async || "{}");
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_ids_of_two_principals_under_load_have_no_effect_on_each_other() {
    let upstream = Upstream::start().await;
    let mut policy = by_header(&upstream, "127.0.0.1");
    policy.upstream.url = format!("http://{}", same_for_all().await).parse().unwrap();
    let guard = Arc::new(guard(policy).await);
    // Equal names in two tenants, and some that would run into each other if they were only put together.
    let users =
        [("a", "bc"), ("ab", "c"), ("a", "b"), ("ab", "bc"), ("c", "ab"), ("anonymous", "a")];
    let barrier = Arc::new(Barrier::new(users.len() * 4));
    let mut running = tokio::task::JoinSet::new();
    for (user, tenant) in users {
        for conversation in 0..4 {
            let agent = Agent {
                client: client(),
                guard: Arc::clone(&guard),
                user: user.to_owned(),
                tenant,
                conversation: format!("c{conversation}"),
            };
            let barrier = Arc::clone(&barrier);
            running.spawn(async move {
                barrier.wait().await;
                for generation in 1..=8 {
                    agent.task(generation).await;
                }
                agent
            });
        }
    }
    let mut agents = Vec::new();
    while let Some(agent) =
        tokio::time::timeout(std::time::Duration::from_secs(120), running.join_next())
            .await
            .unwrap()
    {
        agents.push(agent.unwrap());
    }
    // One forgets its conversations: the others' are still there.
    for agent in agents.iter().filter(|agent| agent.forgets()) {
        assert_eq!(agent.control("DELETE", "", "").await.1["forgotten"], true);
    }
    for agent in &agents {
        let (_, record) = within(agent.control("GET", "", "")).await;
        let known = record.to_string().contains("call_1");
        assert_eq!(known, !agent.forgets(), "{} {record}", agent.user);
    }
}

/// What a stranger's conversation answers is what one that never was answers: to the byte.
#[tokio::test]
async fn nothing_tells_that_another_ones_conversation_exists() {
    let upstream = Upstream::start().await;
    let mut policy = by_header(&upstream, "127.0.0.1");
    policy.upstream.url = format!("http://{}", same_for_all().await).parse().unwrap();
    let guard = Arc::new(guard(policy).await);
    let agent = |user: &str, conversation: &str| Agent {
        client: client(),
        guard: Arc::clone(&guard),
        user: user.to_owned(),
        tenant: "t",
        conversation: conversation.to_owned(),
    };
    agent("alice", "there").task(3).await;
    let (there, nowhere) = (agent("bob", "there"), agent("bob", "nowhere"));
    let result = r#"{"generation":3,"tool_call_id":"call_1","content":"x"}"#;
    for (method, path, body) in [
        ("GET", "", ""),
        ("POST", "/calls/call_1/start", r#"{"generation":3}"#),
        ("POST", "/results", result),
        ("POST", "/writes/00", r#"{"outcome":"applied"}"#),
        ("DELETE", "", ""),
        ("POST", "/generation", "{}"),
    ] {
        let (one, other) =
            (there.control(method, path, body).await, nowhere.control(method, path, body).await);
        assert_eq!(one.0, other.0, "{method} {path}");
        let plain = |value: Value| value.to_string().replace("nowhere", "there");
        assert_eq!(plain(one.1), plain(other.1), "{method} {path}");
    }
    agent("alice", "there").task(4).await;
}
