//! What becomes of readers when a file has another version: they are given it, or read nothing more.

use std::sync::Arc;
use std::time::Duration;

use flatout_engine::Object;
use flatout_wire::location::Location;

use super::Writers;
use crate::attributes::AttributeSource;
use crate::etag::Etag;
use crate::fact::Fact;
use crate::kept::KeptVersion;
use crate::open_files::OpenFile;
use crate::store::{ObjectStore, Stored};
use crate::writer::{FileWriter, Work};

/// How often is looked whether a change of attributes has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

impl<S: ObjectStore> Writers<S> {
    /// The origin has a version that this mount has made.
    pub(super) fn on_published(&self, ino: u64, work: &Work<S>, stored: &Stored) {
        let fact = self.fact(stored);
        let object = fact.version(work.location().clone());
        self.names.rewrite_described(&mut self.names.table(), ino, fact, work.description());
        self.hand_over(&self.readers(ino), &object);
    }

    /// Handles that only read a file.
    pub(super) fn readers(&self, ino: u64) -> Vec<Arc<OpenFile<S>>> {
        let mut files = self.files.handles.all();
        files.retain(|file| file.ino == ino && file.written.is_none());
        files
    }

    /// These handles read that version from now on. One that cannot be given it has what it had.
    pub(super) fn hand_over(&self, readers: &[Arc<OpenFile<S>>], object: &Object) {
        if readers.is_empty() {
            return;
        }
        if let Ok(content) = self.names.store.content(object.clone()) {
            readers.iter().for_each(|file| file.go_on_with(content.clone(), object));
        }
    }

    /// A file was copied to another name: handles that read it go on with the copy, which has the same bytes.
    pub(crate) fn on_moved(&self, ino: u64, target: &Location, stored: &Stored) {
        let mut readers = self.readers(ino);
        readers.retain(|file| file.content().is_some());
        self.hand_over(&readers, &self.fact(stored).version(target.clone()));
    }

    /// What is known of a version that this mount has made.
    pub(crate) fn fact(&self, stored: &Stored) -> Fact {
        Fact {
            size: stored.size,
            asked_ms: self.names.now_ms(),
            etag: Etag::of(stored.etag.as_deref()),
            modified_s: u32::try_from(stored.modified_s).unwrap_or(u32::MAX),
            source: AttributeSource::Written,
        }
    }

    /// Cuts a file to nothing; `false` where nobody has it open to write.
    pub(crate) fn clear(&self, ino: u64) -> bool {
        let Some(writer) = self.of(ino) else { return false };
        let mut work = writer.work();
        // It may have ended before the turn came, or wait to be uploaded since then.
        let is_written = self.is_of(ino, &writer) && !self.is_pending(ino);
        if is_written {
            writer.clear(&mut work);
            self.outdate_readers(ino);
        }
        is_written
    }

    pub(super) fn is_of(&self, ino: u64, writer: &Arc<FileWriter<S>>) -> bool {
        self.of(ino).is_some_and(|now| Arc::ptr_eq(&now, writer))
    }

    /// Handles that read the version of now read nothing more.
    pub(crate) fn outdate_readers(&self, ino: u64) {
        self.readers(ino).iter().for_each(|file| file.set_stale());
    }

    /// By what this mount has replaced the version that a handle was to read, once that is known. It waits
    /// for a publication, or a change of attributes, that is under way.
    pub(crate) fn published_meanwhile(
        &self,
        file: &OpenFile<S>,
        read: Option<&KeptVersion>,
    ) -> Option<(S::VersionReader, Option<KeptVersion>)> {
        if let Some(writer) = self.of(file.ino) {
            // Whoever publishes has its turn.
            drop(writer.work());
        }
        while self.names.table().is_moving(file.ino) {
            std::thread::sleep(LOOK_EVERY);
        }
        file.content_and_version().filter(|(_, version)| version.as_ref() != read)
    }
}
