//! A client that records: it asks over HTTP, and keeps what it asked and was told.

use super::{Action, Outcome, Record, Recorder};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// One client of one or several replicas.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) http: reqwest::Client,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) patience: Duration,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Reply {
    pub(crate) fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }

    /// The assistant's message.
    pub(crate) fn message(&self) -> &Value {
        &self.body["choices"][0]["message"]
    }

    /// The ids of the calls that it proposes.
    pub(crate) fn calls(&self) -> Vec<String> {
        let calls = self.message()["tool_calls"].as_array();
        let id = |call: &Value| call["id"].as_str().unwrap_or_default().to_owned();
        calls.into_iter().flatten().map(id).collect()
    }
}

impl Client {
    /// Connections are not kept: a question never fails because an old one broke.
    pub(crate) fn new(recorder: &Arc<Recorder>) -> Self {
        let http = reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap();
        Client { http, recorder: Arc::clone(recorder), patience: Duration::from_secs(20) }
    }

    /// Opens a task at the replica with that URL.
    pub(crate) async fn open(
        &self,
        url: &str,
        conversation: &str,
        generation: u64,
        question: &str,
    ) -> Option<Reply> {
        let action = Action::Open { generation, question: question.to_owned() };
        let messages = vec![json!({"role": "user", "content": question})];
        self.chat(url, conversation, action, messages).await
    }

    /// Feeds a result back. `message` is the assistant's that proposed the call.
    pub(crate) async fn goes_on(
        &self,
        url: &str,
        conversation: &str,
        (question, message): (&str, &Value),
        action: Action,
    ) -> Option<Reply> {
        let Action::Continue { call, content, .. } = &action else { panic!("{action:?}") };
        let result = json!({"role": "tool", "tool_call_id": call, "content": content});
        let asked = json!({"role": "user", "content": question});
        self.chat(url, conversation, action, vec![asked, message.clone(), result]).await
    }

    async fn chat(
        &self,
        url: &str,
        conversation: &str,
        action: Action,
        messages: Vec<Value>,
    ) -> Option<Reply> {
        let (generation, declared) = match &action {
            Action::Open { generation, .. } => (*generation, false),
            Action::Continue { generation, declared, .. } => (*generation, *declared),
            other => panic!("{other:?}"),
        };
        let parameters = json!({"type": "object", "properties": {"order_id": {"type": "string"}}});
        let function = json!({"name": "get_order_status", "parameters": parameters});
        let tools = [json!({"type": "function", "function": function})];
        let body = json!({"model": "scripted", "messages": messages, "tools": tools});
        let mut request = self.http.post(format!("{url}/v1/chat/completions")).json(&body);
        request = request.header("x-conversation-id", conversation);
        request = request.header("x-generation", generation);
        if declared {
            request = request.header("x-stainless-retry-count", 1);
        }
        self.send(conversation, action, request).await
    }

    /// Asks the control API.
    pub(crate) async fn ask(&self, url: &str, conversation: &str, action: Action) -> Option<Reply> {
        let base = format!("{url}/guard/v1/conversations/{conversation}");
        let request = match &action {
            Action::Read => self.http.get(base),
            Action::Advance { generation: None } => {
                self.http.post(format!("{base}/generation")).json(&json!({}))
            }
            Action::Advance { generation } => {
                let body = json!({"generation": generation});
                self.http.post(format!("{base}/generation")).json(&body)
            }
            Action::Start { generation, call } => {
                let body = json!({"generation": generation});
                self.http.post(format!("{base}/calls/{call}/start")).json(&body)
            }
            Action::Decide { generation, call, content } => {
                let body = json!({
                    "generation": generation, "tool_call_id": call, "content": content,
                });
                self.http.post(format!("{base}/results")).json(&body)
            }
            other => panic!("{other:?}"),
        };
        self.send(conversation, action, request).await
    }

    /// `None`: there was no whole answer.
    async fn send(
        &self,
        conversation: &str,
        action: Action,
        request: reqwest::RequestBuilder,
    ) -> Option<Reply> {
        let ticket = self.recorder.asks(conversation, action.clone());
        let answer = match request.timeout(self.patience).send().await {
            Ok(answer) => answer,
            Err(error) if error.is_connect() => {
                self.recorder.never(&ticket);
                return None;
            }
            Err(_) => return None,
        };
        let status = answer.status().as_u16();
        let body = serde_json::from_slice(&answer.bytes().await.ok()?).ok()?;
        let reply = Reply { status, body };
        self.recorder.told(&ticket, outcome(&action, &reply));
        Some(reply)
    }
}

/// What an answer says. One of 5xx says only that something failed on the way.
pub(crate) fn outcome(action: &Action, reply: &Reply) -> Outcome {
    match (reply.status, action) {
        (200, Action::Open { .. } | Action::Continue { .. }) => match reply.calls() {
            calls if calls.is_empty() => Outcome::Answered,
            calls => Outcome::Proposed(calls),
        },
        (200, Action::Decide { .. }) => Outcome::Accepted,
        (200, Action::Start { .. }) => Outcome::Started(reply.body["attempt"].as_u64().unwrap()),
        (200, Action::Advance { .. }) => Outcome::Advanced {
            generation: reply.body["generation"].as_u64().unwrap(),
            superseded: texts(&reply.body["superseded_calls"]),
        },
        (200, Action::Read) => Outcome::Record(record(&reply.body)),
        (500.., _) => Outcome::Lost,
        _ => Outcome::Refused(reply.code().to_owned()),
    }
}

fn texts(list: &Value) -> Vec<String> {
    let texts = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

fn record(body: &Value) -> Record {
    let known = body["known"] == true;
    let call = |call: &Value| {
        let text = |key: &str| call[key].as_str().unwrap().to_owned();
        (text("tool_call_id"), (call["generation"].as_u64().unwrap(), text("state")))
    };
    Record {
        generation: known.then(|| body["generation"].as_u64().unwrap()),
        calls: body["calls"].as_array().into_iter().flatten().map(call).collect(),
    }
}
