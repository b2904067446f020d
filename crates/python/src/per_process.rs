//! A value that each process makes for itself. A forked child inherits memory without the threads that work
//! on it, and perhaps locks that no thread will ever open: it leaks what it inherited, and touches none of
//! it.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwapOption, Guard};

/// A value made at the first use in each process.
pub struct PerProcess<T> {
    current: ArcSwapOption<Cell<T>>,
}

/// The value of one process.
struct Cell<T> {
    process: u32,
    value: Mutex<Option<Arc<T>>>,
}

impl<T> PerProcess<T> {
    pub fn new() -> PerProcess<T> {
        PerProcess { current: ArcSwapOption::empty() }
    }

    /// The value, made if need be; other threads wait meanwhile.
    pub fn get<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        let cell = self.cell();
        let mut value = cell.value.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = &*value {
            return Ok(value.clone());
        }
        let made = Arc::new(make()?);
        *value = Some(made.clone());
        Ok(made)
    }

    /// The value, if it has been made and no thread holds its lock.
    pub fn known(&self) -> Option<Arc<T>> {
        self.cell().value.try_lock().ok()?.clone()
    }

    /// Takes it away; the next use makes another.
    pub fn take(&self) -> Option<Arc<T>> {
        self.cell().value.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn cell(&self) -> Arc<Cell<T>> {
        let process = std::process::id();
        loop {
            let known = self.current.load();
            if let Some(cell) = known.as_ref().filter(|cell| cell.process == process) {
                return cell.clone();
            }
            let fresh = Arc::new(Cell { process, value: Mutex::new(None) });
            let before = self.current.compare_and_swap(&known, Some(fresh.clone()));
            let is_ours = before.as_ref().is_none_or(|cell| cell.process != process);
            if is_ours {
                // It is the parent's: this reference, which is never given back, keeps it from being dropped
                // here.
                mem::forget(Guard::into_inner(before));
                return fresh;
            }
            // Another thread of this process was faster.
        }
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        let cell = self.current.swap(None);
        if cell.as_ref().is_some_and(|cell| cell.process != std::process::id()) {
            mem::forget(cell);
        }
    }
}
