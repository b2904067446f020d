//! The segments of a version in order, each with the reads that wait for it and with what of it has been
//! read.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use flatout_policy::ranges::RangeSet;

use super::lane::LaneId;
use super::segment::{Pieces, Segment};

/// Segments that do not overlap.
#[derive(Default)]
pub(super) struct Entries {
    pub(super) by_start: BTreeMap<u64, Entry>,
}

/// A segment in the map.
pub(super) struct Entry {
    pub(super) segment: Arc<Segment>,
    /// It was fetched ahead, and no read has waited for it yet.
    pub(super) is_ahead: bool,
    pub(super) lane: Option<LaneId>,
    /// Reads that wait: how many of the segment's bytes each needs, and its number.
    pub(super) waits: Vec<(u64, u64)>,
    pub(super) read: RangeSet,
}

impl Entries {
    /// Where the segments that overlap a range start.
    fn starts(&self, range: &Range<u64>) -> Range<u64> {
        let before = self.by_start.range(..range.start).next_back();
        let reaches = before.filter(|(_, entry)| entry.segment.range.end > range.start);
        let first = reaches.map_or(range.start, |(start, _)| *start);
        first..range.end.max(first)
    }

    pub(super) fn overlapping(&self, range: &Range<u64>) -> impl Iterator<Item = &Entry> {
        self.by_start.range(self.starts(range)).map(|(_, entry)| entry)
    }

    pub(super) fn overlapping_mut(&mut self, range: &Range<u64>) -> impl Iterator<Item = &mut Entry> {
        let starts = self.starts(range);
        self.by_start.range_mut(starts).map(|(_, entry)| entry)
    }

    /// The parts of a range that no segment covers, landed or not.
    pub(super) fn gaps(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let (mut gaps, mut at) = (Vec::new(), range.start);
        for entry in self.overlapping(range) {
            let covered = &entry.segment.range;
            if covered.start > at {
                gaps.push(at..covered.start);
            }
            at = covered.end;
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    /// The free space around a gap: from the end of the segment before it to the start of the one after it.
    pub(super) fn space_around(&self, gap: &Range<u64>, size: u64) -> Range<u64> {
        let before =
            self.by_start.range(..gap.start).next_back().map_or(0, |(_, entry)| entry.segment.range.end);
        let after = self.by_start.range(gap.start..).next().map_or(size, |(start, _)| *start);
        before..after
    }

    /// The landed bytes of a range, from its start up to the first byte that has not landed.
    pub(super) fn landed(&self, range: &Range<u64>) -> Pieces {
        let (mut pieces, mut at) = (Pieces::default(), range.start);
        for entry in self.overlapping(range) {
            let segment = &entry.segment;
            let end = range.end.min(segment.range.start + segment.landed());
            if segment.range.start > at || end <= at {
                break;
            }
            pieces.push(segment, &(at..end));
            at = end;
        }
        pieces
    }
}

impl Entry {
    pub(super) fn is_all_read(&self) -> bool {
        self.read.is_all_of(&self.segment.range)
    }

    /// Landed bytes that no read has been answered with.
    pub(super) fn unread_bytes(&self) -> u64 {
        self.segment.landed().saturating_sub(self.read.bytes())
    }
}
