//! Profiles: what is done about each code before single rules are set on top.
//!
//! `standard` refuses everything but what clients do in good faith all day (a schema that does not
//! compile, a trimmed history). `observe` refuses nothing that a rule found and counts it all. `strict`
//! trusts only what the ledger itself has registered.

use crate::guard::fault::Code;
use crate::guard::verdict::{Action, Rules};

/// A set of rules to begin from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Judge and count, hold nothing back.
    Observe,
    /// Refuse what is wrong.
    #[default]
    Standard,
    /// And what cannot be vouched for.
    Strict,
}

impl Profile {
    /// Every profile.
    pub const ALL: [Profile; 3] = [Profile::Observe, Profile::Standard, Profile::Strict];

    /// Its name in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Profile::Observe => "observe",
            Profile::Standard => "standard",
            Profile::Strict => "strict",
        }
    }

    /// Its rules.
    #[must_use]
    pub fn rules(self) -> Rules {
        Code::ALL
            .into_iter()
            .fold(Rules::all(Action::Refuse), |rules, code| rules.with(code, self.action(code)))
    }

    /// The profile that says what this one would refuse if it enforced anything.
    #[must_use]
    pub fn enforced(self) -> Profile {
        if self == Profile::Observe { Profile::Standard } else { self }
    }

    fn action(self, code: Code) -> Action {
        match code {
            _ if always_refused(code).is_some() => Action::Refuse,
            _ if self == Profile::Observe => Action::Note,
            Code::Adopted | Code::HistoryChanged if self == Profile::Strict => Action::Refuse,
            Code::SchemaUnusable | Code::HistoryChanged | Code::Adopted | Code::Substituted => {
                Action::Note
            }
            _ => Action::Refuse,
        }
    }
}

/// Whether an operator may set this code to this action.
///
/// # Errors
/// Why not, and what to set instead.
pub(super) fn settable(code: Code, action: Action) -> Result<(), &'static str> {
    match (code, action) {
        (Code::HeldTooLarge, Action::Off | Action::Note) => Err(
            "what is too large to hold cannot be judged, and is never let out unjudged; raise limits.held_bytes",
        ),
        (Code::SchemaUnusable, Action::Refuse) => Err(
            "clients bring their own schemas, and one that does not compile is no fault of the exchange; set \"note\" or \"off\"",
        ),
        (Code::Substituted, Action::Refuse) => {
            Err("set results.history = \"refuse\" to refuse in place of substituting")
        }
        (code, _) => always_refused(code).map_or(Ok(()), Err),
    }
}

/// Why a code is no rule: identity, routes, sizes and failures are enforced under every profile.
fn always_refused(code: Code) -> Option<&'static str> {
    Some(match code {
        Code::Unauthenticated => "is no rule; who may come in is set in [auth]",
        Code::ModelNotAllowed => {
            "is no rule; which models a principal may ask is said with its key or claims"
        }
        Code::RouteClosed => "is no rule; open single paths with routes.pass",
        Code::BodyTooLarge => "is no rule; the bound is limits.body_bytes",
        Code::ConversationInvalid => {
            "is no rule; without a sound conversation nobody can say whose state it is"
        }
        Code::GenerationInvalid => {
            "is no rule; without a sound generation nobody can say which task it is"
        }
        Code::UpstreamUnreachable
        | Code::UpstreamInvalid
        | Code::StoreUnavailable
        | Code::IdentityUnavailable
        | Code::Overloaded
        | Code::Draining
        | Code::UpstreamTimeout => "is a failure, not a rule; there is nothing to let through",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger;

    /// Enforced whatever the profile.
    const ALWAYS: [Code; 13] = [
        Code::ModelNotAllowed,
        Code::IdentityUnavailable,
        Code::Unauthenticated,
        Code::RouteClosed,
        Code::BodyTooLarge,
        Code::ConversationInvalid,
        Code::GenerationInvalid,
        Code::UpstreamUnreachable,
        Code::UpstreamInvalid,
        Code::StoreUnavailable,
        Code::Overloaded,
        Code::Draining,
        Code::UpstreamTimeout,
    ];

    #[test]
    fn each_profile_sets_each_code() {
        let noted = [Code::SchemaUnusable, Code::HistoryChanged, Code::Adopted, Code::Substituted];
        for code in Code::ALL {
            let enforced = ALWAYS.contains(&code);
            let standard = if noted.contains(&code) { Action::Note } else { Action::Refuse };
            let strict = match code {
                Code::SchemaUnusable | Code::Substituted => Action::Note,
                _ => Action::Refuse,
            };
            let observe = if enforced { Action::Refuse } else { Action::Note };
            assert_eq!(Profile::Standard.rules().action(code), standard, "{}", code.as_str());
            assert_eq!(Profile::Strict.rules().action(code), strict, "{}", code.as_str());
            assert_eq!(Profile::Observe.rules().action(code), observe, "{}", code.as_str());
        }
    }

    #[test]
    fn the_ledger_begins_from_the_standard_profile() {
        assert_eq!(ledger::rules::Rules::default().actions, Profile::Standard.rules());
    }

    #[test]
    fn what_is_no_rule_cannot_be_set_and_every_rule_can() {
        for code in Code::ALL {
            for action in [Action::Off, Action::Note, Action::Refuse] {
                let senseless = matches!(
                    (code, action),
                    (Code::HeldTooLarge, Action::Off | Action::Note)
                        | (Code::SchemaUnusable | Code::Substituted, Action::Refuse)
                );
                let expected = !senseless && !ALWAYS.contains(&code);
                assert_eq!(
                    settable(code, action).is_ok(),
                    expected,
                    "{} {action:?}",
                    code.as_str()
                );
            }
        }
    }
}
