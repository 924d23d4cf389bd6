//! Who the client is: proven by a credential that the server checks, never read from a body.

/// A proven identity. Every state is kept per principal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Principal(Box<str>);

impl Principal {
    /// The one principal there is when no credentials are asked for.
    #[must_use]
    pub(crate) fn anonymous() -> Self {
        Principal("anonymous".into())
    }

    /// What its digest is made of.
    #[must_use]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}
