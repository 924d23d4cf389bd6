//! The resolved configuration as text: TOML that reads back to the same policy, but for secrets and
//! schemas, which are told as set and never shown.

use super::auth::jwt::{Jwt, KeySource, algorithm_name};
use super::units::{show_duration, show_size};
use super::{Auth, LogFormat, OnError, Policy, StoreKind, Tool, UpstreamKind};
use crate::guard::fault::Code;
use crate::guard::verdict::Action;
use crate::ledger::event::Millis;
use crate::ledger::rules::AtEnd;
use std::fmt::{self, Display, Write};
use std::time::Duration;

impl Policy {
    /// The configuration in force, as TOML, without secrets.
    #[must_use]
    pub fn show(&self) -> String {
        let mut page = Page(String::new());
        page.server(self);
        page.guard(self);
        page.tools(self);
        page.surroundings(self);
        page.0
    }
}

struct Page(String);

impl Page {
    fn line(&mut self, line: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{line}");
    }

    fn section(&mut self, name: impl Display) {
        self.line(format_args!("\n[{name}]"));
    }

    fn key(&mut self, key: &str, value: impl Display) {
        self.line(format_args!("{key} = {value}"));
    }

    fn text(&mut self, key: &str, value: &str) {
        self.key(key, quoted(value));
    }

    fn time(&mut self, key: &str, value: Duration) {
        self.text(key, &show_duration(value));
    }

    fn list<'a>(&mut self, key: &str, values: impl IntoIterator<Item = &'a str>) {
        let values: Vec<String> = values.into_iter().map(quoted).collect();
        self.key(key, format_args!("[{}]", values.join(", ")));
    }

    fn server(&mut self, policy: &Policy) {
        self.text("listen", &policy.listen.to_string());
        self.key("insecure", policy.insecure);
        self.section("admin");
        self.text("listen", &policy.admin.listen.to_string());
        if let Some(file) = &policy.admin.token_file {
            self.text("token_file", &file.display().to_string());
        } else if policy.admin.token.is_some() {
            self.line(format_args!("# token: set, not shown"));
        }
        let upstream = &policy.upstream;
        self.section("upstream");
        self.text("url", upstream.url.to_string().trim_end_matches('/'));
        self.text("kind", if upstream.kind == UpstreamKind::Sglang { "sglang" } else { "openai" });
        if upstream.api_key.is_some() {
            self.line(format_args!("# api_key: set, not shown"));
        }
        self.time("connect_timeout", upstream.connect_timeout);
        self.time("first_byte_timeout", upstream.first_byte_timeout);
        self.time("idle_timeout", upstream.idle_timeout);
        self.key("rid", upstream.rid);
        let limits = &policy.limits;
        self.section("limits");
        self.text("body_bytes", &show_size(limits.body_bytes));
        self.text("held_bytes", &show_size(limits.held_bytes));
        self.key("connections", limits.connections);
        self.key("exchanges", limits.exchanges);
        self.time("header_read_timeout", limits.header_read_timeout);
        self.time("keep_alive_timeout", limits.keep_alive_timeout);
        self.time("drain_timeout", limits.drain_timeout);
        self.key("depth", limits.depth);
    }

    fn guard(&mut self, policy: &Policy) {
        self.section("guard");
        self.text("profile", policy.profile.as_str());
        let profile = policy.profile.rules();
        self.section("guard.rules");
        for code in Code::ALL {
            let action = policy.rules.action(code);
            // That `held_too_large` refuses follows from another rule that does; it cannot be set.
            if action != profile.action(code) && code != Code::HeldTooLarge {
                self.text(code.as_str(), action_name(action));
            }
        }
        let ledger = &policy.ledger;
        self.section("conversation");
        self.list("headers", policy.conversation_headers.iter().map(http::HeaderName::as_str));
        self.key("required", policy.conversation_required);
        self.time("ttl", duration(ledger.ttl));
        self.key("max_per_principal", policy.max_conversations);
        self.section("generation");
        self.text("header", policy.generation_header.as_str());
        self.key("automatic", ledger.automatic);
        self.section("budget");
        if let Some(calls) = ledger.model_calls {
            self.key("model_calls", calls);
        }
        if let Some(calls) = ledger.tool_calls {
            self.key("tool_calls", calls);
        }
        if let Some(deadline) = ledger.task_deadline {
            self.time("deadline", duration(deadline));
        }
        self.section("notices");
        self.text("timeout", &policy.notices.timeout);
        self.text("superseded", &policy.notices.superseded);
        self.list("also", policy.notices.also.iter().map(String::as_str));
        self.section("results");
        self.text("late", at_end(ledger.late));
        self.text("superseded", at_end(ledger.superseded));
        self.text("history", at_end(ledger.history));
        self.text("repeated", if ledger.repeat_allowed { "allow" } else { "refuse" });
    }

    fn tools(&mut self, policy: &Policy) {
        let tools = &policy.tools;
        self.section("tools");
        if let Some(allow) = &tools.allow {
            self.list("allow", allow.iter().map(String::as_str));
        }
        if let Some(calls) = tools.max_calls {
            self.key("max_calls", calls);
        }
        if let Some(deadline) = tools.deadline {
            self.time("deadline", deadline);
        }
        let mut each: Vec<(&String, &Tool)> = tools.each.iter().collect();
        each.sort_by_key(|(name, _)| *name);
        for (name, tool) in each {
            self.section(format_args!("tools.{}", quoted(name)));
            self.text("effect", if tool.write { "write" } else { "read" });
            if let Some(deadline) = tool.deadline {
                self.time("deadline", deadline);
            }
            self.list("server_owned", tool.server_owned.iter().map(String::as_str));
            self.list("echo", tool.echo.iter().map(String::as_str));
            self.text("edits", if tool.edits_allowed { "note" } else { "refuse" });
            if let Some(schema) = &tool.schema {
                self.line(format_args!("# schema: set, {} bytes", schema.len()));
            }
        }
    }

    fn surroundings(&mut self, policy: &Policy) {
        self.auth(&policy.auth);
        if let Some(tls) = &policy.tls {
            self.section("tls");
            self.text("cert_file", &tls.cert_file.to_string_lossy());
            self.text("key_file", &tls.key_file.to_string_lossy());
            if let Some(file) = &tls.client_ca_file {
                self.text("client_ca_file", &file.to_string_lossy());
            }
        }
        self.section("store");
        match &policy.store {
            StoreKind::Memory => self.text("kind", "memory"),
            StoreKind::Embedded { path, key_file, durability } => {
                self.text("kind", "embedded");
                self.text("path", &path.to_string_lossy());
                if let Some(file) = key_file {
                    self.text("key_file", &file.to_string_lossy());
                }
                self.text("durability", durability.as_str());
            }
            StoreKind::Redis { address, prefix, key_file } => {
                self.text("kind", "redis");
                self.text("url", &address.to_string());
                self.line(format_args!("# url: login and options, if any, not shown"));
                self.text("prefix", prefix);
                if let Some(file) = key_file {
                    self.text("key_file", &file.to_string_lossy());
                }
            }
        }
        match policy.store_on_error {
            OnError::Closed => self.text("on_error", "closed"),
            OnError::Open => self.text("on_error", "open"),
        }
        self.section("telemetry");
        match policy.log_format {
            LogFormat::Json => self.text("log_format", "json"),
            LogFormat::Pretty => self.text("log_format", "pretty"),
        }
        let record = &policy.record;
        if let Some(file) = record.file() {
            self.text("record_file", &file);
        }
        self.text("record_max_bytes", &show_size(record.max_bytes));
        self.time("record_max_age", record.max_age);
        self.time("record_retention", record.retention);
        if let Some(endpoint) = &policy.otlp_endpoint {
            self.text("otlp_endpoint", endpoint.to_string().trim_end_matches('/'));
        }
        self.section("routes");
        self.list("pass", policy.routes_pass.iter().map(String::as_str));
    }
}

impl Page {
    fn auth(&mut self, auth: &Auth) {
        self.section("auth");
        self.text("mode", auth.mode());
        match auth {
            Auth::None | Auth::Certificate => {}
            Auth::Keys { file, ring } => {
                self.text("keys_file", &file.to_string_lossy());
                self.line(format_args!("# {} keys", ring.iter().count()));
            }
            Auth::Jwt(jwt) => self.jwt(jwt),
            Auth::Header(trusted) => {
                self.text("header", trusted.header.as_str());
                if let Some(header) = &trusted.tenant_header {
                    self.text("tenant_header", header.as_str());
                }
                let peers: Vec<String> =
                    trusted.trusted_peers.iter().map(ToString::to_string).collect();
                self.list("trusted_peers", peers.iter().map(String::as_str));
            }
        }
    }

    fn jwt(&mut self, jwt: &Jwt) {
        match &jwt.keys {
            KeySource::Url { url, authorities, refresh, timeout } => {
                self.text("jwks_url", &url.to_string());
                if let Some(authorities) = authorities {
                    self.text("jwks_ca_file", &authorities.file.to_string_lossy());
                }
                self.time("jwks_refresh", *refresh);
                self.time("jwks_timeout", *timeout);
            }
            KeySource::File { file, .. } => self.text("public_key_file", &file.to_string_lossy()),
        }
        self.text("issuer", &jwt.issuer);
        self.list("audience", jwt.audience.iter().map(String::as_str));
        self.list("algorithms", jwt.algorithms.iter().map(|it| algorithm_name(*it)));
        self.time("clock_skew", jwt.clock_skew);
        self.text("principal_claim", &jwt.claims.principal);
        for (key, claim) in [
            ("tenant_claim", &jwt.claims.tenant),
            ("models_claim", &jwt.claims.models),
            ("tools_claim", &jwt.claims.tools),
        ] {
            if let Some(claim) = claim {
                self.text(key, claim);
            }
        }
    }
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

fn duration(millis: Millis) -> Duration {
    Duration::from_millis(millis.0)
}

fn action_name(action: Action) -> &'static str {
    match action {
        Action::Off => "off",
        Action::Note => "note",
        Action::Refuse => "refuse",
    }
}

fn at_end(at_end: AtEnd) -> &'static str {
    match at_end {
        AtEnd::Refuse => "refuse",
        AtEnd::Substitute => "substitute",
    }
}
