//! Tools that are offered where no request says so: those of a file, those that an answer's own record names,
//! or, in want of both, those that the answer calls.

use super::look::Node;
use crate::guard::proposal::{Form, Proposal};
use crate::wire::json::Kind;
use crate::wire::request::ChatRequest;
use serde_json::{Value, json};

/// Tools, as a request would offer them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tools {
    body: String,
}

impl Tools {
    /// Those of a file: a list of tools, or a request that offers them (then its `tool_choice` and
    /// `parallel_tool_calls` count as well).
    ///
    /// # Errors
    /// In words.
    pub(super) fn of_file(text: &str) -> Result<Self, String> {
        let node = Node::parse(text.strip_prefix('\u{feff}').unwrap_or(text)).map_err(|fault| {
            format!("is not readable JSON: {} (at byte {})", fault.reason, fault.offset)
        })?;
        let body = match node.kind() {
            Some(Kind::Array) => offering(node.raw),
            Some(Kind::Object) if node.member("messages").is_some() => node.raw.to_owned(),
            Some(Kind::Object) => match node.member("tools") {
                Some(tools) => offering(tools.raw),
                None => return Err(NEITHER.to_owned()),
            },
            _ => return Err(NEITHER.to_owned()),
        };
        let read = ChatRequest::parse(body.as_bytes(), 128)
            .map_err(|fault| format!("cannot be used: {} {}", fault.path, fault.reason))?;
        let named = read.tools.iter().filter(|tool| tool.name.text().is_some()).count();
        if named == 0 {
            return Err(
                "names no tool: an entry is {\"type\":\"function\",\"function\":{\"name\":…}}"
                    .to_owned(),
            );
        }
        Ok(Tools { body })
    }

    /// Those that a stored answer names itself.
    pub(super) fn of_answer(answer: Node<'_>) -> Option<Self> {
        let tools = answer.member("tools").filter(|tools| !tools.items().is_empty())?;
        Some(Tools { body: offering(tools.raw) })
    }

    /// Those that are called.
    pub(super) fn called(proposal: &Proposal) -> Self {
        let calls = proposal.choices.iter().flat_map(|choice| &choice.calls);
        let tools = calls.filter_map(|call| {
            let name = call.name.as_deref()?;
            let kind = if call.form == Form::Custom { "custom" } else { "function" };
            Some(json!({ "type": kind, kind: { "name": name } }))
        });
        Tools { body: offering(&Value::from_iter(tools).to_string()) }
    }

    /// A request that offers them.
    pub(super) fn body(&self) -> String {
        self.body.clone()
    }
}

const NEITHER: &str = "is neither a list of tools nor a request that offers some";

fn offering(tools: &str) -> String {
    format!(r#"{{"messages":[],"tools":{tools}}}"#)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const TOOL: &str = r#"{"type":"function","function":{"name":"f"}}"#;

    #[test]
    fn a_file_of_tools_is_a_list_or_what_holds_one() {
        let list = Tools::of_file(&format!("[{TOOL}]")).unwrap();
        assert_eq!(Tools::of_file(&format!(r#"{{"tools":[{TOOL}]}}"#)).unwrap(), list);
        let request = format!(r#"{{"messages":[],"tools":[{TOOL}],"tool_choice":"none"}}"#);
        assert_eq!(Tools::of_file(&request).unwrap().body(), request);
        for wrong in
            ["", "{}", "7", "[]", "[1]", r#"{"tools":[]}"#, r#"{"messages":[]}"#, "{\"tools\":["]
        {
            assert!(Tools::of_file(wrong).is_err(), "{wrong}");
        }
    }
}
