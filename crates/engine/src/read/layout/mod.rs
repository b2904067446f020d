//! What a format says of an object: ranges that are read as a whole once they are begun. Hints and no more:
//! whatever they say, a lane that follows one goes no further ahead than others do, and not beyond the range;
//! a table is fetched so once. Pure.
//!
//! A format is told by the object's name, and looks at what is read anyway: nothing is fetched for its sake.
//! What comes next in a numbered series is no matter of bytes; the names say that, and who has them
//! (`Reader::set_next`).

mod gguf;
mod parser;
mod safetensors;
mod tails;

use std::ops::Range;

pub(super) use parser::LayoutParser;

/// A shorter range is one read or two.
const EXTENT_LEAST: u64 = 256 << 10;
/// A longer table is not believed.
const TABLE_MOST: u64 = 64 << 20;
/// A longer header, or table, is not looked at: it takes a while, and nothing is lost.
const PARSED_MOST: u64 = 4 << 20;

/// One format. Its bytes are anybody's: it never fails, takes no memory because of a number in them, and
/// gives up early.
pub(super) trait Format: Send {
    /// The range that it has to see first, of an object of `size` bytes.
    fn begin(&self, size: u64) -> Range<u64>;

    /// Sees bytes of an object of `size` bytes: all that it needed, from its start on, and perhaps some that
    /// follow.
    fn parse(&mut self, bytes: &[u8], size: u64) -> Step;
}

/// What came of looking.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// This range has to be seen next, all of it at a time.
    Needs(Range<u64>),
    /// The same of a table of contents, which is read next up to the end of the object.
    NeedsTable(Range<u64>),
    /// There is no more to know than this, and what was known before.
    Done(Hints),
}

impl Step {
    /// It is no such file, or one beyond what is looked at.
    fn nothing() -> Step {
        Step::Done(Hints::default())
    }
}

/// What is known of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hints {
    /// Ranges that are read as a whole, in order, once they are begun.
    pub(super) extents: Extents,
    /// A table of contents, up to the end of the object: all of it is read next.
    pub(super) table: Option<Range<u64>>,
}

/// Ranges that are read as a whole, in order of their starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Extents(Vec<Range<u64>>);

impl Extents {
    /// Those worth following, of an object of `size` bytes.
    pub(super) fn new(extents: impl Iterator<Item = Range<u64>>, size: u64) -> Extents {
        let within = extents.map(|extent| extent.start..extent.end.min(size));
        let long = within.filter(|extent| extent.end.saturating_sub(extent.start) >= EXTENT_LEAST);
        let mut extents: Vec<Range<u64>> = long.collect();
        extents.sort_unstable_by_key(|extent| extent.start);
        Extents(extents)
    }

    /// The range that a read begins, and does not end.
    pub(super) fn begun_by(&self, read: &Range<u64>) -> Option<Range<u64>> {
        let next = self.0.partition_point(|extent| extent.start < read.end);
        let extent = self.0.get(next.checked_sub(1)?)?;
        (extent.start >= read.start && extent.end > read.end).then(|| extent.clone())
    }
}

/// `at`, and the `bytes` bytes that follow.
fn from(at: u64, bytes: u64) -> Range<u64> {
    at..at.saturating_add(bytes)
}

/// The little-endian number at `at`.
fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

/// The same, of four bytes.
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

/// The same, of eight bytes.
fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

#[cfg(test)]
mod tests;
