//! The metrics are the sums of the record: numbers and lines are made of the same facts.
//!
//! Counts are equal. So are the sums of `tool_wait_seconds` and `task_seconds`: both sides count whole milliseconds
//! of the store's clock. `model_call_seconds` is measured by the proxy and in the record by the store's clock, from
//! the admission just before and to the end just before; the two agree up to what `overhead_seconds` counts beside
//! it, and [`SLACK`] for each call.

use crate::gateway::Reply;
use crate::lines::{answered, proposal, question, read, text};
use crate::story::World;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const CONFIG: &str = r#"
[guard.rules]
unknown_tool = "note"
mismatch = "note"
[tools.get_order_status]
[tools.refund_order]
effect = "write"
deadline = "300ms"
[budget]
model_calls = 4
"#;

const PATIENCE: Duration = Duration::from_secs(20);
/// How long the model takes for one that is measured.
const MODEL: Duration = Duration::from_millis(200);
/// Where the two clocks of a model call are not read at the same moment: what a busy machine may put between.
const SLACK: f64 = 0.1;

type Sums = BTreeMap<String, f64>;

/// All series, without `tigertally_`.
async fn series(world: &World) -> Sums {
    let text = world.gateway.admin("/metrics").await;
    let series = text.lines().filter_map(|line| {
        let (name, value) = line.strip_prefix("tigertally_")?.rsplit_once(' ')?;
        Some((name.to_owned(), value.parse().unwrap()))
    });
    series.collect()
}

/// What the record comes to, under the names of the metrics.
#[derive(Default)]
struct Reckoning(Sums);

impl Reckoning {
    fn add(&mut self, family: &str, labels: &[(&str, &str)], by: f64) {
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        *self.0.entry(format!("{family}{{{}}}", labels.join(","))).or_default() += by;
    }

    fn one(&mut self, family: &str, labels: &[(&str, &str)]) {
        self.add(family, labels, 1.0);
    }

    fn of(lines: &[Value]) -> Sums {
        let mut sums = Reckoning::default();
        lines.iter().filter(|line| line["kind"] == "task").for_each(|task| sums.task(task));
        // The request as a whole came too late: its results are told, and nobody decided on them.
        let decided =
            |line: &&Value| line["kind"] == "result" && line["code"] != "stale_generation";
        for result in lines.iter().filter(decided) {
            sums.one("results_total", &[("verdict", word(&result["code"]))]);
        }
        lines.iter().filter(|line| line["kind"] == "exchange").for_each(|line| sums.faults(line));
        sums.exchanges(lines);
        // A call is told as it stood; the last line has the last word.
        let mut calls = BTreeMap::new();
        for (line, call) in
            lines.iter().flat_map(|line| parts(line, "calls").map(move |call| (line, call)))
        {
            let key = [&line["conversation"], &call["exchange"], &call["tool_call_id"]].map(word);
            calls.insert(key, call);
        }
        calls.into_values().for_each(|call| sums.call(call));
        sums.0
    }

    fn task(&mut self, task: &Value) {
        let outcome = word(&task["outcome"]);
        self.one("tasks_total", &[("outcome", outcome)]);
        self.one("task_seconds_count", &[("outcome", outcome)]);
        self.add("task_seconds_sum", &[("outcome", outcome)], seconds(&task["took_ms"]));
        if outcome == "incomplete" {
            self.one("budget_ends_total", &[("limit", word(&task["reason"]))]);
        }
    }

    fn call(&mut self, call: &Value) {
        let tool = match word(&call["tool"]) {
            known @ ("get_order_status" | "refund_order") => known,
            _ => "other",
        };
        let let_in = call["result_forced"] == true;
        let forced = call["forced"] == true && !let_in;
        self.one(
            "calls_total",
            &[("tool", tool), ("verdict", if forced { "forced" } else { "pass" })],
        );
        match word(&call["verdict"]) {
            _ if let_in => self.one("results_total", &[("verdict", "forced")]),
            "accepted" => {
                self.one("results_total", &[("verdict", "accepted")]);
                self.one("tool_wait_seconds_count", &[("tool", tool)]);
                self.add("tool_wait_seconds_sum", &[("tool", tool)], seconds(&call["waited_ms"]));
            }
            "closed" => self.one("results_total", &[("verdict", "closed")]),
            "timed_out" => self.one("calls_total", &[("tool", tool), ("verdict", "timed_out")]),
            _ => {}
        }
        match call["write_outcome"].as_str() {
            None => {}
            Some("unknown") => self.one("write_outcomes_total", &[("outcome", "unknown")]),
            Some(known) => {
                self.one("write_outcomes_total", &[("outcome", "unknown")]);
                self.one("write_outcomes_total", &[("outcome", known)]);
            }
        }
    }

    /// What was refused for, and what was noted; a fault that enforcing would have refused is no note.
    fn faults(&mut self, line: &Value) {
        let mut would: Vec<&str> =
            line["would_refuse"].as_array().unwrap().iter().map(word).collect();
        for code in &would {
            self.one("faults_total", &[("code", code), ("verdict", "would_refuse")]);
        }
        for fault in parts(line, "faults") {
            let code = word(&fault["code"]);
            self.one("faults_total", &[("code", code), ("verdict", "refuse")]);
            if code == "unmatched" {
                // No call of it is registered, so it has no line of its own.
                self.one("results_total", &[("verdict", code)]);
            }
        }
        for note in parts(line, "notes") {
            let code = word(&note["code"]);
            match would.iter().position(|one| *one == code) {
                Some(at) => drop(would.remove(at)),
                None => self.one("faults_total", &[("code", code), ("verdict", "note")]),
            }
        }
    }

    /// Each exchange once, though a refused one is told by its task and by a line of its own.
    fn exchanges(&mut self, lines: &[Value]) {
        let mut ended = BTreeMap::new();
        for line in lines {
            for one in parts(line, "exchanges") {
                let outcome = match word(&one["outcome"]) {
                    "upstream_failed" => "upstream_error",
                    "output_refused" => "refused",
                    other => other,
                };
                let opens = line["kind"] == "task" && one["kind"] == "opening";
                ended.insert(word(&one["exchange"]), ("chat", outcome, opens));
            }
        }
        for line in lines.iter().filter(|line| line["kind"] == "exchange") {
            // Those without a conversation all ask something here.
            let opens = ended.get(word(&line["exchange"])).is_none_or(|(.., opens)| *opens);
            let told = (word(&line["route"]), word(&line["outcome"]), opens);
            ended.insert(word(&line["exchange"]), told);
        }
        for (route, outcome, opens) in ended.into_values() {
            self.one("exchanges_total", &[("outcome", outcome), ("route", route)]);
            if outcome == "delivered" {
                let call = if opens { "first" } else { "later" };
                self.one("model_call_seconds_count", &[("call", call)]);
            }
        }
    }
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn seconds(millis: &Value) -> f64 {
    millis.as_f64().unwrap() / 1e3
}

fn parts<'l>(line: &'l Value, key: &str) -> impl Iterator<Item = &'l Value> {
    line[key].as_array().into_iter().flatten()
}

/// The families that the record has a counterpart of, and of these the series that it has none of:
/// `calls_total{verdict="refuse"}` (a refused message registers nothing), what was learnt of a write after its last
/// line, and exchanges of other routes that were answered.
fn is_told(series: &str) -> bool {
    let family = series.split('{').next().unwrap();
    let told = [
        "exchanges_total",
        "faults_total",
        "results_total",
        "calls_total",
        "tasks_total",
        "task_seconds_count",
        "task_seconds_sum",
        "tool_wait_seconds_count",
        "tool_wait_seconds_sum",
        "budget_ends_total",
        "write_outcomes_total",
        "model_call_seconds_count",
    ];
    let answered_elsewhere = series.contains("\"delivered\"") && !series.contains("\"chat\"");
    let refused_call = family == "calls_total" && series.contains("\"refuse\"");
    let settled = ["applied", "not_applied", "forgotten"]
        .iter()
        .any(|outcome| series == format!("write_outcomes_total{{outcome=\"{outcome}\"}}"));
    told.contains(&family) && !answered_elsewhere && !refused_call && !settled
}

/// Where the two differ by more than a float's last digits.
fn differences(metrics: &Sums, record: &Sums) -> Vec<(String, f64, f64)> {
    let names: BTreeSet<&String> =
        metrics.keys().chain(record.keys()).filter(|name| is_told(name)).collect();
    let of = |sums: &Sums, name: &String| sums.get(name).copied().unwrap_or_default();
    let both = names.into_iter().map(|name| (name.clone(), of(metrics, name), of(record, name)));
    both.filter(|(_, counted, told)| (counted - told).abs() > 1e-6).collect()
}

/// A client of one conversation.
struct Talk<'w> {
    world: &'w World,
    conversation: &'static str,
}

impl Talk<'_> {
    async fn says(&self, generation: u64, body: &[u8], says: Reply) -> u16 {
        let generation = generation.to_string();
        let headers =
            [("x-conversation-id", self.conversation), ("x-generation", generation.as_str())];
        self.world.upstream.reply_with(says);
        self.world.gateway.chat(body, &headers).await.status
    }

    /// A whole task: asked, looked up, answered.
    async fn completes(&self, generation: u64) {
        let id = format!("call_{}_{generation}", self.conversation);
        assert_eq!(self.says(generation, &question("A"), proposal("A", &id)).await, 200);
        assert_eq!(self.says(generation, &answered("A", &id, "found"), text()).await, 200);
    }
}

/// The model proposes a tool of this name.
fn proposes(tool: &str) -> Reply {
    let body = String::from_utf8(proposal("A", "call_x").body()).unwrap();
    Reply::json(200, &body.replace("get_order_status", tool))
}

fn for_tool(body: Vec<u8>, tool: &str) -> Vec<u8> {
    String::from_utf8(body).unwrap().replace("get_order_status", tool).into()
}

/// Tasks that end in every way, and results that are judged in every way.
async fn everything(world: &World) {
    let talk = |conversation| Talk { world, conversation };
    world.play().await;
    // Answered, answered again, another result, and a task that goes on after its answer.
    let again = talk("again");
    again.completes(1).await;
    assert_eq!(again.says(1, &answered("A", "call_again_1", "found"), text()).await, 422);
    assert_eq!(again.says(1, &answered("A", "call_again_1", "lost"), text()).await, 422);
    assert_eq!(again.says(1, &question("B"), proposal("B", "call_b")).await, 200);
    again.completes(2).await;
    assert_eq!(again.says(3, &answered("A", "call_nobody", "found"), text()).await, 422);
    // The model wants more than it may.
    let budget = talk("budget");
    assert_eq!(budget.says(1, &question("A"), proposal("A", "call_1")).await, 200);
    for (came, next, status) in
        [("call_1", "call_2", 200), ("call_2", "call_3", 200), ("call_3", "call_4", 422)]
    {
        let body = answered("A", came, "look again");
        assert_eq!(budget.says(1, &body, proposal("A", next)).await, status);
    }
    // A write that times out and is reported after all.
    let late = talk("late");
    let asked = for_tool(question("A"), "refund_order");
    assert_eq!(late.says(1, &asked, proposes("refund_order")).await, 200);
    world.gateway.counts(r#"calls_total{tool="refund_order",verdict="timed_out"}"#).await;
    let body = for_tool(answered("A", "call_x", "refunded"), "refund_order");
    assert_eq!(late.says(1, &body, text()).await, 422);
    assert_eq!(late.says(2, &question("A"), text()).await, 200);
    // A notice in place of a result, an invented tool that goes out all the same, and a result of other arguments.
    let forced = talk("forced");
    assert_eq!(forced.says(1, &question("A"), proposal("A", "call_1")).await, 200);
    let notice = r#"{"ok":false,"error":{"code":"timeout"}}"#;
    assert_eq!(forced.says(1, &answered("A", "call_1", notice), text()).await, 200);
    assert_eq!(forced.says(2, &question("A"), proposes("look_into_it")).await, 200);
    assert_eq!(forced.says(3, &question("A"), proposal("A", "call_3")).await, 200);
    assert_eq!(forced.says(3, &answered("B", "call_3", "found"), text()).await, 200);
    // Answers that are none.
    let broken = talk("broken");
    assert_eq!(broken.says(1, &question("A"), Reply::json(200, "<html>")).await, 502);
    assert_eq!(broken.says(1, &question("A"), proposal("A", "")).await, 422);
    assert_eq!(broken.says(2, &question("A"), text()).await, 200);
    untracked(world).await;
    // By the control API: a result, a new task, and an end.
    let told = talk("told");
    assert_eq!(told.says(1, &question("A"), proposal("A", "call_1")).await, 200);
    let result = json!({ "generation": 1, "tool_call_id": "call_1", "content": "found" });
    for status in [200, 422] {
        assert_eq!(world.gateway.control("POST", "told/results", &result).await.0, status);
    }
    assert_eq!(world.gateway.control("POST", "told/generation", &json!({})).await.0, 200);
    assert_eq!(told.says(2, &question("B"), proposal("B", "call_2")).await, 200);
    for conversation in ["told", "again", "budget", "late", "forced", "broken", "c"] {
        let (status, _) = world.gateway.control("DELETE", conversation, &Value::Null).await;
        assert_eq!(status, 200, "{conversation}");
    }
}

/// Exchanges that belong to no conversation.
async fn untracked(world: &World) {
    world.upstream.reply_with(text());
    assert_eq!(world.gateway.chat(&question("A"), &[]).await.status, 200);
    let streamed = String::from_utf8(question("A")).unwrap().replacen('{', "{\"stream\":true,", 1);
    world.upstream.reply_with(Reply::plain(streamed.as_bytes()));
    assert_eq!(world.gateway.chat(streamed.as_bytes(), &[]).await.status, 200);
    let stray = br#"{"messages":[{"role":"tool","tool_call_id":"x","content":""}]}"#;
    assert_eq!(world.gateway.chat(stray, &[]).await.status, 400);
    assert_eq!(world.gateway.chat(b"{", &[]).await.status, 400);
    assert_eq!(world.gateway.control("DELETE", "\u{7f}", &Value::Null).await.0, 400);
}

#[tokio::test]
async fn the_metrics_are_the_sums_of_the_record() {
    let scratch = tempfile::tempdir().unwrap();
    let config = scratch.path().join("tigertally.toml");
    std::fs::write(&config, CONFIG).unwrap();
    let world = World::with(&[("TIGERTALLY_CONFIG", config.to_str().unwrap())]).await;
    everything(&world).await;
    let end = Instant::now() + PATIENCE;
    let (metrics, record) = loop {
        let (metrics, record) = (series(&world).await, Reckoning::of(&read(&[&world.file])));
        let differences = differences(&metrics, &record);
        if differences.is_empty() {
            break (metrics, record);
        }
        assert!(Instant::now() < end, "series, counted, told: {differences:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(metrics.get("record_dropped_total"), Some(&0.0));
    // It was about something: every outcome that this run can bring about.
    for series in [
        r#"tasks_total{outcome="completed"}"#,
        r#"tasks_total{outcome="superseded"}"#,
        r#"tasks_total{outcome="incomplete"}"#,
        r#"tasks_total{outcome="failed"}"#,
        r#"tasks_total{outcome="expired"}"#,
        r#"task_seconds_sum{outcome="superseded"}"#,
        r#"tool_wait_seconds_sum{tool="get_order_status"}"#,
        r#"budget_ends_total{limit="model_calls"}"#,
        r#"results_total{verdict="accepted"}"#,
        r#"results_total{verdict="forced"}"#,
        r#"results_total{verdict="closed"}"#,
        r#"results_total{verdict="stale"}"#,
        r#"results_total{verdict="late"}"#,
        r#"results_total{verdict="duplicate"}"#,
        r#"results_total{verdict="conflict"}"#,
        r#"results_total{verdict="unmatched"}"#,
        r#"calls_total{tool="get_order_status",verdict="pass"}"#,
        r#"calls_total{tool="other",verdict="forced"}"#,
        r#"calls_total{tool="refund_order",verdict="timed_out"}"#,
        r#"write_outcomes_total{outcome="reported"}"#,
        r#"exchanges_total{outcome="delivered",route="chat"}"#,
        r#"exchanges_total{outcome="refused",route="chat"}"#,
        r#"exchanges_total{outcome="refused",route="control"}"#,
        r#"exchanges_total{outcome="upstream_error",route="chat"}"#,
        r#"faults_total{code="unknown_tool",verdict="note"}"#,
        r#"faults_total{code="orphan_result",verdict="refuse"}"#,
        r#"model_call_seconds_count{call="first"}"#,
        r#"model_call_seconds_count{call="later"}"#,
    ] {
        assert!(record.get(series).is_some_and(|sum| *sum > 0.0), "no {series}: {record:#?}");
    }
}

/// The durations of first and later model calls.
#[tokio::test]
async fn model_calls_take_as_long_in_the_record_as_in_the_metrics() {
    const TASKS: u64 = 3;
    let world = World::start().await;
    for generation in 1..=TASKS {
        let id = format!("call_{generation}");
        for (body, says) in
            [(question("A"), proposal("A", &id)), (answered("A", &id, "found"), text())]
        {
            let answers = async {
                world.upstream.holds().await;
                tokio::time::sleep(MODEL).await;
                world.upstream.go_on();
            };
            let (status, ()) =
                tokio::join!(world.exchange(generation, "r", &body, says.held()), answers);
            assert_eq!(status, 200);
        }
    }
    let enough = |lines: &[Value]| (1..=TASKS).all(|one| crate::lines::has_task(lines, one));
    let lines = crate::lines::until(&[&world.file], enough).await;
    world.gateway.counts(r#"model_call_seconds_count{call="later"}"#).await;
    let metrics = series(&world).await;
    let told = |keys: &[&str]| -> f64 {
        let tasks = lines.iter().filter(|line| line["kind"] == "task");
        tasks.flat_map(|task| keys.iter().map(|key| seconds(&task["times"][key]))).sum()
    };
    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    let calls = TASKS as f64;
    let beside = calls * SLACK + metrics["overhead_seconds_sum"];
    for (call, keys) in [
        ("first", ["first_model_call_ms"].as_slice()),
        ("later", &["later_model_calls_ms", "acceptance_ms"]),
    ] {
        let counted = metrics[&format!("model_call_seconds_sum{{call=\"{call}\"}}")];
        let told = told(keys);
        assert!(
            told >= calls * MODEL.as_secs_f64() && (counted - told).abs() <= beside,
            "{call}: counted {counted}, told {told}"
        );
    }
}
