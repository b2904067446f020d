//! Parts that the origin copies by itself, several at a time.

use tokio::task::JoinSet;

/// Parts that the origin copies at a time: the work is its own, and no link here is to be filled.
pub(super) const IN_FLIGHT: usize = 8;

/// Parts on their way. Where the copy is stopped they end by themselves: the upload is aborted after them.
pub(super) struct PartsInFlight<T: 'static>(pub(super) JoinSet<T>);

impl<T> Drop for PartsInFlight<T> {
    fn drop(&mut self) {
        self.0.detach_all();
    }
}
