//! From the layers of settings to one [`Policy`], or to everything that is wrong with them.
//!
//! This is the only place that names the keys. Each function reads one section; what concerns two keys
//! at once is looked at in the end.

use super::findings::Findings;
use super::headers::header_name;
use super::problem::{Origin, Problem, Problems};
use super::raw::Value;
use super::section::{Found, Section, count, flag, size, span, text, time, words};
use super::watch::Watched;
use super::{
    Limits, Notices, Policy, Tls, auth, ports, raw, rules, store, telemetry, tls, tools, upstream,
};
use crate::ledger;
use crate::ledger::event::Millis;
use crate::ledger::rules::AtEnd;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What can be done with a result that came too late.
const AT_END: [(&str, AtEnd); 2] = [("refuse", AtEnd::Refuse), ("substitute", AtEnd::Substitute)];

/// Deepest nesting that can be set: what the JSON parser of this proxy and most others go down to.
const DEEPEST: usize = 128;

/// Where settings come from.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The file, if one is named.
    pub file: Option<PathBuf>,
    /// The environment. Of variables that do not begin with `TIGERTALLY_` only those are looked at that
    /// say where the system keeps state.
    pub env: Vec<(String, String)>,
    /// The command line.
    pub flags: FlagOverrides,
}

/// Settings on the command line, as they were typed.
#[derive(Clone, Debug, Default)]
pub struct FlagOverrides {
    /// `--upstream`
    pub upstream: Option<String>,
    /// `--listen`
    pub listen: Option<String>,
    /// `--admin-listen`
    pub admin_listen: Option<String>,
    /// `--store`
    pub store: Option<String>,
    /// `--profile`
    pub profile: Option<String>,
    /// `--insecure`
    pub insecure: bool,
}

/// Reads all sources (and the files they name) into one policy: flags beat the environment, which beats
/// the file, which beats the defaults.
///
/// # Errors
/// Everything that is wrong, each with its place, its key and the way out.
pub fn load(sources: Sources) -> Result<Policy, Problems> {
    let mut problems = Vec::new();
    let files = sources.file.as_deref().map(Watched::now).into_iter().collect();
    let settings =
        sources.file.as_deref().map(|path| read_file(path, &mut problems)).unwrap_or_default();
    overlay(settings, Findings::new(problems, files), sources)
}

/// Like [`load`], but over a file's text that comes with the program, called `name` where something is
/// wrong with it. `sources.file` is not looked at.
///
/// # Errors
/// As [`load`].
pub fn load_built_in(name: &str, text: &str, sources: Sources) -> Result<Policy, Problems> {
    let mut problems = Vec::new();
    let settings = raw::parse(text, Path::new(name), &mut problems);
    overlay(settings, Findings::new(problems, Vec::new()), sources)
}

fn overlay(
    mut settings: raw::Table,
    findings: Findings,
    sources: Sources,
) -> Result<Policy, Problems> {
    raw::overlay_env(&mut settings, &sources.env, &findings);
    let flags = sources.flags;
    for (path, flag, value) in [
        (&["upstream", "url"][..], "--upstream", flags.upstream),
        (&["listen"], "--listen", flags.listen),
        (&["admin", "listen"], "--admin-listen", flags.admin_listen),
        (&["store", "kind"], "--store", flags.store),
        (&["guard", "profile"], "--profile", flags.profile),
        (&["insecure"], "--insecure", flags.insecure.then(|| "true".to_owned())),
    ] {
        if let Some(value) = value {
            raw::overlay_flag(&mut settings, path, flag, value);
        }
    }
    let mut policy = resolve(Section::root(settings, &findings), &sources.env, &findings);
    policy.private_files = findings.secrets();
    policy.private_files.extend(policy.store.key_file().map(Path::to_owned));
    let (problems, files) = findings.into_parts();
    match Problems::new(problems) {
        Some(problems) => Err(problems.read_from(files)),
        None => {
            policy.files = files;
            Ok(policy)
        }
    }
}

/// Every key there is, sections as well: `guard`, `guard.profile`. Those of a tool stand under `tools.NAME`.
#[cfg(test)]
pub(super) fn known_keys() -> Vec<String> {
    let mut settings = raw::Table::new();
    let tool = raw::Value::Table(raw::Table::new());
    let tool = raw::Located { value: tool, origin: Origin::Default };
    let tools = raw::Value::Table([("NAME".to_owned(), tool)].into());
    settings.insert("tools".to_owned(), raw::Located { value: tools, origin: Origin::Default });
    let findings = Findings::default();
    let _ = resolve(Section::root(settings, &findings), &[], &findings);
    findings.known()
}

fn read_file(path: &Path, problems: &mut Vec<Problem>) -> raw::Table {
    match std::fs::read_to_string(path) {
        Ok(text) => raw::parse(&text, path, problems),
        Err(error) => {
            let mut message = format!("cannot be read: {error}");
            if error.kind() == std::io::ErrorKind::NotFound {
                message.push_str("; config/example.toml is one to begin with, and none is needed");
            }
            let origin = Origin::File { path: path.into(), line: 0 };
            problems.push(Problem { origin, key: String::new(), message });
            raw::Table::new()
        }
    }
}

fn resolve(mut root: Section<'_>, env: &[(String, String)], findings: &Findings) -> Policy {
    let mut policy = Policy::default();
    let listen = ports::address(root.found("listen", text), &mut policy.listen, findings);
    let mut insecure = root.read("insecure", flag).unwrap_or(false);

    let mut section = root.section("admin");
    let admin = ports::address(section.found("listen", text), &mut policy.admin.listen, findings);
    let token = upstream::secret(&mut section, ["token_file", "token"], findings);
    policy.admin.token_file = token.file;
    policy.admin.token = token.secret;
    section.finish();

    upstream::resolve(root.section("upstream"), &mut policy.upstream, findings);
    limits(root.section("limits"), &mut policy.limits, findings);
    rules::resolve(root.section("guard"), &mut policy, findings);
    let mut ledger = ledger::rules::Rules::default();
    let headers = conversation(root.section("conversation"), &mut policy, &mut ledger, findings);
    budget(root.section("budget"), &mut ledger);
    results(root.section("results"), &mut ledger);
    let header = generation(root.section("generation"), &mut policy, &mut ledger, findings);
    notices(root.section("notices"), &mut policy.notices, findings);
    policy.tools = tools::resolve(root.section("tools"), findings);
    policy.tls = tls::resolve(root.section("tls"), findings);
    let certificates = policy.tls.as_ref().is_some_and(Tls::wants_certificates);
    let auth = auth::resolve(root.section("auth"), certificates, findings);
    insecure |= auth.insecure;
    policy.auth = auth.auth;
    (policy.store, policy.store_on_error) = store::resolve(root.section("store"), env, findings);
    telemetry::resolve(root.section("telemetry"), &mut policy, findings);
    policy.routes_pass = ports::routes(root.section("routes"), findings);
    root.finish();

    ledger.actions = policy.enforced.clone();
    if policy.enforced != policy.rules {
        ledger.enforcing = Some(Arc::new(ledger.clone()));
        ledger.actions = policy.rules.clone();
    }
    policy.ledger = Arc::new(ledger);
    policy.insecure = insecure && policy.is_open_to_others();
    ports::together(&policy, insecure, &listen, &admin, findings);
    for header in headers.iter().filter(|header| header.value == policy.generation_header.as_str())
    {
        let message = "is the generation's header too; the two must differ";
        findings.tell(&header.origin, &header.key, message);
    }
    if let Some(header) = header
        && headers.is_empty()
        && policy.conversation_headers.contains(&policy.generation_header)
    {
        // The other one is the default: nobody wrote it down.
        let message = "is the conversation's header too; the two must differ";
        findings.tell(&header.origin, &header.key, message);
    }
    policy
}

fn limits(mut section: Section<'_>, limits: &mut Limits, findings: &Findings) {
    section.set("body_bytes", &mut limits.body_bytes, size);
    section.set("held_bytes", &mut limits.held_bytes, size);
    section.set("connections", &mut limits.connections, count);
    section.set("exchanges", &mut limits.exchanges, count);
    section.set("header_read_timeout", &mut limits.header_read_timeout, span);
    section.set("keep_alive_timeout", &mut limits.keep_alive_timeout, span);
    section.set("drain_timeout", &mut limits.drain_timeout, time);
    if let Some(depth) = section.found("depth", count) {
        limits.depth = depth.value;
        if depth.value > DEEPEST {
            findings.tell(&depth.origin, &depth.key, format!("must be at most {DEEPEST}"));
        }
    }
    section.finish();
}

fn conversation(
    mut section: Section<'_>,
    policy: &mut Policy,
    ledger: &mut ledger::rules::Rules,
    findings: &Findings,
) -> Vec<Found<String>> {
    let mut names: Vec<Found<String>> = Vec::new();
    let mut known = HashSet::new();
    if let Some(list) = section.filled_list("headers") {
        policy.conversation_headers.clear();
        for mut name in list {
            let Some(header) = header_name(&name, findings) else { continue };
            name.value = header.as_str().to_owned();
            if !known.insert(header.clone()) {
                findings.tell(&name.origin, &name.key, format!("names \"{header}\" twice"));
            }
            policy.conversation_headers.push(header);
            names.push(name);
        }
    }
    section.set("required", &mut policy.conversation_required, flag);
    section.set("max_per_principal", &mut policy.max_conversations, count);
    if let Some(ttl) = section.read("ttl", span) {
        ledger.ttl = millis(ttl);
    }
    section.finish();
    names
}

fn budget(mut section: Section<'_>, ledger: &mut ledger::rules::Rules) {
    ledger.model_calls =
        section.read("model_calls", count).map(|calls| u32::try_from(calls).unwrap_or(u32::MAX));
    ledger.tool_calls =
        section.read("tool_calls", count).map(|calls| u32::try_from(calls).unwrap_or(u32::MAX));
    ledger.task_deadline = section.read("deadline", span).map(millis);
    section.finish();
}

fn results(mut section: Section<'_>, ledger: &mut ledger::rules::Rules) {
    for (key, slot) in [
        ("late", &mut ledger.late),
        ("superseded", &mut ledger.superseded),
        ("history", &mut ledger.history),
    ] {
        if let Some(at_end) = section.choice(key, &AT_END) {
            *slot = at_end;
        }
    }
    if let Some(allowed) = section.choice("repeated", &[("refuse", false), ("allow", true)]) {
        ledger.repeat_allowed = allowed;
    }
    section.finish();
}

fn generation(
    mut section: Section<'_>,
    policy: &mut Policy,
    ledger: &mut ledger::rules::Rules,
    findings: &Findings,
) -> Option<Found<String>> {
    let name = section.found("header", text);
    if let Some(header) = name.as_ref().and_then(|name| header_name(name, findings)) {
        policy.generation_header = header;
    }
    section.set("automatic", &mut ledger.automatic, flag);
    section.finish();
    name
}

/// A notice stands in a list as often as there are late results: it is a word to the model, no letter.
const LONGEST_NOTICE: usize = 4096;

/// The text of a notice.
fn notice(value: &Value) -> Result<String, String> {
    let text = words(value)?;
    short(&text).map(|()| text)
}

fn short(text: &str) -> Result<(), String> {
    if text.len() <= LONGEST_NOTICE {
        return Ok(());
    }
    Err(format!("is {} bytes long; at most {LONGEST_NOTICE}", text.len()))
}

fn notices(mut section: Section<'_>, notices: &mut Notices, findings: &Findings) {
    section.set("timeout", &mut notices.timeout, notice);
    section.set("superseded", &mut notices.superseded, notice);
    for text in section.list("also").unwrap_or_default() {
        if text.value.trim().is_empty() {
            let message = "holds an empty text; every empty result would count as a closing";
            findings.tell(&text.origin, &text.key, message);
        } else if let Err(message) = short(&text.value) {
            findings.tell(&text.origin, &text.key, message);
        }
        notices.also.push(text.value);
    }
    section.finish();
}

/// Whole milliseconds, as the ledger counts.
fn millis(time: Duration) -> Millis {
    Millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
