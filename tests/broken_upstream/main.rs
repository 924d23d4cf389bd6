//! Upstreams that fail, in whichever way: each ends in its documented code within its time, what was held and every
//! socket comes back, and nothing of one answer gets into the next.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod answers;
mod endless;
mod files;
mod kept;
mod streams;

#[expect(dead_code, reason = "what other tests need")]
#[path = "../program/mod.rs"]
mod program;

#[expect(dead_code, reason = "what other tests need")]
#[path = "../raw/mod.rs"]
mod raw;

#[expect(dead_code, reason = "what other tests need")]
#[path = "../recorder/mod.rs"]
mod recorder;

use raw::{Answer, Raw};
use recorder::{Recorder, Step};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tigertally::policy::{Policy, StoreKind};
use tigertally::proxy::Running;

/// What any wait for the upstream is bounded by here.
const TIMEOUT: Duration = Duration::from_secs(1);

const TOOLS: &str = r#""tools":[{"type":"function","function":{"name":"get_order","parameters":{"type":"object"}}}]"#;

fn policy(upstream: SocketAddr) -> Policy {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut policy = Policy { listen: loopback, store: StoreKind::Memory, ..Policy::default() };
    policy.admin.listen = loopback;
    policy.upstream.url = format!("http://{upstream}").parse().unwrap();
    policy.upstream.connect_timeout = TIMEOUT;
    policy.upstream.first_byte_timeout = TIMEOUT;
    policy.upstream.idle_timeout = TIMEOUT;
    policy.limits.body_bytes = 1 << 20;
    policy.limits.held_bytes = 64 << 10;
    policy
}

async fn guard(policy: Policy) -> Running {
    tigertally::cli::serve::start(policy).await.unwrap()
}

fn request(stream: bool) -> String {
    let body = format!(
        r#"{{"model":"m","stream":{stream},"messages":[{{"role":"user","content":"Where is A?"}}],{TOOLS}}}"#
    );
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// What an exchange must come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// Our own answer.
    Refused(u16, &'static str),
    /// The same, and not before the upstream's time is up.
    TimesOut(u16, &'static str),
    /// An event of ours, after what was there to be passed on.
    Event(&'static str),
    /// The same, and not before the upstream's time is up.
    TimesOutEvent(&'static str),
    /// With that status it passes.
    Passes(u16),
    /// With that status it passes, and breaks off as it did.
    Breaks(u16),
}

/// One failing upstream.
struct Case {
    name: &'static str,
    stream: bool,
    script: Vec<Step>,
    ends: Ends,
}

fn case(name: &'static str, stream: bool, script: Vec<Step>, ends: Ends) -> Case {
    Case { name, stream, script, ends }
}

impl Case {
    /// What is wrong with how it ended.
    fn wrong(&self, answer: &Answer, took: Duration) -> Option<String> {
        let last = answer.body.rsplit("data: ").next().unwrap_or_default();
        let event: serde_json::Value = serde_json::from_str(last).unwrap_or_default();
        let event = event["error"]["code"].as_str().unwrap_or_default();
        let own = (answer.status, answer.code());
        let right = match self.ends {
            Ends::Refused(status, code) => own == (status, code.to_owned()) && answer.whole,
            Ends::TimesOut(status, code) => {
                own == (status, code.to_owned()) && answer.whole && took >= TIMEOUT
            }
            Ends::Event(code) => answer.status == 200 && event == code && answer.whole,
            Ends::TimesOutEvent(code) => {
                answer.status == 200 && event == code && answer.whole && took >= TIMEOUT
            }
            Ends::Passes(status) => answer.status == status && answer.whole,
            Ends::Breaks(status) => answer.status == status && !answer.whole,
        };
        let ours = answer.body.contains("\"faults\"");
        let passes = matches!(self.ends, Ends::Passes(_) | Ends::Breaks(_));
        let call = answer.body.contains("get_order") && !passes;
        (!right || call || (ours && passes))
            .then(|| format!("{} must be {:?}: {answer:?}", self.name, self.ends))
    }
}

/// Waits until nothing of an exchange is left: no place, no byte, no socket towards the upstream.
async fn all_is_back(name: &str, guard: &Running, upstream: &Recorder) {
    upstream.until(name, |up| up.open() == 0).await;
    let end = Instant::now() + raw::PATIENCE;
    for line in ["tigertally_in_flight_exchanges 0\n", "tigertally_held_bytes 0\n"] {
        while !guard.gateway().metrics().encode().contains(line) {
            assert!(Instant::now() < end, "{name}: never {line}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Plays all of them, each followed by a sound exchange on the same client's connection where that is still open.
async fn play(cases: Vec<Case>) {
    let upstream = Recorder::start().await;
    let guard = guard(policy(upstream.address)).await;
    let mut wrong = Vec::new();
    for case in cases {
        upstream.will(case.script.clone());
        let mut client = Raw::connect(guard.client_addr).await;
        let began = Instant::now();
        client.send(request(case.stream)).await;
        let Some(answer) = client.answer().await else { panic!("{}: no answer", case.name) };
        wrong.extend(case.wrong(&answer, began.elapsed()));
        all_is_back(case.name, &guard, &upstream).await;
        let mut client = if answer.whole { client } else { Raw::connect(guard.client_addr).await };
        upstream.will([recorder::json(recorder::ANSWER), Step::Close]);
        client.send(request(false)).await;
        let next = client.answer().await.unwrap();
        let sound = (next.status, next.body.as_str()) == (200, recorder::ANSWER);
        assert!(sound, "after {}: {next:?}", case.name);
        all_is_back(case.name, &guard, &upstream).await;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
