//! Whether the server may drop conversations to make room.
//!
//! Every conversation has a time to live, so each `maxmemory-policy` but `noeviction` may take one whose calls
//! are open. `INFO` tells it, also where `CONFIG` is forbidden; a user without `+info` is not told, and then
//! nobody is warned.

use super::dial::Wire;
use redis::Value;

const SAFE: &str = "noeviction";

/// The policy, when it is a dangerous one.
pub(super) async fn policy(wire: &mut Wire) -> Option<String> {
    let told = wire.ask(redis::cmd("INFO").arg("memory")).await.ok()?;
    dangerous(&told).map(str::to_owned)
}

/// A Cluster answers with one text per node.
fn dangerous(told: &Value) -> Option<&str> {
    let of_text = |text| -> Option<&str> {
        let mut lines = str::lines(text);
        let policy = lines.find_map(|line| line.strip_prefix("maxmemory_policy:"))?.trim();
        (policy != SAFE).then_some(policy)
    };
    match told {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok().and_then(of_text),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => of_text(text),
        Value::Array(values) => values.iter().find_map(dangerous),
        Value::Map(nodes) => nodes.iter().find_map(|(_, value)| dangerous(value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_but_one_is_dangerous_on_any_node() {
        let text = |policy: &str| {
            let text = format!("# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:{policy}\r\nx:1\r\n");
            Value::BulkString(text.into_bytes())
        };
        assert_eq!(dangerous(&text("noeviction")), None);
        assert_eq!(dangerous(&text("volatile-ttl")), Some("volatile-ttl"));
        let nodes = ["noeviction", "allkeys-lru"].map(|policy| (Value::Int(1), text(policy)));
        assert_eq!(dangerous(&Value::Map(nodes.to_vec())), Some("allkeys-lru"));
        assert_eq!(dangerous(&Value::Nil), None, "it does not tell");
        assert_eq!(dangerous(&Value::BulkString(b"# Memory\r\n".to_vec())), None);
    }
}
