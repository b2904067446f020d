//! Threads for calls that block: started when they are needed, gone when they have been idle.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// At most so many wait at a time; what comes beyond that waits for one of them.
const MOST_THREADS: usize = 128;
/// A thread that had nothing to do for so long leaves.
const IDLE: Duration = Duration::from_secs(5);
/// They hold the client's blocking calls, and little of who makes them.
const STACK_BYTES: usize = 512 << 10;

/// Threads that call what blocks, such as [`crate::Client::stat`], for those who do not want to. A clone has
/// the same ones.
#[derive(Clone)]
pub struct Callers(Arc<Shared>);

/// Somebody waits for a call as long as this lives. Of one that goes before its call begins the call is
/// dropped; a thread that is in the call then is lost until that ends, and another may take its place.
#[must_use]
pub struct Called {
    shared: Arc<Shared>,
    life: Arc<Mutex<Life>>,
}

/// Of a call that somebody waits for. Changed with the threads' state locked.
#[derive(Clone, Copy, PartialEq)]
enum Life {
    Waits,
    Runs,
    Ended,
    /// Nobody waits for it any more.
    Left,
}

struct Job {
    work: Box<dyn FnOnce() + Send>,
    /// None of one that is called in any case.
    life: Option<Arc<Mutex<Life>>>,
}

struct Shared {
    /// What the threads are called.
    name: &'static str,
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
    /// Of the threads, those in calls that nobody waits for any more.
    lost: usize,
    closed: bool,
}

impl Callers {
    /// Threads of that name, as the system shows it.
    pub fn new(name: &'static str) -> Callers {
        Callers::of(name, MOST_THREADS, IDLE)
    }

    /// At most `most` threads of that name.
    pub fn at_most(most: usize, name: &'static str) -> Callers {
        Callers::of(name, most, IDLE)
    }

    fn of(name: &'static str, most: usize, idle: Duration) -> Callers {
        Callers(Arc::new(Shared {
            name,
            state: Mutex::default(),
            job: Condvar::new(),
            empty: Condvar::new(),
            most,
            idle,
        }))
    }

    /// Calls it on a thread of its own, or later. It is dropped after [`Callers::close`], and where there is
    /// no thread and none can be had.
    pub fn run(&self, work: impl FnOnce() + Send + 'static) {
        // Who is dropped says so to whoever waits.
        let _ = self.add(Job { work: Box::new(work), life: None }, VecDeque::push_back);
    }

    /// As [`Callers::run`], before all work that has not begun.
    pub fn run_first(&self, work: impl FnOnce() + Send + 'static) {
        // Work that is dropped says so to its caller.
        let _ = self.add(Job { work: Box::new(work), life: None }, VecDeque::push_front);
    }

    /// The same, as long as somebody waits for it.
    ///
    /// # Errors
    /// There is no thread, and none can be had.
    pub fn call(&self, work: impl FnOnce() + Send + 'static) -> io::Result<Called> {
        let life = Arc::new(Mutex::new(Life::Waits));
        self.add(Job { work: Box::new(work), life: Some(life.clone()) }, VecDeque::push_back)?;
        Ok(Called { shared: self.0.clone(), life })
    }

    fn add(&self, job: Job, put: fn(&mut VecDeque<Job>, Job)) -> io::Result<()> {
        let mut state = self.0.state();
        if state.closed {
            return Ok(());
        }
        put(&mut state.queue, job);
        self.0.man(state)
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
}

/// Waits for threads that have left to be gone.
fn join(threads: Vec<JoinHandle<()>>) {
    // A job's panic is caught where it runs.
    threads.into_iter().for_each(|thread| drop(thread.join()));
}

impl Drop for Called {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        if change(&state, &self.life, Life::Left) == Life::Runs {
            state.lost += 1;
            // Where there is no thread to be had, who calls next tries again.
            let _ = self.shared.man(state);
        }
    }
}

/// What it was before. The state is locked, for what is counted by it.
fn change(_state: &MutexGuard<'_, State>, life: &Mutex<Life>, to: Life) -> Life {
    std::mem::replace(&mut *life.lock().unwrap_or_else(PoisonError::into_inner), to)
}

impl Shared {
    /// Has a thread come for what waits.
    fn man(self: &Arc<Self>, mut state: MutexGuard<'_, State>) -> io::Result<()> {
        if state.queue.len() <= state.idle || state.threads >= self.most + state.lost {
            drop(state);
            self.job.notify_one();
            return Ok(());
        }
        state.threads += 1;
        drop(state);
        let shared = self.clone();
        let thread = std::thread::Builder::new().name(self.name.to_owned()).stack_size(STACK_BYTES);
        let thread = thread.spawn(move || shared.serve());
        let mut state = self.state();
        match thread {
            Ok(thread) => {
                let left = state.handles.extract_if(.., |thread| thread.is_finished()).collect();
                state.handles.push(thread);
                drop(state);
                join(left);
                Ok(())
            }
            Err(refused) => {
                // The machine has no more threads: those that there are do it later, or nobody does.
                state.threads -= 1;
                let nobody = state.threads == 0;
                let jobs = if nobody { std::mem::take(&mut state.queue) } else { Default::default() };
                drop(state);
                drop(jobs);
                if nobody { Err(refused) } else { Ok(()) }
            }
        }
    }

    fn serve(&self) {
        while let Some(Job { work, life }) = self.next() {
            if life.as_ref().is_some_and(|life| change(&self.state(), life, Life::Runs) == Life::Left) {
                continue;
            }
            // What the panic leaves unanswered answers itself; others go on.
            let _ = catch_unwind(AssertUnwindSafe(work));
            if let Some(life) = life {
                let mut state = self.state();
                state.lost -= usize::from(change(&state, &life, Life::Ended) == Life::Left);
            }
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

impl std::fmt::Debug for Callers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Callers").field("threads", &self.threads()).finish()
    }
}

#[cfg(test)]
#[path = "callers_tests.rs"]
mod tests;
