//! A row of objects whose keys differ in a number: a million take no more memory than one.

use std::ops::Range;

/// Synthetic objects of one size in one bucket: `%07d` in their keys stands for the number of each, from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    pub(crate) bucket: String,
    /// Before the number.
    head: String,
    /// Of every number; leading ones are 0.
    digits: usize,
    /// Behind it.
    tail: String,
    count: u64,
    pub(crate) size: u64,
}

/// More digits than any count has here.
const MOST_DIGITS: usize = 18;

impl Series {
    /// `count` objects of `size` bytes each.
    ///
    /// # Errors
    /// In a sentence: the pattern has no `%d` or `%0Nd`, or several, or its N digits are too few: keys would
    /// not be listed in the order of their numbers then.
    pub fn new(bucket: &str, pattern: &str, count: u64, size: u64) -> Result<Series, String> {
        let places = places(pattern);
        let [(place, digits)] = &places[..] else {
            return Err(format!(
                "'{pattern}' has {} places for the number: write one, as in part-%07d",
                places.len()
            ));
        };
        let needed = count.saturating_sub(1).to_string().len();
        match () {
            () if count == 0 => Err("a row of no objects: write *1 or more".to_owned()),
            () if *digits > MOST_DIGITS => {
                Err(format!("%0{digits}d is too wide: write at most %0{MOST_DIGITS}d"))
            }
            () if needed > *digits => Err(format!(
                "the last of {count} has {needed} digits: write %0{needed}d, so that keys are listed in the order of their numbers"
            )),
            () => Ok(Series {
                bucket: bucket.to_owned(),
                head: pattern[..place.start].to_owned(),
                digits: *digits,
                tail: pattern[place.end..].to_owned(),
                count,
                size,
            }),
        }
    }

    pub(crate) fn key(&self, number: u64) -> String {
        format!("{}{number:0digits$}{}", self.head, self.tail, digits = self.digits)
    }

    pub(crate) fn contains(&self, key: &str) -> bool {
        let number = key.strip_prefix(&self.head).and_then(|rest| rest.strip_suffix(&self.tail));
        let number =
            number.filter(|text| text.len() == self.digits && text.bytes().all(|b| b.is_ascii_digit()));
        number.and_then(|text| text.parse().ok()).is_some_and(|number: u64| number < self.count)
    }

    /// The number of the first key that is not before `bound`; None when all are.
    pub(crate) fn seek(&self, bound: &str) -> Option<u64> {
        let (mut first, mut behind) = (0, self.count);
        while first < behind {
            let middle = first + (behind - first) / 2;
            if self.key(middle).as_str() < bound {
                first = middle + 1;
            } else {
                behind = middle;
            }
        }
        (first < self.count).then_some(first)
    }
}

/// Where `%d` and `%0Nd` stand, with their digits.
fn places(pattern: &str) -> Vec<(Range<usize>, usize)> {
    let found = pattern.match_indices('%').filter_map(|(at, _)| {
        let rest = &pattern[at + 1..];
        let width = &rest[..rest.find('d')?];
        let digits = match width.strip_prefix('0') {
            None if width.is_empty() => 1,
            Some(digits) => digits.parse().ok().filter(|digits| *digits > 0)?,
            None => return None,
        };
        Some((at..at + width.len() + 2, digits))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_has_one_place_and_digits_for_all() {
        for (pattern, count, first, last) in [
            ("p/%07d", 1_000_000, "p/0000000", "p/0999999"),
            ("%d.bin", 10, "0.bin", "9.bin"),
            ("%d", 1, "0", "0"),
            ("100%/%02d%", 100, "100%/00%", "100%/99%"),
            ("k%018d", 1 << 50, "k000000000000000000", "k001125899906842623"),
        ] {
            let series = Series::new("b", pattern, count, 1).unwrap();
            assert_eq!((series.key(0).as_str(), series.key(count - 1).as_str()), (first, last));
            assert!(series.contains(first) && series.contains(last) && !series.contains(&series.key(count)));
        }
        for (pattern, count, said) in [
            ("p", 2, "0 places"),
            ("%d%d", 2, "2 places"),
            ("%5d", 2, "0 places"),
            ("%0d", 2, "0 places"),
            ("%d", 11, "%02d"),
            ("%03d", 1001, "%04d"),
            ("%d", 0, "no objects"),
            ("%019d", 1, "too wide"),
        ] {
            let refused = Series::new("b", pattern, count, 1).unwrap_err();
            assert!(refused.contains(said), "{pattern} {refused}");
        }
    }

    #[test]
    fn keys_are_found_and_sought() {
        let series = Series::new("b", "p/%03d.x", 200, 1).unwrap();
        for (key, is_in) in [
            ("p/000.x", true),
            ("p/199.x", true),
            ("p/200.x", false),
            ("p/00.x", false),
            ("p/+10.x", false),
            ("p/000", false),
            ("p/.x", false),
            ("", false),
        ] {
            assert_eq!(series.contains(key), is_in, "{key}");
        }
        for (bound, number) in [
            ("", Some(0)),
            ("p/", Some(0)),
            ("p/000.x", Some(0)),
            ("p/000.y", Some(1)),
            ("p/1", Some(100)),
            ("p/199.x", Some(199)),
            ("p/199.x\0", None),
            ("q", None),
        ] {
            assert_eq!(series.seek(bound), number, "{bound}");
        }
    }
}
