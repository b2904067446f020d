//! Merges the ranges of one object into requests: near ones become one. Pure.

use std::ops::Range;

use pyo3::prelude::*;

use crate::arguments;

/// From so many bytes on a range is a request of its own: it lands where it is wanted, nothing is copied.
const ALONE_BYTES: u64 = 1 << 20;
/// What is asked for together is no longer than this: it is copied to where it is wanted, while other bytes
/// come.
const TOGETHER_MOST: u64 = 8 << 20;
/// What lies between two ranges and is worth less than another request, unless somebody says.
pub const GAP_BYTES: u64 = 256 << 10;

/// One thing to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub range: Range<u64>,
    /// The ranges that lie in it, by index.
    pub of: Vec<usize>,
}

/// Puts `ranges`, none of them empty or they are left out, into runs: near ones together, in order of the
/// object.
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

/// What is asked for together, as (start, end, which of the ranges lie in it).
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
