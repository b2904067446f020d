//! Durations as people write them: `30ms`, `5s`, `2m`, `1h`.

/// Unit and its milliseconds, largest first.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Milliseconds of a duration. A unit is required, because a bare number is seconds to some programs and
/// milliseconds to others; a fraction may stand before any unit but `ms` (`1.5s`).
///
/// # Errors
/// The end of a sentence that starts with the text: what should have been written.
pub fn parse_duration(text: &str) -> Result<u64, String> {
    let wrong = || "a duration: write a number with ms, s, m or h, as in 30ms, 5s, 2m".to_owned();
    let text = text.trim();
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(wrong)?;
    let unit = text[unit_at..].to_ascii_lowercase();
    let &(_, unit_ms) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
    let number = text[..unit_at].trim_end();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 6 || (unit_ms == 1 && number.contains('.')) {
        return Err(wrong());
    }
    let too_long = || "a duration below a million years".to_owned();
    let whole_ms = whole.parse::<u64>().ok().and_then(|n| n.checked_mul(unit_ms)).ok_or_else(too_long)?;
    let scale = 10u64.pow(u32::try_from(fraction.len()).expect("at most six digits"));
    let fraction: u64 = fraction.parse().map_err(|_| wrong())?;
    whole_ms.checked_add(fraction * unit_ms / scale).ok_or_else(too_long)
}

/// Milliseconds with the largest unit that divides them: `5s`, `1500ms`.
pub fn format_duration(ms: u64) -> String {
    let (name, unit_ms) =
        UNITS.iter().find(|(_, unit_ms)| ms >= *unit_ms && ms.is_multiple_of(*unit_ms)).unwrap_or(&("ms", 1));
    format!("{}{name}", ms / unit_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        let table: &[(&str, Option<u64>)] = &[
            ("30ms", Some(30)),
            ("5s", Some(5_000)),
            ("5 s", Some(5_000)),
            ("1.5s", Some(1_500)),
            ("0.0005s", Some(0)),
            ("2m", Some(120_000)),
            ("2M", Some(120_000)),
            ("1h", Some(3_600_000)),
            ("0ms", Some(0)),
            ("5", None),
            ("", None),
            ("s", None),
            ("1.5ms", None),
            ("1.s", None),
            ("-1s", None),
            ("5sec", None),
            ("5d", None),
            ("99999999999999999999s", None),
            ("18446744073709551615h", None),
        ];
        for &(text, ms) in table {
            assert_eq!(parse_duration(text).ok(), ms, "{text:?}");
        }
    }

    #[test]
    fn durations_are_written() {
        for (ms, text) in
            [(0, "0ms"), (30, "30ms"), (1_500, "1500ms"), (5_000, "5s"), (120_000, "2m"), (3_600_000, "1h")]
        {
            assert_eq!(format_duration(ms), text);
        }
    }
}
