//! A refund through everything that makes a client ask again: it goes away, its SDK retries, the replica dies
//! in the middle. The business service sees one operation key, and so refunds once.

use super::TOOLS;
use super::model::{Model, Says, assistant, call, proposes, request, streams, user};
use super::process::{Got, Process};
use super::server::Server;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Refunds once per operation key, as such services do.
#[derive(Default)]
struct Refunds(BTreeMap<String, u32>);

impl Refunds {
    /// Whether the money moved now.
    fn refund(&mut self, key: &str) -> bool {
        assert_eq!(key.len(), 32, "{key}");
        let asked = self.0.entry(key.to_owned()).or_default();
        *asked += 1;
        *asked == 1
    }
}

/// An SDK that talks about one conversation. `generation`: it counts tasks itself.
struct Agent {
    generation: bool,
}

impl Agent {
    fn headers(&self, retry: &'static str) -> Vec<(&'static str, &'static str)> {
        let mut headers = vec![("x-conversation-id", "c"), ("x-stainless-retry-count", retry)];
        if self.generation {
            headers.push(("x-generation", "7"));
        }
        headers
    }

    async fn asks(&self, of: &Process, retry: &'static str, body: &str) -> Got {
        of.chat(&self.headers(retry), body).await
    }

    /// Asks, and goes away when the model has been asked and says nothing.
    async fn gives_up(&self, of: &Process, retry: &'static str, body: &str, model: &Model) {
        model.will(Says::Nothing);
        model.take();
        let asking = tokio::spawn(of.ask(&self.headers(retry), body).send());
        model.asked(1).await;
        asking.abort();
        let _ = asking.await;
    }

    /// Asks, and loses the replica when the model has been asked.
    async fn loses(&self, of: &mut Process, retry: &'static str, body: &str, model: &Model) {
        model.will(Says::Nothing);
        model.take();
        let asking = tokio::spawn(of.ask(&self.headers(retry), body).send());
        model.asked(1).await;
        of.kill();
        assert!(asking.await.unwrap().is_err());
    }
}

async fn start(of: &Process, call: &str, generation: u64) -> Value {
    let path = format!("c/calls/{call}/start");
    let (status, told) = of.control(&path, Some(json!({ "generation": generation }))).await;
    assert_eq!(status, 200, "{told}");
    told
}

fn refund(id: &str) -> Value {
    call(id, "refund_order", "A")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_business_service_sees_one_key() {
    for generation in [true, false] {
        let (model, server) = (Model::start().await, Server::start(&[]));
        let mut one = Process::start(&model.url, &server.url(), TOOLS).await;
        let mut two = Process::start(&model.url, &server.url(), TOOLS).await;
        let (agent, mut business) = (Agent { generation }, Refunds::default());
        let number = if generation { 7 } else { 1 };
        let opening = request(&user("Refund A."), false);

        agent.gives_up(&one, "0", &opening, &model).await;
        // The answer comes, the refund is made, and the application dies before it says so.
        model.will(proposes(&[refund("call_1")]));
        let got = agent.asks(&one, "1", &opening).await;
        let key = got.operations.strip_prefix("call_1=").unwrap().to_owned();
        assert_eq!(start(&one, "call_1", number).await["operation_key"], key);
        assert!(business.refund(&key));
        // It comes back and asks again; this time the replica dies.
        agent.loses(&mut one, "1", &opening, &model).await;
        model.will(streams(refund("call_2")));
        let got = agent.asks(&two, "2", &request(&user("Refund A."), true)).await;
        assert!(got.status == 200 && got.body.contains("call_2"), "{got:?}");
        // A stream broke off, too, as far as the client could see.
        model.will(proposes(&[refund("call_3")]));
        let got = agent.asks(&two, "3", &opening).await;
        assert_eq!(got.operations, format!("call_3={key}"));
        assert!(!business.refund(&key), "the service knows that refund");

        let result = json!({ "role": "tool", "tool_call_id": "call_3", "content": "refunded" });
        let list = [user("Refund A."), assistant(&[refund("call_3")]), result.to_string()];
        let continuation = request(&list.join(","), false);
        agent.gives_up(&two, "0", &continuation, &model).await;
        agent.loses(&mut two, "1", &continuation, &model).await;
        one.restart().await;
        let done = agent.asks(&one, "2", &continuation).await;
        assert!(done.status == 200 && done.body.contains("Done."), "{done:?}");

        let (_, record) = one.control("c", None).await;
        let calls = record["calls"].as_array().unwrap();
        let of = |name: &str| -> Vec<String> {
            calls.iter().map(|call| call[name].as_str().unwrap_or("-").to_owned()).collect()
        };
        assert_eq!(of("operation_key"), vec![key.clone(); 3], "{record}");
        assert_eq!(of("state"), ["replaced", "replaced", "accepted"]);
        assert_eq!(of("outcome"), ["withdrawn", "withdrawn", "-"]);
        assert_eq!(record["generations"][0]["outcome"], "completed");
        assert_eq!(business.0, BTreeMap::from([(key, 2)]), "one key, whoever asked");
    }
}

/// The same without a word that it is a retry: nobody knows whether the first refund was made, so there is
/// no second one.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_declared_retry_there_is_no_second_one() {
    let (model, server) = (Model::start().await, Server::start(&[]));
    let mut one = Process::start(&model.url, &server.url(), TOOLS).await;
    let two = Process::start(&model.url, &server.url(), TOOLS).await;
    let (agent, opening) = (Agent { generation: true }, request(&user("Refund A."), false));
    model.will(proposes(&[refund("call_1")]));
    let got = agent.asks(&one, "0", &opening).await;
    let key = got.operations.strip_prefix("call_1=").unwrap().to_owned();
    one.kill();
    model.will(proposes(&[refund("call_2")]));
    let again = agent.asks(&two, "0", &opening).await;
    assert_eq!((again.status, again.code().as_str()), (422, "write_outcome_unknown"));
    let said = Some(json!({ "outcome": "applied" }));
    assert_eq!(two.control(&format!("c/writes/{key}"), said).await.0, 200);
    model.will(proposes(&[refund("call_3")]));
    let again = agent.asks(&two, "0", &opening).await;
    assert_eq!((again.status, again.code().as_str()), (422, "write_applied"));
}
