//! Splits one line of CSV into its cells.
//!
//! Inventories have no line ends within cells, because keys are URL-encoded. Splitting line by line keeps
//! memory bounded whatever the file is, and a stray quote costs one row, not the rest of the file.

use csv_core::{ReadRecordResult, Reader};

/// The cells of a line, unquoted. Its buffers serve line after line.
#[derive(Debug, Default)]
pub(super) struct Cells {
    bytes: Vec<u8>,
    /// Where each cell ends in `bytes`.
    ends: Vec<usize>,
    count: usize,
}

impl Cells {
    /// Splits `line`, which has no line end.
    pub(super) fn split(&mut self, line: &[u8]) {
        let mut reader = Reader::new();
        // A line of n bytes has at most n bytes in its cells, and n + 1 cells.
        let cells = line.iter().filter(|&&byte| byte == b',').count() + 1;
        self.bytes.resize(self.bytes.len().max(line.len() + 1), 0);
        self.ends.resize(self.ends.len().max(cells + 1), 0);
        let (mut input, mut written) = (line, 0);
        self.count = 0;
        loop {
            let (result, read, bytes, ends) =
                reader.read_record(input, &mut self.bytes[written..], &mut self.ends[self.count..]);
            (input, written, self.count) = (&input[read..], written + bytes, self.count + ends);
            match result {
                // An empty input tells the reader that the line has ended.
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull => self.bytes.resize(self.bytes.len() * 2, 0),
                ReadRecordResult::OutputEndsFull => self.ends.resize(self.ends.len() * 2, 0),
                ReadRecordResult::Record | ReadRecordResult::End => return,
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn get(&self, at: usize) -> Option<&[u8]> {
        let end = *self.ends[..self.count].get(at)?;
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        Some(&self.bytes[start..end])
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.count).filter_map(|at| self.get(at))
    }
}
