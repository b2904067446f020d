//! Handles: numbers of open files and folders.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::fs_error::FsError;
use crate::hash::BuildIdentityHasher;

pub(crate) struct Handles<T>(Mutex<State<T>>);

struct State<T> {
    last: u64,
    open: HashMap<u64, Arc<T>, BuildIdentityHasher>,
}

impl<T> Handles<T> {
    pub(crate) fn new() -> Handles<T> {
        Handles(Mutex::new(State { last: 0, open: HashMap::default() }))
    }

    /// A new number, from 1 on; none is used twice.
    pub(crate) fn add(&self, opened: T) -> u64 {
        let mut state = self.lock();
        state.last += 1;
        let number = state.last;
        state.open.insert(number, Arc::new(opened));
        number
    }

    /// As another process has numbered it.
    pub(crate) fn insert(&self, number: u64, opened: T) {
        self.lock().open.insert(number, Arc::new(opened));
    }

    /// No number up to this one is handed out.
    pub(crate) fn begin_after(&self, number: u64) {
        let mut state = self.lock();
        state.last = state.last.max(number);
    }

    /// # Errors
    /// `EBADF`.
    pub(crate) fn get(&self, handle: u64) -> Result<Arc<T>, FsError> {
        self.lock().open.get(&handle).cloned().ok_or_else(|| FsError::of(libc::EBADF))
    }

    /// All that are open.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.lock().open.values().cloned().collect()
    }

    pub(crate) fn remove(&self, handle: u64) -> Option<Arc<T>> {
        self.lock().open.remove(&handle)
    }

    pub(crate) fn count(&self) -> u64 {
        self.lock().open.len() as u64
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
