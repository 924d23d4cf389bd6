//! Notices in place of results that must not go up.
//!
//! The content of a superseded or timed-out call never goes upstream, under whatever key: clients put the
//! result beside `content` as well (`artifact`, `result`, `content_blocks`, …), and servers differ in what they
//! read. So of a replaced message nothing goes up but its role, the id that it answers, its tool's name and the
//! notice. Where it holds nothing else, only the content's value is replaced. Every other byte of the body
//! is the client's.

use super::gateway::Settings;
use super::refusal::Refusal;
use super::splice::{Segments, Splice, offset_in};
use crate::guard::fault::Code;
use crate::guard::pairing::{self, Pairing};
use crate::ledger::event::{Notice, Substitution};
use crate::policy::Notices;
use crate::wire::content;
use crate::wire::json::{BodyFault, Field};
use crate::wire::request::{ChatRequest, Message, Role};
use crate::wire::scan::Scanner;
use bytes::Bytes;

/// What puts the notices into a body. The body is read again with them in it: what goes up must pair exactly
/// as what was judged, and hold the notices and nothing else in their messages.
///
/// # Errors
/// When a notice cannot be put in place of a result.
pub(super) fn splices(
    body: &Bytes,
    substitutions: &[Substitution],
    settings: &Settings,
) -> Result<Vec<Splice>, Box<Refusal>> {
    let (notices, depth) = (&settings.policy.notices, settings.policy.limits.depth);
    place(body, substitutions, notices, depth).ok_or_else(|| {
        Box::new(Refusal::at(Code::BodyInvalid, "messages", "A stale result cannot be replaced."))
    })
}

fn place(
    body: &Bytes,
    substitutions: &[Substitution],
    notices: &Notices,
    depth: usize,
) -> Option<Vec<Splice>> {
    let before = ChatRequest::parse(body, depth).ok()?;
    let pairing = pairing::judge(&before);
    let mut splices = Vec::with_capacity(substitutions.len());
    for one in substitutions {
        let message = before.messages.get(one.message)?;
        let tool = tool_of(&before, &pairing, one.message);
        splices.push(replacement(body, message, tool, text_of(notices, one.notice))?);
    }
    let joined = Segments::new(body, splices.clone()).joined();
    let after = ChatRequest::parse(&joined, depth).ok()?;
    let kept = |at: usize| !substitutions.iter().any(|one| one.message == at);
    let others = before.messages.iter().zip(&after.messages).enumerate();
    let sound = pairing == pairing::judge(&after)
        && before.messages.len() == after.messages.len()
        && others.filter(|(at, _)| kept(*at)).all(|(_, (old, new))| old.raw == new.raw)
        && substitutions.iter().all(|one| {
            let tool = tool_of(&after, &pairing, one.message);
            after.messages.get(one.message).is_some_and(|message| {
                says(message, text_of(notices, one.notice)) && is_bare(message, tool)
            })
        });
    sound.then_some(splices)
}

fn text_of(notices: &Notices, notice: Notice) -> &str {
    match notice {
        Notice::Timeout => &notices.timeout,
        Notice::Superseded => &notices.superseded,
    }
}

/// The tool whose call that message answers.
fn tool_of<'a>(request: &ChatRequest<'a>, pairing: &Pairing, message: usize) -> Option<Field<'a>> {
    pairing.runs.iter().find_map(|run| {
        let (call, _) = run.pairs.iter().find(|(_, answer)| *answer == message)?;
        Some(request.messages.get(run.assistant)?.tool_calls.get(*call)?.name)
    })
}

fn replacement(
    body: &Bytes,
    message: &Message<'_>,
    tool: Option<Field<'_>>,
    notice: &str,
) -> Option<Splice> {
    let notice = serde_json::to_string(notice).ok()?;
    let members = members(message, tool)?;
    let begin = offset_in(body, message.raw.as_bytes())?;
    if members.strange {
        let kept = members.kept.join(",");
        let insert = format!("{{{kept},\"content\":{notice}}}").into();
        return Some(Splice { at: begin, remove: message.raw.len(), insert });
    }
    Some(match message.content {
        Some(content) => {
            Splice { at: content.at, remove: content.raw.len(), insert: notice.into() }
        }
        None => {
            let insert = format!("\"content\":{notice},").into();
            Splice { at: begin + 1, remove: 0, insert }
        }
    })
}

/// The members of a result, without its content.
struct Members<'a> {
    /// Those that may go up, as they stand there.
    kept: Vec<&'a str>,
    /// Whether there are others.
    strange: bool,
}

fn members<'a>(message: &Message<'a>, tool: Option<Field<'_>>) -> Option<Members<'a>> {
    let mut found = Members { kept: Vec::new(), strange: false };
    // A `name` is the tool's, or else it is a place for anything.
    let named = match (message.name.text(), tool.and_then(|tool| tool.text())) {
        (Some(name), Some(tool)) => name.decode() == tool.decode(),
        _ => false,
    };
    let mut value = Scanner::new(message.raw, usize::MAX);
    let read: Result<(), BodyFault> = value.members(|value, key, at| {
        value.skip()?;
        match key.decode().as_ref() {
            "content" => {}
            "role" | "tool_call_id" => found.kept.push(value.since(at)),
            "name" if named => found.kept.push(value.since(at)),
            _ => found.strange = true,
        }
        Ok(())
    });
    read.ok().map(|()| found)
}

fn says(message: &Message<'_>, notice: &str) -> bool {
    let text = message.content.and_then(|content| content::text(content.raw));
    text.as_deref() == Some(notice)
}

/// Whether a result whose text is a notice holds nothing else: no other key, and no other key in a part of
/// its content.
pub(super) fn is_notice_alone(message: &Message<'_>, tool: Field<'_>) -> bool {
    let plain = message.content.is_none_or(|content| content::is_text_alone(content.raw));
    plain && is_bare(message, Some(tool))
}

/// Whether a result holds nothing but what may go up.
fn is_bare(message: &Message<'_>, tool: Option<Field<'_>>) -> bool {
    message.role == Role::Tool && members(message, tool).is_some_and(|found| !found.strange)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const NOTICE: &str = r#""{\"ok\":false,\"error\":{\"code\":\"timeout\"}}""#;

    /// A list in which the second of two results is the one under test.
    fn list(result: &str) -> String {
        format!(
            "{{\n \"messages\" : [{{\"role\":\"user\",\"content\":\"A?\"}},{{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[\
             {{\"id\":\"c1\",\"function\":{{\"name\":\"get\",\"arguments\":\"{{}}\"}}}},\
             {{\"id\":\"c2\",\"function\":{{\"name\":\"get\",\"arguments\":\"{{}}\"}}}}]}},\
             {{ \"content\":\"secret\", \"role\":\"tool\",\"tool_call_id\":\"c1\"}} , {result}\t] , \"x\": [1.0, \"\\u00e9\"]}}\n"
        )
    }

    fn replaced(body: &str, messages: &[usize]) -> Option<String> {
        let all: Vec<_> = messages
            .iter()
            .map(|&message| Substitution { message, notice: Notice::Timeout })
            .collect();
        let body = Bytes::copy_from_slice(body.as_bytes());
        let splices = place(&body, &all, &Notices::default(), 64)?;
        Some(String::from_utf8(Segments::new(&body, splices).joined().to_vec()).unwrap())
    }

    #[test]
    fn only_the_content_is_replaced_where_nothing_else_is_said() {
        let shapes = [
            r#""late secret""#,
            r#""late\n\"secret\" \ud83d""#,
            r#"[{"type":"text","text":"late secret"},{"type":"image_url","image_url":{"url":"x"}}]"#,
            "[]",
            "null",
            r#""""#,
            r#"{"ok":true}"#,
            "7",
        ];
        for shape in shapes {
            for around in [
                r#"{"role":"tool","tool_call_id":"c2","content":SHAPE}"#,
                "{\"content\" :\tSHAPE , \"tool_c\\u0061ll_id\": \"c\\u0032\",\"role\":\"TOOL\",\n\"name\":\"g\\u0065t\" }",
            ] {
                let body = list(&around.replace("SHAPE", shape));
                let wanted = list(&around.replace("SHAPE", NOTICE));
                assert_eq!(replaced(&body, &[3]), Some(wanted), "{around} {shape}");
            }
        }
        let absent = list(r#"{ "role":"tool","tool_call_id":"c2"}"#);
        let wanted = list(&format!(r#"{{"content":{NOTICE}, "role":"tool","tool_call_id":"c2"}}"#));
        assert_eq!(replaced(&absent, &[3]), Some(wanted));
    }

    #[test]
    fn what_is_said_beside_the_content_goes_with_it() {
        let head = r#""role" : "tool","tool_call_id": "c\u0032""#;
        for other in [
            r#""artifact":{"rows":["late secret"]}"#,
            r#""result":"late secret""#,
            r#""content_blocks":[{"type":"text","text":"late secret"}]"#,
            r#""late secret":null"#,
            r#""name":"late secret""#,
            r#""name":["late secret"]"#,
            r#""tool_calls":[],"note":"late secret""#,
        ] {
            for content in [r#""content":"late secret","#, ""] {
                let body = list(&format!("{{ {content}{other} ,{head} }}"));
                let bare = format!(r#"{{{head},"content":{NOTICE}}}"#);
                assert_eq!(replaced(&body, &[3]), Some(list(&bare)), "{other}");
            }
        }
        let named = format!(r#"{{"artifact":1,"name":"get",{head}}}"#);
        let bare = format!(r#"{{"name":"get",{head},"content":{NOTICE}}}"#);
        assert_eq!(replaced(&list(&named), &[3]), Some(list(&bare)), "its tool's name may stay");
    }

    #[test]
    fn several_are_replaced_at_once_and_the_rest_stays() {
        let body = list(r#"{"role":"tool","tool_call_id":"c2","content":"late","x":1}"#);
        let bare = format!(r#"{{"role":"tool","tool_call_id":"c2","content":{NOTICE}}}"#);
        let wanted = list(&bare).replace("\"secret\"", NOTICE);
        assert_eq!(replaced(&body, &[2, 3]), Some(wanted));
    }

    #[test]
    fn what_is_no_result_is_not_replaced() {
        let body = list(r#"{"role":"tool","tool_call_id":"c2","content":"late"}"#);
        for message in [0, 1, 4] {
            assert_eq!(replaced(&body, &[message]), None, "messages[{message}]");
        }
    }
}
