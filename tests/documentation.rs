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

#[test]
fn each_row_of_the_article_names_tests_that_exist() {
    let (page, tests) = (read("docs/article.md"), read("tests/article.rs"));
    let names: Vec<String> = tests
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("async fn "))
        .filter_map(|line| line.split('(').next())
        .map(str::to_owned)
        .collect();
    let quoted = quoted(&page);
    let begun: Vec<_> = quoted.iter().filter_map(|name| name.strip_suffix('…')).collect();
    assert!(begun.len() > 30, "the tables were found");
    for begin in &begun {
        assert!(names.iter().any(|name| name.starts_with(begin)), "no test begins with {begin}");
    }
    let rows =
        names.iter().filter(|name| ["row_", "matrix_"].iter().any(|begin| name.starts_with(begin)));
    for name in rows {
        assert!(begun.iter().any(|begin| name.starts_with(begin)), "{name} stands in no row");
    }
    for path in quoted.iter().filter(|name| name.starts_with("tests/")) {
        assert!(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path).exists(), "{path}");
    }
}

#[test]
fn the_clients_named_are_those_that_are_tested() {
    let page = read("docs/clients.md");
    let pinned = [
        "tests/clients/python/requirements.txt",
        "tests/clients/python/requirements-llama.txt",
        "tests/clients/node/package.json",
        "Cargo.lock",
    ]
    .map(read)
    .concat();
    let table = page.split("## What works").next().unwrap();
    let versions: Vec<&str> = table
        .split(|c: char| !c.is_ascii_digit() && c != '.')
        .filter(|word| word.matches('.').count() == 2)
        .filter(|word| word.starts_with(|c: char| c.is_ascii_digit()))
        .collect();
    assert!(versions.len() > 12, "the table was found");
    for version in versions {
        let forms = [format!("=={version}\n"), format!("\"{version}\"")];
        assert!(forms.iter().any(|form| pinned.contains(form)), "no client is pinned to {version}");
    }

    let snippet = page.split("```rust\n").nth(1).unwrap().split("```").next().unwrap();
    let program = read("tests/async_openai.rs");
    let unindented = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    assert!(
        unindented(&program).contains(unindented(snippet).trim()),
        "the Rust snippet is tested"
    );
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
