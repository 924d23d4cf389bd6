//! The bodies of the control API: small JSON objects, read strictly.
//!
//! An unknown key is refused, because a caller who writes `atempt` believes that attempts are compared. The
//! refusal names the key; a parser's own words could quote a value, so they are not told.

use crate::guard::fault::{Code, Fault};
use crate::policy::Policy;
use crate::proxy::body::too_large;
use crate::proxy::headers::MAX_GENERATION;
use crate::proxy::refusal::Refusal;
use axum::extract::Request;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use serde::de::{DeserializeOwned, Deserializer, Unexpected};
use serde::{Deserialize, de};
use std::fmt;

const RECOVERY: &str = "Send what this call takes: see GET /guard/v1/openapi.json.";

/// Reads a small JSON object; `None` when there is no body.
pub(super) async fn read_json<T: DeserializeOwned>(
    request: Request,
    policy: &Policy,
) -> Result<Option<T>, Box<Refusal>> {
    let bytes = collect(request, policy).await?;
    if bytes.trim_ascii().is_empty() {
        return Ok(None);
    }
    let mut parser = serde_json::Deserializer::from_slice(&bytes);
    let read = serde_path_to_error::deserialize(&mut parser);
    let value = read.map_err(|error| {
        let path = error.path().to_string();
        refused(&error.into_inner(), &path)
    })?;
    parser.end().map_err(|error| refused(&error, ""))?;
    Ok(Some(value))
}

/// Reads the JSON object that a call needs.
pub(super) async fn need_json<T: DeserializeOwned>(
    request: Request,
    policy: &Policy,
) -> Result<T, Box<Refusal>> {
    let read = read_json(request, policy).await?;
    read.ok_or_else(|| invalid("", "The body must be a JSON object.".to_owned()))
}

async fn collect(request: Request, policy: &Policy) -> Result<Bytes, Box<Refusal>> {
    let limits = &policy.limits;
    let limited = Limited::new(request.into_body(), limits.body_bytes);
    let collected = tokio::time::timeout(limits.header_read_timeout, limited.collect()).await;
    match collected {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(too_large(limits)),
        Ok(Err(_)) | Err(_) => Err(invalid("", "The body did not arrive.".to_owned())),
    }
}

fn refused(error: &serde_json::Error, path: &str) -> Box<Refusal> {
    let text = error.to_string();
    let key_after = |words: &str| {
        let key = text.strip_prefix(words)?.split('`').next()?;
        Some(key.chars().take(64).collect::<String>())
    };
    if let Some(key) = key_after("unknown field `") {
        return invalid(
            &key,
            format!("The body has a key that this call does not know: \"{key}\"."),
        );
    }
    if let Some(key) = key_after("missing field `") {
        return invalid(&key, format!("The body lacks \"{key}\"."));
    }
    if let Some(key) = key_after("duplicate field `") {
        return invalid(&key, format!("The body has \"{key}\" twice."));
    }
    if error.is_data() && path.starts_with(|first: char| first.is_ascii_alphabetic()) {
        let path: String = path.chars().take(64).collect();
        return invalid(&path, format!("\"{path}\" is not of the kind that this call takes."));
    }
    let (line, column) = (error.line(), error.column());
    invalid("", format!("The body is not a JSON object (line {line}, column {column})."))
}

/// Refuses the body: the key that is wrong, and in words why.
pub(super) fn invalid(key: &str, message: String) -> Box<Refusal> {
    Box::new(Refusal::of_request(vec![Fault {
        code: Code::BodyInvalid,
        param: key.to_owned(),
        message,
        tool_call_id: None,
        recovery: RECOVERY,
    }]))
}

/// A whole number, also when it is written as `42.0`: JSON has one kind of number, and so have some languages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Whole(pub(super) u64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u64(WholeVisitor).map(Whole)
    }
}

struct WholeVisitor;

impl de::Visitor<'_> for WholeVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<u64, E> {
        Ok(number)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<u64, E> {
        #[expect(clippy::cast_precision_loss, reason = "2^53-1 is exact")]
        let most = MAX_GENERATION as f64;
        if number.fract() == 0.0 && (0.0..=most).contains(&number) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a whole number in range"
            )]
            return Ok(number as u64);
        }
        Err(E::invalid_value(Unexpected::Float(number), &self))
    }
}

/// The generation, if it is in its range.
pub(super) fn generation(number: Whole) -> Result<u64, Box<Refusal>> {
    if number.0 <= MAX_GENERATION {
        return Ok(number.0);
    }
    Err(Box::new(Refusal::at(
        Code::GenerationInvalid,
        "generation",
        "The generation must be a whole number from 0 to 2^53-1.",
    )))
}

/// The number of an attempt. One that is beyond all that were ever started is the ledger's to refuse.
pub(super) fn attempt(number: Option<Whole>) -> Result<Option<u32>, Box<Refusal>> {
    match number {
        Some(Whole(number)) if number > MAX_GENERATION => {
            let message = "\"attempt\" must be a whole number from 0 to 2^53-1.";
            Err(invalid("attempt", message.to_owned()))
        }
        number => Ok(number.map(|number| u32::try_from(number.0).unwrap_or(u32::MAX))),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked {
        generation: Whole,
    }

    #[test]
    fn a_whole_number_may_be_written_with_a_point() {
        for (text, wanted) in [
            ("42", Some(42)),
            ("42.0", Some(42)),
            ("4.2e1", Some(42)),
            ("0", Some(0)),
            ("9007199254740991", Some(MAX_GENERATION)),
            ("-1", None),
            ("-0.5", None),
            ("42.5", None),
            ("1e300", None),
            ("\"42\"", None),
            ("null", None),
            ("true", None),
        ] {
            let read = serde_json::from_str::<Whole>(text);
            assert_eq!(read.ok(), wanted.map(Whole), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_and_no_value_is_told() {
        let cases = [
            (r#"{"generation":"secret"}"#, "generation", "is not of the kind"),
            (r#"{"generation":1,"atempt":"secret"}"#, "atempt", "does not know"),
            ("{}", "generation", "lacks"),
            (r#"{"generation":1,"generation":2}"#, "generation", "twice"),
            (r#"{"generation":1} secret"#, "", "line 1, column 18"),
            (r#"["secret"]"#, "", "is not a JSON object"),
            ("secret", "", "line 1, column 1"),
        ];
        for (text, key, words) in cases {
            let mut parser = serde_json::Deserializer::from_str(text);
            let read = serde_path_to_error::deserialize::<_, Asked>(&mut parser);
            let error = match read {
                Ok(Asked { generation }) => {
                    assert_eq!(generation, Whole(1));
                    refused(&parser.end().unwrap_err(), "")
                }
                Err(error) => {
                    let path = error.path().to_string();
                    refused(&error.into_inner(), &path)
                }
            };
            let told = String::from_utf8(error.body().to_vec()).unwrap();
            assert!(told.contains(words), "{text}: {told}");
            assert!(
                told.contains(&format!(
                    "\"faults\":[{{\"code\":\"body_invalid\",\"param\":\"{key}\""
                )),
                "{told}"
            );
            assert!(!told.contains("secret"), "{told}");
        }
    }
}
