//! Secrets of the operator: in a configuration that is wrong, in what is printed of a right one, and at a store that
//! fails.

use super::{MARK, Upstream, clean, until};
use crate::gateway::Gateway;
use crate::lines::{question, text};
use crate::server::{Server, cli};
use std::process::{Command, Output};

/// Files that cannot be taken. Each has a mark.
const WRONG: [&str; 14] = [
    "[upstream]\napi_key = \"s3cr3t",
    "[upstream]\napi_key = s3cr3t",
    "[upstream]\napi_key = [\"s3cr3t\"]",
    "[upstream]\napi_key = { value = \"s3cr3t\" }",
    "[upstream]\napi_key = \"s3cr3t\\nx\"",
    "[upstream]\nurl = \"http://user:s3cr3t@127.0.0.1:1\"",
    "[upstream]\nurl = \"http://127.0.0.1:1/?key=s3cr3t\"",
    "[upstream]\nurl = \"redis://:s3cr3t@127.0.0.1:1\"",
    "[admin]\ntoken = 7 # s3cr3t",
    "[admin]\ntoken = [\"s3cr3t\"]",
    "[store]\nkind = \"redis\"\nurl = \"http://:s3cr3t@127.0.0.1:1\"",
    "[store]\nkind = \"redis\"\nurl = \"redis://:s3cr3t@127.0.0.1:port\"",
    "[store]\nkind = \"redis\"\nurl = \"redis://127.0.0.1:1?sentinel_password=s3cr3t&more=s3cr3t\"",
    "[telemetry]\notlp_endpoint = \"http://user:s3cr3t@127.0.0.1:4318\"",
];

fn run(line: &[&str], env: &[(&str, &str)]) -> (Output, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tigertally"));
    command.args(line).env("RUST_LOG", "trace").envs(env.iter().copied());
    let output = command.output().unwrap();
    let said = [output.stdout.as_slice(), &output.stderr].concat();
    (output, String::from_utf8(said).unwrap())
}

#[test]
fn a_wrong_configuration_is_told_without_its_secrets() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("tigertally.toml");
    let name = file.to_str().unwrap();
    for text in WRONG {
        std::fs::write(&file, text).unwrap();
        for line in [["config", "check", name], ["serve", "--config", name]] {
            let (output, said) = run(&line, &[]);
            assert!(!output.status.success(), "{text}\n{said}");
            assert!(said.contains("tigertally.toml:"), "it names the place: {said}");
            clean(text, &said, &[MARK]);
        }
    }
    std::fs::write(&file, "[store]\nkind = \"redis\"\n").unwrap();
    for (variable, value) in [
        ("TIGERTALLY_STORE__URL", "rediss://:s3cr3t@"),
        ("TIGERTALLY_UPSTREAM__URL", "http://user:s3cr3t@h"),
        ("TIGERTALLY_UPSTREAM__API_KEY", "s3cr3t\nx"),
        ("TIGERTALLY_ADMIN__TOKEN", "s3cr3t \u{7f}"),
        ("TIGERTALLY_TELEMETRY__OTLP_ENDPOINT", "http://user:s3cr3t@h"),
    ] {
        let (output, said) = run(&["config", "check", name], &[(variable, value)]);
        assert!(!output.status.success() && said.contains(variable), "{variable}\n{said}");
        clean(variable, &said, &[MARK]);
    }
}

#[test]
fn what_a_right_one_resolves_to_is_printed_without_them() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("tigertally.toml");
    std::fs::write(&file, "[store]\nkind = \"redis\"\n").unwrap();
    let url = "redis+sentinel://user:s3cr3t@127.0.0.1:1/main?sentinel_password=s3cr3t";
    let env = [
        ("TIGERTALLY_UPSTREAM__API_KEY", "s3cr3t"),
        ("TIGERTALLY_ADMIN__TOKEN", "s3cr3t-of-operators"),
        ("TIGERTALLY_STORE__URL", url),
    ];
    let (output, said) = run(&["config", "check", file.to_str().unwrap()], &env);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("sentinel"), "the store is shown: {said}");
    clean("config check", &said, &[MARK]);
}

/// A password that the server does not take, and one that it takes until the server is gone.
#[tokio::test]
async fn a_store_that_fails_is_told_without_its_password() {
    let server = Server::start(&[]);
    let set = cli(&server.port.to_string(), &["config", "set", "requirepass", "s3cr3t-password"]);
    assert!(set.status.success());
    let upstream = Upstream::start().await;
    upstream.reply_with(text());
    let urls = ["s3cr3t-wrong", "s3cr3t-password"]
        .map(|password| format!("redis://:{password}@127.0.0.1:{}", server.port));
    let store = |url| {
        [("RUST_LOG", "trace"), ("TIGERTALLY_STORE__KIND", "redis"), ("TIGERTALLY_STORE__URL", url)]
    };
    let (output, said) = run(&["serve", "--listen", "127.0.0.1:0"], &store(&urls[0]));
    assert!(!output.status.success() && said.contains("refuses the login"), "{said}");
    clean("a wrong password", &said, &[MARK]);

    let gateway = Gateway::start(&upstream, &store(&urls[1])).await;
    let headers = [("x-conversation-id", "c"), ("authorization", "Bearer s3cr3t-key")];
    let ask = async || gateway.chat(&question("s3cr3t-argument"), &headers).await;
    assert_eq!(ask().await.status, 200);
    drop(server);
    until("the store is not missed", async || {
        let answer = ask().await;
        clean("an answer", &answer.to_string(), &[MARK]);
        answer.status == 503
    })
    .await;
    gateway.counts("store_errors_total").await;
    let log = gateway.log();
    assert!(log.contains("TRACE"));
    clean("log", &log, &[MARK]);
    clean("readiness", &gateway.admin("/readyz").await, &[MARK]);
    clean("metrics", &gateway.admin("/metrics").await, &[MARK]);
}
