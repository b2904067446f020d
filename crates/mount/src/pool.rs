//! Threads for what waits for an origin: started when they are needed, gone when they have been idle.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// At most so many wait at a time; what comes beyond that waits for one of them.
pub(crate) const MOST_THREADS: usize = 128;
/// A thread that had nothing to do for so long leaves.
const IDLE: Duration = Duration::from_secs(5);
/// They hold a request's names and answers, and the engine's blocking calls.
const STACK_BYTES: usize = 512 << 10;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Clone)]
pub(crate) struct Pool(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// A job is there, or there will be none.
    job: Condvar,
    /// The last thread has left.
    empty: Condvar,
    most: usize,
    idle: Duration,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    /// Of those, and of some that have left: who has left may not be gone yet.
    handles: Vec<JoinHandle<()>>,
    idle: usize,
    closed: bool,
}

impl Pool {
    pub fn new() -> Pool {
        Pool::of(MOST_THREADS, IDLE)
    }

    pub fn of(most: usize, idle: Duration) -> Pool {
        Pool(Arc::new(Shared {
            state: Mutex::default(),
            job: Condvar::new(),
            empty: Condvar::new(),
            most,
            idle,
        }))
    }

    /// Runs it on a thread of its own, or later. After [`Pool::close`] it is dropped.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.0.state();
        if state.closed {
            return;
        }
        state.queue.push_back(Box::new(job));
        if state.queue.len() > state.idle && state.threads < self.0.most {
            state.threads += 1;
            drop(state);
            self.start();
        } else {
            drop(state);
            self.0.job.notify_one();
        }
    }

    /// How many threads there are.
    pub fn threads(&self) -> usize {
        self.0.state().threads
    }

    /// Nothing is begun any more; what waited is dropped. True when every thread has gone before so long.
    pub fn close(&self, wait: Duration) -> bool {
        let mut state = self.0.state();
        state.closed = true;
        let dropped = std::mem::take(&mut state.queue);
        drop(state);
        // Outside of the lock: a job that is dropped answers its request.
        drop(dropped);
        self.0.job.notify_all();
        let until = Instant::now() + wait;
        let mut state = self.0.state();
        while state.threads > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.0.empty.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let handles = std::mem::take(&mut state.handles);
        drop(state);
        join(handles);
        true
    }

    fn start(&self) {
        let shared = self.0.clone();
        let name = "flatout-wait".to_owned();
        let thread =
            std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(move || shared.serve());
        let mut state = self.0.state();
        match thread {
            Ok(thread) => {
                let left = state.handles.extract_if(.., |thread| thread.is_finished()).collect();
                state.handles.push(thread);
                drop(state);
                join(left);
            }
            Err(_) => {
                // The machine has no more threads: those that there are do it later, or nobody does.
                state.threads -= 1;
                let nobody = state.threads == 0;
                let jobs = if nobody { std::mem::take(&mut state.queue) } else { Default::default() };
                drop(state);
                drop(jobs);
            }
        }
    }
}

/// Waits for threads that have left to be gone.
fn join(threads: Vec<JoinHandle<()>>) {
    // A job's panic is caught where it runs.
    threads.into_iter().for_each(|thread| drop(thread.join()));
}

impl Shared {
    fn serve(&self) {
        while let Some(job) = self.next() {
            // What the panic leaves unanswered answers itself; others go on.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }

    /// None: this thread leaves, and is counted no more.
    fn next(&self) -> Option<Job> {
        let mut state = self.state();
        let until = Instant::now() + self.idle;
        loop {
            if let Some(job) = state.queue.pop_front() {
                return Some(job);
            }
            let left = until.saturating_duration_since(Instant::now());
            if state.closed || left.is_zero() {
                state.threads -= 1;
                if state.threads == 0 {
                    self.empty.notify_all();
                }
                return None;
            }
            state.idle += 1;
            state = self.job.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            state.idle -= 1;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish()
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
