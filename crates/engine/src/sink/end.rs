//! How a transfer ended, for whoever waits for it and whoever is called.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::base::error::Error;
use crate::base::report::Report;

/// What is called at the end.
pub(crate) type OnEnd = Box<dyn FnOnce() + Send>;

/// The end of one transfer, before and after.
pub(crate) struct End {
    state: Mutex<State>,
    settled: Condvar,
    on_end: Mutex<Option<OnEnd>>,
}

/// How it stands.
enum State {
    Running,
    Done(Box<Result<Report, Error>>),
    Taken,
}

impl End {
    pub(crate) fn new(on_end: Option<OnEnd>) -> End {
        End { state: Mutex::new(State::Running), settled: Condvar::new(), on_end: Mutex::new(on_end) }
    }

    /// That is how it ended: whoever waits goes on, and then whoever wanted that is called.
    pub(crate) fn settle(&self, result: Result<Report, Error>) {
        *self.lock() = State::Done(Box::new(result));
        self.settled.notify_all();
        if let Some(on_end) = self.take_call() {
            // A shard serves others, too. The panic has been printed by its hook; there is nothing to add.
            let _ = catch_unwind(AssertUnwindSafe(on_end));
        }
    }

    /// Nobody is to be called.
    pub(crate) fn forget_call(&self) {
        drop(self.take_call());
    }

    /// Waits until it is settled.
    pub(crate) fn wait(&self) {
        drop(self.wait_locked());
    }

    /// Waits for at most that long; whether it is settled.
    pub(crate) fn wait_timeout(&self, timeout: Duration) -> bool {
        let waited = self.settled.wait_timeout_while(self.lock(), timeout, |state| state.is_running());
        !waited.unwrap_or_else(PoisonError::into_inner).0.is_running()
    }

    /// Waits for the result, which is there once.
    pub(crate) fn take(&self) -> Result<Report, Error> {
        match std::mem::replace(&mut *self.wait_locked(), State::Taken) {
            State::Done(result) => *result,
            State::Running | State::Taken => unreachable!("waited for the end, and only `wait` takes it"),
        }
    }

    fn take_call(&self) -> Option<OnEnd> {
        self.on_end.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn wait_locked(&self) -> MutexGuard<'_, State> {
        let state = self.settled.wait_while(self.lock(), |state| state.is_running());
        state.unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_running(&self) -> bool {
        matches!(self, State::Running)
    }
}
