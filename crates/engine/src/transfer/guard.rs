//! Guards: each holds a transfer. It ends when the last one is dropped, however that came.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::transfer::{Download, Running};

/// A worker's hold on a transfer of either direction, and on where its bytes come from or land. The transfer
/// ends when the last guard is dropped, however that happens.
pub(crate) struct TransferGuard<T: Running = Download>(Arc<T>);

impl<T: Running> TransferGuard<T> {
    /// One more guard, unless the last one has been dropped.
    pub(crate) fn join(running: &Arc<T>) -> Option<TransferGuard<T>> {
        let more = |holds: u32| (holds > 0).then(|| holds + 1);
        let held = running.transfer().holds.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        held.is_ok().then(|| TransferGuard(running.clone()))
    }

    pub(crate) fn new(running: Arc<T>) -> TransferGuard<T> {
        running.transfer().holds.fetch_add(1, Ordering::AcqRel);
        TransferGuard(running)
    }

    /// The transfer, for code that looks on without a guard of its own.
    pub(crate) fn running(&self) -> &Arc<T> {
        &self.0
    }
}

impl<T: Running> Clone for TransferGuard<T> {
    fn clone(&self) -> TransferGuard<T> {
        TransferGuard::new(self.0.clone())
    }
}

impl<T: Running> std::ops::Deref for TransferGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Running> Drop for TransferGuard<T> {
    fn drop(&mut self) {
        if self.0.transfer().holds.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.finish();
        }
    }
}
