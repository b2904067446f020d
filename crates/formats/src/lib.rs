//! What file formats say of an object: extents, which are read as a whole once they are begun, and a table
//! of contents, which is fetched at once. Pure. These are hints: a lane that follows an extent prefetches no
//! more than others do, and not beyond the extent.
//!
//! The object's name says which format to expect, and the parser sees what is read anyway: nothing is fetched
//! for its sake. The next object of a numbered series is a matter of names, which the engine does not know
//! (`Reader::set_next`).

#![forbid(unsafe_code)]

mod gguf;
mod parser;
mod safetensors;
mod tails;

use std::ops::Range;

pub use parser::LayoutParser;

/// A shorter extent is one read or two.
const EXTENT_LEAST: u64 = 256 << 10;
/// A longer table is not believed.
const TABLE_MOST: u64 = 64 << 20;
/// A longer header or table is not parsed: it would take long, and little is lost.
const PARSED_MOST: u64 = 4 << 20;

/// One format. Anybody may have written the bytes: it never fails, allocates nothing by a number in them, and
/// gives up early.
pub trait Format: Send {
    /// The range to see first, of an object of `size` bytes.
    fn begin(&self, size: u64) -> Range<u64>;

    /// Parses bytes of an object of `size` bytes: all that it needed, and perhaps some that follow.
    fn parse(&mut self, bytes: &[u8], size: u64) -> Step;
}

/// What follows from the bytes that were parsed.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Parse this range next, all of it at once.
    Needs(Range<u64>),
    /// Parse this table of contents next. All from there to the object's end will be read.
    NeedsTable(Range<u64>),
    /// There is no more to learn than this.
    Done(Hints),
}

impl Step {
    /// The object has another format, or one that is too large to parse.
    fn nothing() -> Step {
        Step::Done(Hints::default())
    }
}

/// What is known of an object by its format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// In order.
    pub extents: Extents,
    /// A table of contents, up to the object's end: all of it will be read.
    pub table: Option<Range<u64>>,
}

/// Ranges that are read as a whole once they are begun, in order of their starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extents(Vec<Range<u64>>);

impl Extents {
    /// Those long enough to matter, of an object of `size` bytes.
    pub fn new(extents: impl Iterator<Item = Range<u64>>, size: u64) -> Extents {
        let within = extents.map(|extent| extent.start..extent.end.min(size));
        let long = within.filter(|extent| extent.end.saturating_sub(extent.start) >= EXTENT_LEAST);
        let mut extents: Vec<Range<u64>> = long.collect();
        extents.sort_unstable_by_key(|extent| extent.start);
        Extents(extents)
    }

    /// The extent that a read begins and does not end.
    pub fn begun_by(&self, read: &Range<u64>) -> Option<Range<u64>> {
        let next = self.0.partition_point(|extent| extent.start < read.end);
        let extent = self.0.get(next.checked_sub(1)?)?;
        (extent.start >= read.start && extent.end > read.end).then(|| extent.clone())
    }
}

/// `bytes` bytes from `at`.
fn from(at: u64, bytes: u64) -> Range<u64> {
    at..at.saturating_add(bytes)
}

/// The little-endian number of two bytes at `at`.
fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

/// The little-endian number of four bytes at `at`.
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

/// The little-endian number of eight bytes at `at`.
fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

#[cfg(test)]
mod tests;
