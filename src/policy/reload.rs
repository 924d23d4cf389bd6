//! What a running proxy can take over from a configuration that was read again, and what it cannot.

use super::Policy;

impl Policy {
    /// Puts back whatever needs a restart to change (ports, what the pooled client and the store were made
    /// with, bounds that are places already given out) to the values of `running`. Gives the keys that
    /// differed.
    pub fn keep_fixed(&mut self, running: &Policy) -> Vec<&'static str> {
        let mut kept = Vec::new();
        keep("listen", &running.listen, &mut self.listen, &mut kept);
        let (old, new) = (&running.admin, &mut self.admin);
        keep("admin.listen", &old.listen, &mut new.listen, &mut kept);
        keep("admin.token", &old.token, &mut new.token, &mut kept);
        new.token_file.clone_from(&old.token_file);
        let (old, new) = (&running.upstream, &mut self.upstream);
        keep("upstream.connect_timeout", &old.connect_timeout, &mut new.connect_timeout, &mut kept);
        let (old, new) = (&running.limits, &mut self.limits);
        keep("limits.connections", &old.connections, &mut new.connections, &mut kept);
        keep("limits.exchanges", &old.exchanges, &mut new.exchanges, &mut kept);
        let (was, now) = (&old.header_read_timeout, &mut new.header_read_timeout);
        keep("limits.header_read_timeout", was, now, &mut kept);
        let (was, now) = (&old.keep_alive_timeout, &mut new.keep_alive_timeout);
        keep("limits.keep_alive_timeout", was, now, &mut kept);
        let (old, new) = (running.max_conversations, &mut self.max_conversations);
        keep("conversation.max_per_principal", &old, new, &mut kept);
        keep("store", &running.store, &mut self.store, &mut kept);
        keep("telemetry.log_format", &running.log_format, &mut self.log_format, &mut kept);
        let (old, new) = (&running.record, &mut self.record);
        keep("telemetry.record_file", &old.to, &mut new.to, &mut kept);
        keep("telemetry.record_max_bytes", &old.max_bytes, &mut new.max_bytes, &mut kept);
        keep("telemetry.record_max_age", &old.max_age, &mut new.max_age, &mut kept);
        keep("telemetry.record_retention", &old.retention, &mut new.retention, &mut kept);
        let (old, new) = (&running.otlp_endpoint, &mut self.otlp_endpoint);
        keep("telemetry.otlp_endpoint", old, new, &mut kept);
        self.keep_doors(running, &mut kept);
        kept
    }

    /// A port that spoke TLS goes on to, and one that others can reach does not stop asking who they are.
    fn keep_doors(&mut self, running: &Policy, kept: &mut Vec<&'static str>) {
        if running.tls.is_some() != self.tls.is_some() {
            self.tls.clone_from(&running.tls);
            kept.push("tls");
        }
        // What others may reach belongs to `listen`, which stays.
        self.insecure = running.insecure;
        if self.is_open_to_others() && !running.is_open_to_others() {
            self.auth.clone_from(&running.auth);
            self.tls.clone_from(&running.tls);
            kept.push("auth.mode");
        }
    }
}

fn keep<T: PartialEq + Clone>(
    key: &'static str,
    running: &T,
    wanted: &mut T,
    kept: &mut Vec<&'static str>,
) {
    if running != wanted {
        wanted.clone_from(running);
        kept.push(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{LogFormat, Secret};
    use std::time::Duration;

    #[test]
    fn what_needs_a_restart_is_kept_and_named_and_the_rest_is_taken() {
        let running = Policy::default();
        let mut new = Policy::default();
        assert_eq!(new.keep_fixed(&running), Vec::<&str>::new());
        new.listen.set_port(1);
        new.admin.listen.set_port(2);
        new.admin.token = Some(Secret::new("t".to_owned()));
        new.upstream.connect_timeout = Duration::from_millis(1);
        new.limits.connections = 3;
        new.limits.exchanges = 4;
        new.limits.header_read_timeout = Duration::from_millis(5);
        new.limits.keep_alive_timeout = Duration::from_millis(6);
        new.max_conversations = 6;
        new.log_format = LogFormat::Json;
        new.record.max_bytes = 7;
        new.otlp_endpoint = Some(http::Uri::from_static("http://127.0.0.1:4318"));
        let mut taken = Policy::default();
        for policy in [&mut new, &mut taken] {
            policy.routes_pass = vec!["/v1/embeddings".to_owned()];
            policy.limits.drain_timeout = Duration::from_secs(7);
            policy.tools.allow = Some(vec!["get_order".to_owned()]);
        }
        let kept = new.keep_fixed(&running);
        assert_eq!(
            kept,
            [
                "listen",
                "admin.listen",
                "admin.token",
                "upstream.connect_timeout",
                "limits.connections",
                "limits.exchanges",
                "limits.header_read_timeout",
                "limits.keep_alive_timeout",
                "conversation.max_per_principal",
                "telemetry.log_format",
                "telemetry.record_max_bytes",
                "telemetry.otlp_endpoint",
            ]
        );
        assert_eq!(format!("{new:?}"), format!("{taken:?}"));
    }
}
