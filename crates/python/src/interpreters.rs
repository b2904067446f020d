//! Which interpreter this is: the engine serves the main one of a process, and no other.
//!
//! Classes, exceptions and the note that the interpreter ends are kept per process, not per interpreter: one
//! that ends would end the calls of the others.

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

/// The main interpreter's, in every process (PEP 734).
const MAIN: i64 = 0;

/// # Errors
/// ImportError in a subinterpreter: with what to do instead.
pub fn refuse_all_but_the_main_one(_attached: Python<'_>) -> PyResult<()> {
    // SAFETY: the interpreter's lock is held, as the argument proves; neither call does more than look.
    let number = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    if number == MAIN {
        return Ok(());
    }
    Err(PyImportError::new_err(
        "flatout works in a process's main interpreter only, and this is a subinterpreter: import it in the main one, or in a \
         process of its own; under mod_wsgi set WSGIApplicationGroup %{GLOBAL}",
    ))
}
