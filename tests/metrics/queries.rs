//! Alerts and dashboard ask for what is there: every metric, label and value in their queries is one that a
//! real scrape has.

use super::scrape::Scrape;
use super::{TOOLS, guard};
use serde_json::Value;
use std::collections::BTreeSet;

/// Labels that Prometheus adds.
const ADDED: [&str; 3] = ["job", "instance", "le"];

#[tokio::test(flavor = "multi_thread")]
async fn every_query_asks_for_what_is_there() {
    let (_model, process) = guard(TOOLS).await;
    let scrape = Scrape::of(&process).await;
    let (alerts, panels) = (alerts(), panels());
    assert!(alerts.len() >= 8 && panels.len() >= 25, "the queries were found");
    let mut asked = BTreeSet::new();
    for query in alerts.iter().chain(&panels) {
        let found = check(query, &scrape);
        found.unwrap_or_else(|wrong| panic!("{wrong} in {query}")).into_iter().for_each(|family| {
            asked.insert(family);
        });
    }
    // What nobody looks at was measured in vain.
    let unseen: Vec<&String> = scrape
        .types
        .keys()
        .filter(|family| family.starts_with("tigertally_") && !asked.contains(*family))
        .collect();
    assert!(unseen.is_empty(), "no panel and no alert shows {unseen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_for_what_is_not_there_is_found() {
    let (_model, process) = guard(TOOLS).await;
    let scrape = Scrape::of(&process).await;
    for (query, wrong) in [
        ("rate(tigertally_exchange_total[5m])", "no metric tigertally_exchange_total"),
        ("tigertally_tasks_total{result=\"completed\"}", "no label result"),
        ("tigertally_tasks_total{outcome=\"complete\"}", "no value complete"),
        ("tigertally_tasks_total{outcome=~\"completed|abandoned\"}", "no value abandoned"),
        ("sum by (verdict) (tigertally_tasks_total)", "no label verdict"),
        ("tigertally_overhead_seconds", "no metric tigertally_overhead_seconds"),
    ] {
        assert_eq!(check(query, &scrape).unwrap_err(), wrong, "{query}");
    }
    let fine = "sum by (job, outcome) (rate(tigertally_tasks_total{outcome!=\"failed\",job=~\"$job\"}[5m])) > 0";
    check(fine, &scrape).unwrap();
}

/// The families that a query asks for, or what of it is not there.
fn check(query: &str, scrape: &Scrape) -> Result<Vec<String>, String> {
    let mut families = Vec::new();
    for (at, name) in names(query) {
        let Some((_, _)) = scrape.parts().find(|(there, _)| *there == name) else {
            return Err(format!("no metric {name}"));
        };
        let family = scrape.family(name);
        let labels = scrape.labels(&family);
        let selector =
            query[at + name.len()..].strip_prefix('{').and_then(|rest| rest.split_once('}'));
        for matcher in selector.iter().flat_map(|(inside, _)| inside.split(',')) {
            let split = matcher.find(['=', '!']).unwrap();
            let (label, value) =
                (matcher[..split].trim(), matcher[split..].split('"').nth(1).unwrap());
            if ADDED.contains(&label) {
                continue;
            }
            if !labels.contains(label) {
                return Err(format!("no label {label}"));
            }
            for value in value.split('|') {
                let there = scrape
                    .parts()
                    .any(|(of, labels)| of == name && labels.get(label) == Some(&value));
                if !there {
                    return Err(format!("no value {value}"));
                }
            }
        }
        families.push(family);
    }
    let known: BTreeSet<String> =
        families.iter().flat_map(|family| scrape.labels(family)).collect();
    for list in query.split("by (").skip(1).chain(query.split("on (").skip(1)) {
        for label in list.split(')').next().unwrap().split(',').map(str::trim) {
            if !ADDED.contains(&label) && !known.contains(label) {
                return Err(format!("no label {label}"));
            }
        }
    }
    Ok(families)
}

/// Every metric of ours or of the process that a query names, and where.
fn names(query: &str) -> Vec<(usize, &str)> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut at = 0;
    while at < query.len() {
        let rest = &query[at..];
        let length = rest.find(|c| !word(c)).unwrap_or(rest.len());
        let name = &rest[..length];
        if name.starts_with("tigertally_") || name.starts_with("process_") {
            found.push((at, name));
        }
        at += length.max(1);
    }
    found
}

pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Every `expr` of the alerts, on one line or as an indented block.
fn alerts() -> Vec<String> {
    let text = read("config/prometheus/alerts.yml");
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(value) = line.trim_start().strip_prefix("expr: ") else { continue };
        let indent = line.len() - line.trim_start().len();
        let block =
            lines[at + 1..].iter().take_while(|next| next.len() - next.trim_start().len() > indent);
        let block: Vec<&str> = block.copied().collect();
        found.push(if value == "|" { block.join("\n") } else { value.to_owned() });
    }
    found
}

/// Every query of the dashboard: its panels', and those that fill its choices.
fn panels() -> Vec<String> {
    let dashboard: Value =
        serde_json::from_str(&read("config/grafana/dashboards/tigertally.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array()).flatten();
    let mut found: Vec<String> =
        targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect();
    for choice in dashboard["templating"]["list"].as_array().unwrap() {
        found.push(choice["query"]["query"].as_str().unwrap().to_owned());
    }
    found
}

#[test]
fn every_panel_says_what_it_shows_and_stands_alone() {
    let dashboard: Value =
        serde_json::from_str(&read("config/grafana/dashboards/tigertally.json")).unwrap();
    let provisioned = read("config/grafana/provisioning/datasources/prometheus.yml");
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let place = &panel["gridPos"];
        let of = |key: &str| place[key].as_u64().unwrap();
        for (x, y) in (0..of("w")).flat_map(|x| (0..of("h")).map(move |y| (x, y))) {
            let (x, y) = (of("x") + x, of("y") + y);
            assert!(x < 24 && taken.insert((x, y)), "{} overlaps", panel["title"]);
        }
        if panel["type"] == "row" {
            continue;
        }
        assert!(panel["description"].as_str().unwrap().len() > 10, "{}", panel["title"]);
        let source = panel["datasource"]["uid"].as_str().unwrap();
        assert!(provisioned.contains(&format!("uid: {source}\n")), "{source}");
    }
}
