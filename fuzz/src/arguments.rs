//! The text of a call's arguments: whether it is an object that all read alike, its canonical form, and its check
//! against a schema. The bytes are up to three texts, apart at 0: a text, another, and a schema.

use super::bounds;
use serde_json::Value;
use tigertally::guard::arguments::arguments_object;
use tigertally::guard::schema::Schema;
use tigertally::wire::canonical;

const DEPTH: usize = 64;

/// Takes bytes as such texts.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut texts = text.split('\0');
    let (one, other) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
    let schema = texts.next().unwrap_or_default();
    bounds::hold(data.len(), || {
        read(one);
        read(other);
    });
    compare(one);
    compare(other);
    if let (Some(first), Some(second)) = (form(one), form(other))
        && first == second
        && let (Some(first), Some(second)) = (value(one), value(other))
    {
        assert!(same(&first, &second), "one form, two values");
    }
    if let Some(value) = value(one) {
        bounds::hold(data.len() * 64, || {
            if let Ok(schema) = Schema::compile(schema) {
                let _ = schema.check(&value, one.len());
            }
        });
    }
}

/// What arguments go through before they are let out, but for their schema.
pub fn read(text: &str) {
    let _ = arguments_object(text, DEPTH);
    let mut fed = 0;
    canonical::feed_valid(text, &mut |bytes| fed += bytes.len());
}

fn form(text: &str) -> Option<Vec<u8>> {
    let mut form = Vec::new();
    canonical::feed_valid(text, &mut |bytes| form.extend_from_slice(bytes)).then_some(form)
}

fn value(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

/// Whether two trees are one value: to JSON, `1` and `1.0` are the same number.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || one.as_f64() == other.as_f64()
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let member = |(key, one)| other.get(key).is_some_and(|other| same(one, other));
            one.len() == other.len() && one.iter().all(member)
        }
        _ => one == other,
    }
}

/// What passes is an object to another strict parser, and its canonical form is one, the same, and no longer than
/// escapes can make it.
fn compare(text: &str) {
    let object = arguments_object(text, DEPTH);
    let raw: Result<&serde_json::value::RawValue, _> = serde_json::from_str(text);
    if object.is_ok() && !matches!(text.trim_matches([' ', '\t', '\n', '\r']), "" | "null") {
        assert!(raw.is_ok(), "what is no JSON to others passed");
        let form = form(text).expect("it is JSON");
        assert!(form.len() <= 6 * text.len() + 64, "{} for {}", form.len(), text.len());
        assert!(!form.contains(&0));
        let form = String::from_utf8(form).expect("text");
        assert_eq!(self::form(&form).as_deref(), Some(form.as_bytes()), "not its own form");
        if let Some(read) = value(text) {
            assert!(read.is_object());
            assert!(same(&read, &value(&form).expect("JSON")), "another value");
        }
    }
}
