//! A segment among the others of its version: whose it is, who waits for it, what of it has been read.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Weak};

use super::lane::LaneId;
use super::ranges_read::RangesRead;
use super::segment::{Pieces, Segment};
use crate::transfer::Running;

/// A segment in the map.
pub(super) struct Entry {
    pub(super) segment: Arc<Segment>,
    /// Its transfer, as long as that runs.
    pub(super) running: Weak<Running>,
    /// Nobody has waited for it yet.
    pub(super) is_ahead: bool,
    pub(super) lane: Option<LaneId>,
    /// Until so many of its bytes have landed, a read waits.
    pub(super) waits: Vec<(u64, u64)>,
    /// What of it has been read.
    pub(super) read: RangesRead,
}

/// Where those begin that a range touches.
fn touched(entries: &BTreeMap<u64, Entry>, range: &Range<u64>) -> Range<u64> {
    let before = entries.range(..range.start).next_back();
    let reaches = before.filter(|(_, entry)| entry.segment.range.end > range.start);
    let first = reaches.map_or(range.start, |(start, _)| *start);
    first..range.end.max(first)
}

/// Those that a range touches.
pub(super) fn overlapping<'a>(
    entries: &'a BTreeMap<u64, Entry>,
    range: &Range<u64>,
) -> impl Iterator<Item = &'a Entry> {
    entries.range(touched(entries, range)).map(|(_, entry)| entry)
}

/// The same.
pub(super) fn overlapping_mut<'a>(
    entries: &'a mut BTreeMap<u64, Entry>,
    range: &Range<u64>,
) -> impl Iterator<Item = &'a mut Entry> {
    let touched = touched(entries, range);
    entries.range_mut(touched).map(|(_, entry)| entry)
}

/// What of a range is neither there nor on its way.
pub(super) fn gaps(entries: &BTreeMap<u64, Entry>, range: &Range<u64>) -> Vec<Range<u64>> {
    let (mut gaps, mut at) = (Vec::new(), range.start);
    for entry in overlapping(entries, range) {
        let there = &entry.segment.range;
        if there.start > at {
            gaps.push(at..there.start);
        }
        at = there.end;
    }
    if at < range.end {
        gaps.push(at..range.end);
    }
    gaps
}

/// What is there of a range, from its start on.
pub(super) fn landed(entries: &BTreeMap<u64, Entry>, range: &Range<u64>) -> Pieces {
    let mut pieces = Pieces::default();
    let mut at = range.start;
    for segment in overlapping(entries, range).map(|entry| &entry.segment) {
        let end = range.end.min(segment.range.start + segment.landed());
        if segment.range.start > at || end <= at {
            break;
        }
        pieces.push(segment, &(at..end));
        at = end;
    }
    pieces
}

impl Entry {
    pub(super) fn is_all_read(&self) -> bool {
        self.read.is_all_of(&self.segment.range)
    }

    /// Bytes that have landed, and that nobody has read.
    pub(super) fn unread_bytes(&self) -> u64 {
        self.segment.landed().saturating_sub(self.read.bytes())
    }
}
