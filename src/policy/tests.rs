//! The configuration as an operator meets it: what is refused, with which words, and what wins.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::guard::fault::Code;
use crate::guard::verdict::Action;
use crate::ledger::event::Millis;
use crate::ledger::rules::AtEnd;
use std::path::Path;

/// Loads a text as `t.toml` in a directory of its own.
fn load_text(text: &str) -> Result<Policy, Vec<String>> {
    load_with(text, &[], FlagOverrides::default())
}

/// Likewise, with an environment and flags. Messages lose the directory.
fn load_with(
    text: &str,
    env: &[(&str, &str)],
    flags: FlagOverrides,
) -> Result<Policy, Vec<String>> {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("not.json"), "{\"type\":").unwrap();
    std::fs::write(directory.path().join("list.json"), "[]").unwrap();
    std::fs::write(directory.path().join("schema.json"), "{\"type\":\"object\"}").unwrap();
    std::fs::write(directory.path().join("key"), "sk-very-secret\n").unwrap();
    std::fs::write(directory.path().join("empty"), "\n").unwrap();
    let file = directory.path().join("t.toml");
    std::fs::write(&file, text).unwrap();
    let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let prefix = format!("{}/", directory.path().display());
    load(Sources { file: Some(file), env, flags })
        .map_err(|problems| problems.iter().map(|it| it.to_string().replace(&prefix, "")).collect())
}

fn problems(text: &str) -> Vec<String> {
    load_text(text).err().unwrap_or_default()
}

#[test]
fn nothing_configured_is_the_default() {
    let policy = load(Sources::default()).unwrap();
    assert_eq!(policy.show(), Policy::default().show());
    assert_eq!(format!("{policy:?}"), format!("{:?}", Policy::default()));
    assert_eq!(policy.listen.to_string(), "127.0.0.1:8090");
    assert_eq!(policy.admin.listen.to_string(), "127.0.0.1:9464");
    assert_eq!(policy.upstream.url.to_string(), "http://127.0.0.1:30000/");
    assert_eq!(policy.limits.body_bytes, 67_108_864);
    assert_eq!(policy.limits.held_bytes, 8_388_608);
    assert_eq!(policy.ledger.ttl, Millis(86_400_000));
    assert_eq!(policy.ledger.history, AtEnd::Substitute);
    assert!(policy.upstream.rid && !policy.observe && !policy.insecure);
}

/// One wrong text each, and the words for it.
const PROBLEMS: &[(&str, &str)] = &[
    // Unknown keys and sections.
    ("listne = \"127.0.0.1:1\"", "t.toml:1: listne: unknown key; did you mean \"listen\"?"),
    (
        "\n[gaurd]\nprofile = \"strict\"",
        "t.toml:2: gaurd: unknown section; did you mean \"guard\"?",
    ),
    (
        "[guard]\nprofil = \"strict\"",
        "t.toml:2: guard.profil: unknown key; did you mean \"profile\"?",
    ),
    ("[routes]\nopen = []", "t.toml:2: routes.open: unknown key; known here: pass"),
    (
        "[tools.refund]\nefect = \"write\"",
        "t.toml:2: tools.refund.efect: unknown key; did you mean \"effect\"?",
    ),
    // Wrong kinds of values.
    ("listen = 8090", "t.toml:1: listen: must be a string, not an integer"),
    ("guard = \"strict\"", "t.toml:1: guard: must be a table, not a string"),
    ("[tools]\nallw = [\"a\"]", "t.toml:2: tools.allw: must be a table, not a list"),
    (
        "[tools]\nallow = \"a\"",
        "t.toml:2: tools.allow: must be a list of strings such as [\"a\", \"b\"], not a string",
    ),
    ("[tools]\nallow = [\n\"a\",\n2]", "t.toml:4: tools.allow: must be a string, not an integer"),
    (
        "[conversation]\nrequired = \"yes\"",
        "t.toml:2: conversation.required: must be true or false, not a string",
    ),
    ("[limits]\nconnections = 0", "t.toml:2: limits.connections: must be a whole number from 1"),
    ("[limits]\nconnections = -4", "t.toml:2: limits.connections: must be a whole number from 1"),
    (
        "[limits]\nexchanges = 1.5",
        "t.toml:2: limits.exchanges: must be a whole number from 1, not a float",
    ),
    ("[limits]\nbody_bytes = 0", "t.toml:2: limits.body_bytes: must be more than 0 bytes"),
    (
        "[limits]\nbody_bytes = \"64 MiBs\"",
        "t.toml:2: limits.body_bytes: \"64 MiBs\" is no size; write bytes, or a unit, such as \"64 MiB\"",
    ),
    ("[limits]\ndepth = 200", "t.toml:2: limits.depth: must be at most 128"),
    (
        "[upstream]\nidle_timeout = 30",
        "t.toml:2: upstream.idle_timeout: needs a unit; write \"30s\" for seconds, \"30ms\" for less",
    ),
    ("[upstream]\nidle_timeout = \"0s\"", "t.toml:2: upstream.idle_timeout: must be longer than 0"),
    (
        "[conversation]\nttl = \"a day\"",
        "t.toml:2: conversation.ttl: \"a day\" is no time; write it with a unit, such as \"30s\"",
    ),
    // Addresses.
    (
        "listen = \"localhost:80\"",
        "t.toml:1: listen: is no address to listen on; write \"127.0.0.1:80\"",
    ),
    (
        "listen = \":80\"",
        "t.toml:1: listen: is no address to listen on; write \"127.0.0.1:80\", or \"0.0.0.0:80\" for every interface",
    ),
    (
        "listen = \"0.0.0.0:8090\"",
        "t.toml:1: listen: others can reach this address, and auth.mode = \"none\" asks nobody who they are; set auth.mode, listen on 127.0.0.1, or set insecure = true (--insecure) if the network keeps others out",
    ),
    (
        "[admin]\nlisten = \"0.0.0.0:1\"",
        "t.toml:2: admin.listen: others can reach this address; set admin.token_file, or listen on 127.0.0.1",
    ),
    (
        "[admin]\nlisten = \"127.0.0.1:8090\"",
        "t.toml:2: admin.listen: is the client port's address too; give it its own",
    ),
    (
        "listen = \"127.0.0.1:30000\"",
        "t.toml:1: listen: is the upstream's address too: requests would go in a circle",
    ),
    // The upstream and secrets.
    (
        "[upstream]\nurl = \"localhost\"",
        "t.toml:2: upstream.url: must begin with http:// or https://",
    ),
    (
        "[upstream]\nkind = \"openai\"\nrid = true",
        "t.toml:3: upstream.rid: only kind = \"sglang\" knows a rid; set false, or remove it",
    ),
    (
        "[upstream]\nkind = \"sglan\"",
        "t.toml:2: upstream.kind: must be one of \"sglang\", \"openai\", not \"sglan\"; did you mean \"sglang\"?",
    ),
    (
        "[upstream]\napi_key = \"sk-very-secret\"",
        "t.toml:2: upstream.api_key: a secret does not belong in this file; name one that holds it in api_key_file",
    ),
    (
        "[upstream]\napi_key_file = \"sk-very-secret\"",
        "t.toml:2: upstream.api_key_file: cannot be read: No such file or directory (os error 2); it must name a file that holds the secret",
    ),
    (
        "[upstream]\napi_key_file = \"empty\"",
        "t.toml:2: upstream.api_key_file: must hold one secret: a line of visible ASCII without spaces",
    ),
    // The guard.
    (
        "[guard]\nprofile = \"strct\"",
        "t.toml:2: guard.profile: must be one of \"observe\", \"standard\", \"strict\", not \"strct\"; did you mean \"strict\"?",
    ),
    (
        "[guard.rules]\nunknown_tols = \"note\"",
        "t.toml:2: guard.rules.unknown_tols: unknown code; did you mean \"unknown_tool\"?",
    ),
    (
        "[guard.rules]\nfoo = \"note\"",
        "t.toml:2: guard.rules.foo: unknown code; docs/codes.md lists them all",
    ),
    (
        "[guard.rules]\nunknown_tool = \"warn\"",
        "t.toml:2: guard.rules.unknown_tool: must be one of \"off\", \"note\", \"refuse\", not \"warn\"",
    ),
    (
        "[guard.rules]\nunknown_tool = false",
        "t.toml:2: guard.rules.unknown_tool: must be one of \"off\", \"note\", \"refuse\", not a boolean",
    ),
    (
        "[guard.rules]\nbody_too_large = \"off\"",
        "t.toml:2: guard.rules.body_too_large: is no rule; the bound is limits.body_bytes",
    ),
    (
        "[guard.rules]\nunauthenticated = \"note\"",
        "t.toml:2: guard.rules.unauthenticated: is no rule; who may come in is set in [auth]",
    ),
    (
        "[guard.rules]\nupstream_timeout = \"note\"",
        "t.toml:2: guard.rules.upstream_timeout: is a failure, not a rule; there is nothing to let through",
    ),
    (
        "[guard.rules]\nsubstituted = \"refuse\"",
        "t.toml:2: guard.rules.substituted: set results.history = \"refuse\" to refuse in place of substituting",
    ),
    (
        "[guard.rules]\nheld_too_large = \"note\"",
        "t.toml:2: guard.rules.held_too_large: what is too large to hold cannot be judged, and is never let out unjudged; raise limits.held_bytes",
    ),
    // Conversations, generations, notices, results, budgets.
    (
        "[conversation]\nheaders = [\"x id\"]",
        "t.toml:2: conversation.headers: \"x id\" is no header name; write letters, digits and dashes, such as \"x-session\"",
    ),
    (
        "[conversation]\nheaders = [\"x-a\", \"X-A\"]",
        "t.toml:2: conversation.headers: names \"x-a\" twice",
    ),
    (
        "[conversation]\nheaders = []",
        "t.toml:2: conversation.headers: must not be empty; remove the key for the default",
    ),
    (
        "[conversation]\nheaders = [\"Authorization\"]",
        "t.toml:2: conversation.headers: \"authorization\" has a meaning of its own; choose another header",
    ),
    (
        "[conversation]\nheaders = [\"x-generation\"]",
        "t.toml:2: conversation.headers: is the generation's header too; the two must differ",
    ),
    (
        "[generation]\nheader = \"\"",
        "t.toml:2: generation.header: \"\" is no header name; write letters, digits and dashes, such as \"x-session\"",
    ),
    ("[notices]\ntimeout = \" \"", "t.toml:2: notices.timeout: must not be empty"),
    (
        "[notices]\nalso = [\"cancelled\", \"\"]",
        "t.toml:2: notices.also: holds an empty text; every empty result would count as a closing",
    ),
    (
        "[results]\nlate = \"allow\"",
        "t.toml:2: results.late: must be one of \"refuse\", \"substitute\", not \"allow\"",
    ),
    ("[budget]\nmodel_calls = 0", "t.toml:2: budget.model_calls: must be a whole number from 1"),
    // Tools.
    ("[tools]\nmax_calls = 0", "t.toml:2: tools.max_calls: must be a whole number from 1"),
    ("[tools]\nallow = [\"a\", \"a\"]", "t.toml:2: tools.allow: names \"a\" twice"),
    ("[tools.a]\necho = [\"\"]", "t.toml:2: tools.a.echo: holds an empty name"),
    (
        "[tools.a]\nschema = \"not.json\"",
        "t.toml:2: tools.a.schema: not.json: is not JSON (line 1, column 8)",
    ),
    (
        "[tools.a]\nschema = \"list.json\"",
        "t.toml:2: tools.a.schema: list.json: holds JSON, but no JSON Schema; it must be an object",
    ),
    (
        "[tools.a]\nschema = \"gone.json\"",
        "t.toml:2: tools.a.schema: gone.json: cannot be read: No such file or directory (os error 2)",
    ),
    // Routes.
    (
        "[routes]\npass = [\"v1/embeddings\"]",
        "t.toml:2: routes.pass: \"v1/embeddings\" must begin with \"/\"",
    ),
    (
        "[routes]\npass = [\"/v1/*\"]",
        "t.toml:2: routes.pass: \"/v1/*\" must be one exact path, without a pattern or a query",
    ),
    (
        "[routes]\npass = [\"/v1/chat/completions\"]",
        "t.toml:2: routes.pass: \"/v1/chat/completions\" is a route of this proxy; it cannot be passed by",
    ),
    (
        "[routes]\npass = [\"/v1/chat/completions/\"]",
        "t.toml:2: routes.pass: \"/v1/chat/completions/\" is a route of this proxy; it cannot be passed by",
    ),
    (
        "[routes]\npass = [\"//v1/chat/completions\"]",
        "t.toml:2: routes.pass: \"//v1/chat/completions\" must be spelled plainly: no \"%\", \"\\\", \";\", \"//\", or \".\" and \"..\" as a part",
    ),
    (
        "[generation]\nheader = \"X-Conversation-Id\"",
        "t.toml:2: generation.header: is the conversation's header too; the two must differ",
    ),
    // What is not built.
    ("[store]\nkind = \"redis\"", "t.toml:2: store.kind: \"redis\" needs store.url"),
    (
        "[store]\nkind = \"sqlite\"",
        "t.toml:2: store.kind: is unknown; \"embedded\", \"memory\" and \"redis\" are available",
    ),
    (
        "[store]\non_error = \"ask\"",
        "t.toml:2: store.on_error: must be one of \"closed\", \"open\", not \"ask\"",
    ),
    (
        "[store]\nkind = \"redis\"\nurl = \"redis://:sk-very-secret@\"",
        "t.toml:3: store.url: must name its hosts as host:port, divided by commas",
    ),
    ("[store]\nprefix = \" \"", "t.toml:2: store.prefix: must not be empty"),
    ("[store]\npath = \" \"", "t.toml:2: store.path: is empty"),
    (
        "[store]\ndurability = \"disk\"",
        "t.toml:2: store.durability: must be one of \"process\", \"machine\", not \"disk\"",
    ),
    ("[store]\nkind = \"memory:x\"", "t.toml:2: store.kind: takes nothing behind \"memory:\""),
    (
        "[telemetry]\notlp_endpoint = \"x\"",
        "t.toml:2: telemetry.otlp_endpoint: must begin with http:// or https://",
    ),
    (
        "[telemetry]\notlp_endpoint = \"http://me:secret@c.example\"",
        "t.toml:2: telemetry.otlp_endpoint: must be a base URL, without credentials, a query or a fragment",
    ),
    (
        "[telemetry]\nlog_format = \"xml\"",
        "t.toml:2: telemetry.log_format: must be one of \"json\", \"pretty\", not \"xml\"",
    ),
];

#[test]
fn each_problem_names_line_key_and_way_out() {
    for (text, told) in PROBLEMS {
        assert_eq!(problems(text), [*told], "{text}");
    }
}

#[test]
fn a_file_that_is_no_toml_at_all_is_not_told_line_by_line() {
    let told = problems(&":\n".repeat(5_000));
    assert!((2..100).contains(&told.len()), "{} problems", told.len());
    let last = "further places: is this the right file?";
    assert!(told.last().is_some_and(|it| it.ends_with(last)), "{:?}", told.last());
}

#[test]
fn all_problems_are_told_at_once_in_the_order_of_the_lines() {
    let text = "listne = 1\n[guard]\nprofile = \"x\"\n[guard.rules]\nfoo = \"off\"\n[limits]\nbody_bytes = \"x\"\n";
    let told = problems(text);
    let places: Vec<&str> = told.iter().filter_map(|it| it.split(": ").nth(1)).collect();
    assert_eq!(places, ["listne", "guard.profile", "guard.rules.foo", "limits.body_bytes"]);
}

#[test]
fn broken_toml_is_told_by_its_line_and_never_quoted() {
    let told =
        problems("listen = \"127.0.0.1:1\"\n[upstream]\nurl = \"http://me:sk-very-secret@a\n");
    assert!(told.iter().any(|it| it.starts_with("t.toml:3: not valid TOML: ")), "{told:?}");
    assert!(!told.join("\n").contains("sk-very-secret"), "{told:?}");
    let twice = problems("listen = \"127.0.0.1:1\"\nlisten = \"127.0.0.1:2\"\n");
    assert_eq!(twice, ["t.toml:2: not valid TOML: duplicate key (column 1)"]);
}

#[test]
fn a_file_that_is_not_there_is_told() {
    let file = Some(PathBuf::from("/nonexistent/t.toml"));
    let told = load(Sources { file, ..Sources::default() }).unwrap_err().to_string();
    assert_eq!(
        told,
        "/nonexistent/t.toml: cannot be read: No such file or directory (os error 2); \
         config/example.toml is one to begin with, and none is needed"
    );
}

#[test]
fn flags_beat_the_environment_which_beats_the_file() {
    let text = "listen = \"127.0.0.1:1\"\n[guard]\nprofile = \"observe\"\n[upstream]\nurl = \"http://file\"\n";
    let env = [
        ("TIGERTALLY_LISTEN", "127.0.0.1:2"),
        ("TIGERTALLY_UPSTREAM_URL", "http://env"),
        ("TIGERTALLY_GUARD__PROFILE", "strict"),
        ("PATH", "/bin"),
    ];
    let file = load_text(text).unwrap();
    assert_eq!(file.listen.port(), 1);
    assert_eq!(file.profile, Profile::Observe);
    assert_eq!(file.upstream.url.host(), Some("file"));
    let with_env = load_with(text, &env, FlagOverrides::default()).unwrap();
    assert_eq!(with_env.listen.port(), 2);
    assert_eq!(with_env.profile, Profile::Strict);
    assert_eq!(with_env.upstream.url.host(), Some("env"));
    let flags = FlagOverrides {
        upstream: Some("http://flag/v1".to_owned()),
        listen: Some("0.0.0.0:3".to_owned()),
        admin_listen: Some("127.0.0.1:4".to_owned()),
        store: Some("memory:".to_owned()),
        profile: Some("standard".to_owned()),
        insecure: true,
    };
    let with_flags = load_with(text, &env, flags).unwrap();
    assert_eq!(with_flags.listen.to_string(), "0.0.0.0:3");
    assert_eq!(with_flags.admin.listen.port(), 4);
    assert_eq!(with_flags.profile, Profile::Standard);
    assert_eq!(with_flags.upstream.url.to_string(), "http://flag/");
    assert!(with_flags.insecure);
    assert_eq!(with_flags.store, StoreKind::Memory);
}

#[test]
fn a_store_is_named_by_its_url() {
    let text = "[store]\npath = \"from-file\"\ndurability = \"machine\"\n";
    let store = |flag: Option<&str>| {
        let flags = FlagOverrides { store: flag.map(str::to_owned), ..FlagOverrides::default() };
        load_with(text, &[], flags).unwrap().store.to_string()
    };
    assert_eq!(store(None), "embedded:from-file (machine)");
    assert_eq!(store(Some("embedded:")), "embedded:from-file (machine)");
    assert_eq!(store(Some("embedded:/a/b")), "embedded:/a/b (machine)");
    assert_eq!(store(Some("memory:")), "memory");
}

#[test]
fn the_environment_reaches_every_kind_of_key() {
    let text = "[tools.refund-Order]\neffect = \"read\"\n";
    let env = [
        ("TIGERTALLY_LIMITS__BODY_BYTES", "65536"),
        ("TIGERTALLY_LIMITS__CONNECTIONS", "7"),
        ("TIGERTALLY_CONVERSATION__TTL", "90s"),
        ("TIGERTALLY_CONVERSATION__REQUIRED", "true"),
        ("TIGERTALLY_TOOLS__ALLOW", "refund-Order, get_order_status"),
        ("TIGERTALLY_TOOLS__REFUND_ORDER__EFFECT", "write"),
        ("TIGERTALLY_TOOLS__GET_ORDER_STATUS__DEADLINE", "30s"),
        ("TIGERTALLY_GUARD__RULES__UNKNOWN_TOOL", "note"),
        ("TIGERTALLY_NOTICES__ALSO", "[\"a, b\", \"c\"]"),
        ("TIGERTALLY_UPSTREAM__API_KEY", "sk-very-secret"),
        // The command line's own, and what Kubernetes sets.
        ("TIGERTALLY_CONFIG", "t.toml"),
        ("TIGERTALLY_SERVICE_HOST", "10.0.0.1"),
        ("TIGERTALLY_PORT_8090_TCP", "tcp://10.0.0.1:8090"),
    ];
    let policy = load_with(text, &env, FlagOverrides::default()).unwrap();
    assert_eq!(policy.limits.body_bytes, 65_536);
    assert_eq!(policy.limits.connections, 7);
    assert_eq!(policy.ledger.ttl, Millis(90_000));
    assert!(policy.conversation_required);
    assert_eq!(policy.tools.allow.unwrap(), ["refund-Order", "get_order_status"]);
    assert!(policy.tools.each["refund-Order"].write);
    assert_eq!(policy.tools.each["get_order_status"].deadline, Some(Duration::from_secs(30)));
    assert_eq!(policy.rules.action(Code::UnknownTool), Action::Note);
    assert_eq!(policy.notices.also, ["a, b", "c"]);
    assert_eq!(policy.upstream.api_key.unwrap().reveal(), "sk-very-secret");
}

#[test]
fn problems_in_the_environment_and_in_flags_name_them() {
    for (name, value, told) in [
        (
            "TIGERTALLY_GUARD_PROFILE",
            "strict",
            "guard_profile: unknown setting; did you mean TIGERTALLY_GUARD__PROFILE?",
        ),
        (
            "TIGERTALLY_GAURD__PROFILE",
            "strict",
            "gaurd: unknown setting; did you mean TIGERTALLY_GUARD__PROFILE?",
        ),
        (
            "TIGERTALLY_FRESHNESS",
            "1",
            "freshness: unknown setting; variables are TIGERTALLY_<SECTION>__<KEY>",
        ),
        ("TIGERTALLY_LISTEN", "", "is empty; unset it, or give it a value"),
        ("TIGERTALLY_LISTEN__PORT", "1", "listen: must be a string, not a table"),
        (
            "TIGERTALLY_BUDGET__MODEL_CALLS",
            "two",
            "budget.model_calls: must be a whole number from 1",
        ),
        ("TIGERTALLY_TOOLS__ALLOW", "[1]", "tools.allow: is no list of strings in TOML's brackets"),
        (
            "TIGERTALLY_TOOLS__GET_ORDER__EFFECT",
            "write",
            "tools.get_order.effect: may mean \"get-order\" or \"get_order\", which differ only in case or dashes; set it in the file",
        ),
    ] {
        let text = if value == "write" { "[tools.get-order]\n[tools.get_order]\n" } else { "" };
        let found = load_with(text, &[(name, value)], FlagOverrides::default()).unwrap_err();
        assert_eq!(found, [format!("environment {name}: {told}")]);
    }
    let flags = FlagOverrides {
        store: Some("redis://:sk-very-secret@h:port".to_owned()),
        profile: Some("loose".to_owned()),
        ..FlagOverrides::default()
    };
    assert_eq!(
        load_with("", &[], flags).unwrap_err(),
        [
            "--profile: guard.profile: must be one of \"observe\", \"standard\", \"strict\", not \"loose\"",
            "--store: store.kind: must name its hosts as host:port, divided by commas",
        ]
    );
}

#[test]
fn a_redis_is_named_by_flag_or_by_file_and_shown_without_its_password() {
    let text = "[store]\nkind = \"redis\"\nurl = \"rediss+cluster://u:sk-very-secret@a,b\"\nprefix = \"one\"\non_error = \"open\"\n";
    let shown = load_text(text).unwrap().show();
    for line in [
        "kind = \"redis\"",
        "url = \"rediss+cluster://a:6379,b:6379\"",
        "prefix = \"one\"",
        "on_error = \"open\"",
    ] {
        assert!(shown.contains(line), "{line} in {shown}");
    }
    assert!(!shown.contains("secret"));
    let store = Some("redis+sentinel://:sk-very-secret@s/main".to_owned());
    let policy = load_with("", &[], FlagOverrides { store, ..FlagOverrides::default() }).unwrap();
    assert_eq!(policy.store.to_string(), "redis+sentinel://s:26379/main");
    assert!(!format!("{policy:?}").contains("secret"));
}

#[test]
fn what_is_built_may_be_said_out_loud() {
    let text =
        "[store]\nkind = \"memory\"\non_error = \"closed\"\n[auth]\nmode = \"none\"\n[tls]\n";
    assert_eq!(problems(text), [""; 0]);
}

#[test]
fn others_may_reach_a_port_when_the_operator_says_so() {
    let client = load_text("listen = \"0.0.0.0:8090\"\ninsecure = true\n").unwrap();
    assert!(client.insecure);
    let loopback = load_text("listen = \"[::1]:8090\"\ninsecure = true\n").unwrap();
    assert!(!loopback.insecure, "nothing to say aloud");
    let admin = load_text("[admin]\nlisten = \"0.0.0.0:9464\"\ntoken_file = \"key\"\n").unwrap();
    assert_eq!(admin.admin.token.unwrap().reveal(), "sk-very-secret");
}

#[test]
fn single_rules_stand_on_top_of_the_profile() {
    let noted = load_text("[guard.rules]\nunknown_tool = \"note\"\nduplicate = \"off\"\n").unwrap();
    assert_eq!(noted.rules.action(Code::UnknownTool), Action::Note);
    assert_eq!(noted.rules.action(Code::Duplicate), Action::Off);
    assert_eq!(noted.rules.action(Code::Conflict), Action::Refuse);
    assert_eq!(noted.ledger.actions, noted.rules);
}

#[test]
fn observe_holds_nothing_unless_a_rule_refuses() {
    let observe = "[guard]\nprofile = \"observe\"\n[guard.rules]\n";
    let plain = load_text(observe).unwrap();
    assert!(plain.observe);
    let off = load_text(&format!("{observe}unknown_tool = \"off\"\n")).unwrap();
    assert!(off.observe);
    let refusing = load_text(&format!("{observe}unknown_tool = \"refuse\"\n")).unwrap();
    assert!(!refusing.observe);
    assert_eq!(refusing.rules.action(Code::UnknownTool), Action::Refuse);
    assert_eq!(refusing.rules.action(Code::HeldTooLarge), Action::Refuse);
    assert_eq!(refusing.rules.action(Code::MissingResult), Action::Note);
}

/// Every key that can be set, set to something else than its default.
const EVERYTHING: &str = r#"
listen = "0.0.0.0:1"
insecure = true
[admin]
listen = "127.0.0.2:2"
[upstream]
url = "https://models.example/sglang"
kind = "openai"
connect_timeout = "1s"
first_byte_timeout = "2m"
idle_timeout = "1500ms"
rid = false
[limits]
body_bytes = "1 MiB"
held_bytes = 1000
connections = 10
exchanges = 5
header_read_timeout = "3s"
keep_alive_timeout = "90s"
drain_timeout = "0s"
depth = 64
[guard]
profile = "strict"
rules = { unknown_tool = "note", adopted = "note", orphan_result = "off" }
[conversation]
headers = ["x-session", "x-conversation-id"]
required = true
ttl = "1h 30m"
max_per_principal = 9
[generation]
header = "x-turn"
automatic = false
[budget]
model_calls = 2
tool_calls = 5
deadline = "5m"
[notices]
timeout = "it took \"too\" long\n"
superseded = 'gone\over'
also = ["[cancelled]", "é"]
[results]
late = "substitute"
superseded = "substitute"
history = "refuse"
repeated = "allow"
[tools]
allow = ["a b", "refund"]
max_calls = 3
deadline = "20s"
[tools."a b"]
effect = "write"
deadline = "1d"
server_owned = ["user_id"]
echo = ["order_id"]
edits = "note"
[store]
kind = "embedded"
path = "/srv/state"
key_file = "/srv/key"
durability = "machine"
[telemetry]
log_format = "json"
otlp_endpoint = "https://collector.example/otlp"
[routes]
pass = ["/v1/embeddings"]
"#;

#[test]
fn what_is_shown_is_a_configuration_that_resolves_to_the_same() {
    let policy = load_text(EVERYTHING).unwrap();
    let shown = policy.show();
    let again = load_text(&shown).unwrap();
    assert_eq!(again.show(), shown);
    assert_eq!(format!("{:?}", again.ledger), format!("{:?}", policy.ledger));
    for line in EVERYTHING.lines().filter(|line| !line.starts_with('[')) {
        let key = line.split(" = ").next().unwrap();
        assert!(key == "rules" || shown.contains(key), "{key} is not shown");
    }
    let defaults = Policy::default().show();
    let same = load_text(&defaults).unwrap().show();
    assert_eq!(same, defaults);
}

#[test]
fn a_notice_is_a_word_and_no_letter() {
    for key in ["timeout", "superseded", "also"] {
        let written = |length: usize| {
            let text = format!("{:?}", "x".repeat(length));
            let value = if key == "also" { format!("[\"\\u00e9\", {text}]") } else { text };
            load_text(&format!("[notices]\n{key} = {value}"))
                .map(|_| ())
                .map_err(|all| all.join("; "))
        };
        assert_eq!(written(4096), Ok(()), "{key}");
        let message = written(4097).unwrap_err();
        let wanted = format!("t.toml:2: notices.{key}: is 4097 bytes long; at most 4096");
        assert_eq!(message, wanted);
    }
}

#[test]
fn everything_reaches_the_policy() {
    let policy = load_text(EVERYTHING).unwrap();
    let ledger = &policy.ledger;
    assert_eq!(policy.conversation_headers, ["x-session", "x-conversation-id"]);
    assert_eq!(policy.generation_header, "x-turn");
    assert_eq!(policy.max_conversations, 9);
    assert_eq!((ledger.model_calls, ledger.tool_calls), (Some(2), Some(5)));
    assert_eq!(ledger.task_deadline, Some(Millis(300_000)));
    assert_eq!((ledger.late, ledger.superseded), (AtEnd::Substitute, AtEnd::Substitute));
    assert_eq!(ledger.history, AtEnd::Refuse);
    assert!(ledger.repeat_allowed && !ledger.automatic);
    assert_eq!(ledger.ttl, Millis(5_400_000));
    assert_eq!(ledger.actions.action(Code::Adopted), Action::Note);
    assert_eq!(ledger.actions.action(Code::HistoryChanged), Action::Refuse);
    let tool = &policy.tools.each["a b"];
    assert!(tool.write && tool.edits_allowed);
    assert_eq!(tool.deadline, Some(Duration::from_secs(86_400)));
    assert_eq!((&tool.server_owned[0], &tool.echo[0]), (&"user_id".into(), &"order_id".into()));
    assert_eq!(policy.tools.max_calls, Some(3));
    assert_eq!(policy.notices.superseded, "gone\\over");
    assert_eq!(policy.log_format, LogFormat::Json);
    assert_eq!(policy.routes_pass, ["/v1/embeddings"]);
}

#[test]
fn an_operators_schema_is_read_from_beside_the_file() {
    let policy = load_text("[tools.a]\nschema = \"schema.json\"\n").unwrap();
    assert_eq!(policy.tools.each["a"].schema.as_deref(), Some("{\"type\":\"object\"}"));
    assert!(policy.show().contains("# schema: set, 17 bytes"));
}

#[test]
fn a_secret_is_never_shown() {
    let text = "[upstream]\napi_key_file = \"key\"\n[admin]\ntoken_file = \"key\"\n";
    let policy = load_text(text).unwrap();
    assert_eq!(policy.upstream.api_key.as_ref().unwrap().reveal(), "sk-very-secret");
    for seen in [policy.show(), format!("{policy:?}"), format!("{policy:#?}")] {
        assert!(!seen.contains("sk-very"), "{seen}");
    }
    for (name, value) in [
        ("TIGERTALLY_UPSTREAM__API_KEY", "sk-very secret"),
        ("TIGERTALLY_UPSTREAM_URL", "http://u:sk-very-secret@h"),
        ("TIGERTALLY_STORE__KIND", "sk-very-secret"),
    ] {
        let told = load_with("", &[(name, value)], FlagOverrides::default()).unwrap_err();
        assert!(!told.join("\n").contains("sk-very"), "{told:?}");
    }
}

#[test]
fn the_configurations_that_we_ship_load() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
    let load_file =
        |name: &str| load(Sources { file: Some(config.join(name)), ..Sources::default() });
    assert_eq!(load_file("example.toml").unwrap().show(), Policy::default().show());

    let order = load_file("order-query.toml").unwrap();
    assert_eq!(order.tools.allow.unwrap(), ["get_order_status"]);
    assert_eq!((order.tools.max_calls, order.ledger.model_calls), (Some(1), Some(2)));
    let tool = &order.tools.each["get_order_status"];
    assert!(!tool.write);
    assert_eq!(tool.server_owned, ["user_id", "tenant_id"]);
    assert_eq!(tool.echo, ["order_id"]);
    assert_eq!(tool.deadline, Some(Duration::from_secs(30)));
}

/// The example with every key in force: its values are the defaults, where they say so.
#[test]
fn the_example_names_every_key_with_its_default() {
    let text = include_str!("../../config/example.toml");
    let keys: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .filter(|line| {
            line.starts_with('[')
                || line.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '))
        })
        .collect();
    // What has no default is given as an example, and files are not there.
    let example = [
        "token_file",
        "api_key_file",
        "key_file",
        "cert_file",
        "record_file",
        "client_ca_file",
        "schema",
        "model_calls",
        "tool_calls",
        "allow",
        "max_calls",
        "deadline",
        "otlp_endpoint",
    ]
    .map(|key| format!("{key} = "));
    let mut live = String::new();
    for line in text.lines() {
        let Some(setting) = line.strip_prefix('#').filter(|it| keys.contains(it)) else {
            live += line;
            live.push('\n');
            continue;
        };
        // What a mode needs goes with that mode only.
        if live.rsplit("\n[").next().is_some_and(|section| section.starts_with("auth]"))
            && !setting.starts_with("mode = ")
        {
            continue;
        }
        let default_note = setting.split_once("# default: ").map(|(_, value)| value.trim());
        if setting.starts_with('[') || example.iter().any(|key| setting.starts_with(key)) {
            continue;
        }
        match (setting.split_once(" = "), default_note) {
            (Some((key, _)), Some(value)) if !value.contains(' ') => {
                live += &format!("{key} = \"{value}\"\n")
            }
            _ if ["effect", "server_owned", "echo", "edits"]
                .iter()
                .any(|key| setting.starts_with(key)) => {}
            _ => live += &format!("{setting}\n"),
        }
    }
    assert!(live.matches(" = ").count() > 30, "{live}");
    assert_eq!(load_text(&live).unwrap().show(), Policy::default().show());
}
