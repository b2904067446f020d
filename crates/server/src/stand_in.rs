//! Stand-ins for a file's bytes: slices that nobody reads, in whose place the socket calls `sendfile(2)`.
//!
//! hyper takes a body as slices of memory and hands them to the socket as they are. A stand-in is a slice of a region of
//! addresses behind which no memory is; its address says which file and offset are meant. So a file's bytes go from the
//! page cache to the socket without passing through this process, at half the CPU of reading and writing them
//! (docs/numbers.md), and hyper still counts, orders and paces the body.

use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;

/// Bytes in one stand-in: few calls, and connections on one thread still take turns.
pub(crate) const STAND_IN_BYTES: usize = 1 << 20;

/// As many stand-ins at a time; whoever finds none left reads the file. They take 512 MiB of addresses.
const SLOTS: usize = 512;

/// `bytes` of `file` from `offset`, at most [`STAND_IN_BYTES`]; `None` when all stand-ins are taken.
pub(crate) fn stand_in(file: &Arc<File>, offset: u64, bytes: usize) -> Option<Bytes> {
    let region = REGION.get_or_init(Region::new);
    let slot = region.free().pop()?;
    *region.meant(slot) = Some((file.clone(), offset));
    Some(Bytes::from_owner(StandIn { region, slot, bytes }))
}

/// What a slice stands for: a file and the offset of its first byte; `None` when it is plain memory.
pub(crate) fn meaning(slice: &[u8]) -> Meaning {
    let region = REGION.get()?;
    let at = slice.as_ptr().addr().checked_sub(region.space.as_ptr().addr())?;
    if at >= region.space.len() {
        return None;
    }
    let (file, offset) = region.meant(at / STAND_IN_BYTES).clone()?;
    Some((file, offset + (at % STAND_IN_BYTES) as u64))
}

/// One for the process: an address must have one meaning, whichever origin the bytes belong to.
static REGION: OnceLock<Region> = OnceLock::new();

/// The file and the offset at which a slot starts, while it is taken.
type Meaning = Option<(Arc<File>, u64)>;

struct Region {
    /// Zeroed memory that is never touched: the kernel gives it addresses and no pages.
    space: Vec<u8>,
    free: Mutex<Vec<usize>>,
    meant: Vec<Mutex<Meaning>>,
}

impl Region {
    fn new() -> Region {
        Region {
            space: vec![0; SLOTS * STAND_IN_BYTES],
            free: Mutex::new((0..SLOTS).collect()),
            meant: (0..SLOTS).map(|_| Mutex::new(None)).collect(),
        }
    }

    fn free(&self) -> MutexGuard<'_, Vec<usize>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn meant(&self, slot: usize) -> MutexGuard<'_, Meaning> {
        self.meant[slot].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Holds a slot for as long as a slice of it is queued.
struct StandIn {
    region: &'static Region,
    slot: usize,
    bytes: usize,
}

impl AsRef<[u8]> for StandIn {
    fn as_ref(&self) -> &[u8] {
        &self.region.space[self.slot * STAND_IN_BYTES..][..self.bytes]
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        *self.region.meant(self.slot) = None;
        self.region.free().push(self.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_means_its_file_until_it_is_dropped() {
        let file = Arc::new(tempfile::tempfile().expect("a file"));
        let whole = stand_in(&file, 5000, 1000).expect("a slot");
        assert_eq!(whole.len(), 1000);
        for (from, offset) in [(0, 5000), (1, 5001), (999, 5999)] {
            let (found, at) = meaning(&whole[from..]).expect("a stand-in");
            assert!(Arc::ptr_eq(&found, &file));
            assert_eq!(at, offset);
        }
        drop(whole);
        assert_eq!(Arc::strong_count(&file), 1, "the slot lets go of the file");
        assert!(meaning(&[0; 10]).is_none(), "memory means itself");
    }
}
