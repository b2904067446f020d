//! Reads of the version that a handle has.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use flatout_engine::{Error, ErrorKind};

use super::TreeOf;
use crate::files::{Cancel, Slices};
use crate::fs_error::FsError;
use crate::namespace::Namespace;
use crate::open_files::OpenFile;
use crate::store::{ObjectStore, VersionReader};

impl<S: ObjectStore> TreeOf<S> {
    pub(super) fn read_version(
        &self,
        handle: u64,
        at: u64,
        bytes: usize,
        done: impl FnOnce(Result<Slices<'_, '_>, FsError>) + Send + 'static,
    ) -> Option<Cancel> {
        let found = self.files.handles.get(handle).and_then(|file| match file.content() {
            Some((content, _)) if !file.is_stale() && self.names.table().is_current(file.ino) => {
                Ok((file, content))
            }
            _ => Err(FsError::of(libc::ESTALE)),
        });
        let (file, content) = match found {
            Ok(found) => found,
            Err(error) => {
                done(Err(error));
                return None;
            }
        };
        let (names, writers, version) =
            (Arc::downgrade(&self.names), Arc::downgrade(&self.writers), file.version());
        content.read(at, bytes, move |result| {
            let is_replaced = |why: &Error| matches!(why.kind(), ErrorKind::Changed | ErrorKind::NotFound);
            let why = match result {
                Err(why) if is_replaced(&why) && !file.is_stale() => why,
                result => return done(answer(&names, &file, result)),
            };
            let Some(writers) =
                writers.upgrade().filter(|writers| writers.may_have_published(&file, &version))
            else {
                return done(answer(&names, &file, Err(why)));
            };
            // It waits for the publication to end, which this thread may be needed for.
            let waiting = Arc::new(Mutex::new(Some(done)));
            let taken = waiting.clone();
            let again = move || {
                let Some(done) = taken.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
                let now = writers.published_meanwhile(&file, &version);
                drop(writers);
                match now {
                    Some(content) => {
                        drop(content.read(at, bytes, move |result| done(answer(&names, &file, result))))
                    }
                    None => done(answer(&names, &file, Err(why))),
                }
            };
            if std::thread::Builder::new().name("tree-again".into()).spawn(again).is_err()
                && let Some(done) = waiting.lock().unwrap_or_else(PoisonError::into_inner).take()
            {
                done(Err(FsError::of(libc::ESTALE)));
            }
        })
    }
}

/// The version may have been replaced since the read began.
fn answer<'a, 'b, S: ObjectStore>(
    names: &Weak<Namespace<S>>,
    file: &OpenFile<S>,
    result: Result<Slices<'a, 'b>, Error>,
) -> Result<Slices<'a, 'b>, FsError> {
    match (result, names.upgrade()) {
        (Ok(_), Some(names)) if file.is_stale() || !names.table().is_current(file.ino) => {
            Err(FsError::of(libc::ESTALE))
        }
        (Ok(slices), _) => Ok(slices),
        (Err(_), _) if file.is_stale() => Err(FsError::of(libc::ESTALE)),
        (Err(why), Some(names)) => Err(names.on_read_failed(file.ino, why)),
        (Err(why), None) => Err(why.into()),
    }
}
