//! What the operator set for tools: refused with the rule and the tool named and no value, whole and
//! streamed; and the nearest traffic that must pass, byte for byte.

use crate::gateway::{Gateway, Upstream};
use crate::said::{Call, calls, error, request, result, streamed, text, user, whole};
use serde_json::Value;

/// A value that no refusal may repeat.
const VALUE: &str = "7f3a-private";

/// Sends the model's calls down both ways; gives what each refusal said, or `None` when the bytes passed.
async fn proposed(env: &[(&str, &str)], message: &Value) -> [Option<Value>; 2] {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&upstream, env).await;
    let body = |stream| request(&[user("What of A1?")], stream).to_string();
    let mut said = [const { None }; 2];
    for (stream, said) in [false, true].into_iter().zip(&mut said) {
        let reply = if stream { streamed } else { whole }(message, "tool_calls");
        upstream.reply_with(reply.clone());
        let answer = gateway.chat(body(stream).as_bytes(), &[]).await;
        if answer.body == reply.body() && answer.status == 200 {
            continue;
        }
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(!text.contains("tool_calls\":[{"), "no call comes out: {text}");
        assert!(!text.contains(VALUE), "no value is told: {text}");
        assert!(stream || answer.status == 422, "{answer}");
        *said = Some(error(&answer));
    }
    said
}

async fn passes(env: &[(&str, &str)], calls_made: &[Call]) {
    let said = proposed(env, &calls(calls_made)).await;
    assert_eq!(said, [None, None]);
}

/// Refused with this code, both ways, and each of `words` told.
async fn refused(env: &[(&str, &str)], calls_made: &[Call], code: &str, words: &[&str]) {
    for said in proposed(env, &calls(calls_made)).await {
        let said = said.unwrap_or_else(|| panic!("{code}: not refused"));
        assert_eq!(said["code"], code, "{said}");
        let message = said["faults"][0]["message"].as_str().unwrap();
        for word in words {
            assert!(message.contains(word), "{word} in {message}");
        }
    }
}

const GET: Call = Call("c1", "get_order", r#"{"order_id":"7f3a-private"}"#);
const REFUND: Call = Call("c2", "refund_order", r#"{"order_id":"7f3a-private","amount":20}"#);

#[tokio::test]
async fn only_tools_on_the_list_may_be_proposed() {
    let env = [("TIGERTALLY_TOOLS__ALLOW", "get_order")];
    passes(&env, &[GET]).await;
    refused(&env, &[REFUND], "tool_not_allowed", &["`refund_order`", "tools.allow"]).await;
    refused(&env, &[GET, REFUND], "tool_not_allowed", &["`refund_order`"]).await;
}

#[tokio::test]
async fn a_message_has_no_more_calls_than_allowed() {
    let env = [("TIGERTALLY_TOOLS__MAX_CALLS", "1")];
    passes(&env, &[GET]).await;
    refused(&env, &[GET, REFUND], "too_many_calls", &["2 calls", "tools.max_calls", "1"]).await;
}

#[tokio::test]
async fn what_the_server_sets_is_refused_at_any_depth_in_any_spelling() {
    let env = [("TIGERTALLY_TOOLS__GET_ORDER__SERVER_OWNED", "user_id,tenant_id")];
    for arguments in [
        r#"{"order_id":"A1","user_id":"7f3a-private"}"#,
        r#"{"order_id":"A1","user_id":null}"#,
        r#"{"order_id":"A1","by":{"with":{"user_id":"7f3a-private"}}}"#,
        r#"{"order_id":"A1","by":[[{"user_id":"7f3a-private"}]]}"#,
        r#"{"order_id":"A1","\u0075ser\u005fid":"7f3a-private"}"#,
        r#"{"order_id":"A1","User_ID":"7f3a-private"}"#,
        r#"{"order_id":"A1","u\u017fer_id":"7f3a-private"}"#,
    ] {
        let told = ["`get_order`", "`user_id`", "server_owned"];
        refused(&env, &[Call("c1", "get_order", arguments)], "server_owned_argument", &told).await;
    }
    // A key that parsers read differently hides nothing: it is no JSON to be run.
    let halved =
        Call("c1", "get_order", r#"{"order_id":"A1","x\ud800":1,"user_id":"7f3a-private"}"#);
    refused(&env, &[halved], "arguments_malformed", &["surrogate pair"]).await;
    for arguments in [
        r#"{"order_id":"user_id"}"#,
        r#"{"order_id":"A1","user_ids":["7f3a-private"]}"#,
        r#"{"order_id":"A1","note":"user_id: 42"}"#,
        r#"{"order_id":"A1","x_user_id":"1"}"#,
    ] {
        passes(&env, &[Call("c1", "get_order", arguments)]).await;
    }
    // It is a rule for that tool.
    passes(&env, &[Call("c1", "refund_order", r#"{"order_id":"A1","user_id":"42"}"#)]).await;
}

#[tokio::test]
async fn the_operators_schema_may_be_stricter_than_the_requests() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("refund.json");
    let schema = r#"{"type":"object","properties":{"amount":{"type":"number","maximum":100}},"required":["amount"]}"#;
    std::fs::write(&file, schema).unwrap();
    let env = [("TIGERTALLY_TOOLS__REFUND_ORDER__SCHEMA", file.to_str().unwrap())];
    passes(&env, &[REFUND]).await;
    passes(&env, &[GET]).await;
    let told = ["`refund_order`", "the operator's schema"];
    for arguments in
        [r#"{"order_id":"7f3a-private"}"#, r#"{"order_id":"7f3a-private","amount":731982}"#]
    {
        let call = Call("c1", "refund_order", arguments);
        refused(&env, &[call], "arguments_schema", &told).await;
        let said = proposed(&env, &calls(&[call])).await;
        assert!(!said[0].as_ref().unwrap().to_string().contains("731982"), "{said:?}");
    }
}

/// A tracked conversation on a program of its own.
struct Talk {
    upstream: Upstream,
    gateway: Gateway,
    stream: bool,
}

impl Talk {
    async fn start(env: &[(&str, &str)], stream: bool) -> Self {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(&upstream, env).await;
        Talk { upstream, gateway, stream }
    }

    /// The model answers this list with these calls, or with a text. Gives what was refused.
    async fn turn(&self, list: &[Value], said: &[Call]) -> Option<Value> {
        let reply = match (said.is_empty(), self.stream) {
            (true, stream) => text(stream),
            (false, true) => streamed(&calls(said), "tool_calls"),
            (false, false) => whole(&calls(said), "tool_calls"),
        };
        self.upstream.reply_with(reply.clone());
        let body = request(list, self.stream).to_string();
        let headers = [("x-conversation-id", "c"), ("x-generation", "1")];
        let answer = self.gateway.chat(body.as_bytes(), &headers).await;
        if answer.body == reply.body() {
            return None;
        }
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(!text.contains(VALUE), "no value is told: {text}");
        Some(error(&answer))
    }
}

#[tokio::test]
async fn a_result_echoes_its_calls_arguments_unchanged() {
    let env = [("TIGERTALLY_TOOLS__GET_ORDER__ECHO", "order_id")];
    for stream in [false, true] {
        let talk = Talk::start(&env, stream).await;
        let call = [Call("c1", "get_order", r#"{"order_id":"A1"}"#)];
        let list = |content: &str| [user("u"), calls(&call), result("c1", content)];
        assert_eq!(talk.turn(&[user("u")], &call).await, None);
        let other = talk.turn(&list(r#"{"order_id":"7f3a-private"}"#), &[]).await.unwrap();
        assert_eq!(other["code"], "mismatch", "{other}");
        assert_eq!(talk.turn(&list(r#"{"order_id":"A1","state":"lost"}"#), &[]).await, None);
    }
}

#[tokio::test]
async fn arguments_are_edited_only_where_that_is_allowed() {
    for stream in [false, true] {
        for (edits, allowed) in [("refuse", false), ("note", true)] {
            let env = [("TIGERTALLY_TOOLS__REFUND_ORDER__EDITS", edits)];
            let talk = Talk::start(&env, stream).await;
            let proposed = Call("c1", "refund_order", r#"{"order_id":"A1","amount":20}"#);
            let edited = Call("c1", "refund_order", r#"{"order_id":"7f3a-private","amount":5}"#);
            let other = Call("c1", "get_order", r#"{"order_id":"A1","amount":20}"#);
            let list = |call| [user("u"), calls(&[call]), result("c1", "done")];
            assert_eq!(talk.turn(&[user("u")], &[proposed]).await, None);
            let renamed = talk.turn(&list(other), &[]).await.unwrap();
            assert_eq!(renamed["code"], "mismatch", "a tool is never edited: {renamed}");
            let said = talk.turn(&list(edited), &[]).await;
            assert_eq!(said.map(|said| said["code"] == "mismatch"), (!allowed).then_some(true));
            if !allowed {
                assert_eq!(talk.turn(&list(proposed), &[]).await, None, "as it was proposed");
            }
        }
    }
}

#[tokio::test]
async fn a_result_after_its_tools_deadline_is_late_and_one_without_a_deadline_is_not() {
    // The other tool has a deadline of its own, which beats that of all.
    let env = [
        ("TIGERTALLY_TOOLS__DEADLINE", "30ms"),
        ("TIGERTALLY_TOOLS__REFUND_ORDER__DEADLINE", "10m"),
    ];
    for stream in [false, true] {
        let talk = Talk::start(&env, stream).await;
        let list = |call| [user("u"), calls(&[call]), result("c1", "7f3a-private")];
        let (short, long) = (Call("c1", GET.1, GET.2), Call("c1", REFUND.1, REFUND.2));
        assert_eq!(talk.turn(&[user("u")], &[short]).await, None);
        // No tool but the one with a deadline of its own is configured by name.
        talk.gateway.counts("calls_total{tool=\"other\",verdict=\"timed_out\"}").await;
        let late = talk.turn(&list(short), &[]).await.unwrap();
        assert_eq!(late["code"], "late", "{late}");

        let talk = Talk::start(&env, stream).await;
        assert_eq!(talk.turn(&[user("u")], &[long]).await, None);
        assert_eq!(talk.turn(&list(long), &[]).await, None);
    }
}

#[tokio::test]
async fn a_task_ends_at_its_deadline() {
    for stream in [false, true] {
        let talk = Talk::start(&[("TIGERTALLY_BUDGET__DEADLINE", "3s")], stream).await;
        assert_eq!(talk.turn(&[user("u")], &[GET]).await, None);
        talk.gateway.counts("tasks_total{outcome=\"incomplete\"}").await;
        let over = talk.turn(&[user("u"), calls(&[GET]), result("c1", "x")], &[]).await.unwrap();
        assert!(over["code"] == "late" || over["code"] == "budget_exhausted", "{over}");
        let talk = Talk::start(&[("TIGERTALLY_BUDGET__DEADLINE", "10m")], stream).await;
        assert_eq!(talk.turn(&[user("u")], &[GET]).await, None);
        assert_eq!(talk.turn(&[user("u"), calls(&[GET]), result("c1", "x")], &[]).await, None);
    }
}

#[tokio::test]
async fn a_task_makes_no_more_model_calls_than_its_budget() {
    for stream in [false, true] {
        let talk = Talk::start(&[("TIGERTALLY_BUDGET__MODEL_CALLS", "2")], stream).await;
        let second = [user("u"), calls(&[GET]), result("c1", "x")];
        assert_eq!(talk.turn(&[user("u")], &[GET]).await, None);
        let over = talk.turn(&second, &[REFUND]).await.unwrap();
        assert_eq!(over["code"], "budget_exhausted", "a proposal on the last call: {over}");
        assert!(over["message"].as_str().unwrap().contains("budget.model_calls"), "{over}");
        let talk = Talk::start(&[("TIGERTALLY_BUDGET__MODEL_CALLS", "2")], stream).await;
        assert_eq!(talk.turn(&[user("u")], &[GET]).await, None);
        assert_eq!(talk.turn(&second, &[]).await, None, "an answer on the last call");
    }
}

#[tokio::test]
async fn a_task_makes_no_more_tool_calls_than_its_budget() {
    let other = Call("c3", "get_order", r#"{"order_id":"7f3a-private"}"#);
    for stream in [false, true] {
        for (budget, passes) in [("2", false), ("3", true)] {
            let talk = Talk::start(&[("TIGERTALLY_BUDGET__TOOL_CALLS", budget)], stream).await;
            let first = [user("u"), calls(&[GET, REFUND]), result("c1", "x"), result("c2", "y")];
            assert_eq!(talk.turn(&[user("u")], &[GET, REFUND]).await, None);
            let said = talk.turn(&first, &[other]).await;
            if passes {
                assert_eq!(said, None);
                continue;
            }
            let over = said.unwrap();
            assert_eq!(over["code"], "budget_exhausted", "{over}");
            assert!(over["message"].as_str().unwrap().contains("budget.tool_calls"), "{over}");
            let counts = talk.gateway.metrics().await;
            assert_eq!(counts["calls_total{tool=\"other\",verdict=\"refuse\"}"], 1);
            assert_eq!(counts["calls_total{tool=\"other\",verdict=\"pass\"}"], 2);
            assert_eq!(counts["tasks_total{outcome=\"incomplete\"}"], 1);
        }
    }
}
