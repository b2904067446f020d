//! The size of a file while it is written.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::posix::Posix;

/// What stat(2) shows of a file while it is written.
#[derive(Debug, Default)]
pub(crate) struct WrittenSize {
    pub(super) end: AtomicU64,
    pub(super) modified_s: AtomicI64,
    /// Where attributes are kept in metadata.
    posix: Mutex<Option<Arc<Posix>>>,
    /// Of a file that another process has left: what its object says.
    learned: Mutex<Option<Arc<Posix>>>,
}

impl WrittenSize {
    pub(super) fn new(end: u64, modified_s: i64, posix: Option<Arc<Posix>>) -> WrittenSize {
        WrittenSize {
            end: end.into(),
            modified_s: modified_s.into(),
            posix: Mutex::new(posix),
            learned: Mutex::default(),
        }
    }

    pub(crate) fn posix(&self) -> Option<Arc<Posix>> {
        self.posix.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_posix(&self, posix: Arc<Posix>) {
        *self.posix.lock().unwrap_or_else(PoisonError::into_inner) = Some(posix);
    }

    /// Of a file that another process has left.
    pub(crate) fn learn_posix(&self, posix: Posix) {
        let mut shown = self.posix.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.is_none() {
            let learned = Some(Arc::new(posix));
            shown.clone_from(&learned);
            *self.learned.lock().unwrap_or_else(PoisonError::into_inner) = learned;
        }
    }

    pub(super) fn learned(&self) -> Option<Arc<Posix>> {
        self.learned.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn forget_learned(&self) {
        *self.learned.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(super) fn forget_times(&self) {
        let mut posix = self.posix.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = posix.as_mut().filter(|posix| posix.has_times()) {
            Arc::make_mut(known).on_written();
        }
    }

    /// Times that a program had set are over.
    pub(super) fn on_written(&self, now_s: i64) {
        self.modified_s.store(now_s, Ordering::Relaxed);
        self.forget_times();
    }

    /// In bytes.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// In seconds since 1970.
    pub(crate) fn modified_s(&self) -> i64 {
        self.modified_s.load(Ordering::Relaxed)
    }
}
