//! Points in time as people and APIs write them: RFC 3339. Numbers are milliseconds since 1970, in UTC.

use serde::{Serialize, Serializer};
use std::fmt;

/// The first millisecond of the year 10000, which RFC 3339 cannot write.
const END: u64 = 253_402_300_800_000;
const DAY: u64 = 86_400_000;

/// `2025-11-30T18:12:00.250Z`; what lies beyond the year 9999 is its last moment.
#[must_use]
pub fn rfc3339(at: u64) -> String {
    Moment(at).to_string()
}

/// The same, written where it is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Moment(pub u64);

impl Moment {
    fn text(self) -> [u8; 24] {
        let at = self.0.min(END - 1);
        let (year, month, day) = date(at / DAY);
        let (seconds, milli) = (at % DAY / 1000, at % 1000);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let mut text = *b"0000-00-00T00:00:00.000Z";
        for (end, mut number) in
            [(4, year), (7, month), (10, day), (13, hour), (16, minute), (19, second), (23, milli)]
        {
            let mut place = end;
            while number > 0 {
                place -= 1;
                text[place] += u8::try_from(number % 10).unwrap_or_default();
                number /= 10;
            }
        }
        text
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.text()).unwrap_or_default())
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(std::str::from_utf8(&self.text()).unwrap_or_default())
    }
}

/// Year, month and day of a day since 1970.
///
/// Years are counted from March, so that the leap day is the last of its year, and in spans of 400 years, which all have
/// the same number of days.
fn date(days: u64) -> (u64, u64, u64) {
    const SPAN: u64 = 146_097;
    /// From the first of March of the year 0 to 1970.
    const BEFORE: u64 = 719_468;
    let days = days + BEFORE;
    let (spans, day_of_span) = (days / SPAN, days % SPAN);
    let leap_days = day_of_span / 1_460 - day_of_span / 36_524 + day_of_span / (SPAN - 1);
    let year_of_span = (day_of_span - leap_days) / 365;
    let day_of_year = day_of_span - (365 * year_of_span + year_of_span / 4 - year_of_span / 100);
    // Months from March have 31, 30, 31, 30, 31 days, and again.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let january_or_february = month >= 10;
    let year = 400 * spans + year_of_span + u64::from(january_or_february);
    (year, if january_or_february { month - 9 } else { month + 3 }, day)
}

/// Reads a point in time: a date, a time and its offset. What is before 1970 is its beginning.
#[must_use]
pub fn parse(text: &str) -> Option<u64> {
    let written: toml::value::Datetime = text.trim().parse().ok()?;
    let (date, time) = (written.date?, written.time?);
    let east = match written.offset? {
        toml::value::Offset::Z => 0,
        toml::value::Offset::Custom { minutes } => i64::from(minutes),
    };
    let year = u64::from(date.year).max(1970);
    if year > u64::from(date.year) {
        return Some(0);
    }
    let days = (1970..year).map(days_of).sum::<u64>()
        + (1..u32::from(date.month)).map(|month| days_in(month, year)).sum::<u64>()
        + u64::from(date.day)
        - 1;
    let seconds = u64::from(time.hour) * 3600
        + u64::from(time.minute) * 60
        + u64::from(time.second.unwrap_or(0));
    let milli = u64::from(time.nanosecond.unwrap_or(0)) / 1_000_000;
    let there = days * DAY + seconds * 1000 + milli;
    Some(there.saturating_add_signed(-east * 60_000))
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
            assert_eq!(rfc3339(millis), wanted);
        }
    }

    #[test]
    fn each_day_follows_on_the_one_before() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..160_000 {
            assert_eq!(date(days), (year, u64::from(month), day));
            day += 1;
            if day > days_in(month, year) {
                (month, day) = (month + 1, 1);
            }
            if month > 12 {
                (year, month) = (year + 1, 1);
            }
        }
    }

    #[test]
    fn what_is_written_is_read_back_and_offsets_count() {
        for at in
            [0, 951_782_400_000, 951_868_799_999, 1_709_164_800_000, 4_107_542_400_000, END - 1]
        {
            assert_eq!(parse(&rfc3339(at)), Some(at));
        }
        for (text, wanted) in [
            ("2000-02-29T02:00:00+02:00", Some(951_782_400_000)),
            ("2000-02-28 19:00:00-05:00", Some(951_782_400_000)),
            ("1969-12-31T23:59:59Z", Some(0)),
            ("1970-01-01T00:30:00+01:00", Some(0)),
            ("2027-01-01", None),
            ("2027-01-01T00:00:00", None),
            ("2027-02-30T00:00:00Z", None),
            ("tomorrow", None),
            ("", None),
        ] {
            assert_eq!(parse(text), wanted, "{text}");
        }
    }
}
