//! `tigertally config check`: everything that is wrong in one go, with place, key and what is allowed; and
//! never a secret.

use std::path::Path;
use std::process::{Command, Output};

/// Runs the program in a directory, with these variables and no others of ours.
fn run(directory: &Path, arguments: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tigertally"));
    command.args(arguments).current_dir(directory);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIGERTALLY_") {
            command.env_remove(name);
        }
    }
    command.envs(env.iter().copied()).output().unwrap()
}

/// What `config check` tells of this file.
fn check(text: &str, env: &[(&str, &str)]) -> (Option<i32>, String, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("t.toml"), text).unwrap();
    let output = run(directory.path(), &["config", "check", "t.toml"], env);
    let told = String::from_utf8(output.stderr).unwrap().lines().map(str::to_owned).collect();
    (output.status.code(), String::from_utf8(output.stdout).unwrap(), told)
}

#[test]
fn ten_mistakes_are_ten_messages_in_one_run() {
    let text = r#"listne = "127.0.0.1:8090"
[upstream]
url = "localhost:30000"
kind = "openai"
rid = true
[limits]
exchanges = -1
drain_timeout = 30
[guard]
profile = "strct"
[guard.rules]
unknown_tols = "note"
late = 5
[conversation]
ttl = "1 fortnight"
[budgets]
model_calls = 2
[tools.refund_order]
schema = "refund_order.json"
[routes]
pass = ["/v1/*"]
"#;
    let (code, shown, told) = check(text, &[]);
    assert_eq!((code, shown.as_str()), (Some(2), ""));
    let wanted = [
        "t.toml:1: listne: unknown key; did you mean \"listen\"?",
        "t.toml:3: upstream.url: must begin with http:// or https://",
        "t.toml:5: upstream.rid: only kind = \"sglang\" knows a rid; set false, or remove it",
        "t.toml:7: limits.exchanges: must be a whole number from 1",
        "t.toml:8: limits.drain_timeout: needs a unit; write \"30s\" for seconds, \"30ms\" for less",
        "t.toml:10: guard.profile: must be one of \"observe\", \"standard\", \"strict\", not \"strct\"; did you mean \"strict\"?",
        "t.toml:12: guard.rules.unknown_tols: unknown code; did you mean \"unknown_tool\"?",
        "t.toml:13: guard.rules.late: must be one of \"off\", \"note\", \"refuse\", not an integer",
        "t.toml:15: conversation.ttl: \"1 fortnight\" is no time; write it with a unit, such as \"30s\"",
        "t.toml:16: budgets: unknown section; did you mean \"budget\"?",
        "t.toml:19: tools.refund_order.schema: refund_order.json: cannot be read: No such file or directory (os error 2)",
        "t.toml:21: routes.pass: \"/v1/*\" must be one exact path, without a pattern or a query",
    ];
    assert_eq!(told, wanted);
}

#[test]
fn a_syntax_error_is_told_by_line_and_column_beside_what_else_is_wrong() {
    let (code, _, told) = check("[limits]\ndepth = 200\n[guard\nprofile = \"lax\"\n", &[]);
    assert_eq!(code, Some(2));
    assert_eq!(told[0], "t.toml:2: limits.depth: must be at most 128");
    assert!(told[1].starts_with("t.toml:3: not valid TOML: "), "{told:?}");
    assert!(told[1].contains("(column "), "{told:?}");
}

#[test]
fn mistakes_in_the_environment_and_in_flags_are_named_as_such() {
    let env = [
        ("TIGERTALLY_GUARD__PROFILE", "lax"),
        ("TIGERTALLY_GUARD_PROFILE", "strict"),
        ("TIGERTALLY_BUDGET__TOOL_CALLS", "-3"),
    ];
    let (code, _, told) = check("[limits]\nexchanges = 0\n", &env);
    assert_eq!(code, Some(2));
    assert_eq!(
        told,
        [
            "t.toml:2: limits.exchanges: must be a whole number from 1",
            "environment TIGERTALLY_BUDGET__TOOL_CALLS: budget.tool_calls: must be a whole number from 1",
            "environment TIGERTALLY_GUARD_PROFILE: guard_profile: unknown setting; did you mean TIGERTALLY_GUARD__PROFILE?",
            "environment TIGERTALLY_GUARD__PROFILE: guard.profile: must be one of \"observe\", \"standard\", \"strict\", not \"lax\"",
        ]
    );
    let directory = tempfile::tempdir().unwrap();
    let flags = ["serve", "--listen", "here", "--profile", "lax"];
    let output = run(directory.path(), &flags, &[]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "--listen: listen: is no address to listen on; write an IP address and a port, such as \"127.0.0.1:8090\"\n\
         --profile: guard.profile: must be one of \"observe\", \"standard\", \"strict\", not \"lax\"\n"
    );
}

#[test]
fn what_is_no_rule_is_told_with_what_to_set_instead() {
    let cannot = [
        ("held_too_large", "off", "limits.held_bytes"),
        ("held_too_large", "note", "limits.held_bytes"),
        ("schema_unusable", "refuse", "\"note\" or \"off\""),
        ("substituted", "refuse", "results.history"),
        ("unauthenticated", "off", "[auth]"),
        ("route_closed", "note", "routes.pass"),
        ("body_too_large", "off", "limits.body_bytes"),
        ("conversation_invalid", "note", "whose state"),
        ("generation_invalid", "off", "which task"),
        ("upstream_unreachable", "note", "failure"),
        ("upstream_invalid", "note", "failure"),
        ("upstream_timeout", "off", "failure"),
        ("store_unavailable", "off", "failure"),
        ("overloaded", "note", "failure"),
        ("draining", "off", "failure"),
    ];
    for (code, action, hint) in cannot {
        let (exit, _, told) = check(&format!("[guard.rules]\n{code} = \"{action}\"\n"), &[]);
        assert_eq!(exit, Some(2), "{code} {action}");
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with(&format!("t.toml:2: guard.rules.{code}: ")), "{told:?}");
        assert!(told[0].contains(hint), "{told:?}");
    }
}

/// Wherever a secret is put that is not its place, nothing repeats it.
#[test]
fn a_secret_in_the_wrong_place_is_never_echoed() {
    const SECRET: &str = "hunter2-s3cr3t";
    let directory = tempfile::tempdir().unwrap();
    let long = format!("{SECRET} {SECRET}");
    std::fs::write(directory.path().join("spaced"), &long).unwrap();
    let in_files = [
        "[upstream]\napi_key = \"SECRET\"",
        "[upstream]\napi_key = [\"SECRET\"]",
        "[upstream]\napi_key_file = \"SECRET\"",
        "[upstream]\napi_key_file = \"spaced\"",
        "[upstream]\nurl = \"http://me:SECRET@models\"",
        "[upstream]\nurl = \"http://models?key=SECRET\"",
        "[upstream]\nurl = \"SECRET\"",
        "[upstream]\napi_key = \"SECRET",
        "[upstream]\napi_key = SECRET",
        "[admin]\ntoken = \"SECRET\"",
        "[admin]\ntoken_file = \"SECRET\"",
        "[store]\nkind = \"redis\"\nurl = \"redis://:SECRET@\"",
        "[store]\nkind = \"redis://:SECRET@host:none\"",
        "[upstream]\napi_kee = \"SECRET\"",
    ];
    let told = |output: &Output| {
        let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
        let text = String::from_utf8(text).unwrap();
        assert!(!text.is_empty(), "something is told");
        assert!(!text.contains("s3cr3t"), "{text}");
    };
    for text in in_files {
        std::fs::write(directory.path().join("t.toml"), text.replace("SECRET", SECRET)).unwrap();
        for arguments in [&["config", "check", "t.toml"][..], &["serve", "--config", "t.toml"]] {
            let output = run(directory.path(), arguments, &[]);
            assert_eq!(output.status.code(), Some(2), "{text}");
            told(&output);
        }
    }
    let url = format!("http://me:{SECRET}@models");
    for env in [
        ("TIGERTALLY_UPSTREAM_URL", url.as_str()),
        ("TIGERTALLY_UPSTREAM__API_KEY", long.as_str()),
        ("TIGERTALLY_UPSTREAM_API_KEY", SECRET),
        ("TIGERTALLY_ADMIN__TOKENS", SECRET),
    ] {
        let output = run(directory.path(), &["serve"], &[env]);
        assert_eq!(output.status.code(), Some(2), "{env:?}");
        told(&output);
    }
    let flag = format!("--api-key={SECRET}");
    for flags in [&["serve", "--upstream", url.as_str()][..], &["serve", flag.as_str()]] {
        let output = run(directory.path(), flags, &[]);
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        told(&output);
    }
    // Where it belongs, it is used and not shown.
    std::fs::write(directory.path().join("key"), SECRET).unwrap();
    std::fs::write(directory.path().join("t.toml"), "[upstream]\napi_key_file = \"key\"").unwrap();
    let output = run(directory.path(), &["config", "check", "t.toml"], &[]);
    assert!(output.status.success());
    told(&output);
}
