//! Who has a transfer carried as one of many objects.

use std::sync::Arc;

use super::Download;
use crate::base::error::Error;
use crate::base::report::Report;

/// Who has a transfer carried as one of many objects, by workers that they share.
pub(crate) trait TransferOwner: Send + Sync {
    /// Whether other objects wait for a worker.
    fn has_more(&self) -> bool;

    /// It has parts left to take, or one on its way that may be shared: any worker may have them.
    fn open(&self, transfer: &Arc<Download>);

    /// It has ended so, and its landing with it.
    fn on_end(&self, transfer: &Download, result: Result<Report, Error>);
}
