//! Plays single steps: sends, compares with what was told, prints.

use super::agent::{self, Reply, Request};
use super::stage::Stage;
use super::timeline::{Line, Mark, Timeline};
use serde_json::Value;
use std::io;
use std::time::Duration;

/// A bound on waiting for something that must come.
const PATIENCE: Duration = Duration::from_secs(3);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// The play: a stage, a client, and what became of the steps so far.
pub(super) struct Play<'a> {
    /// Where it is played.
    pub(super) stage: &'a Stage,
    /// The agent's HTTP client.
    pub(super) http: reqwest::Client,
    timeline: Timeline,
    steps: usize,
    stopped: usize,
    differing: Vec<String>,
}

/// What a step must come to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    /// The HTTP status.
    pub(super) status: u16,
    /// The refusal's code, or none.
    pub(super) code: Option<&'static str>,
    /// How many requests the model must have seen for it.
    pub(super) upstream: u64,
}

/// Let through: the model is asked once.
pub(super) const PASSES: Told = Told { status: 200, code: None, upstream: 1 };

/// Refused before the model is asked.
pub(super) fn refused(code: &'static str) -> Told {
    Told { status: 422, code: Some(code), upstream: 0 }
}

/// The model was asked, but its output is withheld.
pub(super) fn withheld(code: &'static str) -> Told {
    Told { status: 422, code: Some(code), upstream: 1 }
}

/// Why a story cannot go on.
#[derive(Debug)]
pub(super) enum Break {
    /// A step did not come out as told (and is printed already).
    Differs,
    /// The terminal is gone.
    Output(io::Error),
}

impl From<io::Error> for Break {
    fn from(error: io::Error) -> Self {
        Break::Output(error)
    }
}

/// What steps give.
pub(super) type Outcome<T> = Result<T, Break>;

impl<'a> Play<'a> {
    /// A play that has not begun.
    pub(super) fn new(stage: &'a Stage, timeline: Timeline) -> Self {
        let http = reqwest::Client::new();
        Play { stage, http, timeline, steps: 0, stopped: 0, differing: Vec::new() }
    }

    /// A story begins.
    pub(super) fn heading(&mut self, text: &str) -> io::Result<()> {
        self.timeline.heading(text)
    }

    /// Sends a request, compares the answer with what was told, and prints a line.
    pub(super) async fn step(
        &mut self,
        what: &str,
        request: &Request,
        told: Told,
    ) -> Outcome<Reply> {
        let before = self.requests().await;
        let reply = agent::send(&self.http, request).await;
        let upstream = self.requests().await.saturating_sub(before);
        self.judge(what, reply, upstream, told)
    }

    /// Compares an answer with what was told, and prints a line.
    pub(super) fn judge(
        &mut self,
        what: &str,
        reply: reqwest::Result<Reply>,
        upstream: u64,
        told: Told,
    ) -> Outcome<Reply> {
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => return self.differs(what, &format!("no answer: {error}")),
        };
        let as_told = reply.status == told.status && reply.code.as_deref() == told.code;
        let (way, outcome) = match (told.code, told.upstream) {
            (None, _) => ("agent > model", said(&reply)),
            (Some(_), 0) => ("agent > guard", "stopped, not sent on".to_owned()),
            (Some(_), _) if reply.text.is_empty() => ("model > guard", "withheld".to_owned()),
            (Some(_), _) => ("model > guard", format!("withheld after {:?}", reply.text)),
        };
        let verdict = match &reply.code {
            Some(code) => format!("{} {code}", reply.status),
            None => format!("{} pass", reply.status),
        };
        if !as_told || upstream != told.upstream {
            let wanted = told.code.unwrap_or("pass");
            return self.differs(
                what,
                &format!(
                    "got {verdict} and {upstream} request(s) to the model; told {} {wanted} and {}",
                    told.status, told.upstream
                ),
            );
        }
        let mark = if told.code.is_some() { Mark::Stopped } else { Mark::Passed };
        self.stopped += usize::from(told.code.is_some());
        self.steps += 1;
        let line = Line { way, what, verdict: &verdict, outcome: &outcome, mark };
        self.timeline.line(&line)?;
        Ok(reply)
    }

    /// Checks something that is no exchange of its own; prints a line.
    pub(super) fn check(
        &mut self,
        way: &str,
        what: &str,
        outcome: &str,
        holds: bool,
    ) -> Outcome<()> {
        if !holds {
            return self.differs(what, &format!("it is not so: {outcome}"));
        }
        self.steps += 1;
        let line = Line { way, what, verdict: "ok", outcome, mark: Mark::Passed };
        Ok(self.timeline.line(&line)?)
    }

    /// Looks at the model's record until `wanted` holds; whether it came to.
    pub(super) async fn until(&self, wanted: impl Fn(&Value) -> bool) -> bool {
        let look = async {
            while !wanted(&self.stage.seen(&self.http).await) {
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::time::timeout(PATIENCE, look).await.is_ok()
    }

    /// Sends a request again and again while it is answered with `while_code`; the last answer.
    pub(super) async fn while_answered(
        &self,
        request: &Request,
        while_code: &str,
    ) -> reqwest::Result<Reply> {
        let start = tokio::time::Instant::now();
        loop {
            let reply = agent::send(&self.http, request).await?;
            if reply.code.as_deref() != Some(while_code) || start.elapsed() > PATIENCE {
                return Ok(reply);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Requests that the model has seen so far.
    pub(super) async fn requests(&self) -> u64 {
        self.stage.seen(&self.http).await["requests"].as_u64().unwrap_or(0)
    }

    /// The end; whether every step came out as told.
    pub(super) fn summary(&mut self) -> io::Result<bool> {
        if self.differing.is_empty() {
            let text = format!(
                "\nAll {} steps came out as told. The guard stopped {} of them; no order was answered \
                 with another's result.",
                self.steps, self.stopped
            );
            self.timeline.remark(&text, Mark::Passed)?;
            return Ok(true);
        }
        let text = format!(
            "\n{} step(s) as told, {} not: {}",
            self.steps,
            self.differing.len(),
            self.differing.join("; ")
        );
        self.timeline.remark(&text, Mark::Differs)?;
        Ok(false)
    }

    fn differs<T>(&mut self, what: &str, how: &str) -> Outcome<T> {
        self.differing.push(what.to_owned());
        let line = Line { way: "", what, verdict: "DIFFERS", outcome: "", mark: Mark::Differs };
        self.timeline.line(&line)?;
        self.timeline.remark(&format!("           {how}"), Mark::Differs)?;
        Err(Break::Differs)
    }
}

/// What the model said, in a line.
fn said(reply: &Reply) -> String {
    match reply.calls.first() {
        Some(call) => format!("get_order_status({})", agent::order_of(call)),
        None => format!("{:?}", reply.text),
    }
}
