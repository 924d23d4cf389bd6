//! Where ledgers live: one trait, one contract suite.
//!
//! A store applies each event as **one conditional update per conversation**: it reads the state, lets
//! the pure state machine decide, and writes the result only if nobody wrote in between (else it begins
//! again). A store that answers from a stale read, applies an event to half a state, or tells of an
//! outcome before it is as durable as configured lets a stale refund through. When in doubt it must fail.

pub mod embedded;
pub mod encoding;
pub mod memory;
pub mod redis;
mod slots;

#[cfg(test)]
mod contract;

use crate::ledger::Conversation;
use crate::ledger::digest::{Digest, DigestKey};
use crate::ledger::event::{Effects, Event, Transition};
use crate::ledger::rules::Rules;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// Whose conversation: nothing on one key changes or reads another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConversationKey {
    /// Digest of the principal.
    pub principal: Digest,
    /// Digest of the conversation header's value.
    pub conversation: Digest,
}

/// A store could not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached or written: nothing is known to have changed.
    #[error("the store is unavailable: {0}")]
    Unavailable(&'static str),
    /// This principal holds as many conversations as it may, and none can be let go.
    #[error("this principal holds as many conversations as it may")]
    Full,
}

/// A future that a store gives.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Learns of everything that is committed, by whomever: requests, deadlines, other replicas.
pub trait Listener: Send + Sync {
    /// `effects` of an event on `key` are committed. Must not block.
    fn committed(&self, key: &ConversationKey, effects: &Effects);
}

/// Keeps ledgers.
pub trait Store: Send + Sync {
    /// The secret that digests are made with; the same for all replicas of one store.
    fn digest_key(&self) -> &DigestKey;

    /// Applies one event. The outcome is committed when this returns, and never before.
    fn apply<'a>(
        &'a self,
        key: &'a ConversationKey,
        event: Event,
        rules: &'a Arc<Rules>,
    ) -> Answer<'a, Transition>;

    /// Forgets a conversation; what is in flight there is cancelled. Whether there was one.
    fn remove<'a>(&'a self, key: &'a ConversationKey) -> Answer<'a, bool>;

    /// The state of a conversation as last committed, for reading.
    fn read<'a>(&'a self, key: &'a ConversationKey) -> Answer<'a, Option<Conversation>>;

    /// Lets time pass: fires deadlines and leases that fell due, and forgets what expired. To be called
    /// about once a second; what it does is told to the [`Listener`].
    fn sweep<'a>(&'a self, rules: &'a Arc<Rules>) -> Answer<'a, ()>;

    /// Whether it can be reached and written.
    fn ready(&self) -> Answer<'_, ()>;

    /// Conversations held now.
    fn conversations(&self) -> usize;
}
