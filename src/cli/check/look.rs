//! A look into JSON that stays where it is: values with their offsets, for finding bodies in what wraps them
//! and for telling where a fault stands. Nothing is judged here.

use crate::wire::json::{BodyFault, Field, Kind};
use crate::wire::scan::{Scanner, Span};

/// A JSON value in a document.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<'a> {
    /// Offset of its first byte in the document.
    pub(super) at: usize,
    /// Its bytes.
    pub(super) raw: &'a str,
}

impl<'a> Node<'a> {
    /// The one value that a text holds.
    pub(super) fn parse(text: &'a str) -> Result<Self, BodyFault> {
        let mut scanner = Scanner::new(text, usize::MAX);
        let Span { at, raw } = scanner.skip()?;
        scanner.end()?;
        Ok(Node { at, raw })
    }

    fn scanner(self) -> Scanner<'a> {
        Scanner::new(self.raw, usize::MAX)
    }

    /// What it is.
    pub(super) fn kind(self) -> Option<Kind> {
        self.scanner().kind().ok()
    }

    pub(super) fn is_object(self) -> bool {
        self.kind() == Some(Kind::Object)
    }

    pub(super) fn is_list(self) -> bool {
        self.kind() == Some(Kind::Array)
    }

    /// The members of an object, in their order.
    pub(super) fn members(self) -> Vec<(String, Node<'a>)> {
        let mut members = Vec::new();
        let _ = self.scanner().members(|value, key, _| {
            let span = value.skip()?;
            members.push((key.decode().into_owned(), self.inner(span)));
            Ok(())
        });
        members
    }

    /// A member; of two with one key, the last.
    pub(super) fn member(self, name: &str) -> Option<Node<'a>> {
        let mut found = None;
        let _ = self.scanner().members(|value, key, _| {
            let span = value.skip()?;
            if key.is(name) {
                found = Some(self.inner(span));
            }
            Ok(())
        });
        found
    }

    /// A member of a member, and so on: `response.body`. The empty path is the value itself.
    pub(super) fn path(self, path: &str) -> Option<Node<'a>> {
        let mut names = path.split('.').filter(|name| !name.is_empty());
        names.try_fold(self, |node, name| node.member(name))
    }

    /// The entries of a list.
    pub(super) fn items(self) -> Vec<Node<'a>> {
        let mut items = Vec::new();
        if self.is_list() {
            let _ = self.scanner().array(|value, _| {
                items.push(self.inner(value.skip()?));
                Ok(())
            });
        }
        items
    }

    /// Its string, when it is one. What it holds otherwise is not read.
    pub(super) fn field(self) -> Field<'a> {
        match self.kind() {
            Some(Kind::String) => self.scanner().field().unwrap_or_default(),
            Some(Kind::Null) => Field::Null,
            Some(other) => Field::Other(other),
            None => Field::Absent,
        }
    }

    /// Whether it is this string.
    pub(super) fn is(self, text: &str) -> bool {
        self.field().is(text)
    }

    /// Its number, when it is a whole one.
    pub(super) fn number(self) -> Option<u64> {
        self.raw.parse().ok()
    }

    fn inner(self, span: Span<'a>) -> Node<'a> {
        Node { at: self.at + span.at, raw: span.raw }
    }
}

/// An object whose members are asked for many times.
#[derive(Debug)]
pub(super) struct Record<'a> {
    /// The object.
    pub(super) node: Node<'a>,
    members: Vec<(String, Node<'a>)>,
}

impl<'a> Record<'a> {
    /// `None` when it is no object.
    pub(super) fn of(node: Node<'a>) -> Option<Self> {
        node.is_object().then(|| Record { node, members: node.members() })
    }

    /// As [`Node::path`].
    pub(super) fn path(&self, path: &str) -> Option<Node<'a>> {
        let (first, rest) = path.split_once('.').unwrap_or((path, ""));
        if first.is_empty() {
            return Some(self.node);
        }
        let (_, found) = self.members.iter().rev().find(|(name, _)| name == first)?;
        found.path(rest)
    }
}

/// The keys of an object's members, as far as it can be read: also of one that is cut off or broken.
pub(super) fn keys_so_far(text: &str) -> Vec<String> {
    let mut keys = Vec::new();
    let _ = Scanner::new(text, usize::MAX).members(|value, key, _| {
        keys.push(key.decode().into_owned());
        value.skip().map(drop)
    });
    keys
}

/// Offset of what a fault's place names: `messages[3].tool_call_id`, or OpenAI's `messages.[6].role`. Where
/// it is not there, of the innermost value that is; of an entry behind the end of a list, that end.
pub(super) fn locate(text: &str, place: &str) -> usize {
    let Ok(mut node) = Node::parse(text) else { return 0 };
    for step in place.split(['.', '[']).filter(|step| !step.is_empty()) {
        let Some(index) = step.strip_suffix(']').and_then(|index| index.parse().ok()) else {
            match node.member(step) {
                Some(member) => node = member,
                None => return node.at,
            }
            continue;
        };
        match entry(node, index) {
            Some(entry) => node = entry,
            None if node.is_list() => return node.at + node.raw.len() - 1,
            None => return node.at,
        }
    }
    node.at
}

/// An entry by its position; a choice, by the `index` that it bears.
fn entry(list: Node<'_>, index: u64) -> Option<Node<'_>> {
    let items = list.items();
    let bears = |item: &Node<'_>| {
        item.member("message").is_some()
            && item.member("index").and_then(Node::number) == Some(index)
    };
    let by_index = items.iter().copied().find(bears);
    by_index.or_else(|| items.get(usize::try_from(index).ok()?).copied())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn values_are_found_by_path_with_their_offsets() {
        let text = r#" {"a":1,"b":{"c":[true, "x"]},"a":2} "#;
        let node = Node::parse(text).unwrap();
        assert_eq!(node.path("a").unwrap().raw, "2");
        let list = node.path("b.c").unwrap();
        let item = list.items()[1];
        assert!(item.is("x") && text[item.at..].starts_with("\"x\""));
        assert!(node.path("b.d").is_none() && node.path("a.b").is_none());
        assert_eq!(node.path("").unwrap().at, 1);
        assert!(Node::parse("{} {}").is_err() && Node::parse("").is_err());
    }

    #[test]
    fn a_place_is_found_or_what_is_nearest_to_it() {
        let text = r#"{"messages":[{"role":"user"},{"role":"tool","tool_call_id":"x"}]}"#;
        for (place, begins) in [
            ("messages[1].tool_call_id", r#""x"}"#),
            ("messages.[0].role", r#""user""#),
            ("messages.[2].role", "]}"),
            ("messages[0].tool_call_id", r#"{"role":"user""#),
            ("messages", "[{"),
            ("", "{\"messages"),
            ("nothing", "{\"messages"),
        ] {
            assert!(text[locate(text, place)..].starts_with(begins), "{place}");
        }
    }

    #[test]
    fn a_choice_is_found_by_its_index() {
        let text = r#"{"choices":[{"index":1,"message":{}},{"index":0,"message":{"a":1}}]}"#;
        assert!(text[locate(text, "choices[0].message.a")..].starts_with("1}"));
        assert!(text[locate(text, "choices[1].message.tool_calls[0].id")..].starts_with("{}}"));
    }

    #[test]
    fn keys_are_seen_up_to_a_break() {
        assert_eq!(keys_so_far(r#"{"model":"m","messages":[{"ro"#), ["model", "messages"]);
        assert!(keys_so_far("nothing").is_empty());
    }
}
