//! The size of a file while it is written.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// What stat(2) shows of a file while it is written.
#[derive(Debug, Default)]
pub(crate) struct WrittenSize {
    pub(super) end: AtomicU64,
    pub(super) modified_s: AtomicI64,
}

impl WrittenSize {
    /// In bytes.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// In seconds since 1970.
    pub(crate) fn modified_s(&self) -> i64 {
        self.modified_s.load(Ordering::Relaxed)
    }
}
