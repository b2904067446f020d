//! The interpreter's end, and its forks: who is in a call without the interpreter's lock, and that nobody is when it goes.
//!
//! A thread that comes back for the lock when the interpreter has gone is ended on the spot, across frames that hold
//! buffers. So calls end before, and none begins after.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use flatout_engine::ErrorKind;
use pyo3::prelude::*;

use crate::errors::Failure;

static IS_OVER: AtomicBool = AtomicBool::new(false);
static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// What is waited for at most: calls look twenty times a second.
const PATIENCE: Duration = Duration::from_secs(5);

/// Somebody is in a call.
pub struct Inside(());

impl Inside {
    /// # Errors
    /// The interpreter ends.
    pub fn enter() -> Result<Inside, Failure> {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        let inside = Inside(());
        if is_over() { Err(ends()) } else { Ok(inside) }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // After a fork within a call there is one less than was counted.
        let _ = INSIDE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |calls| calls.checked_sub(1));
    }
}

/// Runs `work`, which does not take long, without the interpreter's lock; once the interpreter ends, with it: who lets go of it then
/// may never get it back.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    INSIDE.fetch_add(1, Ordering::SeqCst);
    let _inside = Inside(());
    if is_over() { work() } else { py.detach(work) }
}

/// Whether the interpreter ends.
pub fn is_over() -> bool {
    IS_OVER.load(Ordering::SeqCst)
}

pub fn ends() -> Failure {
    Failure::new(ErrorKind::Cancelled, "", "", "the interpreter ends")
}

/// Ends every call, and waits until none is left. For atexit.
#[pyfunction]
pub fn _at_exit(py: Python<'_>) {
    IS_OVER.store(true, Ordering::SeqCst);
    let until = Instant::now() + PATIENCE;
    py.detach(|| {
        while INSIDE.load(Ordering::SeqCst) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// Whoever was in a call is in the process that forked this one.
#[pyfunction]
pub fn _after_fork() {
    INSIDE.store(0, Ordering::SeqCst);
}
