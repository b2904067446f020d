//! What the metadata of a file says that is being written.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Writers;
use crate::attributes::{Caller, OpenMode};
use crate::fs_error::FsError;
use crate::inodes::InodeTable;
use crate::posix::{Posix, Time};
use crate::store::ObjectStore;
use crate::writer::FileWriter;

impl<S: ObjectStore> Writers<S> {
    /// What a file says that nobody has written until now.
    pub(super) fn posix_to_write(
        &self,
        table: &InodeTable,
        ino: u64,
        mode: OpenMode,
        caller: Caller,
    ) -> Option<Arc<Posix>> {
        let posix = self.names.posix(table, ino)?;
        let left = if mode.truncates && caller.uid != 0 { posix.without_privileges() } else { None };
        Some(left.map_or(posix, Arc::new))
    }

    /// A write was taken; whether the mode is another by that.
    pub(super) fn took(&self, writer: &FileWriter<S>, caller: Caller) -> bool {
        self.taken.fetch_add(1, Ordering::Relaxed);
        writer.size.on_written_by(caller)
    }

    /// Changes it: with the file's content, or at once where all of that is published. `None` where nobody
    /// writes it.
    pub(crate) fn describe(
        &self,
        ino: u64,
        changed: &mut dyn FnMut(Posix) -> Result<Posix, FsError>,
    ) -> Option<Result<(), FsError>> {
        let writer = self.of(ino)?;
        let mut work = writer.work();
        // It may have ended before the turn came.
        self.is_of(ino, &writer).then_some(())?;
        let mut described = || {
            let before = writer.size.posix().ok_or_else(|| FsError::of(libc::ESTALE))?;
            let mut posix = (*before).clone();
            let waits = work.is_dirty();
            if !waits && posix.modified.is_none() {
                posix.modified = Some(Time { s: writer.size.modified_s(), ns: 0 });
            }
            writer.size.set_posix(Arc::new(changed(posix)?));
            if waits {
                work.keep_description();
                return Ok(());
            }
            self.publish(ino, &mut work).inspect_err(|_| work.describe_as_before(before))
        };
        Some(described())
    }
}
