//! The question to the ledger: what it needs to know of a request, as digests.
//!
//! Here contents turn into digests, so that no layer below ever holds one. Whoever asks about the same
//! thing in another way (the control API about a result, the way back about proposed arguments) makes
//! its digests here as well: two makers would drift apart, and a result decided once would be a
//! `conflict` when its continuation comes.

use super::abort::Rid;
use super::gateway::{Gateway, Settings};
use super::headers::Standing;
use super::identity::Principal;
use super::substitute;
use crate::guard::pairing::Pairing;
use crate::ledger::digest::{Digest, DigestKey};
use crate::ledger::event::{Admit, ExchangeId, Pair, Run};
use crate::policy::Tool;
use crate::store::ConversationKey;
use crate::wire::content;
use crate::wire::json::{Field, Text};
use crate::wire::request::{ChatRequest, Message, Role, ToolCall};
use std::borrow::Cow;
use std::collections::HashSet;

/// Builds the question.
pub(super) fn event(
    gateway: &Gateway,
    settings: &Settings,
    standing: &Standing,
    exchange: ExchangeId,
    request: &ChatRequest<'_>,
    pairing: &Pairing,
    rid: Option<&Rid>,
) -> Admit {
    let key = gateway.store.digest_key();
    let reader = Reader { key, settings };
    let runs = pairing
        .runs
        .iter()
        .map(|run| Run {
            live: run.live,
            pairs: run
                .pairs
                .iter()
                .filter_map(|&(call, message)| {
                    let call = request.messages.get(run.assistant)?.tool_calls.get(call)?;
                    Some(reader.pair(call, message, request.messages.get(message)?))
                })
                .collect(),
        })
        .collect();
    let (lane, list) = lane_and_list(key, request);
    Admit {
        exchange,
        replica: gateway.replica,
        generation: standing.generation,
        lane,
        list,
        declared_retry: standing.declared_retry,
        idempotency: standing.idempotency.as_deref().map(|text| idempotency(key, text)),
        runs,
        names: standing.names(rid),
    }
}

/// The digest of the lane's beginning (leading instructing messages and the first user message), and that of the
/// whole list. A list most often begins with just that, and is then digested once for both.
fn lane_and_list(key: &DigestKey, request: &ChatRequest<'_>) -> (Digest, Digest) {
    let messages = &request.messages;
    let leading = messages.iter().take_while(|message| message.role.instructs()).count();
    let user = messages.iter().position(|message| message.role == Role::User);
    let beginning = leading + usize::from(user == Some(leading));
    let mut list = key.begin("list");
    let mut lane = None;
    for (index, message) in messages.iter().enumerate() {
        if index == beginning {
            lane = Some(list.clone());
        }
        list.object(request.members_of(message));
    }
    let mut lane = lane.unwrap_or_else(|| list.clone());
    if let Some(user) = user.filter(|user| *user > leading) {
        lane.object(request.members_of(&messages[user]));
    }
    (lane.digest(), list.digest())
}

/// Reads the pairs of runs.
struct Reader<'r> {
    key: &'r DigestKey,
    settings: &'r Settings,
}

impl Reader<'_> {
    fn pair(&self, call: &ToolCall<'_>, index: usize, message: &Message<'_>) -> Pair {
        let tool = text(&call.name);
        let declared = self.settings.policy.tools.each.get(tool.as_ref());
        let raw = message.content.map_or("null", |content| content.raw);
        let content = Content::read(self.key, raw, message.text, &self.settings.closings, declared);
        Pair {
            id: text(&call.id).into(),
            arguments: self.key.arguments(&text(&call.arguments)),
            message: index,
            result: content.result,
            closing: content.closing,
            bare: !content.closing || substitute::is_notice_alone(message, call.name),
            name: message.name.text().map(|name| name.decode().into()),
            echoes: content.echoes,
            edits_allowed: declared.is_some_and(|tool| tool.edits_allowed),
            attempt: None,
            tool: tool.into(),
        }
    }
}

/// Text of a field, empty when it holds none.
fn text<'a>(field: &Field<'a>) -> Cow<'a, str> {
    field.text().map(|text| text.decode()).unwrap_or_default()
}

/// What the ledger knows of a result's content. The same content must give the same, whether it comes in
/// a list or alone through the control API.
pub(crate) struct Content {
    /// Of all of it.
    pub(crate) result: Digest,
    /// Whether it is a notice.
    pub(crate) closing: bool,
    /// The members that its tool must echo.
    pub(crate) echoes: Vec<(Box<str>, Digest)>,
}

impl Content {
    /// Of a raw JSON value; `known` is the string that it was read as, if it is one and was read. `closings` are the texts that count as notices, `tool` is the call's.
    pub(crate) fn read(
        key: &DigestKey,
        raw: &str,
        known: Option<Text<'_>>,
        closings: &HashSet<String>,
        tool: Option<&Tool>,
    ) -> Self {
        let echoes_any = tool.is_some_and(|tool| !tool.echo.is_empty());
        let longest = closings.iter().map(String::len).max().unwrap_or(0);
        let text =
            (echoes_any || content::may_be_as_short_as(raw, longest)).then(|| content::text(raw));
        let text = text.flatten();
        Content {
            result: match known {
                Some(text) => key.text("result", &text),
                None => key.json("result", raw),
            },
            closing: text.as_deref().is_some_and(|text| closings.contains(text)),
            echoes: match (&text, tool) {
                (Some(text), Some(tool)) => echoes(key, text, &tool.echo),
                _ => Vec::new(),
            },
        }
    }
}

/// An `idempotency-key`, as the ledger keeps it.
pub(crate) fn idempotency(key: &DigestKey, text: &[u8]) -> Digest {
    key.bytes("idempotency", text)
}

/// Top-level members of a JSON object that are declared as echoed, each with its value's digest. A key
/// that stands twice gives two entries, so that neither reading of it slips by.
pub(super) fn echoes(key: &DigestKey, text: &str, declared: &[String]) -> Vec<(Box<str>, Digest)> {
    if declared.is_empty() {
        return Vec::new();
    }
    content::members(text)
        .into_iter()
        .filter(|(name, _)| declared.iter().any(|field| field == name))
        .map(|(name, raw)| (name.into(), key.json("echo", raw)))
        .collect()
}

/// The key that all state of a conversation is kept under.
#[must_use]
pub(crate) fn conversation_key(
    key: &DigestKey,
    principal: &Principal,
    name: &str,
) -> ConversationKey {
    ConversationKey {
        principal: key.bytes("principal", principal.as_bytes()),
        conversation: key.bytes("conversation", name.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn key() -> DigestKey {
        DigestKey::new([7; 32])
    }

    fn content(raw: &str) -> Content {
        let closings = HashSet::from(["cancelled".to_owned()]);
        let tool = Tool { echo: vec!["order_id".to_owned()], ..Tool::default() };
        Content::read(&key(), raw, None, &closings, Some(&tool))
    }

    #[test]
    fn a_notice_is_known_by_its_text_however_it_is_spelled() {
        assert!(content(r#""cancelled""#).closing);
        assert!(content(r#" "c\u0061ncelled""#).closing);
        assert!(content(r#"[{"type":"text","text":"cancelled"}]"#).closing);
        for other in [r#""Cancelled""#, r#"["cancelled","by me"]"#, "null", "7"] {
            assert!(!content(other).closing, "{other}");
        }
    }

    #[test]
    fn what_a_result_echoes_is_seen_whatever_else_it_holds() {
        let wanted = echoes(&key(), r#"{"order_id":"A"}"#, &["order_id".to_owned()]);
        assert_eq!(wanted.len(), 1);
        for raw in [
            r#""{\"order_id\":\"A\"}""#,
            r#""{\"note\":\"x\", \"order_id\" : \"\\u0041\"}""#,
            // A surrogate without its partner has no UTF-8 form, and must not hide what stands beside it.
            r#""{\"order_id\":\"A\",\"note\":\"\ud83d\"}""#,
        ] {
            assert_eq!(content(raw).echoes, wanted, "{raw}");
        }
        assert_ne!(content(r#""{\"order_id\":\"B\"}""#).echoes, wanted);
        let twice = content(r#""{\"order_id\":\"A\",\"order_id\":\"B\"}""#).echoes;
        assert_eq!(twice.len(), 2, "neither reading slips by");
        assert!(content(r#""[]""#).echoes.is_empty() && content("{}").echoes.is_empty());
    }

    #[test]
    fn a_lane_is_told_by_its_beginning_and_a_repeat_by_the_whole_list() {
        let lane_and_list = |messages: &str| {
            let body = format!(r#"{{"messages":[{messages}]}}"#);
            lane_and_list(&key(), &ChatRequest::parse(body.as_bytes(), 16).unwrap())
        };
        let system = r#"{"role":"system","content":"s"}"#;
        let first = lane_and_list(&format!(r#"{system},{{"role":"user","content":"A?"}}"#));
        let spelled = format!(r#"{system}, {{"content":"\u0041?","role":"user"}}"#);
        assert_eq!(lane_and_list(&spelled), first);
        let more = format!(
            r#"{system},{{"role":"user","content":"A?"}},{{"role":"user","content":"B?"}}"#
        );
        let more = lane_and_list(&more);
        assert!(more.0 == first.0 && more.1 != first.1);
        let other = lane_and_list(&format!(r#"{system},{{"role":"user","content":"B?"}}"#));
        assert!(other.0 != first.0 && other.1 != first.1);
    }
}
