//! A format on its way to knowing: what it has to see, and what it saw.

use std::ops::Range;

use super::gguf::Gguf;
use super::safetensors::Safetensors;
use super::tails::{Parquet, Zip};
use super::{Format, Hints, Step};

/// A format is shown so much at a time where it needs less: looking takes the time of whoever reads.
const PARSED_AT_ONCE: u64 = 256 << 10;
/// What it needs is looked for so often in vain: who reads out of order may never have it there.
pub(super) const TRIES: u32 = 64;
/// A read that begins farther behind what it needs does not look.
const NEAR: u64 = 4 << 20;

/// A format on its way to knowing.
pub(in crate::read) struct LayoutParser {
    layout: Box<dyn Format>,
    needs: Range<u64>,
    size: u64,
    tries: u32,
}

impl LayoutParser {
    /// That of an object with this name, where it says a format.
    pub(in crate::read) fn of(name: &str, size: u64) -> Option<LayoutParser> {
        let (_, extension) = name.rsplit_once('.')?;
        let layout: Box<dyn Format> = match extension.to_ascii_lowercase().as_str() {
            "safetensors" => Box::new(Safetensors::default()),
            "gguf" => Box::new(Gguf::default()),
            "parquet" => Box::new(Parquet),
            "zip" | "npz" | "pt" | "pth" | "whl" | "jar" => Box::new(Zip::default()),
            _ => return None,
        };
        let needs = layout.begin(size);
        (needs.start < needs.end && needs.end <= size).then_some(LayoutParser {
            layout,
            needs,
            size,
            tries: TRIES,
        })
    }

    /// The range that must be there, and how far to show what follows; `None` where this read says nothing of
    /// it.
    pub(in crate::read) fn wants(&self, read: &Range<u64>) -> Option<(Range<u64>, u64)> {
        let is_near = read.end > self.needs.start && read.start <= self.needs.start.saturating_add(NEAR);
        is_near.then(|| {
            (self.needs.clone(), self.needs.end.max(self.needs.start.saturating_add(PARSED_AT_ONCE)))
        })
    }

    /// Shows what was wanted, where it was there, and adds what that says to `found`. Whether that is all
    /// there is to know.
    pub(in crate::read) fn parse(&mut self, bytes: Option<&[u8]>, found: &mut Hints) -> bool {
        let Some(bytes) = bytes.filter(|bytes| bytes.len() as u64 >= self.needs.end - self.needs.start)
        else {
            self.tries -= 1;
            return self.tries == 0;
        };
        let (needs, is_table) = match self.layout.parse(bytes, self.size) {
            Step::Done(last) => {
                *found = Hints { extents: last.extents, table: last.table.or(found.table.take()) };
                return true;
            }
            Step::Needs(needs) => (needs, false),
            Step::NeedsTable(table) => (table, true),
        };
        if needs.start >= needs.end || needs.end > self.size {
            return true;
        }
        if is_table {
            found.table = Some(needs.start..self.size);
        }
        (self.needs, self.tries) = (needs, TRIES);
        false
    }
}
