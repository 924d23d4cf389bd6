//! No client and no model makes a series, and a reload keeps what was counted.

use super::model::{call, proposes, request, user};
use super::process::Process;
use super::scrape::Scrape;
use super::{TOOLS, guard};
use serde_json::json;
use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

const HOSTILE: [&str; 7] = [
    "",
    "x\",verdict=\"pass",
    "a\nb 1",
    "}\ntigertally_forged 1\n",
    "get_order ",
    "GET_ORDER",
    "ein_sehr_langer_name_ein_sehr_langer_name_ein_sehr_langer_name_ein_sehr_langer_name_ein_sehr_langer_name_ein_sehr_langer_name",
];

fn shape(scrape: &Scrape) -> BTreeSet<String> {
    scrape.series.keys().filter(|series| !series.contains("verdict=\"note\"")).cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_names_make_no_series() {
    let (model, process) = guard(TOOLS).await;
    let before = shape(&Scrape::of(&process).await);
    for (round, name) in HOSTILE.iter().enumerate() {
        model.will(proposes(&[call("call_1", name, "A")]));
        let conversation = format!("c{round}");
        let headers = [("x-conversation-id", conversation.as_str()), ("x-generation", "1")];
        let _ = process.chat(&headers, &request(&user("Where?"), false)).await;
        // And offered by the client itself, so that the call passes.
        let tool = json!({ "type": "function", "function": { "name": name } });
        let body = json!({ "model": name, "messages": [{ "role": "user", "content": "Where?" }], "tools": [tool] });
        model.will(proposes(&[call("call_1", name, "A")]));
        let _ = process.chat(&headers, &body.to_string()).await;
        let content =
            json!({ "tool_call_id": name, "name": name, "content": name, "generation": 1 });
        let _ = process.control(&format!("c{round}/results"), Some(content)).await;
        let _ = process
            .client
            .get(format!("http://{}/{round}{conversation}", process.listen))
            .send()
            .await;
    }
    let after = Scrape::of(&process).await;
    assert_eq!(shape(&after), before);
    let others = |verdict: &str| {
        after.series[&format!("tigertally_calls_total{{tool=\"other\",verdict=\"{verdict}\"}}")]
    };
    assert!(others("refuse") >= 6.0 && others("pass") >= 5.0, "they were counted");
    for (name, labels) in after.parts() {
        assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{name}");
        for (label, value) in labels {
            let clean = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-+".contains(&byte);
            assert!(value.bytes().all(clean), "{name} {label} {value}");
        }
    }
}

async fn proposes_cancel(process: &Process, model: &super::Model) {
    model.will(proposes(&[call("call_1", "cancel_order", "A")]));
    let tool = json!({ "type": "function", "function": { "name": "cancel_order" } });
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "Cancel." }], "tools": [tool] });
    assert_eq!(process.chat(&[], &body.to_string()).await.status, 200);
}

fn counted(scrape: &Scrape, tool: &str) -> Option<f64> {
    let series = format!("tigertally_calls_total{{tool=\"{tool}\",verdict=\"pass\"}}");
    scrape.series.get(&series).copied()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_with_other_tools_counts_them_by_name_and_keeps_what_was_counted() {
    let (model, process) = guard(TOOLS).await;
    model.will(proposes(&[call("call_1", "get_order", "A")]));
    assert_eq!(process.chat(&[], &request(&user("Where?"), false)).await.status, 200);
    proposes_cancel(&process, &model).await;
    let before = Scrape::of(&process).await;
    assert_eq!(counted(&before, "cancel_order"), None);
    assert_eq!((counted(&before, "get_order"), counted(&before, "other")), (Some(1.0), Some(1.0)));

    let config = "[tools.cancel_order]\neffect = \"write\"\n";
    std::fs::write(process.scratch.path().join("tigertally.toml"), config).unwrap();
    let id = process.child.id().to_string();
    assert!(Command::new("kill").args(["-s", "HUP", &id]).status().unwrap().success());
    let end = Instant::now() + Duration::from_secs(20);
    while counted(&Scrape::of(&process).await, "cancel_order").is_none() {
        assert!(Instant::now() < end, "the tool has no series");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    proposes_cancel(&process, &model).await;
    model.will(proposes(&[call("call_1", "get_order", "A")]));
    assert_eq!(process.chat(&[], &request(&user("Where?"), false)).await.status, 200);
    let after = Scrape::of(&process).await;
    assert_eq!(counted(&after, "cancel_order"), Some(1.0));
    assert_eq!(counted(&after, "get_order"), Some(1.0), "a name that is gone stays where it stood");
    assert_eq!(counted(&after, "other"), Some(2.0));
    let fell: Vec<&String> = before
        .series
        .iter()
        .filter(|(series, value)| {
            series.contains("_total") && after.series.get(*series).is_none_or(|now| now < value)
        })
        .map(|(series, _)| series)
        .collect();
    assert!(fell.is_empty(), "{fell:?} fell");
}
