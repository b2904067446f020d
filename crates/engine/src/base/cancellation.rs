//! Cancellation of work that several threads do: told once, seen at once by a look, waited for by a future.

use tokio::sync::Semaphore;

/// A semaphore that never has a permit: to close it is to cancel. A look at it is one atomic load, where
/// tokio-util's `CancellationToken` takes a lock.
#[derive(Debug)]
pub(crate) struct Cancellation(Semaphore);

impl Cancellation {
    pub(crate) fn new() -> Cancellation {
        Cancellation(Semaphore::new(0))
    }

    /// Ends what waits for it, now and from now on.
    pub(crate) fn cancel(&self) {
        self.0.close();
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.is_closed()
    }

    /// Ready once it is cancelled.
    pub(crate) async fn cancelled(&self) {
        let _closed = self.0.acquire().await;
    }
}
