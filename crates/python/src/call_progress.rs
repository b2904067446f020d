//! The argument `progress=`: a `Progress` that another thread looks at, or True for a bar of tqdm.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::{PyKeyboardInterrupt, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::destination::{Destination, OwnedTransfer};
use crate::errors::OrRaise;
use crate::progress::Progress;

/// Reports the progress of one call until it ends.
pub struct CallProgress {
    progress: Option<Py<Progress>>,
    /// Shows the progress; its method `close` removes it.
    bar: Option<Py<PyAny>>,
    /// It reports other calls as well, and does not end with this one.
    is_shared: bool,
}

/// The progress of several calls that their caller sees as one; passed to each as ``progress=``.
#[pyclass(name = "Watched", frozen, module = "flatout._native")]
pub struct SharedProgress(Mutex<Option<CallProgress>>);

#[pymethods]
impl SharedProgress {
    #[new]
    fn new(py: Python<'_>, progress: Option<&Bound<'_, PyAny>>, title: &str) -> PyResult<SharedProgress> {
        Ok(SharedProgress(Mutex::new(Some(CallProgress::begin(py, progress, title)?))))
    }

    /// Ends the progress: all calls are over.
    fn end(&self, py: Python<'_>) {
        let watching = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(watching) = watching {
            watching.end(py);
        }
    }
}

impl CallProgress {
    /// # Errors
    /// The object serves another call; no tqdm for a bar.
    pub fn begin(py: Python<'_>, progress: Option<&Bound<'_, PyAny>>, title: &str) -> PyResult<CallProgress> {
        let Some(progress) = progress.filter(|progress| !progress.is_none()) else {
            return Ok(CallProgress { progress: None, bar: None, is_shared: false });
        };
        if let Ok(watched) = progress.cast::<SharedProgress>() {
            let shared = watched.get().0.lock().unwrap_or_else(PoisonError::into_inner);
            let progress = shared.as_ref().and_then(|watching| watching.progress.as_ref());
            let progress = progress.map(|progress| progress.clone_ref(py));
            return Ok(CallProgress { progress, bar: None, is_shared: true });
        }
        if let Ok(on) = progress.cast::<PyBool>() {
            if !on.is_true() {
                return Ok(CallProgress { progress: None, bar: None, is_shared: false });
            }
            let progress = Py::new(py, Progress::default())?;
            progress.get().begin().or_raise(py)?;
            let bar = py.import("flatout._bar")?.getattr("Bar")?.call1((&progress, title))?;
            return Ok(CallProgress { progress: Some(progress), bar: Some(bar.unbind()), is_shared: false });
        }
        let Ok(progress) = progress.cast::<Progress>() else {
            let name = progress.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "progress is a flatout.Progress() to look at, or True for a bar, not {name}: nothing is called for each part"
            )));
        };
        progress.get().begin().or_raise(py)?;
        Ok(CallProgress { progress: Some(progress.clone().unbind()), bar: None, is_shared: false })
    }

    /// Includes a transfer.
    pub fn watch(&self, transfer: &OwnedTransfer) {
        if let Some(progress) = &self.progress {
            let made = match transfer.destination() {
                Destination::AllocatedBuffer(made) => Some(made.clone()),
                _ => None,
            };
            progress.get().watch(transfer.watch(), made);
        }
    }

    /// The call is over.
    pub fn end(self, py: Python<'_>) {
        if self.is_shared {
            return;
        }
        if let Some(progress) = &self.progress {
            progress.get().end();
        }
        if let Some(bar) = self.bar
            && let Err(error) = bar.call_method0(py, "close")
        {
            // A bar that cannot be removed is no failure of the call; ctrl-C meanwhile is raised in the main
            // thread.
            let is_ctrl_c = error.is_instance_of::<PyKeyboardInterrupt>(py);
            let again = || py.import("_thread")?.call_method0("interrupt_main");
            if !is_ctrl_c || again().is_err() {
                error.write_unraisable(py, Some(bar.bind(py)));
            }
        }
    }
}
