//! What asyncio waits for at a writer: done on a thread of the engine's, without the interpreter's lock.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use super::{OpenUpload, State, Writer, appended, check_unchanged, committed_before, cut_off, unknown_end};
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
    continues: Option<String>,
}

impl Writer {
    /// For a thread of the engine's.
    ///
    /// # Errors
    /// The writer is of the process that forked this one.
    pub fn awaited(&self, py: Python<'_>) -> PyResult<AwaitedWriter> {
        drop(self.lock(py)?);
        let Writer { url, location, options, state, continues, .. } = self;
        let (url, location, options) = (url.clone(), location.clone(), options.clone());
        Ok(AwaitedWriter { state: state.clone(), url, location, options, continues: continues.clone() })
    }
}

impl AwaitedWriter {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a tenth of a second at most until there is room for a byte, or the upload has ended: commits
    /// of other writers, which give memory back, wait for threads behind those that wait for rooms.
    pub fn wait_for_room(&self) {
        if let State::Open(open) = &mut *self.lock() {
            OpenUpload::wait_for_room(&mut open.uploader);
        }
    }

    /// Publishes the object. What the call's progress is shown by is ended by the caller.
    pub fn commit(&self) -> (Result<ObjectMeta, Failure>, Option<CallProgress>) {
        let mut state = self.lock();
        match mem::replace(&mut *state, State::Failed(unknown_end())) {
            State::Open(open) => {
                let OpenUpload { uploader, transfer, progress, engine } = *open;
                let etag = self.continues.as_deref();
                let checked = etag.map_or(Ok(()), |_| check_unchanged(&engine, &self.location, etag));
                match &checked {
                    Ok(()) => uploader.finish(),
                    Err(_) => drop(uploader),
                }
                let done = transfer.wait().0;
                let done = checked.map_err(Failure::from).and(done);
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
