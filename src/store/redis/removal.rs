//! A conversation ends before its time: it is forgotten by hand, or found expired. What cannot be read can
//! be forgotten too; what only a newer version can read cannot.

use super::commit::{Core, Time, Written, pause, seen};
use super::frame::{Seen, Version};
use crate::ledger::rules::Rules;
use crate::store::encoding::EncodingError;
use crate::store::{ConversationKey, StoreError};
use std::sync::Arc;
use tokio::time::Instant;

impl Core {
    /// Forgets a conversation. Whether there was one.
    pub(super) async fn remove(self: Arc<Self>, key: ConversationKey) -> Result<bool, StoreError> {
        let until = Instant::now() + self.budget;
        let _turn = self.turns.take(&key, until).await?;
        let mut tries = 0;
        let mut known = None;
        loop {
            let state = match known.take() {
                Some(state) => state,
                None => match self.look(&key, until).await? {
                    Ok(state) => state,
                    Err(damaged) => {
                        if self.discard(&key, &damaged, until).await? {
                            return Ok(true);
                        }
                        tries += 1;
                        pause(tries, until).await?;
                        continue;
                    }
                },
            };
            if state.version.is_none() {
                self.cache.forget(&key);
                self.gone(&key);
                return Ok(false);
            }
            known = Some(match self.take_out(&key, &state, self.time_of(&state), until).await? {
                Written::Done => return Ok(true),
                Written::Newer(newer) => newer,
                Written::Again => state,
            });
            tries += 1;
            pause(tries, until).await?;
        }
    }

    /// What is there now; its bytes, if they are damaged.
    async fn look(
        &self,
        key: &ConversationKey,
        until: Instant,
    ) -> Result<Result<Seen, Vec<u8>>, StoreError> {
        let name = self.names.conversation(key);
        let reply = self.ask(&self.scripts.read, &[&name], &[], until).await?;
        match Seen::from_bytes(reply.bytes()) {
            Err(EncodingError::Damaged(_)) => Ok(Err(reply.bytes().to_vec())),
            _ => seen(reply.bytes()).map(Ok),
        }
    }

    /// Deletes what cannot be read, if it is still that. What ended with it cannot be told.
    async fn discard(
        self: &Arc<Self>,
        key: &ConversationKey,
        damaged: &[u8],
        until: Instant,
    ) -> Result<bool, StoreError> {
        let name = self.names.conversation(key);
        let version = &damaged[..damaged.len().min(Version::LENGTH)];
        let arguments: [&[u8]; 6] = [version, b"", b"1", b"0", b"0", b""];
        let reply = self.ask(&self.scripts.write, &[&name], &arguments, until).await?;
        let done = reply.number() == Some(1);
        if done {
            tracing::error!("a conversation in redis that cannot be read is forgotten");
            self.ended(key, until).await;
        }
        Ok(done)
    }

    /// Deletes it if it is still that, and tells what that ends.
    pub(super) async fn take_out(
        self: &Arc<Self>,
        key: &ConversationKey,
        state: &Seen,
        time: Time,
        until: Instant,
    ) -> Result<Written, StoreError> {
        let mut nothing = Seen::default();
        let there = state.stand();
        let written = self.write(key, there, &mut nothing, &Rules::default(), time, until).await?;
        if let Written::Done = &written {
            self.ended(key, until).await;
            let effects = state.conversation.forget(time.now);
            self.tell(key, &effects);
            self.publish(key, &effects);
        }
        Ok(written)
    }
}
