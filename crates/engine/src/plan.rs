//! The plan of a get: which parts a range is cut into. Pure: no socket, no clock.

use std::ops::Range;

/// A range of an object cut into parts of one size; only the last may be shorter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    range: Range<u64>,
    part_bytes: u64,
}

impl Plan {
    pub(crate) fn new(range: Range<u64>, part_bytes: u64) -> Plan {
        assert!(
            part_bytes > 0 && range.start <= range.end,
            "settings keep part sizes positive, spans are ordered"
        );
        Plan { range, part_bytes }
    }

    pub(crate) fn range(&self) -> &Range<u64> {
        &self.range
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// How many parts there are; an empty range has none.
    pub(crate) fn parts(&self) -> u64 {
        self.bytes().div_ceil(self.part_bytes)
    }

    /// The range of part `index` within the object; `None` past the last.
    pub(crate) fn part(&self, index: u64) -> Option<Range<u64>> {
        let start = self.range.start.checked_add(index.checked_mul(self.part_bytes)?)?;
        (start < self.range.end).then(|| start..start.saturating_add(self.part_bytes).min(self.range.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(range: Range<u64>, part_bytes: u64, expected: &[Range<u64>]) {
        let plan = Plan::new(range, part_bytes);
        let parts: Vec<_> =
            (0..plan.parts()).map(|index| plan.part(index).expect("a planned part")).collect();
        assert_eq!(parts, expected);
        assert_eq!(plan.part(plan.parts()), None);
    }

    #[test]
    fn parts_cover_the_range_once() {
        check(0..0, 8, &[]);
        check(0..8, 8, std::slice::from_ref(&(0..8)));
        check(0..9, 8, &[0..8, 8..9]);
        check(5..25, 10, &[5..15, 15..25]);
        check(5..26, 10, &[5..15, 15..25, 25..26]);
        check(u64::MAX - 3..u64::MAX, 2, &[u64::MAX - 3..u64::MAX - 1, u64::MAX - 1..u64::MAX]);
    }
}
