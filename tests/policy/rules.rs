//! Every rule, set to each of `off`, `note` and `refuse`: what is refused, what passes, and what is counted.

use crate::gateway::{Answer, Gateway, Reply, Upstream};
use crate::said::{Call, calls, error, request, result, streamed, text, user, whole};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tigertally::guard::fault::Code;

/// Codes that are no rules, so that nothing can be set about them.
const NO_RULES: [Code; 13] = [
    Code::Unauthenticated,
    Code::ModelNotAllowed,
    Code::IdentityUnavailable,
    Code::RouteClosed,
    Code::BodyTooLarge,
    Code::ConversationInvalid,
    Code::GenerationInvalid,
    Code::UpstreamUnreachable,
    Code::UpstreamInvalid,
    Code::StoreUnavailable,
    Code::Overloaded,
    Code::Draining,
    Code::UpstreamTimeout,
];

/// Told with other tests: two exchanges at once.
const OF_TWO: [Code; 2] = [Code::StaleAnswer, Code::Overtaken];

/// One request and what the model says to it.
struct Sent {
    body: String,
    conversation: bool,
    generation: Option<u64>,
    reply: Reply,
    /// A series that must count something before this is sent.
    after: Option<&'static str>,
    /// Whether somebody says before this is sent that the write was applied.
    applied: bool,
}

/// A request in which one thing is wrong, or whose answer has one thing wrong.
struct Scene {
    code: Code,
    /// The code that it is refused with.
    refused_as: Code,
    env: &'static [(&'static str, &'static str)],
    before: Vec<Sent>,
    last: Sent,
}

impl Sent {
    fn raw(body: impl Into<String>) -> Self {
        let (body, reply) = (body.into(), text(false));
        Sent { body, conversation: false, generation: None, reply, after: None, applied: false }
    }

    fn of(list: &[Value]) -> Self {
        Sent::raw(request(list, false).to_string())
    }

    /// The same within a conversation.
    fn tracked(list: &[Value]) -> Self {
        Sent { conversation: true, ..Sent::of(list) }
    }

    fn at(self, generation: u64) -> Self {
        Sent { generation: Some(generation), ..self }
    }

    fn says(self, said: &[Call]) -> Self {
        self.replies(whole(&calls(said), "tool_calls"))
    }

    fn replies(self, reply: Reply) -> Self {
        Sent { reply, ..self }
    }

    fn after(self, series: &'static str) -> Self {
        Sent { after: Some(series), ..self }
    }

    async fn send(&self, upstream: &Upstream, gateway: &Gateway) -> Answer {
        if let Some(series) = self.after {
            gateway.counts(series).await;
        }
        if self.applied {
            let (_, record) = gateway.control("GET", "c", &Value::Null).await;
            let key = record["calls"][0]["operation_key"].as_str().unwrap();
            let said = json!({"outcome": "applied"});
            let (status, _) = gateway.control("POST", &format!("c/writes/{key}"), &said).await;
            assert_eq!(status, 200);
        }
        upstream.reply_with(self.reply.clone());
        let generation = self.generation.map(|generation| generation.to_string());
        let mut headers = Vec::new();
        headers.extend(self.conversation.then_some(("x-conversation-id", "c")));
        headers.extend(generation.as_deref().map(|number| ("x-generation", number)));
        gateway.chat(self.body.as_bytes(), &headers).await
    }
}

impl Scene {
    fn new(code: Code, last: Sent) -> Self {
        Scene { code, refused_as: code, env: &[], before: Vec::new(), last }
    }

    fn with(self, env: &'static [(&'static str, &'static str)]) -> Self {
        Scene { env, ..self }
    }

    fn behind(self, before: impl Into<Vec<Sent>>) -> Self {
        Scene { before: before.into(), ..self }
    }

    fn refused_as(self, refused_as: Code) -> Self {
        Scene { refused_as, ..self }
    }
}

const GET: Call = Call("c1", "get_order", r#"{"order_id":"A1"}"#);
const OTHER: Call = Call("c2", "get_order", r#"{"order_id":"A2"}"#);
const REFUND: Call = Call("c1", "refund_order", r#"{"order_id":"A1"}"#);
const TIMED_OUT: &str = "calls_total{tool=\"other\",verdict=\"timed_out\"}";
const REFUND_TIMED_OUT: &str = "calls_total{tool=\"refund_order\",verdict=\"timed_out\"}";

fn list(said: &[Call], results: &[(&str, &str)]) -> Vec<Value> {
    let mut list = vec![user("u"), calls(said)];
    list.extend(results.iter().map(|(id, content)| result(id, content)));
    list
}

/// Of the request alone.
fn requests() -> Vec<Scene> {
    let arguments = |arguments: Value| {
        let mut list = list(&[GET], &[("c1", "x")]);
        list[1]["tool_calls"][0]["function"]["arguments"] = arguments;
        Sent::of(&list)
    };
    let mut without_id = list(&[GET, OTHER], &[("c1", "x")]);
    without_id[1]["tool_calls"][1]["id"] = Value::Null;
    let mut lost_id = list(&[GET], &[("c1", "x"), ("c1", "y")]);
    lost_id[3]["tool_call_id"] = Value::Null;
    let orphan = [user("u"), result("c1", "x")];
    let (one, two) = (&[("c1", "x")], [("c1", "x"), ("c1", "y")]);
    vec![
        Scene::new(Code::BodyInvalid, Sent::raw(r#"{"messages":[],"messages":[]}"#)),
        Scene::new(Code::OrphanResult, Sent::of(&orphan)),
        Scene::new(Code::UnknownResultId, Sent::of(&list(&[GET], &[("c1", "x"), ("c9", "y")]))),
        Scene::new(Code::RepeatedResult, Sent::of(&list(&[GET], &two))),
        Scene::new(Code::MissingResult, Sent::of(&list(&[GET, OTHER], one))),
        Scene::new(Code::RepeatedCallId, Sent::of(&list(&[GET, GET], one))),
        Scene::new(Code::MissingCallId, Sent::of(&without_id)),
        Scene::new(Code::MissingResultId, Sent::of(&lost_id)),
        Scene::new(Code::ArgumentsNotString, arguments(json!({"order_id": "A1"}))),
        Scene::new(Code::ArgumentsNotObject, arguments(json!("[1]"))),
    ]
}

/// Of what a conversation remembers.
fn remembered() -> Vec<Scene> {
    let asked = || Sent::tracked(&[user("u")]).says(&[GET]);
    let told = |content: &str| Sent::tracked(&list(&[GET], &[("c1", content)]));
    let past = |content: &str| {
        let mut list = list(&[GET], &[("c1", content)]);
        list.extend([json!({"role": "assistant", "content": "It is shipped."}), user("v")]);
        Sent::tracked(&list)
    };
    let unknown = Call("c9", "get_order", GET.2);
    let edited = Call("c1", "get_order", OTHER.2);
    let again = Call("c2", REFUND.1, REFUND.2);
    let next = || Sent::tracked(&[user("v")]);
    let notice = r#"{"ok":false,"error":{"code":"timeout"}}"#;
    let told_of_timeout = Sent::tracked(&list(&[REFUND], &[("c1", notice)])).says(&[again]);
    let applied = Sent { applied: true, ..told_of_timeout.after(REFUND_TIMED_OUT) };
    vec![
        Scene::new(Code::Unmatched, Sent::tracked(&list(&[unknown], &[("c9", "x")])))
            .behind([asked()]),
        Scene::new(Code::Duplicate, told("x")).behind([asked(), told("x")]),
        Scene::new(Code::Conflict, told("y")).behind([asked(), told("x")]),
        Scene::new(Code::Stale, told("x").at(2)).behind([asked().at(1)]),
        Scene::new(Code::Late, told("x").after(TIMED_OUT))
            .behind([asked()])
            .with(&[("TIGERTALLY_TOOLS__DEADLINE", "30ms")]),
        Scene::new(Code::Mismatch, Sent::tracked(&list(&[edited], &[("c1", "x")])))
            .behind([asked()]),
        Scene::new(Code::StaleGeneration, next().at(1)).behind([asked().at(2)]),
        Scene::new(Code::GenerationRequired, next()).behind([asked().at(1)]),
        Scene::new(Code::WriteOutcomeUnknown, next().says(&[again]).after(REFUND_TIMED_OUT))
            .behind([Sent::tracked(&[user("u")]).says(&[REFUND])])
            .with(&[
                ("TIGERTALLY_TOOLS__REFUND_ORDER__EFFECT", "write"),
                ("TIGERTALLY_TOOLS__REFUND_ORDER__DEADLINE", "30ms"),
            ]),
        Scene::new(Code::WriteApplied, applied)
            .behind([Sent::tracked(&[user("u")]).says(&[REFUND])])
            .with(&[
                ("TIGERTALLY_TOOLS__REFUND_ORDER__EFFECT", "write"),
                ("TIGERTALLY_TOOLS__REFUND_ORDER__DEADLINE", "30ms"),
            ]),
        Scene::new(Code::BudgetExhausted, next().at(1))
            .behind([Sent::tracked(&[user("u")]).at(1)])
            .with(&[("TIGERTALLY_BUDGET__MODEL_CALLS", "1")]),
        Scene::new(Code::HistoryChanged, past("y"))
            .behind([asked(), told("x")])
            .refused_as(Code::Conflict),
        Scene::new(Code::Adopted, told("x")).refused_as(Code::Unmatched),
        Scene::new(Code::Substituted, past("x").at(2)).behind([asked().at(1)]),
    ]
}

/// Of the model's answer.
fn answers() -> Vec<Scene> {
    let says = |said: &[Call]| Sent::of(&[user("u")]).says(said);
    let asks = |key: &str, value: Value| {
        let mut request = request(&[user("u")], false);
        request[key] = value;
        Sent::raw(request.to_string())
    };
    let call = |name, arguments| says(&[Call("c1", name, arguments)]);
    let stream = |events: &[&str]| {
        let events = events.iter().map(|event| format!("data: {event}\n\n").into_bytes());
        Sent::raw(request(&[user("u")], true).to_string()).replies(Reply::stream(events.collect()))
    };
    let content = r#"{"id":"x","choices":[{"index":0,"delta":{"content":"It is"}}]}"#;
    let stop = r#"{"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    let cut = whole(&calls(&[GET]), "length");
    let odd =
        json!({"type": "function", "function": {"name": "get_order", "parameters": {"type": 5}}});
    let arguments = json!({"order_id": "A".repeat(2000)}).to_string();
    let function = json!({"name": "get_order", "arguments": arguments});
    let said = json!([{"id": "c1", "type": "function", "function": function}]);
    let said = json!({"role": "assistant", "content": null, "tool_calls": said});
    let long = stream(&[]).replies(streamed(&said, "tool_calls"));
    let owned = r#"{"order_id":"A1","user_id":"42"}"#;
    vec![
        Scene::new(Code::UnknownTool, call("rm_rf", "{}")),
        Scene::new(Code::ToolNotAllowed, says(&[GET]))
            .with(&[("TIGERTALLY_TOOLS__ALLOW", "refund_order")]),
        Scene::new(Code::ArgumentsMalformed, call("get_order", "{\"order_id\":")),
        Scene::new(Code::ArgumentsSchema, call("get_order", "{}")),
        Scene::new(Code::ServerOwnedArgument, call("get_order", owned))
            .with(&[("TIGERTALLY_TOOLS__GET_ORDER__SERVER_OWNED", "user_id")]),
        Scene::new(Code::ToolChoiceViolated, asks("tool_choice", json!("none")).says(&[GET])),
        Scene::new(Code::TooManyCalls, says(&[GET, OTHER]))
            .with(&[("TIGERTALLY_TOOLS__MAX_CALLS", "1")]),
        Scene::new(Code::TruncatedCall, says(&[]).replies(cut)),
        Scene::new(Code::BrokenStream, stream(&[content, "oops", stop, "[DONE]"])),
        Scene::new(Code::TruncatedStream, stream(&[content])),
        Scene::new(Code::HeldTooLarge, long).with(&[("TIGERTALLY_LIMITS__HELD_BYTES", "1000")]),
        Scene::new(Code::SchemaUnusable, asks("tools", json!([odd])).says(&[GET])),
    ]
}

/// Whether an operator may set this.
fn may_set(code: Code, action: &str) -> bool {
    match code {
        Code::HeldTooLarge => action == "refuse",
        Code::SchemaUnusable | Code::Substituted => action != "refuse",
        _ => true,
    }
}

/// What was counted for a code, by verdict.
async fn counted(gateway: &Gateway, code: Code) -> BTreeMap<&'static str, u64> {
    let metrics = gateway.metrics().await;
    let of = |verdict: &'static str| {
        let series = format!("faults_total{{code=\"{}\",verdict=\"{verdict}\"}}", code.as_str());
        Some((verdict, *metrics.get(&series).filter(|count| **count > 0)?))
    };
    ["note", "refuse", "would_refuse"].into_iter().filter_map(of).collect()
}

/// Starts the program with this rule set so.
async fn start(
    upstream: &Upstream,
    code: Code,
    action: &str,
    env: &[(&'static str, &'static str)],
) -> Gateway {
    let rule = format!("TIGERTALLY_GUARD__RULES__{}", code.as_str().to_uppercase());
    let mut all = vec![(rule.as_str(), action)];
    all.extend(env);
    all.push(("TIGERTALLY_UPSTREAM__RID", "false"));
    Gateway::start(upstream, &all).await
}

async fn plays(scene: &Scene, action: &str) {
    let name = format!("{} = {action}", scene.code.as_str());
    let upstream = Upstream::start().await;
    let gateway = start(&upstream, scene.code, action, scene.env).await;
    for sent in &scene.before {
        let answer = sent.send(&upstream, &gateway).await;
        assert_eq!(answer.body, sent.reply.body(), "{name}: {answer}");
    }
    upstream.take_bodies();
    let answer = scene.last.send(&upstream, &gateway).await;
    let code = if action == "refuse" { scene.refused_as } else { scene.code };
    let counts = counted(&gateway, code).await;
    if action == "refuse" {
        assert_eq!(error(&answer)["code"], code.as_str(), "{name}: {answer}");
        assert_eq!(counts, [("refuse", 1)].into(), "{name}");
        return;
    }
    assert_eq!(answer.body, scene.last.reply.body(), "{name}: {answer}");
    let up = upstream.take_bodies();
    let changed = scene.code == Code::Substituted;
    assert!(changed || up == [scene.last.body.as_bytes()], "{name}");
    let noted = answer.header("x-tigertally-notes").contains(code.as_str());
    let streams = answer.is_stream();
    if action == "note" {
        assert!(noted || streams, "{name}: {:?}", answer.header("x-tigertally-notes"));
        assert_eq!(counts, [("note", 1)].into(), "{name}");
    } else {
        assert!(!noted, "{name}: {:?}", answer.header("x-tigertally-notes"));
        assert_eq!(counts, BTreeMap::new(), "{name}");
    }
}

#[tokio::test]
async fn each_rule_does_what_it_is_set_to() {
    let scenes: Vec<Scene> = [requests(), remembered(), answers()].into_iter().flatten().collect();
    for code in Code::ALL {
        let played = scenes.iter().any(|scene| scene.code == code);
        let elsewhere = NO_RULES.contains(&code) || OF_TWO.contains(&code);
        assert!(played != elsewhere, "{} has its scene", code.as_str());
    }
    for scene in &scenes {
        for action in ["off", "note", "refuse"] {
            if may_set(scene.code, action) {
                plays(scene, action).await;
            }
        }
    }
}

/// The user moves on, or asks the same again, while the model still writes.
#[tokio::test]
async fn an_answer_that_nobody_waits_for_goes_by_its_rule() {
    for code in OF_TWO {
        for action in ["off", "note", "refuse"] {
            let name = format!("{} = {action}", code.as_str());
            let upstream = Upstream::start().await;
            let gateway = start(&upstream, code, action, &[]).await;
            let (first, second) = match code {
                Code::StaleAnswer => {
                    (Sent::tracked(&[user("u")]).at(1), Sent::tracked(&[user("v")]).at(2))
                }
                _ => (Sent::tracked(&[user("u")]), Sent::tracked(&[user("u")])),
            };
            let first = first.replies(text(false).held());
            let old = first.send(&upstream, &gateway);
            let new = async {
                let end = Instant::now() + Duration::from_secs(20);
                while upstream.take_bodies().is_empty() {
                    assert!(Instant::now() < end, "{name}: it does not go up");
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                let answer = second.send(&upstream, &gateway).await;
                assert_eq!(answer.body, second.reply.body(), "{name}: {answer}");
                upstream.go_on();
            };
            let (old, ()) = tokio::join!(old, new);
            let counts = counted(&gateway, code).await;
            let noted = old.header("x-tigertally-notes").contains(code.as_str());
            if action == "refuse" {
                assert_eq!(error(&old)["code"], code.as_str(), "{name}: {old}");
            } else {
                assert_eq!(old.body, first.reply.body(), "{name}: {old}");
                assert_eq!(noted, action == "note", "{name}");
            }
            let wanted = if action == "off" { None } else { Some((action, 1)) };
            assert_eq!(counts.into_iter().next(), wanted, "{name}");
        }
    }
}
