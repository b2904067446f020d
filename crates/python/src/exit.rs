//! The interpreter's end and its forks: counts the calls that have left the interpreter's lock, and waits for
//! them at the end.
//!
//! A thread that asks for the lock after the interpreter has ended is killed on the spot, across frames that
//! hold buffers. So every call ends before, and none begins after.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use flatout_engine::ErrorKind;
use pyo3::prelude::*;

use crate::errors::Failure;

static IS_OVER: AtomicBool = AtomicBool::new(false);
static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// How long the end waits for calls, which check twenty times a second whether the interpreter ends.
const PATIENCE: Duration = Duration::from_secs(5);

/// Counts a call as long as it lives.
pub struct CallGuard(());

impl CallGuard {
    /// # Errors
    /// The interpreter ends.
    pub fn enter() -> Result<CallGuard, Failure> {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        let guard = CallGuard(());
        if is_over() { Err(ends()) } else { Ok(guard) }
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        // A fork within a call resets the count, which is then lower than the number of guards.
        let _ = INSIDE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |calls| calls.checked_sub(1));
    }
}

/// Runs `work`, which does not take long, without the interpreter's lock. Once the interpreter ends it keeps
/// the lock: a thread that released it then might never get it back.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    INSIDE.fetch_add(1, Ordering::SeqCst);
    let _guard = CallGuard(());
    if is_over() { work() } else { py.detach(work) }
}

/// From here on a copy releases the interpreter's lock. To copy less takes a few microseconds; to get the
/// lock back may take five milliseconds where another thread runs Python code.
const LONG_COPY_BYTES: usize = 64 << 10;

/// Runs `work`, which copies that many bytes.
pub fn copying<T: Send>(py: Python<'_>, bytes: usize, work: impl FnOnce() -> T + Send) -> T {
    if bytes < LONG_COPY_BYTES { work() } else { detached(py, work) }
}

/// Whether the interpreter ends.
pub fn is_over() -> bool {
    IS_OVER.load(Ordering::SeqCst)
}

pub fn ends() -> Failure {
    Failure::new(ErrorKind::Cancelled, "", "", "the interpreter ends")
}

/// Ends every call, and waits until none is left. Registered with atexit.
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

/// Resets the count: all other calls are in the process that forked this one.
#[pyfunction]
pub fn _after_fork() {
    INSIDE.store(0, Ordering::SeqCst);
}
