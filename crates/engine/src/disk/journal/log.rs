//! The file of a journal: blocks are appended in batches, without a sync. What a power failure tears or loses
//! is found by the CRCs; what is not written yet is fetched again.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::block_range;
use super::blocks::{Blocks, Piece};
use super::record::{self, DownloadIdentity, Journal, LandedBlock, RECORD_BYTES};

/// Blocks are written when so many wait: at 10 GB/s that is 150 writes of 1.5 KiB a second.
const BATCH_BLOCKS: usize = 64;
/// And every so often, however few: what kill -9 loses on a slow line.
pub(crate) const BATCH_AGE: Duration = Duration::from_millis(250);

/// A journal that is being written.
pub(crate) struct Log {
    file: File,
    total_bytes: u64,
    state: Mutex<State>,
}

struct State {
    /// Where the next records go.
    end: u64,
    open: Blocks,
    waiting: Vec<u8>,
    /// Of the blocks that wait.
    waiting_bytes: u64,
    /// Bytes of the blocks that are written, and where the last ends that was noted.
    noted_bytes: u64,
    noted_end: u64,
    /// A write failed: what was noted before stays, and nothing is added.
    is_broken: bool,
}

impl Log {
    /// A new journal in `file`, whatever that held; `None` for an identity that has none.
    ///
    /// # Errors
    /// Where it cannot be written: the disk is full, for one.
    pub(crate) fn begin(file: File, identity: &DownloadIdentity) -> io::Result<Option<Log>> {
        file.set_len(0)?;
        let Some(head) = record::head(identity) else { return Ok(None) };
        file.write_all_at(&head, 0)?;
        Ok(Some(Log::new(file, identity.bytes(), head.len() as u64)))
    }

    /// Goes on with the journal of an earlier run, of whose blocks `kept` were found good. A torn end is
    /// shorter than the record that is written over it.
    pub(crate) fn go_on(file: File, journal: &Journal, kept: &[std::ops::Range<u64>]) -> Log {
        let log = Log::new(file, journal.identity.bytes(), journal.whole_bytes);
        let mut state = log.lock();
        state.noted_bytes = kept.iter().map(|range| range.end - range.start).sum();
        state.noted_end = kept.last().map_or(0, |range| range.end);
        drop(state);
        log
    }

    fn new(file: File, total_bytes: u64, end: u64) -> Log {
        let state = State {
            end,
            open: Blocks::default(),
            waiting: Vec::with_capacity(BATCH_BLOCKS * RECORD_BYTES),
            waiting_bytes: 0,
            noted_bytes: 0,
            noted_end: 0,
            is_broken: false,
        };
        Log { file, total_bytes, state: Mutex::new(state) }
    }

    /// The journal itself.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Pieces have been written to their file.
    pub(crate) fn on_pieces(&self, pieces: impl IntoIterator<Item = Piece>) {
        let mut state = self.lock();
        for piece in pieces {
            if let Some(block) = state.open.on_piece(piece, self.total_bytes) {
                self.note(&mut state, &block);
            }
        }
        if state.waiting.len() >= BATCH_BLOCKS * RECORD_BYTES {
            self.write(&mut state);
        }
    }

    fn note(&self, state: &mut State, block: &LandedBlock) {
        let range = block_range(block.number, self.total_bytes).expect("a block of pieces of this file");
        state.waiting.extend(record::record(block));
        state.waiting_bytes += range.end - range.start;
        state.noted_end = state.noted_end.max(range.end);
    }

    /// A short write leaves a torn record behind, which counts for nothing.
    fn write(&self, state: &mut State) {
        if !state.is_broken {
            match self.file.write_all_at(&state.waiting, state.end) {
                Ok(()) => {
                    state.end += state.waiting.len() as u64;
                    state.noted_bytes += state.waiting_bytes;
                }
                Err(_) => state.is_broken = true,
            }
        }
        state.waiting.clear();
        state.waiting_bytes = 0;
    }

    /// Writes what waits; to be called every [`BATCH_AGE`], and at the end. Bytes that the next run finds in
    /// whole blocks, and where the last of these ends.
    pub(crate) fn flush(&self) -> (u64, u64) {
        let mut state = self.lock();
        if !state.waiting.is_empty() {
            self.write(&mut state);
        }
        (state.noted_bytes, state.noted_end)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use flatout_wire::checksum::Algorithm;

    use super::*;
    use crate::base::version::Version;
    use crate::disk::journal::BLOCK_BYTES;

    fn identity(blocks: u64) -> DownloadIdentity {
        DownloadIdentity {
            location: "x".into(),
            version: Version::default(),
            range: 7..7 + blocks * BLOCK_BYTES,
        }
    }

    fn piece(number: u64) -> Piece {
        Piece { start: number * BLOCK_BYTES, bytes: BLOCK_BYTES, algorithm: Algorithm::Crc32, crc: number }
    }

    fn read(path: &std::path::Path) -> Journal {
        record::read(&std::fs::read(path).expect("the file")).expect("a journal")
    }

    fn open(path: &std::path::Path) -> File {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).open(path).expect("the file opens")
    }

    #[test]
    fn blocks_are_written_in_batches_and_at_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        std::fs::write(&path, [7; 100_000]).expect("what somebody left");
        let log = Log::begin(open(&path), &identity(100)).expect("a write").expect("a short name");
        assert_eq!((read(&path).blocks.len(), read(&path).damaged), (0, 0), "made anew");
        (0..BATCH_BLOCKS as u64).for_each(|number| log.on_pieces([piece(number)]));
        assert_eq!(read(&path).blocks.len(), BATCH_BLOCKS);
        log.on_pieces([piece(70), piece(71), piece(72)]);
        assert_eq!(read(&path).blocks.len(), BATCH_BLOCKS, "three are no batch");
        assert_eq!(log.flush(), ((BATCH_BLOCKS as u64 + 3) * BLOCK_BYTES, 73 * BLOCK_BYTES));
        assert_eq!(read(&path).blocks.len(), BATCH_BLOCKS + 3);
    }

    #[test]
    fn the_next_run_appends_behind_the_last_whole_record() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        let log = Log::begin(open(&path), &identity(100)).expect("a write").expect("a short name");
        log.on_pieces([piece(3), piece(4)]);
        log.flush();
        let torn = std::fs::metadata(&path).expect("the file").len() - 5;
        open(&path).set_len(torn).expect("a cut");
        let journal = read(&path);
        assert_eq!(journal.blocks.iter().map(|block| block.number).collect::<Vec<_>>(), [3]);
        let kept = 3 * BLOCK_BYTES..4 * BLOCK_BYTES;
        let log = Log::go_on(open(&path), &journal, std::slice::from_ref(&kept));
        assert_eq!(log.flush(), (BLOCK_BYTES, 4 * BLOCK_BYTES));
        log.on_pieces([piece(9)]);
        assert_eq!(log.flush(), (2 * BLOCK_BYTES, 10 * BLOCK_BYTES));
        let journal = read(&path);
        assert_eq!(journal.blocks.iter().map(|block| block.number).collect::<Vec<_>>(), [3, 9]);
        assert_eq!(journal.damaged, 0);
    }

    #[test]
    fn a_journal_that_cannot_be_written_says_what_was() {
        // Writes to it are refused: it was opened for reading.
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        drop(Log::begin(open(&path), &identity(9)).expect("a write"));
        // The last block is a short one.
        let log = Log::new(File::open(&path).expect("the file"), 2 * BLOCK_BYTES + 5, 100);
        log.on_pieces([piece(1), Piece { bytes: 5, ..piece(2) }]);
        assert_eq!(log.flush().0, 0);
        log.on_pieces([piece(0)]);
        assert_eq!(log.flush().0, 0);
    }
}
