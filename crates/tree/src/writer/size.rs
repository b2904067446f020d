//! The size of a file while it is written.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::attributes::Caller;
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
    /// Its content is newer than that of the object: times that were set of that are over.
    is_newer: AtomicBool,
}

impl WrittenSize {
    pub(super) fn new(end: u64, modified_s: i64, posix: Option<Arc<Posix>>) -> WrittenSize {
        WrittenSize {
            end: end.into(),
            modified_s: modified_s.into(),
            posix: Mutex::new(posix),
            learned: Mutex::default(),
            is_newer: AtomicBool::new(false),
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
            let learned = Arc::new(posix);
            let mut known = learned.clone();
            if self.is_newer.load(Ordering::Acquire) {
                Arc::make_mut(&mut known).on_written();
            }
            *shown = Some(known);
            *self.learned.lock().unwrap_or_else(PoisonError::into_inner) = Some(learned);
        }
    }

    pub(super) fn learned(&self) -> Option<Arc<Posix>> {
        self.learned.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn forget_learned(&self) {
        *self.learned.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Times that were set of the version before are over, also those that are not known yet.
    pub(crate) fn forget_times(&self) {
        self.is_newer.store(true, Ordering::Release);
        let mut posix = self.posix.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = posix.as_mut().filter(|posix| posix.is_of_content()) {
            Arc::make_mut(known).on_written();
        }
    }

    /// A write by another user than root clears set-user-ID and set-group-ID. Returns whether one was set.
    pub(crate) fn on_written_by(&self, caller: Caller) -> bool {
        if caller.uid == 0 {
            return false;
        }
        let mut posix = self.posix.lock().unwrap_or_else(PoisonError::into_inner);
        let left = posix.as_ref().and_then(|posix| posix.without_privileges());
        let had_some = left.is_some();
        if let Some(left) = left {
            *posix = Some(Arc::new(left));
        }
        had_some
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
