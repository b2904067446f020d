//! A set of bytes by their ranges, as many as a million of them.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges in order; none touches the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// The end of each, by its start.
    ends: BTreeMap<u64, u64>,
    bytes: u64,
}

impl RangeSet {
    /// Adds bytes, some of which may be there.
    pub fn add(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = *range;
        // The last that begins within it, again and again: each that touches it becomes part of it.
        while let Some((&known_start, &known_end)) = self.ends.range(..=end).next_back()
            && known_end >= start
        {
            if known_start <= start && end <= known_end {
                return;
            }
            (end, self.bytes) = (end.max(known_end), self.bytes - (known_end - known_start));
            if known_start <= start {
                start = known_start;
                break;
            }
            self.ends.remove(&known_start);
        }
        self.ends.insert(start, end);
        self.bytes += end - start;
    }

    /// Removes all bytes from `end` on.
    pub fn cut(&mut self, end: u64) {
        let beyond = self.ends.split_off(&end);
        self.bytes -= beyond.iter().map(|(start, end)| end - start).sum::<u64>();
        if let Some((_, known_end)) = self.ends.iter_mut().next_back().filter(|(_, known)| **known > end) {
            self.bytes -= *known_end - end;
            *known_end = end;
        }
    }

    /// Whether all of `range` is there.
    pub fn is_all_of(&self, range: &Range<u64>) -> bool {
        let before = self.ends.range(..=range.start).next_back();
        range.is_empty() || before.is_some_and(|(_, end)| *end >= range.end)
    }

    /// What is not there of `range`, in order.
    pub fn missing_in(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        let before = self.ends.range(..=range.start).next_back().map_or(0, |(_, end)| *end);
        let mut at = range.start.max(before.min(range.end));
        for (&start, &end) in self.ends.range(at..range.end) {
            if start > at {
                missing.push(at..start);
            }
            at = at.max(end);
        }
        if at < range.end {
            missing.push(at..range.end);
        }
        missing
    }

    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ends.iter().map(|(start, end)| *start..*end)
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// How many bytes are there.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a byte for each byte.
    #[test]
    fn what_is_there_was_added_and_not_cut_off() {
        let mut state = 7_u64;
        let mut chance = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..500 {
            let (mut set, mut bytes) = (RangeSet::default(), [false; 100]);
            for _ in 0..20 {
                let start = chance(90);
                let range = start..(start + chance(20)).min(100);
                if chance(6) == 0 {
                    set.cut(start);
                    bytes[start as usize..].fill(false);
                } else {
                    set.add(&range);
                    bytes[range.start as usize..range.end as usize].fill(true);
                }
                assert_eq!(set.bytes(), bytes.iter().filter(|byte| **byte).count() as u64);
                let ranges: Vec<_> = set.iter().collect();
                assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "{ranges:?}");
                let missing = set.missing_in(&range);
                let is_missing = |at: &u64| missing.iter().any(|range| range.contains(at));
                let is_absent = |at: u64| range.contains(&at) && !bytes[at as usize];
                assert!((0..100).all(|at| is_missing(&at) == is_absent(at)), "{range:?} {missing:?} {set:?}");
                assert_eq!(set.is_all_of(&range), missing.is_empty());
                assert_eq!(set.is_empty(), ranges.is_empty());
            }
        }
    }
}
