//! What `progress=` may be: an object that somebody looks at, or True for a bar.

use std::sync::{Mutex, PoisonError};

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
    /// It is told of other calls, too, and not over with this one.
    is_shared: bool,
}

/// The progress of several calls that are one to their caller, handed to each as ``progress=``.
#[pyclass(frozen, module = "flatout._native")]
pub struct Watched(Mutex<Option<Watching>>);

#[pymethods]
impl Watched {
    #[new]
    fn new(py: Python<'_>, progress: Option<&Bound<'_, PyAny>>, title: &str) -> PyResult<Watched> {
        Ok(Watched(Mutex::new(Some(Watching::begin(py, progress, title)?))))
    }

    /// They are over.
    fn end(&self, py: Python<'_>) {
        let watching = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(watching) = watching {
            watching.end(py);
        }
    }
}

impl Watching {
    /// # Errors
    /// The object serves another call; no tqdm for a bar.
    pub fn begin(py: Python<'_>, progress: Option<&Bound<'_, PyAny>>, title: &str) -> PyResult<Watching> {
        let Some(progress) = progress.filter(|progress| !progress.is_none()) else {
            return Ok(Watching { progress: None, bar: None, is_shared: false });
        };
        if let Ok(watched) = progress.cast::<Watched>() {
            let shared = watched.get().0.lock().unwrap_or_else(PoisonError::into_inner);
            let progress = shared.as_ref().and_then(|watching| watching.progress.as_ref());
            let progress = progress.map(|progress| progress.clone_ref(py));
            return Ok(Watching { progress, bar: None, is_shared: true });
        }
        if let Ok(on) = progress.cast::<PyBool>() {
            if !on.is_true() {
                return Ok(Watching { progress: None, bar: None, is_shared: false });
            }
            let progress = Py::new(py, Progress::default())?;
            progress.get().begin().map_err(|failure| failure.raise(py))?;
            let bar = py.import("flatout._bar")?.getattr("Bar")?.call1((&progress, title))?;
            return Ok(Watching { progress: Some(progress), bar: Some(bar.unbind()), is_shared: false });
        }
        let Ok(progress) = progress.cast::<Progress>() else {
            let name = progress.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "progress is a flatout.Progress() to look at, or True for a bar, not {name}: nothing is called for each part"
            )));
        };
        progress.get().begin().map_err(|failure| failure.raise(py))?;
        Ok(Watching { progress: Some(progress.clone().unbind()), bar: None, is_shared: false })
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
        if self.is_shared {
            return;
        }
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
