//! Times and sizes as people write them: `24h`, `1h 30m`, `500ms`; `64 MiB`, `65536`.
//!
//! A time always needs its unit: a bare `30` was meant as seconds by some and as milliseconds by others.

use std::time::Duration;

/// Units of time, the longest first, in milliseconds.
const TIMES: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Units of size, the largest first, in bytes.
const SIZES: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("B", 1),
];

/// Longest time that is taken: a hundred years, so that sums of times never overflow.
const LONGEST: u64 = 100 * 366 * 86_400_000;

/// Reads a time: numbers with units, one or several.
///
/// # Errors
/// What is wrong and what to write instead.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("\"{text}\" is no time; write it with a unit, such as \"30s\"");
    let mut millis = 0_u64;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let (number, after) = digits(rest).ok_or_else(wrong)?;
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let unit = factor(&TIMES, &after[..end]).ok_or_else(wrong)?;
        millis = number
            .checked_mul(unit)
            .and_then(|part| millis.checked_add(part))
            .filter(|sum| *sum <= LONGEST)
            .ok_or_else(|| format!("\"{text}\" is too long; at most a hundred years"))?;
        rest = after[end..].trim_start();
    }
    Ok(Duration::from_millis(millis))
}

/// Reads a size in bytes: a number, with or without a unit.
///
/// # Errors
/// What is wrong and what to write instead.
pub(super) fn size(text: &str) -> Result<usize, String> {
    let wrong = || format!("\"{text}\" is no size; write bytes, or a unit, such as \"64 MiB\"");
    let (number, unit) = digits(text.trim()).ok_or_else(wrong)?;
    let unit = if unit.is_empty() { 1 } else { factor(&SIZES, unit).ok_or_else(wrong)? };
    number
        .checked_mul(unit)
        .and_then(|bytes| usize::try_from(bytes).ok())
        .ok_or_else(|| format!("\"{text}\" is too large"))
}

/// A time as [`duration`] reads it, in its shortest form.
pub(super) fn show_duration(time: Duration) -> String {
    show(&TIMES, u64::try_from(time.as_millis()).unwrap_or(u64::MAX), "")
}

/// A size as [`size`] reads it, in its shortest form.
pub(super) fn show_size(bytes: usize) -> String {
    let exact: Vec<_> =
        SIZES.into_iter().filter(|(unit, _)| unit.contains('i') || *unit == "B").collect();
    show(&exact, bytes as u64, " ")
}

/// The number at the beginning, and what follows it after spaces.
fn digits(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim_start()))
}

fn factor(units: &[(&str, u64)], name: &str) -> Option<u64> {
    units.iter().find(|(unit, _)| *unit == name).map(|(_, factor)| *factor)
}

/// The largest unit that leaves no rest.
fn show(units: &[(&str, u64)], amount: u64, space: &str) -> String {
    let whole = |unit: &&(&str, u64)| amount > 0 && amount.is_multiple_of(unit.1);
    match units.iter().find(whole) {
        Some((unit, factor)) => format!("{}{space}{unit}", amount / factor),
        None => format!("0{space}{}", units.last().map_or("", |(unit, _)| *unit)),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn times_are_read_with_their_units() {
        for (text, millis) in [
            ("24h", 86_400_000),
            ("90s", 90_000),
            ("500ms", 500),
            ("1h 30m", 5_400_000),
            ("1h30m", 5_400_000),
            ("2 d", 172_800_000),
            ("0s", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn a_time_without_a_unit_or_sense_is_refused() {
        for text in ["", "30", "s", "-1s", "1.5h", "30 apples", "1h30", "5 S"] {
            let told = duration(text).unwrap_err();
            assert_eq!(
                told,
                format!("\"{text}\" is no time; write it with a unit, such as \"30s\"")
            );
        }
        for text in ["99999999999999999d", "36700d"] {
            let told = duration(text).unwrap_err();
            assert_eq!(told, format!("\"{text}\" is too long; at most a hundred years"));
        }
    }

    #[test]
    fn sizes_are_read_with_and_without_units() {
        for (text, bytes) in [
            ("65536", 65_536),
            ("64 MiB", 64 << 20),
            ("8MiB", 8 << 20),
            ("10 kB", 10_000),
            ("0", 0),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "MiB", "1.5 MiB", "-1", "64 mib", "1 MiB 2"] {
            let told = size(text).unwrap_err();
            assert_eq!(
                told,
                format!("\"{text}\" is no size; write bytes, or a unit, such as \"64 MiB\"")
            );
        }
        assert_eq!(size("99999999999 GiB"), Err("\"99999999999 GiB\" is too large".to_owned()));
    }

    #[test]
    fn what_is_shown_reads_back_the_same() {
        for millis in [0, 1, 500, 1_000, 90_000, 5_400_000, 86_400_000, 86_400_001] {
            let time = Duration::from_millis(millis);
            assert_eq!(duration(&show_duration(time)), Ok(time));
        }
        for bytes in [0, 1, 1_000, 1024, 65_536, 64 << 20, (64 << 20) + 1] {
            assert_eq!(size(&show_size(bytes)), Ok(bytes));
        }
        assert_eq!(show_duration(Duration::from_secs(86_400)), "1d");
        assert_eq!(show_size(64 << 20), "64 MiB");
    }
}
