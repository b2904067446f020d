//! What `progress=` may be: an object that somebody looks at, or True for a bar.

use flatout_engine::{Made, Watch};
use pyo3::exceptions::{PyKeyboardInterrupt, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::progress::Progress;

/// The progress of one call, told until this is dropped.
pub struct Watching {
    progress: Option<Py<Progress>>,
    /// What takes the bar away.
    bar: Option<Py<PyAny>>,
}

impl Watching {
    /// # Errors
    /// The object serves another call; no tqdm for a bar.
    pub fn begin(py: Python<'_>, progress: Option<&Bound<'_, PyAny>>, title: &str) -> PyResult<Watching> {
        let Some(progress) = progress.filter(|progress| !progress.is_none()) else {
            return Ok(Watching { progress: None, bar: None });
        };
        if let Ok(on) = progress.cast::<PyBool>() {
            if !on.is_true() {
                return Ok(Watching { progress: None, bar: None });
            }
            let progress = Py::new(py, Progress::default())?;
            progress.get().begin().map_err(|failure| failure.raise(py))?;
            let bar = py.import("flatout._bar")?.getattr("Bar")?.call1((&progress, title))?;
            return Ok(Watching { progress: Some(progress), bar: Some(bar.unbind()) });
        }
        let Ok(progress) = progress.cast::<Progress>() else {
            let name = progress.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "progress is a flatout.Progress() to look at, or True for a bar, not {name}: nothing is called for each part"
            )));
        };
        progress.get().begin().map_err(|failure| failure.raise(py))?;
        Ok(Watching { progress: Some(progress.clone().unbind()), bar: None })
    }

    pub fn watch(&self, source: impl FnOnce() -> Watch) {
        if let Some(progress) = &self.progress {
            progress.get().watch(source(), None);
        }
    }

    /// A transfer that may be begun anew, once it is known how much comes.
    pub fn watch_attempt(&self, source: impl FnOnce() -> Watch, made: &Made) {
        if let Some(progress) = &self.progress {
            progress.get().watch(source(), Some(made.clone()));
        }
    }

    /// The call is over.
    pub fn end(self, py: Python<'_>) {
        if let Some(progress) = &self.progress {
            progress.get().end();
        }
        if let Some(bar) = self.bar
            && let Err(error) = bar.call_method0(py, "close")
        {
            // A bar that cannot be taken away says nothing about the call; ctrl-C meanwhile is for who called.
            let is_ctrl_c = error.is_instance_of::<PyKeyboardInterrupt>(py);
            let again = || py.import("_thread")?.call_method0("interrupt_main");
            if !is_ctrl_c || again().is_err() {
                error.write_unraisable(py, Some(bar.bind(py)));
            }
        }
    }
}
