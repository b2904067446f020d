//! An allocator that counts what the engine's own threads hold: those whose names begin with `flatout-`. What
//! they free was theirs in all that is measured here.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

pub struct Counting;

static HELD: AtomicI64 = AtomicI64::new(0);

/// Bytes that the engine's threads hold, with the 16 that malloc keeps beside each piece.
pub fn held_bytes() -> i64 {
    HELD.load(Ordering::Relaxed)
}

thread_local! {
    // Neither allocates nor needs a destructor, so that it can be used by an allocator.
    static IS_COUNTED: Cell<Option<bool>> = const { Cell::new(None) };
}

fn is_counted() -> bool {
    let known = IS_COUNTED.try_with(Cell::get).unwrap_or(Some(false));
    known.unwrap_or_else(|| {
        let mut name = [0_u8; 16];
        // SAFETY: the kernel writes at most 16 bytes.
        unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
        // A new thread allocates before it has its name; until then it has that of the thread that began it.
        let counted = name.starts_with(b"flatout-");
        if counted {
            let _ = IS_COUNTED.try_with(|known| known.set(Some(true)));
        }
        counted
    })
}

fn count(bytes: i64) {
    if is_counted() {
        HELD.fetch_add(bytes, Ordering::Relaxed);
    }
}

const BESIDE: i64 = 16;

// SAFETY: every call is the system's; what is counted besides allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64 + BESIDE);
        // SAFETY: as the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64 + BESIDE);
        // SAFETY: as the caller's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        count(-(layout.size() as i64 + BESIDE));
        // SAFETY: as the caller's.
        unsafe { System.dealloc(start, layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(bytes as i64 - layout.size() as i64);
        // SAFETY: as the caller's.
        unsafe { System.realloc(start, layout, bytes) }
    }
}
