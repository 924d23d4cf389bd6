//! The borrowed view of a chat-completions request, read in one pass.
//!
//! What the rules judge is read strictly: its shape, and that no key stands twice. Everything else is
//! skipped, and a wrong type in a field that only the upstream reads is left for the upstream to say.

use super::call;
pub use super::call::ToolCall;
use super::json::{BodyFault, Field, Kind, Member, Text, Value, utf8};
use super::keys::Judged;
use super::loose::{loose_bool, loose_count};
pub use super::role::Role;
use super::scan::Scanner;
pub use super::scan::Span;
use std::ops::Range;

const REQUEST: Judged = Judged::new(&[
    "messages",
    "tools",
    "functions",
    "tool_choice",
    "parallel_tool_calls",
    "n",
    "stream",
    "model",
    "rid",
    "session_id",
]);
const MESSAGE: Judged =
    Judged::new(&["role", "content", "tool_calls", "tool_call_id", "function_call", "tools"]);
const FUNCTION: Judged = Judged::new(&["name", "parameters"]);

/// Most members of all messages together: each is kept, which takes ten times its shortest form.
const MOST_MEMBERS: usize = 1 << 19;

/// A chat-completions request: only what is judged, borrowed from the body.
#[derive(Debug)]
pub struct ChatRequest<'a> {
    /// The whole body.
    body: &'a str,
    /// Offset right after the opening brace: where a member may be spliced in.
    pub splice_at: usize,
    /// The message list.
    pub messages: Vec<Message<'a>>,
    /// The members of all messages, one message after the other.
    members: Vec<Member<'a>>,
    /// The raw `tools` value, when it is a non-empty list.
    pub tools_raw: Option<&'a str>,
    /// The tools offered: `tools`, legacy `functions`, and the `tools` of instructing messages.
    pub tools: Vec<Tool<'a>>,
    /// `tool_choice`
    pub tool_choice: ToolChoice<'a>,
    /// `parallel_tool_calls`
    pub parallel_tool_calls: Option<bool>,
    /// `n`, 1 when absent or null.
    pub n: u64,
    /// `stream`
    pub stream: bool,
    /// `model`
    pub model: Field<'a>,
    /// `rid`
    pub rid: Slot,
    /// `session_id`
    pub session_id: Slot,
    /// The nesting bound it was read with; holds for what stands in its strings as well.
    pub max_depth: usize,
}

/// A member of the body that may be set where the client left it open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Slot {
    /// The client did not send it.
    #[default]
    Absent,
    /// The client sent `null`, at this offset. A second member of the name would repeat the key.
    Null(usize),
    /// The client set it.
    Set,
}

/// One entry of `messages`.
#[derive(Debug, Default)]
pub struct Message<'a> {
    /// The object's own bytes.
    pub raw: &'a str,
    /// `role`
    pub role: Role,
    /// `tool_calls`, when it is a list; empty when it is absent, null or `[]`.
    pub tool_calls: Vec<ToolCall<'a>>,
    /// `tool_call_id`
    pub tool_call_id: Field<'a>,
    /// `name`
    pub name: Field<'a>,
    /// The raw `content` value, and its offset in the body.
    pub content: Option<Span<'a>>,
    /// The content, when it is a string: for who digests it, and need not read it again.
    pub text: Option<Text<'a>>,
    /// Whether a legacy `function_call` object stands here.
    pub function_call: bool,
    /// Offset of its `tools`, when there are any.
    tools_at: Option<usize>,
    /// Where its members stand among those of all messages.
    members: Range<usize>,
}

/// One offered tool.
#[derive(Debug, Default)]
pub struct Tool<'a> {
    /// `function.name` (or `custom.name`)
    pub name: Field<'a>,
    /// The raw `function.parameters` value, when there is one and it is not null.
    pub parameters: Option<&'a str>,
    /// Whether it is a `custom` tool: raw input, no schema.
    pub custom: bool,
}

/// `tool_choice`
#[derive(Clone, Copy, Debug, Default)]
pub enum ToolChoice<'a> {
    /// Absent, null, `"auto"`, or a form that this version does not judge.
    #[default]
    Auto,
    /// `"none"`
    None,
    /// `"required"`
    Required,
    /// A named function: `{"type":"function","function":{"name":…}}`
    Named(Text<'a>),
}

impl<'a> ChatRequest<'a> {
    /// Reads a body in one pass.
    ///
    /// # Errors
    /// When it is not UTF-8 JSON of the right shape, is nested deeper than `max_depth`, or repeats a
    /// key (after unescaping) in an object that is judged.
    pub fn parse(body: &'a [u8], max_depth: usize) -> Result<Self, BodyFault> {
        let body = utf8(body)?;
        let mut scanner = Scanner::new(body, max_depth);
        if scanner.kind()? != Kind::Object {
            return Err(BodyFault::shape(scanner.offset(), "the body must be an object"));
        }
        let mut request = ChatRequest::empty(body, scanner.offset() + 1, max_depth);
        let mut has_messages = false;
        scanner.object(|value, key| {
            has_messages |= key == "messages";
            request.member(value, key)
        })?;
        scanner.end()?;
        if !has_messages {
            return Err(BodyFault::shape(0, "a list of messages is required").under("messages"));
        }
        Ok(request)
    }

    fn empty(body: &'a str, splice_at: usize, max_depth: usize) -> Self {
        ChatRequest {
            body,
            splice_at,
            messages: Vec::new(),
            members: Vec::new(),
            tools_raw: None,
            tools: Vec::new(),
            tool_choice: ToolChoice::Auto,
            parallel_tool_calls: None,
            n: 1,
            stream: false,
            model: Field::Absent,
            rid: Slot::Absent,
            session_id: Slot::Absent,
            max_depth,
        }
    }

    /// The members of one of its messages, in the order of the text.
    #[must_use]
    pub fn members_of(&self, message: &Message<'a>) -> &[Member<'a>] {
        self.members.get(message.members.clone()).unwrap_or_default()
    }

    fn member(&mut self, value: &mut Scanner<'a>, key: &str) -> Result<(), BodyFault> {
        match key {
            "messages" => {
                self.messages = messages(value, &mut self.members)?;
                self.tools_in_messages(value.kept())?;
            }
            "tools" => {
                let (raw, tools) = list_of(value, tool)?;
                self.tools_raw = raw;
                self.tools.extend(tools.into_iter().flatten());
            }
            // Before `tools` there were `functions`: the same without the envelope.
            "functions" => self.tools.extend(list_of(value, function)?.1),
            "tool_choice" => self.tool_choice = tool_choice(value)?,
            "parallel_tool_calls" => self.parallel_tool_calls = loose_bool(value)?,
            "n" => self.n = loose_count(value)?.unwrap_or(1),
            "stream" => self.stream = loose_bool(value)?.unwrap_or(false),
            "model" => self.model = value.name()?,
            "rid" => self.rid = slot(value)?,
            "session_id" => self.session_id = slot(value)?,
            _ => value.beside(&REQUEST, key)?,
        }
        Ok(())
    }

    /// Some models are told of tools in an instructing message; SGLang offers those like the others.
    /// A message's role may stand behind its `tools`, so they are read when the message is known.
    fn tools_in_messages(&mut self, mut kept: usize) -> Result<(), BodyFault> {
        for (index, message) in self.messages.iter().enumerate() {
            let Some(at) = message.tools_at.filter(|_| message.role.instructs()) else { continue };
            let mut scanner = Scanner::from(self.body, at).beyond(kept);
            let tools = list_of(&mut scanner, tool)
                .map_err(|fault| fault.under("tools").at_index(index))?
                .1;
            kept = scanner.kept();
            self.tools.extend(tools.into_iter().flatten());
        }
        Ok(())
    }
}

fn slot(value: &mut Scanner<'_>) -> Result<Slot, BodyFault> {
    let at = value.mark();
    Ok(if matches!(value.field()?, Field::Null) { Slot::Null(at) } else { Slot::Set })
}

fn messages<'a>(
    value: &mut Scanner<'a>,
    members: &mut Vec<Member<'a>>,
) -> Result<Vec<Message<'a>>, BodyFault> {
    if value.kind()? != Kind::Array {
        return Err(BodyFault::shape(value.offset(), "a list of messages is required"));
    }
    let mut messages = Vec::new();
    value.kept_array(|value, _| {
        messages.push(message(value, members)?);
        Ok(())
    })?;
    Ok(messages)
}

fn message<'a>(
    value: &mut Scanner<'a>,
    members: &mut Vec<Member<'a>>,
) -> Result<Message<'a>, BodyFault> {
    if value.kind()? != Kind::Object {
        return Err(BodyFault::shape(value.offset(), "a message must be an object"));
    }
    let mut message = Message::default();
    let first = members.len();
    let from = value.mark();
    value.object_as_sent(|value, name, key| {
        let at = value.mark();
        let mut text = None;
        match name {
            "role" => text = take(value, |field| message.role = Role::of(field))?,
            "content" => {
                text = take(value, |field| message.text = field.text())?;
                message.content = Some(Span { at, raw: value.since(at) });
            }
            "tool_calls" => message.tool_calls = call::list(value)?,
            "tool_call_id" => {
                message.tool_call_id = value.name()?;
                text = message.tool_call_id.text();
            }
            "name" => {
                message.name = value.name()?;
                text = message.name.text();
            }
            "tools" => message.tools_at = Some(value.skip()?.at),
            "function_call" => {
                message.function_call = matches!(value.field()?, Field::Other(Kind::Object));
            }
            _ => {
                value.apart(&MESSAGE, name)?;
                text = take(value, |_| {})?;
            }
        }
        if members.len() == MOST_MEMBERS {
            return Err(BodyFault::shape(at, "more members than all messages may have"));
        }
        let value = text.map_or_else(|| Value::Raw(value.since(at)), Value::Text);
        members.push(Member { key, value });
        Ok(())
    })?;
    message.raw = value.since(from);
    message.members = first..members.len();
    Ok(message)
}

/// Reads a member; gives its text, when it is one.
fn take<'a>(
    value: &mut Scanner<'a>,
    to: impl FnOnce(Field<'a>),
) -> Result<Option<Text<'a>>, BodyFault> {
    let field = value.field()?;
    to(field);
    Ok(field.text())
}

/// A list of objects, and its raw text when it is not empty. Anything else is left to the upstream.
fn list_of<'a, T>(
    value: &mut Scanner<'a>,
    mut read: impl FnMut(&mut Scanner<'a>) -> Result<T, BodyFault>,
) -> Result<(Option<&'a str>, Vec<T>), BodyFault> {
    let mut entries = Vec::new();
    if value.kind()? != Kind::Array {
        value.skip()?;
        return Ok((None, entries));
    }
    let from = value.mark();
    let mut empty = true;
    value.kept_array(|value, _| {
        empty = false;
        if value.kind()? == Kind::Object {
            entries.push(read(value)?);
        } else {
            value.skip()?;
        }
        Ok(())
    })?;
    Ok((if empty { None } else { Some(value.since(from)) }, entries))
}

/// One entry of `tools`, of whatever type: what counts is the object that names it. `None` when it
/// has none, as a hosted tool.
fn tool<'a>(value: &mut Scanner<'a>) -> Result<Option<Tool<'a>>, BodyFault> {
    let mut kind = Field::Absent;
    let mut plain = None;
    let mut custom = None;
    value.object(|value, key| {
        match (key, value.kind()?) {
            ("type", _) => kind = value.field()?,
            ("function", Kind::Object) => plain = Some(function(value)?),
            ("custom", Kind::Object) => custom = Some(Tool { custom: true, ..function(value)? }),
            _ => drop(value.skip()?),
        }
        Ok(())
    })?;
    Ok(match kind {
        Field::Text(text) if text.is("custom") => custom.or(plain),
        Field::Text(_) | Field::Absent | Field::Null | Field::Other(_) => plain.or(custom),
    })
}

/// The object that holds a tool's name and schema.
fn function<'a>(value: &mut Scanner<'a>) -> Result<Tool<'a>, BodyFault> {
    let mut tool = Tool::default();
    value.object(|value, key| {
        match (key, value.kind()?) {
            ("name", _) => tool.name = value.name()?,
            ("parameters", Kind::Null) => drop(value.skip()?),
            ("parameters", _) => tool.parameters = Some(value.skip()?.raw),
            _ => value.beside(&FUNCTION, key)?,
        }
        Ok(())
    })?;
    Ok(tool)
}

fn tool_choice<'a>(value: &mut Scanner<'a>) -> Result<ToolChoice<'a>, BodyFault> {
    if value.kind()? != Kind::Object {
        return Ok(match value.field()? {
            Field::Text(text) if text.is("none") => ToolChoice::None,
            Field::Text(text) if text.is("required") => ToolChoice::Required,
            _ => ToolChoice::Auto,
        });
    }
    let mut kind = Field::Absent;
    let mut named = Field::Absent;
    value.object(|value, key| {
        match (key, value.kind()?) {
            ("type", _) => kind = value.field()?,
            ("function" | "custom", Kind::Object) => named = function(value)?.name,
            _ => drop(value.skip()?),
        }
        Ok(())
    })?;
    Ok(match (kind, named) {
        (Field::Text(kind), _) if !kind.is("function") && !kind.is("custom") => ToolChoice::Auto,
        (_, Field::Text(name)) => ToolChoice::Named(name),
        _ => ToolChoice::Auto,
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn parse(body: &str) -> Result<ChatRequest<'_>, BodyFault> {
        ChatRequest::parse(body.as_bytes(), 16)
    }

    #[test]
    fn reads_what_is_judged() {
        let body = r#" {"model":"m","unknown":{"x":[1,{}]},"messages":[
            {"role":"user","content":[{"type":"text","text":"a","text":"b"}]},
            {"role":"assistant","content":null,"tool_calls":[
                {"id":"call_1","type":"function","function":{"name":"get","arguments":"{\"a\":1}"},"index":0},
                {"type":"custom","id":"call_2","custom":{"name":"run","input":"ls"},"function":null}]},
            {"tool_call_id":"call_1","role":"tool","content":"é","name":"get"},
            {"role":"assistant","tool_calls":[],"function_call":{"name":"old","arguments":""}}
        ],"stream":true,"n":2,"parallel_tool_calls":false,"rid":"r","session_id":null}"#;
        let request = parse(body).unwrap();
        assert_eq!(&body[..request.splice_at], " {");
        assert_eq!(request.messages.len(), 4);
        assert!(request.stream && request.rid == Slot::Set);
        assert_eq!(request.session_id, Slot::Null(body.len() - 5));
        assert_eq!((request.n, request.parallel_tool_calls), (2, Some(false)));
        assert!(request.model.is("m"));
        let calls = &request.messages[1].tool_calls;
        assert!(calls[0].id.is("call_1") && calls[0].name.is("get") && !calls[0].custom);
        assert!(calls[0].arguments.is(r#"{"a":1}"#));
        assert!(calls[1].custom && calls[1].name.is("run") && calls[1].arguments.is("ls"));
        let result = &request.messages[2];
        assert!(result.raw.starts_with("{\"tool") && result.raw.ends_with("\"get\"}"));
        let content = result.content.unwrap();
        assert_eq!(content.raw, "\"é\"");
        assert!(body[content.at..].starts_with("\"é\""));
        assert!(request.messages[3].function_call && request.messages[3].tool_calls.is_empty());
    }

    #[test]
    fn defaults_hold_for_what_is_absent_null_or_for_the_upstream_to_judge() {
        for rest in [
            "",
            r#","n":null,"stream":null,"tools":null,"tool_choice":null,"parallel_tool_calls":null,"rid":null"#,
            r#","n":{},"stream":"maybe","tools":{},"tool_choice":7,"parallel_tool_calls":[],"functions":1"#,
            r#","tools":[]"#,
        ] {
            let body = format!(r#"{{"messages":[]{rest}}}"#);
            let request = parse(&body).unwrap();
            assert_eq!((request.n, request.stream), (1, false));
            assert_ne!(request.rid, Slot::Set);
            assert!(request.tools.is_empty() && request.tools_raw.is_none());
            assert!(matches!(request.tool_choice, ToolChoice::Auto));
            assert_eq!(request.parallel_tool_calls, None);
        }
        let body = r#"{"messages":[],"n":"3","stream":"On","parallel_tool_calls":0}"#;
        let request = parse(body).unwrap();
        assert_eq!((request.n, request.stream), (3, true));
        assert_eq!(request.parallel_tool_calls, Some(false));
    }

    #[test]
    fn tools_are_read_leniently() {
        let body = r#"{"messages":[],"tools": [
            {"function":{"parameters":{"a":1,"a":2},"name":"f"},"type":"function"},
            {"type":"function","function":{"name":"bare","parameters":null}},
            {"type":"custom","custom":{"name":"c"}}, {"type":"web_search"}, 7, {"type":"function"}
          ],"functions":[{"name":"old","parameters":{}}]}"#;
        let request = parse(body).unwrap();
        let seen: Vec<_> = request
            .tools
            .iter()
            .map(|tool| (tool.name.text().unwrap().raw(), tool.parameters, tool.custom))
            .collect();
        assert_eq!(
            seen,
            [
                ("f", Some(r#"{"a":1,"a":2}"#), false),
                ("bare", None, false),
                ("c", None, true),
                ("old", Some("{}"), false)
            ]
        );
        let raw = request.tools_raw.unwrap();
        assert!(raw.starts_with('[') && raw.ends_with(']'));
    }

    /// The names of what is offered.
    fn offered(body: &str) -> Result<Vec<String>, BodyFault> {
        let request = parse(body)?;
        let name = |tool: &Tool<'_>| tool.name.text().map(|name| name.decode().into_owned());
        Ok(request.tools.iter().filter_map(name).collect())
    }

    #[test]
    fn a_tool_is_what_names_a_function_whatever_its_type() {
        let table: &[(&str, &[&str])] = &[
            (r#"{"type":"builtin_function","function":{"name":"$web_search"}}"#, &["$web_search"]),
            (r#"{"type":7,"function":{"name":"f"}}"#, &["f"]),
            (r#"{"type":"custom","function":{"name":"f"}}"#, &["f"]),
            (r#"{"type":"custom","function":{"name":"f"},"custom":{"name":"c"}}"#, &["c"]),
            (r#"{"type":"x","function":{"name":"f"},"custom":{"name":"c"}}"#, &["f"]),
            (r#"{"type":"web_search","name":"w"}"#, &[]),
            (r#"{"type":"mcp","function":null}"#, &[]),
        ];
        for (tool, wanted) in table {
            let body = format!(r#"{{"messages":[],"tools":[{tool}]}}"#);
            assert_eq!(offered(&body).unwrap(), *wanted, "{tool}");
        }
    }

    #[test]
    fn instructing_messages_offer_tools() {
        let tools = r#""tools":[{"type":"function","function":{"name":"f","parameters":{"a":1}}}]"#;
        for (role, wanted) in [
            ("system", &["f", "g"][..]),
            ("Developer", &["f", "g"]),
            ("root", &["f", "g"]),
            ("user", &["g"]),
            ("assistant", &["g"]),
            ("tool", &["g"]),
        ] {
            for message in [
                format!(r#"{{"role":"{role}",{tools}}}"#),
                format!(r#"{{ {tools} , "role":"{role}"}}"#),
            ] {
                let body = format!(
                    r#"{{"messages":[{{"role":"user"}},{message}],"tools":[{{"function":{{"name":"g"}}}}]}}"#
                );
                assert_eq!(offered(&body).unwrap(), wanted, "{body}");
            }
        }
        let body = format!(r#"{{"messages":[{{"role":"system",{tools}}}]}}"#);
        assert_eq!(parse(&body).unwrap().tools[0].parameters, Some(r#"{"a":1}"#));
        let odd = |role: &str, tools: &str| {
            offered(&format!(r#"{{"messages":[{{"role":"{role}","tools":{tools}}}]}}"#))
        };
        let repeated = r#"[{"function":{"name":"a","name":"b"}}]"#;
        let fault = odd("system", repeated).unwrap_err();
        assert_eq!(fault.path, "messages[0].tools[0].function.name");
        for (role, tools) in
            [("user", repeated), ("system", "null"), ("system", "{}"), ("system", "[1]")]
        {
            assert!(odd(role, tools).unwrap().is_empty(), "{role} {tools}");
        }
    }

    #[test]
    fn tool_choices() {
        let choice = |text: &str| {
            let body = format!(r#"{{"messages":[],"tool_choice":{text}}}"#);
            match parse(&body).unwrap().tool_choice {
                ToolChoice::Auto => "auto".to_owned(),
                ToolChoice::None => "none".to_owned(),
                ToolChoice::Required => "required".to_owned(),
                ToolChoice::Named(name) => format!("named {}", name.decode()),
            }
        };
        let table = [
            (r#""auto""#, "auto"),
            (r#""none""#, "none"),
            (r#""requ\u0069red""#, "required"),
            (r#""new""#, "auto"),
            (r#"{"type":"function","function":{"name":"f"}}"#, "named f"),
            (r#"{"function":{"name":"f"}}"#, "named f"),
            (r#"{"type":"custom","custom":{"name":"c"}}"#, "named c"),
            (r#"{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}}"#, "auto"),
            (r#"{"type":"function","function":{}}"#, "auto"),
            ("{}", "auto"),
        ];
        for (text, wanted) in table {
            assert_eq!(choice(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_wrong_shape_is_told_by_its_path() {
        let table = [
            ("[]", ""),
            ("null", ""),
            ("{}", "messages"),
            (r#"{"messages":null}"#, "messages"),
            (r#"{"messages":{}}"#, "messages"),
            (r#"{"messages":[{},null]}"#, "messages[1]"),
            (r#"{"messages":[{},[]]}"#, "messages[1]"),
            (r#"{"messages":[{"tool_calls":{}}]}"#, "messages[0].tool_calls"),
            (r#"{"messages":[{"tool_calls":"[]"}]}"#, "messages[0].tool_calls"),
            (r#"{"messages":[{"tool_calls":[{},1]}]}"#, "messages[0].tool_calls[1]"),
            (
                r#"{"messages":[{"tool_calls":[{"function":{},"custom":{}}]}]}"#,
                "messages[0].tool_calls[0]",
            ),
            (r#"{"messages":[],"messages":[]}"#, "messages"),
            (r#"{"n":1,"messages":[],"\u006e":1}"#, "n"),
            (r#"{"messages":[{"role":"a","role":"a"}]}"#, "messages[0].role"),
            (
                r#"{"messages":[{"tool_calls":[{"id":"1","id":"2"}]}]}"#,
                "messages[0].tool_calls[0].id",
            ),
            (
                r#"{"messages":[{"tool_calls":[{"function":{"name":"a","name":"b"}}]}]}"#,
                "messages[0].tool_calls[0].function.name",
            ),
            (r#"{"messages":[],"tools":[{"type":"x","type":"y"}]}"#, "tools[0].type"),
            (
                r#"{"messages":[],"tools":[{"function":{"name":"","name":""}}]}"#,
                "tools[0].function.name",
            ),
            (r#"{"messages":[],"tool_choice":{"type":1,"type":2}}"#, "tool_choice.type"),
            (r#"{"messages":[{"role":tru}]}"#, "messages[0].role"),
            (r#"{"messages":[]} x"#, ""),
        ];
        for (body, path) in table {
            assert_eq!(parse(body).unwrap_err().path, path, "{body}");
        }
    }

    #[test]
    fn depth_counts_from_the_body() {
        let body = |depth: usize| {
            format!(r#"{{"messages":[],"x":{}{}}}"#, "[".repeat(depth), "]".repeat(depth))
        };
        assert!(parse(&body(15)).is_ok());
        assert_eq!(parse(&body(16)).unwrap_err().flaw, super::super::json::Flaw::TooDeep);
    }

    #[test]
    fn what_is_kept_of_a_body_is_bounded_however_short_its_entries_are() {
        use crate::wire::scan::MOST_ENTRIES;
        let list = |count: usize| vec!["{}"; count].join(",");
        let body = |rest: &str, count: usize| {
            format!(r#"{{"messages":[{}],"tools":[]{rest}}}"#, list(count))
        };
        assert_eq!(parse(&body("", MOST_ENTRIES)).unwrap().messages.len(), MOST_ENTRIES);
        let fault = parse(&body("", MOST_ENTRIES + 1)).unwrap_err();
        assert_eq!(
            (fault.flaw, &*fault.path),
            (super::super::json::Flaw::Shape, "messages[131072]")
        );
        // All lists together; what is not kept does not count.
        let functions = format!(r#","functions":[{}]"#, list(2));
        assert_eq!(parse(&body(&functions, MOST_ENTRIES - 1)).unwrap_err().path, "functions[1]");
        let others = format!(r#","stop":[{}]"#, list(2));
        assert!(parse(&body(&others, MOST_ENTRIES)).is_ok());
        let members = |count: usize| (0..count).map(|at| format!("\"{at}\":0")).collect::<Vec<_>>();
        let message =
            |count: usize| format!(r#"{{"messages":[{{{}}}]}}"#, members(count).join(","));
        assert!(parse(&message(MOST_MEMBERS)).is_ok());
        assert_eq!(parse(&message(MOST_MEMBERS + 1)).unwrap_err().path, "messages[0].524288");
        let half = list(MOST_ENTRIES / 2);
        for within in ["\"role\":\"system\",\"tools\"", "\"tool_calls\""] {
            let message = format!(r#"{{{within}:[{half}]}}"#);
            let body = format!(r#"{{"messages":[{message},{message}]}}"#);
            assert!(parse(&body).is_err(), "{within}");
        }
    }

    #[test]
    fn what_is_not_utf8_is_refused() {
        let Err(fault) = ChatRequest::parse(b"{\"messages\":[],\"x\":\"\xc3\"}", 16) else {
            panic!("passed")
        };
        assert_eq!(fault.offset, 20);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in any::<Vec<u8>>()) {
            let _ = ChatRequest::parse(&bytes, 16);
        }

        #[test]
        fn no_damage_to_a_body_makes_it_panic(at in 0usize..200, byte in any::<u8>()) {
            let mut body = br#"{"messages":[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":"\ud83d"}],"tools":[{"function":{"name":"f"}}]}"#.to_vec();
            if let Some(hit) = body.get_mut(at) {
                *hit = byte;
            }
            let _ = ChatRequest::parse(&body, 16);
        }
    }
}
