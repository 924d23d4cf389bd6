//! What things are called in Redis. What stands in braces decides on the hash slot, and nothing that belongs
//! together in one step spans two: conversations lie wherever their own name puts them, and so do the
//! places of a principal and each list of what falls due.

use super::agenda::flat;
use crate::store::ConversationKey;

/// What things are called.
pub(super) struct Names {
    prefix: String,
    /// Where replicas tell each other what to cut.
    pub(super) channel: String,
    /// What tells one set of digests from another.
    pub(super) identity: String,
    /// Written at each probe.
    pub(super) alive: String,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Self {
        Names {
            prefix: prefix.to_owned(),
            channel: format!("{prefix}:cancel"),
            identity: format!("{prefix}:{{store}}:digest-key"),
            alive: format!("{prefix}:{{store}}:alive"),
        }
    }

    /// A conversation.
    pub(super) fn conversation(&self, key: &ConversationKey) -> Vec<u8> {
        let mut name = format!("{}:c:{{", self.prefix).into_bytes();
        flat(key).iter().for_each(|byte| name.extend_from_slice(format!("{byte:02x}").as_bytes()));
        name.push(b'}');
        name
    }

    /// A list of what falls due.
    pub(super) fn due(&self, list: u8) -> Vec<u8> {
        format!("{}:due:{{{list}}}", self.prefix).into_bytes()
    }

    /// The places that a principal's conversations hold.
    pub(super) fn places(&self, key: &ConversationKey) -> Vec<u8> {
        format!("{}:p:{{{}}}", self.prefix, key.principal).into_bytes()
    }
}
