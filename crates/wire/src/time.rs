//! The three ways in which time is written on the wire, to and from Unix seconds.
//!
//! HTTP dates (`Sun, 06 Nov 1994 08:49:37 GMT`), ISO 8601 (`2026-11-21T01:02:03.000Z`) and Amazon's basic
//! form of it (`20130524T000000Z`). Years 1970 to 9999; leap seconds do not exist, as in Unix time.

const DAY_S: u64 = 86_400;
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

/// `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 §5.6.7).
pub fn format_http(unix_s: u64) -> String {
    let (year, month, day) = civil(unix_s / DAY_S);
    let (hour, minute, second) = clock(unix_s);
    let weekday = WEEKDAYS[(unix_s / DAY_S % 7) as usize];
    let month = MONTHS[month as usize - 1];
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

/// `2026-11-21T01:02:03.000Z`, as S3 listings write it.
pub fn format_iso(unix_s: u64) -> String {
    let (year, month, day) = civil(unix_s / DAY_S);
    let (hour, minute, second) = clock(unix_s);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.000Z")
}

/// `2026-11-21T01:02:03Z`, as Alibaba Cloud's API calls write it.
pub fn format_iso_seconds(unix_s: u64) -> String {
    format_iso(unix_s).replace(".000Z", "Z")
}

/// `20130524T000000Z`: the date of SigV4. Its first eight characters are the day of the scope.
pub fn format_amz(unix_s: u64) -> String {
    let (year, month, day) = civil(unix_s / DAY_S);
    let (hour, minute, second) = clock(unix_s);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// Parses all three forms that RFC 9110 §5.6.7 asks a recipient to know; `None` for anything else.
pub fn parse_http(text: &str) -> Option<u64> {
    let words: Vec<&str> =
        text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let (year, month, day, time) = match words[..] {
        // Sun, 06 Nov 1994 08:49:37 GMT, and Sunday, 06-Nov-94 08:49:37 GMT
        [_, day, month, year, hour, minute, second, "GMT"] => (year, month, day, [hour, minute, second]),
        // Sun Nov  6 08:49:37 1994
        [_, month, day, hour, minute, second, year] => (year, month, day, [hour, minute, second]),
        _ => return None,
    };
    let year = match (year.len(), digits(year)?) {
        // RFC 850 has two digits; no object is older than 1970.
        (2, short) if short < 70 => 2000 + short,
        (2, short) => 1900 + short,
        (_, full) => full,
    };
    let month = MONTHS.iter().position(|name| name.eq_ignore_ascii_case(month))? as u64 + 1;
    unix(year, month, digits(day)?, time.map(digits))
}

/// Parses `2026-11-21T01:02:03Z`, with or without a fraction of a second, which is cut; UTC only.
pub fn parse_iso(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let time = time.split_once('.').map_or(time, |(whole, _)| whole);
    let mut date = date.splitn(3, '-').map(digits);
    let mut time = time.splitn(3, ':').map(digits);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    unix(year, month, day, [time.next()?, time.next()?, time.next()?])
}

/// Parses `20130524T000000Z`.
pub fn parse_amz(text: &str) -> Option<u64> {
    if text.len() != 16 || !text.is_ascii() || &text[8..9] != "T" || &text[15..] != "Z" {
        return None;
    }
    let number = |range: std::ops::Range<usize>| digits(&text[range]);
    unix(number(0..4)?, number(4..6)?, number(6..8)?, [number(9..11), number(11..13), number(13..15)])
}

fn digits(text: &str) -> Option<u64> {
    if text.len() > 4 { None } else { crate::words::number(text) }
}

/// Unix seconds of a checked date; 60 is taken for the second of a leap second.
fn unix(year: u64, month: u64, day: u64, time: [Option<u64>; 3]) -> Option<u64> {
    let [Some(hour), Some(minute), Some(second)] = time else { return None };
    let days = days(year, month, day);
    let valid = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && civil(days) == (year, month, day)
        && hour < 24
        && minute < 60
        && second <= 60;
    valid.then(|| days * DAY_S + hour * 3600 + minute * 60 + second.min(59))
}

fn clock(unix_s: u64) -> (u64, u64, u64) {
    (unix_s / 3600 % 24, unix_s / 60 % 60, unix_s % 60)
}

/// Days since 1970-01-01 of a date from 1970 on.
///
/// Years are counted from March, so that a leap day ends its year; 719,468 days lie between 0000-03-01 and
/// 1970-01-01, and (153 · m + 2) / 5 is the number of days before month m of such a year.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year.max(1) - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    (year * 365 + leap_days + (153 * month + 2) / 5 + day).saturating_sub(719_469)
}

/// Year, month and day of a number of days since 1970-01-01: the inverse of [`days`].
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year_of_era + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_dates() {
        let rows = [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT", "1970-01-01T00:00:00.000Z", "19700101T000000Z"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT", "1994-11-06T08:49:37.000Z", "19941106T084937Z"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT", "2000-02-29T00:00:00.000Z", "20000229T000000Z"),
            (1_369_353_600, "Fri, 24 May 2013 00:00:00 GMT", "2013-05-24T00:00:00.000Z", "20130524T000000Z"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT", "2100-03-01T00:00:00.000Z", "21000301T000000Z"),
        ];
        for (unix_s, http, iso, amz) in rows {
            assert_eq!((format_http(unix_s), format_iso(unix_s)), (http.into(), iso.into()));
            assert_eq!(format_amz(unix_s), amz);
            assert_eq!([parse_http(http), parse_iso(iso), parse_amz(amz)], [Some(unix_s); 3]);
        }
    }

    #[test]
    fn other_forms() {
        for text in
            ["Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994", "Sun, 06 Nov 1994 08:49:37 GMT"]
        {
            assert_eq!(parse_http(text), Some(784_111_777), "{text}");
        }
        assert_eq!(parse_iso("1994-11-06T08:49:37Z"), Some(784_111_777));
        assert_eq!(parse_iso("1994-11-06T08:49:37.123456Z"), Some(784_111_777));
    }

    #[test]
    fn no_dates() {
        let bad = [
            "",
            "Z",
            "T",
            "yesterday",
            "Sun, 31 Feb 2021 00:00:00 GMT",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "2021-02-29T00:00:00Z",
            "2021-13-01T00:00:00Z",
            "2021-00-00T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "2021-01-01T00:00:00+01:00",
            "20210101T000000",
            "2021-1-1T00:00Z",
            "20211301T000000Z",
            "0000-01-01T00:00:00Z",
            "99999-01-01T00:00:00Z",
            "2021é0101T0000Z",
        ];
        for text in bad {
            assert_eq!([parse_http(text), parse_iso(text), parse_amz(text)], [None; 3], "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_second_survives(unix_s in 0..253_402_300_800u64) {
            prop_assert_eq!(parse_http(&format_http(unix_s)), Some(unix_s));
            prop_assert_eq!(parse_iso(&format_iso(unix_s)), Some(unix_s));
            prop_assert_eq!(parse_amz(&format_amz(unix_s)), Some(unix_s));
        }
    }
}
