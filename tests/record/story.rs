//! The article's story: the user asks for order A, then for order B before A's query has come back. From the
//! record it can be read that A's query completed and came back stale, and that B was answered.

use crate::gateway::{Gateway, Reply, Upstream};
use crate::lines::{answered, has_task, of_kind, proposal, question, text, until};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

const ARTICLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/order-query.toml");

/// A user's application on a guard that records.
pub(crate) struct World {
    pub(crate) upstream: Upstream,
    pub(crate) gateway: Gateway,
    pub(crate) file: PathBuf,
    _scratch: tempfile::TempDir,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::with(&[]).await
    }

    /// With further settings on top of the article's.
    pub(crate) async fn with(settings: &[(&str, &str)]) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("tasks.jsonl");
        let upstream = Upstream::start().await;
        let name = file.to_str().unwrap();
        let env: Vec<_> =
            [("TIGERTALLY_CONFIG", ARTICLE), ("TIGERTALLY_TELEMETRY__RECORD_FILE", name)]
                .into_iter()
                .chain(settings.iter().copied())
                .collect();
        let gateway = Gateway::start(&upstream, &env).await;
        World { upstream, gateway, file, _scratch: scratch }
    }

    /// One exchange of conversation `c`: its status.
    pub(crate) async fn exchange(
        &self,
        generation: u64,
        id: &str,
        body: &[u8],
        says: Reply,
    ) -> u16 {
        let generation = generation.to_string();
        let headers = [
            ("x-conversation-id", "c"),
            ("x-generation", generation.as_str()),
            ("x-request-id", id),
        ];
        self.upstream.reply_with(says);
        self.gateway.chat(body, &headers).await.status
    }

    /// The story, as far as its end.
    pub(crate) async fn play(&self) -> Vec<Value> {
        let a = self.exchange(41, "ask-a", &question("A"), proposal("A", "call_a")).await;
        // The tool is at work, and the user moves on.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let b = self.exchange(42, "ask-b", &question("B"), proposal("B", "call_b")).await;
        assert_eq!((a, b), (200, 200));
        let body = answered("A", "call_a", "found");
        let late = self.exchange(41, "late-a", &body, text()).await;
        let told = json!({ "generation": 41, "tool_call_id": "call_a", "content": "found" });
        let (refused, _) = self.gateway.control("POST", "c/results", &told).await;
        assert_eq!((late, refused), (422, 422));
        tokio::time::sleep(Duration::from_millis(30)).await;
        let body = answered("B", "call_b", "found");
        assert_eq!(self.exchange(42, "answer-b", &body, text()).await, 200);
        until(&[&self.file], |lines| has_task(lines, 42) && of_kind(lines, "exchange").len() == 2)
            .await
    }
}

fn sum(task: &Value) -> u64 {
    task["times"].as_object().unwrap().values().map(|time| time.as_u64().unwrap()).sum()
}

/// What is told of one call: id, verdict, whether it has a result.
fn calls(task: &Value) -> Vec<(&str, &str, bool)> {
    let calls = task["calls"].as_array().unwrap().iter();
    calls
        .map(|call| {
            let (id, verdict) = (&call["tool_call_id"], &call["verdict"]);
            (id.as_str().unwrap(), verdict.as_str().unwrap(), call["result_digest"].is_string())
        })
        .collect()
}

/// What is told of one exchange: request id, kind, outcome, whether it is the answer.
fn exchanges(task: &Value) -> Vec<(&str, &str, &str, bool)> {
    let exchanges = task["exchanges"].as_array().unwrap().iter();
    exchanges
        .map(|one| {
            let [id, kind, outcome] =
                ["request_id", "kind", "outcome"].map(|key| one[key].as_str().unwrap());
            (id, kind, outcome, one["is_answer"].as_bool().unwrap())
        })
        .collect()
}

#[tokio::test]
async fn a_came_back_stale_and_b_was_answered() {
    let world = World::start().await;
    let lines = world.play().await;
    let tasks = of_kind(&lines, "task");
    let [a, b] = tasks[..] else { panic!("two tasks, each told once: {tasks:#?}") };

    assert_eq!((&a["generation"], &a["outcome"]), (&json!(41), &json!("superseded")));
    assert_eq!(exchanges(a), [("ask-a", "opening", "delivered", false)]);
    assert_eq!(calls(a), [("call_a", "superseded", false)]);
    assert!(a["times"]["tool_wait_ms"].as_u64().unwrap() >= 50, "{a}");
    assert_eq!(a["times"]["later_model_calls_ms"], 0, "no second call was made of A's result");
    assert_eq!(a["times"]["acceptance_ms"], 0);

    let results = of_kind(&lines, "result");
    let told: Vec<_> = results
        .iter()
        .map(|one| (one["generation"].as_u64().unwrap(), one["code"].as_str().unwrap()))
        .collect();
    assert_eq!(told, [(41, "stale_generation"), (41, "stale")]);
    for result in results {
        assert_eq!(
            (&result["tool_call_id"], &result["after_end"]),
            (&json!("call_a"), &json!(true))
        );
        assert!(result["came_after_ms"].as_u64().unwrap() >= 50, "{result}");
    }

    assert_eq!((&b["generation"], &b["outcome"]), (&json!(42), &json!("completed")));
    assert_eq!(
        exchanges(b),
        [("ask-b", "opening", "delivered", false), ("answer-b", "continuation", "delivered", true)]
    );
    assert_eq!(calls(b), [("call_b", "accepted", true)]);
    assert!(b["times"]["tool_wait_ms"].as_u64().unwrap() >= 30, "{b}");
    assert_eq!((&b["model_calls"], &b["tool_calls"]), (&json!(2), &json!(1)));
    for task in [a, b] {
        let took = task["took_ms"].as_u64().unwrap();
        assert!(took.abs_diff(sum(task)) <= 5, "{task}");
        assert_eq!(
            (&task["principal"], &task["conversation"]),
            (&a["principal"], &a["conversation"])
        );
    }
    let rids: Vec<_> =
        b["exchanges"].as_array().unwrap().iter().map(|one| one["rid"].as_str()).collect();
    let bodies = world.upstream.take_bodies();
    for rid in rids {
        let rid = rid.unwrap();
        let sent = bodies.iter().any(|body| String::from_utf8_lossy(body).contains(rid));
        assert!(sent, "the upstream knows no {rid}");
    }
}

/// What comes after a task's end in the same generation is told as well, and the task no second time.
#[tokio::test]
async fn a_task_that_goes_on_after_its_answer_is_told_in_parts() {
    let world = World::with(&[("TIGERTALLY_BUDGET__MODEL_CALLS", "9")]).await;
    assert_eq!(world.exchange(1, "one", &question("A"), text()).await, 200);
    assert_eq!(world.exchange(1, "two", &question("B"), proposal("B", "call_b")).await, 200);
    let body = answered("B", "call_b", "found");
    assert_eq!(world.exchange(1, "three", &body, text()).await, 200);
    let lines = until(&[&world.file], |lines| of_kind(lines, "after").len() == 2).await;
    assert_eq!(of_kind(&lines, "task").len(), 1);
    let after = of_kind(&lines, "after");
    assert_eq!(exchanges(after[0]), [("two", "opening", "delivered", false)]);
    assert_eq!(exchanges(after[1]), [("three", "continuation", "delivered", true)]);
    assert_eq!(calls(after[1]), [("call_b", "accepted", true)]);
}
