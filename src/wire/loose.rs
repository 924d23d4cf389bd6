//! Counts and switches in the forms in which SGLang's models take them.

use super::json::{BodyFault, Kind};
use super::scan::Scanner;

/// A boolean as SGLang's models read it: pydantic, in its lax mode, takes some words too, and numbers by their value.
pub(super) fn loose_bool(value: &mut Scanner<'_>) -> Result<Option<bool>, BodyFault> {
    Ok(match value.kind()? {
        Kind::String => match value.text()?.decode().to_ascii_lowercase().as_str() {
            "true" | "t" | "yes" | "y" | "on" | "1" => Some(true),
            "false" | "f" | "no" | "n" | "off" | "0" => Some(false),
            _ => None,
        },
        Kind::Number => match value.number()?.parse() {
            Ok(1.0) => Some(true),
            Ok(0.0) => Some(false),
            Ok(_) | Err(_) => None,
        },
        _ => match value.skip()?.raw {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        },
    })
}

/// A count, in the same lax mode: `2`, `2.0`, `2e0` and `"2"` are one number, and `true` is 1.
pub(super) fn loose_count(value: &mut Scanner<'_>) -> Result<Option<u64>, BodyFault> {
    Ok(match value.kind()? {
        Kind::String => count_in_words(value.text()?.decode().trim()),
        Kind::Number => {
            let number = value.number()?;
            number.parse().ok().or_else(|| whole(number.parse().ok()?))
        }
        _ => match value.skip()?.raw {
            "true" => Some(1),
            "false" => Some(0),
            _ => None,
        },
    })
}

/// A count written as Python writes one: with a sign, with single underscores between digits, with zeros behind a point.
fn count_in_words(text: &str) -> Option<u64> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let digits = match text.split_once('.') {
        Some((digits, rest)) if rest.bytes().all(|byte| byte == b'0') => digits,
        _ => text,
    };
    if digits.starts_with('_') || digits.ends_with('_') || digits.contains("__") {
        return None;
    }
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    if plain { digits.replace('_', "").parse().ok() } else { None }
}

/// A number without a fraction that a double holds exactly.
fn whole(number: f64) -> Option<u64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let counts = number.fract() == 0.0 && (0.0..=EXACT).contains(&number);
    // In this range nothing is cut.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole, not below 0, exact"
    )]
    counts.then_some(number as u64)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// Right values: what pydantic 2 makes of them, in a model with an `int` and a `bool`.
    #[test]
    fn counts_and_switches_are_read_by_value() {
        let count = |text: &str| loose_count(&mut Scanner::new(text, 8)).unwrap();
        for text in [
            "2",
            "2.0",
            "2e0",
            "20e-1",
            "\"2\"",
            "\" 2\\n\"",
            "\"+2\"",
            "\"02\"",
            "\"2.00\"",
            "\"0_2\"",
        ] {
            assert_eq!(count(text), Some(2), "{text}");
        }
        for text in [
            "null",
            "[]",
            "2.5",
            "1e30",
            "-2",
            "\"-2\"",
            "\"2e0\"",
            "\"_2\"",
            "\"2__0\"",
            "\"\u{662}\"",
        ] {
            assert_eq!(count(text), None, "{text}");
        }
        for (text, wanted) in [("0", 0), ("-0.0", 0), ("\"1_0\"", 10), ("1e2", 100), ("true", 1)] {
            assert_eq!(count(text), Some(wanted), "{text}");
        }
        for (text, wanted) in [
            ("0e0", Some(false)),
            ("-0", Some(false)),
            ("-0.0", Some(false)),
            ("1e0", Some(true)),
            ("10e-1", Some(true)),
            ("\"oFF\"", Some(false)),
            ("\"T\"", Some(true)),
            ("2", None),
            ("\" true\"", None),
            ("\"0.0\"", None),
        ] {
            let found = loose_bool(&mut Scanner::new(text, 8)).unwrap();
            assert_eq!(found, wanted, "{text}");
        }
    }
}
