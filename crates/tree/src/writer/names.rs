//! What becomes of a file that is written when its name goes or changes.

use std::sync::Arc;

use flatout_wire::location::Location;

use super::{Content, Work};
use crate::buffers::Buffers;
use crate::fs_error::FsError;
use crate::store::{ObjectStore, Stored};

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
