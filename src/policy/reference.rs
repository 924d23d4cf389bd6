//! What each key is, in a line: for `tigertally config keys`, of which the tables of `docs/configuration.md` are made.
//!
//! Defaults are not written down here: they are read off the policies that a bare configuration gives. Only where a key
//! has none, or it hangs on the machine, words say so. A test holds the names to those that are read
//! (`resolve`), and what needs a restart to what a reload keeps (`reload`).

use super::{Policy, Sources, load_built_in};
use toml::Table;

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its full name, as `guard.profile`; those of one tool stand under `tools.NAME`.
    pub name: &'static str,
    /// What stands in the default's place where there is no value.
    words: Option<&'static str>,
    /// Whether a running proxy keeps its value until a restart.
    pub restart: bool,
    /// What it is, in Markdown.
    pub what: &'static str,
}

/// The default of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefaultValue {
    /// As TOML.
    Value(String),
    /// In Markdown: there is no value, or not the same one everywhere.
    Words(&'static str),
}

const fn key(name: &'static str, what: &'static str) -> Key {
    Key { name, words: None, restart: false, what }
}

impl Key {
    const fn unset(self) -> Self {
        self.without("none")
    }

    const fn without(self, words: &'static str) -> Self {
        Key { words: Some(words), ..self }
    }

    const fn restart(self) -> Self {
        Key { restart: true, ..self }
    }
}

/// Every key, section by section.
#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    key("listen", "where clients connect").restart(),
    key("insecure", "whether `listen` may be reached by others though nobody proves who they are").restart(),

    key("admin.listen", "metrics, health, console").restart(),
    key("admin.token_file", "file with the token that callers must show; needed when the port is not loopback").unset().restart(),
    key("admin.token", "the token itself; from the environment only").unset().restart(),

    key("upstream.url", "`http(s)://host[:port][/prefix]`; a `/v1` at its end is dropped"),
    key("upstream.kind", "`sglang`: send a request id (`rid`), and abort by it; `openai`: any OpenAI-compatible server"),
    key("upstream.api_key_file", "file with the upstream's key, which takes the place of what clients send").unset(),
    key("upstream.api_key", "the key itself; from the environment only").unset(),
    key("upstream.connect_timeout", "bound on connecting").restart(),
    key("upstream.first_byte_timeout", "bound on the wait for the response's head"),
    key("upstream.idle_timeout", "bound on the wait between two pieces of the response"),
    key("upstream.rid", "whether a `rid` is added when the client sent none; `sglang` only"),

    key("limits.body_bytes", "largest request, and largest whole response"),
    key("limits.held_bytes", "most that is held back of one stream while its calls are judged; more is refused"),
    key("limits.connections", "client connections").restart(),
    key("limits.exchanges", "exchanges in flight, [shared between principals](deploy.md#more-work-than-there-are-places-for)").restart(),
    key("limits.header_read_timeout", "bound on reading a request's head, and on each wait for its body; a whole body may take that and a millisecond for each byte that came").restart(),
    key("limits.keep_alive_timeout", "how long a connection is kept for its client's next request; [when to change it](configuration.md#connections-that-are-kept)").restart(),
    key("limits.drain_timeout", "how long exchanges may go on after SIGTERM"),
    key("limits.depth", "deepest JSON nesting, at most 128"),

    key("guard.profile", "`observe`, `standard` or `strict`"),
    key("guard.rules", "a table: code = `off`, `note` or `refuse`").unset(),

    key("conversation.headers", "headers that name a conversation"),
    key("conversation.required", "whether a request without one is refused"),
    key("conversation.ttl", "how long a conversation is kept after its last use"),
    key("conversation.max_per_principal", "conversations kept").restart(),

    key("generation.header", "header that bears the number of the user's task"),
    key("generation.automatic", "whether the proxy counts by itself where the header is missing"),

    key("budget.model_calls", "model calls; further attempts at one of them do not count").unset(),
    key("budget.tool_calls", "tool calls let out; those that a further attempt replaced do not count").unset(),
    key("budget.deadline", "time since its first model call").unset(),

    key("notices.timeout", "text put in place of a result whose call timed out"),
    key("notices.superseded", "the same, of a task that the user left"),
    key("notices.also", "exact texts that count as such notices"),

    key("results.late", "a timed-out call's result at the end of the list: `refuse`, or `substitute` the notice"),
    key("results.superseded", "the same, of a task that the user left"),
    key("results.history", "either of them further up in the list"),
    key("results.repeated", "`allow`: a continuation may be asked again after its answer was delivered"),

    key("tools.allow", "names that may be proposed; without it all that the request offers; `[]` allows none").unset(),
    key("tools.max_calls", "calls in one message").unset(),
    key("tools.deadline", "how long a result may take").unset(),
    key("tools.NAME.effect", "`write`: a timeout does not mean that it did not happen"),
    key("tools.NAME.deadline", "how long this tool's result may take").without("that of `[tools]`"),
    key("tools.NAME.server_owned", "arguments that a model must not set, at any depth of the arguments, in any case of letters"),
    key("tools.NAME.echo", "arguments that a result may repeat at its top level, and must repeat unchanged"),
    key("tools.NAME.edits", "`note`: a human may change arguments before approval"),
    key("tools.NAME.schema", "file with a JSON Schema of the arguments, on top of the request's").unset(),

    key("auth.mode", "`keys`, `jwt`, `header` or `certificate`; the last is the default with `tls.client_ca_file`"),
    key("auth.insecure", "the same as `insecure`").without("`false`").restart(),
    key("auth.keys_file", "`keys`: the file that `tigertally keys` keeps").unset(),
    key("auth.jwks_url", "`jwt`: where the issuer's keys are fetched; this, or `public_key_file`").unset(),
    key("auth.public_key_file", "`jwt`: file with the issuer's keys, PEM").unset(),
    key("auth.jwks_ca_file", "who vouches for the issuer's server").without("the public authorities"),
    key("auth.jwks_refresh", "how old a fetched set may become"),
    key("auth.jwks_timeout", "bound on a fetch"),
    key("auth.issuer", "`jwt`: whose tokens are taken; needed").unset(),
    key("auth.audience", "`jwt`: for whom they must be made, one or a list; needed").unset(),
    key("auth.algorithms", "how tokens may be signed"),
    key("auth.clock_skew", "how far clocks may be apart, at most 10 minutes"),
    key("auth.principal_claim", "the claim that names the principal"),
    key("auth.tenant_claim", "the claim that names its tenant, by name or dotted way; a token must have it then").unset(),
    key("auth.models_claim", "the claim with the models that it may ask; likewise").unset(),
    key("auth.tools_claim", "the claim with the tools that may be proposed to it; likewise").unset(),
    key("auth.header", "`header`: what the gateway sets").unset(),
    key("auth.tenant_header", "`header`: the tenant; each request needs it then").unset(),
    key("auth.trusted_peers", "`header`: addresses and ranges that may set it").unset(),

    key("store.kind", "`embedded`, `redis` or `memory`").restart(),
    key("store.path", "data directory of `embedded`").without("the system's or the user's place for state").restart(),
    key("store.key_file", "key of the digests, 64 hexadecimal digits").without("in the store").restart(),
    key("store.durability", "`machine`: a decision survives the loss of power as well").restart(),
    key("store.url", "where Redis is").unset().restart(),
    key("store.prefix", "what all keys in Redis begin with").restart(),
    key("store.on_error", "`open`: while the store does not answer, go on by the untracked rules"),

    key("telemetry.log_format", "`json` for collectors; `RUST_LOG` sets how much: with `info`, the default, a line for each exchange that was refused, noted, withheld or broke off; with `debug` for sound ones, too").restart(),
    key("telemetry.record_file", "where the [task record](task-record.md) goes: a file, or `-` for standard output").unset().restart(),
    key("telemetry.record_max_bytes", "size from which on that file is rotated").restart(),
    key("telemetry.record_max_age", "age from which on it is rotated").restart(),
    key("telemetry.record_retention", "how long rotated files are kept").restart(),
    key("telemetry.otlp_endpoint", "where [traces](traces.md) go: the base URL of an OTLP/HTTP receiver, as `http://127.0.0.1:4318`").unset().restart(),

    key("tls.cert_file", "TLS on the client port: the certificate's chain, PEM; on or off is a restart, another file is taken over").unset(),
    key("tls.key_file", "its key, PEM").unset(),
    key("tls.client_ca_file", "every client must show a certificate of this authority").unset(),

    key("routes.pass", "paths that are forwarded unguarded, each spelled plainly"),
];

/// Shows the defaults of what a bare configuration does not use.
const USED: &str = r#"
[tools.NAME]
[auth]
mode = "jwt"
jwks_url = "https://issuer.example/keys"
issuer = "https://issuer.example/"
audience = "tigertally"
[store]
kind = "redis"
url = "redis://127.0.0.1:6379"
"#;

/// Every key with its default.
#[must_use]
pub fn keys() -> Vec<(Key, DefaultValue)> {
    let used = load_built_in("reference", USED, Sources::default());
    let pages = [Policy::default().show(), used.map(|policy| policy.show()).unwrap_or_default()];
    let shown: Vec<Table> = pages.iter().filter_map(|page| page.parse().ok()).collect();
    let default = |key: &Key| match key.words {
        Some(words) => DefaultValue::Words(words),
        None => shown
            .iter()
            .find_map(|page| value(page, key.name))
            .map_or(DefaultValue::Words("none"), DefaultValue::Value),
    };
    KEYS.iter().map(|key| (*key, default(key))).collect()
}

fn value(page: &Table, name: &str) -> Option<String> {
    let (way, last) = name.rsplit_once('.').map_or((None, name), |(way, last)| (Some(way), last));
    let mut steps = way.into_iter().flat_map(|way| way.split('.'));
    let place = steps.try_fold(page, |place, step| place.get(step)?.as_table())?;
    place.get(last).map(ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::resolve;
    use std::collections::BTreeSet;

    #[test]
    fn every_key_that_is_read_is_told_and_no_other() {
        let told: BTreeSet<String> = KEYS.iter().map(|key| key.name.to_owned()).collect();
        assert_eq!(told.len(), KEYS.len(), "one is told twice");
        let read: BTreeSet<String> = resolve::known_keys().into_iter().collect();
        let section = |name: &str| read.iter().any(|key| key.starts_with(&format!("{name}.")));
        let read: BTreeSet<String> = read
            .iter()
            .filter(|name| *name == "guard.rules" || !section(name))
            .filter(|name| !name.starts_with("guard.rules."))
            .cloned()
            .collect();
        assert_eq!(told, read);
    }

    #[test]
    fn the_example_has_every_key() {
        let example = include_str!("../../config/example.toml");
        // Secrets are never taken from a file, and one key is another's second name.
        let elsewhere = ["admin.token", "upstream.api_key", "auth.insecure"];
        for key in KEYS.iter().filter(|key| !elsewhere.contains(&key.name)) {
            let (section, last) = key.name.rsplit_once('.').unwrap_or(("", key.name));
            let section = section.replace("NAME", "refund_order");
            let heads = [format!("\n[{section}]\n"), format!("\n#[{section}]\n")];
            let text = match heads.iter().find(|head| example.contains(*head)) {
                Some(head) => example.split(head.as_str()).nth(1).unwrap_or_default(),
                None => example,
            };
            let text = text.split("\n[").next().unwrap_or_default();
            let there = text.contains(&format!("#{last} = "))
                || example.contains("[guard.rules]") && last == "rules";
            assert!(there, "{}", key.name);
        }
    }

    /// Nothing is called `none` that has a value, and whatever has no words has a value.
    #[test]
    fn defaults_are_those_of_a_bare_configuration() {
        let keys = keys();
        let default = |name: &str| {
            keys.iter().find(|(key, _)| key.name == name).map(|(_, default)| default.clone())
        };
        let is = |text: &str| Some(DefaultValue::Value(text.to_owned()));
        assert_eq!(default("limits.body_bytes"), is("\"64 MiB\""));
        assert_eq!(default("tools.NAME.effect"), is("\"read\""));
        assert_eq!(default("auth.mode"), is("\"none\""));
        assert_eq!(default("auth.clock_skew"), is("\"30s\""));
        assert_eq!(default("store.kind"), is("\"embedded\""));
        assert_eq!(default("store.prefix"), is("\"tigertally\""));
        let bare: Table = Policy::default().show().parse().unwrap_or_default();
        for (key, default) in &keys {
            let DefaultValue::Words(words) = default else { continue };
            assert_eq!(key.words, Some(*words), "{} has neither value nor words", key.name);
            let apart = ["store.path", "guard.rules"].contains(&key.name);
            assert!(apart || value(&bare, key.name).is_none(), "{} has a default", key.name);
        }
    }

    /// The names that [`Policy::keep_fixed`] gives, and what stands behind those that are not a key of their own.
    #[test]
    fn what_needs_a_restart_is_what_a_reload_keeps() {
        let text = include_str!("reload.rs").split("#[cfg(test)]").next().unwrap_or_default();
        let kept = text.split("keep(\"").skip(1).filter_map(|rest| rest.split('"').next());
        let mut kept: BTreeSet<&str> = kept.collect();
        assert!(kept.len() > 10, "they were found: {kept:?}");
        assert!(kept.remove("store"));
        kept.extend(
            KEYS.iter()
                .map(|key| key.name)
                .filter(|name| name.starts_with("store.") && *name != "store.on_error"),
        );
        kept.extend(["admin.token_file", "insecure", "auth.insecure"]);
        let told: BTreeSet<&str> =
            KEYS.iter().filter(|key| key.restart).map(|key| key.name).collect();
        assert_eq!(told, kept);
    }
}
