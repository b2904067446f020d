//! What the metadata of a written file is to say: modes, owners and times that are set while it is open.

use std::sync::Arc;

use flatout_wire::object_options::ObjectOptions;

use super::{Content, Work};
use crate::attributes::FileKind;
use crate::fs_error::FsError;
use crate::posix::Posix;
use crate::store::{ObjectStore, Stored};
use crate::write_errors::not_published;

impl<S: ObjectStore> Work<S> {
    /// With what the next version is made.
    pub(super) fn begin_described(&mut self) -> ObjectOptions {
        self.shown.forget_learned();
        self.described = self.shown.posix();
        Posix::options_of(self.described.as_deref(), FileKind::File)
    }

    /// What the published version is described by; `None` where that is not known.
    pub(crate) fn description(&self) -> Option<Arc<Posix>> {
        self.described.clone().or_else(|| self.shown.learned())
    }

    /// Whether something was set since.
    pub(super) fn is_described_otherwise(&self) -> bool {
        self.shown.posix() != self.description()
    }

    /// A description that waits is kept where the next process, or the next mount, finds it.
    pub(crate) fn keep_description(&mut self) {
        if !self.is_kept_unsent {
            self.keep();
        }
        if self.is_recorded() {
            // Where that fails, the next mount describes it as before.
            let _ = self.record(true);
        }
    }

    /// The change that was to be made now has failed, and that is told.
    pub(crate) fn describe_as_before(&mut self, before: Arc<Posix>) {
        self.shown.set_posix(before);
        self.described = self.shown.posix();
    }

    /// What was set since the upload of this version has begun is set now.
    pub(super) fn described_too(
        &mut self,
        store: &Arc<S>,
        stored: Stored,
    ) -> Result<Option<Stored>, FsError> {
        match self.describe(store) {
            Ok(described) => Ok(Some(described.unwrap_or(stored))),
            Err(error) => {
                self.untold = Some(stored);
                Err(error)
            }
        }
    }

    /// Describes the published version anew; `None` where it is described so.
    pub(super) fn describe(&mut self, store: &Arc<S>) -> Result<Option<Stored>, FsError> {
        let Some(published) = self.published.as_ref().filter(|_| self.is_described_otherwise()) else {
            return Ok(None);
        };
        let etag = published.object.etag.clone();
        let as_ = self.begin_described();
        let described = store.describe(&self.location, etag.as_deref(), &as_).map_err(not_published);
        match described {
            Ok(stored) => {
                self.on_published(&stored);
                if let Content::Appends(_) = self.content {
                    // A copy takes no appends.
                    self.content = Content::Published;
                    self.takes_no_appends = true;
                }
                Ok(Some(stored))
            }
            Err(error) => {
                // It is tried again.
                self.described = None;
                Err(error)
            }
        }
    }
}
