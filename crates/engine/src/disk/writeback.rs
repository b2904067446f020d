//! Starts write-back of large files while they are received.
//!
//! The kernel has one thread for a disk, and makes writers wait when that falls behind. Write-back that we
//! start runs beside it (docs/decisions/writeback.md).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

/// Write-back starts when this much of a part has been written.
pub(crate) const PIECE_BYTES: u64 = 4 << 20;
/// The most pieces that wait for the disk. The kernel writes back the others in its own time.
const WAITING_MOST: usize = 16;
/// The thresholds are read again after so many pieces.
const LOOK_AFTER: u64 = 16;

/// Write-back of one file, by a thread of its own. No call here waits for the disk.
#[derive(Default)]
pub(super) struct WriteBack {
    pieces: AtomicU64,
    /// The queue to the thread, once write-back is needed; `None` inside if there is no thread.
    waiting: OnceLock<Option<SyncSender<Range<u64>>>>,
}

impl WriteBack {
    /// A piece of a file of `reserved` bytes has been written.
    pub(super) fn on_written(&self, file: &File, piece: Range<u64>, reserved: u64) {
        let pieces = self.pieces.fetch_add(1, Ordering::Relaxed);
        if self.waiting.get().is_none() && pieces.is_multiple_of(LOOK_AFTER) {
            let coming = if pieces == 0 { reserved } else { LOOK_AFTER * PIECE_BYTES };
            if writers_would_wait(coming) {
                self.waiting.get_or_init(|| begin(file).ok());
            }
        }
        if let Some(Some(waiting)) = self.waiting.get() {
            let _ = waiting.try_send(piece);
        }
    }
}

fn begin(file: &File) -> io::Result<SyncSender<Range<u64>>> {
    let file = opened_again(file)?;
    let (waiting, pieces) = sync_channel(WAITING_MOST);
    std::thread::Builder::new().name("flatout-disk".into()).spawn(move || {
        for piece in pieces {
            // An error stays with the file: fsync(2) reports it.
            let _ = start(&file, &piece);
        }
    })?;
    Ok(waiting)
}

/// A descriptor that does not share the file's lock, which is to end with its owner.
fn opened_again(file: &File) -> io::Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn start(file: &File, piece: &Range<u64>) -> io::Result<()> {
    let (at, bytes) = (piece.start as libc::off64_t, (piece.end - piece.start) as libc::off64_t);
    // SAFETY: the call takes no memory, and the descriptor is open as long as `file` lives.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), at, bytes, libc::SYNC_FILE_RANGE_WRITE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether the kernel makes writers wait before `bytes` more bytes are dirty.
fn writers_would_wait(bytes: u64) -> bool {
    bytes >= PIECE_BYTES
        && std::fs::read_to_string("/proc/vmstat").is_ok_and(|rows| passes_threshold(&rows, bytes))
}

/// Whether `bytes` more dirty bytes pass the threshold at which writers wait. It lies half-way between the
/// two thresholds in these rows of /proc/vmstat, which count pages.
fn passes_threshold(rows: &str, bytes: u64) -> bool {
    let pages = |name: &str| {
        let mut rows = rows.lines().filter_map(|row| row.split_once(' '));
        rows.find(|(key, _)| *key == name)?.1.parse::<u64>().ok()
    };
    let threshold =
        || Some(u64::midpoint(pages("nr_dirty_background_threshold")?, pages("nr_dirty_threshold")?));
    let (Some(dirty), Some(threshold)) = (pages("nr_dirty"), threshold()) else { return false };
    dirty.saturating_add(bytes / rustix::param::page_size() as u64) > threshold
}

#[cfg(test)]
mod tests {
    use rustix::fs::FlockOperation;

    use super::*;

    #[test]
    fn it_starts_where_writers_would_wait() {
        let page = rustix::param::page_size() as u64;
        let rows =
            "nr_dirty 100\nnr_writeback 0\nnr_dirty_threshold 1200\nnr_dirty_background_threshold 600\n";
        assert!(!passes_threshold(rows, 800 * page));
        assert!(passes_threshold(rows, 801 * page));
        assert!(!passes_threshold("nr_dirty 100\n", u64::MAX), "a kernel that does not say");
    }

    #[test]
    fn a_small_file_is_left_to_the_kernel_and_a_huge_one_is_not() {
        let file = tempfile::tempfile().expect("a file");
        for (reserved, starts) in [(PIECE_BYTES, false), (1 << 50, true)] {
            let write_back = WriteBack::default();
            // Far more than may wait: none of them blocks.
            for at in 0..100 {
                write_back.on_written(&file, at * PIECE_BYTES..(at + 1) * PIECE_BYTES, reserved);
            }
            assert_eq!(matches!(write_back.waiting.get(), Some(Some(_))), starts, "{reserved}");
        }
    }

    #[test]
    fn the_files_lock_ends_while_its_write_back_goes_on() {
        let named = tempfile::NamedTempFile::new().expect("a file");
        let lock = |file: &File| rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive);
        let owner = named.reopen().expect("the file");
        lock(&owner).expect("a lock");
        let _written_back = opened_again(&owner).expect("the file again");
        assert!(lock(named.as_file()).is_err(), "the owner has it");
        drop(owner);
        lock(named.as_file()).expect("nobody has it");
    }

    #[test]
    fn the_kernel_takes_the_range() {
        let file = tempfile::tempfile().expect("a file");
        start(&file, &(PIECE_BYTES..2 * PIECE_BYTES)).expect("a range that may be empty");
        assert!(start(&file, &(1 << 63..(1 << 63) + 1)).is_err(), "an offset that is none");
    }
}
