//! What is read of a file that is being written.

use super::{Content, FileWriter, Work};
use crate::fs_error::FsError;
use crate::store::ObjectStore;
use crate::version_bytes::ReadFrom;
use crate::write_errors::unpublished;

impl<S: ObjectStore> FileWriter<S> {
    /// The bytes `at..at + bytes`, or the version that has them. `may_publish`: where they have left memory
    /// and are not published, the file is published first.
    ///
    /// # Errors
    /// `EBUSY` where they can only be read once the file is published; what the upload failed with.
    pub(crate) fn read(
        &self,
        at: u64,
        bytes: usize,
        may_publish: bool,
        publish: impl Fn(&mut Work<S>) -> Result<(), FsError>,
    ) -> Result<ReadFrom<S::VersionReader>, FsError> {
        if self.is_staged() {
            let mut read = self.read_staged(at, bytes);
            // The version that it goes on from may be gone because an upload of ours was lost sight of.
            if matches!(&read, Err(error) if error.errno == libc::ESTALE) {
                let is_late = self.work().is_late;
                if is_late {
                    let mut work = self.work();
                    let published = publish(&mut work);
                    if !work.is_withdrawn {
                        published?;
                    }
                }
                read = self.read_staged(at, bytes);
            }
            if let Some(read) = read? {
                return Ok(ReadFrom::Bytes(read));
            }
        }
        let mut work = self.work();
        if let Some(failure) = &work.failure {
            return Err(failure.clone());
        }
        if let Content::Buffered(buffer) = &work.content {
            let from = usize::try_from(at).unwrap_or(usize::MAX).min(buffer.bytes().len());
            let to = from.saturating_add(bytes).min(buffer.bytes().len());
            return Ok(ReadFrom::Bytes(buffer.bytes()[from..to].to_vec()));
        }
        let until = at.saturating_add(bytes as u64).min(self.size.end());
        if at >= until {
            return Ok(ReadFrom::Bytes(Vec::new()));
        }
        if let Some(found) = work.read_appended(&self.store, at..until)? {
            return Ok(found);
        }
        if work.published.as_ref().is_none_or(|published| until > published.object.size) {
            if !may_publish {
                return Err(FsError::because(libc::EBUSY, unpublished(&work.location)));
            }
            publish(&mut work)?;
        }
        let bytes = usize::try_from(until - at).unwrap_or(bytes);
        Ok(ReadFrom::Version(work.reader(&self.store)?, at, bytes))
    }
}
