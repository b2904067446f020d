//! What another process can do for a writer, kept as it changes.

use std::sync::Arc;

use flatout_wire::location::Location;
use flatout_wire::object_options::Condition;

use super::{Content, FileWriter, Published, Work};
use crate::buffers::Buffers;
use crate::kept::{Kept, KeptVersion, KeptWriter};
use crate::store::ObjectStore;
use crate::write_errors::lost_with_process;

/// Where another process finds what it can do for this writer.
#[derive(Clone, Debug)]
pub(crate) struct KeptOf {
    pub(crate) kept: Kept,
    pub(crate) ino: u64,
}

impl<S: ObjectStore> FileWriter<S> {
    /// A writer whose bytes are gone with the process that had them.
    pub(crate) fn of_lost(
        store: Arc<S>,
        buffers: &Arc<Buffers<S::MemoryAccount>>,
        location: Location,
        kept: KeptOf,
    ) -> FileWriter<S> {
        let lost = lost_with_process(&location);
        let to = (location, Condition::None);
        let writer = FileWriter::of(store, buffers, to, None, Content::Lost, (kept, None));
        {
            let mut work = writer.work();
            work.failure = Some(lost);
            work.keep_unsent();
        }
        writer
    }

    /// Whether bytes are in this process alone, or may be: it does not wait for its turn.
    pub(crate) fn has_unsent(&self) -> bool {
        self.try_work().is_none_or(|work| {
            (work.is_dirty || work.is_nameless) && work.is_kept_unsent && work.failure.is_none()
        })
    }
}

impl<S: ObjectStore> Work<S> {
    /// Keeps what another process could go on with: all that was written is published, or nothing was
    /// written.
    pub(super) fn keep(&mut self) {
        if let Content::Lost = self.content {
            return self.keep_unsent();
        }
        let writer = match &self.published {
            Some(Published { object, modified_s, .. }) => {
                KeptWriter::Published(KeptVersion::of_object(object, *modified_s))
            }
            None => {
                let exclusive = self.condition == Condition::Absent;
                KeptWriter::New { exclusive, posix: self.shown.posix() }
            }
        };
        self.is_kept_unsent = false;
        self.kept.kept.writer(self.kept.ino, &writer);
    }

    /// Keeps that bytes are here alone, before the first is taken.
    pub(super) fn keep_unsent(&mut self) {
        if !std::mem::replace(&mut self.is_kept_unsent, true) {
            self.kept.kept.writer(self.kept.ino, &KeptWriter::Unsent);
        }
    }
}
