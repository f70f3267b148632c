//! Times of matches in files: any date from the year 1 on, with or without a time of day.

use crate::domain::time::UnixMs;

/// Milliseconds of a day.
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// Days from 1 January of the year 1 to 1 January 1970.
const DAYS_BEFORE_1970: i64 = 719_162;

/// Days added for the rating systems, whose times start at 0. Whole weeks, so that the periods of a `<Decay>` that divide a
/// week begin when they begin on a server.
const RATING_DAYS_ADDED: i64 = 719_166;

/// Time of a match: milliseconds since 1970, negative before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MatchTime(i64);

impl MatchTime {
    /// First time that a file may have: the beginning of the year 1.
    pub(super) const MIN: Self = Self(-DAYS_BEFORE_1970 * DAY_MS);

    /// Time for the rating systems. Differences between matches stay the same.
    pub(super) fn rating_time(self) -> UnixMs {
        UnixMs(self.0.saturating_add(RATING_DAYS_ADDED * DAY_MS).unsigned_abs())
    }
}

/// Parses a time in UTC: `2004-08-06`, `2004-08-06T18:13:50`, also with a space for the T, fractions or a final Z; or
/// milliseconds since 1970. A date alone is the beginning of its day.
pub(super) fn parse_match_time(text: &str) -> Result<MatchTime, String> {
    let time = match text.parse() {
        Ok(ms) => Some(MatchTime(ms)),
        Err(_) => parse_date_and_time(text),
    };
    time.filter(|time| MatchTime::MIN <= *time).ok_or_else(|| {
        format!(
            "time `{}` is invalid; use 2004-08-06T18:13:50 (UTC), 2004-08-06, or milliseconds since 1970, from the year 1 \
             on",
            text.escape_debug()
        )
    })
}

fn parse_date_and_time(text: &str) -> Option<MatchTime> {
    let (date, rest) = text.split_at_checked("2004-08-06".len())?;
    let time_of_day_ms = if rest.is_empty() { 0 } else { parse_time_of_day(rest)? };
    Some(MatchTime(parse_date(date)? * DAY_MS + time_of_day_ms))
}

/// Milliseconds since midnight of `T18:13:50`, also with a space for the T, fractions or a final Z.
fn parse_time_of_day(text: &str) -> Option<i64> {
    let on_first_day = humantime::parse_rfc3339_weak(&format!("1970-01-01{text}")).ok()?;
    let since_midnight = on_first_day.duration_since(std::time::UNIX_EPOCH).ok()?;
    i64::try_from(since_midnight.as_millis()).ok()
}

/// Days from 1 January 1970 to a date of the Gregorian calendar, `2004-08-06`; negative before.
fn parse_date(text: &str) -> Option<i64> {
    let number = |range: std::ops::Range<usize>| {
        let digits = text.get(range).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        digits.parse::<i64>().ok()
    };
    let has_hyphens = text.len() == 10 && text.as_bytes()[4] == b'-' && text.as_bytes()[7] == b'-';
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let is_month = year >= 1 && (1..=12).contains(&month);
    let is_valid = has_hyphens && is_month && (1..=days_of_month(year, month)).contains(&day);
    is_valid.then(|| days_since_1970(year, month, day))
}

fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap_year(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn is_leap_year(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Counts the days of years that begin in March, so that the day of a leap year comes last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let years = if month > 2 { year } else { year - 1 };
    let months_since_march = (month + 9) % 12;
    let days_before_year = 365 * years + years / 4 - years / 100 + years / 400;
    let days_before_month = (153 * months_since_march + 2) / 5;
    // 1 March of the year 0 is 306 days before 1 January of the year 1.
    days_before_year + days_before_month + day - 1 - 306 - DAYS_BEFORE_1970
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(text: &str) -> i64 {
        parse_match_time(text).unwrap().0
    }

    #[test]
    fn match_time_is_read_in_every_format() {
        assert_eq!(ms("1970-01-01T00:00:01"), 1_000);
        assert_eq!(ms("1970-01-01 00:00:01.5Z"), 1_500);
        assert_eq!(ms("2004-08-06T18:13:50"), 1_091_816_030_000);
        assert_eq!((ms("2500"), ms("-2500")), (2_500, -2_500));
    }

    #[test]
    fn match_date_without_a_time_is_the_beginning_of_the_day() {
        assert_eq!(ms("2004-08-06"), ms("2004-08-06T00:00:00"));
        assert_eq!(ms("1970-01-02"), DAY_MS);
    }

    /// The first international football match.
    #[test]
    fn match_time_before_1970_is_read() {
        assert_eq!(ms("1969-12-31"), -DAY_MS);
        assert_eq!(ms("1969-12-31T23:59:59.5"), -500);
        assert_eq!(ms("1872-11-30"), -3_063_744_000_000);
        assert_eq!(parse_match_time("0001-01-01"), Ok(MatchTime::MIN));
    }

    /// Each day is the day after the one before, as counted one by one through the months.
    #[test]
    fn match_date_counts_one_more_each_day() {
        let mut expected = None;
        for year in 1..=2_500 {
            for month in 1..=12 {
                for day in 1..=days_of_month(year, month) {
                    let days = days_since_1970(year, month, day);
                    assert_eq!(expected.unwrap_or(days), days, "{year}-{month}-{day}");
                    expected = Some(days + 1);
                }
            }
        }
        assert_eq!(days_since_1970(1970, 1, 1), 0);
        assert_eq!(days_since_1970(1, 1, 1), -DAYS_BEFORE_1970);
    }

    /// From 1970 on, the same as the crate that reads the times of day.
    #[test]
    fn match_time_agrees_with_the_time_crate() {
        for hours in (0..600_000_u64).step_by(997) {
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(3_600 * hours + 59);
            let text = humantime::format_rfc3339_seconds(time).to_string();
            assert_eq!(ms(&text), (3_600 * hours as i64 + 59) * 1_000, "{text}");
        }
    }

    /// Differences stay, and no time is before the first one.
    #[test]
    fn rating_time_keeps_differences_and_weeks() {
        let times = ["0001-01-01", "1872-11-30", "1969-12-31T23:59:59", "2004-08-06T18:13:50", "9999-12-31"];
        for pair in times.windows(2) {
            let [before, after] = [pair[0], pair[1]].map(|text| parse_match_time(text).unwrap());
            let between = after.rating_time().ms_since(before.rating_time());
            assert_eq!(i64::try_from(between), Ok(after.0 - before.0), "{pair:?}");
        }
        assert_eq!(MatchTime(0).rating_time().0 % (7 * DAY_MS.unsigned_abs()), 0);
    }

    #[test]
    fn match_time_that_is_none_is_rejected() {
        for text in [
            "yesterday",
            "1900-02-29",
            "2004-13-01",
            "2004-00-01",
            "2004-01-32",
            "0000-12-31",
            "2004-8-6",
            "2004/08/06",
            "2004-08-06T25:00:00",
            "2004-08-06 noon",
            "20o4-08-06",
            "+004-08-06",
            "-62135596800001",
            "2004-08-0\u{e9}",
            "",
        ] {
            let error = parse_match_time(text).unwrap_err();
            assert!(error.contains("is invalid; use 2004-08-06T18:13:50 (UTC), 2004-08-06,"), "{text}: {error}");
        }
    }
}
