//! The plan of a get: which parts what is missing is cut into, one after the other. Pure: no socket, no
//! clock.
//!
//! ```text
//!   of the range:  ████░░░░░░░░████░░░░░█     █ is there, ░ is missing
//!   parts:             |0 |1 |2|   |3 |4|     each cut when it is taken, as long as parts are just then
//! ```

use std::collections::VecDeque;
use std::ops::Range;

/// What nobody has taken yet of a range of an object: all of it at first, or what an earlier run has left
/// over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// In order, none empty, none touching the next.
    missing: VecDeque<Range<u64>>,
    next_number: u64,
}

/// A part as it is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Its number in the order of taking, from 0.
    pub number: u64,
    /// Where it lies within the object.
    pub range: Range<u64>,
}

impl Plan {
    /// A plan for ranges in order that do not overlap; empty ones are left out.
    pub fn new(missing: impl IntoIterator<Item = Range<u64>>) -> Plan {
        let mut joined: VecDeque<Range<u64>> = VecDeque::new();
        for range in missing {
            assert!(range.start <= range.end, "spans are ordered");
            match joined.back_mut() {
                _ if range.is_empty() => {}
                Some(last) if last.end == range.start => last.end = range.end,
                last => {
                    assert!(last.is_none_or(|last| last.end < range.start), "what is missing is in order");
                    joined.push_back(range);
                }
            }
        }
        Plan { missing: joined, next_number: 0 }
    }

    /// The next part in order, at most `part_bytes` long; a shorter one only where what is missing ends.
    /// `None` when all has been taken. The size may be another at each call: an engine that chooses it takes
    /// multiples of 1 MiB.
    pub fn take(&mut self, part_bytes: u64) -> Option<Taken> {
        assert!(part_bytes > 0, "settings keep part sizes positive");
        let missing = self.missing.front_mut()?;
        let end = missing.start.saturating_add(part_bytes).min(missing.end);
        let range = std::mem::replace(&mut missing.start, end)..end;
        if missing.is_empty() {
            self.missing.pop_front();
        }
        let number = self.next_number;
        self.next_number += 1;
        Some(Taken { number, range })
    }

    /// The rest of a part that was taken already becomes a part of its own.
    pub fn take_rest(&mut self, rest: Range<u64>) -> Taken {
        let number = self.next_number;
        self.next_number += 1;
        Taken { number, range: rest }
    }

    /// How many parts of that size are left to take.
    pub fn left(&self, part_bytes: u64) -> u64 {
        self.missing.iter().map(|range| (range.end - range.start).div_ceil(part_bytes)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(missing: &[Range<u64>], sizes: &[u64], expected: &[Range<u64>]) {
        let mut plan = Plan::new(missing.iter().cloned());
        let mut sizes = sizes.iter().cycle();
        for (number, range) in (0..).zip(expected) {
            let size = *sizes.next().expect("a cycle has no end");
            assert_eq!(plan.take(size), Some(Taken { number, range: range.clone() }), "{missing:?}");
        }
        assert_eq!((plan.take(1), plan.left(1)), (None, 0), "{missing:?}");
    }

    /// One range, so that a slice of it is no slice of numbers.
    fn one(range: Range<u64>) -> [Range<u64>; 1] {
        [range]
    }

    #[test]
    fn parts_cover_a_range_once() {
        check(&one(0..0), &[8], &[]);
        check(&one(0..8), &[8], &one(0..8));
        check(&one(0..9), &[8], &[0..8, 8..9]);
        check(&one(5..25), &[10], &[5..15, 15..25]);
        check(&one(5..26), &[10], &[5..15, 15..25, 25..26]);
        let end = u64::MAX;
        check(&one(end - 3..end), &[2], &[end - 3..end - 1, end - 1..end]);
    }

    #[test]
    fn parts_may_have_another_size_each_time() {
        check(&one(0..20), &[2, 8, 4], &[0..2, 2..10, 10..14, 14..16, 16..20]);
    }

    #[test]
    fn a_part_ends_where_what_is_missing_does() {
        check(&[0..5, 10..12, 20..30], &[4], &[0..4, 4..5, 10..12, 20..24, 24..28, 28..30]);
        check(&[0..4, 4..8, 8..8, 9..10], &[16], &[0..8, 9..10]);
        check(&[], &[1], &[]);
    }

    #[test]
    fn the_rest_of_a_part_has_the_next_number() {
        let mut plan = Plan::new(one(0..10));
        plan.take(10);
        assert_eq!(plan.take_rest(5..10), Taken { number: 1, range: 5..10 });
        assert_eq!(plan.take(10), None);
    }

    #[test]
    fn what_is_left_is_counted_in_parts_of_now() {
        let mut plan = Plan::new([0..10, 20..25]);
        assert_eq!((plan.left(10), plan.left(4), plan.left(1)), (2, 5, 15));
        plan.take(8);
        assert_eq!((plan.left(10), plan.left(4), plan.left(1)), (2, 3, 7));
    }
}
