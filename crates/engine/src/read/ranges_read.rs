//! Which bytes of a segment have been read. Pure.

use std::ops::Range;

/// Ranges that have been read, in order; none touches the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RangesRead(Vec<Range<u64>>);

impl RangesRead {
    /// One more range has been read, perhaps for the second time.
    pub(super) fn add(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first = self.0.partition_point(|known| known.end < range.start);
        let last = self.0.partition_point(|known| known.start <= range.end);
        let joined = match self.0.get(first..last) {
            Some([one, ..]) => range.start.min(one.start)..range.end.max(self.0[last - 1].end),
            _ => range.clone(),
        };
        self.0.splice(first..last, std::iter::once(joined));
    }

    /// Whether all of `range` has been.
    pub(super) fn is_all_of(&self, range: &Range<u64>) -> bool {
        self.0.iter().any(|known| known.start <= range.start && range.end <= known.end)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many bytes have been.
    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|known| known.end - known.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_has_been_read_is_what_was_added(added in prop::collection::vec((0..60_u64, 0..20_u64), 0..20)) {
            let (mut read, mut bytes) = (RangesRead::default(), [false; 100]);
            for (start, length) in added {
                read.add(&(start..start + length));
                bytes[start as usize..(start + length) as usize].fill(true);
                prop_assert_eq!(read.bytes(), bytes.iter().filter(|read| **read).count() as u64);
                prop_assert!(read.0.windows(2).all(|pair| pair[0].end < pair[1].start));
            }
            for start in 0..99 {
                let all = bytes[start..].iter().take_while(|read| **read).count() as u64;
                let start = start as u64;
                prop_assert_eq!(read.is_all_of(&(start..start + all.max(1))), all > 0);
            }
        }
    }
}
