//! Who holds a transfer: it ends when nobody does any more, however that came.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::transfer::Download;

/// A shard's hold on a transfer and its landing. The transfer ends when the last one is dropped, however that
/// happens.
pub(crate) struct TransferGuard(Arc<Download>);

impl TransferGuard {
    /// One more hold, unless the last one has been dropped.
    pub(crate) fn join(running: &Arc<Download>) -> Option<TransferGuard> {
        let more = |holds: u32| (holds > 0).then(|| holds + 1);
        let held = running.transfer.holds.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        held.is_ok().then(|| TransferGuard(running.clone()))
    }

    pub(crate) fn new(running: Arc<Download>) -> TransferGuard {
        running.transfer.holds.fetch_add(1, Ordering::AcqRel);
        TransferGuard(running)
    }

    /// What is held, for whoever looks on without a hold of his own.
    pub(crate) fn running(&self) -> &Arc<Download> {
        &self.0
    }
}

impl Clone for TransferGuard {
    fn clone(&self) -> TransferGuard {
        TransferGuard::new(self.0.clone())
    }
}

impl std::ops::Deref for TransferGuard {
    type Target = Download;

    fn deref(&self) -> &Download {
        &self.0
    }
}

impl Drop for TransferGuard {
    fn drop(&mut self) {
        if self.0.transfer.holds.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.finish();
        }
    }
}
