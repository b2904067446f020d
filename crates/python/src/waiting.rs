//! Waiting as Python code expects it: without the interpreter's lock, and ended by a signal.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use flatout_engine::{Error, Report};
use pyo3::prelude::*;

use crate::destination::{Destination, OwnedTransfer};
use crate::engine::Engine;
use crate::errors::{Failure, OrRaise};
use crate::exit::{self, CallGuard};
use crate::log;

/// How often signals are checked: ctrl-C ends a call within twice that.
const SLICE: Duration = Duration::from_millis(50);

/// Runs `work` without the interpreter's lock. It must not take long: no signal is checked meanwhile.
///
/// # Errors
/// The interpreter ends.
pub fn without_gil<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    let _guard = CallGuard::enter().or_raise(py)?;
    Ok(py.detach(work))
}

/// Refuses an engine that this process inherited by a fork: its threads are in the parent.
///
/// # Errors
/// The engine is the parent's.
pub fn check_same_process(py: Python<'_>, engine: &Engine) -> PyResult<()> {
    if engine.is_foreign() {
        let cause = "this was begun in the process that forked this one";
        return Err(Failure::usage("", cause).with_hint("begin it anew after the fork").raise(py));
    }
    Ok(())
}

/// Calls `is_over` until it returns true. Each call may wait itself, for at most the time that it is given.
///
/// # Errors
/// A signal's handler raised, as that of ctrl-C does; the client was closed; the interpreter ends. The
/// operation that was waited for then still runs.
pub fn wait_until(
    py: Python<'_>,
    engine: &Engine,
    mut is_over: impl FnMut(Duration) -> bool + Send,
) -> PyResult<()> {
    let _guard = CallGuard::enter().or_raise(py)?;
    check_same_process(py, engine)?;
    loop {
        // Also where there is nothing to wait for: a call for many objects is thousands of short waits.
        py.check_signals()?;
        if exit::is_over() {
            return Err(exit::ends().raise(py));
        }
        if engine.is_closed() {
            return Err(Engine::closed().raise(py));
        }
        let is_over = py.detach(|| is_over(SLICE));
        log::report(py, engine);
        if is_over {
            return Ok(());
        }
    }
}

/// Waits for the end of a transfer. When this returns, however it does, no thread writes to its destination.
pub fn finish(
    py: Python<'_>,
    engine: &Engine,
    transfer: OwnedTransfer,
) -> PyResult<(Result<Report, Failure>, Destination)> {
    if let Err(error) = wait_until(py, engine, |slice| transfer.wait_timeout(slice)) {
        exit::detached(py, || drop(transfer));
        return Err(error);
    }
    Ok(transfer.wait())
}

/// Runs `work`, which blocks and cannot be cancelled, on a thread of the engine's. A signal that ends the
/// wait leaves that thread to itself.
pub fn call<T: Send + 'static>(
    py: Python<'_>,
    engine: &Engine,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> PyResult<T> {
    // Before a lock of the thread pool, which may be the parent's.
    check_same_process(py, engine)?;
    let (sender, receiver) = mpsc::sync_channel(1);
    let called = engine.blocking_pool.call(move || {
        // The caller may have stopped waiting.
        let _ = sender.send(work());
    });
    // Dropped when this returns, however it does.
    let _called = called.map_err(|refused| Failure::local("cannot start a thread", &refused).raise(py))?;
    let mut result = None;
    let place = &mut result;
    wait_until(py, engine, move |slice| match receiver.recv_timeout(slice) {
        Ok(done) => {
            *place = Some(done.map_err(Failure::from));
            true
        }
        Err(RecvTimeoutError::Timeout) => false,
        Err(RecvTimeoutError::Disconnected) => true,
    })?;
    match result {
        Some(done) => done.or_raise(py),
        None => Err(Failure::panicked().raise(py)),
    }
}
