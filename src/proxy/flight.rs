//! A tracked exchange in flight: its place in the ledger, and whether it is still wanted.
//!
//! A [`Flight`] is a guard. However the exchange ends (an answer, a refusal, a client that goes away in
//! the middle of anything), the ledger is told once; what nobody tells, the lease tells. Where the operator
//! lets exchanges go on without the store, what it could not be told is owed to it (`arrears`).

use super::abort::Rid;
use super::flights::{CHECK_EVERY, Place};
use super::gateway::Gateway;
use super::operation;
use crate::guard::fault::Code;
use crate::ledger::calls::Proposal;
use crate::ledger::event::{
    Admit, Admitted, Close, Ending, Event, Fact, Outcome, Settle, Transition,
};
use crate::ledger::rules::Rules;
use crate::store::{ConversationKey, StoreError};
use crate::telemetry::ExchangeSpan;
use http::HeaderValue;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// Most questions to the store at once when all exchanges are looked after.
const AT_ONCE: usize = 64;

/// What became of a request to go up.
pub(crate) enum Admission {
    /// It may. [`Flight`] is the proof. With what enforcing would have refused it for.
    Flight(Flight, Vec<Code>),
    /// It may not.
    Refused(crate::ledger::event::Refused),
    /// The store did not answer.
    Failed(StoreError),
}

/// An admitted exchange, or one that goes on without having been asked about. Only [`Flight::admit`] makes
/// one.
pub(crate) struct Flight {
    gateway: Arc<Gateway>,
    place: Arc<Place>,
    /// `None`: the store did not answer, and it is owed the question.
    admitted: Option<Admitted>,
    /// What its admission brought about.
    facts: Vec<Fact>,
    /// Whether it goes on when the store does not answer.
    goes_on: bool,
    pushed: Option<oneshot::Receiver<Code>>,
    ending: Ending,
    closing: Option<Applying>,
    closed: bool,
}

impl Flight {
    /// Asks the ledger.
    pub(crate) fn admit(
        gateway: &Arc<Gateway>,
        key: ConversationKey,
        event: Admit,
        rules: Arc<Rules>,
        goes_on: bool,
    ) -> Asking {
        let exchange = event.exchange;
        let place = Arc::new(Place { key, exchange, rules });
        // Before the ledger knows of it, so that no cancellation can come too early.
        let pushed = gateway.flights.register(exchange);
        let applying = apply_or_owe(gateway, &place, Event::Admit(event), goes_on);
        let asking = Arc::clone(gateway);
        let asked = Box::pin(async move {
            let applied = applying.await;
            Flight::landed(asking, place, pushed, applied, goes_on)
        });
        Asking { asked: Some(asked), gateway: Arc::clone(gateway) }
    }

    fn landed(
        gateway: Arc<Gateway>,
        place: Arc<Place>,
        pushed: oneshot::Receiver<Code>,
        applied: Result<Transition, StoreError>,
        goes_on: bool,
    ) -> Admission {
        let up = |admitted, would_refuse, facts| {
            gateway.flights.admitted(&place);
            let flight = Flight {
                gateway: Arc::clone(&gateway),
                place: Arc::clone(&place),
                admitted,
                facts,
                goes_on,
                pushed: Some(pushed),
                ending: Ending::ClientGone { calls_sent: false },
                closing: None,
                closed: false,
            };
            Admission::Flight(flight, would_refuse)
        };
        let applied = applied.map(|Transition { outcome, effects, would_refuse }| {
            (outcome, would_refuse, effects.facts)
        });
        let turned_away = match applied {
            Ok((Outcome::Admitted(admitted), would_refuse, facts)) => {
                return up(Some(admitted), would_refuse, facts);
            }
            Err(StoreError::Unavailable(_)) if goes_on => return up(None, Vec::new(), Vec::new()),
            Ok((Outcome::Refused(refused), ..)) => Admission::Refused(refused),
            Ok(_) => {
                Admission::Failed(StoreError::Unavailable("the store answered something else"))
            }
            Err(error) => Admission::Failed(error),
        };
        gateway.flights.forget(place.exchange);
        turned_away
    }

    /// What the ledger said, if it could be asked.
    #[must_use]
    pub(crate) fn admitted(&self) -> Option<&Admitted> {
        self.admitted.as_ref()
    }

    /// Which task its span belongs to, and the waits for tools that it ended.
    pub(super) fn traces(&mut self, span: &mut ExchangeSpan) {
        let Some(admitted) = &self.admitted else { return };
        let Place { key, .. } = &*self.place;
        let mut task = key.principal.as_bytes().to_vec();
        task.extend_from_slice(key.conversation.as_bytes());
        task.extend_from_slice(&admitted.generation.to_be_bytes());
        let digest = self.gateway.store.digest_key().bytes("trace", &task);
        span.belongs_to(*digest.as_bytes());
        for fact in std::mem::take(&mut self.facts) {
            if let Fact::CallAnswered { call, tool, registered, proposed_by } = fact {
                span.waited(&tool, &call, registered, proposed_by);
            }
        }
    }

    /// The upstream works on it, by this id.
    pub(crate) fn goes_up(&self, rid: Option<&Rid>) {
        self.gateway.flights.goes_up(self.place.exchange, rid);
    }

    /// Asks whether a response may go down.
    #[must_use]
    pub(crate) fn settle(&self, mut event: Settle) -> Applying {
        event.exchange = self.place.exchange;
        event.forced |= self.admitted.is_none();
        self.tell(Event::Settle(event))
    }

    /// The answer header with the operation keys of the writes that were registered for this exchange.
    /// `None` as well when the store cannot be read now: the record tells them, and `start` does.
    pub(crate) fn operations(&self) -> impl Future<Output = Option<HeaderValue>> + Send + use<> {
        let (gateway, place) = (Arc::clone(&self.gateway), Arc::clone(&self.place));
        async move {
            let conversation = gateway.read(&place.key).await.ok()??;
            let of = |one: &&Proposal| one.exchange == place.exchange;
            operation::header(conversation.calls().iter().filter(of).flat_map(|one| {
                let writes = one.calls.iter().filter(|call| call.write);
                writes.map(|call| {
                    let write = call.operation(one.generation);
                    (&*call.id, operation::key(gateway.store.digest_key(), &place.key, &write))
                })
            }))
        }
    }

    /// Ready, once, when the exchange is no longer wanted. Never after its end was told.
    pub(crate) fn poll_unwanted(&mut self, cx: &mut Context<'_>) -> Poll<Code> {
        let Some(pushed) = self.pushed.as_mut() else { return Poll::Pending };
        let told = ready!(Pin::new(pushed).poll(cx));
        self.pushed = None;
        told.map_or(Poll::Pending, Poll::Ready)
    }

    /// How it ends when it is dropped now.
    pub(crate) fn ends(&mut self, ending: Ending) {
        self.ending = ending;
    }

    /// Tells the ledger how it ended, and drives that as far as it goes without waiting: a store in this
    /// process has then committed it before the last byte leaves.
    pub(crate) fn close(&mut self, ending: Ending) {
        if self.closed || self.closing.is_some() {
            return;
        }
        self.pushed = None;
        self.ending = ending;
        self.gateway.flights.forget(self.place.exchange);
        self.closing = Some(self.tell(self.close_event()));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let _ = self.poll_closed(&mut cx);
    }

    /// Drives [`Flight::close`] to its end.
    pub(crate) fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(closing) = &mut self.closing {
            if closing.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.closing = None;
            self.closed = true;
        }
        Poll::Ready(())
    }

    fn tell(&self, event: Event) -> Applying {
        apply_or_owe(&self.gateway, &self.place, event, self.goes_on)
    }

    fn close_event(&self) -> Event {
        Event::Close(Close { exchange: self.place.exchange, ending: self.ending })
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.gateway.flights.forget(self.place.exchange);
        if self.closed {
            return;
        }
        let closing = self.closing.take().unwrap_or_else(|| self.tell(self.close_event()));
        self.gateway.spawn(async move {
            if closing.await.is_err() {
                tracing::debug!("an exchange could not be closed: its lease will");
            }
        });
    }
}

impl fmt::Debug for Flight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flight").field("exchange", &self.place.exchange).finish_non_exhaustive()
    }
}

/// Until `cut`, each second: asks the ledger whether what is in flight is still wanted, and lets go of connections that
/// nobody needs.
pub(super) async fn look_after(gateway: Arc<Gateway>, cut: CancellationToken) {
    let mut tick = tokio::time::interval(CHECK_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = cut.cancelled() => return,
            _ = tick.tick() => {}
        }
        gateway.flights.abort_unread(&gateway.aborter);
        gateway.pool.sweep();
        let mut asking = JoinSet::new();
        for place in gateway.flights.under_way() {
            if asking.len() >= AT_ONCE {
                asking.join_next().await;
            }
            asking.spawn(look(Arc::clone(&gateway), place));
        }
        while asking.join_next().await.is_some() {}
    }
}

/// A question whether an exchange may go up. It is asked to its end, whoever still waits for the answer: a client
/// that leaves meanwhile leaves no exchange behind that nobody closes.
pub(crate) struct Asking {
    asked: Option<Pin<Box<dyn Future<Output = Admission> + Send>>>,
    gateway: Arc<Gateway>,
}

impl Future for Asking {
    type Output = Admission;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Admission> {
        let Some(asked) = &mut self.asked else { return Poll::Pending };
        let admission = ready!(asked.as_mut().poll(cx));
        self.asked = None;
        Poll::Ready(admission)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(asked) = self.asked.take() {
            // The flight that this gives is dropped at once, which closes it.
            self.gateway.spawn(async move { drop(asked.await) });
        }
    }
}

/// An answer of the store, owned.
pub(super) type Applying = Pin<Box<dyn Future<Output = Result<Transition, StoreError>> + Send>>;

/// Applies an event at a place, in a future that needs nobody else. When the store does not answer and the
/// exchange goes on all the same, the event is owed.
fn apply_or_owe(
    gateway: &Arc<Gateway>,
    place: &Arc<Place>,
    event: Event,
    goes_on: bool,
) -> Applying {
    let (gateway, place) = (Arc::clone(gateway), Arc::clone(place));
    Box::pin(async move {
        let kept = goes_on.then(|| event.clone());
        let applied = gateway.apply(&place.key, event, &place.rules).await;
        if let (Err(StoreError::Unavailable(_)), Some(event)) = (&applied, kept) {
            gateway.owe(&place.key, event, &place.rules);
        }
        applied
    })
}

/// Asks whether an exchange is still wanted, and passes on a no.
async fn look(gateway: Arc<Gateway>, place: Arc<Place>) {
    let answer = gateway.apply(&place.key, Event::Check(place.exchange), &place.rules).await;
    if let Ok(Transition { outcome: Outcome::Withheld(code), .. }) = answer {
        gateway.flights.tell(place.exchange, code);
    }
}
