//! One application with one conversation. Its user asks about one order after the other, and does not
//! always wait for the answer.

mod known;
mod late;
mod talk;

use crate::exchange::{Ask, HttpClient, Outcome, Track, run};
use crate::plan::{Kind, Plan};
use crate::world::World;
use http::Method;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use known::ACCEPTED;
pub(crate) use known::Known;
use late::Late;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// What tells it, within a JSON text.
pub(crate) const NOTICE_CODE: &str = r#"\"code\":\"superseded\""#;
/// Turns that stay in the list.
const REMEMBERED: usize = 3;
/// Tries of one request.
const TRIES: u32 = 3;

/// The name of the conversation of the application with this number.
pub(crate) fn name(number: usize) -> String {
    format!("conversation-{number}")
}

/// The number of the application that asks about `order`.
pub(crate) fn number_of(order: &str) -> usize {
    order.split('-').nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// What became of an exchange, as far as its application waited.
enum Fate {
    Ended(Outcome),
    /// The client went away.
    Left,
    /// The user moved on; the answer is still being read.
    Moved,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Retry {
    First,
    Undeclared,
    Declared,
}

pub(crate) struct Application {
    number: usize,
    world: Arc<World>,
    client: HttpClient,
    url: String,
    dice: StdRng,
    by_header: bool,
    turn: u64,
    generation: u64,
    /// The next advance is told by the control API.
    by_control: bool,
    past: VecDeque<Vec<Value>>,
    outstanding: Vec<Arc<Track>>,
    background: JoinSet<Outcome>,
    late: Option<Late>,
    known: Known,
}

impl Application {
    pub(crate) fn new(number: usize, world: &Arc<World>, url: &str) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(Duration::from_secs(2))
            // There, to leave is to reset one stream of a connection that goes on.
            .http2_only(number % 4 == 1)
            .build_http();
        Application {
            number,
            world: Arc::clone(world),
            client,
            url: url.to_owned(),
            dice: StdRng::seed_from_u64(number as u64),
            by_header: number.is_multiple_of(2) != (number % 8 < 4),
            turn: 0,
            generation: 0,
            by_control: false,
            past: VecDeque::new(),
            outstanding: Vec::new(),
            background: JoinSet::new(),
            late: None,
            known: Known::default(),
        }
    }

    /// Turn after turn until then. Its number, and what it knows of the ledger.
    pub(crate) async fn run(mut self, end: Instant) -> (usize, Known) {
        while Instant::now() < end {
            self.turn().await;
            while self.background.try_join_next().is_some() {}
        }
        match self.number % 4 {
            0 | 2 => self.advance().await,
            3 => self.vanish().await,
            _ => {}
        }
        while self.background.join_next().await.is_some() {}
        self.known.generation = self.by_header.then_some(self.generation);
        (self.number, self.known)
    }

    /// Asks once more and goes away for good: nothing that follows could tidy up after it.
    async fn vanish(&mut self) {
        self.turn += 1;
        self.move_on().await;
        let order = format!("ORDER-{:02}-{}", self.number, self.turn);
        let mut list = self.list();
        let question = Plan::random(&mut self.dice).question(&order);
        list.push(json!({"role": "user", "content": question}));
        let (ask, track) = self.ask(&order, Kind::Opening, &list, Retry::First, Vec::new());
        let world = Arc::clone(&self.world);
        tokio::select! {
            _ = run(Arc::clone(&world), self.client.clone(), ask, track) => {}
            () = world.saw_more(&order, Kind::Opening, 0) => {}
        }
        self.world.counts.disconnects.fetch_add(1, Relaxed);
    }

    /// One order, from the question to the answer, or to the next question.
    async fn turn(&mut self) {
        self.turn += 1;
        self.world.counts.turns.fetch_add(1, Relaxed);
        let order = format!("ORDER-{:02}-{}", self.number, self.turn);
        let plan = Plan::random(&mut self.dice);
        let user = json!({"role": "user", "content": plan.question(&order)});
        if self.dice.random_bool(0.02) {
            self.forget().await;
        }
        self.move_on().await;
        let mut list = self.list();
        list.push(user.clone());
        let opened = self.exchange(&order, Kind::Opening, &list).await;
        self.bring_late().await;
        let Fate::Ended(Outcome::Answered { call: Some(call), generation }) = opened else {
            self.remember(vec![user]);
            return;
        };
        self.known.came(generation, &call);
        let proposal = json!({"role": "assistant", "content": null, "tool_calls": [{
            "id": call.id, "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }]});
        let result =
            |content: &str| json!({"role": "tool", "tool_call_id": call.id, "content": content});
        self.pause(0..30).await;
        let mut taken = vec![user, proposal];
        if self.dice.random_bool(0.25) {
            self.leave_the_tool(&order, call.clone(), generation, list, taken, &result);
            return;
        }
        let good = format!("GOOD-{order}");
        if self.dice.random_bool(0.15) {
            self.decide(&call, generation, &good, 200).await;
            self.known.is(generation, &call, ACCEPTED);
            self.world.counts.decided_by_control.fetch_add(1, Relaxed);
        }
        taken.push(result(&good));
        list.extend_from_slice(&taken[1..]);
        let answered = self.exchange(&order, Kind::Continuation, &list).await;
        if matches!(answered, Fate::Ended(Outcome::Answered { .. })) {
            self.known.is(generation, &call, ACCEPTED);
            taken.push(json!({"role": "assistant", "content": format!("{order} is shipped.")}));
        }
        self.remember(taken);
    }

    /// One request, with its tries, and how the user behaves meanwhile.
    async fn exchange(&mut self, order: &str, kind: Kind, list: &[Value]) -> Fate {
        let mut retry = Retry::First;
        for left in (0..TRIES).rev() {
            let before = self.world.acts(order, kind).len();
            let (ask, track) = self.ask(order, kind, list, retry, Vec::new());
            let world = Arc::clone(&self.world);
            let mut running = Box::pin(run(world, self.client.clone(), ask, Arc::clone(&track)));
            let behaviour = self.dice.random_range(0..100);
            let patience = Duration::from_millis(self.dice.random_range(0..200));
            let world = Arc::clone(&self.world);
            let interrupted = async {
                // Only once the upstream has it: two requests on two connections have no order.
                world.saw_more(order, kind, before).await;
                tokio::time::sleep(patience).await;
            };
            let ended = tokio::select! {
                outcome = &mut running => Some(outcome),
                () = interrupted, if behaviour < 45 => None,
            };
            match ended {
                Some(Outcome::Stopped(code))
                    if code != "duplicate" && left > 0 && self.dice.random_bool(0.5) =>
                {
                    retry = Retry::Undeclared;
                }
                Some(outcome) => return Fate::Ended(outcome),
                None if behaviour < 15 => {
                    self.world.counts.switches.fetch_add(1, Relaxed);
                    self.background.spawn(running);
                    return Fate::Moved;
                }
                None if behaviour < 30 => {
                    drop(running);
                    self.world.counts.disconnects.fetch_add(1, Relaxed);
                    if left == 0 || self.dice.random_bool(0.4) {
                        return Fate::Left;
                    }
                    retry = self.some_retry();
                }
                None => {
                    let retry = self.some_retry();
                    let taken_over = kind == Kind::Opening || retry == Retry::Declared;
                    let older = if taken_over { vec![Arc::clone(&track)] } else { Vec::new() };
                    older.iter().for_each(|older| older.excuse());
                    let (ask, newer) = self.ask(order, kind, list, retry, older);
                    let world = Arc::clone(&self.world);
                    let second = run(world, self.client.clone(), ask, newer);
                    let (first, second) = tokio::join!(running, second);
                    let better = matches!(second, Outcome::Answered { .. });
                    return Fate::Ended(if better { second } else { first });
                }
            }
        }
        Fate::Left
    }

    fn some_retry(&mut self) -> Retry {
        if self.dice.random_bool(0.5) { Retry::Declared } else { Retry::Undeclared }
    }

    /// A question to the proxy, and the track of it. An opening replaces what is outstanding.
    fn ask(
        &mut self,
        order: &str,
        kind: Kind,
        list: &[Value],
        retry: Retry,
        mut replaces: Vec<Arc<Track>>,
    ) -> (Ask, Arc<Track>) {
        let track = Arc::new(Track::default());
        match retry {
            Retry::First if kind == Kind::Opening => {
                self.outstanding.iter().for_each(|older| older.excuse());
                replaces.append(&mut self.outstanding);
            }
            Retry::First => {}
            Retry::Undeclared => {
                let may = kind == Kind::Continuation;
                track.may_be_duplicate.store(may, Relaxed);
                self.world.counts.retries_undeclared.fetch_add(1, Relaxed);
            }
            Retry::Declared => {
                self.world.counts.retries_declared.fetch_add(1, Relaxed);
            }
        }
        self.outstanding.retain(|one| Arc::strong_count(one) > 1);
        self.outstanding.push(Arc::clone(&track));
        let request = self.request(list, retry, self.generation, false);
        let slow = self.dice.random_bool(0.1);
        (Ask { order: order.to_owned(), kind, request, slow, replaces }, track)
    }

    /// The next question belongs to a new generation; decides how the one after it will.
    async fn move_on(&mut self) {
        if self.by_control {
            self.advance().await;
        } else {
            self.generation += 1;
        }
        self.by_control = self.dice.random_bool(0.3);
    }

    /// Tells by the control API that the user moved on.
    async fn advance(&mut self) {
        self.world.counts.control_advances.fetch_add(1, Relaxed);
        self.generation += 1;
        let body = if self.by_header { json!({"generation": self.generation}) } else { json!({}) };
        self.outstanding.iter().for_each(|older| older.excuse());
        let path = "/generation";
        self.control(Method::POST, path, body, 200).await;
        let now = self.world.now();
        self.outstanding.drain(..).for_each(|older| older.supersede(now));
    }

    /// Forgets the conversation, and what the application knows of it.
    async fn forget(&mut self) {
        self.world.counts.forgotten.fetch_add(1, Relaxed);
        self.outstanding.iter().for_each(|older| older.excuse());
        self.control(Method::DELETE, "", json!({}), 200).await;
        let now = self.world.now();
        self.outstanding.drain(..).for_each(|older| older.supersede(now));
        self.past.clear();
        self.known.forget();
        self.late = None;
    }

    /// The beginning of every list, and what is remembered of the turns before.
    fn list(&self) -> Vec<Value> {
        let mut list = vec![
            json!({"role": "system", "content": "You look up orders."}),
            json!({"role": "user", "content": format!("Hello from {}.", self.number)}),
        ];
        list.extend(self.past.iter().flatten().cloned());
        list
    }

    fn remember(&mut self, turn: Vec<Value>) {
        self.past.push_back(turn);
        if self.past.len() > REMEMBERED {
            self.past.pop_front();
        }
    }

    async fn pause(&mut self, millis: std::ops::Range<u64>) {
        let millis = self.dice.random_range(millis);
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
}
