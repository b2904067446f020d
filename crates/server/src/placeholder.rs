//! Placeholders for a file's bytes: slices that are never read; the socket calls `sendfile(2)` in their
//! place.
//!
//! hyper takes a body as slices of memory and hands them to the socket as they are. A placeholder is a slice
//! of a region of addresses behind which no memory is; its address says which file and offset are meant. So a
//! file's bytes go from the page cache to the socket without passing through this process, at half the CPU of
//! reading and writing them (docs/numbers.md), and hyper still counts, orders and paces the body.

use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;

/// Bytes in one placeholder: few calls, and connections on one thread still take turns.
pub(crate) const PLACEHOLDER_BYTES: usize = 1 << 20;

/// The most placeholders at a time; without a free one the file is read. They take 512 MiB of addresses.
const SLOTS: usize = 512;

/// `bytes` of `file` from `offset`, at most [`PLACEHOLDER_BYTES`]; `None` when all placeholders are taken.
pub(crate) fn placeholder(file: &Arc<File>, offset: u64, bytes: usize) -> Option<Bytes> {
    let region = REGION.get_or_init(Region::new);
    let slot = region.free().pop()?;
    *region.files(slot) = Some((file.clone(), offset));
    Some(Bytes::from_owner(Placeholder { region, slot, bytes }))
}

/// The file behind a slice and the offset of its first byte; `None` when the slice is plain memory.
pub(crate) fn file_behind(slice: &[u8]) -> FileRange {
    let region = REGION.get()?;
    let at = slice.as_ptr().addr().checked_sub(region.space.as_ptr().addr())?;
    if at >= region.space.len() {
        return None;
    }
    let (file, offset) = region.files(at / PLACEHOLDER_BYTES).clone()?;
    Some((file, offset + (at % PLACEHOLDER_BYTES) as u64))
}

/// One for the process: an address must have one meaning, whichever origin the bytes belong to.
static REGION: OnceLock<Region> = OnceLock::new();

/// The file and the offset at which a slot starts, while it is taken.
type FileRange = Option<(Arc<File>, u64)>;

struct Region {
    /// Zeroed memory that is never touched: the kernel gives it addresses and no pages.
    space: Vec<u8>,
    free: Mutex<Vec<usize>>,
    files: Vec<Mutex<FileRange>>,
}

impl Region {
    fn new() -> Region {
        Region {
            space: vec![0; SLOTS * PLACEHOLDER_BYTES],
            free: Mutex::new((0..SLOTS).collect()),
            files: (0..SLOTS).map(|_| Mutex::new(None)).collect(),
        }
    }

    fn free(&self) -> MutexGuard<'_, Vec<usize>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn files(&self, slot: usize) -> MutexGuard<'_, FileRange> {
        self.files[slot].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Holds a slot for as long as a slice of it is queued.
struct Placeholder {
    region: &'static Region,
    slot: usize,
    bytes: usize,
}

impl AsRef<[u8]> for Placeholder {
    fn as_ref(&self) -> &[u8] {
        &self.region.space[self.slot * PLACEHOLDER_BYTES..][..self.bytes]
    }
}

impl Drop for Placeholder {
    fn drop(&mut self) {
        *self.region.files(self.slot) = None;
        self.region.free().push(self.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_means_its_file_until_it_is_dropped() {
        let file = Arc::new(tempfile::tempfile().expect("a file"));
        let whole = placeholder(&file, 5000, 1000).expect("a slot");
        assert_eq!(whole.len(), 1000);
        for (from, offset) in [(0, 5000), (1, 5001), (999, 5999)] {
            let (found, at) = file_behind(&whole[from..]).expect("a placeholder");
            assert!(Arc::ptr_eq(&found, &file));
            assert_eq!(at, offset);
        }
        drop(whole);
        assert_eq!(Arc::strong_count(&file), 1, "the slot lets go of the file");
        assert!(file_behind(&[0; 10]).is_none(), "memory means itself");
    }
}
