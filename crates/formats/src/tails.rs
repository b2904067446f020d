//! Formats with a table of contents at their end. The last bytes say how long the table is, so it is fetched
//! at once, and not by the many reads that the kernel makes of it. The table of a zip says where its members
//! are; each is an extent.
//!
//! parquet: `... metadata, its length in four bytes, PAR1` (<https://parquet.apache.org/docs/file-format/>).
//! zip: the central directory; in large ones a record of it, and where that record is; the end record, which
//! a comment may follow (<https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT>, 4.3.12 to 4.3.16).

use std::ops::Range;

use super::{Extents, Format, Hints, PARSED_MOST, Step, TABLE_MOST, from, u16_at, u32_at, u64_at};

/// The footer of parquet: its metadata's length, and the magic.
const FOOTER: u64 = 8;
/// The end of a central directory without its comment, and the longest comment.
const ZIP_END: usize = 22;
const COMMENT_MOST: u64 = u16::MAX as u64;
/// What says where the record of a large one is, and that record as far as it matters.
const ZIP_LOCATOR: usize = 20;
const ZIP_RECORD: u64 = 56;

pub struct Parquet;

impl Format for Parquet {
    fn begin(&self, size: u64) -> Range<u64> {
        size.saturating_sub(FOOTER)..size
    }

    fn parse(&mut self, bytes: &[u8], size: u64) -> Step {
        match bytes.get(4..8) {
            Some(b"PAR1" | b"PARE") => {
                let table = table(size.saturating_sub(FOOTER), u32_at(bytes, 0).map(u64::from));
                Step::Done(Hints { table: table.map(|table| table.start..size), ..Hints::default() })
            }
            _ => Step::nothing(),
        }
    }
}

/// What is parsed next.
#[derive(Default)]
pub enum Zip {
    #[default]
    End,
    /// The record of a large archive, which lies there.
    Record(u64),
    /// The central directory, from where on places in the archive count in the object.
    Directory(u64),
}

impl Format for Zip {
    fn begin(&self, size: u64) -> Range<u64> {
        size.saturating_sub(COMMENT_MOST + ZIP_END as u64)..size
    }

    fn parse(&mut self, bytes: &[u8], size: u64) -> Step {
        match *self {
            Zip::End => self.see_end(bytes, size),
            Zip::Record(record) if bytes.starts_with(b"PK\x06\x06") => {
                self.directory(record, u64_at(bytes, 40), u64_at(bytes, 48), size)
            }
            Zip::Record(_) => Step::nothing(),
            Zip::Directory(base) => Step::Done(Hints { extents: members(bytes, base, size), table: None }),
        }
    }
}

impl Zip {
    fn see_end(&mut self, bytes: &[u8], size: u64) -> Step {
        // The last one whose comment goes to the end.
        let ends = |at: &usize| {
            let comment = u16_at(bytes, at + 20).map(usize::from);
            bytes[*at..].starts_with(b"PK\x05\x06") && comment == Some(bytes.len() - at - ZIP_END)
        };
        let last = bytes.len().checked_sub(ZIP_END);
        let Some(end) = last.and_then(|last| (0..=last).rev().find(ends)) else { return Step::nothing() };
        let locator = end.checked_sub(ZIP_LOCATOR).and_then(|at| bytes.get(at..end));
        match locator.filter(|locator| locator.starts_with(b"PK\x06\x07")).map(|locator| u64_at(locator, 8)) {
            Some(Some(record)) => {
                *self = Zip::Record(record);
                Step::Needs(from(record, ZIP_RECORD))
            }
            _ => {
                let of = |at: usize| u32_at(bytes, end + at).map(u64::from);
                self.directory(size.saturating_sub((bytes.len() - end) as u64), of(12), of(16), size)
            }
        }
    }

    /// The directory has `bytes` bytes, up to `end`, and says that it begins at `at`: something may stand
    /// before the archive.
    fn directory(&mut self, end: u64, bytes: Option<u64>, at: Option<u64>, size: u64) -> Step {
        let Some(table) = table(end, bytes) else { return Step::nothing() };
        if table.end - table.start > PARSED_MOST {
            return Step::Done(Hints { table: Some(table.start..size), ..Hints::default() });
        }
        // Where that makes no sense no member is found.
        *self = Zip::Directory(at.and_then(|at| table.start.checked_sub(at)).unwrap_or(u64::MAX));
        Step::NeedsTable(table)
    }
}

/// An entry of the central directory without its name, its extra fields and its comment.
const ENTRY: usize = 46;

/// Where members lie, by a central directory: each goes to the next, and the last one to that. Places count
/// from `base`.
fn members(directory: &[u8], base: u64, size: u64) -> Extents {
    let mut starts = Vec::new();
    let mut rest = directory;
    while rest.starts_with(b"PK\x01\x02") {
        let bytes = |at: usize| u16_at(rest, at).map(usize::from);
        let (Some(name), Some(extra), Some(comment)) = (bytes(28), bytes(30), bytes(32)) else { break };
        let Some(fields) = rest.get(ENTRY + name..ENTRY + name + extra) else { break };
        starts.extend(member(rest, fields).and_then(|at| base.checked_add(at)));
        rest = rest.get(ENTRY + name + extra + comment..).unwrap_or_default();
    }
    starts.sort_unstable();
    let ends = starts.iter().copied().skip(1).chain([u64::MAX]);
    // The directory stands there, which is not read with a member.
    let most = size.saturating_sub(directory.len() as u64);
    Extents::new(starts.iter().zip(ends).map(|(start, end)| *start..end.min(most)), size)
}

/// Where a member begins, by its entry.
fn member(entry: &[u8], fields: &[u8]) -> Option<u64> {
    let at = u32_at(entry, 42)?;
    if at != u32::MAX {
        return Some(at.into());
    }
    // In the field for large ones, behind the sizes that are there for the same reason (4.5.3).
    let sizes = [20, 24].into_iter().filter(|at| u32_at(entry, *at) == Some(u32::MAX)).count();
    let mut rest = fields;
    loop {
        let (id, bytes) = (u16_at(rest, 0)?, usize::from(u16_at(rest, 2)?));
        let field = rest.get(4..4 + bytes)?;
        if id == 1 {
            return u64_at(field, 8 * sizes);
        }
        rest = &rest[4 + bytes..];
    }
}

/// The table of `bytes` bytes that ends at `end`.
fn table(end: u64, bytes: Option<u64>) -> Option<Range<u64>> {
    let bytes = bytes.filter(|bytes| *bytes <= TABLE_MOST)?;
    Some(end.checked_sub(bytes)?..end)
}
