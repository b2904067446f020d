//! What becomes of a file that is written when its name goes or changes, or its writer is killed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use flatout_wire::location::Location;

use super::{Content, FileWriter, Work};
use crate::buffers::Buffers;
use crate::fs_error::FsError;
use crate::kept::KeptWriter;
use crate::store::{ObjectStore, Stored};

impl<S: ObjectStore> FileWriter<S> {
    /// The writer was killed: a new file is given up, whether all of it was written or not. `false` for one
    /// that goes on from a version.
    pub(crate) fn abandon(&self) -> bool {
        let is_new = !self.goes_on.load(Ordering::Acquire);
        self.is_abandoned.fetch_or(is_new, Ordering::AcqRel);
        if is_new {
            self.kept.kept.writer(self.kept.ino, &KeptWriter::Unsent);
        }
        is_new
    }

    /// It was published by another of its writers.
    pub(crate) fn revive(&self) {
        self.is_abandoned.store(false, Ordering::Release);
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Acquire)
    }
}

impl<S: ObjectStore> Work<S> {
    /// Its name was removed: it is never published.
    pub(crate) fn remove_name(&mut self, buffers: &Arc<Buffers<S::MemoryAccount>>) {
        self.is_nameless = true;
        self.forget_record();
        self.keep_unsent();
        if let Content::Upload(_) | Content::Appends(_) = self.content {
            // What left memory cannot be read any more.
            self.content = Content::Buffered(buffers.empty());
            self.failure = Some(FsError::of(libc::ESTALE));
        }
    }

    /// The object was copied to another name, which it has from now on. All has been published before.
    pub(crate) fn moved(&mut self, location: &Location, stored: &Stored) {
        self.location = location.clone();
        self.takes_no_appends = false;
        self.on_published(stored);
        if !matches!(self.content, Content::Buffered(_) | Content::Staged(_)) {
            self.content = Content::Published;
        }
    }
}
