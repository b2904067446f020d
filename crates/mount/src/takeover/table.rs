//! A table in memory that outlives its process, as long as another one holds the descriptor.
//!
//! ```text
//! page 0: start of the rows, whether all of them are there
//! start ─▶ length │ kind │ id │ value     one row after the other; the last of a key counts
//! ```
//!
//! Rows are only ever added. Where most of them do not count any more, those that do are written once
//! more behind the others, `start` moves there, and what lies before is given back to the system. So a
//! process that is killed at any moment leaves the table as it was before the row, or after it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use flatout_tree::SharedTable;
use rustix::fs::{FallocateFlags, MemfdFlags};

const PAGE: u64 = 4096;
/// Where in the first page: the start of the rows, and 1 as long as all are there.
const START_AT: u64 = 0;
const WHOLE_AT: u64 = 8;
/// Length, kind and id.
const HEAD: usize = 4 + 1 + 8;
/// The length of a row that removes its key.
const REMOVED: u32 = u32::MAX;
/// So many bytes are never too many.
const SMALL: u64 = 1 << 20;

/// A table in shared memory.
#[derive(Debug)]
pub struct SharedMemory {
    file: File,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    start: u64,
    end: u64,
    /// How many bytes counted when that was last looked at.
    counted: u64,
}

impl SharedMemory {
    /// An empty table.
    ///
    /// # Errors
    /// The system's.
    pub fn new() -> io::Result<SharedMemory> {
        let file = File::from(rustix::fs::memfd_create("flatout-mount", MemfdFlags::CLOEXEC)?);
        file.set_len(PAGE)?;
        file.write_all_at(&PAGE.to_ne_bytes(), START_AT)?;
        file.write_all_at(&1_u64.to_ne_bytes(), WHOLE_AT)?;
        SharedMemory::of(file.into())
    }

    /// The table that another process has written by this descriptor. To be written to once its rows were
    /// read, by one process at a time.
    ///
    /// # Errors
    /// It is no such table.
    pub fn of(descriptor: OwnedFd) -> io::Result<SharedMemory> {
        let file = File::from(descriptor);
        let start = number_at(&file, START_AT)?;
        let state = State { start, end: file.metadata()?.len(), counted: 0 };
        Ok(SharedMemory { file, state: Mutex::new(state) })
    }

    /// Another descriptor of it.
    ///
    /// # Errors
    /// The system's.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, kind: u8, id: u64, length: u32, value: &[u8]) {
        let mut row = Vec::with_capacity(HEAD + value.len());
        row.extend(length.to_ne_bytes());
        row.push(kind);
        row.extend(id.to_ne_bytes());
        row.extend(value);
        let mut state = self.state();
        match self.file.write_all_at(&row, state.end) {
            Ok(()) => state.end += row.len() as u64,
            // There is no memory. This page is there.
            Err(_) => drop(self.file.write_all_at(&0_u64.to_ne_bytes(), WHOLE_AT)),
        }
        if state.end - state.start > 2 * state.counted + SMALL {
            // Where it fails, it is tried again once the table is twice as long.
            if self.shorten(&mut state).is_err() {
                state.counted = state.end - state.start;
            }
        }
    }

    /// Writes the rows that count once more, and gives all others back.
    fn shorten(&self, state: &mut State) -> io::Result<()> {
        let mut last: HashMap<(u8, u64), u64> = HashMap::new();
        self.scan(state, &mut |at, kind, id, value| {
            match value {
                Some(_) => drop(last.insert((kind, id), at)),
                None => drop(last.remove(&(kind, id))),
            }
            Ok(())
        })?;
        let (mut to, mut block) = (state.end, Vec::new());
        self.scan(state, &mut |at, kind, id, value| {
            if let Some(value) = value.filter(|_| last.get(&(kind, id)) == Some(&at)) {
                block.extend((value.len() as u32).to_ne_bytes());
                block.push(kind);
                block.extend(id.to_ne_bytes());
                block.extend(value);
                if block.len() >= SMALL as usize {
                    self.file.write_all_at(&block, to)?;
                    to += block.len() as u64;
                    block.clear();
                }
            }
            Ok(())
        })
        .and_then(|_| self.file.write_all_at(&block, to))
        // What was written of the copy is in the way of the next rows.
        .inspect_err(|_| drop(self.file.set_len(state.end)))?;
        to += block.len() as u64;
        self.file.write_all_at(&state.end.to_ne_bytes(), START_AT)?;
        *state = State { start: state.end, end: to, counted: to - state.end };
        let before = state.start / PAGE * PAGE;
        if before > PAGE {
            let punches = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&self.file, punches, PAGE, before - PAGE)?;
        }
        Ok(())
    }

    /// Hands each row on: where it is, its key, its value or that it was removed. Returns where the last
    /// whole one ends.
    fn scan(&self, state: &State, each: &mut EachRow<'_>) -> io::Result<u64> {
        let from = ReadFrom { file: &self.file, at: state.start, end: state.end };
        let mut reader = BufReader::with_capacity(SMALL as usize, from);
        let (mut at, mut head, mut value) = (state.start, [0; HEAD], Vec::new());
        while state.end - at >= HEAD as u64 {
            reader.read_exact(&mut head)?;
            let length = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]);
            let mut id = [0; 8];
            id.copy_from_slice(&head[5..]);
            let bytes = if length == REMOVED { 0 } else { u64::from(length) };
            if state.end - at - (HEAD as u64) < bytes {
                break;
            }
            value.resize(bytes as usize, 0);
            reader.read_exact(&mut value)?;
            each(at, head[4], u64::from_ne_bytes(id), (length != REMOVED).then_some(&value[..]))?;
            at += HEAD as u64 + bytes;
        }
        Ok(at)
    }
}

/// Where it is, its kind and id, its value; none of one that removes its key.
type EachRow<'a> = dyn FnMut(u64, u8, u64, Option<&[u8]>) -> io::Result<()> + 'a;

struct ReadFrom<'a> {
    file: &'a File,
    at: u64,
    end: u64,
}

impl Read for ReadFrom<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(buffer.len());
        let bytes = self.file.read_at(&mut buffer[..most], self.at)?;
        self.at += bytes as u64;
        Ok(bytes)
    }
}

fn number_at(file: &File, at: u64) -> io::Result<u64> {
    let mut number = [0; 8];
    file.read_exact_at(&mut number, at)?;
    Ok(u64::from_ne_bytes(number))
}

impl SharedTable for SharedMemory {
    fn put(&self, kind: u8, id: u64, value: &[u8]) {
        self.add(kind, id, value.len() as u32, value);
    }

    fn remove(&self, kind: u8, id: u64) {
        self.add(kind, id, REMOVED, &[]);
    }

    fn rows(&self) -> Option<Vec<(u8, u64, Vec<u8>)>> {
        let mut state = self.state();
        if number_at(&self.file, WHOLE_AT).ok()? != 1 {
            return None;
        }
        let mut rows: HashMap<(u8, u64), Vec<u8>> = HashMap::new();
        let scanned = self.scan(&state, &mut |_, kind, id, value| {
            match value {
                Some(value) => drop(rows.insert((kind, id), value.to_vec())),
                None => drop(rows.remove(&(kind, id))),
            }
            Ok(())
        });
        // A row that was cut off is none, and must not end in the midst of the next.
        state.end = scanned.ok()?;
        self.file.set_len(state.end).ok()?;
        Some(rows.into_iter().map(|((kind, id), value)| (kind, id, value)).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn sorted(table: &SharedMemory) -> Vec<(u8, u64, Vec<u8>)> {
        let mut rows = table.rows().unwrap();
        rows.sort();
        rows
    }

    #[test]
    fn the_last_value_of_a_key_counts_for_the_next_process() {
        let table = SharedMemory::new().unwrap();
        table.put(1, 7, b"one");
        table.put(2, 7, b"");
        table.put(1, 7, b"two");
        table.put(1, 8, b"gone");
        table.remove(1, 8);
        let next = SharedMemory::of(table.descriptor().unwrap()).unwrap();
        let want = [(1, 7, b"two".to_vec()), (2, 7, Vec::new())];
        assert_eq!(sorted(&next), want);
        drop(table);
        next.put(3, 1, b"x");
        assert_eq!(sorted(&next).len(), 3);
    }

    #[test]
    fn a_row_that_was_cut_off_is_none() {
        let table = SharedMemory::new().unwrap();
        table.put(1, 7, b"one");
        table.put(1, 8, &[9; 100]);
        let length = table.file.metadata().unwrap().len();
        for cut in [1, 50, 100, 104, 112] {
            table.file.set_len(length - cut).unwrap();
            let next = SharedMemory::of(table.descriptor().unwrap()).unwrap();
            assert_eq!(sorted(&next), [(1, 7, b"one".to_vec())], "{cut}");
            next.put(1, 9, b"");
            assert_eq!(sorted(&SharedMemory::of(table.descriptor().unwrap()).unwrap()).len(), 2);
            table.file.set_len(length - 113).unwrap();
            // Whose rest would be rows by itself.
            let row = [&100_u32.to_ne_bytes()[..], &[1], &8_u64.to_ne_bytes(), &[0; 100]].concat();
            table.file.write_all_at(&row, length - 113).unwrap();
        }
    }

    #[test]
    fn it_stays_short() {
        let table = SharedMemory::new().unwrap();
        let mut want = BTreeMap::new();
        for round in 0..200_000_u64 {
            let (id, value) = (round * 7919 % 5_000, round.to_ne_bytes());
            match round % 3 {
                0 => {
                    table.remove(1, id);
                    want.remove(&id);
                }
                _ => {
                    table.put(1, id, &value);
                    want.insert(id, value.to_vec());
                }
            }
        }
        let next = SharedMemory::of(table.descriptor().unwrap()).unwrap();
        assert_eq!(sorted(&next), want.into_iter().map(|(id, value)| (1, id, value)).collect::<Vec<_>>());
        // In blocks of 512 bytes.
        let held = table.file.metadata().unwrap().blocks() * 512;
        assert!(held < 3 * SMALL, "{held}");
    }

    #[test]
    fn what_could_not_be_kept_is_known() {
        let table = SharedMemory::new().unwrap();
        table.file.write_all_at(&0_u64.to_ne_bytes(), WHOLE_AT).unwrap();
        assert!(SharedMemory::of(table.descriptor().unwrap()).unwrap().rows().is_none());
        let empty = File::from(rustix::fs::memfd_create("empty", MemfdFlags::CLOEXEC).unwrap());
        assert!(SharedMemory::of(empty.into()).is_err());
    }
}
