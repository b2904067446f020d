//! Uploads that end because the name of their file is being removed.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Withdraws the uploads of a file while somebody removes its name, so that nobody has to wait for them.
#[derive(Default)]
pub struct Withdrawal {
    state: Mutex<State>,
    removed: Condvar,
}

#[derive(Default)]
struct State {
    /// How many are removing the name now.
    removers: u32,
    /// Stops the upload that runs.
    stop: Option<Box<dyn Fn() + Send>>,
    /// The last upload was asked to stop.
    was_stopped: bool,
}

impl Withdrawal {
    /// An upload runs, as long as what this returns is held. `stop` may be called meanwhile. It must not end
    /// an upload whose object may have been made: that would appear once the name is gone.
    pub fn begin_upload(&self, stop: impl Fn() + Send + 'static) -> Uploading<'_> {
        let mut state = self.state();
        state.was_stopped = state.removers > 0;
        if state.was_stopped {
            stop();
        }
        state.stop = Some(Box::new(stop));
        Uploading(self)
    }

    /// The name is being removed, as long as what this returns is held.
    pub(crate) fn begin_removal(self: &Arc<Withdrawal>) -> Removing {
        let mut state = self.state();
        state.removers += 1;
        if let Some(stop) = &state.stop {
            stop();
            state.was_stopped = true;
        }
        drop(state);
        Removing(self.clone())
    }

    pub(crate) fn is_removing(&self) -> bool {
        self.state().removers > 0
    }

    /// Whether the last upload was asked to stop.
    pub(crate) fn was_stopped(&self) -> bool {
        self.state().was_stopped
    }

    /// Waits until each removal of the name has ended, well or not.
    pub(crate) fn wait_for_removal(&self) {
        let removing = |state: &mut State| state.removers > 0;
        drop(self.removed.wait_while(self.state(), removing));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An upload that runs.
pub struct Uploading<'a>(&'a Withdrawal);

impl Drop for Uploading<'_> {
    fn drop(&mut self) {
        self.0.state().stop = None;
    }
}

/// A removal of the name that runs.
pub(crate) struct Removing(Arc<Withdrawal>);

impl Drop for Removing {
    fn drop(&mut self) {
        self.0.state().removers -= 1;
        self.0.removed.notify_all();
    }
}
