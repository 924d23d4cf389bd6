//! What a client says: message lists, as an agent would keep them, and the event that the proxy makes of
//! one. Each call of a list remembers which registered call it was taken from. The ledger never sees that.

use std::fmt::Write;
use tigertally::ledger::digest::{Digest, DigestKey};
use tigertally::ledger::event::{Admit, ExchangeId, Names, Pair, Replica, Run};

/// Stands for a result's content. The first two are the configured notices.
pub(crate) type Content = u32;
/// Contents below this are notices: closings.
pub(crate) const NOTICES: Content = 2;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    System(u32),
    User(u32),
    Text(u32),
    Calls(Vec<Asked>),
    Result(Reply),
}

/// One call in an assistant message, as the client sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) id: String,
    pub(crate) tool: &'static str,
    pub(crate) arguments: u32,
    /// Which registered call it was copied from, if from any.
    pub(crate) truth: Option<usize>,
}

/// One result, as the client sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) id: String,
    pub(crate) content: Content,
    pub(crate) name: Option<&'static str>,
    pub(crate) echo: Option<u32>,
    pub(crate) attempt: Option<u32>,
}

/// A run of a list, for the observer.
#[derive(Clone, Debug)]
pub(crate) struct Offered {
    pub(crate) live: bool,
    pub(crate) pairs: Vec<(Asked, Reply, usize)>,
}

pub(crate) fn digest(key: &DigestKey, domain: &str, value: u32) -> Digest {
    key.bytes(domain, &value.to_le_bytes())
}

/// What the proxy would see of a message: everything but where a call was copied from.
fn spell(list: &[Message]) -> String {
    let mut out = String::new();
    for message in list {
        let _ = match message {
            Message::System(n) => write!(out, "s{n};"),
            Message::User(n) => write!(out, "u{n};"),
            Message::Text(n) => write!(out, "t{n};"),
            Message::Calls(calls) => {
                calls.iter().try_for_each(|c| write!(out, "c{}({}{}) ", c.id, c.tool, c.arguments))
            }
            Message::Result(r) => {
                write!(out, "r{}={}{:?}{:?}{:?};", r.id, r.content, r.name, r.echo, r.attempt)
            }
        };
    }
    out
}

/// A list in one line, for a failure's trace.
pub(crate) fn brief(list: &[Message]) -> String {
    spell(list)
}

/// The messages that tell one thread from another.
pub(crate) fn beginning(list: &[Message]) -> &[Message] {
    let user = list.iter().position(|message| matches!(message, Message::User(_)));
    &list[..user.map_or(0, |at| at + 1)]
}

pub(crate) fn thread_name(list: &[Message]) -> String {
    spell(beginning(list))
}

/// The runs of a list.
pub(crate) fn runs(list: &[Message]) -> Vec<Offered> {
    let mut out: Vec<Offered> = Vec::new();
    let mut asked: Vec<Asked> = Vec::new();
    for (at, message) in list.iter().enumerate() {
        match message {
            Message::Calls(calls) => {
                close_last(&mut out);
                asked.clone_from(calls);
                out.push(Offered { live: true, pairs: Vec::new() });
            }
            Message::Result(reply) => {
                let call = asked.iter().find(|call| call.id == reply.id);
                if let (Some(call), Some(run)) = (call, out.last_mut()) {
                    run.pairs.push((call.clone(), reply.clone(), at));
                }
            }
            Message::User(_) | Message::Text(_) => close_last(&mut out),
            Message::System(_) => {}
        }
    }
    out
}

fn close_last(runs: &mut [Offered]) {
    if let Some(run) = runs.last_mut() {
        run.live = false;
    }
}

/// What a client sends, beside its list.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) exchange: u128,
    pub(crate) generation: Option<u64>,
    pub(crate) declared: bool,
    pub(crate) idempotency: Option<u32>,
    pub(crate) list: Vec<Message>,
}

/// The event that the proxy makes of it.
pub(crate) fn admit(sent: &Sent, key: &DigestKey) -> Admit {
    let runs = runs(&sent.list).into_iter().map(|run| Run {
        live: run.live,
        pairs: run.pairs.iter().map(|(asked, reply, at)| pair(asked, reply, *at, key)).collect(),
    });
    Admit {
        exchange: ExchangeId(sent.exchange),
        replica: Replica(1),
        generation: sent.generation,
        lane: key.bytes("lane", thread_name(&sent.list).as_bytes()),
        list: key.bytes("list", spell(&sent.list).as_bytes()),
        declared_retry: sent.declared,
        idempotency: sent.idempotency.map(|n| digest(key, "idempotency", n)),
        runs: runs.collect(),
        names: Names::default(),
    }
}

fn pair(asked: &Asked, reply: &Reply, message: usize, key: &DigestKey) -> Pair {
    Pair {
        id: asked.id.as_str().into(),
        tool: asked.tool.into(),
        arguments: digest(key, "arguments", asked.arguments),
        message,
        result: digest(key, "content", reply.content),
        closing: reply.content < NOTICES,
        bare: true,
        name: reply.name.map(Into::into),
        echoes: echoes(reply.echo, key),
        edits_allowed: false,
        attempt: reply.attempt,
    }
}

/// A declared echo field and its value.
pub(crate) fn echoes(value: Option<u32>, key: &DigestKey) -> Vec<(Box<str>, Digest)> {
    value.map(|value| ("order_id".into(), digest(key, "echo", value))).into_iter().collect()
}
