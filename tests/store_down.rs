//! While the store of conversations fails, what needs it is refused in a way that clients retry, and what
//! does not need it goes on.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[expect(dead_code, reason = "what other tests need")]
mod rig;

use http::Request;
use http_body_util::Full;
use rig::{Upstream, ask, chat, client, error, policy, send, text};
use std::future::ready;
use std::sync::Arc;
use tigertally::control;
use tigertally::ledger::Conversation;
use tigertally::ledger::digest::DigestKey;
use tigertally::ledger::event::{Event, Transition};
use tigertally::ledger::rules::Rules;
use tigertally::proxy::{Flights, Running};
use tigertally::store::{Answer, ConversationKey, Store, StoreError};
use tigertally::telemetry::Metrics;

const ANSWER: &str = r#"{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}"#;

/// Fails at everything, in this way.
struct Down(DigestKey, StoreError);

impl Down {
    fn fails<T: Send + 'static>(&self) -> Answer<'static, T> {
        Box::pin(ready(Err(self.1.clone())))
    }
}

impl Store for Down {
    fn digest_key(&self) -> &DigestKey {
        &self.0
    }

    fn apply<'a>(
        &'a self,
        _: &'a ConversationKey,
        _: Event,
        _: &'a Arc<Rules>,
    ) -> Answer<'a, Transition> {
        self.fails()
    }

    fn remove<'a>(&'a self, _: &'a ConversationKey) -> Answer<'a, bool> {
        self.fails()
    }

    fn read<'a>(&'a self, _: &'a ConversationKey) -> Answer<'a, Option<Conversation>> {
        self.fails()
    }

    fn sweep<'a>(&'a self, _: &'a Arc<Rules>) -> Answer<'a, ()> {
        self.fails()
    }

    fn ready(&self) -> Answer<'_, ()> {
        self.fails()
    }

    fn conversations(&self) -> usize {
        0
    }
}

async fn guard(upstream: &Upstream, error: StoreError) -> Running {
    let policy = policy(upstream);
    let metrics = Metrics::new(&policy.tools).unwrap();
    let store = Arc::new(Down(DigestKey::new([0; 32]), error));
    control::start(policy, store, Arc::new(Flights::default()), metrics).await.unwrap()
}

#[tokio::test]
async fn tracked_requests_are_refused_so_that_clients_retry_and_untracked_ones_pass() {
    let mut upstream = Upstream::start().await;
    for (failure, code) in
        [(StoreError::Unavailable("down"), "store_unavailable"), (StoreError::Full, "overloaded")]
    {
        let guard = guard(&upstream, failure).await;
        let tracked = chat(&guard, &[("x-conversation-id", "c")], ask(false));
        let refused = send(&client(), tracked).await;
        assert_eq!(refused.status(), 503);
        assert!(!refused.headers().contains_key("x-should-retry"), "a retry is right");
        assert!(refused.headers().contains_key("retry-after"));
        assert_eq!(error(&text(refused).await)["code"], code);
        upstream.will(rig::json(ANSWER));
        let passed = send(&client(), chat(&guard, &[], ask(false))).await;
        assert_eq!(passed.status(), 200);
        assert_eq!(text(passed).await, ANSWER);
        // The one that reached the upstream is the untracked one.
        assert_eq!(upstream.saw_request().await.0, rig::CHAT);
    }
}

#[tokio::test]
async fn the_readiness_probe_says_so() {
    let upstream = Upstream::start().await;
    let guard = guard(&upstream, StoreError::Unavailable("down")).await;
    let url = format!("http://{}/readyz", guard.admin_addr);
    let answer = send(&client(), Request::get(url).body(Full::default()).unwrap()).await;
    assert_eq!(answer.status(), 503);
    let body: serde_json::Value = serde_json::from_str(&text(answer).await).unwrap();
    assert_eq!((&body["store"], &body["upstream"]), (&false.into(), &true.into()));
}
