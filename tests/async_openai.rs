//! The Rust client async-openai, unmodified, as an application uses it: the same stories as in
//! `tests/clients/`, whole and streamed.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use async_openai::Client;
use async_openai::config::OpenAIConfig;
use async_openai::error::OpenAIError;
use async_openai::types::chat::{
    ChatCompletionMessageToolCalls, CreateChatCompletionRequest, CreateChatCompletionStreamResponse,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use tigertally::cli::scripted_upstream::{Script, serve};
use tigertally::policy::{Policy, StoreKind};
use tigertally::proxy::Running;
use tokio::net::TcpListener;
use tokio_stream::StreamExt;

/// A guard before a scripted upstream.
struct Rig {
    guard: Running,
    upstream: SocketAddr,
}

impl Rig {
    async fn start() -> Self {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = TcpListener::bind(loopback).await.unwrap();
        let upstream = listener.local_addr().unwrap();
        let script = Script::parse(include_str!("clients/script.json")).unwrap();
        #[expect(clippy::disallowed_methods, reason = "ends with the test's runtime")]
        tokio::spawn(serve(listener, script));
        let mut policy = Policy { listen: loopback, store: StoreKind::Memory, ..Policy::default() };
        policy.admin.listen = loopback;
        policy.upstream.url = format!("http://{upstream}").parse().unwrap();
        Rig { guard: tigertally::cli::serve::start(policy).await.unwrap(), upstream }
    }

    /// A client for one task of a conversation.
    fn client(&self, conversation: &str, generation: u64) -> Client<OpenAIConfig> {
        client(&format!("http://{}/v1", self.guard.client_addr), conversation, generation)
    }

    /// Chat requests that reached the upstream.
    async fn forwarded(&self) -> u64 {
        let seen = reqwest::get(format!("http://{}/_seen", self.upstream)).await.unwrap();
        seen.json::<Value>().await.unwrap()["requests"].as_u64().unwrap()
    }
}

fn client(base: &str, conversation: &str, generation: u64) -> Client<OpenAIConfig> {
    let config = OpenAIConfig::new()
        .with_api_base(base)
        .with_api_key("none")
        .with_header("x-conversation-id", conversation)
        .unwrap()
        .with_header("x-generation", generation.to_string().as_str())
        .unwrap();
    Client::with_config(config)
}

fn request(messages: &[Value]) -> CreateChatCompletionRequest {
    let parameters = json!({"type": "object", "required": ["order_id"],
        "properties": {"order_id": {"type": "string"}}});
    let tool = json!({"type": "function",
        "function": {"name": "get_order_status", "parameters": parameters}});
    serde_json::from_value(json!({"model": "scripted", "messages": messages, "tools": [tool]}))
        .unwrap()
}

/// The assistant message of an answer, whole or joined from a stream.
async fn complete(
    client: &Client<OpenAIConfig>,
    messages: &[Value],
    stream: bool,
) -> Result<Value, OpenAIError> {
    if !stream {
        let answer = client.chat().create(request(messages)).await?;
        let said = &answer.choices[0].message;
        let calls: Vec<Value> = said.tool_calls.iter().flatten().map(call).collect();
        return Ok(assistant(said.content.as_deref().unwrap_or(""), &calls));
    }
    let mut events = client.chat().create_stream(request(messages)).await?;
    let mut text = String::new();
    let mut calls = BTreeMap::new();
    while let Some(event) = events.next().await {
        join(&event?, &mut text, &mut calls);
    }
    let calls = calls.into_values().map(|[id, name, arguments]| {
        json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
    });
    Ok(assistant(&text, &calls.collect::<Vec<Value>>()))
}

fn join(
    event: &CreateChatCompletionStreamResponse,
    text: &mut String,
    calls: &mut BTreeMap<u32, [String; 3]>,
) {
    for choice in &event.choices {
        text.push_str(choice.delta.content.as_deref().unwrap_or(""));
        for piece in choice.delta.tool_calls.iter().flatten() {
            let [id, name, arguments] = calls.entry(piece.index).or_default();
            id.push_str(piece.id.as_deref().unwrap_or(""));
            if let Some(function) = &piece.function {
                name.push_str(function.name.as_deref().unwrap_or(""));
                arguments.push_str(function.arguments.as_deref().unwrap_or(""));
            }
        }
    }
}

fn call(call: &ChatCompletionMessageToolCalls) -> Value {
    serde_json::to_value(call).unwrap()
}

fn assistant(text: &str, calls: &[Value]) -> Value {
    match calls {
        [] => json!({"role": "assistant", "content": text}),
        _ => json!({"role": "assistant", "content": text, "tool_calls": calls}),
    }
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// The tool: what it says of an order.
fn result(call: &Value) -> Value {
    let arguments = call["function"]["arguments"].as_str().unwrap();
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    let content = json!({"order_id": arguments["order_id"], "status": "in transit"}).to_string();
    json!({"role": "tool", "tool_call_id": call["id"], "content": content})
}

/// Asks, runs the tools, and asks again until there is an answer in words. Gives it and the number of calls.
async fn converse(client: &Client<OpenAIConfig>, question: &str, stream: bool) -> (String, usize) {
    let mut messages = vec![user(question)];
    let mut ran = 0;
    loop {
        let said = complete(client, &messages, stream).await.unwrap();
        messages.push(said.clone());
        let Some(calls) = said["tool_calls"].as_array() else {
            return (said["content"].as_str().unwrap().to_owned(), ran);
        };
        ran += calls.len();
        messages.extend(calls.iter().map(result));
    }
}

#[tokio::test]
async fn orders_are_looked_up() {
    let rig = Rig::start().await;
    for stream in [false, true] {
        for (question, answer, calls, requests) in [
            ("Where is my ORDER-A?", "ORDER-A is in transit.", 1, 2),
            (
                "Where are they? [[script:look_a,look_b,both]]",
                "ORDER-A is in transit, and ORDER-B is delivered.",
                2,
                3,
            ),
            (
                "Where are they? [[script:look_both,both]]",
                "ORDER-A is in transit, and ORDER-B is delivered.",
                2,
                2,
            ),
        ] {
            let before = rig.forwarded().await;
            let client = rig.client(&format!("{question}{stream}").replace(' ', "-"), 1);
            assert_eq!(converse(&client, question, stream).await, (answer.to_owned(), calls));
            assert_eq!(rig.forwarded().await - before, requests, "{question}");
        }
    }
}

#[tokio::test]
async fn what_the_user_left_is_refused_with_code_and_status() {
    let rig = Rig::start().await;
    for stream in [false, true] {
        let conversation = format!("switch-{stream}");
        let first = rig.client(&conversation, 1);
        let mut messages = vec![user("Where is my ORDER-A?")];
        let proposal = complete(&first, &messages, stream).await.unwrap();
        let late = result(&proposal["tool_calls"][0]);
        messages.extend([proposal, late.clone()]);

        let second = rig.client(&conversation, 2);
        let said = converse(&second, "No, where is ORDER-B?", stream).await;
        assert_eq!(said, ("ORDER-B is in transit.".to_owned(), 1));

        let before = rig.forwarded().await;
        for (client, list, status, code) in [
            (&first, messages.clone(), 422, "stale_generation"),
            (&second, messages, 422, "stale"),
            (&second, vec![user("Where is it?"), late], 400, "orphan_result"),
        ] {
            let refused = complete(client, &list, stream).await.unwrap_err();
            assert_eq!(told(&refused), (Some(status), code.to_owned()));
        }
        assert_eq!(rig.forwarded().await, before);
    }
}

#[tokio::test]
async fn a_bad_call_is_refused_once() {
    let rig = Rig::start().await;
    for stream in [false, true] {
        for (script, code) in [("unknown_tool", "unknown_tool"), ("cut", "truncated_call")] {
            let before = rig.forwarded().await;
            let client = rig.client(&format!("{script}-{stream}"), 1);
            let question = format!("[[script:{script}]]");
            let refused = complete(&client, &[user(&question)], stream).await.unwrap_err();
            assert_eq!(told(&refused), ((!stream).then_some(422), code.to_owned()));
            assert_eq!(rig.forwarded().await - before, 1);
        }
    }
}

#[tokio::test]
async fn a_failing_upstream_is_asked_again_and_a_conflict_is_not() {
    let rig = Rig::start().await;
    for (script, requests) in [("busy", 4), ("taken", 1)] {
        let before = rig.forwarded().await;
        let client = rig.client(script, 1);
        let failed = complete(&client, &[user(&format!("[[script:{script}]]"))], false).await;
        assert!(failed.is_err());
        assert_eq!(rig.forwarded().await - before, requests, "{script}");
    }
}

/// What an application reads from an error: the status, where there was one, and the code. An event in a
/// stream is "not a chunk" to this client; the text that it could not read is the refusal.
fn told(error: &OpenAIError) -> (Option<u16>, String) {
    match error {
        OpenAIError::ApiError(answer) => {
            (Some(answer.status_code.as_u16()), answer.api_error.code.clone().unwrap_or_default())
        }
        OpenAIError::JSONDeserialize(_, text) => {
            let event: Value = serde_json::from_str(text).unwrap();
            assert!(event["error"]["faults"][0]["recovery"].is_string());
            (None, event["error"]["code"].as_str().unwrap().to_owned())
        }
        other => panic!("{other}"),
    }
}
