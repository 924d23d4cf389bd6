//! Points in time as the control API writes them: RFC 3339 in UTC, to the millisecond.

use crate::ledger::event::Millis;

/// The first millisecond of the year 10000, which RFC 3339 cannot write.
const END: u64 = 253_402_300_800_000;
const DAY: u64 = 86_400_000;

/// `2025-11-30T18:12:00.250Z`; what lies beyond the year 9999 is its last moment.
pub(super) fn rfc3339(at: Millis) -> String {
    let at = at.0.min(END - 1);
    let (mut days, within) = (at / DAY, at % DAY);
    let mut year = 1970;
    while days >= days_of(year) {
        days -= days_of(year);
        year += 1;
    }
    let mut month = 1;
    while days >= days_in(month, year) {
        days -= days_in(month, year);
        month += 1;
    }
    let (day, seconds, milli) = (days + 1, within / 1000, within % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of(year: u64) -> u64 {
    if is_leap(year) { 366 } else { 365 }
}

fn days_in(month: u32, year: u64) -> u64 {
    match month {
        2 => days_of(year) - 337,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_what_a_calendar_says() {
        let cases = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_799_999, "2000-02-29T23:59:59.999Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_709_164_800_000, "2024-02-29T00:00:00.000Z"),
            (1_735_689_599_001, "2024-12-31T23:59:59.001Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (END - 1, "9999-12-31T23:59:59.999Z"),
            (u64::MAX, "9999-12-31T23:59:59.999Z"),
        ];
        for (millis, wanted) in cases {
            assert_eq!(rfc3339(Millis(millis)), wanted);
        }
    }
}
