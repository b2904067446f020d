//! Sizes as people write them: `8MiB`, `8M`, `1.5GB`, `65536`.

/// Letter, bytes with a binary unit, bytes with a decimal unit; `E` is left out because 16 of them overflow.
const UNITS: [(char, u64, u64); 5] = [
    ('K', 1 << 10, 1_000),
    ('M', 1 << 20, 1_000_000),
    ('G', 1 << 30, 1_000_000_000),
    ('T', 1 << 40, 1_000_000_000_000),
    ('P', 1 << 50, 1_000_000_000_000_000),
];

/// Bytes of a size. `K`, `Ki` and `KiB` are 1024 bytes, as in `dd`, `fio` and ossutil; `KB` is 1000. The case
/// of the letters does not matter, a space may stand before the unit, a fraction before any unit but bytes.
///
/// # Errors
/// The end of a sentence that starts with the text: what should have been written.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || "a size: write bytes or a unit, as in 8MiB, 8M, 1.5GB".to_owned();
    let text = text.trim();
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let unit_bytes = unit_bytes(&text[unit_at..]).ok_or_else(wrong)?;
    let number = text[..unit_at].trim_end();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if !all_digits(whole) || (number.contains('.') && !all_digits(fraction)) || fraction.len() > 9 {
        return Err(wrong());
    }
    if unit_bytes == 1 && !fraction.is_empty() {
        return Err("a whole number of bytes".to_owned());
    }
    let too_large = || "a size below 16 EiB".to_owned();
    let whole: u128 = whole.parse().map_err(|_| too_large())?;
    let scale = 10u128.pow(u32::try_from(fraction.len()).expect("at most nine digits"));
    let fraction: u128 = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| wrong())? };
    let bytes = whole
        .checked_mul(scale)
        .and_then(|n| (n + fraction).checked_mul(u128::from(unit_bytes)))
        .ok_or_else(too_large)?;
    u64::try_from(bytes / scale).map_err(|_| too_large())
}

/// A size with the largest binary unit that leaves at least one of it, at most one digit after the point:
/// `8MiB`, `1.5GiB`, `999B`. What is a whole number of tenths reads back as the same number of bytes.
pub fn format_size(bytes: u64) -> String {
    let Some(mut at) = UNITS.iter().rposition(|unit| bytes >= unit.1) else { return format!("{bytes}B") };
    let mut tenths = rounded_tenths(bytes, UNITS[at].1);
    // 1,048,575 bytes are 1 MiB, not 1024 KiB.
    if tenths == 10_240 && at + 1 < UNITS.len() {
        at += 1;
        tenths = 10;
    }
    let letter = UNITS[at].0;
    match tenths % 10 {
        0 => format!("{}{letter}iB", tenths / 10),
        tenth => format!("{}.{tenth}{letter}iB", tenths / 10),
    }
}

fn rounded_tenths(bytes: u64, unit_bytes: u64) -> u64 {
    let tenths = (u128::from(bytes) * 10 + u128::from(unit_bytes / 2)) / u128::from(unit_bytes);
    u64::try_from(tenths).expect("ten times a u64 over at least 1024 fits")
}

fn unit_bytes(unit: &str) -> Option<u64> {
    let upper = unit.to_ascii_uppercase();
    if upper.is_empty() || upper == "B" {
        return Some(1);
    }
    let (letter, rest) = upper.split_at(1);
    let &(_, binary, decimal) = UNITS.iter().find(|unit| letter.starts_with(unit.0))?;
    match rest {
        "" | "I" | "IB" => Some(binary),
        "B" => Some(decimal),
        _ => None,
    }
}

fn all_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        let table: &[(&str, Option<u64>)] = &[
            ("0", Some(0)),
            ("65536", Some(65_536)),
            ("65536B", Some(65_536)),
            ("8MiB", Some(8 << 20)),
            ("8Mi", Some(8 << 20)),
            ("8M", Some(8 << 20)),
            ("8m", Some(8 << 20)),
            ("8MB", Some(8_000_000)),
            (" 8 MiB ", Some(8 << 20)),
            ("256k", Some(256 << 10)),
            ("1.5GiB", Some(3 << 29)),
            ("1.5GB", Some(1_500_000_000)),
            ("0.1K", Some(102)),
            ("2T", Some(2 << 40)),
            ("1P", Some(1 << 50)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("16384P", None),
            ("99999999999999999999999999999999999999999999P", None),
            ("", None),
            ("MiB", None),
            ("-1", None),
            ("8 Mib/s", None),
            ("8X", None),
            ("8MMB", None),
            ("1.5", None),
            ("1.", None),
            (".5M", None),
            ("1.5.5M", None),
            ("0x10", None),
            ("8Mé", None),
            ("8é", None),
        ];
        for &(text, bytes) in table {
            assert_eq!(parse_size(text).ok(), bytes, "{text:?}");
        }
    }

    #[test]
    fn sizes_are_written() {
        let table: &[(u64, &str)] = &[
            (0, "0B"),
            (999, "999B"),
            (1023, "1023B"),
            (1024, "1KiB"),
            (1536, "1.5KiB"),
            (1_048_575, "1MiB"),
            (8 << 20, "8MiB"),
            ((8 << 20) + 1, "8MiB"),
            (3 << 29, "1.5GiB"),
            (5 << 40, "5TiB"),
            (u64::MAX, "16384PiB"),
        ];
        for &(bytes, text) in table {
            assert_eq!(format_size(bytes), text);
        }
    }
}
