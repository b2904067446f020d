//! Where a reader's answer is put, by a thread of the engine's, and waited for.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use flatout_engine::{Error, Pieces};

use crate::errors::Failure;

/// A read's answer. Cheap to clone; all see the same.
#[derive(Clone, Default)]
pub struct Answer(Arc<Slot>);

#[derive(Default)]
struct Slot {
    result: Mutex<Option<Result<Arc<Pieces>, Failure>>>,
    there: Condvar,
}

impl Answer {
    /// For the engine: puts it there.
    pub fn put(&self, result: Result<Pieces, Error>) {
        *self.0.result.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(result.map(Arc::new).map_err(Failure::from));
        self.0.there.notify_all();
    }

    /// Waits at most so long; whether it is there.
    pub fn wait(&self, timeout: Duration) -> bool {
        let result = self.0.result.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.there.wait_timeout_while(result, timeout, |result| result.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.is_some()
    }

    /// What was put there; none before.
    pub fn get(&self) -> Option<Result<Arc<Pieces>, Failure>> {
        self.0.result.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
