//! One call while its fragments come.

use crate::guard::proposal::{Arguments, Form, ProposedCall};
use crate::wire::chunk::Fragment;
use crate::wire::json::{Field, Kind, Text};

/// A call so far. Empty strings stand for what has not come.
#[derive(Debug, Default)]
pub(super) struct OpenCall {
    pub(super) index: u64,
    id: String,
    name: String,
    arguments: String,
    not_string: Option<Kind>,
    custom: bool,
    extent: Extent,
}

impl OpenCall {
    pub(super) fn at(index: u64) -> Self {
        OpenCall { index, ..OpenCall::default() }
    }

    pub(super) fn has_id(&self, id: Text<'_>) -> bool {
        !self.id.is_empty() && id.decode() == self.id.as_str()
    }

    pub(super) fn clashes(&self, id: Text<'_>) -> bool {
        !self.id.is_empty() && !self.has_id(id)
    }

    pub(super) fn known_id(&self) -> Option<String> {
        Some(self.id.clone()).filter(|id| !id.is_empty())
    }

    /// Whether neither id nor name has come.
    pub(super) fn is_headless(&self) -> bool {
        self.id.is_empty() && self.name.is_empty()
    }

    /// Takes a fragment in. Null, absent and "" say nothing; an equal name is a repeat, another one
    /// a further piece. Returns true when text comes after the object was complete, once.
    pub(super) fn take(&mut self, fragment: &Fragment<'_>) -> bool {
        self.custom |= fragment.custom;
        if let Field::Text(id) = fragment.id
            && self.id.is_empty()
        {
            self.id.push_str(&id.decode());
        }
        if let Field::Text(name) = fragment.name {
            let name = name.decode();
            if *name != *self.name {
                self.name.push_str(&name);
            }
        }
        match fragment.arguments {
            Field::Absent | Field::Null => false,
            Field::Other(kind) => {
                self.not_string = Some(kind);
                false
            }
            Field::Text(text) => {
                let text = text.decode();
                let after = !self.custom && self.extent.push(text.as_bytes());
                self.arguments.push_str(&text);
                after
            }
        }
    }

    pub(super) fn close(self, legacy: bool) -> ProposedCall {
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        ProposedCall {
            at: self.index,
            id: given(self.id).filter(|_| !legacy),
            name: given(self.name),
            arguments: match self.not_string {
                Some(kind) => Arguments::NotString(kind),
                None => given(self.arguments).map_or(Arguments::Absent, Arguments::Text),
            },
            form: match (legacy, self.custom) {
                (true, _) => Form::Legacy,
                (false, true) => Form::Custom,
                (false, false) => Form::Function,
            },
        }
    }
}

/// Finds where a first object ends, across fragments. It checks nothing else.
#[derive(Debug, Default)]
struct Extent {
    depth: usize,
    in_string: bool,
    escaped: bool,
    complete: bool,
    told: bool,
}

impl Extent {
    /// Whether something other than white space comes in a fragment after the one that completed
    /// the object. True once.
    fn push(&mut self, text: &[u8]) -> bool {
        if self.complete {
            let after = !self.told && !text.trim_ascii().is_empty();
            self.told |= after;
            return after;
        }
        for byte in text {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                b'{' | b'[' if !self.in_string => self.depth += 1,
                b'}' | b']' if !self.in_string => {
                    self.depth = self.depth.saturating_sub(1);
                    self.complete |= self.depth == 0;
                }
                _ => {}
            }
        }
        false
    }
}
