//! What asyncio waits for at a writer: done on a thread of the engine's, without the interpreter's lock.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use super::{OpenUpload, State, Writer, appended, committed_before, cut_off, unknown_end};
use crate::call_progress::CallProgress;
use crate::errors::Failure;
use crate::object_meta::ObjectMeta;
use crate::put_options::PutOptions;
use crate::writes::made;

/// The state of a writer, for another thread.
pub struct AwaitedWriter {
    state: Arc<Mutex<State>>,
    url: String,
    location: flatout_wire::location::Location,
    options: PutOptions,
}

impl Writer {
    /// For a thread of the engine's.
    ///
    /// # Errors
    /// The writer is of the process that forked this one.
    pub fn awaited(&self, py: Python<'_>) -> PyResult<AwaitedWriter> {
        drop(self.lock(py)?);
        let Writer { url, location, options, state, .. } = self;
        let (url, location, options) = (url.clone(), location.clone(), options.clone());
        Ok(AwaitedWriter { state: state.clone(), url, location, options })
    }
}

impl AwaitedWriter {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room for a byte, or the upload has ended.
    pub fn wait_for_room(&self) {
        // The lock is given back now and then: the upload may be aborted.
        let waits = || match &mut *self.lock() {
            State::Open(open) => !OpenUpload::wait_for_room(&mut open.uploader),
            _ => false,
        };
        while waits() {}
    }

    /// Publishes the object. What the call's progress is shown by is ended by the caller.
    pub fn commit(&self) -> (Result<ObjectMeta, Failure>, Option<CallProgress>) {
        let mut state = self.lock();
        match mem::replace(&mut *state, State::Failed(unknown_end())) {
            State::Open(open) => {
                let OpenUpload { uploader, transfer, progress, engine: _engine } = *open;
                uploader.finish();
                let done = transfer.wait().0;
                let done = done.map(|report| made(&self.url, &self.location, &self.options, report));
                (Writer::settle(&mut state, done), Some(progress))
            }
            State::Grows(bytes, position, engine) => {
                let stat = appended(&engine, &self.location, bytes, position).map_err(Failure::from);
                let done = stat.map(|stat| ObjectMeta::of_stat(&self.url, &self.location, stat));
                (Writer::settle(&mut state, done), None)
            }
            over => {
                *state = over;
                (committed_before(&state).unwrap_or_else(|| Err(cut_off())), None)
            }
        }
    }

    /// Ends the upload without an object.
    pub fn abort(&self) -> Option<CallProgress> {
        let mut state = self.lock();
        match mem::replace(&mut *state, State::Aborted) {
            State::Open(open) => {
                let OpenUpload { uploader, transfer, progress, engine } = *open;
                drop(uploader);
                drop(transfer);
                drop(engine);
                Some(progress)
            }
            State::Grows(..) => None,
            over => {
                *state = over;
                None
            }
        }
    }
}
