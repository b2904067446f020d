//! Sorts records by the bytes of their keys in bounded memory: an external merge sort.
//!
//! Records are encoded into one buffer. When it is full, it is sorted and appended to an unnamed temporary
//! file as a run; at the end the runs are merged by a heap. One file holds all runs, so that their number
//! costs no open files; it is gone with its handle, whatever happens to the process.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::record::Record;

/// Bytes read ahead of each run while runs are merged.
const RUN_BUFFER: usize = 64 << 10;
/// Bytes of an encoded record before its key.
const HEAD: usize = 24;
/// The length that says that a record has no ETag.
const NO_ETAG: u32 = u32::MAX;

/// Takes records in any order.
#[derive(Debug)]
pub struct Sorter {
    folder: PathBuf,
    memory_bytes: usize,
    /// Encoded records, one after the other.
    bytes: Vec<u8>,
    /// Where each record begins in `bytes`.
    starts: Vec<usize>,
    spilled: Option<Runs>,
}

impl Sorter {
    /// Sorts in about `memory_bytes`, and spills into unnamed files in `folder` what does not fit.
    ///
    /// Merging takes 64 KiB a run, at least two runs at a time, within the same bound.
    pub fn new(folder: &Path, memory_bytes: usize) -> Sorter {
        Sorter {
            folder: folder.to_owned(),
            memory_bytes,
            bytes: Vec::new(),
            starts: Vec::new(),
            spilled: None,
        }
    }

    /// Takes a record.
    ///
    /// # Errors
    /// The system's when the folder cannot be written; a record whose key or ETag has 4 GiB.
    pub fn push(&mut self, record: Record) -> io::Result<()> {
        let start = self.bytes.len();
        self.reserve(HEAD + record.key.len() + record.etag.as_ref().map_or(0, String::len));
        encode(&record, &mut self.bytes)?;
        self.starts.push(start);
        // A sort takes half as many places again as there are starts.
        let used = self.bytes.len() + self.starts.len() * size_of::<usize>() * 3 / 2;
        if used >= self.memory_bytes { self.spill() } else { Ok(()) }
    }

    /// Ends the input. Records with equal keys come out in the order in which they went in.
    ///
    /// # Errors
    /// The system's when the folder cannot be written or read.
    pub fn finish(mut self) -> io::Result<Sorted> {
        if self.spilled.is_none() {
            self.sort();
            let starts = self.starts.into_iter();
            return Ok(Sorted { source: Source::Memory { bytes: self.bytes, starts } });
        }
        if !self.starts.is_empty() {
            self.spill()?;
        }
        // The merge has the memory to itself.
        (self.bytes, self.starts) = (Vec::new(), Vec::new());
        let fan_in = (self.memory_bytes / RUN_BUFFER).max(2);
        let mut runs = self.spilled.take().expect("checked above").finish(&self.folder)?;
        while runs.ranges.len() > fan_in {
            runs = self.merge_pass(&runs, fan_in)?;
        }
        let merge = Merge::new(&runs, 0..runs.ranges.len(), &self.folder)?;
        Ok(Sorted { source: Source::Merge(merge) })
    }

    /// Merges each `fan_in` runs into one, in a new file.
    fn merge_pass(&self, runs: &SpilledRuns, fan_in: usize) -> io::Result<SpilledRuns> {
        let mut merged = Runs::new(&self.folder)?;
        let mut encoded = Vec::new();
        for first in (0..runs.ranges.len()).step_by(fan_in) {
            let group = first..runs.ranges.len().min(first + fan_in);
            for record in Merge::new(runs, group, &self.folder)? {
                encoded.clear();
                encode(&record?, &mut encoded)?;
                merged.write(&encoded, &self.folder)?;
            }
            merged.end_run();
        }
        merged.finish(&self.folder)
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.starts.sort_by(|&a, &b| key_at(bytes, a).cmp(key_at(bytes, b)));
    }

    /// Writes what is in memory as a run.
    fn spill(&mut self) -> io::Result<()> {
        self.sort();
        let runs = match &mut self.spilled {
            Some(runs) => runs,
            none => none.insert(Runs::new(&self.folder)?),
        };
        for &start in &self.starts {
            let end = start + record_bytes(&self.bytes[start..]);
            runs.write(&self.bytes[start..end], &self.folder)?;
        }
        runs.end_run();
        self.bytes.clear();
        self.starts.clear();
        Ok(())
    }

    /// Makes room for `more` bytes: twice what there is, as a `Vec` does, but no more than the bound.
    fn reserve(&mut self, more: usize) {
        let length = self.bytes.len();
        if self.bytes.capacity() - length < more {
            let room = length.min(self.memory_bytes.saturating_sub(length)).max(more);
            self.bytes.reserve_exact(room);
        }
    }
}

/// Records by the bytes of their keys, ascending.
#[derive(Debug)]
pub struct Sorted {
    source: Source,
}

#[derive(Debug)]
enum Source {
    Memory { bytes: Vec<u8>, starts: std::vec::IntoIter<usize> },
    Merge(Merge),
}

impl Iterator for Sorted {
    type Item = io::Result<Record>;

    fn next(&mut self) -> Option<io::Result<Record>> {
        match &mut self.source {
            Source::Memory { bytes, starts } => decode(&mut &bytes[starts.next()?..]).transpose(),
            Source::Merge(merge) => merge.next(),
        }
    }
}

/// Runs being written, one after the other, into one file.
#[derive(Debug)]
struct Runs {
    output: BufWriter<File>,
    written: u64,
    ranges: Vec<Range<u64>>,
}

impl Runs {
    fn new(folder: &Path) -> io::Result<Runs> {
        let file = tempfile::tempfile_in(folder).map_err(|error| in_folder(folder, &error))?;
        Ok(Runs { output: BufWriter::with_capacity(RUN_BUFFER, file), written: 0, ranges: Vec::new() })
    }

    fn write(&mut self, encoded: &[u8], folder: &Path) -> io::Result<()> {
        self.written += encoded.len() as u64;
        self.output.write_all(encoded).map_err(|error| in_folder(folder, &error))
    }

    fn end_run(&mut self) {
        let start = self.ranges.last().map_or(0, |range| range.end);
        self.ranges.push(start..self.written);
    }

    fn finish(self, folder: &Path) -> io::Result<SpilledRuns> {
        let file = self.output.into_inner().map_err(|error| in_folder(folder, error.error()))?;
        Ok(SpilledRuns { file: Arc::new(file), ranges: self.ranges })
    }
}

/// Runs that are written.
#[derive(Debug)]
struct SpilledRuns {
    file: Arc<File>,
    ranges: Vec<Range<u64>>,
}

/// Some runs as one ascending sequence.
#[derive(Debug)]
struct Merge {
    folder: PathBuf,
    readers: Vec<BufReader<Section>>,
    heads: BinaryHeap<Head>,
}

impl Merge {
    fn new(runs: &SpilledRuns, group: Range<usize>, folder: &Path) -> io::Result<Merge> {
        let mut merge = Merge { folder: folder.to_owned(), readers: Vec::new(), heads: BinaryHeap::new() };
        for range in &runs.ranges[group] {
            let section = Section { file: runs.file.clone(), range: range.clone() };
            let mut reader = BufReader::with_capacity(RUN_BUFFER, section);
            if let Some(record) = decode(&mut reader).map_err(|error| in_folder(folder, &error))? {
                merge.heads.push(Head { record, run: merge.readers.len() });
            }
            merge.readers.push(reader);
        }
        Ok(merge)
    }
}

impl Iterator for Merge {
    type Item = io::Result<Record>;

    fn next(&mut self) -> Option<io::Result<Record>> {
        let mut head = self.heads.peek_mut()?;
        match decode(&mut self.readers[head.run]) {
            Ok(Some(next)) => Some(Ok(std::mem::replace(&mut head.record, next))),
            Ok(None) => Some(Ok(PeekMut::pop(head).record)),
            Err(error) => {
                drop(head);
                self.heads.clear();
                Some(Err(in_folder(&self.folder, &error)))
            }
        }
    }
}

/// The next record of a run. The heap's greatest has the least key, and of equal keys the earliest run.
#[derive(Debug)]
struct Head {
    record: Record,
    run: usize,
}

impl Ord for Head {
    fn cmp(&self, other: &Head) -> Ordering {
        other.record.key.cmp(&self.record.key).then(other.run.cmp(&self.run))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head {}

/// A range of a file, read by positioned reads: all runs share one handle.
#[derive(Debug)]
struct Section {
    file: Arc<File>,
    range: Range<u64>,
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = (self.range.end - self.range.start).min(buffer.len() as u64) as usize;
        let read = self.file.read_at(&mut buffer[..wanted], self.range.start)?;
        self.range.start += read as u64;
        Ok(read)
    }
}

/// Appends a record: the lengths of key and ETag, size, time, key, ETag; numbers little-endian.
fn encode(record: &Record, bytes: &mut Vec<u8>) -> io::Result<()> {
    let length = |text: &str| {
        let length = u32::try_from(text.len()).ok().filter(|&length| length != NO_ETAG);
        length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a key or an ETag of 4 GiB"))
    };
    let key_length = length(&record.key)?;
    let etag_length = record.etag.as_deref().map_or(Ok(NO_ETAG), length)?;
    bytes.extend(key_length.to_le_bytes());
    bytes.extend(etag_length.to_le_bytes());
    bytes.extend(record.size.to_le_bytes());
    bytes.extend(record.modified_s.to_le_bytes());
    bytes.extend(record.key.as_bytes());
    bytes.extend(record.etag.as_deref().unwrap_or_default().as_bytes());
    Ok(())
}

/// Reads a record; `None` at the end of the run.
fn decode(reader: &mut impl io::BufRead) -> io::Result<Option<Record>> {
    if reader.fill_buf()?.is_empty() {
        return Ok(None);
    }
    let mut head = [0; HEAD];
    reader.read_exact(&mut head)?;
    let (key_length, etag_length) = lengths(&head);
    let record = Record {
        key: text(reader, key_length)?,
        size: u64::from_le_bytes(head[8..16].try_into().expect("eight bytes")),
        modified_s: u64::from_le_bytes(head[16..24].try_into().expect("eight bytes")),
        etag: etag_length.map(|length| text(reader, length)).transpose()?,
    };
    Ok(Some(record))
}

fn text(reader: &mut impl Read, length: usize) -> io::Result<String> {
    let mut bytes = vec![0; length];
    reader.read_exact(&mut bytes)?;
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a spilled record is damaged"))
}

/// The lengths of the key and of the ETag of the record that begins with `head`.
fn lengths(head: &[u8]) -> (usize, Option<usize>) {
    let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
    let etag = number(4);
    (number(0) as usize, (etag != NO_ETAG).then_some(etag as usize))
}

fn record_bytes(record: &[u8]) -> usize {
    let (key, etag) = lengths(record);
    HEAD + key + etag.unwrap_or(0)
}

fn key_at(bytes: &[u8], start: usize) -> &[u8] {
    let (key, _) = lengths(&bytes[start..]);
    &bytes[start + HEAD..start + HEAD + key]
}

/// Says where it failed, and what helps.
fn in_folder(folder: &Path, error: &io::Error) -> io::Error {
    let folder = folder.display();
    let text =
        format!("records cannot be sorted in {folder}: {error}; name a folder with room, or more memory");
    io::Error::new(error.kind(), text)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn record(key: &str, size: u64) -> Record {
        Record { key: key.to_owned(), size, modified_s: size * 7, etag: Some(format!("\"{size}\"")) }
    }

    fn sorted(records: &[Record], memory_bytes: usize) -> (Vec<Record>, bool) {
        let folder = tempfile::tempdir().unwrap();
        let mut sorter = Sorter::new(folder.path(), memory_bytes);
        for record in records {
            sorter.push(record.clone()).unwrap();
        }
        let spilled = sorter.spilled.is_some();
        let sorted = sorter.finish().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the files have no names");
        (sorted.map(Result::unwrap).collect(), spilled)
    }

    fn check(records: &[Record], memory_bytes: usize) {
        let mut expected = records.to_vec();
        expected.sort_by(|a, b| a.key.as_bytes().cmp(b.key.as_bytes()));
        assert_eq!(sorted(records, memory_bytes).0, expected);
    }

    #[test]
    fn what_fits_is_not_spilled() {
        let records: Vec<Record> = (0..1000).map(|at| record(&format!("{:03}", at * 7 % 1000), at)).collect();
        assert!(!sorted(&records, 1 << 20).1);
        assert!(sorted(&records, 1 << 10).1);
        check(&records, 1 << 20);
        check(&[], 1 << 20);
    }

    #[test]
    fn runs_are_merged_in_passes() {
        // Each spill takes a few records, and two runs are merged at a time: some ten passes.
        let records: Vec<Record> = (0..5000).map(|at| record(&format!("{}", at * 7919 % 5000), at)).collect();
        check(&records, 300);
    }

    #[test]
    fn equal_keys_keep_their_order() {
        let records: Vec<Record> = (0..300).map(|at| record(["b", "a", ""][at as usize % 3], at)).collect();
        check(&records, 200);
        check(&records, 1 << 20);
    }

    #[test]
    fn the_error_names_the_folder() {
        let mut sorter = Sorter::new(Path::new("/no/such/folder"), 1);
        let error = sorter.push(record("a", 1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("/no/such/folder"), "{error}");
    }

    fn any_record() -> impl Strategy<Value = Record> {
        ("[a-c/é]{0,4}", any::<u64>(), any::<u64>(), proptest::option::of("[0-9a-f\"]{0,8}"))
            .prop_map(|(key, size, modified_s, etag)| Record { key, size, modified_s, etag })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn sorts_as_a_vec_does(records in vec(any_record(), 0..200), memory_bytes in 0usize..4000) {
            check(&records, memory_bytes);
        }
    }
}
