//! A tracked exchange in flight: its place in the ledger, and whether it is still wanted.
//!
//! A [`Flight`] is a guard. However the exchange ends (an answer, a refusal, a client that goes away in
//! the middle of anything), the ledger is told once; what nobody tells, the lease tells.

use super::gateway::Gateway;
use crate::guard::fault::Code;
use crate::ledger::event::{
    Admit, Admitted, Close, Effects, Ending, Event, ExchangeId, Outcome, Settle, Transition,
};
use crate::ledger::rules::Rules;
use crate::store::{ConversationKey, Listener, StoreError};
use dashmap::DashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, Interval, MissedTickBehavior};

/// How often the ledger is asked whether an exchange is still wanted, should a push be lost.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The exchanges in flight on this replica, by id: where the store's pushes arrive.
#[derive(Debug, Default)]
pub struct Flights {
    waiting: DashMap<ExchangeId, oneshot::Sender<Code>>,
}

impl Flights {
    fn register(&self, exchange: ExchangeId) -> oneshot::Receiver<Code> {
        let (tell, told) = oneshot::channel();
        self.waiting.insert(exchange, tell);
        told
    }
}

impl Listener for Flights {
    fn committed(&self, _: &ConversationKey, effects: &Effects) {
        for (exchange, code) in &effects.cancel {
            if let Some((_, tell)) = self.waiting.remove(exchange) {
                // Nobody listens any more when the exchange has just ended.
                let _ = tell.send(*code);
            }
        }
    }
}

/// An answer of the store, owned.
pub type Applying = Pin<Box<dyn Future<Output = Result<Transition, StoreError>> + Send>>;

/// Where an exchange stands in the ledger.
struct Place {
    gateway: Arc<Gateway>,
    key: ConversationKey,
    exchange: ExchangeId,
    rules: Arc<Rules>,
}

impl Place {
    fn apply(self: &Arc<Self>, event: Event) -> Applying {
        let place = Arc::clone(self);
        Box::pin(async move { place.gateway.apply(&place.key, event, &place.rules).await })
    }
}

/// What became of a request to go up.
pub enum Admission {
    /// It may. [`Flight`] is the proof.
    Flight(Flight),
    /// It may not.
    Refused(crate::ledger::event::Refused),
    /// The store did not answer.
    Failed(StoreError),
}

/// An admitted exchange. Only [`Flight::admit`] makes one.
pub struct Flight {
    place: Arc<Place>,
    admitted: Admitted,
    pushed: Option<oneshot::Receiver<Code>>,
    tick: Interval,
    check: Option<Applying>,
    ending: Ending,
    closing: Option<Applying>,
    closed: bool,
}

impl Flight {
    /// Asks the ledger. The question lives on in a task of its own: a client that leaves while it is
    /// asked leaves no exchange behind that nobody closes.
    pub async fn admit(
        gateway: &Arc<Gateway>,
        key: ConversationKey,
        event: Admit,
        rules: Arc<Rules>,
    ) -> Admission {
        let exchange = event.exchange;
        let place = Arc::new(Place { gateway: Arc::clone(gateway), key, exchange, rules });
        // Before the ledger knows of it, so that no cancellation can come too early.
        let pushed = gateway.flights.register(exchange);
        let (tell, told) = oneshot::channel();
        gateway.spawn(async move {
            let applied = place.apply(Event::Admit(event)).await;
            // When nobody waits any more the flight is dropped here, which closes it.
            let _ = tell.send(Flight::landed(place, pushed, applied));
        });
        told.await.unwrap_or(Admission::Failed(StoreError::Unavailable("admission was cut off")))
    }

    fn landed(
        place: Arc<Place>,
        pushed: oneshot::Receiver<Code>,
        applied: Result<Transition, StoreError>,
    ) -> Admission {
        let forget = |place: &Place| drop(place.gateway.flights.waiting.remove(&place.exchange));
        match applied.map(|transition| transition.outcome) {
            Ok(Outcome::Admitted(admitted)) => {
                let mut tick = tokio::time::interval_at(Instant::now() + CHECK_EVERY, CHECK_EVERY);
                tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
                Admission::Flight(Flight {
                    place,
                    admitted,
                    pushed: Some(pushed),
                    tick,
                    check: None,
                    ending: Ending::ClientGone { calls_sent: false },
                    closing: None,
                    closed: false,
                })
            }
            Ok(Outcome::Refused(refused)) => {
                forget(&place);
                Admission::Refused(refused)
            }
            Ok(_) => {
                forget(&place);
                Admission::Failed(StoreError::Unavailable("the store answered something else"))
            }
            Err(error) => {
                forget(&place);
                Admission::Failed(error)
            }
        }
    }

    /// What the ledger said.
    #[must_use]
    pub fn admitted(&self) -> &Admitted {
        &self.admitted
    }

    /// Asks whether a response may go down.
    #[must_use]
    pub fn settle(&self, mut event: Settle) -> Applying {
        event.exchange = self.place.exchange;
        self.place.apply(Event::Settle(event))
    }

    /// Ready when the exchange is no longer wanted: by push, or by asking each second.
    pub fn poll_unwanted(&mut self, cx: &mut Context<'_>) -> Poll<Code> {
        if let Some(pushed) = &mut self.pushed {
            match Pin::new(pushed).poll(cx) {
                Poll::Ready(told) => {
                    self.pushed = None;
                    if let Ok(code) = told {
                        return Poll::Ready(code);
                    }
                }
                Poll::Pending => {}
            }
        }
        loop {
            if let Some(check) = &mut self.check {
                let Poll::Ready(answer) = check.as_mut().poll(cx) else { return Poll::Pending };
                self.check = None;
                if let Ok(Transition { outcome: Outcome::Withheld(code), .. }) = answer {
                    return Poll::Ready(code);
                }
            }
            if self.tick.poll_tick(cx).is_pending() {
                return Poll::Pending;
            }
            self.check = Some(self.place.apply(Event::Check(self.place.exchange)));
        }
    }

    /// How it ends when it is dropped now.
    pub fn ends(&mut self, ending: Ending) {
        self.ending = ending;
    }

    /// Tells the ledger how it ended, and drives that as far as it goes without waiting: a store in this
    /// process has then committed it before the last byte leaves.
    pub fn close(&mut self, ending: Ending) {
        if self.closed || self.closing.is_some() {
            return;
        }
        self.pushed = None;
        self.ending = ending;
        self.closing = Some(self.place.apply(self.close_event()));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let _ = self.poll_closed(&mut cx);
    }

    /// Drives [`Flight::close`] to its end.
    pub fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(closing) = &mut self.closing {
            if closing.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.closing = None;
            self.closed = true;
        }
        Poll::Ready(())
    }

    fn close_event(&self) -> Event {
        Event::Close(Close { exchange: self.place.exchange, ending: self.ending })
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.place.gateway.flights.waiting.remove(&self.place.exchange);
        if self.closed {
            return;
        }
        let closing = self.closing.take().unwrap_or_else(|| self.place.apply(self.close_event()));
        self.place.gateway.spawn(async move {
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
