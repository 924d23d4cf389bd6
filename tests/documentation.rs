//! The pages hold what the code says: the codes are a contract, so the reference names every one of them and no
//! other; links lead somewhere, the book has every page, and the two READMEs tell the same.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tigertally::guard::fault::Code;

#[test]
fn the_reference_explains_every_code() {
    let explained = first_cells(&read("docs/codes.md"));
    let all: BTreeSet<String> = Code::ALL.into_iter().map(|code| code.as_str().into()).collect();
    assert_eq!(explained, all);
}

#[test]
fn the_page_of_error_bodies_shows_every_code() {
    let page = read("docs/error-bodies.md");
    let shown: BTreeSet<_> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let all: Vec<_> = Code::ALL.into_iter().map(|code| format!("`{}`", code.as_str())).collect();
    assert_eq!(shown, all.iter().map(String::as_str).collect());
}

#[test]
fn the_readmes_name_only_codes_that_exist_and_the_same_ones() {
    let named = |page: &str, table: &str| -> Vec<String> {
        let page = read(page);
        let table = page.split(table).nth(1).unwrap().split("\n##").next().unwrap();
        table.lines().filter_map(|line| line.split('|').nth(2)).flat_map(quoted).collect()
    };
    let english = named("README.md", "## What it stops");
    assert!(english.len() > 20, "the table was found");
    for code in &english {
        assert!(Code::parse(code).is_some(), "{code} is no code");
    }
    assert_eq!(named("docs/README.zh.md", "## 它拦什么"), english);
}

#[test]
fn both_readmes_have_the_same_parts_commands_and_metrics() {
    let shape = |page: &str| {
        let page = read(page);
        let heads = page.lines().filter(|line| line.starts_with("## ")).count();
        (heads, commands(&page), rows(&page))
    };
    let english = shape("README.md");
    assert!(english.0 > 8 && english.1.len() > 10 && english.2.len() > 15);
    assert_eq!(shape("docs/README.zh.md"), english);
}

#[test]
fn every_link_of_a_page_leads_somewhere() {
    let mut followed = 0;
    for page in pages() {
        let text = read(page.to_str().unwrap());
        for target in links(&text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = if file.is_empty() { page.clone() } else { beside(&page, file) };
            assert!(root().join(&path).exists(), "{}: {target} leads nowhere", page.display());
            let is_page = path.extension().is_some_and(|it| it == "md");
            if !anchor.is_empty() && is_page {
                let anchors = anchors(&read(path.to_str().unwrap()));
                assert!(anchors.contains(anchor), "{}: no heading for {target}", page.display());
            }
            followed += 1;
        }
    }
    assert!(followed > 100, "{followed} links were found");
}

#[test]
fn a_link_that_leads_nowhere_would_be_found() {
    let text = "# Two words, `x`\n[a](b.md#c) and ![d](e.svg), [f]: no\n```\n[g](h)\n```\n";
    assert_eq!(links(text), ["b.md#c", "e.svg"]);
    assert_eq!(anchors(text), BTreeSet::from(["two-words-x".to_owned()]));
    assert_eq!(beside(Path::new("docs/a.md"), "../config/b.toml"), Path::new("config/b.toml"));
}

#[test]
fn the_book_and_the_list_of_pages_have_every_page() {
    let here = pages().into_iter().filter(|page| page.parent() == Some(Path::new("docs")));
    let here: BTreeSet<PathBuf> = here.collect();
    for list in ["docs/SUMMARY.md", "docs/README.md"] {
        let own = [PathBuf::from("docs/SUMMARY.md"), PathBuf::from("docs/README.md")];
        let listed = links(&read(list)).into_iter().map(|target| beside(Path::new(list), &target));
        let listed: BTreeSet<_> = listed.collect();
        let left_out: Vec<_> =
            here.iter().filter(|page| !listed.contains(*page) && !own.contains(page)).collect();
        assert!(left_out.is_empty(), "{list} leaves out {left_out:?}");
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
        assert!(root().join(path).exists(), "{path}");
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

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// The pages of documentation, by their paths from the root.
fn pages() -> Vec<PathBuf> {
    let mut pages = ["README.md", "CHANGELOG.md", "SECURITY.md"].map(PathBuf::from).to_vec();
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder)).unwrap() {
            let path = folder.join(entry.unwrap().file_name());
            if root().join(&path).is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

/// A path that is written on a page, from the root.
fn beside(page: &Path, target: &str) -> PathBuf {
    let mut path = page.parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(target) {
        if part == ".." {
            path.pop();
        } else {
            path.push(part);
        }
    }
    path
}

/// The lines of a page that are no code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// Where the links and pictures of a page lead.
fn links(text: &str) -> Vec<String> {
    let targets = prose(text).flat_map(|line| line.split("](").skip(1));
    targets.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned()).collect()
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let heads = prose(text).filter(|line| line.starts_with('#'));
    let anchor = |head: &str| -> String {
        let words = head.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|it| it.is_alphanumeric() || matches!(it, ' ' | '-' | '_'));
        kept.map(|it| if it == ' ' { '-' } else { it }).collect()
    };
    heads.map(anchor).collect()
}

/// The commands and code of a page, line by line, without the remarks behind them.
fn commands(text: &str) -> Vec<String> {
    let mut fenced = false;
    let lines = text.lines().filter(|line| {
        let fence = line.starts_with("```");
        fenced ^= fence;
        fenced && !fence
    });
    lines.map(|line| line.split(" # ").next().unwrap_or_default().trim().to_owned()).collect()
}

/// What is in backticks in the first two cells of each row of a page's tables.
fn rows(text: &str) -> Vec<Vec<String>> {
    let rows = text.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    rows.map(|row| row.split('|').skip(1).take(2).flat_map(quoted).collect()).collect()
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
