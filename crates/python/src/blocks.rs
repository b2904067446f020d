//! Memory of our own that bytes land in: aligned to pages, writable, initialised.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use flatout_engine::Memory;

const ALIGN: usize = 4096;

/// A block of bytes.
pub struct Block {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its bytes.
unsafe impl Send for Block {}
// SAFETY: nothing is written through a shared reference but by whoever keeps the promise of `memory`.
unsafe impl Sync for Block {}

impl Block {
    pub fn new(bytes: usize) -> Block {
        let layout = layout(bytes);
        if bytes == 0 {
            return Block { start: NonNull::without_provenance(ALIGN.try_into().expect("not zero")), bytes };
        }
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) });
        Block { start: start.unwrap_or_else(|| handle_alloc_error(layout)), bytes }
    }

    /// The same bytes.
    pub fn of(bytes: &[u8]) -> Block {
        let mut block = Block::new(bytes.len());
        block.fill(0, bytes);
        block
    }

    /// Copies `from` to `at`.
    pub fn fill(&mut self, at: usize, from: &[u8]) {
        // SAFETY: initialised, and `self` is borrowed for it alone.
        let all = unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) };
        all[at..at + from.len()].copy_from_slice(from);
    }

    /// A part of it.
    pub fn part(&self, at: usize, bytes: usize) -> &[u8] {
        // SAFETY: initialised; whoever has `memory` does not write any more, as it promised.
        let all = unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) };
        &all[at..at + bytes]
    }

    /// All of it, for a transfer.
    ///
    /// # Safety
    /// The transfer has ended before `self` is dropped or looked at.
    pub unsafe fn memory(&self) -> Memory {
        // SAFETY: initialised and ours; the caller keeps the rest of the promise.
        unsafe { Memory::new(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: from `alloc_zeroed` with this layout.
            unsafe { dealloc(self.start.as_ptr(), layout(self.bytes)) }
        }
    }
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, ALIGN).expect("no object is that long")
}

/// Memory that a buffer shows, from wherever it came.
pub enum Held {
    Ours(Block),
    /// What a transfer has made.
    Made(flatout_engine::Block),
}

impl Held {
    pub fn start(&self) -> *mut u8 {
        match self {
            Held::Ours(block) => block.start.as_ptr(),
            Held::Made(block) => block.as_ptr(),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Held::Ours(block) => block.bytes,
            Held::Made(block) => block.len(),
        }
    }
}
