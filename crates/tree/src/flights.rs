//! Questions that are on their way: who asks the same while the answer can still be used waits for it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

pub(crate) struct Flights<K, V>(Mutex<HashMap<K, Arc<Flight<V>>>>);

struct Flight<V> {
    started_ms: u64,
    state: Mutex<State<V>>,
    landed: Condvar,
}

enum State<V> {
    Flies,
    Landed(V),
    /// Whoever asked has panicked.
    Lost,
}

impl<K: Hash + Eq + Clone, V: Clone> Flights<K, V> {
    pub(crate) fn new() -> Flights<K, V> {
        Flights(Mutex::new(HashMap::new()))
    }

    /// The answer to `key`: somebody else's, where it was asked for less than `age_ms` ago and is not there yet, otherwise that
    /// of `ask`. And whether it was somebody else's.
    pub(crate) fn join(&self, key: &K, now_ms: u64, age_ms: u64, ask: impl FnOnce() -> V) -> (V, bool) {
        let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let young = |flight: &&Arc<Flight<V>>| now_ms.saturating_sub(flight.started_ms) < age_ms;
        if let Some(flight) = flights.get(key).filter(young).cloned() {
            drop(flights);
            return match flight.wait() {
                Some(answer) => (answer, true),
                None => (ask(), false),
            };
        }
        let flight =
            Arc::new(Flight { started_ms: now_ms, state: Mutex::new(State::Flies), landed: Condvar::new() });
        flights.insert(key.clone(), flight.clone());
        drop(flights);
        let landing = Landing { flights: self, key, flight };
        let answer = ask();
        landing.flight.land(State::Landed(answer.clone()));
        (answer, false)
    }
}

impl<V: Clone> Flight<V> {
    fn wait(&self) -> Option<V> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &*state {
                State::Flies => state = self.landed.wait(state).unwrap_or_else(PoisonError::into_inner),
                State::Landed(answer) => return Some(answer.clone()),
                State::Lost => return None,
            }
        }
    }
}

impl<V> Flight<V> {
    fn land(&self, with: State<V>) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = with;
        self.landed.notify_all();
    }
}

/// Takes the flight from the board, however it ends.
struct Landing<'a, K: Hash + Eq, V> {
    flights: &'a Flights<K, V>,
    key: &'a K,
    flight: Arc<Flight<V>>,
}

impl<K: Hash + Eq, V> Drop for Landing<'_, K, V> {
    fn drop(&mut self) {
        let mut flights = self.flights.0.lock().unwrap_or_else(PoisonError::into_inner);
        if flights.get(self.key).is_some_and(|flight| Arc::ptr_eq(flight, &self.flight)) {
            flights.remove(self.key);
        }
        drop(flights);
        let mut state = self.flight.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Flies) {
            *state = State::Lost;
            self.flight.landed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn who_comes_while_the_answer_is_on_its_way_joins() {
        let flights = Flights::<&str, u32>::new();
        let asked = AtomicU32::new(0);
        let (began, begins) = mpsc::channel();
        let (go, goes) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let (flights, asked) = (&flights, &asked);
            let first = scope.spawn(move || {
                flights.join(&"a", 100, 10, || {
                    began.send(()).unwrap();
                    goes.recv().unwrap();
                    asked.fetch_add(1, Ordering::Relaxed);
                    1
                })
            });
            begins.recv().unwrap();
            let ask = || asked.fetch_add(1, Ordering::Relaxed) + 10;
            // Too old to be used, and another question.
            assert_eq!(flights.join(&"a", 110, 10, ask), (10, false));
            assert_eq!(flights.join(&"b", 100, 10, ask), (11, false));
            assert_eq!(flights.join(&"a", 100, 0, ask), (12, false));
            let again = scope.spawn(move || flights.join(&"b", 100, 10, || 7));
            assert_eq!(again.join().unwrap(), (7, false));
            go.send(()).unwrap();
            assert_eq!(first.join().unwrap(), (1, false));
        });
    }

    #[test]
    fn a_question_that_is_lost_is_asked_by_who_waits() {
        let flights = Flights::<u8, u32>::new();
        let (began, begins) = mpsc::channel();
        let (go, goes) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let flights = &flights;
            let lost = scope.spawn(move || {
                flights.join(&1, 0, 10, || {
                    began.send(()).unwrap();
                    goes.recv().unwrap();
                    panic!("as a test")
                })
            });
            begins.recv().unwrap();
            let waits = scope.spawn(move || flights.join(&1, 0, 10, || 5));
            go.send(()).unwrap();
            assert!(lost.join().is_err());
            assert_eq!(waits.join().unwrap().0, 5);
        });
    }
}
