//! The document of `--json`: it fits the schema in docs/check.md, holds no content, and needs no memory.

use crate::{Said, check};
use serde_json::{Value, json};
use std::io::Write as _;
use std::process::{Command, Stdio};

/// The schema that the page gives.
fn schema() -> Value {
    let page =
        std::fs::read_to_string(format!("{}/docs/check.md", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let blocks = page.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next());
    let schemas = blocks.filter_map(|block| serde_json::from_str::<Value>(block).ok());
    schemas.into_iter().find(|value| value["$schema"].is_string()).expect("the page has the schema")
}

fn inputs() -> Vec<String> {
    let cases = ["request", "response", "stream"].map(|direction| {
        std::fs::read_to_string(format!(
            "{}/tests/cases/{direction}.jsonl",
            env!("CARGO_MANIFEST_DIR")
        ))
        .unwrap()
    });
    let mut inputs = Vec::new();
    for line in cases.iter().flat_map(|text| text.lines()) {
        let input = serde_json::from_str::<Value>(line).unwrap()["input"].clone();
        inputs.push(match input.as_array() {
            Some(events) => events
                .iter()
                .map(|event| format!("data: {}\n\n", event.as_str().unwrap_or("{}")))
                .collect(),
            None => input.to_string(),
        });
    }
    let odd = [
        "",
        "hello",
        "{\"a\":1}\n{\"b\":\n{\"messages\":[]}\n",
        "{\"messages\":[",
        "\u{feff}{\"messages\":[]}",
    ];
    inputs.extend(odd.map(str::to_owned));
    inputs
}

#[test]
fn it_fits_its_schema() {
    let schema = jsonschema::validator_for(&schema()).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for input in inputs() {
        let document = check(&["--json"], input.as_bytes()).document();
        let wrong: Vec<_> = schema.iter_errors(&document).map(|error| error.to_string()).collect();
        assert!(wrong.is_empty(), "{wrong:?}\n{document:#}");
        seen.insert(document["verdict"].as_str().unwrap().to_owned());
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["clean", "faults", "unusable"]);
    assert!(!schema.is_valid(&json!({"version": 1})), "a schema that takes anything shows nothing");
}

#[test]
fn no_content_argument_or_key_is_told() {
    const SECRET: &str = "s3cret-5f1c";
    let quoted = json!(SECRET).to_string();
    let mut seen = 0;
    for input in inputs() {
        // Every text that an exchange holds beside ids, names and words of the protocol.
        for member in ["content", "input", "reasoning_content"] {
            let pattern = format!("\"{member}\":\"");
            let Some(at) = input.find(&pattern) else { continue };
            let begin = at + pattern.len();
            let Some(end) = input[begin..].find('"').map(|end| begin + end) else { continue };
            let marked = format!("{}{SECRET}{}", &input[..begin], &input[end..]);
            seen += usize::from(silent(&check(&[], marked.as_bytes()), SECRET));
        }
        for escaped in ["\\\"A1\\\"", "\\\\\\\"A1\\\\\\\""] {
            let marked = input.replace(escaped, &escaped.replace("A1", SECRET));
            seen += usize::from(marked != input && silent(&check(&[], marked.as_bytes()), SECRET));
        }
        let marked =
            format!("{{\"authorization\":{quoted},{}", input.strip_prefix('{').unwrap_or("}"));
        silent(&check(&["--json"], marked.as_bytes()), SECRET);
    }
    assert!(seen > 60, "only {seen} inputs were marked");
}

fn silent(said: &Said, secret: &str) -> bool {
    assert!(!said.out.contains(secret), "{}", said.out);
    true
}

/// More than the program may hold, fed through a pipe: it must not keep what it has judged.
#[test]
fn a_long_log_needs_no_memory() {
    const LINES: usize = 2_000;
    let filler = "x".repeat(16_000);
    let line = |result: &str| {
        let call =
            json!({"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        let messages = json!([{"role": "user", "content": filler}, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": result, "content": ""}]);
        format!("{}\n", json!({"request": {"messages": messages}}))
    };
    let (sound, faulty) = (line("a"), line("b"));
    let bytes = LINES * sound.len();
    let mut child = Command::new(env!("CARGO_BIN_EXE_tigertally"))
        .args(["check", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stdin, id) = (child.stdin.take().unwrap(), child.id());
    #[expect(clippy::disallowed_methods, reason = "joined below")]
    let writer = std::thread::spawn(move || {
        for number in 0..LINES {
            let line = if number % 100 == 99 { &faulty } else { &sound };
            stdin.write_all(line.as_bytes()).unwrap();
        }
        // All but the last lines are judged now.
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse::<usize>().unwrap()
    });
    let output = child.wait_with_output().unwrap();
    let peak = writer.join().unwrap();
    let said = Said {
        out: String::from_utf8(output.stdout).unwrap(),
        code: output.status.code().unwrap(),
    };
    let document = said.document();
    assert_eq!(said.code, 1);
    assert_eq!(document["summary"]["exchanges"], LINES);
    assert_eq!(document["summary"]["faulty"], LINES / 100);
    assert_eq!(document["exchanges"][0]["line"], 100);
    assert!(bytes > 32_000_000, "the log is long");
    assert!(peak < 26 << 10, "{peak} KiB at its peak");
}
