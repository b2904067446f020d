//! Slices of Python, half-open, open-ended or counted from the end, as spans. Pure.

use std::ops::Range;

use flatout_wire::range::Span;

use crate::arguments::Ends;

/// A range, as far as it is known without the object's size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeRequest {
    /// A request can name it as it is.
    Span(Span),
    /// No byte.
    Empty,
    /// It depends on the size: see [`within`].
    NeedsSize,
}

/// The range of the slice `start:end`.
pub fn range_request(start: Option<i64>, end: Option<i64>) -> RangeRequest {
    match (start, end) {
        (None | Some(0), None) => RangeRequest::Span(Span::All),
        (Some(start), None) if start < 0 => RangeRequest::Span(Span::Last(start.unsigned_abs())),
        (Some(start), None) => RangeRequest::Span(Span::From(start.unsigned_abs())),
        (start, Some(end)) => {
            let start = start.unwrap_or(0);
            if start < 0 || end < 0 {
                return RangeRequest::NeedsSize;
            }
            let (start, end) = (start.unsigned_abs(), end.unsigned_abs());
            if end <= start { RangeRequest::Empty } else { RangeRequest::Span(Span::Slice(start..end)) }
        }
    }
}

/// The range of the slice `start:end` of an object of `size` bytes.
pub fn within(start: Option<i64>, end: Option<i64>, size: u64) -> Range<u64> {
    let place = |index: i64| match index < 0 {
        true => size.saturating_sub(index.unsigned_abs()),
        false => index.unsigned_abs().min(size),
    };
    let (start, end) = (start.map_or(0, place), end.map_or(size, place));
    start..end.max(start)
}

/// The ends of a range that is given as a slice, or as `length` bytes from `offset` on; `None` where both are
/// given.
pub fn one_of(ends: Ends, offset: Option<u64>, length: Option<u64>) -> Option<Ends> {
    if (offset, length) == (None, None) {
        return Some(ends);
    }
    let place = |place: u64| i64::try_from(place).unwrap_or(i64::MAX);
    let offset = offset.unwrap_or(0);
    (ends == (None, None))
        .then(|| (Some(place(offset)), length.map(|length| place(offset.saturating_add(length)))))
}
