//! The result of a read of a file: put there by a thread of the engine's, and waited for.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flatout_engine::{Error, Pieces};

use crate::errors::Failure;

/// The result of a read, once there is one. Clones share it.
#[derive(Clone, Default)]
pub struct ReadResult(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    is_there: Condvar,
}

#[derive(Default)]
struct State {
    result: Option<Result<Arc<Pieces>, Failure>>,
    /// Called when the result is there.
    listeners: Vec<Box<dyn FnOnce() + Send>>,
}

impl ReadResult {
    /// For the engine: puts the result there.
    pub fn put(&self, result: Result<Pieces, Error>) {
        let listeners = {
            let mut state = self.state();
            state.result = Some(result.map(Arc::new).map_err(Failure::from));
            std::mem::take(&mut state.listeners)
        };
        self.0.is_there.notify_all();
        listeners.into_iter().for_each(|listener| listener());
    }

    /// Calls `listener` once the result is there: at once if it is, else on a thread of the engine's, where
    /// it must do little.
    pub fn when_there(&self, listener: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        if state.result.is_none() {
            state.listeners.push(Box::new(listener));
            return;
        }
        drop(state);
        listener();
    }

    /// Waits at most `timeout`; whether the result is there.
    pub fn wait(&self, timeout: Duration) -> bool {
        let waited =
            self.0.is_there.wait_timeout_while(self.state(), timeout, |state| state.result.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.result.is_some()
    }

    /// The result, once it is there.
    pub fn get(&self) -> Option<Result<Arc<Pieces>, Failure>> {
        self.state().result.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
