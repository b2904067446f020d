//! What a tree tells of files that are staged.

use super::TreeOf;
use crate::fs_error::FsError;
use crate::store::ObjectStore;

impl<S: ObjectStore> TreeOf<S> {
    /// With what killed mounts have left.
    pub(super) fn with_left(self) -> TreeOf<S> {
        self.writers.take_left();
        self
    }

    /// Staged files that wait to be uploaded, and how long they are.
    pub fn pending(&self) -> Vec<(String, u64)> {
        self.writers.pending()
    }

    /// Bytes of staged files on the disk; `None` without a folder for them.
    pub fn staged_bytes(&self) -> Option<u64> {
        self.names.config.staging.as_ref().map(|staging| staging.used_bytes())
    }

    /// Tries once to upload those; what became of each.
    pub fn publish_pending(&self) -> Vec<(String, Result<(), FsError>)> {
        self.writers.retry_pending()
    }
}
