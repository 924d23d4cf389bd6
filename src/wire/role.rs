//! Whose word a message is.
//!
//! Servers read a role without regard to case (SGLang lower-cases it first), so every rule must: this
//! is the one place where roles are compared.

use super::json::Field;

/// The role of a message, read once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// `system`
    System,
    /// `developer`
    Developer,
    /// `root`, above `system` where a model knows it.
    Root,
    /// `user`
    User,
    /// `assistant`
    Assistant,
    /// `tool`
    Tool,
    /// Legacy `function`, anything unknown, or no role at all.
    #[default]
    Other,
}

impl Role {
    /// The role that a `role` member names, in whatever case.
    #[must_use]
    pub fn of(field: Field<'_>) -> Self {
        const NAMES: [(&str, Role); 6] = [
            ("user", Role::User),
            ("assistant", Role::Assistant),
            ("tool", Role::Tool),
            ("system", Role::System),
            ("developer", Role::Developer),
            ("root", Role::Root),
        ];
        let Field::Text(text) = field else { return Role::Other };
        let text = text.decode();
        let found = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(&text));
        found.map_or(Role::Other, |(_, role)| *role)
    }

    /// Whether it instructs the model: neither the user's word nor the model's.
    #[must_use]
    pub fn instructs(self) -> bool {
        matches!(self, Role::System | Role::Developer | Role::Root)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::wire::scan::Scanner;

    #[test]
    fn case_and_escapes_do_not_matter() {
        let table = [
            (r#""assistant""#, Role::Assistant),
            (r#""ASSISTANT""#, Role::Assistant),
            (r#""Tool""#, Role::Tool),
            (r#""\u0054OOL""#, Role::Tool),
            (r#""System""#, Role::System),
            (r#""developer""#, Role::Developer),
            (r#""root""#, Role::Root),
            (r#""User""#, Role::User),
            (r#""function""#, Role::Other),
            (r#"" tool""#, Role::Other),
            (r#""tools""#, Role::Other),
            ("null", Role::Other),
            (r#"["tool"]"#, Role::Other),
        ];
        for (text, wanted) in table {
            let field = Scanner::new(text, 4).field().unwrap();
            assert_eq!(Role::of(field), wanted, "{text}");
        }
        assert_eq!(Role::of(Field::Absent), Role::Other);
    }
}
