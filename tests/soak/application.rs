//! One application with one conversation. Its user asks about one order after the other, and does not
//! always wait for the answer.

use crate::exchange::{Ask, HttpClient, Outcome, Track, run};
use crate::plan::{Kind, Plan};
use crate::world::{Call, World};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The text that stands in place of a superseded call's result.
const NOTICE: &str = r#"{"ok":false,"error":{"code":"superseded"}}"#;
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

/// A call of the turn before that its application never brought a result of in time.
struct Late {
    order: String,
    list: Vec<Value>,
    call: Call,
    generation: Option<u64>,
    /// Its application's generation header.
    header: u64,
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
        }
    }

    /// Turn after turn until then.
    pub(crate) async fn run(mut self, end: Instant) {
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
            self.world.counts.decided_by_control.fetch_add(1, Relaxed);
        }
        taken.push(result(&good));
        list.extend_from_slice(&taken[1..]);
        let answered = self.exchange(&order, Kind::Continuation, &list).await;
        if matches!(answered, Fate::Ended(Outcome::Answered { .. })) {
            taken.push(json!({"role": "assistant", "content": format!("{order} is shipped.")}));
        }
        self.remember(taken);
    }

    /// The user asks something else while the tool runs. What the application makes of the call then: it
    /// drops the turn, closes it, or puts the result in all the same.
    fn leave_the_tool(
        &mut self,
        order: &str,
        call: Call,
        generation: Option<u64>,
        list: Vec<Value>,
        mut taken: Vec<Value>,
        result: &dyn Fn(&str) -> Value,
    ) {
        self.world.counts.switches.fetch_add(1, Relaxed);
        // Without the header and an advance by the control API, a result that comes with the next
        // question belongs to the order that asked for it, and counts.
        let counts = !self.by_header && !self.by_control;
        let mut late_list = list;
        late_list.push(taken[1].clone());
        late_list.push(result(&format!("LATE-{order}")));
        match self.dice.random_range(0..4) {
            0 => taken.truncate(1),
            1 => taken.push(result(NOTICE)),
            _ if counts => taken.push(result(&format!("GOOD-{order}"))),
            _ => taken.push(result(&format!("LATE-{order}"))),
        }
        // What the next question closes or brings has its result then; anything else comes late.
        if !counts || taken.len() == 1 {
            let (order, header) = (order.to_owned(), self.generation);
            self.late = Some(Late { order, list: late_list, call, generation, header });
        }
        self.remember(taken);
    }

    /// Brings what is too late, in one of three ways, and must be refused.
    async fn bring_late(&mut self) {
        let Some(late) = self.late.take() else { return };
        match self.dice.random_range(0..3) {
            0 => {
                let content = format!("LATE-{}", late.order);
                self.decide(&late.call, late.generation, &content, 422).await;
                self.world.counts.late_refused.fetch_add(1, Relaxed);
            }
            1 => {
                let request = self.request(&late.list, Retry::First, late.header, true);
                self.refused(&late.order, request).await;
            }
            _ => {
                let opening = &late.list[..late.list.len() - 2];
                let request = self.request(opening, Retry::Declared, late.header, true);
                self.refused(&late.order, request).await;
            }
        }
    }

    async fn refused(&self, order: &str, request: Request<Full<Bytes>>) {
        let Ok(response) = self.client.request(request).await else {
            self.world.violation(format!("{order}: no answer to what is late"));
            return;
        };
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.map(|body| body.to_bytes());
        let body: Value = serde_json::from_slice(&body.unwrap_or_default()).unwrap_or_default();
        let code = body["error"]["code"].as_str().unwrap_or_default();
        let repeats = self.number % 4 == 3;
        let fine = match code {
            "stale_generation" => self.by_header,
            "stale" => !self.by_header,
            // An id that came again since is the newer call's, which this result does not fit.
            "mismatch" | "conflict" => !self.by_header && repeats,
            _ => false,
        };
        self.world.holds(status == 422 && fine, || {
            format!(
                "{order}: what is late was answered with {status} {code} {:.300}",
                body.to_string()
            )
        });
        self.world.counts.late_refused.fetch_add(1, Relaxed);
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

    fn request(
        &mut self,
        list: &[Value],
        retry: Retry,
        generation: u64,
        late: bool,
    ) -> Request<Full<Bytes>> {
        let parameters = json!({"type": "object", "required": ["order_id"], "properties": {
            "order_id": {"type": "string"}, "nonce": {"type": "integer"}, "note": {"type": "string"},
        }});
        let tool = json!({"type": "function",
            "function": {"name": "get_order", "parameters": parameters}});
        let stream = self.dice.random_bool(0.6);
        let mut body = json!({"model": "m", "messages": list, "tools": [tool], "stream": stream});
        if late {
            body["late"] = true.into();
        }
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}/v1/chat/completions", self.url))
            .header("content-type", "application/json")
            .header("x-conversation-id", name(self.number));
        if self.by_header {
            request = request.header("x-generation", generation.to_string());
        }
        if self.number % 4 == 2 && retry != Retry::Undeclared {
            // A repeated key declares a retry. Its own length tells nothing; that it is the same does.
            let text = serde_json::to_string(list.last().unwrap()).unwrap();
            let key: u64 = text.bytes().fold(7, |sum, byte| {
                sum.wrapping_mul(0x0100_0000_01b3).wrapping_add(u64::from(byte))
            });
            request = request.header("idempotency-key", key.to_string());
        } else if retry == Retry::Declared {
            request = request.header("x-stainless-retry-count", "1");
        }
        request.body(Full::new(Bytes::from(body.to_string()))).unwrap()
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
        self.late = None;
    }

    async fn decide(&self, call: &Call, generation: Option<u64>, content: &str, status: u16) {
        let body = json!({"generation": generation, "tool_call_id": call.id, "name": "get_order",
            "content": content});
        self.control(Method::POST, "/results", body, status).await;
    }

    async fn control(&self, method: Method, path: &str, body: Value, wanted: u16) {
        let url = format!("{}/guard/v1/conversations/{}{path}", self.url, name(self.number));
        let request = Request::builder()
            .method(method)
            .uri(url)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .unwrap();
        let answer = self.client.request(request).await;
        let Ok(answer) = answer else {
            self.world.violation(format!("the control API does not answer: {answer:?}"));
            return;
        };
        let status = answer.status().as_u16();
        let text = answer.into_body().collect().await.map(|body| body.to_bytes());
        self.world.holds(status == wanted, || {
            format!("{} {path} {body}: {status} instead of {wanted}: {text:?}", self.number)
        });
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
