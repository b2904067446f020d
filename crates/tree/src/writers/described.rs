//! What the metadata of a file says that is being written.

use std::sync::Arc;

use super::Writers;
use crate::fs_error::FsError;
use crate::posix::{Posix, Time};
use crate::store::ObjectStore;

impl<S: ObjectStore> Writers<S> {
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
