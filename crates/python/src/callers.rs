//! Threads for calls that block: made as they are wanted, and no more than some, so that a thousand awaited calls are no thousand
//! threads.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What is called beyond that waits for one of them.
const THREADS_MOST: usize = 128;

/// One that has nothing to do ends after so long.
const IDLE: Duration = Duration::from_secs(5);

/// The threads of one engine. They end with it, as soon as they have nothing to do.
#[derive(Default)]
pub struct Callers(Arc<Shared>);

/// Somebody waits for a call as long as this lives.
pub struct Called {
    shared: Arc<Shared>,
    state: Arc<Mutex<State>>,
}

/// Changed with the crew's lock held.
#[derive(Clone, Copy, PartialEq)]
enum State {
    Queued,
    Runs,
    Ended,
    /// Nobody waits any more.
    Left,
}

struct Job {
    state: Arc<Mutex<State>>,
    work: Box<dyn FnOnce() + Send>,
}

#[derive(Default)]
struct Shared {
    crew: Mutex<Crew>,
    news: Condvar,
}

#[derive(Default)]
struct Crew {
    /// Not begun yet, in the order of asking.
    jobs: VecDeque<Job>,
    threads: usize,
    /// Of those, how many wait for a job; some perhaps have been woken for one.
    idle: usize,
    /// Of those, how many are in a call that nobody waits for any more: others take their places.
    lost: usize,
    is_over: bool,
}

impl Callers {
    /// Has a thread call `work`, unless what is returned goes before it begins; what panics is dropped like any other.
    ///
    /// # Errors
    /// There is no thread, and none can be had: `work` is dropped uncalled.
    pub fn call(&self, work: impl FnOnce() + Send + 'static) -> io::Result<Called> {
        let state = Arc::new(Mutex::new(State::Queued));
        let called = Called { shared: self.0.clone(), state: state.clone() };
        let mut crew = self.0.lock();
        crew.jobs.push_back(Job { state, work: Box::new(work) });
        if let Err(refused) = self.0.man(&mut crew)
            && crew.threads == 0
        {
            let uncalled = crew.jobs.pop_back();
            drop(crew);
            drop(uncalled);
            return Err(refused);
        }
        drop(crew);
        Ok(called)
    }

    /// In a forked child, which has none of the threads, and perhaps a lock that nobody opens.
    pub fn forget(&mut self) {
        std::mem::forget(std::mem::take(&mut self.0));
    }
}

impl Drop for Called {
    fn drop(&mut self) {
        let mut crew = self.shared.lock();
        let before = std::mem::replace(&mut *state_of(&self.state), State::Left);
        if before == State::Runs {
            crew.lost += 1;
            // Where no thread can be had, whoever calls next tries again.
            let _ = self.shared.man(&mut crew);
        }
    }
}

fn state_of(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Callers {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.news.notify_all();
    }
}

impl Shared {
    /// Has somebody come for what was not begun yet.
    fn man(self: &Arc<Self>, crew: &mut Crew) -> io::Result<()> {
        if crew.idle >= crew.jobs.len() {
            self.news.notify_one();
            return Ok(());
        }
        if crew.threads - crew.lost >= THREADS_MOST {
            return Ok(());
        }
        let shared = self.clone();
        std::thread::Builder::new().name("flatout-call".into()).spawn(move || shared.work())?;
        crew.threads += 1;
        Ok(())
    }

    fn work(&self) {
        let mut crew = self.lock();
        loop {
            if let Some(Job { state, work }) = crew.jobs.pop_front() {
                let is_wanted = {
                    let mut state = state_of(&state);
                    let is_wanted = *state == State::Queued;
                    if is_wanted {
                        *state = State::Runs;
                    }
                    is_wanted
                };
                drop(crew);
                if is_wanted {
                    // Whoever waits for it learns from what it drops.
                    let _ = catch_unwind(AssertUnwindSafe(work));
                } else {
                    drop(work);
                }
                crew = self.lock();
                let before = std::mem::replace(&mut *state_of(&state), State::Ended);
                crew.lost -= usize::from(is_wanted && before == State::Left);
                continue;
            }
            if crew.is_over {
                break;
            }
            crew.idle += 1;
            let (woken, waited) = self.news.wait_timeout(crew, IDLE).unwrap_or_else(PoisonError::into_inner);
            crew = woken;
            crew.idle -= 1;
            if waited.timed_out() && crew.jobs.is_empty() {
                break;
            }
        }
        crew.threads -= 1;
    }

    fn lock(&self) -> MutexGuard<'_, Crew> {
        self.crew.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex, mpsc};
    use std::time::Duration;

    use super::{Callers, THREADS_MOST};

    /// Calls that wait until they may go; how many have begun.
    struct Gate {
        gate: Arc<Mutex<mpsc::Receiver<()>>>,
        go: mpsc::Sender<()>,
        begun: Arc<AtomicUsize>,
    }

    impl Gate {
        fn new() -> Gate {
            let (go, gate) = mpsc::channel();
            Gate { gate: Arc::new(Mutex::new(gate)), go, begun: Arc::default() }
        }

        fn wait(&self) -> impl FnOnce() + Send + 'static {
            let (gate, begun) = (self.gate.clone(), self.begun.clone());
            move || {
                begun.fetch_add(1, Ordering::SeqCst);
                let _ = gate.lock().unwrap().recv();
            }
        }
    }

    fn until(is_so: impl Fn() -> bool) {
        (0..1000).take_while(|_| !is_so()).for_each(|_| std::thread::sleep(Duration::from_millis(10)));
        assert!(is_so());
    }

    #[test]
    fn a_thousand_calls_are_no_thousand_threads() {
        let (callers, gate) = (Callers::default(), Gate::new());
        let all: Vec<_> = (0..1000).map(|_| callers.call(gate.wait()).unwrap()).collect();
        until(|| gate.begun.load(Ordering::SeqCst) == THREADS_MOST);
        assert_eq!(callers.0.lock().threads, THREADS_MOST);
        let Gate { begun, go, .. } = gate;
        drop(go);
        until(|| begun.load(Ordering::SeqCst) == 1000);
        drop(all);
    }

    #[test]
    fn one_after_the_other_is_one_thread_also_after_a_panic() {
        let (callers, calls) = (Callers::default(), Arc::new(AtomicUsize::new(0)));
        for number in 0..100 {
            let calls = calls.clone();
            let _called = callers.call(move || {
                assert!(calls.fetch_add(1, Ordering::SeqCst) != 50, "as a defect would");
            });
            until(|| callers.0.lock().idle == 1 && callers.0.lock().jobs.is_empty());
            assert!(number < 100);
        }
        assert_eq!((callers.0.lock().threads, calls.load(Ordering::SeqCst)), (1, 100));
        let shared = callers.0.clone();
        drop(callers);
        until(|| shared.lock().threads == 0);
    }

    #[test]
    fn what_nobody_waits_for_is_in_nobodys_way() {
        let (callers, gate) = (Callers::default(), Gate::new());
        let all: Vec<_> = (0..2 * THREADS_MOST).map(|_| callers.call(gate.wait()).unwrap()).collect();
        until(|| gate.begun.load(Ordering::SeqCst) == THREADS_MOST);
        drop(all);
        let (tell, told) = mpsc::channel();
        let called = callers.call(move || tell.send(()).unwrap()).unwrap();
        told.recv_timeout(Duration::from_secs(10)).unwrap();
        // Those that had not begun never do.
        assert_eq!(gate.begun.load(Ordering::SeqCst), THREADS_MOST);
        drop((called, gate));
        until(|| callers.0.lock().lost == 0);
    }
}
