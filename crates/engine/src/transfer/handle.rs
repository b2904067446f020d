//! What the caller holds of a transfer: to wait for it, to look on, to cancel it.

use std::sync::Arc;
use std::time::Duration;

use crate::base::error::Error;
use crate::base::report::{Progress, Report};
use crate::transfer::{Running, cancelled};
use flatout_policy::queue::Priority;

/// A running transfer. Dropping it cancels, and waits until every shard has let go of the landing: no thread
/// of the engine's (see [`crate::Get::on_end`]) may drop one, or wait for it, before its end.
pub struct Transfer {
    running: Arc<dyn Running>,
}

impl Transfer {
    pub(crate) fn new(running: Arc<dyn Running>) -> Transfer {
        Transfer { running }
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        self.running.progress()
    }

    /// A handle that tells progress from any thread, also after the end.
    pub fn watch(&self) -> Watch {
        Watch(self.running.clone())
    }

    /// Changes the priority of parts that have not started yet. Parts in flight are not affected.
    pub fn set_priority(&self, priority: Priority) {
        self.running.transfer().slots.set_priority(priority);
    }

    /// A handle that cancels from any thread.
    pub fn cancel_switch(&self) -> CancelSwitch {
        CancelSwitch(self.running.clone())
    }

    /// Waits at most `timeout`; whether the transfer has ended.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.running.transfer().end.wait_timeout(timeout)
    }

    /// Waits for the end. When this returns, no shard touches the landing any more.
    ///
    /// # Errors
    /// Whatever ended the transfer first; a file target is then as it was before.
    pub fn wait(self) -> Result<Report, Error> {
        self.running.transfer().end.take()
    }
}

impl Drop for Transfer {
    /// A child process that inherited the transfer has no shard to wait for.
    fn drop(&mut self) {
        if self.running.transfer().process == std::process::id() {
            self.running.fail(cancelled());
            self.running.transfer().end.wait();
        }
    }
}

/// Tells the progress of a transfer.
#[derive(Clone)]
pub struct Watch(Arc<dyn Running>);

impl Watch {
    /// How far it is.
    pub fn progress(&self) -> Progress {
        self.0.progress()
    }
}

/// Cancels a transfer.
#[derive(Clone)]
pub struct CancelSwitch(Arc<dyn Running>);

impl CancelSwitch {
    /// Ends the transfer with [`crate::ErrorKind::Cancelled`], unless it has ended.
    pub fn cancel(&self) {
        self.0.fail(cancelled());
    }

    /// As [`CancelSwitch::cancel`], unless the request that makes the object may have been sent: then the
    /// transfer goes on to its end. So a transfer that ends as cancelled by this makes no object later.
    pub fn withdraw(&self) {
        self.0.transfer().withdraw();
    }
}
