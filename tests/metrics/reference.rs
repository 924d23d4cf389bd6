//! The reference lists what is there: every family with its type and labels, and no other.

use super::scrape::Scrape;
use super::{TOOLS, guard};
use std::collections::{BTreeMap, BTreeSet};

#[tokio::test(flavor = "multi_thread")]
async fn the_reference_lists_every_metric() {
    let (_model, process) = guard(TOOLS).await;
    let scrape = Scrape::of(&process).await;
    let there: BTreeMap<String, (String, BTreeSet<String>)> = scrape
        .types
        .iter()
        .map(|(family, kind)| (family.clone(), (kind.clone(), scrape.labels(family))))
        .collect();
    assert_eq!(listed(), there);
}

/// Name, type and labels of each row.
fn listed() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let text = super::queries::read("docs/metrics.md");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| "));
    rows.filter_map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let name = cells[0].trim_matches('`');
        let metric = name.starts_with("tigertally_") || name.starts_with("process_");
        let labels =
            cells.get(2)?.split_whitespace().map(|label| label.trim_matches('`').to_owned());
        metric.then(|| (name.to_owned(), (cells[1].to_owned(), labels.collect())))
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn help_and_type_stand_before_every_family_and_names_end_in_their_unit() {
    let (_model, process) = guard(TOOLS).await;
    let scrape = Scrape::of(&process).await;
    for (family, kind) in &scrape.types {
        let total = family.ends_with("_total");
        assert_eq!(total, kind == "counter", "{family}");
        if kind == "histogram" {
            assert!(family.ends_with("_seconds"), "{family}");
        }
    }
    for (name, _) in scrape.parts() {
        assert!(scrape.types.contains_key(&scrape.family(name)), "{name} has a type");
    }
}
