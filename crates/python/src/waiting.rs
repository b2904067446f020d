//! Waiting as Python waits: without its lock, with an eye on signals.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use flatout_engine::{Error, Report, Transfer};
use pyo3::prelude::*;

use crate::engine::Engine;
use crate::errors::Failure;
use crate::exit::{self, Inside};
use crate::log;

/// How often signals are looked at: ctrl-C ends a call within twice that.
const SLICE: Duration = Duration::from_millis(50);

/// Runs `work` without the interpreter's lock. It must not take long: no signal is heeded.
pub fn briefly<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    let inside = Inside::enter().map_err(|ends| ends.raise(py))?;
    let done = py.detach(work);
    drop(inside);
    Ok(done)
}

/// # Errors
/// The engine is that of the process which forked this one.
pub fn own(py: Python<'_>, engine: &Engine) -> PyResult<()> {
    if engine.is_foreign() {
        let cause = "this was begun in the process that forked this one";
        return Err(Failure::usage("", cause).with_hint("begin it anew after the fork").raise(py));
    }
    Ok(())
}

/// Waits until `is_over`, which waits at most so long itself, says so.
///
/// # Errors
/// What a signal's handler raised, such as KeyboardInterrupt; the client was closed, or the interpreter ends. Whatever was
/// waited for still runs then.
pub fn until(
    py: Python<'_>,
    engine: &Engine,
    mut is_over: impl FnMut(Duration) -> bool + Send,
) -> PyResult<()> {
    let _inside = Inside::enter().map_err(|ends| ends.raise(py))?;
    own(py, engine)?;
    loop {
        // Also where nothing has to be waited for: a call for many objects is thousands of short waits.
        py.check_signals()?;
        if exit::is_over() {
            return Err(exit::ends().raise(py));
        }
        if engine.is_closed() {
            return Err(Engine::closed().raise(py));
        }
        let is_over = py.detach(|| is_over(SLICE));
        log::tell(py, engine);
        if is_over {
            return Ok(());
        }
    }
}

/// Waits for the end of a transfer. When this returns, however it does, no thread touches its landing any more.
pub fn report(py: Python<'_>, engine: &Engine, transfer: Transfer) -> PyResult<Result<Report, Failure>> {
    if let Err(error) = until(py, engine, |slice| transfer.wait_timeout(slice)) {
        exit::detached(py, || drop(transfer));
        return Err(error);
    }
    Ok(transfer.wait().map_err(Failure::from))
}

/// The result of a call that cannot be cancelled: on a thread that is left to itself where a signal says so.
pub fn call<T: Send + 'static>(
    py: Python<'_>,
    engine: &Engine,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> PyResult<T> {
    // Before the lock of somebody else's crew.
    own(py, engine)?;
    let (tell, told) = mpsc::sync_channel(1);
    let called = engine.blocking_pool.call(move || {
        // Nobody may wait any more.
        let _ = tell.send(work());
    });
    // Let go of when this returns, however it does.
    let _called = called.map_err(|refused| Failure::local("cannot start a thread", &refused).raise(py))?;
    let mut result = None;
    let place = &mut result;
    until(py, engine, move |slice| match told.recv_timeout(slice) {
        Ok(done) => {
            *place = Some(done.map_err(Failure::from));
            true
        }
        Err(RecvTimeoutError::Timeout) => false,
        Err(RecvTimeoutError::Disconnected) => true,
    })?;
    match result {
        Some(done) => done.map_err(|failure| failure.raise(py)),
        None => Err(Failure::panicked().raise(py)),
    }
}
