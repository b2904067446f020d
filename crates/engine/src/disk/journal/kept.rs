//! What is there of a file already, once its journal was checked.

use std::ops::Range;

/// What is there of a file already.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Of the file, in order; they do not touch.
    pub(crate) ranges: Vec<Range<u64>>,
    pub(crate) bytes: u64,
    /// Blocks of the journal that are not on disk as they were.
    pub(crate) bad_blocks: usize,
}

impl Kept {
    /// What is missing of `range` of the object, whose first byte is the file's first.
    pub(crate) fn missing(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut missing = Vec::with_capacity(self.ranges.len() + 1);
        let mut reached = range.start;
        for kept in &self.ranges {
            missing.push(reached..range.start + kept.start);
            reached = range.start + kept.end;
        }
        missing.push(reached..range.end);
        missing
    }
}
