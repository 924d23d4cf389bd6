//! How many conversations a principal holds, as far as that can be counted.
//!
//! The conversations of one principal lie in many hash slots, or else one busy principal would live on one
//! node. So they cannot be counted in the step that makes one. A sorted set per principal, in a slot of
//! its own, has a member per conversation with the time until which it counts; it is asked only before a
//! new conversation is written. What that can miss, said plainly:
//! - It counts too many for a while: a place is held for a quarter longer than the conversation's `ttl`
//!   since it was last renewed, and a replica that dies between taking a place and writing leaves it.
//! - It counts one too few when a conversation is removed by one replica in the very moment in which
//!   another begins it anew; until the latter's next renewal.
//!
//! Both heal by themselves, and neither touches a conversation that exists.

use super::commit::Core;
use crate::ledger::event::Millis;
use crate::ledger::rules::Rules;
use crate::store::{ConversationKey, StoreError};
use std::sync::Arc;
use tokio::time::Instant;

/// Ten years: what lasts longer is as good as for ever, and stays within what Redis can count.
const LONGEST: Millis = Millis(10 * 365 * 24 * 3600 * 1000);

impl Core {
    /// Takes a place for a new conversation, or finds that it has one. Gives until when.
    pub(super) async fn hold_place(
        &self,
        key: &ConversationKey,
        used: Millis,
        rules: &Rules,
        until: Instant,
    ) -> Result<Millis, StoreError> {
        let name = self.names.places(key);
        let ttl = rules.ttl.min(LONGEST);
        let held_until = used.after(ttl).after(Millis(ttl.0 / 4));
        let numbers =
            [used.0.to_string(), held_until.0.to_string(), self.most_per_principal.to_string()];
        let [now, held, most] = numbers.each_ref().map(String::as_bytes);
        let arguments = [&key.conversation.as_bytes()[..], now, held, most];
        let reply = self.ask(&self.scripts.place, &[&name], &arguments, until).await?;
        if reply.number() == Some(0) {
            return Err(StoreError::Full);
        }
        Ok(held_until)
    }

    /// Keeps the place of a conversation in use. Nobody waits for it.
    pub(super) fn renew_place(
        self: &Arc<Self>,
        key: &ConversationKey,
        used: Millis,
        rules: &Rules,
    ) {
        let (core, key, rules) = (Arc::clone(self), key.clone(), rules.clone());
        self.tasks.spawn(async move {
            let until = Instant::now() + core.budget;
            // When it has lost its place and there is none, it goes on all the same.
            if let Ok(held_until) = core.hold_place(&key, used, &rules, until).await {
                core.agenda.placed(&key, held_until);
            }
        });
    }

    /// Gives the place of a conversation back.
    pub(super) async fn give_up_place(&self, key: &ConversationKey, until: Instant) {
        let name = self.names.places(key);
        let arguments = [&key.conversation.as_bytes()[..]];
        // When that fails, the place lapses by itself.
        let _ = self.ask(&self.scripts.leave, &[&name], &arguments, until).await;
    }
}
