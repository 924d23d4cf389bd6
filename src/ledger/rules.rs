//! What an operator may set about the ledger: resolved, immutable, passed in with every event.

use super::event::Millis;
use crate::guard::verdict;
use std::sync::Arc;

/// The ledger's settings.
#[derive(Clone, Debug)]
pub struct Rules {
    /// What is done about each code. `Adopted` set to refuse is `strict`: an unregistered run is then
    /// `unmatched` from the first; `HistoryChanged` set to refuse makes a changed old result `conflict`.
    pub actions: verdict::Rules,
    /// Where these rules only watch: the same with the actions that enforcing takes. Each request,
    /// response and question is tried on them as well, on a copy, so that what would have been refused is counted.
    pub enforcing: Option<Arc<Rules>>,
    /// Whether the proxy counts generations itself where the client sends none.
    pub automatic: bool,
    /// A timed-out call's result at the end of the list.
    pub late: AtEnd,
    /// A superseded call's result at the end of the list.
    pub superseded: AtEnd,
    /// Either of them in history: `Substitute` by default.
    pub history: AtEnd,
    /// Whether a delivered continuation may be asked again without being declared a retry.
    pub repeat_allowed: bool,
    /// Model calls per generation.
    pub model_calls: Option<u32>,
    /// Tool calls per generation that are let out.
    pub tool_calls: Option<u32>,
    /// How long a generation may take.
    pub task_deadline: Option<Millis>,
    /// Attempts per opening or continuation that reached the model.
    pub attempts: u32,
    /// How long an exchange in flight lives without a sign from its replica.
    pub lease: Millis,
    /// How long a conversation is kept after its last use.
    pub ttl: Millis,
    /// Most calls, and most exchanges, that are kept per conversation; older ones are folded.
    pub kept: usize,
    /// Whether stories are told: where nobody records them, none is put together.
    pub told: bool,
}

/// What is done with a result that came too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtEnd {
    /// The request is refused.
    Refuse,
    /// The configured notice stands in its place.
    Substitute,
}

impl Default for Rules {
    fn default() -> Self {
        use crate::guard::fault::Code;
        use verdict::Action;
        Rules {
            actions: verdict::Rules::all(Action::Refuse)
                .with(Code::SchemaUnusable, Action::Note)
                .with(Code::HistoryChanged, Action::Note)
                .with(Code::Adopted, Action::Note)
                .with(Code::Substituted, Action::Note),
            enforcing: None,
            automatic: true,
            late: AtEnd::Refuse,
            superseded: AtEnd::Refuse,
            history: AtEnd::Substitute,
            repeat_allowed: false,
            model_calls: None,
            tool_calls: None,
            task_deadline: None,
            attempts: 8,
            lease: Millis(15_000),
            ttl: Millis(24 * 3600 * 1000),
            kept: 512,
            told: true,
        }
    }
}
