//! Names that are taken from files while they are written, or while they wait to be uploaded.

use std::sync::Arc;

use super::Writers;
use crate::store::ObjectStore;
use crate::withdrawal::Removing;
use crate::writer::FileWriter;

impl<S: ObjectStore> Writers<S> {
    /// The name of this file is taken from it, as long as what this returns is held: nobody waits for its
    /// upload. To be dropped without the turn.
    pub(crate) fn begin_removal(&self, ino: u64, writer: &Arc<FileWriter<S>>) -> Removal<'_, S> {
        let removing = Some(writer.withdrawal.begin_removal());
        Removal { writers: self, ino, writer: writer.clone(), removing }
    }
}

/// A removal, or a rename onto the file, that runs.
pub(crate) struct Removal<'a, S: ObjectStore> {
    writers: &'a Writers<S>,
    ino: u64,
    writer: Arc<FileWriter<S>>,
    removing: Option<Removing>,
}

impl<S: ObjectStore> Drop for Removal<'_, S> {
    /// Ends a file that waited to be uploaded and has lost its name. One that keeps its name, since the
    /// removal failed, is uploaded later.
    fn drop(&mut self) {
        self.removing.take();
        let mut work = self.writer.work();
        if std::mem::take(&mut work.is_withdrawn) {
            work.keep_for_later();
        }
        if self.writers.is_pending(self.ino) && !work.may_be_retried() {
            self.writers.end_if_unused(self.ino, &self.writer, &mut work);
        }
    }
}
