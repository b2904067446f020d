//! Where a reader's answer is put, by a thread of the engine's, and waited for.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flatout_engine::{Error, Pieces};

use crate::errors::Failure;

/// A read's answer. Cheap to clone; all see the same.
#[derive(Clone, Default)]
pub struct Answer(Arc<Slot>);

#[derive(Default)]
struct Slot {
    state: Mutex<State>,
    there: Condvar,
}

#[derive(Default)]
struct State {
    result: Option<Result<Arc<Pieces>, Failure>>,
    /// Who is called when it is there.
    calls: Vec<Box<dyn FnOnce() + Send>>,
}

impl Answer {
    /// For the engine: puts it there.
    pub fn put(&self, result: Result<Pieces, Error>) {
        let calls = {
            let mut state = self.state();
            state.result = Some(result.map(Arc::new).map_err(Failure::from));
            std::mem::take(&mut state.calls)
        };
        self.0.there.notify_all();
        calls.into_iter().for_each(|call| call());
    }

    /// Calls `call` when it is there: at once where it is. On a thread of the engine's it must do little.
    pub fn when_there(&self, call: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        if state.result.is_none() {
            state.calls.push(Box::new(call));
            return;
        }
        drop(state);
        call();
    }

    /// Waits at most so long; whether it is there.
    pub fn wait(&self, timeout: Duration) -> bool {
        let waited = self.0.there.wait_timeout_while(self.state(), timeout, |state| state.result.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.result.is_some()
    }

    /// What was put there; none before.
    pub fn get(&self) -> Option<Result<Arc<Pieces>, Failure>> {
        self.state().result.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
