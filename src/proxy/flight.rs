//! A tracked exchange in flight: its place in the ledger, and whether it is still wanted.
//!
//! A [`Flight`] is a guard. However the exchange ends (an answer, a refusal, a client that goes away in
//! the middle of anything), the ledger is told once; what nobody tells, the lease tells.

use super::abort::{Aborter, Rid};
use super::gateway::Gateway;
use super::operation;
use crate::guard::fault::Code;
use crate::ledger::calls::Proposal;
use crate::ledger::event::{
    Admit, Admitted, Close, Effects, Ending, Event, ExchangeId, Outcome, Settle, Transition,
};
use crate::ledger::rules::Rules;
use crate::store::{ConversationKey, Listener, StoreError};
use dashmap::DashMap;
use dashmap::mapref::multiple::RefMulti;
use http::HeaderValue;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

/// How often the ledger is asked whether an exchange is still wanted, should a push be lost.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Most questions to the store at once when all exchanges are looked after.
const AT_ONCE: usize = 64;

/// The exchanges in flight on this replica, by id: where the store's pushes arrive, and whose leases are
/// renewed. That is not left to the answers' bodies: nobody polls the body of a client that is slow to read.
#[derive(Default)]
pub struct Flights {
    waiting: DashMap<ExchangeId, Watched>,
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
    /// Admitted since then.
    Admitted(oneshot::Sender<Code>, Instant, Arc<Place>),
    /// No longer wanted, and told so then.
    Told(Instant),
}

impl Flights {
    fn register(&self, exchange: ExchangeId) -> oneshot::Receiver<Code> {
        let (tell, told) = oneshot::channel();
        self.waiting.insert(exchange, Watched { stage: Stage::Asked(tell), rid: None });
        told
    }

    fn change(&self, exchange: ExchangeId, change: impl FnOnce(&mut Watched)) {
        if let Some(mut watched) = self.waiting.get_mut(&exchange) {
            change(&mut watched);
        }
    }

    fn admitted(&self, place: &Arc<Place>) {
        let now = Instant::now();
        self.change(place.exchange, |watched| {
            watched.stage = match std::mem::replace(&mut watched.stage, Stage::Told(now)) {
                Stage::Asked(tell) => Stage::Admitted(tell, now, Arc::clone(place)),
                later => later,
            };
        });
    }

    fn tell(&self, exchange: ExchangeId, code: Code) {
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

    /// Until `cut`: asks the ledger each second whether what is in flight is still wanted.
    pub(super) async fn look_after(gateway: Arc<Gateway>, cut: CancellationToken) {
        let mut tick = tokio::time::interval(CHECK_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = cut.cancelled() => return,
                _ = tick.tick() => {}
            }
            gateway.flights.abort_unread(&gateway.aborter);
            let mut asking = JoinSet::new();
            for place in gateway.flights.long_under_way() {
                if asking.len() >= AT_ONCE {
                    asking.join_next().await;
                }
                asking.spawn(place.look());
            }
            while asking.join_next().await.is_some() {}
        }
    }

    fn long_under_way(&self) -> Vec<Arc<Place>> {
        let place = |entry: RefMulti<'_, ExchangeId, Watched>| match &entry.value().stage {
            Stage::Admitted(_, since, place) if since.elapsed() >= CHECK_EVERY => {
                Some(Arc::clone(place))
            }
            _ => None,
        };
        self.waiting.iter().filter_map(place).collect()
    }

    /// What was told long ago that it is not wanted and is still there waits for its client to read.
    /// The upstream need not work on for that long; its connection closes when the client reads or leaves.
    fn abort_unread(&self, aborter: &Aborter) {
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

    /// Asks whether the exchange is still wanted, and passes on a no.
    async fn look(self: Arc<Self>) {
        let answer = self.apply(Event::Check(self.exchange)).await;
        if let Ok(Transition { outcome: Outcome::Withheld(code), .. }) = answer {
            self.gateway.flights.tell(self.exchange, code);
        }
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
                place.gateway.flights.admitted(&place);
                Admission::Flight(Flight {
                    place,
                    admitted,
                    pushed: Some(pushed),
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

    /// The upstream works on it, by this id.
    pub fn goes_up(&self, rid: Option<&Rid>) {
        let flights = &self.place.gateway.flights;
        flights.change(self.place.exchange, |watched| watched.rid = rid.cloned());
    }

    /// Asks whether a response may go down.
    #[must_use]
    pub fn settle(&self, mut event: Settle) -> Applying {
        event.exchange = self.place.exchange;
        self.place.apply(Event::Settle(event))
    }

    /// The answer header with the operation keys of the writes that were registered for this exchange.
    /// `None` as well when the store cannot be read now: the record tells them, and `start` does.
    pub fn operations(&self) -> impl Future<Output = Option<HeaderValue>> + Send + use<> {
        let place = Arc::clone(&self.place);
        async move {
            let store = &place.gateway.store;
            let conversation = store.read(&place.key).await.ok()??;
            let of = |one: &&Proposal| one.exchange == place.exchange;
            operation::header(conversation.calls().iter().filter(of).flat_map(|one| {
                let writes = one.calls.iter().filter(|call| call.write);
                writes.map(|call| {
                    let write = call.operation(one.generation);
                    (&*call.id, operation::key(store.digest_key(), &place.key, &write))
                })
            }))
        }
    }

    /// Ready, once, when the exchange is no longer wanted. Never after its end was told.
    pub fn poll_unwanted(&mut self, cx: &mut Context<'_>) -> Poll<Code> {
        let Some(pushed) = self.pushed.as_mut() else { return Poll::Pending };
        let told = ready!(Pin::new(pushed).poll(cx));
        self.pushed = None;
        told.map_or(Poll::Pending, Poll::Ready)
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
        self.pushed = None;
        self.place.gateway.flights.waiting.remove(&self.place.exchange);
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
