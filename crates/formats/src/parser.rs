//! Parses the layout of an object step by step, as its bytes are read.

use std::ops::Range;

use super::gguf::Gguf;
use super::safetensors::Safetensors;
use super::tails::{Parquet, Zip};
use super::{Format, Hints, Step};

/// A parser that needs less is shown this much at a time: it delays the read.
const PARSED_AT_ONCE: u64 = 256 << 10;
/// The parser gives up when its bytes were missing this often: out of order they may never come.
pub const TRIES: u32 = 64;
/// A read that begins farther behind what the parser needs is not shown to it.
const NEAR: u64 = 4 << 20;

/// Parses one object.
pub struct LayoutParser {
    format: Box<dyn Format>,
    needs: Range<u64>,
    size: u64,
    tries: u32,
}

impl LayoutParser {
    /// The parser for an object of this name; `None` if the name says no format.
    pub fn of(name: &str, size: u64) -> Option<LayoutParser> {
        let (_, extension) = name.rsplit_once('.')?;
        let format: Box<dyn Format> = match extension.to_ascii_lowercase().as_str() {
            "safetensors" => Box::new(Safetensors::default()),
            "gguf" => Box::new(Gguf::default()),
            "parquet" => Box::new(Parquet),
            "zip" | "npz" | "pt" | "pth" | "whl" | "jar" => Box::new(Zip::default()),
            _ => return None,
        };
        let needs = format.begin(size);
        (needs.start < needs.end && needs.end <= size).then_some(LayoutParser {
            format,
            needs,
            size,
            tries: TRIES,
        })
    }

    /// The range that the parser needs, and how far to show what follows; `None` if this read is far from it.
    pub fn wants(&self, read: &Range<u64>) -> Option<(Range<u64>, u64)> {
        let is_near = read.end > self.needs.start && read.start <= self.needs.start.saturating_add(NEAR);
        is_near.then(|| {
            (self.needs.clone(), self.needs.end.max(self.needs.start.saturating_add(PARSED_AT_ONCE)))
        })
    }

    /// Parses the bytes that it needed, or counts a try if they are missing, and adds what it learns to
    /// `hints`. Whether it is done.
    pub fn parse(&mut self, bytes: Option<&[u8]>, hints: &mut Hints) -> bool {
        let Some(bytes) = bytes.filter(|bytes| bytes.len() as u64 >= self.needs.end - self.needs.start)
        else {
            self.tries -= 1;
            return self.tries == 0;
        };
        let (needs, is_table) = match self.format.parse(bytes, self.size) {
            Step::Done(last) => {
                *hints = Hints { extents: last.extents, table: last.table.or(hints.table.take()) };
                return true;
            }
            Step::Needs(needs) => (needs, false),
            Step::NeedsTable(table) => (table, true),
        };
        if needs.start >= needs.end || needs.end > self.size {
            return true;
        }
        if is_table {
            hints.table = Some(needs.start..self.size);
        }
        (self.needs, self.tries) = (needs, TRIES);
        false
    }
}
