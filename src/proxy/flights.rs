//! The exchanges in flight on this replica: who can be told that an answer is no longer wanted, and what
//! is to be asked about again.
//!
//! ```text
//!  Asked ── admitted ──► Admitted ── told (a push, or the ledger when asked) ──► Told
//!    └───────────────────────── told: cancelled as soon as admitted ──────────────▲
//! ```
//!
//! An exchange stands here before the ledger knows of it, so that no cancellation can come too early, and
//! until its end is told. This registry asks nobody anything: [`super::flight`] does.

use super::abort::{Aborter, Rid};
use crate::guard::fault::Code;
use crate::ledger::event::{Effects, ExchangeId};
use crate::ledger::rules::Rules;
use crate::store::{ConversationKey, Listener};
use dashmap::DashMap;
use dashmap::mapref::multiple::RefMulti;
use foldhash::fast::RandomState;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// How often the ledger is asked whether an exchange is still wanted, should a push be lost.
pub(super) const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The exchanges in flight on this replica, by id: where the store's pushes arrive, and whose leases are
/// renewed. That is not left to the answers' bodies: nobody polls the body of a client that is slow to read.
#[derive(Default)]
pub struct Flights {
    /// The ids are random and ours: a fast hash of them will do.
    waiting: DashMap<ExchangeId, Watched, RandomState>,
}

/// Where an exchange stands in the ledger.
pub(super) struct Place {
    pub(super) key: ConversationKey,
    pub(super) exchange: ExchangeId,
    pub(super) rules: Arc<Rules>,
}

/// One exchange that waits for its end.
struct Watched {
    stage: Stage,
    /// What the upstream knows it by, when that is an id of ours.
    rid: Option<Rid>,
}

enum Stage {
    /// The ledger does not know it yet.
    Asked(oneshot::Sender<Code>),
    /// Admitted.
    Admitted(oneshot::Sender<Code>, Arc<Place>),
    /// No longer wanted, and told so then.
    Told(Instant),
}

impl Flights {
    /// It is about to be asked for. The receiver hears when it is not wanted.
    pub(super) fn register(&self, exchange: ExchangeId) -> oneshot::Receiver<Code> {
        let (tell, told) = oneshot::channel();
        self.waiting.insert(exchange, Watched { stage: Stage::Asked(tell), rid: None });
        told
    }

    fn change(&self, exchange: ExchangeId, change: impl FnOnce(&mut Watched)) {
        if let Some(mut watched) = self.waiting.get_mut(&exchange) {
            change(&mut watched);
        }
    }

    /// The ledger knows it.
    pub(super) fn admitted(&self, place: &Arc<Place>) {
        self.change(place.exchange, |watched| {
            let told = Stage::Told(Instant::now());
            watched.stage = match std::mem::replace(&mut watched.stage, told) {
                Stage::Asked(tell) => Stage::Admitted(tell, Arc::clone(place)),
                later => later,
            };
        });
    }

    /// The upstream works on it, by this id.
    pub(super) fn goes_up(&self, exchange: ExchangeId, rid: Option<&Rid>) {
        self.change(exchange, |watched| watched.rid = rid.cloned());
    }

    /// It has ended.
    pub(super) fn forget(&self, exchange: ExchangeId) {
        self.waiting.remove(&exchange);
    }

    /// It is no longer wanted.
    pub(super) fn tell(&self, exchange: ExchangeId, code: Code) {
        self.change(exchange, |watched| {
            let told = Stage::Told(Instant::now());
            match std::mem::replace(&mut watched.stage, told) {
                Stage::Asked(tell) | Stage::Admitted(tell, ..) => {
                    // Nobody listens any more when the exchange has just ended.
                    let _ = tell.send(code);
                }
                before @ Stage::Told(_) => watched.stage = before,
            }
        });
    }

    /// Those in flight that nobody has told anything. All of them, however young: one that is passed over
    /// would be asked about too late, when its push is lost.
    pub(super) fn under_way(&self) -> Vec<Arc<Place>> {
        let place = |entry: RefMulti<'_, ExchangeId, Watched>| match &entry.value().stage {
            Stage::Admitted(_, place) => Some(Arc::clone(place)),
            Stage::Asked(_) | Stage::Told(_) => None,
        };
        self.waiting.iter().filter_map(place).collect()
    }

    /// What was told long ago that it is not wanted and is still there waits for its client to read.
    /// The upstream need not work on for that long; its connection closes when the client reads or leaves.
    pub(super) fn abort_unread(&self, aborter: &Aborter) {
        for mut watched in self.waiting.iter_mut() {
            if matches!(watched.stage, Stage::Told(since) if since.elapsed() >= CHECK_EVERY)
                && let Some(rid) = watched.rid.take()
            {
                aborter.abort(rid, ());
            }
        }
    }
}

impl Listener for Flights {
    fn committed(&self, _: &ConversationKey, effects: &Effects) {
        for (exchange, code) in &effects.cancel {
            self.tell(*exchange, *code);
        }
    }
}

impl fmt::Debug for Flights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flights").field("waiting", &self.waiting.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::ledger::digest::Digest;
    use tokio::sync::oneshot::error::TryRecvError;

    fn place(exchange: ExchangeId) -> Arc<Place> {
        let digest = Digest::from_bytes([0; 16]);
        let key = ConversationKey { principal: digest, conversation: digest };
        Arc::new(Place { key, exchange, rules: Arc::default() })
    }

    #[tokio::test]
    async fn whoever_is_no_longer_wanted_hears_of_it_even_before_it_is_admitted() {
        let flights = Flights::default();
        for admitted_first in [false, true] {
            let mut told = flights.register(ExchangeId(1));
            if admitted_first {
                flights.admitted(&place(ExchangeId(1)));
            }
            assert_eq!(told.try_recv(), Err(TryRecvError::Empty));
            flights.tell(ExchangeId(2), Code::StaleAnswer);
            assert_eq!(told.try_recv(), Err(TryRecvError::Empty), "that was another one");
            flights.tell(ExchangeId(1), Code::StaleAnswer);
            flights.tell(ExchangeId(1), Code::Overtaken);
            assert_eq!(told.await.unwrap(), Code::StaleAnswer, "the first reason holds");
            flights.admitted(&place(ExchangeId(1)));
            flights.forget(ExchangeId(1));
        }
    }

    #[test]
    fn only_what_is_admitted_and_still_wanted_is_asked_about() {
        let flights = Flights::default();
        let asked = |flights: &Flights| -> Vec<u128> {
            flights.under_way().iter().map(|place| place.exchange.0).collect()
        };
        let _told = [1, 2, 3].map(|n| flights.register(ExchangeId(n)));
        assert_eq!(asked(&flights), [0; 0]);
        flights.admitted(&place(ExchangeId(1)));
        flights.admitted(&place(ExchangeId(2)));
        flights.tell(ExchangeId(2), Code::Overtaken);
        assert_eq!(asked(&flights), [1]);
        flights.forget(ExchangeId(1));
        assert_eq!(asked(&flights), [0; 0]);
    }
}
