//! Asking the ledger: a cleared request becomes a [`Passage`], or is refused.
//!
//! `Passage` is a proof: only [`admit`] makes one, and nothing goes up the guarded route without it.

use super::clearance::Cleared;
use super::flight::{Admission, Flight};
use super::gateway::{Gateway, Settings};
use super::refusal::{Refusal, plain_fault};
use crate::guard::fault::{Code, Fault};
use crate::guard::verdict::Action;
use crate::ledger::event::{Admitted, Ending};
use crate::policy::{OnError, Policy};
use crate::store::ConversationKey;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Leave to go up: given by the ledger, or because the ledger is not asked about this exchange, or cannot be
/// asked now and the operator lets it go on. Only [`admit`] makes one.
#[derive(Debug)]
pub(crate) struct Passage {
    flight: Option<Flight>,
    unwatched: bool,
    /// What enforcing would have refused the request for.
    would_refuse: Vec<Code>,
}

impl Passage {
    /// Nothing of this exchange is remembered.
    fn untracked() -> Self {
        Passage { flight: None, unwatched: false, would_refuse: Vec::new() }
    }

    /// The place in the ledger, when the exchange is tracked.
    pub(crate) fn flight(&mut self) -> Option<&mut Flight> {
        self.flight.as_mut()
    }

    /// Tells the ledger how the exchange ended, and waits until it is committed: who asks again right
    /// after our answer must not find this exchange still under way.
    pub(crate) async fn close(&mut self, ending: Ending) {
        if let Some(flight) = &mut self.flight {
            flight.close(ending);
            poll_fn(|cx| flight.poll_closed(cx)).await;
        }
    }

    /// What the ledger said, when the exchange is tracked.
    #[must_use]
    pub(crate) fn admitted(&self) -> Option<&Admitted> {
        self.flight.as_ref().and_then(Flight::admitted)
    }

    /// Whether the ledger learns of what the exchange proposes: now, or when its store answers again.
    #[must_use]
    pub(crate) fn is_recorded(&self) -> bool {
        self.flight.is_some()
    }

    /// What enforcing would have refused the request for, where the operator only watches.
    pub(super) fn would_refuse(&mut self) -> Vec<Code> {
        std::mem::take(&mut self.would_refuse)
    }

    /// Ready when the exchange is no longer wanted and the rules say that this ends it.
    pub(crate) fn poll_unwanted(&mut self, cx: &mut Context<'_>, policy: &Policy) -> Poll<Code> {
        let Some(flight) = self.flight.as_mut().filter(|_| !self.unwatched) else {
            return Poll::Pending;
        };
        let Poll::Ready(code) = flight.poll_unwanted(cx) else { return Poll::Pending };
        if policy.observe || policy.rules.action(code) != Action::Refuse {
            self.unwatched = true;
            return Poll::Pending;
        }
        Poll::Ready(code)
    }
}

/// Asks the ledger whether a cleared request may go up.
///
/// # Errors
/// When it may not, or the store does not answer.
pub(super) async fn admit(
    gateway: &Arc<Gateway>,
    settings: &Settings,
    key: Option<ConversationKey>,
    cleared: &mut Cleared,
) -> Result<Passage, Box<Refusal>> {
    let (Some(event), Some(key)) = (cleared.admit.take(), key) else {
        return Ok(Passage::untracked());
    };
    let (rules, goes_on) = (settings.policy.ledger.clone(), goes_on_without_store(settings));
    match Flight::admit(gateway, key, event, rules, goes_on).await {
        Admission::Flight(flight, would_refuse) => {
            if flight.admitted().is_none() {
                cleared.notes.push(untracked());
            }
            Ok(Passage { flight: Some(flight), unwatched: false, would_refuse })
        }
        Admission::Refused(refused) => {
            let mut refusal = Refusal::of_ledger(refused);
            refusal.notes.append(&mut cleared.notes);
            Err(Box::new(refusal))
        }
        Admission::Failed(error) => Err(Box::new(Refusal::of_store(&error))),
    }
}

/// Whether exchanges go on by the untracked rules while the store does not answer.
pub(super) fn goes_on_without_store(settings: &Settings) -> bool {
    settings.policy.store_on_error == OnError::Open
}

/// The mark of an exchange that went on without the store.
pub(super) fn untracked() -> Fault {
    let message = "the store of conversations is unavailable: judged by the untracked rules";
    plain_fault(Code::StoreUnavailable, "", message)
}

/// Everything that is noted about a request: by the rules, and by the ledger.
pub(super) fn notes(cleared: &Cleared, passage: &Passage) -> Vec<Fault> {
    let mut notes = cleared.notes.clone();
    if let Some(admitted) = passage.admitted() {
        notes.extend(admitted.notes.iter().cloned());
    }
    notes
}
