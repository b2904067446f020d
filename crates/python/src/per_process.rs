//! A value that each process makes for itself. A forked child inherits memory without the threads that keep it, and perhaps locks
//! that nobody will ever open: it forgets what it inherited, and touches none of it.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A value made at the first use in each process.
pub struct PerProcess<T> {
    own: AtomicPtr<Own<T>>,
}

/// That of one process.
struct Own<T> {
    process: u32,
    value: Mutex<Option<Arc<T>>>,
}

impl<T> PerProcess<T> {
    pub fn new() -> PerProcess<T> {
        PerProcess { own: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The value, made if need be; others wait meanwhile.
    pub fn get<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        let mut value = self.own().value.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = &*value {
            return Ok(value.clone());
        }
        let made = Arc::new(make()?);
        *value = Some(made.clone());
        Ok(made)
    }

    /// The value, if it has been made and nobody is at it.
    pub fn known(&self) -> Option<Arc<T>> {
        self.own().value.try_lock().ok()?.clone()
    }

    /// Takes it away; the next use makes another.
    pub fn take(&self) -> Option<Arc<T>> {
        self.own().value.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn own(&self) -> &Own<T> {
        let process = std::process::id();
        let known = self.own.load(Ordering::Acquire);
        // SAFETY: null, or from a box that goes with `self` at the earliest.
        if let Some(own) = unsafe { known.as_ref() }
            && own.process == process
        {
            return own;
        }
        let fresh = Box::into_raw(Box::new(Own { process, value: Mutex::new(None) }));
        match self.own.compare_exchange(known, fresh, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: from a box a moment ago, which from now on goes with `self`. What was there before belongs to the
            // process that forked this one: it is leaked here.
            Ok(_) => unsafe { &*fresh },
            Err(theirs) => {
                // SAFETY: nobody else has seen it.
                drop(unsafe { Box::from_raw(fresh) });
                // SAFETY: another thread of this process was faster; its box goes with `self`.
                unsafe { &*theirs }
            }
        }
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        let own = *self.own.get_mut();
        // SAFETY: null, or from a box that nobody refers to any more, since `self` goes.
        if unsafe { own.as_ref() }.is_some_and(|own| own.process == std::process::id()) {
            // SAFETY: as above, and it is this process's own.
            drop(unsafe { Box::from_raw(own) });
        }
    }
}
