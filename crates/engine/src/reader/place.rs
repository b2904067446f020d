//! A segment in its place among the others of its version: whose it is, who waits for it, what of it has been read.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Weak};

use super::lane::Number;
use super::read::Read;
use super::segment::{Pieces, Segment};
use crate::transfer::Running;

/// A segment in its place.
pub(super) struct Place {
    pub(super) segment: Arc<Segment>,
    /// Its transfer, as long as that runs.
    pub(super) running: Weak<Running>,
    /// Nobody has waited for it yet.
    pub(super) is_ahead: bool,
    pub(super) lane: Option<Number>,
    /// Until so many of its bytes have landed, a read waits.
    pub(super) waits: Vec<(u64, u64)>,
    /// What of it has been read.
    pub(super) read: Read,
}

/// Those that a range touches.
pub(super) fn overlapping_mut<'a>(
    places: &'a mut BTreeMap<u64, Place>,
    range: &Range<u64>,
) -> impl Iterator<Item = &'a mut Place> {
    let before = places.range(..range.start).next_back();
    let first = before.filter(|(_, place)| place.segment.range.end > range.start);
    let first = first.map_or(range.start, |(start, _)| *start);
    places.range_mut(first..range.end.max(first)).map(|(_, place)| place)
}

/// What is there of a range, from its start on.
pub(super) fn landed(places: &BTreeMap<u64, Place>, range: &Range<u64>) -> Pieces {
    let mut pieces = Pieces::default();
    let before = places.range(..range.start).next_back();
    let reaches = before.filter(|(_, place)| place.segment.range.end > range.start);
    let (first, mut at) = (reaches.map_or(range.start, |(start, _)| *start), range.start);
    for segment in places.range(first..range.end.max(first)).map(|(_, place)| &place.segment) {
        let end = range.end.min(segment.range.start + segment.landed());
        if segment.range.start > at || end <= at {
            break;
        }
        pieces.push(segment, &(at..end));
        at = end;
    }
    pieces
}

impl Place {
    pub(super) fn is_all_read(&self) -> bool {
        self.read.is_all_of(&self.segment.range)
    }

    /// Bytes that have landed, and that nobody has read.
    pub(super) fn unread_bytes(&self) -> u64 {
        self.segment.landed().saturating_sub(self.read.bytes())
    }
}
