//! `profile = "observe"` counts what enforcing refuses, case by case: the same traffic through two programs,
//! one that enforces and one that watches.
//!
//! What was let through has happened: after it the two conversations are no longer the same. So every
//! comparison is made in a conversation in which nothing has been refused before.

mod chance;

use crate::gateway::{Answer, Gateway, Reply, Upstream};
use crate::{Findings, asking, cases, ensure, request_body, segments, turns, whole_reply};
use std::collections::{BTreeMap, BTreeSet};

/// How often each code was counted with each verdict.
type Counts = BTreeMap<(String, String), u64>;

/// One program before an upstream of its own.
struct Side {
    upstream: Upstream,
    gateway: Gateway,
    before: Counts,
}

impl Side {
    async fn start(profile: &str, env: &[(&str, &str)]) -> Self {
        let mut all =
            vec![("TIGERTALLY_UPSTREAM__RID", "false"), ("TIGERTALLY_GUARD__PROFILE", profile)];
        all.extend(env);
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(&upstream, &all).await;
        Side { upstream, gateway, before: Counts::new() }
    }

    async fn send(&self, sent: &Sent) -> Answer {
        self.upstream.reply_with(sent.reply.clone());
        let headers: Vec<(&str, &str)> =
            sent.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.gateway.chat(&sent.body, &headers).await
    }

    /// What was counted since the last call.
    async fn counted(&mut self) -> Counts {
        let label = |series: &str, name: &str| {
            let at = series.split_once(&format!("{name}=\""))?.1;
            Some(at.split_once('"')?.0.to_owned())
        };
        let metrics = self.gateway.metrics().await;
        let now: Counts = metrics
            .iter()
            .filter(|(series, _)| series.starts_with("faults_total{"))
            .filter_map(|(series, count)| {
                Some(((label(series, "code")?, label(series, "verdict")?), *count))
            })
            .collect();
        let before = std::mem::replace(&mut self.before, now.clone());
        now.into_iter()
            .map(|(key, count)| {
                let was = before.get(&key).copied().unwrap_or_default();
                (key, count - was)
            })
            .filter(|(_, count)| *count > 0)
            .collect()
    }
}

/// One request and what the upstream says to it.
#[derive(Clone)]
struct Sent {
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    reply: Reply,
}

impl Sent {
    fn untracked(body: Vec<u8>, reply: Reply) -> Self {
        Sent { headers: Vec::new(), body, reply }
    }

    fn within(mut self, conversation: String) -> Self {
        self.headers.push(("x-conversation-id", conversation));
        self
    }
}

fn with_verdict(counts: &Counts, verdict: &str) -> BTreeMap<String, u64> {
    let of_it = counts.iter().filter(|((_, of), _)| of == verdict);
    of_it.map(|((code, _), count)| (code.clone(), *count)).collect()
}

/// Both programs.
struct Both {
    enforcing: Side,
    watching: Side,
    /// Every code that was refused.
    codes: BTreeSet<String>,
}

impl Both {
    async fn start(env: &[(&str, &str)]) -> Self {
        let enforcing = Side::start("standard", env).await;
        let watching = Side::start("observe", env).await;
        Both { enforcing, watching, codes: BTreeSet::new() }
    }

    /// Sends the same to both. Gives whether it was refused, or in what they differ.
    async fn compare(&mut self, sent: &Sent) -> Result<bool, String> {
        let (enforced, watched) = tokio::join!(self.enforcing.send(sent), self.watching.send(sent));
        self.enforcing.upstream.take_bodies();
        let up = self.watching.upstream.take_bodies();
        let (enforcing, watching) = (self.enforcing.counted().await, self.watching.counted().await);
        if watched.status >= 500 && watched.status != sent.reply.status {
            // No rule: the upstream's answer cannot be read as what it says it is, for nobody.
            ensure(enforcing == watching, || format!("failed {enforcing:?}, {watching:?}"))?;
            return Ok(true);
        }
        ensure(up == [sent.body.as_slice()], || format!("{} bodies went up: {watched}", up.len()))?;
        ensure(watched.body == sent.reply.body(), || format!("watched, not passed: {watched}"))?;
        let refused = with_verdict(&enforcing, "refuse");
        let would = with_verdict(&watching, "would_refuse");
        ensure(refused == would, || format!("refused {refused:?}, would have refused {would:?}"))?;
        ensure(with_verdict(&watching, "refuse").is_empty(), || format!("{watching:?}"))?;
        if refused.is_empty() {
            ensure(enforced.body == watched.body, || format!("{enforced}, {watched}"))?;
            ensure(enforcing == watching, || format!("notes {enforcing:?}, {watching:?}"))?;
        }
        self.codes.extend(refused.keys().cloned());
        Ok(!refused.is_empty())
    }

    /// Each of these in a conversation of its own, after those before it that pass.
    async fn compare_each(&mut self, name: &str, all: &[Sent]) -> Result<(), String> {
        let mut passing: Vec<&Sent> = Vec::new();
        for (at, last) in all.iter().enumerate() {
            let name = format!("{name}-{at}");
            for sent in &passing {
                let refused = self.compare(&(*sent).clone().within(name.clone())).await?;
                ensure(!refused, || "what passed before does not any more".to_owned())?;
            }
            if !self.compare(&last.clone().within(name)).await? {
                passing.push(last);
            }
        }
        Ok(())
    }
}

#[tokio::test]
async fn observe_counts_what_enforcing_refuses_of_every_case() {
    let mut both = Both::start(&[]).await;
    let mut findings = Findings::default();
    for direction in ["request", "response", "stream"] {
        for case in cases(direction) {
            let sent = match direction {
                "request" => {
                    let body = request_body(&case.input);
                    let reply = Reply::plain(&body);
                    Sent::untracked(body, reply)
                }
                "response" => Sent::untracked(asking(&case, false), whole_reply(&case.input)),
                _ => Sent::untracked(asking(&case, true), Reply::stream(segments(&case.input))),
            };
            findings.check(&case, both.compare(&sent).await.map(drop));
            let tracked = sent.within(case.id.clone());
            findings.check(&case, both.compare(&tracked).await.map(drop));
        }
    }
    for case in cases("state") {
        let mut conversations: BTreeMap<String, Vec<Sent>> = BTreeMap::new();
        for turn in turns(&case.input) {
            let sent = Sent::untracked(turn.body(), turn.reply.clone());
            conversations.entry(turn.conversation).or_default().push(sent);
        }
        for (conversation, all) in conversations {
            let name = format!("{}-{conversation}", case.id);
            findings.check(&case, both.compare_each(&name, &all).await);
        }
    }
    findings.none();
    assert!(both.codes.len() > 15, "{:?}", both.codes);
}

#[tokio::test]
async fn observe_counts_what_enforcing_refuses_of_random_conversations() {
    let mut both = Both::start(&[
        ("TIGERTALLY_TOOLS__ALLOW", "get_order,refund_order"),
        ("TIGERTALLY_TOOLS__MAX_CALLS", "2"),
        ("TIGERTALLY_TOOLS__GET_ORDER__SERVER_OWNED", "user_id"),
        ("TIGERTALLY_BUDGET__MODEL_CALLS", "4"),
        ("TIGERTALLY_BUDGET__TOOL_CALLS", "3"),
    ])
    .await;
    let mut refused_first = 0;
    for seed in 0..150 {
        let mut talk = chance::Talk::new(seed);
        for turn in 0..6 {
            let sent = talk.next();
            let compared = both.compare(&sent).await;
            let refused = compared.unwrap_or_else(|what| {
                panic!("seed {seed}, turn {turn}: {what}\n{}", String::from_utf8_lossy(&sent.body))
            });
            if refused {
                // From here on the two are no longer in the same place.
                refused_first += usize::from(turn == 0);
                break;
            }
            talk.passed();
        }
    }
    assert!(both.codes.len() > 15, "{:?}", both.codes);
    let counts = both.watching.gateway.metrics().await;
    for series in
        ["results_total{verdict=\"forced\"}", "calls_total{tool=\"get_order\",verdict=\"forced\"}"]
    {
        assert!(counts.get(series).is_some_and(|count| *count > 0), "{series}");
    }
    assert!(refused_first < 75, "most conversations come to a second turn");
}
