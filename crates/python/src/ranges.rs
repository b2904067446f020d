//! Merges the ranges of one object into requests: near ones become one. Pure.

use std::ops::Range;

use pyo3::prelude::*;

use crate::arguments;

/// From here on a range is a request of its own: it lands in its buffer, without a copy.
const ALONE_BYTES: u64 = 1 << 20;
/// A request for several ranges is no longer than this: its bytes are copied to their buffers while others
/// arrive.
const TOGETHER_MOST: u64 = 8 << 20;
/// By default ranges with at most this many bytes between them are one request, since another one would cost
/// more.
pub const GAP_BYTES: u64 = 256 << 10;

/// A request, for one range or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub range: Range<u64>,
    /// The ranges that lie in it, by index.
    pub of: Vec<usize>,
}

/// Merges `ranges` into requests, near ones together, in order of the object. Empty ranges are left out.
pub fn runs(ranges: &[Range<u64>], max_gap: u64) -> Vec<Run> {
    let mut order: Vec<usize> = (0..ranges.len()).filter(|at| !ranges[*at].is_empty()).collect();
    order.sort_by_key(|at| (ranges[*at].start, ranges[*at].end));
    let mut runs: Vec<Run> = Vec::new();
    for at in order {
        let range = &ranges[at];
        let is_small = |range: &Range<u64>| range.end - range.start < ALONE_BYTES;
        match runs.last_mut() {
            Some(run)
                if is_small(range)
                    && is_small(&ranges[run.of[0]])
                    && range.start <= run.range.end.saturating_add(max_gap)
                    && range.end.max(run.range.end) - run.range.start <= TOGETHER_MOST =>
            {
                run.range.end = run.range.end.max(range.end);
                run.of.push(at);
            }
            _ => runs.push(Run { range: range.clone(), of: vec![at] }),
        }
    }
    runs
}

/// Merges ranges into requests: tuples of start, end, and the indices of the ranges within.
#[pyfunction]
#[pyo3(signature = (ranges, max_gap=None))]
pub fn runs_of(
    ranges: Vec<(u64, u64)>,
    #[pyo3(from_py_with = arguments::max_gap)] max_gap: Option<u64>,
) -> Vec<(u64, u64, Vec<usize>)> {
    let ranges: Vec<_> = ranges.into_iter().map(|(start, end)| start..end).collect();
    let runs = runs(&ranges, max_gap.unwrap_or(GAP_BYTES));
    runs.into_iter().map(|run| (run.range.start, run.range.end, run.of)).collect()
}
