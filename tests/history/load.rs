//! Clients of one conversation that do everything at once: one goes from task to task, others repeat what
//! it does, at any replica, or tell that the user moved on. What they are told is for the checker.

use super::client::{Client, Reply};
use super::{Action, Outcome};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// Attempts of one generation that are made anew.
const REPEATS: usize = 3;
/// Calls that are looked at after a restart, the newest.
const LOOKED_AT: usize = 6;

/// One conversation, as its clients know it.
#[derive(Debug)]
pub(crate) struct Conversation {
    pub(crate) name: String,
    known: Mutex<Known>,
    /// Tasks that were answered.
    pub(crate) answered: AtomicUsize,
}

#[derive(Debug, Default)]
struct Known {
    /// The highest generation that was asked for.
    asked: u64,
    calls: Vec<Call>,
    /// Of which generation attempts were made anew, and how often: a ledger bounds them.
    repeated: (u64, usize),
}

#[derive(Clone, Debug)]
struct Call {
    generation: u64,
    question: String,
    message: Value,
    id: String,
    content: String,
}

impl Call {
    fn goes_on(&self, declared: bool) -> Action {
        let Call { generation, id, content, .. } = self.clone();
        Action::Continue { generation, call: id, content, declared }
    }

    fn decide(&self, content: &str) -> Action {
        let content = content.to_owned();
        Action::Decide { generation: self.generation, call: self.id.clone(), content }
    }

    fn of(&self) -> (&str, &Value) {
        (&self.question, &self.message)
    }
}

impl Conversation {
    pub(crate) fn new(name: String) -> Arc<Self> {
        Arc::new(Conversation { name, known: Mutex::default(), answered: AtomicUsize::new(0) })
    }

    /// Calls that clients were told of.
    pub(crate) fn calls(&self) -> usize {
        self.known.lock().calls.len()
    }

    /// Task after task, until it is told to stop or an answer does not come.
    pub(crate) async fn drive(&self, client: &Client, urls: &[String], stop: &AtomicBool) {
        while !stop.load(Ordering::SeqCst) {
            if self.task(client, urls).await.is_none() && !self.goes_on(stop).await {
                return;
            }
        }
    }

    /// Meddles with the tasks of the other, until it is told to stop or an answer does not come.
    pub(crate) async fn meddle(&self, client: &Client, urls: &[String], stop: &AtomicBool) {
        while !stop.load(Ordering::SeqCst) {
            let pause = Duration::from_micros(rand::random_range(0..20_000));
            tokio::time::sleep(pause).await;
            if self.disturb(client, urls).await.is_none() && !self.goes_on(stop).await {
                return;
            }
        }
    }

    async fn goes_on(&self, stop: &AtomicBool) -> bool {
        tokio::time::sleep(Duration::from_millis(5)).await;
        !stop.load(Ordering::SeqCst)
    }

    async fn task(&self, client: &Client, urls: &[String]) -> Option<()> {
        let generation = {
            let mut known = self.known.lock();
            known.asked += 1;
            known.asked
        };
        let question = format!("Where is ORDER-{generation}? [[delay:{}]]", delay());
        let opened = client.open(any(urls), &self.name, generation, &question).await?;
        let call = self.learn(generation, &question, &opened)?;
        if generation.is_multiple_of(5) {
            return Some(());
        }
        if generation.is_multiple_of(3) {
            client.ask(any(urls), &self.name, call.decide(&call.content)).await?;
        }
        let action = call.goes_on(false);
        let answered = client.goes_on(any(urls), &self.name, call.of(), action).await?;
        self.answered.fetch_add(usize::from(answered.status == 200), Ordering::SeqCst);
        Some(())
    }

    fn learn(&self, generation: u64, question: &str, opened: &Reply) -> Option<Call> {
        let id = opened.calls().first()?.clone();
        let order = format!("ORDER-{generation}");
        let content = json!({"order_id": order, "status": "in transit"}).to_string();
        let (question, message) = (question.to_owned(), opened.message().clone());
        let call = Call { generation, question, message, id, content };
        self.known.lock().calls.push(call.clone());
        Some(call)
    }

    async fn disturb(&self, client: &Client, urls: &[String]) -> Option<()> {
        let (asked, newest, any_call) = {
            let known = self.known.lock();
            let newest = known.calls.last().cloned();
            let some = (!known.calls.is_empty())
                .then(|| known.calls[rand::random_range(0..known.calls.len())].clone());
            (known.asked, newest, some)
        };
        let (url, name) = (any(urls), &self.name);
        let Some(call) = newest else {
            return client.ask(url, name, Action::Read).await.map(drop);
        };
        let what = rand::random_range(0..10);
        if matches!(what, 2 | 8) && !self.may_repeat(call.generation) {
            return client.ask(url, name, Action::Read).await.map(drop);
        }
        match what {
            0 | 1 => client.goes_on(url, name, call.of(), call.goes_on(false)).await.map(drop),
            2 => client.goes_on(url, name, call.of(), call.goes_on(true)).await.map(drop),
            3 => client.ask(url, name, call.decide(&call.content)).await.map(drop),
            4 => client.ask(url, name, call.decide("{\"status\":\"lost\"}")).await.map(drop),
            5 => client.ask(url, name, any_call?.decide("{\"status\":\"lost\"}")).await.map(drop),
            6 => {
                let Call { generation, id, .. } = call;
                let start = Action::Start { generation, call: id };
                client.ask(url, name, start).await.map(drop)
            }
            7 => {
                let generation = Some(asked + 1);
                self.known.lock().asked = asked + 1;
                client.ask(url, name, Action::Advance { generation }).await.map(drop)
            }
            8 if call.generation == asked => {
                let opened = client.open(url, name, asked, &call.question).await?;
                self.learn(asked, &call.question, &opened);
                Some(())
            }
            _ => client.ask(url, name, Action::Read).await.map(drop),
        }
    }

    fn may_repeat(&self, generation: u64) -> bool {
        let repeated = &mut self.known.lock().repeated;
        if repeated.0 != generation {
            *repeated = (generation, 0);
        }
        repeated.1 += 1;
        repeated.1 <= REPEATS
    }

    /// After a restart: asks about everything that is known. What was told before must be true now.
    pub(crate) async fn look(&self, client: &Client, url: &str) {
        let calls = self.known.lock().calls.clone();
        let name = &self.name;
        let _ = client.ask(url, name, Action::Read).await;
        if let Some(call) = calls.last() {
            let back = Action::Advance { generation: Some(call.generation.saturating_sub(1)) };
            let _ = client.ask(url, name, back).await;
        }
        for call in calls.iter().rev().take(LOOKED_AT) {
            let _ = client.ask(url, name, call.decide(&call.content)).await;
            let _ = client.ask(url, name, call.decide("{\"status\":\"other\"}")).await;
        }
    }
}

/// Lets clients of these conversations ask, three of each, while `strike` does what it does at a random
/// moment; until it is done and they are.
pub(crate) async fn under(
    client: &Client,
    urls: &[String],
    conversations: &[Arc<Conversation>],
    strike: impl AsyncFnOnce(),
) {
    let stop = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for conversation in conversations {
        let (conversation, client) = (Arc::clone(conversation), client.clone());
        let (urls, stop) = (urls.to_vec(), Arc::clone(&stop));
        clients.spawn(async move {
            tokio::join!(
                conversation.drive(&client, &urls, &stop),
                conversation.meddle(&client, &urls, &stop),
                conversation.meddle(&client, &urls, &stop),
            );
        });
    }
    tokio::time::sleep(Duration::from_micros(rand::random_range(1_000..120_000))).await;
    strike().await;
    stop.store(true, Ordering::SeqCst);
    clients.join_all().await;
}

/// How often each kind of answer came: whether there was a load at all.
pub(crate) fn kinds(client: &Client) -> Vec<(&'static str, usize)> {
    let histories = client.recorder.histories();
    let count = |which: fn(&Outcome) -> bool| {
        histories.values().flatten().filter(|op| which(&op.outcome)).count()
    };
    vec![
        ("proposed", count(|one| matches!(one, Outcome::Proposed(_)))),
        ("answered", count(|one| *one == Outcome::Answered)),
        ("accepted", count(|one| *one == Outcome::Accepted)),
        ("advanced", count(|one| matches!(one, Outcome::Advanced { .. }))),
        ("refused", count(|one| matches!(one, Outcome::Refused(_)))),
        ("lost", count(|one| *one == Outcome::Lost)),
    ]
}

fn any(urls: &[String]) -> &str {
    &urls[rand::random_range(0..urls.len())]
}

/// The model takes its time, so that others come in between.
fn delay() -> u64 {
    [0, 0, 1, 3, 10][rand::random_range(0..5)]
}
