//! Single flight: callers that ask the same question at a time share one request.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

pub(crate) struct SingleFlight<K, V>(Mutex<HashMap<K, Arc<InFlight<V>>>>);

struct InFlight<V> {
    started_ms: u64,
    state: Mutex<State<V>>,
    done: Condvar,
}

enum State<V> {
    Pending,
    Done(V),
    /// The caller that asked has panicked.
    Abandoned,
}

impl<K: Hash + Eq + Clone, V: Clone> SingleFlight<K, V> {
    pub(crate) fn new() -> SingleFlight<K, V> {
        SingleFlight(Mutex::new(HashMap::new()))
    }

    /// The answer to `key`, and whether it is another caller's. Waits for a request that was begun less than
    /// `age_ms` ago; otherwise calls `ask`.
    pub(crate) fn join(&self, key: &K, now_ms: u64, age_ms: u64, ask: impl FnOnce() -> V) -> (V, bool) {
        let mut requests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let young = |flight: &&Arc<InFlight<V>>| now_ms.saturating_sub(flight.started_ms) < age_ms;
        if let Some(flight) = requests.get(key).filter(young).cloned() {
            drop(requests);
            return match flight.wait() {
                Some(answer) => (answer, true),
                None => (ask(), false),
            };
        }
        let flight = Arc::new(InFlight {
            started_ms: now_ms,
            state: Mutex::new(State::Pending),
            done: Condvar::new(),
        });
        requests.insert(key.clone(), flight.clone());
        drop(requests);
        let guard = FlightGuard { requests: self, key, flight };
        let answer = ask();
        guard.flight.end(State::Done(answer.clone()));
        (answer, false)
    }
}

impl<V: Clone> InFlight<V> {
    fn wait(&self) -> Option<V> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &*state {
                State::Pending => state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner),
                State::Done(answer) => return Some(answer.clone()),
                State::Abandoned => return None,
            }
        }
    }
}

impl<V> InFlight<V> {
    fn end(&self, with: State<V>) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = with;
        self.done.notify_all();
    }
}

/// Removes the request from the map, however it ends.
struct FlightGuard<'a, K: Hash + Eq, V> {
    requests: &'a SingleFlight<K, V>,
    key: &'a K,
    flight: Arc<InFlight<V>>,
}

impl<K: Hash + Eq, V> Drop for FlightGuard<'_, K, V> {
    fn drop(&mut self) {
        let mut requests = self.requests.0.lock().unwrap_or_else(PoisonError::into_inner);
        if requests.get(self.key).is_some_and(|flight| Arc::ptr_eq(flight, &self.flight)) {
            requests.remove(self.key);
        }
        drop(requests);
        let mut state = self.flight.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Pending) {
            *state = State::Abandoned;
            self.flight.done.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_young_request_in_flight_is_joined() {
        let requests = SingleFlight::<&str, u32>::new();
        let asked = AtomicU32::new(0);
        let (began, has_begun) = mpsc::channel();
        let (start, go) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let (requests, asked) = (&requests, &asked);
            let first = scope.spawn(move || {
                requests.join(&"a", 100, 10, || {
                    began.send(()).unwrap();
                    go.recv().unwrap();
                    asked.fetch_add(1, Ordering::Relaxed);
                    1
                })
            });
            has_begun.recv().unwrap();
            let ask = || asked.fetch_add(1, Ordering::Relaxed) + 10;
            // The request is too old to be joined; another question.
            assert_eq!(requests.join(&"a", 110, 10, ask), (10, false));
            assert_eq!(requests.join(&"b", 100, 10, ask), (11, false));
            assert_eq!(requests.join(&"a", 100, 0, ask), (12, false));
            let again = scope.spawn(move || requests.join(&"b", 100, 10, || 7));
            assert_eq!(again.join().unwrap(), (7, false));
            start.send(()).unwrap();
            assert_eq!(first.join().unwrap(), (1, false));
        });
    }

    #[test]
    fn a_waiting_caller_asks_again_after_a_panic() {
        let requests = SingleFlight::<u8, u32>::new();
        let (began, has_begun) = mpsc::channel();
        let (start, go) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let requests = &requests;
            let lost = scope.spawn(move || {
                requests.join(&1, 0, 10, || {
                    began.send(()).unwrap();
                    go.recv().unwrap();
                    panic!("as a test")
                })
            });
            has_begun.recv().unwrap();
            let waits = scope.spawn(move || requests.join(&1, 0, 10, || 5));
            start.send(()).unwrap();
            assert!(lost.join().is_err());
            assert_eq!(waits.join().unwrap().0, 5);
        });
    }
}
