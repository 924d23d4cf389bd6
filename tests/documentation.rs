//! The codes are a contract: the reference names every one of them, and no other.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use tigertally::guard::fault::Code;

#[test]
fn the_reference_explains_every_code() {
    let explained = first_cells(&read("docs/codes.md"));
    let all: BTreeSet<String> = Code::ALL.into_iter().map(|code| code.as_str().into()).collect();
    assert_eq!(explained, all);
}

#[test]
fn the_readme_names_only_codes_that_exist() {
    let readme = read("README.md");
    let table = readme.split("## What it stops").nth(1).unwrap().split("\n##").next().unwrap();
    let named = table.lines().filter_map(|line| line.split('|').nth(2)).flat_map(quoted);
    let named: Vec<String> = named.collect();
    assert!(named.len() > 20, "the table was found");
    for code in named {
        assert!(Code::parse(&code).is_some(), "{code} is no code");
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// The names in backticks in the cells that hold codes: the first of a row, or the second behind a status.
fn first_cells(text: &str) -> BTreeSet<String> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| "));
    rows.flat_map(|row| {
        let mut cells = row.split(" | ");
        let first = cells.next().unwrap_or_default();
        let is_status = first.parse::<u16>().is_ok();
        quoted(if is_status { cells.next().unwrap_or_default() } else { first })
    })
    .collect()
}

fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}
