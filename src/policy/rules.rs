//! The `[guard]` section: a profile, and single rules set on top of it.

use super::findings::Findings;
use super::problem::nearest;
use super::section::{Section, choose};
use super::{Policy, Profile, profile};
use crate::guard::fault::Code;
use crate::guard::verdict::{Action, Rules};

/// The actions a rule can be set to.
const ACTIONS: [(&str, Action); 3] =
    [("off", Action::Off), ("note", Action::Note), ("refuse", Action::Refuse)];

pub(super) fn resolve(mut section: Section<'_>, policy: &mut Policy, findings: &Findings) {
    let profiles = Profile::ALL.map(|profile| (profile.as_str(), profile));
    policy.profile = section.choice("profile", &profiles).unwrap_or_default();
    policy.rules = policy.profile.rules();
    policy.enforced = policy.profile.enforced().rules();
    policy.observe = policy.profile == Profile::Observe;
    for (name, found) in section.section("rules").choices(&ACTIONS) {
        let Some(code) = Code::parse(&name) else {
            let near = nearest(&name, Code::ALL.iter().map(|code| code.as_str()));
            let message = match near {
                Some(near) => format!("unknown code; did you mean \"{near}\"?"),
                None => "unknown code; docs/codes.md lists them all".to_owned(),
            };
            findings.tell(&found.origin, &found.key, message);
            continue;
        };
        let Some(action) = choose(&found, &ACTIONS, findings) else { continue };
        match profile::settable(code, action) {
            Ok(()) => policy.set_rule(code, action),
            Err(reason) => findings.tell(&found.origin, &found.key, reason),
        }
    }
    section.finish();
}

impl Policy {
    /// Whether enforcing would refuse for a fault of this code, which is let through because the operator
    /// only watches.
    #[must_use]
    pub fn would_refuse(&self, code: Code) -> bool {
        self.rules.action(code) != Action::Refuse && self.enforced.action(code) == Action::Refuse
    }

    /// Sets one rule on top of the profile. A rule that refuses under `observe` makes what it judges be
    /// held, and what is held is bounded for good.
    fn set_rule(&mut self, code: Code, action: Action) {
        for rules in [&mut self.rules, &mut self.enforced] {
            let before = std::mem::replace(rules, Rules::all(Action::Refuse));
            *rules = before.with(code, action);
        }
        if self.observe && action == Action::Refuse {
            self.observe = false;
            self.set_rule(Code::HeldTooLarge, Action::Refuse);
        }
    }
}
