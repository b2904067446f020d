//! Leases: page-aligned memory from a pool that is reused, charged for what is held; dropping a lease gives it back.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, ErrorKind};

/// Slabs of this size and more ask for huge pages: fewer faults on first touch, fewer TLB misses after.
const HUGE_PAGE_BYTES: usize = 2 << 20;
const PAGE_BYTES: usize = 4096;
/// Idle slabs kept for reuse; more are unmapped when given back.
const IDLE_BYTES_MAX: u64 = 256 << 20;

/// A pool of anonymous mappings. Fresh pages cost more than receiving into them (docs/numbers.md), so slabs are kept.
#[derive(Default)]
pub(crate) struct Pool {
    idle: Mutex<Vec<Slab>>,
    idle_bytes: AtomicU64,
    held_bytes: AtomicU64,
}

impl Pool {
    /// The right to hold `bytes`, rounded up to whole pages; an idle slab of that very size is preferred.
    pub(crate) fn lease(self: &Arc<Pool>, bytes: usize) -> Result<Lease, Error> {
        let bytes = bytes.next_multiple_of(PAGE_BYTES).max(PAGE_BYTES);
        let slab = match self.take_idle(bytes) {
            Some(slab) => slab,
            None => Slab::map(bytes)?,
        };
        self.held_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(Lease { slab: Some(slab), pool: self.clone() })
    }

    /// Bytes that leases hold now.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    fn take_idle(&self, bytes: usize) -> Option<Slab> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let at = idle.iter().position(|slab| slab.bytes == bytes)?;
        self.idle_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
        Some(idle.swap_remove(at))
    }

    fn give_back(&self, slab: Slab) {
        let bytes = slab.bytes as u64;
        self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if self.idle_bytes.load(Ordering::Relaxed) + bytes <= IDLE_BYTES_MAX {
            self.idle_bytes.fetch_add(bytes, Ordering::Relaxed);
            idle.push(slab);
        }
    }
}

/// Bytes held from the pool. The memory is initialised (zeroed by the kernel, or left from an earlier holder).
pub(crate) struct Lease {
    slab: Option<Slab>,
    pool: Arc<Pool>,
}

impl Lease {
    /// Where the bytes start; valid for `len()` bytes as long as the lease lives.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.slab().start.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.slab().bytes
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        let (start, len) = (self.as_ptr(), self.len());
        // SAFETY: the slab is mapped readable and writable for `len` bytes, initialised, and borrowed mutably here.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }

    fn slab(&self) -> &Slab {
        self.slab.as_ref().expect("a lease has its slab until it is dropped")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(slab) = self.slab.take() {
            self.pool.give_back(slab);
        }
    }
}

/// One anonymous mapping, unmapped on drop.
struct Slab {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a slab is plain memory with one owner; nothing about it is bound to the thread that mapped it.
unsafe impl Send for Slab {}
// SAFETY: a shared slab only tells its address and size; those who write through the address answer for it.
unsafe impl Sync for Slab {}

impl Slab {
    fn map(bytes: usize) -> Result<Slab, Error> {
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        let Some(start) = NonNull::new(start.cast::<u8>()).filter(|_| start != libc::MAP_FAILED) else {
            let refused = std::io::Error::last_os_error();
            return Err(Error::local(&format!("cannot map {bytes} bytes of memory"), refused));
        };
        if bytes >= HUGE_PAGE_BYTES {
            // SAFETY: advice about the mapping made above; a refusal changes nothing.
            unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        }
        Ok(Slab { start, bytes })
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `map` made; its one owner is going away.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Turns a size of a setting into one that this machine can address.
pub(crate) fn addressable(bytes: u64) -> Result<usize, Error> {
    usize::try_from(bytes)
        .map_err(|_| Error::new(ErrorKind::LocalIo, format!("{bytes} bytes do not fit into memory")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_charged_while_held_and_reused_after() {
        let pool = Arc::new(Pool::default());
        let mut lease = pool.lease(10_000).expect("three pages can be had");
        assert_eq!((lease.len(), pool.held_bytes()), (12_288, 12_288));
        lease.as_mut_slice()[9_999] = 7;
        let address = lease.as_ptr();
        drop(lease);
        assert_eq!(pool.held_bytes(), 0);
        let again = pool.lease(10_000).expect("the same pages can be had");
        assert_eq!(again.as_ptr(), address, "the idle slab is taken before fresh memory");
    }
}
