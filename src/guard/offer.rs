//! What a request offers its model, and what the operator allows on top: the measure of a proposal.
//!
//! An [`Offer`] is made once per request and owned, so that it outlives the borrowed request while
//! the answer streams. A request without tools costs two reference counts.

use super::schema::{OfferedTools, Schema, SchemaCache};
use crate::wire::request::{ChatRequest, ToolChoice};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What the operator set for tools.
#[derive(Clone, Debug)]
pub struct ToolRules {
    /// Names that may be proposed; `None`: any that the request offers.
    pub allow: Option<HashSet<String>>,
    /// Most calls in one message.
    pub max_calls: Option<usize>,
    /// Deepest nesting of arguments.
    pub max_depth: usize,
    /// Single tools.
    pub each: HashMap<String, ToolRule>,
}

/// What the operator set for one tool.
#[derive(Clone, Debug, Default)]
pub struct ToolRule {
    /// Arguments that only the server may set, at any depth.
    pub server_owned: Vec<String>,
    /// A stricter schema than the one that the request offers.
    pub schema: Option<Arc<Schema>>,
}

impl Default for ToolRules {
    fn default() -> Self {
        ToolRules { allow: None, max_calls: None, max_depth: 128, each: HashMap::new() }
    }
}

impl ToolRules {
    /// Rules for all tools; add single ones by [`ToolRules::with_tool`].
    #[must_use]
    pub fn new(allow: Option<&[String]>, max_calls: Option<usize>, max_depth: usize) -> Self {
        let allow = allow.map(|names| names.iter().cloned().collect());
        ToolRules { allow, max_calls, max_depth, each: HashMap::new() }
    }

    /// Whether the operator lets a tool of this name be proposed.
    #[must_use]
    pub fn allows(&self, name: &str) -> bool {
        self.allow.as_ref().is_none_or(|allow| allow.contains(name))
    }

    /// The same rules with those of one tool. `schema` is the text of a JSON Schema.
    ///
    /// # Errors
    /// In words, when the schema does not compile.
    pub fn with_tool(
        mut self,
        name: &str,
        server_owned: &[String],
        schema: Option<&str>,
    ) -> Result<Self, String> {
        let compiled = schema.map(Schema::compile).transpose().map_err(|unusable| {
            format!("the schema of tool `{name}` cannot be used: {}", unusable.0)
        })?;
        let rule = ToolRule { server_owned: server_owned.to_vec(), schema: compiled.map(Arc::new) };
        self.each.insert(name.to_owned(), rule);
        Ok(self)
    }
}

/// `tool_choice`, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Auto,
    None,
    Required,
    Named(Box<str>),
}

/// What one request offers, with the operator's rules.
#[derive(Clone, Debug)]
pub struct Offer {
    pub(super) tools: Option<Arc<OfferedTools>>,
    pub(super) rules: Arc<ToolRules>,
    /// Names that may be proposed to whoever asks; `None`: any that the rules allow.
    pub(super) permitted: Option<Arc<HashSet<String>>>,
    pub(super) choice: Choice,
    pub(super) parallel: bool,
    n: u64,
}

impl Offer {
    /// Takes from a request what its answer is judged by.
    #[must_use]
    pub fn of(request: &ChatRequest<'_>, rules: Arc<ToolRules>, cache: &SchemaCache) -> Self {
        Offer {
            tools: cache.offered(&request.tools),
            rules,
            permitted: None,
            choice: match request.tool_choice {
                ToolChoice::Auto => Choice::Auto,
                ToolChoice::None => Choice::None,
                ToolChoice::Required => Choice::Required,
                ToolChoice::Named(name) => Choice::Named(name.decode().into()),
            },
            parallel: request.parallel_tool_calls != Some(false),
            n: request.n,
        }
    }

    /// The same, where only these tools may be proposed, whatever else is allowed.
    #[must_use]
    pub fn permitting(self, permitted: Option<Arc<HashSet<String>>>) -> Self {
        Offer { permitted, ..self }
    }

    /// How many choices were asked for.
    #[must_use]
    pub fn n(&self) -> u64 {
        self.n
    }

    /// Deepest nesting of arguments, and of what an answer's views are read with.
    #[must_use]
    pub fn max_depth(&self) -> usize {
        self.rules.max_depth
    }
}
