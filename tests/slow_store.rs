//! What happens while the store is asked: a client that goes away leaves no exchange behind, and an answer that is
//! overtaken between its settling and its head is refused like any other.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[expect(dead_code, reason = "what other tests need")]
mod rig;

use rig::{Upstream, ask, chat, client, policy, send, text, within};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tigertally::control;
use tigertally::ledger::Conversation;
use tigertally::ledger::digest::DigestKey;
use tigertally::ledger::event::{Advance, Ending, Event, ExchangeId, Millis, Transition};
use tigertally::ledger::rules::Rules;
use tigertally::proxy::Flights;
use tigertally::store::memory::MemoryStore;
use tigertally::store::{Answer, ConversationKey, Store};
use tigertally::telemetry::Metrics;
use tokio::sync::{Semaphore, mpsc};

/// What a store of conversations was asked to apply.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Admit,
    Close(Ending),
}

/// Tells what it is asked, and applies an admission only with a permit.
struct Slow {
    /// Whether the user moves on as soon as an answer is settled.
    moves_on: bool,
    store: MemoryStore,
    asked: mpsc::Sender<Asked>,
    permits: Arc<Semaphore>,
}

impl Store for Slow {
    fn digest_key(&self) -> &DigestKey {
        self.store.digest_key()
    }

    fn apply<'a>(
        &'a self,
        key: &'a ConversationKey,
        event: Event,
        rules: &'a Arc<Rules>,
    ) -> Answer<'a, Transition> {
        Box::pin(async move {
            match &event {
                Event::Admit(_) => {
                    self.asked.send(Asked::Admit).await.unwrap();
                    self.permits.acquire().await.unwrap().forget();
                }
                Event::Close(close) => {
                    self.asked.send(Asked::Close(close.ending)).await.unwrap();
                }
                _ => {}
            }
            let settled = self.moves_on && matches!(event, Event::Settle(_));
            let applied = self.store.apply(key, event, rules).await;
            if settled {
                let advance =
                    Advance { exchange: ExchangeId(7), generation: None, idempotency: None };
                let advance = Event::Advance(advance);
                self.store.apply(key, advance, rules).await.unwrap();
            }
            applied
        })
    }

    fn remove<'a>(&'a self, key: &'a ConversationKey) -> Answer<'a, bool> {
        self.store.remove(key)
    }

    fn read<'a>(&'a self, key: &'a ConversationKey) -> Answer<'a, Option<Conversation>> {
        self.store.read(key)
    }

    fn sweep<'a>(&'a self, rules: &'a Arc<Rules>) -> Answer<'a, ()> {
        self.store.sweep(rules)
    }

    fn ready(&self) -> Answer<'_, ()> {
        self.store.ready()
    }

    fn conversations(&self) -> usize {
        self.store.conversations()
    }
}

fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Millis(u64::try_from(since.as_millis()).unwrap())
}

#[tokio::test]
async fn a_client_that_leaves_while_the_store_is_asked_leaves_nothing_under_way() {
    let mut upstream = Upstream::start().await;
    let policy = policy(&upstream);
    let metrics = Metrics::new(&policy.tools).unwrap();
    let flights = Arc::new(Flights::default());
    let (asked, mut told) = mpsc::channel(8);
    let permits = Arc::new(Semaphore::new(0));
    let key = DigestKey::new([0; 32]);
    let store = MemoryStore::new(key, Arc::new(now), flights.clone(), 10);
    let slow = Arc::new(Slow { moves_on: false, store, asked, permits: Arc::clone(&permits) });
    let guard = control::start(policy, slow, flights, metrics).await.unwrap();

    let tracked =
        |name| chat(&guard, &[("x-conversation-id", "c"), ("x-request-id", name)], ask(false));
    let leaving = client();
    let mut waiting = Box::pin(send(&leaving, tracked("first")));
    tokio::select! {
        _ = waiting.as_mut() => panic!("nobody has let it in"),
        asked = within(told.recv()) => assert_eq!(asked, Some(Asked::Admit)),
    }
    drop(waiting);
    drop(leaving);
    // The proxy has noticed, and nobody waits for the answer any more.
    within(async {
        while guard.gateway().metrics().in_flight_now() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    permits.add_permits(1);
    let closed = within(told.recv()).await;
    assert_eq!(closed, Some(Asked::Close(Ending::ClientGone { calls_sent: false })));

    // The nearest sound one: its client waits.
    permits.add_permits(1);
    let body = r#"{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}"#;
    upstream.will(rig::json(body));
    let passed = send(&client(), tracked("second")).await;
    assert_eq!(passed.status(), 200);
    assert_eq!(text(passed).await, body);
    let (path, headers, _) = upstream.saw_request().await;
    assert_eq!((&*path, &headers["x-request-id"]), (rig::CHAT, &"second".parse().unwrap()));
    assert_eq!(within(told.recv()).await, Some(Asked::Admit));
    assert_eq!(within(told.recv()).await, Some(Asked::Close(Ending::Delivered)));
    guard.shutdown().await;
}

#[tokio::test]
async fn an_answer_that_is_overtaken_before_its_head_goes_is_refused() {
    let upstream = Upstream::start().await;
    let policy = policy(&upstream);
    let metrics = Metrics::new(&policy.tools).unwrap();
    let flights = Arc::new(Flights::default());
    let (asked, _told) = mpsc::channel(8);
    let permits = Arc::new(Semaphore::new(8));
    let key = DigestKey::new([0; 32]);
    let store = MemoryStore::new(key, Arc::new(now), flights.clone(), 10);
    let slow = Arc::new(Slow { moves_on: true, store, asked, permits });
    let guard = control::start(policy, slow, flights, metrics).await.unwrap();

    let body = r#"{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}"#;
    upstream.will(rig::json(body));
    let refused = send(&client(), chat(&guard, &[("x-conversation-id", "c")], ask(false))).await;
    assert_eq!(refused.status(), 422);
    let said = text(refused).await;
    assert!(said.contains("\"code\":\"stale_answer\""), "{said}");

    // The nearest sound one: nobody tracks it, so nobody moves on.
    upstream.will(rig::json(body));
    let passed = send(&client(), chat(&guard, &[], ask(false))).await;
    assert_eq!((passed.status().as_u16(), &*text(passed).await), (200, body));
    guard.shutdown().await;
}
