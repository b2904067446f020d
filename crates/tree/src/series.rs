//! The next of a numbered series: `model-00001-of-00005.safetensors`, `part-000.parquet`, `shard_012.tar`.

/// A longer number is a time or a hash.
const DIGITS_MAX: usize = 9;

/// The name that follows `name` in its series; `None` if it has no number or is the last.
///
/// The number is the one before `-of-`, or else the digits at the end of the name before its first dot, if
/// they follow `-` or `_` or are all of it: `step_2.tar` is of a series, `v2.tar` is not.
pub(crate) fn next(name: &str) -> Option<String> {
    if let Some((start, end, total)) = numbered_of(name) {
        let number: u32 = name[start..end].parse().ok()?;
        let total: u32 = total.parse().ok()?;
        // From 0 or from 1: the last of those from 1 has the total's number.
        return (number < total).then(|| replaced(name, start, end, number + 1));
    }
    let stem_end = name.find('.').unwrap_or(name.len());
    let stem = &name[..stem_end];
    let start = stem.len() - stem.bytes().rev().take_while(u8::is_ascii_digit).count();
    let is_set_off = start == 0 || matches!(stem.as_bytes()[start - 1], b'-' | b'_');
    if start == stem.len() || !is_set_off || stem.len() - start > DIGITS_MAX {
        return None;
    }
    let number: u32 = stem[start..].parse().ok()?;
    Some(replaced(name, start, stem_end, number + 1))
}

/// Where the number of `…-00001-of-00005…` stands, and the total.
fn numbered_of(name: &str) -> Option<(usize, usize, &str)> {
    let end = name.rfind("-of-")?;
    let digits = |bytes: &str| bytes.bytes().take_while(u8::is_ascii_digit).count();
    let total = digits(&name[end + 4..]);
    let own = name[..end].bytes().rev().take_while(u8::is_ascii_digit).count();
    let fits = |digits: usize| (1..=DIGITS_MAX).contains(&digits);
    (fits(total) && fits(own)).then(|| (end - own, end, &name[end + 4..end + 4 + total]))
}

/// With as many digits as before, or one more.
fn replaced(name: &str, start: usize, end: usize, number: u32) -> String {
    format!("{}{number:0width$}{}", &name[..start], &name[end..], width = end - start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_of_a_series() {
        let rows = [
            ("model-00001-of-00005.safetensors", Some("model-00002-of-00005.safetensors")),
            ("model-00005-of-00005.safetensors", None),
            ("part-000.parquet", Some("part-001.parquet")),
            ("part-999.parquet", Some("part-1000.parquet")),
            ("shard_012.tar.gz", Some("shard_013.tar.gz")),
            ("0007", Some("0008")),
            ("7.bin", Some("8.bin")),
            ("part-00000-of-00001", Some("part-00001-of-00001")),
            ("v2.tar", None),
            ("model.safetensors", None),
            ("20261122123456.log", None),
            ("x-4294967295.bin", None),
            ("x-999999999.bin", Some("x-1000000000.bin")),
            ("-of-", None),
            ("a-of-b", None),
            ("ü-9.bin", Some("ü-10.bin")),
            ("", None),
            (".5", None),
        ];
        for (name, want) in rows {
            assert_eq!(next(name).as_deref(), want, "{name}");
        }
    }
}
