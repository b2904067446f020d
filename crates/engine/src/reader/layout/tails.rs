//! Formats with a table of contents at their end. The last bytes say how long it is: it is fetched in one go then, not
//! by so many reads as the kernel makes of it.
//!
//! parquet: `... metadata, its length in four bytes, PAR1` (<https://parquet.apache.org/docs/file-format/>). zip: the central
//! directory, in large ones a record of it and where that is, and its end, which a comment may follow
//! (<https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT>, 4.3.12 to 4.3.16).

use std::ops::Range;

use super::{Found, Layout, Saw, TABLE_MOST, from, u32_at, u64_at};

/// The footer of parquet: its metadata's length, and the magic.
const FOOTER: u64 = 8;
/// The end of a central directory without its comment, and the longest comment.
const ZIP_END: usize = 22;
const COMMENT_MOST: u64 = u16::MAX as u64;
/// What says where the record of a large one is, and that record as far as it matters.
const ZIP_LOCATOR: usize = 20;
const ZIP_RECORD: u64 = 56;

pub(super) struct Parquet;

impl Layout for Parquet {
    fn begin(&self, size: u64) -> Range<u64> {
        size.saturating_sub(FOOTER)..size
    }

    fn see(&mut self, bytes: &[u8], size: u64) -> Saw {
        match bytes.get(4..8) {
            Some(b"PAR1" | b"PARE") => {
                table(size.saturating_sub(FOOTER), u32_at(bytes, 0).map(u64::from), size)
            }
            _ => Saw::nothing(),
        }
    }
}

/// Where the record of a large archive is, once that is known.
#[derive(Default)]
pub(super) struct Zip(Option<u64>);

impl Layout for Zip {
    fn begin(&self, size: u64) -> Range<u64> {
        size.saturating_sub(COMMENT_MOST + ZIP_END as u64)..size
    }

    fn see(&mut self, bytes: &[u8], size: u64) -> Saw {
        if let Some(record) = self.0 {
            return match bytes.starts_with(b"PK\x06\x06") {
                true => table(record, u64_at(bytes, 40), size),
                false => Saw::nothing(),
            };
        }
        // The last one whose comment goes to the end.
        let ends = |at: &usize| {
            let comment =
                bytes.get(at + 20..at + ZIP_END).map(|two| usize::from(two[0]) + 256 * usize::from(two[1]));
            bytes[*at..].starts_with(b"PK\x05\x06") && comment == Some(bytes.len() - at - ZIP_END)
        };
        let last = bytes.len().checked_sub(ZIP_END);
        let Some(end) = last.and_then(|last| (0..=last).rev().find(ends)) else { return Saw::nothing() };
        let locator = end.checked_sub(ZIP_LOCATOR).and_then(|at| bytes.get(at..end));
        match locator.filter(|locator| locator.starts_with(b"PK\x06\x07")).map(|locator| u64_at(locator, 8)) {
            Some(Some(record)) => {
                self.0 = Some(record);
                Saw::Needs(from(record, ZIP_RECORD))
            }
            // Where it is counts from its end: something may stand before the archive.
            _ => table(
                size.saturating_sub((bytes.len() - end) as u64),
                u32_at(&bytes[end..], 12).map(u64::from),
                size,
            ),
        }
    }
}

/// The table of so many bytes that goes up to `end`, with what follows.
fn table(end: u64, bytes: Option<u64>, size: u64) -> Saw {
    let bytes = bytes.filter(|bytes| *bytes <= TABLE_MOST);
    match bytes.and_then(|bytes| end.checked_sub(bytes)) {
        Some(start) => Saw::Is(Found { table: Some(start..size), ..Found::default() }),
        None => Saw::nothing(),
    }
}
