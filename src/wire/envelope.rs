//! OpenAI's error envelope, with the `faults` list that we add.

/// One entry of `error.faults`.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Entry<'a> {
    /// Stable code.
    pub code: &'a str,
    /// Place.
    pub param: &'a str,
    /// In words.
    pub message: &'a str,
    /// The call concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<&'a str>,
    /// The way out.
    pub recovery: &'a str,
}

/// The error object: `{"error":{…}}` is built around it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Error<'a> {
    /// What the client is told first.
    pub message: &'a str,
    /// `invalid_request_error`, `guard_refusal`, `upstream_error`, or `service_unavailable`.
    pub r#type: &'a str,
    /// Place of the first fault.
    pub param: Option<&'a str>,
    /// Code of the first fault.
    pub code: &'a str,
    /// Every fault.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub faults: &'a [Entry<'a>],
}

#[derive(serde::Serialize)]
struct Envelope<'a> {
    error: &'a Error<'a>,
}

impl Error<'_> {
    /// The JSON body `{"error":{…}}`, on one line.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(&Envelope { error: self }).unwrap_or_default()
    }
}
