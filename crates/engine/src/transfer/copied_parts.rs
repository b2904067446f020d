//! Parts that the origin copies by itself, several at a time.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::api::refusal::Failure;
use crate::transfer::{ActiveTransfer, cancelled};

/// Parts that the origin copies at a time: the work is its own, and no link here is to be filled.
pub(super) const IN_FLIGHT: usize = 8;
/// How long parts in flight may take to end once the copy is stopped. The origin goes on with them in any
/// case, and may keep one that ends after the upload was aborted (S3's AbortMultipartUpload).
const PARTS_END_WITHIN: Duration = Duration::from_secs(3);

/// Parts on their way. Where the copy is stopped they end by themselves: the upload is aborted after them.
pub(super) struct PartsInFlight<T: 'static>(pub(super) JoinSet<T>);

impl<T> Drop for PartsInFlight<T> {
    fn drop(&mut self) {
        self.0.detach_all();
    }
}

/// Ready once parts of a transfer that was stopped are waited for no longer.
pub(super) async fn out_of_patience(transfer: &ActiveTransfer) -> Failure {
    transfer.stopped().await;
    tokio::time::sleep(PARTS_END_WITHIN).await;
    Failure::last(cancelled())
}
