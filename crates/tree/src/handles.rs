//! Handles: numbers for what is open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::fault::Fault;
use crate::hash::BuildAsItIs;

pub(crate) struct Handles<T>(Mutex<State<T>>);

struct State<T> {
    last: u64,
    open: HashMap<u64, Arc<T>, BuildAsItIs>,
}

impl<T> Handles<T> {
    pub(crate) fn new() -> Handles<T> {
        Handles(Mutex::new(State { last: 0, open: HashMap::default() }))
    }

    /// From 1 on; none is given twice.
    pub(crate) fn add(&self, what: T) -> u64 {
        let mut state = self.lock();
        state.last += 1;
        let number = state.last;
        state.open.insert(number, Arc::new(what));
        number
    }

    /// # Errors
    /// `EBADF`.
    pub(crate) fn get(&self, handle: u64) -> Result<Arc<T>, Fault> {
        self.lock().open.get(&handle).cloned().ok_or_else(|| Fault::of(libc::EBADF))
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
