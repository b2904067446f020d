//! Reads of the version that a handle has.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use flatout_engine::{Error, ErrorKind};

use super::TreeOf;
use crate::files::{Cancel, Slices};
use crate::fs_error::FsError;
use crate::kept::KeptVersion;
use crate::namespace::Namespace;
use crate::open_files::OpenFile;
use crate::store::{ObjectStore, VersionReader};
use crate::writers::Writers;

/// How often a read follows versions that this mount makes meanwhile.
const READS_MOST: u32 = 100;

impl<S: ObjectStore> TreeOf<S> {
    pub(super) fn read_version(
        &self,
        handle: u64,
        at: u64,
        bytes: usize,
        done: impl FnOnce(Result<Slices<'_, '_>, FsError>) + Send + 'static,
    ) -> Option<Cancel> {
        let found = self.files.handles.get(handle).and_then(|file| match file.content_and_version() {
            Some(read) if !file.is_stale() && self.names.table().is_current(file.ino) => Ok((file, read)),
            _ => Err(FsError::of(libc::ESTALE)),
        });
        match found {
            Ok((file, (content, version))) => {
                let (names, writers) = (Arc::downgrade(&self.names), Arc::downgrade(&self.writers));
                let read = VersionRead { names, writers, file, version, at, bytes, left: READS_MOST };
                read.begin(&content, done)
            }
            Err(error) => {
                done(Err(error));
                None
            }
        }
    }
}

/// A read that goes on with another version where this mount has replaced the first one meanwhile.
struct VersionRead<S: ObjectStore> {
    names: Weak<Namespace<S>>,
    writers: Weak<Writers<S>>,
    file: Arc<OpenFile<S>>,
    version: Option<KeptVersion>,
    at: u64,
    bytes: usize,
    left: u32,
}

impl<S: ObjectStore> VersionRead<S> {
    fn begin(
        self,
        content: &S::VersionReader,
        done: impl FnOnce(Result<Slices<'_, '_>, FsError>) + Send + 'static,
    ) -> Option<Cancel> {
        content.read(self.at, self.bytes, move |result| match result {
            Err(why) if self.may_be_replaced_here(&why) => self.begin_again(why, done),
            result => done(self.answer(result)),
        })
    }

    fn may_be_replaced_here(&self, why: &Error) -> bool {
        let is_other = matches!(why.kind(), ErrorKind::Changed | ErrorKind::NotFound);
        let is_changing = |names: Arc<Namespace<S>>| {
            let table = names.table();
            table.is_written(self.file.ino) || table.is_moving(self.file.ino)
        };
        is_other
            && self.left > 0
            && !self.file.is_stale()
            && (self.file.version() != self.version || self.names.upgrade().is_some_and(is_changing))
    }

    /// It waits for what changes the file to end, which this thread may be needed for.
    fn begin_again(
        mut self,
        why: Error,
        done: impl FnOnce(Result<Slices<'_, '_>, FsError>) + Send + 'static,
    ) {
        let waiting = Arc::new(Mutex::new(Some(done)));
        let taken = waiting.clone();
        let again = move || {
            let now = self
                .writers
                .upgrade()
                .and_then(|writers| writers.published_meanwhile(&self.file, self.version.as_ref()));
            let Some(done) = taken.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
            match now {
                Some((content, version)) => {
                    (self.version, self.left) = (version, self.left - 1);
                    drop(self.begin(&content, done));
                }
                None => done(self.answer(Err(why))),
            }
        };
        if std::thread::Builder::new().name("tree-again".into()).spawn(again).is_err()
            && let Some(done) = waiting.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            done(Err(FsError::of(libc::ESTALE)));
        }
    }

    /// The version may have been replaced since the read began.
    fn answer<'a, 'b>(&self, result: Result<Slices<'a, 'b>, Error>) -> Result<Slices<'a, 'b>, FsError> {
        match (result, self.names.upgrade()) {
            (Ok(_), Some(names)) if self.file.is_stale() || !names.table().is_current(self.file.ino) => {
                Err(FsError::of(libc::ESTALE))
            }
            (Ok(slices), _) => Ok(slices),
            (Err(_), _) if self.file.is_stale() => Err(FsError::of(libc::ESTALE)),
            (Err(why), Some(names)) => Err(names.on_read_failed(self.file.ino, why)),
            (Err(why), None) => Err(why.into()),
        }
    }
}
